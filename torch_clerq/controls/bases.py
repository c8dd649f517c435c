"""Waveforms that are linear in their coefficients: Σ_k c_k f_k(t)."""

from typing import Any

import numpy as np
import torch
from scipy.interpolate import BSpline as Spline
from scipy.special import erfc
from torch import nn

from jax_kernel.parameters import fail

from ..analysis import interpolate
from ..checks import check_count, check_positive, check_time, check_window
from ..functional import COMPLEX, to_tensor
from .waveform import Waveform, least_squares

RISE = 2 * 1.2815515655446004
"""Standard deviations in which the normal distribution rises from 10 % to 90 %."""


class LinearBasis(Waveform):
    """A sum of fixed functions of time, Σ_k c_k f_k(t).

    Args:
        time: times at which the waveform is returned, shape (time,); they set dtype and device.
        functions: f_k at these times, shape (count, time).
        coefficients: start values, shape (*batch, count), in the unit of the waveform; 0 by default. Complex ones make
            the waveform complex.
        complex: whether the waveform is complex where the coefficients are not given, or given as real ones.

    Attributes:
        coefficients: nn.Parameter, shape (*batch, count). The only entry of the state dict, so that a waveform may be
            loaded onto another time grid.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 1.0, 3)
        >>> parabola = LinearBasis(time, torch.stack([time**0, time**2]), coefficients=torch.tensor([1.0, 2.0]))
        >>> parabola().tolist()
        [1.0, 1.5, 3.0]
        >>> parabola(torch.tensor([[0.0, 1.0], [1.0, 0.0]])).shape  # of other coefficients, such as a network's
        torch.Size([2, 3])
    """

    coefficients: nn.Parameter

    functions: torch.Tensor

    def __init__(self, time: torch.Tensor, functions: Any, *, coefficients: Any = None, complex: bool = False):
        super().__init__()
        check_time(time)
        functions = torch.as_tensor(functions).detach().to(time)
        if functions.ndim != 2 or functions.shape[1] != len(time):
            fail("functions", f"have shape (count, time) = (count, {len(time)})", f"has shape {tuple(functions.shape)}")
        if not bool(functions.isfinite().all()):
            fail("functions", "be finite", "have values that are not")
        count = len(functions)
        start = time.new_zeros(count) if coefficients is None else to_tensor("coefficients", coefficients).detach()
        if start.shape[-1:] != (count,):
            rule = f"have shape (*batch, count) with count = {count}"
            fail("coefficients", rule, f"has shape {tuple(start.shape)}")
        if not bool(start.isfinite().all()):
            fail("coefficients", "be finite", "have values that are not")
        self.register_buffer("functions", functions, persistent=False)
        dtype = COMPLEX[time.dtype] if complex or start.is_complex() else time.dtype
        self.coefficients = nn.Parameter(start.to(time.device, dtype, copy=True))

    def forward(self, coefficients: torch.Tensor | None = None) -> torch.Tensor:
        """The waveform of its own coefficients, or of others, shape (*batch, count); shape (*batch, time)."""
        coefficients = self.coefficients if coefficients is None else coefficients
        return coefficients @ self.functions.to(coefficients.dtype)

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        if self.coefficients.requires_grad:
            with torch.no_grad():
                self.coefficients.copy_(least_squares(self.functions, target, weight))
        return True

    def extra_repr(self) -> str:
        return f"count={self.coefficients.shape[-1]}"


class _Windowed(LinearBasis):
    """One with a window in time."""

    window: tuple[float, float]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, window=({self.window[0]:g}, {self.window[1]:g})"


class GaussianBasis(_Windowed):
    """A sum of Gaussians on equally spaced centres: Σ_k c_k exp(−(t − t_k)²/(2 width²)).

    Args:
        time: times at which the waveform is returned, shape (time,); they set dtype and device.
        count: number of Gaussians.
        window: first and last centre, in the unit of time.
        width: standard deviation of each, in the unit of time; by default the distance between two centres, which
            makes equal coefficients a plateau that is flat to a part in 10⁸ and keeps the coefficients distinguishable.
        coefficients: as in `LinearBasis`.
        complex: as in `LinearBasis`.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 10.0, 101)
        >>> waveform = GaussianBasis(time, count=5, window=(3.0, 7.0), coefficients=torch.ones(5))
        >>> waveform().shape, round(waveform()[50].item(), 3)
        (torch.Size([101]), 2.484)
    """

    window: tuple[float, float]
    width: float

    def __init__(
        self,
        time: torch.Tensor,
        count: int,
        window: tuple[float, float],
        width: float | None = None,
        *,
        coefficients: Any = None,
        complex: bool = False,
    ):
        count = check_count("count", count)
        first, last = check_window(window, point=count == 1)
        width = ((last - first) / (count - 1) if count > 1 else None) if width is None else width
        width = check_positive("width", width)
        x = (_times(time) - np.linspace(first, last, count)[:, None]) / width
        super().__init__(time, np.exp(-(x**2) / 2), coefficients=coefficients, complex=complex)
        self.window, self.width = (first, last), float(width)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, width={self.width:g}"


