"""Spectra of solved fields, and the closed forms of weak light in a two-level medium to hold them against.

Frequencies ν are cyclic and relative to the field's carrier; +ν is blue, with e^{+i2πνt} as in NumPy's FFT. A weak
field leaves as Ω(z, ν) = Ω(0, ν) e^{−A + iφ}; `absorption` is A, of amplitude, and `dispersion` is −φ, which is the
phase that the light gains in the convention e^{−iωt}. A ratio of spectra says nothing where no light enters: outside of
`in_band` every such quantity is 0, and so is its gradient. A counter-propagating field enters at the last position:
turn its z round, `fields.flip(-2)`. Everything is differentiable.
"""

import math
from typing import Any

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from scipy.signal import get_window
from scipy.special import wofz

from jax_kernel.parameters import fail

from . import bridge
from .analysis import interpolate
from .checks import check_time

FLOOR = 1e-4
"""Part of the entering spectrum's peak below which a ratio to it is taken for noise; a solve meets 1e-6 of the pulse's
peak in float64 and 1e-4 in float32."""


def freq_list(time: torch.Tensor) -> torch.Tensor:
    """The frequencies of `spectrum`, ascending.

    Args:
        time: a uniform grid, shape (time,).

    Returns:
        Cyclic, shape (time,).

    Raises:
        ProblemError: the grid is not uniform.

    Example:
        >>> import torch
        >>> freq_list(torch.linspace(0.0, 4.0, 5)).numpy().round(6)
        array([-0.4, -0.2,  0. ,  0.2,  0.4], dtype=float32)
    """
    check_time(time, uniform=True)
    step = float(time[-1] - time[0]) / (len(time) - 1)
    return torch.fft.fftshift(torch.fft.fftfreq(len(time), step, dtype=time.dtype, device=time.device))


def spectrum(fields: torch.Tensor, *, window: Any = None) -> torch.Tensor:
    """Σ_t Ω(t) e^{−i2πνt}, the discrete Fourier transform with the first time as t = 0, over `freq_list`.

    Args:
        fields: complex or real envelopes, cyclic, shape (*batch, time).
        window: a window against leakage by the name that `scipy.signal.get_window` knows, such as "hann", or None.

    Returns:
        Complex, cyclic, shape (*batch, time).

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 4.0, 5)
        >>> blue = torch.exp(0.4j * torch.pi * time)  # at +0.2
        >>> spectrum(blue).abs().numpy().round(4) + 0.0
        array([0., 0., 0., 5., 0.], dtype=float32)
    """
    if window is not None:
        try:
            weights = get_window(window, fields.shape[-1])
        except ValueError as error:
            fail("window", "be one that scipy.signal.get_window knows", f"is {window!r} ({error})")
        fields = fields * torch.as_tensor(weights, dtype=fields.dtype, device=fields.device)
    return torch.fft.fftshift(torch.fft.fft(fields), dim=-1)


def in_band(fields: torch.Tensor, *, window: Any = None, floor: float = FLOOR) -> torch.Tensor:
    """Where the spectrum that enters is strong enough for a ratio to it.

    Args:
        fields: shape (*batch, z, time); the first position is the entrance.
        window: as in `spectrum`.
        floor: of the entering spectrum's peak.

    Returns:
        Whether it is above the floor, shape (*batch, time).

    Example:
        >>> import torch
        >>> in_band(torch.ones(2, 5)).tolist()
        [False, False, True, False, False]
    """
    entering = spectrum(fields[..., 0, :], window=window).detach().abs()
    return (entering > floor * entering.amax(-1, keepdim=True)) & (entering > torch.finfo(entering.dtype).tiny)


def _least(entering: torch.Tensor) -> torch.Tensor:
    """The modulus below which light has no logarithm and no phase, so that their gradients cannot overflow."""
    return math.sqrt(torch.finfo(entering.dtype).tiny) * entering.detach().amax(-1, keepdim=True)


