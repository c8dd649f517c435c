"""Objectives of pulse design and of training: efficiencies, fidelities, penalties.

An efficiency may start at 1e-9, where its own gradient is as small; its logarithm, `log_…`, has one of order one there,
and is right where |Ω|² itself would underflow. What approaches 1 has a logarithm of what is missing from 1, computed
without the difference. Maximise efficiencies, minimise penalties; all are of shape (*batch,).
"""

import math
from collections.abc import Sequence

import torch

from jax_kernel.parameters import fail

from .analysis import check_pulse, energy, integration_weights, populations, spin_wave
from .checks import check_positive
from .functional import to_tensor
from .spectra import freq_list, spectrum


def log_energy(field: torch.Tensor, time: torch.Tensor, *, after: float | None = None) -> torch.Tensor:
    """The natural logarithm of `energy`; its value and gradient are right where |Ω|² itself would underflow.

    Args:
        field: complex or real envelope, cyclic, shape (*batch, time).
        time: its time grid, shape (time,).
        after: start of the integral, by default that of the grid.

    Returns:
        The logarithm, shape (*batch,); of a dark field finite and far below that of any other, with gradient 0.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 1.0, 11)
        >>> round(log_energy(torch.full((11,), 1e-30), time).item(), 2)  # in float32, where (1e-30)² is 0
        -138.16
    """
    check_pulse("field", field, time)
    late = field if after is None else field * (integration_weights(time, after) > 0)
    unit, scale = _unit(late)
    return _log(energy(unit, time, after=after)) + 2 * scale.log()


def _of_field(fields: torch.Tensor, field: int) -> torch.Tensor:
    """One of the fields, shape (*batch, z, time)."""
    if not isinstance(fields, torch.Tensor) or fields.ndim < 3:
        what = f"has shape {tuple(fields.shape)}" if isinstance(fields, torch.Tensor) else f"is {fields!r}"
        fail("fields", "be a tensor of shape (*batch, field, z, time)", what)
    count = fields.shape[-3]
    if not isinstance(field, int) or not -count <= field < count:
        fail("field", f"be the index of one of {count} fields", f"is {field!r}")
    return fields[..., field, :, :]