class BSpline(_Windowed):
    """A B-spline on equally spaced knots: smooth to the order of its degree, and local in time.

    The end knots are repeated, so that the first and last coefficient are the values at the ends of the window; outside
    of it the waveform is 0. For one that starts and ends smoothly keep the outer coefficients 0, or gate it. Source:
    C. de Boor, A Practical Guide to Splines (2001), chapter IX.

    Args:
        time: times at which the waveform is returned, shape (time,); they set dtype and device.
        count: number of B-splines, more than the degree.
        window: where the spline starts and ends, in the unit of time.
        degree: of the polynomials: 1 is lines, 3 cubic.
        coefficients: as in `LinearBasis`.
        complex: as in `LinearBasis`.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 4.0, 5)
        >>> BSpline(time, 5, (0.0, 4.0), degree=1, coefficients=torch.tensor([0.0, 1.0, 3.0, 1.0, 0.0]))().tolist()
        [0.0, 1.0, 3.0, 1.0, 0.0]
    """

    window: tuple[float, float]
    degree: int

    def __init__(
        self,
        time: torch.Tensor,
        count: int,
        window: tuple[float, float],
        *,
        degree: int = 3,
        coefficients: Any = None,
        complex: bool = False,
    ):
        degree = check_count("degree", degree)
        count = check_count("count", count, degree + 1)
        first, last = check_window(window)
        times = _times(time)
        knots = np.pad(np.linspace(first, last, count - degree + 1), degree, mode="edge")
        inside = _inside(times, first, last)
        functions = np.zeros((count, len(times)))
        if inside.any():
            functions[:, inside] = Spline.design_matrix(times[inside].clip(first, last), knots, degree).toarray().T
        super().__init__(time, functions, coefficients=coefficients, complex=complex)
        self.window, self.degree = (first, last), degree

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, degree={self.degree}"


class Fourier(_Windowed):
    """A Fourier series over a window: c₀ + Σ_k [c_2k−1 cos(2πkτ) + c_2k sin(2πkτ)], τ = (t − first)/(last − first).

    It goes on periodically outside of the window, and its spectrum reaches to harmonics/(last − first). A complex
    series spans e^{±i2πkτ}, light of either sign of frequency.

    Args:
        time: times at which the waveform is returned, shape (time,); they set dtype and device.
        harmonics: the highest k; there are 2·harmonics + 1 coefficients.
        window: one period, in the unit of time.
        coefficients: as in `LinearBasis`.
        complex: as in `LinearBasis`.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 1.0, 5)
        >>> Fourier(time, 1, (0.0, 1.0), coefficients=torch.tensor([1.0, 0.0, 2.0]))().detach().numpy().round(6)
        array([ 1.,  3.,  1., -1.,  1.], dtype=float32)
    """

    window: tuple[float, float]
    harmonics: int

    def __init__(
        self,
        time: torch.Tensor,
        harmonics: int,
        window: tuple[float, float],
        *,
        coefficients: Any = None,
        complex: bool = False,
    ):
        harmonics = check_count("harmonics", harmonics, 0)
        first, last = check_window(window)
        phase = 2 * np.pi * (_times(time) - first) / (last - first)
        waves = [wave(k * phase) for k in range(1, harmonics + 1) for wave in (np.cos, np.sin)]
        super().__init__(time, np.stack([np.ones_like(phase), *waves]), coefficients=coefficients, complex=complex)
        self.window, self.harmonics = (first, last), harmonics

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, harmonics={self.harmonics}"


class Sinc(_Windowed):
    """Samples at the Nyquist rate and what is band-limited between them: Σ_k c_k sinc(2 bandwidth (t − t_k)).

    The coefficients are the values at t_k = first + k/(2 bandwidth), as many as the window holds; outside of it the
    waveform rings and falls as 1/t. Its spectrum is confined to |ν| ≤ bandwidth. Source: C. E. Shannon, Proc. IRE 37,
    10 (1949).

    Args:
        time: times at which the waveform is returned, shape (time,); they set dtype and device.
        bandwidth: the highest frequency, cyclic.
        window: first sample and the latest time of the last one, in the unit of time.
        coefficients: as in `LinearBasis`.
        complex: as in `LinearBasis`.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 3.0, 7)
        >>> sinc = Sinc(time, 0.5, (0.0, 3.0), coefficients=torch.tensor([0.0, 1.0, 1.0, 0.0]))
        >>> sinc().detach().numpy().round(3) + 0.0
        array([0.   , 0.424, 1.   , 1.273, 1.   , 0.424, 0.   ], dtype=float32)
    """

    window: tuple[float, float]
    bandwidth: float

    def __init__(
        self,
        time: torch.Tensor,
        bandwidth: float,
        window: tuple[float, float],
        *,
        coefficients: Any = None,
        complex: bool = False,
    ):
        bandwidth = check_positive("bandwidth", bandwidth)
        first, last = check_window(window)
        samples = np.arange(1 + np.floor((last - first) * 2 * bandwidth * (1 + 1e-12)))
        functions = np.sinc(2 * bandwidth * (_times(time) - first) - samples[:, None])
        super().__init__(time, functions, coefficients=coefficients, complex=complex)
        self.window, self.bandwidth = (first, last), bandwidth

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bandwidth={self.bandwidth:g}"


