"""What solved fields and density matrices say: pulse areas, photons, populations, spin waves, fields in the lab frame.

Everything is differentiable in its tensors. Axes are (*batch, field, z, time) for fields and
(*batch, z, time, level, level) for density matrices; frequencies are cyclic.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.interpolate import CubicSpline

from jax_kernel.errors import ProblemError
from jax_kernel.parameters import fail
from jax_kernel.problem import Problem

from . import bridge
from .checks import check_number


def pulse_area(fields: torch.Tensor, time: torch.Tensor, *, part: str = "abs") -> torch.Tensor:
    """The pulse area 2π∫|Ω| dt, or 2π∫Re Ω dt, by the trapezoidal rule.

    The area theorem is about a real envelope: McCall and Hahn, Phys. Rev. 183, 457 (1969). Chirped or detuned light
    turns into the imaginary part, of which the real area knows nothing.

    Args:
        fields: complex or real envelopes, cyclic, shape (*batch, time).
        time: shape (time,).
        part: "abs", or "real" as in clerq's `fields_area`.

    Returns:
        The area in radians, shape (*batch,).

    Raises:
        ProblemError: there is no such part.

    Example:
        >>> import math
        >>> import torch
        >>> time = torch.linspace(-20.0, 20.0, 401)
        >>> print(f"{pulse_area(1 / (math.pi * time.cosh()), time) / math.pi:.4f} π")
        2.0000 π
    """
    if part not in ("abs", "real"):
        fail("part", 'be "abs" or "real"', f"is {part!r}")
    envelope = fields.abs() if part == "abs" else fields.real
    return 2 * math.pi * torch.trapezoid(envelope, time)


def energy(field: torch.Tensor, time: torch.Tensor, *, after: float | None = None) -> torch.Tensor:
    """∫|Ω|² dt by the trapezoidal rule, to which the energy of a pulse on a resonant transition is proportional.

    Args:
        field: complex or real envelope, cyclic, shape (*batch, time).
        time: its time grid, shape (time,).
        after: start of the integral, by default that of the grid; may fall between two times.

    Returns:
        The energy, cyclic squared times time, shape (*batch,).

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 2.0, 5)
        >>> energy(torch.full((5,), 3.0), time).item(), energy(torch.full((5,), 3.0), time, after=0.75).item()
        (18.0, 11.25)
    """
    return ((field * field.conj()).real * integration_weights(time, after)).sum(-1)


def check_pulse(name: str, pulse: torch.Tensor, time: torch.Tensor) -> None:
    """Refuse a pulse that is no tensor over a grid of increasing times (or frequencies, or ∫N dz)."""
    if not isinstance(time, torch.Tensor) or time.ndim != 1 or not time.is_floating_point() or not len(time):
        what = f"has shape {tuple(time.shape)} and {time.dtype}" if isinstance(time, torch.Tensor) else f"is {time!r}"
        fail("time", "be a tensor of shape (time,) of real numbers", what)
    if not isinstance(pulse, torch.Tensor) or not (pulse.is_floating_point() or pulse.is_complex()):
        what = f"has dtype {pulse.dtype}" if isinstance(pulse, torch.Tensor) else f"is {pulse!r}"
        fail(name, "be a tensor of real or complex numbers", what)
    if pulse.shape[-1:] != time.shape:
        fail(name, f"have shape (*batch, time) with {len(time)} times", f"has shape {tuple(pulse.shape)}")
    if not bool((time.diff() >= 0).all()):
        fail("time", "be increasing", "is not")


def integration_weights(time: torch.Tensor, after: float | None = None) -> torch.Tensor:
    """The weights of samples in ∫_after^end of the line through them: those of the trapezoidal rule, cut at a time.

    Args:
        time: the grid, increasing, shape (time,).
        after: start of the integral, by default that of the grid; may fall between two times.

    Returns:
        In the unit of time, shape (time,).

    Example:
        >>> import torch
        >>> integration_weights(torch.tensor([0.0, 1.0, 3.0])).tolist()
        [0.5, 1.5, 1.0]
    """
    if after is not None:
        after = check_number("after", after)
    step = time.diff()
    share = torch.ones_like(step) if after is None else ((time[1:] - after) / step).clamp(0, 1)
    later = step * (share - share**2 / 2)
    earlier = step * share - later
    zero = torch.zeros_like(step[:1])
    return torch.cat([earlier, zero]) + torch.cat([zero, later])


def photon_number(fields: torch.Tensor, time: torch.Tensor, interaction_strengths: torch.Tensor) -> torch.Tensor:
    """Photons that pass each position, (π/2g)∫|Ω|² dt, in the unit of `medium_integral`.

    Without decay, their sum over the fields and the excitations `medium_integral` of the medium up to z (relative to
    the start) are together the same at every z: the photon balance of Maxwell's and the Lindblad equation in
    `jax_kernel.propagate`. The photons of a counter-propagating field count negative.

    Args:
        fields: complex or real envelopes, cyclic, shape (*batch, field, z, time).
        time: shape (time,).
        interaction_strengths: g of each field, not 0, cyclic frequency per length, shape (*batch, field).

    Returns:
        Shape (*batch, field, z).

    Raises:
        ProblemError: an interaction strength is 0; such a field exchanges no photons with the medium.

    Example:
        >>> import torch
        >>> photon_number(torch.ones(1, 2, 5), torch.linspace(0.0, 2.0, 5), torch.tensor([torch.pi])).tolist()
        [[1.0, 1.0]]
    """
    if bool((interaction_strengths == 0).any()):
        fail("interaction_strengths", "have no 0, since such a field exchanges no photons", "has one: leave it out")
    return math.pi / 2 * energy(fields, time) / interaction_strengths[..., None]


def populations(density_matrix: torch.Tensor, levels: Sequence[int]) -> torch.Tensor:
    """The population of some levels together.

    Args:
        density_matrix: shape (*batch, z, time, level, level).
        levels: their indices.

    Returns:
        Shape (*batch, z, time), real.

    Raises:
        ProblemError: there is no such level.

    Example:
        >>> import torch
        >>> populations(torch.diag(torch.tensor([0.5, 0.25, 0.25])), [0, 2]).item()
        0.75
    """
    _check_levels("levels", levels, density_matrix)
    return density_matrix.diagonal(dim1=-2, dim2=-1)[..., list(levels)].real.sum(-1)


def coherences(density_matrix: torch.Tensor, coupled_levels: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The sum of the elements ρ_ab of some pairs of levels, each with factor 1.

    `Solution.coherences` has them with the factors of each field, which makes them the source of the field.

    Args:
        density_matrix: shape (*batch, z, time, level, level).
        coupled_levels: pairs (a, b).

    Returns:
        Shape (*batch, z, time), complex.

    Raises:
        ProblemError: there is no such level.

    Example:
        >>> import torch
        >>> coherences(torch.tensor([[0.5, 0.5j], [-0.5j, 0.5]]), [(0, 1)]).item()
        0.5j
    """
    first, second = ([pair[side] for pair in coupled_levels] for side in (0, 1))
    _check_levels("coupled_levels", [*first, *second], density_matrix)
    return density_matrix[..., first, second].sum(-1)