def absorption(fields: torch.Tensor, z_index: int = -1, *, window: Any = None, floor: float = FLOOR) -> torch.Tensor:
    """−ln|Ω(z, ν)/Ω(0, ν)|: half the optical depth at each frequency. Source: T. P. Ogden's thesis, (2.58).

    Args:
        fields: one field or several, cyclic, shape (*batch, z, time); the first position is the entrance.
        z_index: of the position.
        window: as in `spectrum`.
        floor: part of the entering spectrum's peak below which the result is 0, with gradient 0.

    Returns:
        Shape (*batch, time). Of light below 1e-154 of the entering peak (in float32, 1e-19) no less than that leaves,
        with gradient 0.

    Example:
        >>> import torch
        >>> pulse = torch.exp(-(torch.linspace(-3.0, 3.0, 7) ** 2))
        >>> absorption(torch.stack([pulse, pulse * torch.exp(torch.tensor(-2.0))])).numpy().round(4)
        array([2., 2., 2., 2., 2., 2., 2.], dtype=float32)
    """
    entering, leaving = (spectrum(fields[..., z, :], window=window).abs() for z in (0, z_index))
    inside = in_band(fields, window=window, floor=floor)
    leaving = torch.maximum(leaving, _least(entering))
    return torch.where(inside, entering, 1).log() - torch.where(inside, leaving, 1).log()


def dispersion(fields: torch.Tensor, z_index: int = -1, *, window: Any = None, floor: float = FLOOR) -> torch.Tensor:
    """arg Ω(0, ν) − arg Ω(z, ν), unwrapped along z. Source: T. P. Ogden's thesis, (2.59).

    From one position to the next the phase is taken within ±π, so that the sum has no jumps of 2π, which clerq's
    has, as long as the stored positions are dense enough for that.

    Args:
        fields: cyclic, shape (*batch, z, time); the first position is the entrance.
        z_index: of the position.
        window: as in `spectrum`.
        floor: part of the entering spectrum's peak below which the result is 0, with gradient 0.

    Returns:
        Radians, shape (*batch, time).

    Example:
        >>> import torch
        >>> turning = torch.exp(1j * torch.linspace(0.0, 6.0, 4))[:, None] * torch.ones(5)
        >>> dispersion(turning, floor=0.0).numpy().round(4) + 0.0
        array([ 0.,  0., -6.,  0.,  0.], dtype=float32)
    """
    last = range(fields.shape[-2])[z_index]
    spectra = spectrum(fields[..., : last + 1, :], window=window)
    inside = in_band(fields, window=window, floor=floor)
    least = _least(spectra[..., :1, :].abs())
    phases = _angle(torch.where(inside[..., None, :], spectra, 1), least)
    steps = -phases.diff(dim=-2)
    return (steps - 2 * math.pi * (steps / (2 * math.pi)).round()).sum(-2)