class PiecewiseConstant(_Windowed):
    """Equal steps in time, smoothed by a Gaussian filter to edges of a given rise time, as a modulator makes them.

    Each step is ½[erf((t − t_k)/√2s) − erf((t − t_k+1)/√2s)], with s = rise/2.563; outside of the window it is dark.

    Args:
        time: times at which the waveform is returned, shape (time,); they set dtype and device.
        count: number of steps.
        window: where the first step begins and the last one ends, in the unit of time.
        rise: time from 10 % to 90 % of an edge, positive: the time grid has to resolve it.
        coefficients: the heights, as in `LinearBasis`.
        complex: as in `LinearBasis`.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 4.0, 5)
        >>> steps = PiecewiseConstant(time, 2, (0.0, 4.0), rise=0.1, coefficients=torch.tensor([1.0, 3.0]))
        >>> steps().detach().numpy().round(6)
        array([0.5, 1. , 2. , 3. , 1.5], dtype=float32)
    """

    window: tuple[float, float]
    rise: float

    def __init__(
        self,
        time: torch.Tensor,
        count: int,
        window: tuple[float, float],
        *,
        rise: float,
        coefficients: Any = None,
        complex: bool = False,
    ):
        count = check_count("count", count)
        first, last = check_window(window)
        rise = check_positive("rise", rise)
        edges = np.linspace(first, last, count + 1)[:, None]
        x = (edges - _times(time)) * (RISE / rise / np.sqrt(2))
        begun, ended = erfc(x[:-1]), erfc(x[1:])
        gone = x[1:] < 0  # both have risen there: what is left of the fall has no cancellation
        functions = np.where(gone, erfc(-x[1:]) - erfc(-x[:-1]), begun - ended) / 2
        super().__init__(time, functions, coefficients=coefficients, complex=complex)
        self.window, self.rise = (first, last), rise

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rise={self.rise:g}"


class Sampled(LinearBasis):
    """Free samples, and the not-a-knot cubic spline through them.

    The spline is `torch_clerq.analysis.interpolate`, the one that drives the medium. Free samples know no smoothness:
    train them with `torch_clerq.objectives.bandwidth_penalty`, or put them into `BandLimited`.

    Args:
        time: times at which the waveform is returned, shape (time,); they set dtype and device.
        samples: start values, shape (*batch, sample); complex ones make the waveform complex.
        at: times of the samples, shape (sample,), by default `time`. State them to load the samples onto another grid.
            Outside of them the waveform is 0.
        complex: as in `LinearBasis`.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> coarse, fine = torch.linspace(0.0, 3.0, 4), torch.linspace(0.0, 3.0, 7)
        >>> Sampled(fine, coarse**2, at=coarse)().detach().numpy().round(5)
        array([0.  , 0.25, 1.  , 2.25, 4.  , 6.25, 9.  ], dtype=float32)
    """

    def __init__(self, time: torch.Tensor, samples: Any, *, at: torch.Tensor | None = None, complex: bool = False):
        check_time(time)
        if at is None:
            functions = torch.eye(len(time), dtype=torch.float64)
        else:
            knots, times = torch.as_tensor(at).detach().cpu().double(), torch.from_numpy(_times(time))
            if knots.ndim != 1 or len(knots) < 2 or not bool((knots.diff() > 0).all()):
                fail("at", "be increasing times, at least two", f"is {at!r}")
            functions = interpolate(knots, torch.eye(len(knots), dtype=torch.float64), times)
            functions = functions * torch.from_numpy(_inside(_times(time), float(knots[0]), float(knots[-1])))
        start = to_tensor("samples", samples)
        if start.shape[-1:] != functions.shape[:1]:
            rule = f"have shape (*batch, sample) with {len(functions)} samples"
            fail("samples", rule, f"has shape {tuple(start.shape)}")
        super().__init__(time, functions, coefficients=start, complex=complex)


def _times(time: torch.Tensor) -> np.ndarray:
    return check_time(time).detach().cpu().double().numpy()


def _inside(times: np.ndarray, first: float, last: float) -> np.ndarray:
    """Which times are in a window, whose ends may have been rounded."""
    rounding = 1e-6 * (last - first)
    return (times > first - rounding) & (times < last + rounding)