def _check_levels(name: str, levels: Sequence[int], density_matrix: torch.Tensor) -> None:
    count = density_matrix.shape[-1]
    for level in levels:
        if not 0 <= level < count:
            fail(name, f"have levels from 0 to {count - 1}", f"has {level}")


def spin_wave(
    density_matrix: torch.Tensor, time: torch.Tensor, coupled_levels: tuple[int, int], at: float | torch.Tensor
) -> torch.Tensor:
    """The coherence ρ_ab along the medium at one time, which may fall between two of the grid (see `interpolate`).

    Args:
        density_matrix: shape (*batch, z, time, level, level).
        time: shape (time,).
        coupled_levels: the pair (a, b): of a Λ memory, the two lower levels.
        at: the time.

    Returns:
        Shape (*batch, z), complex.

    Raises:
        ProblemError: there is no such level, or the time is outside the window.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 1.0, 5)
        >>> growing = time[:, None, None] * torch.tensor([[0.0, 0.5j], [-0.5j, 0.0]])
        >>> spin_wave(growing[None], time, (0, 1), at=0.6).numpy().round(6)
        array([0.+0.3j], dtype=complex64)
    """
    if not bool(time[0] <= at <= time[-1]):
        fail("at", f"be in the window from {float(time[0]):g} to {float(time[-1]):g}", f"is {float(at):g}")
    instant = torch.as_tensor(at, dtype=time.dtype, device=time.device)[None]
    return interpolate(time, coherences(density_matrix, [coupled_levels]), instant)[..., 0]


def medium_integral(density: torch.Tensor, path: torch.Tensor) -> torch.Tensor:
    """∫N q dz of a quantity q per atom, by the trapezoidal rule in the optical path ∫N dz, so that N may jump.

    Args:
        density: q at each position, shape (*batch, z).
        path: ∫N dz from the entrance to each position, shape (z,): of a problem, `jax_kernel.medium.optical_path`.

    Returns:
        Shape (*batch,).

    Example:
        >>> import torch
        >>> medium_integral(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0.0, 0.5, 0.5])).item()  # it ends at 0.5
        0.5
    """
    return torch.trapezoid(density, path)


def stored_excitations(spin_wave: torch.Tensor, path: torch.Tensor) -> torch.Tensor:
    """Excitations in a spin wave, ∫N|ρ_ab|² dz, in the unit of `photon_number`.

    As long as almost all atoms are in one of the two levels, and the other one is reached by the light alone, |ρ_ab|²
    is its population: stored per entered photons is the efficiency of storage, Gorshkov, André, Lukin and Sørensen,
    Phys. Rev. A 76, 033805 (2007).

    Args:
        spin_wave: ρ_ab at each position, shape (*batch, z).
        path: ∫N dz from the entrance to each position, shape (z,).

    Returns:
        Shape (*batch,).

    Example:
        >>> import torch
        >>> round(stored_excitations(torch.tensor([0.1j, 0.1, 0.0]), torch.tensor([0.0, 0.5, 0.5])).item(), 6)
        0.005
    """
    return medium_integral((spin_wave * spin_wave.conj()).real, path)