def _unit(field: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A field per its largest modulus, so that its squares cannot underflow, and that modulus, shape (*batch,)."""
    tiny = torch.finfo(field.dtype).tiny
    scale = field.detach().abs().amax(-1, keepdim=True)
    dark = scale < tiny  # no normal number: slopes there would overflow
    scale = scale.clamp(min=tiny)
    return torch.where(dark, 0, field) / scale, scale[..., 0]


def _log(x: torch.Tensor) -> torch.Tensor:
    """The logarithm, of nothing that of the smallest normal number, with gradient 0."""
    return x.clamp(min=torch.finfo(x.dtype).tiny).log()


def retrieval_efficiency(
    fields: torch.Tensor, time: torch.Tensor, *, field: int = 0, after: float | None = None, backward: bool = False
) -> torch.Tensor:
    """Energy that leaves the medium from a time on, per energy that entered it at any time.

    Args:
        fields: what a `TorchPropagator` returns, cyclic, shape (*batch, field, z, time).
        time: its time grid, shape (time,).
        field: index of the stored field.
        after: when retrieval begins; None counts the whole output, as `transmission` does.
        backward: whether the field enters at the last position, as a counter-propagating one does.

    Returns:
        The efficiency, shape (*batch,).

    Example:
        >>> import torch
        >>> fields = torch.ones(1, 2, 5)  # one field, entrance and exit, five times
        >>> retrieval_efficiency(fields, torch.linspace(0.0, 4.0, 5), after=3.0).item()
        0.25
    """
    return log_retrieval_efficiency(fields, time, field=field, after=after, backward=backward).exp()


def log_retrieval_efficiency(
    fields: torch.Tensor, time: torch.Tensor, *, field: int = 0, after: float | None = None, backward: bool = False
) -> torch.Tensor:
    """The natural logarithm of `retrieval_efficiency`, whose gradients are of order one however little is retrieved.

    A random start may retrieve 1e-9; the gradient of the efficiency itself is then as small.

    Args:
        fields: cyclic, shape (*batch, field, z, time).
        time: its time grid, shape (time,).
        field: index of the stored field.
        after: when retrieval begins.
        backward: whether the field enters at the last position.

    Returns:
        The logarithm, shape (*batch,).

    Example:
        >>> import torch
        >>> fields = torch.stack([torch.ones(5), torch.full((5,), 1e-20)])[None]
        >>> round(log_retrieval_efficiency(fields, torch.linspace(0.0, 4.0, 5), after=3.0).item(), 2)
        -93.49
    """
    light = _of_field(fields, field)
    entrance, end = (-1, 0) if backward else (0, -1)
    return log_energy(light[..., end, :], time, after=after) - log_energy(light[..., entrance, :], time)


def transmission(fields: torch.Tensor, time: torch.Tensor, *, field: int = 0, backward: bool = False) -> torch.Tensor:
    """Energy that leaves the medium per energy that entered it.

    Args:
        fields: what a `TorchPropagator` returns, cyclic, shape (*batch, field, z, time).
        time: its time grid, shape (time,).
        field: index of the field.
        backward: whether the field enters at the last position, as a counter-propagating one does.

    Returns:
        Shape (*batch,).

    Example:
        >>> import torch
        >>> fields = torch.stack([torch.ones(5), torch.full((5,), 0.5)])[None]
        >>> round(transmission(fields, torch.linspace(0.0, 4.0, 5)).item(), 6)
        0.25
    """
    return log_transmission(fields, time, field=field, backward=backward).exp()


def log_transmission(
    fields: torch.Tensor, time: torch.Tensor, *, field: int = 0, backward: bool = False
) -> torch.Tensor:
    """The natural logarithm of `transmission`, minus the optical depth of Beer and Lambert, with the same arguments.

    Example:
        >>> import torch
        >>> fields = torch.stack([torch.ones(5), torch.full((5,), 1e-30)])[None]
        >>> round(log_transmission(fields, torch.linspace(0.0, 4.0, 5)).item(), 2)
        -138.16
    """
    return log_retrieval_efficiency(fields, time, field=field, backward=backward)


def storage_efficiency(
    fields: torch.Tensor,
    density_matrix: torch.Tensor,
    time: torch.Tensor,
    *,
    path: torch.Tensor,
    interaction_strength: float | torch.Tensor,
    coupled_levels: tuple[int, int],
    at: float,
    field: int = 0,
    backward: bool = False,
) -> torch.Tensor:
    """Excitations in the spin wave at a time per photon that enters, ∫N|ρ_ab|² dz / ((π/2g)∫|Ω|² dt).

    `torch_clerq.analysis.stored_excitations` per `photon_number` at the entrance; for weak light it is the efficiency
    of storage. Source: Gorshkov, André, Lukin and Sørensen, Phys. Rev. A 76, 033805 (2007).

    Args:
        fields: cyclic, shape (*batch, field, z, time).
        density_matrix: shape (*batch, z, time, level, level).
        time: shape (time,).
        path: ∫N dz from the entrance to each position, shape (z,): `jax_kernel.medium.optical_path`.
        interaction_strength: g of the stored field, positive, cyclic frequency per length, a number or shape (*batch,).
        coupled_levels: the pair (a, b) of the spin wave: of a Λ memory, the two lower levels.
        at: when it is stored.
        field: index of the stored field.
        backward: whether the field enters at the last position.

    Returns:
        The efficiency, shape (*batch,).

    Raises:
        ProblemError: there is no such level, the time is outside of the window, or g is not positive.

    Example:
        >>> import math, torch
        >>> time, path = torch.linspace(0.0, 1.0, 3), torch.tensor([0.0, 1.0])
        >>> fields, states = torch.ones(1, 2, 3), torch.full((2, 3, 2, 2), 0.5)
        >>> options = dict(path=path, interaction_strength=math.pi / 2, coupled_levels=(0, 1), at=1.0)
        >>> round(storage_efficiency(fields, states, time, **options).item(), 6)
        0.25
    """
    return log_storage_efficiency(
        fields, density_matrix, time, path=path, interaction_strength=interaction_strength,
        coupled_levels=coupled_levels, at=at, field=field, backward=backward,
    ).exp()  # fmt: skip


def log_storage_efficiency(
    fields: torch.Tensor,
    density_matrix: torch.Tensor,
    time: torch.Tensor,
    *,
    path: torch.Tensor,
    interaction_strength: float | torch.Tensor,
    coupled_levels: tuple[int, int],
    at: float,
    field: int = 0,
    backward: bool = False,
) -> torch.Tensor:
    """The natural logarithm of `storage_efficiency`, with the same arguments.

    Example:
        >>> import math, torch
        >>> time, path = torch.linspace(0.0, 1.0, 3), torch.tensor([0.0, 1.0])
        >>> fields, states = torch.ones(1, 2, 3), torch.full((2, 3, 2, 2), 1e-30)
        >>> options = dict(path=path, interaction_strength=math.pi / 2, coupled_levels=(0, 1), at=1.0)
        >>> round(log_storage_efficiency(fields, states, time, **options).item(), 2)
        -138.16
    """
    strength = to_tensor("interaction_strength", interaction_strength).to(time)
    if not bool((strength > 0).all()):
        fail("interaction_strength", "be positive", f"is {strength.min():g}")
    stored = log_energy(spin_wave(density_matrix, time, coupled_levels, at), path)
    entering = log_energy(_of_field(fields, field)[..., -1 if backward else 0, :], time)
    return stored - entering + (strength * (2 / math.pi)).log()


def pulse_fidelity(
    field: torch.Tensor, target: torch.Tensor, time: torch.Tensor, *, global_phase: bool = False
) -> torch.Tensor:
    """How far two pulses have the same shape, whatever their energies: from τ = ∫T*Ω dt/√(∫|T|² dt ∫|Ω|² dt).

    |τ|² where a phase that is the same at all times does not matter, Re τ where it does, which is −1 for the negative
    pulse. Source: J. P. Palao and R. Kosloff, Phys. Rev. A 68, 062308 (2003), for states.

    Args:
        field: complex or real envelope, cyclic, shape (*batch, time).
        target: complex or real envelope, in any unit, shape (*batch, time).
        time: shape (time,).
        global_phase: whether it matters.

    Returns:
        The fidelity, at most 1, shape (*batch,).

    Raises:
        ProblemError: the shapes do not fit.

    Example:
        >>> import torch
        >>> time = torch.linspace(-4.0, 4.0, 81)
        >>> pulse = torch.exp(-(time**2))
        >>> round(pulse_fidelity(-2 * pulse, pulse, time).item(), 6)
        1.0
        >>> round(pulse_fidelity(-2 * pulse, pulse, time, global_phase=True).item(), 6)
        -1.0
    """
    field, target, weights = _normalised(field, target, time)
    overlap = (weights * target.conj() * field).sum(-1)
    return overlap.real if global_phase else (overlap * overlap.conj()).real


def log_pulse_fidelity(field: torch.Tensor, target: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """The natural logarithm of `pulse_fidelity` where the global phase does not matter, with the same arguments.

    Where it matters the fidelity may be negative: take `log_pulse_infidelity`, whose gradient is of order one there.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 10.0, 101)
        >>> early, late = torch.exp(-((time - 2) ** 2)), torch.exp(-((time - 8) ** 2))
        >>> round(log_pulse_fidelity(early, late, time).item(), 3)  # that of e^{-36}
        -36.0
    """
    field, target, weights = _normalised(field, target, time)
    parts = weights * target.conj() * field
    scale = parts.detach().abs().amax(-1, keepdim=True).clamp(min=torch.finfo(parts.dtype).tiny)
    overlap = (parts / scale).sum(-1)
    return _log((overlap * overlap.conj()).real) + 2 * scale[..., 0].log()


def log_pulse_infidelity(
    field: torch.Tensor, target: torch.Tensor, time: torch.Tensor, *, global_phase: bool = False
) -> torch.Tensor:
    """The natural logarithm of 1 − `pulse_fidelity`, with the same arguments; to be minimised.

    From what is left of the field without the target, ∫|Ω − τT|² dt of normalised pulses, or half of ∫|Ω − T|² dt where
    the global phase matters, since 1 − F itself is noise below the precision: right down to its square, 1e-14 in
    float32.

    Example:
        >>> import torch
        >>> time = torch.linspace(-4.0, 4.0, 81)
        >>> pulse = torch.exp(-(time**2))
        >>> round(log_pulse_infidelity(pulse * (1 + 1e-5 * time), pulse, time).item(), 2)  # that of 1e-10 times ¼
        -24.41
    """
    field, target, weights = _normalised(field, target, time)
    overlap = (weights * target.conj() * field).sum(-1, keepdim=True)
    left = field - target if global_phase else field - overlap * target
    unit, scale = _unit(left)
    logarithm = _log((weights * unit * unit.conj()).real.sum(-1)) + 2 * scale.log()
    return logarithm - math.log(2) if global_phase else logarithm


def _normalised(
    field: torch.Tensor, target: torch.Tensor, time: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two pulses of energy 1, of one dtype, and the weights of the integral; a dark one stays dark."""
    for name, pulse in (("field", field), ("target", target)):
        check_pulse(name, pulse, time)
    kind = torch.promote_types(field.dtype, target.dtype)
    pulses = [_unit(pulse.to(kind))[0] for pulse in (field, target)]
    field, target = (
        pulse / energy(pulse, time).clamp(min=torch.finfo(kind).tiny).sqrt()[..., None] for pulse in pulses
    )
    return field, target, integration_weights(time)