def _angle(z: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """The argument of complex numbers, scaled to modulus 1 first, since torch's gradient squares the modulus."""
    modulus = z.detach().abs()
    dark = modulus <= least
    return torch.where(dark, 1, z / torch.where(dark, 1, modulus)).angle()


def susceptibility(
    fields: torch.Tensor, z_index: int = -1, *, window: Any = None, floor: float = FLOOR
) -> torch.Tensor:
    """`dispersion` + i `absorption`: the linear susceptibility times half the wavenumber and the length.

    In the weak limit it is ∫N dz times `susceptibility_two_linear_known`.

    Args:
        fields: cyclic, shape (*batch, z, time); the first position is the entrance.
        z_index: of the position.
        window: as in `spectrum`.
        floor: part of the entering spectrum's peak below which the result is 0, with gradient 0.

    Returns:
        Complex, shape (*batch, time).

    Example:
        >>> import torch
        >>> pulse = torch.exp(-(torch.linspace(-3.0, 3.0, 7) ** 2)) + 0j
        >>> susceptibility(torch.stack([pulse, pulse * torch.exp(torch.tensor(-2.0 - 1j))]))[3].numpy().round(4)
        np.complex64(1+2j)
    """
    options: dict[str, Any] = {"window": window, "floor": floor}
    return torch.complex(dispersion(fields, z_index, **options), absorption(fields, z_index, **options))


def refractive_index(
    fields: torch.Tensor,
    z: torch.Tensor,
    wavenumber: float,
    z_index: int = -1,
    *,
    window: Any = None,
    floor: float = FLOOR,
) -> torch.Tensor:
    """The complex index of refraction, 1 + χ/2 for the susceptibility χ, mean over the positions up to one.

    Its real part slows light down, its imaginary part absorbs. First order in χ, like the equation of slowly varying
    fields itself, ∂Ω/∂z = i(k/2)χΩ.

    Args:
        fields: cyclic, shape (*batch, z, time); the first position is the entrance.
        z: positions, shape (z,).
        wavenumber: 2π per vacuum wavelength, radians per unit of z.
        z_index: of the position.
        window: as in `spectrum`.
        floor: part of the entering spectrum's peak below which the result is 1, with gradient 0.

    Returns:
        Complex, shape (*batch, time).

    Example:
        >>> import torch
        >>> pulse = torch.exp(-(torch.linspace(-3.0, 3.0, 7) ** 2)) + 0j
        >>> fields = torch.stack([pulse, pulse * torch.exp(torch.tensor(-2.0 - 1j))])
        >>> refractive_index(fields, torch.tensor([0.0, 2.0]), wavenumber=1e3)[3].numpy().round(6)
        np.complex64(1.0005+0.001j)
    """
    return 1 + susceptibility(fields, z_index, window=window, floor=floor) / (wavenumber * (z[z_index] - z[0]))


def susceptibility_two_linear_known(
    freq_list: torch.Tensor, interaction_strength: float | torch.Tensor, decay_rate: float | torch.Tensor
) -> torch.Tensor:
    """i g / (γ/2 − iν): `susceptibility` per ∫N dz of weak light in a two-level medium at rest.

    Source: T. P. Ogden's thesis, (2.61), for the coupling Ω/2.

    Args:
        freq_list: frequencies relative to the resonance, cyclic, any shape.
        interaction_strength: g, cyclic frequency per length, scalar.
        decay_rate: γ, cyclic, scalar.

    Returns:
        Complex, per length, shape of `freq_list`.

    Example:
        >>> import torch
        >>> susceptibility_two_linear_known(torch.tensor([0.0, 0.5]), 1.0, 1.0).tolist()
        [2j, (-1+1j)]
    """
    return 1j * interaction_strength / (decay_rate / 2 - 1j * freq_list)


def absorption_two_linear_known(
    freq_list: torch.Tensor, interaction_strength: float | torch.Tensor, decay_rate: float | torch.Tensor
) -> torch.Tensor:
    """The imaginary part of `susceptibility_two_linear_known`: `absorption` per ∫N dz, with the same arguments.

    Example:
        >>> import torch
        >>> absorption_two_linear_known(torch.tensor([0.0, 0.5]), 1.0, 1.0).tolist()
        [2.0, 1.0]
    """
    return susceptibility_two_linear_known(freq_list, interaction_strength, decay_rate).imag


def dispersion_two_linear_known(
    freq_list: torch.Tensor, interaction_strength: float | torch.Tensor, decay_rate: float | torch.Tensor
) -> torch.Tensor:
    """The real part of `susceptibility_two_linear_known`: `dispersion` per ∫N dz, with the same arguments.

    Example:
        >>> import torch
        >>> dispersion_two_linear_known(torch.tensor([0.0, 0.5]), 1.0, 1.0).tolist()
        [0.0, -1.0]
    """
    return susceptibility_two_linear_known(freq_list, interaction_strength, decay_rate).real


def voigt_two_linear_known(
    freq_list: torch.Tensor, decay_rate: float | torch.Tensor, thermal_width: float | torch.Tensor
) -> torch.Tensor:
    """i (√π/σ) w((ν + iγ/2)/σ): `susceptibility` per g and ∫N dz of weak light in a thermal two-level medium.

    The average of `susceptibility_two_linear_known` over `maxwell_boltzmann`. Source: DLMF 7.19, w being `faddeeva`.

    Args:
        freq_list: frequencies relative to the resonance, cyclic, any shape.
        decay_rate: γ, cyclic, scalar.
        thermal_width: σ, the 1/e half-width, cyclic, scalar.

    Returns:
        Complex, per frequency, shape of `freq_list`; the imaginary part is the profile.

    Example:
        >>> import torch
        >>> print(f"{voigt_two_linear_known(torch.zeros(1), 1.0, 2.0).imag.item():.4f}")
        0.6827
    """
    ratio = torch.complex(freq_list / thermal_width, decay_rate / (2 * thermal_width) + 0 * freq_list)
    return 1j * math.sqrt(math.pi) / thermal_width * faddeeva(ratio)


class _Faddeeva(torch.autograd.Function):
    @staticmethod
    def forward(z):
        return torch.as_tensor(wofz(z.detach().cpu().resolve_conj().numpy()), dtype=z.dtype, device=z.device)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (z,) = ctx.saved_tensors
        return grad * _faddeeva_slope(z).conj()

    @staticmethod
    def jvp(ctx, tangent):
        (z,) = ctx.saved_tensors
        return tangent * _faddeeva_slope(z)

    @staticmethod
    def vmap(info, in_dims, z):
        return faddeeva(z), in_dims[0]


def _faddeeva_slope(z: torch.Tensor) -> torch.Tensor:
    """w' = 2i/√π − 2 z w, DLMF 7.10.2; beyond |z| = 50, where the terms cancel, the series of DLMF 7.12.1."""
    far = z.abs() > 50
    near = torch.where(far, 1j, z)
    square = torch.where(far, z, 1) ** -2
    series = square * (1 + square * (3 / 2 + square * (15 / 4 + square * (105 / 8 + square * 945 / 16))))
    root = math.sqrt(math.pi)
    return torch.where(far, -1j / root * series, 2j / root - 2 * near * faddeeva(near))


def faddeeva(z: torch.Tensor) -> torch.Tensor:
    """The Faddeeva function w(z) = e^{−z²} erfc(−iz) by SciPy, with its derivatives.

    Args:
        z: complex, in the upper half-plane, any shape.

    Returns:
        Shape of z.

    Example:
        >>> import torch
        >>> faddeeva(torch.tensor([0j, 1j])).real.numpy().round(6)
        array([1.      , 0.427584], dtype=float32)
    """
    return _Faddeeva.apply(z)


def maxwell_boltzmann(
    detuning: torch.Tensor, thermal_width: float | torch.Tensor, offset: float | torch.Tensor = 0.0
) -> torch.Tensor:
    """The density exp(−((δ − offset)/σ)²)/(σ√π) of Doppler shifts.

    Args:
        detuning: δ, cyclic, any shape.
        thermal_width: σ, the 1/e half-width, which clerq calls `fwhm`, cyclic.
        offset: centre, cyclic.

    Returns:
        Per frequency, shape of `detuning`.

    Example:
        >>> import torch
        >>> print(f"{maxwell_boltzmann(torch.zeros(1), 2.0).item():.4f}")
        0.2821
    """
    return torch.exp(-(((detuning - offset) / thermal_width) ** 2)) / (thermal_width * math.sqrt(math.pi))


def half_max_roots(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Half the largest sample, and where the cubic spline through the samples passes it.

    Args:
        x: increasing, shape (point,).
        y: a single peak, shape (point,); the gradient arrives here.

    Returns:
        (half maximum, left root, right root), scalars.

    Raises:
        ProblemError: the curve does not cross its half maximum exactly twice.

    Example:
        >>> import torch
        >>> x = torch.linspace(-3.0, 3.0, 31, dtype=torch.float64)
        >>> [round(value.item(), 3) for value in half_max_roots(x, torch.exp(-(x**2)))]
        [0.5, -0.833, 0.833]
    """
    half = y.amax() / 2
    seen = [bridge.value(values) for values in (x, y)]
    if seen[0] is None or seen[1] is None:
        fail("y", "have values that can be looked at", "has none")
    points, heights = (values.astype(float) for values in seen if values is not None)
    curve = CubicSpline(points, heights - heights.max() / 2)
    found = np.sort(curve.roots(extrapolate=False))
    found = found[np.diff(found, append=np.inf) > 1e-9 * np.ptp(curve.x)]  # one on a sample may be found twice
    if len(found) != 2:
        fail("y", "be a single peak that falls to half its maximum on both sides", f"crosses it {len(found)} times")
    roots, slopes = (torch.as_tensor(values, dtype=y.dtype, device=y.device) for values in (found, curve(found, 1)))
    left, right = roots - (interpolate(x, y, roots) - half) / slopes  # a step of Newton's, which has the gradient
    return half, left, right


def full_width_at_half_max(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The distance of the roots of `half_max_roots`, with the same arguments.

    Example:
        >>> import torch
        >>> x = torch.linspace(-3.0, 3.0, 31, dtype=torch.float64)
        >>> print(f"{full_width_at_half_max(x, torch.exp(-(x**2))).item():.3f}")  # 2√ln 2
        1.665
    """
    _, left, right = half_max_roots(x, y)
    return right - left