def interpolate(grid: torch.Tensor, values: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """The not-a-knot cubic spline through samples, which is also the one that drives the medium with sampled fields.

    Source: C. de Boor, A Practical Guide to Splines (2001), chapter IV. Its slopes are SciPy's; the gradient arrives
    at the values and at the places, not at the grid.

    Args:
        grid: increasing, of at least two points, shape (point,).
        values: real or complex, shape (*batch, point).
        at: where; outside the grid the first and last cubic go on. Shape (*batch, place), or fewer leading axes.

    Returns:
        Shape (*batch, place).

    Example:
        >>> import torch
        >>> grid = torch.linspace(0.0, 1.0, 6)
        >>> print(f"{interpolate(grid, grid**3, torch.tensor([0.5])).item():.6f}")
        0.125000
    """
    seen = bridge.value(grid)
    if seen is None:
        fail("grid", "have values that can be looked at", "has none")
    knots = seen.astype(float)
    to_slopes = CubicSpline(knots, np.eye(len(knots)))(knots, 1)
    slopes = values @ torch.as_tensor(to_slopes.T, dtype=values.dtype, device=values.device)
    left = (torch.searchsorted(grid.detach().contiguous(), at.detach().contiguous(), right=True) - 1).clamp(
        0, len(knots) - 2
    )
    step = grid.diff()[left]
    x = (at - grid[left]) / step

    def pick(samples: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.take_along_dim(samples, index.expand(*samples.shape[:-1], -1), -1)

    chord = pick(values, left + 1) - pick(values, left)
    start, end = step * pick(slopes, left) - chord, chord - step * pick(slopes, left + 1)
    return pick(values, left) + x * chord + x * (1 - x) * ((1 - x) * start + x * end)


def lab_time(z: torch.Tensor, time: torch.Tensor, speed_of_light: float | torch.Tensor) -> torch.Tensor:
    """Laboratory times from when the window opens at the entrance until it closes at the exit.

    Args:
        z: positions, increasing, shape (z,).
        time: retarded times t = t_lab − z/c, shape (time,).
        speed_of_light: c, in the problem's units, positive.

    Returns:
        As many times, equally spaced, shape (time,).

    Raises:
        ProblemError: the speed is not positive.

    Example:
        >>> import torch
        >>> lab_time(torch.tensor([0.0, 1.0]), torch.tensor([-1.0, 0.0, 1.0]), 0.5).tolist()
        [-1.0, 1.0, 3.0]
    """
    _check_speed(speed_of_light)
    start, end = time[0] + z[0] / speed_of_light, time[-1] + z[-1] / speed_of_light
    return start + (end - start) * torch.linspace(0, 1, len(time), dtype=time.dtype, device=time.device)


def lab_fields(
    fields: torch.Tensor,
    z: torch.Tensor,
    time: torch.Tensor,
    speed_of_light: float | torch.Tensor,
    *,
    at: torch.Tensor | None = None,
    problem: Problem | None = None,
) -> torch.Tensor:
    """Fields in the laboratory frame, Ω(z, t_lab) = Ω(z, t = t_lab − z/c), by `interpolate`.

    Args:
        fields: of co-propagating light, complex or real, cyclic, shape (*batch, field, z, time).
        z: positions, shape (z,).
        time: retarded times, shape (time,).
        speed_of_light: c, in the problem's units, positive.
        at: laboratory times, by default `lab_time`, shape (lab time,).
        problem: what was solved, to refuse counter-propagating fields.

    Returns:
        Shape (*batch, field, z, lab time); 0 where the retarded window holds no light yet or no longer.

    Raises:
        ProblemError: the speed is not positive, or a field is counter-propagating.

    Example:
        >>> import torch
        >>> z, time = torch.linspace(0.0, 1.0, 3), torch.linspace(0.0, 4.0, 5)
        >>> ramp = time.expand(1, 3, 5)
        >>> lab_fields(ramp, z, time, 1.0, at=torch.tensor([1.0, 2.0]))[0].numpy().round(6)
        array([[1. , 2. ],
               [0.5, 1.5],
               [0. , 1. ]], dtype=float32)
    """
    counter = [] if problem is None else [f for f in enumerate(problem.fields) if f[1].counter_propagating]
    if counter:
        names = ", ".join(f"`{field.label or k}`" for k, field in counter)
        raise ProblemError(
            f"Argument `problem` must have co-propagating fields only, but {names} runs against them, and its retarded "
            "time t = t_lab + z/c is another one: choose the others from `fields` and leave `problem` out."
        )
    _check_speed(speed_of_light)
    lab = lab_time(z, time, speed_of_light) if at is None else at
    retarded = lab - z[:, None] / speed_of_light
    rounding = 1e-3 * (time[1] - time[0])
    inside = (retarded > time[0] - rounding) & (retarded < time[-1] + rounding)
    return torch.where(inside, interpolate(time, fields, retarded), 0)


def _check_speed(speed_of_light: float | torch.Tensor) -> None:
    if not bool(speed_of_light > 0):
        fail("speed_of_light", "be positive", f"is {float(speed_of_light):g}")