def spectral_overlap(field: torch.Tensor, target: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """How far two pulses have the same spectrum but for its phase: (∫|Ω(ν)||T(ν)| dν)²/(∫|Ω(ν)|² dν ∫|T(ν)|² dν).

    `pulse_fidelity` of the moduli of the spectra; it knows nothing of delay and chirp. What is missing from 1:
    `log_pulse_infidelity(spectrum(field).abs(), spectrum(target).abs(), freq_list(time))`.

    Args:
        field: complex or real envelope, cyclic, shape (*batch, time).
        target: complex or real envelope, in any unit, shape (*batch, time).
        time: a uniform grid, shape (time,).

    Returns:
        From 0 to 1, shape (*batch,).

    Raises:
        ProblemError: the shapes do not fit.

    Example:
        >>> import torch
        >>> time = torch.linspace(-10.0, 10.0, 201)
        >>> early, late = torch.exp(-((time + 3) ** 2)), torch.exp(-((time - 3) ** 2))
        >>> round(spectral_overlap(early, late, time).item(), 4)
        1.0
    """
    return pulse_fidelity(_modulus(field, time), _modulus(target, time), freq_list(time))


def log_spectral_overlap(field: torch.Tensor, target: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """The natural logarithm of `spectral_overlap`, with the same arguments.

    Example:
        >>> import torch
        >>> time = torch.linspace(-10.0, 10.0, 201)
        >>> pulse = torch.exp(-(time**2))
        >>> round(log_spectral_overlap(pulse, pulse * torch.exp(8j * time), time).item(), 2)  # shifted by 8/2π
        -16.0
    """
    return log_pulse_fidelity(_modulus(field, time), _modulus(target, time), freq_list(time))


def _modulus(field: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    check_pulse("field", field, time)
    return spectrum(_unit(field)[0]).abs()


def population_transfer(density_matrix: torch.Tensor, path: torch.Tensor, levels: Sequence[int]) -> torch.Tensor:
    """The share of all atoms that is in some levels at the end, ∫N Σρ_aa dz/∫N dz.

    Args:
        density_matrix: shape (*batch, z, time, level, level).
        path: ∫N dz from the entrance to each position, shape (z,): `jax_kernel.medium.optical_path`.
        levels: their indices.

    Returns:
        From 0 to 1, shape (*batch,).

    Raises:
        ProblemError: there is no such level, or there are no atoms.

    Example:
        >>> import torch
        >>> states = torch.diag(torch.tensor([0.25, 0.75])).expand(3, 5, 2, 2)
        >>> population_transfer(states, torch.tensor([0.0, 0.5, 1.0]), [1]).item()
        0.75
    """
    if path.ndim != 1 or path.shape != density_matrix.shape[-4:-3]:
        fail("path", "have shape (z,), as the density matrix", f"has shape {tuple(path.shape)}")
    if not bool(path[-1] > 0):
        fail("path", "end above 0, with atoms on the way", f"ends at {float(path[-1]):g}")
    return (populations(density_matrix, levels)[..., -1] * integration_weights(path)).sum(-1) / path[-1]


def log_population_transfer(density_matrix: torch.Tensor, path: torch.Tensor, levels: Sequence[int]) -> torch.Tensor:
    """The natural logarithm of `population_transfer`, with the same arguments.

    What is missing from 1 is the transfer to all other levels: minimise this one for those.

    Example:
        >>> import torch
        >>> states = torch.diag(torch.tensor([1.0, 1e-30])).expand(3, 5, 2, 2)
        >>> round(log_population_transfer(states, torch.tensor([0.0, 0.5, 1.0]), [1]).item(), 2)
        -69.08
    """
    return _log(population_transfer(density_matrix, path, levels))


def smoothness_penalty(field: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """∫|dΩ/dt|² dt of the lines through the samples.

    Args:
        field: complex or real envelope, cyclic, shape (*batch, time).
        time: shape (time,).

    Returns:
        Cyclic squared per time, shape (*batch,).

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 2.0, 5)
        >>> smoothness_penalty(3 * time, time).item()
        18.0
    """
    check_pulse("field", field, time)
    change = field.diff()
    return ((change * change.conj()).real / time.diff()).sum(-1)


def bandwidth_penalty(field: torch.Tensor, time: torch.Tensor, bandwidth: float) -> torch.Tensor:
    """The share of a pulse's energy at frequencies beyond |ν| ≤ bandwidth.

    Of the light within the window, with darkness outside: a pulse that is cut off by an end of it has a share, too.

    Args:
        field: complex or real envelope, cyclic, shape (*batch, time).
        time: a uniform grid, shape (time,).
        bandwidth: cyclic, positive.

    Returns:
        From 0 to 1, shape (*batch,); 0 of darkness.

    Raises:
        ProblemError: the bandwidth is not positive.

    Example:
        >>> import torch
        >>> time = torch.linspace(-8.0, 8.0, 161)
        >>> pulse = torch.exp(-(time**2))
        >>> share = bandwidth_penalty(torch.stack([pulse, pulse * torch.cos(20 * time)]), time, bandwidth=2.0)
        >>> share.numpy().round(4).tolist()
        [0.0, 1.0]
    """
    bandwidth = check_positive("bandwidth", bandwidth)
    check_pulse("field", field, time)
    freq_list(time)  # refuses a grid that is not uniform
    padded = torch.nn.functional.pad(_unit(field)[0], (0, len(time)))
    step = (time[-1] - time[0]) / (len(time) - 1)
    light = spectrum(padded)
    power = (light * light.conj()).real
    outside = freq_list(step * torch.arange(2 * len(time), dtype=time.dtype, device=time.device)).abs() > bandwidth
    return (power * outside).sum(-1) / power.sum(-1).clamp(min=torch.finfo(power.dtype).tiny)
