"""Waveforms made of another one: switched, bounded, scaled, filtered, mirrored."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from scipy.fft import next_fast_len
from torch import nn

from jax_kernel.parameters import fail

from .. import bridge
from ..analysis import energy
from ..checks import check_number, check_positive, check_time
from ..parametrisations import Interval
from .waveform import Waveform, check_grids, check_waveform, start

RISE = 2 * math.log(9)
"""Time in which the logistic function 1/(1 + exp(−t)) rises from 10 % to 90 %."""

NEAR = 1e-9
"""How near to its bounds, per their distance, a fit lets a bounded waveform start."""


def gate(
    time: torch.Tensor,
    *,
    off: float | Iterable[float] | None = None,
    on: float | Iterable[float] | None = None,
    rise: float,
) -> torch.Tensor:
    """A factor between 0 and 1 that switches smoothly, along logistic edges.

    Args:
        time: shape (time,).
        off: time or times at which it is half off, or None if it never switches off.
        on: time or times at which it is half on, or None if it never switches on. Sorted by time the two take turns;
            the first one says whether it begins in light or in darkness.
        rise: time from 10 % to 90 % of an edge.

    Returns:
        The factor, shape (time,).

    Raises:
        ProblemError: `rise` is not positive, or it is to be switched off, or on, twice in a row.

    Example:
        >>> import torch
        >>> gate(torch.tensor([0.0, 6.0, 6.75, 7.5, 14.0]), off=6.0, on=7.5, rise=0.3).round(decimals=3).tolist()
        [1.0, 0.5, 0.0, 0.5, 1.0]
        >>> gate(torch.tensor([0.0, 2.0, 4.0, 6.0, 8.0]), on=(1.0, 5.0), off=(3.0, 7.0), rise=0.1).round().tolist()
        [0.0, 1.0, 0.0, 1.0, 0.0]
    """
    rise = check_positive("rise", rise)
    check_time(time)
    switches = sorted([(at, False) for at in _times(off)] + [(at, True) for at in _times(on)])
    for (early, was), (late, then) in pairwise(switches):
        if was == then or early == late:
            fail("on", "take turns with `off` in time", f"they are at {list(_times(on))} and {list(_times(off))}")
    edges = [at for at, _ in switches]
    if not switches or not switches[0][1]:
        edges = [-math.inf, *edges]
    if len(edges) % 2:
        edges = [*edges, math.inf]
    factor, steepness = torch.zeros_like(time), RISE / rise
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        rising, falling = torch.sigmoid((time - begin) * steepness), torch.sigmoid((end - time) * steepness)
        # the difference of two logistic steps, without cancellation
        factor = factor - rising * falling * math.expm1(-(end - begin) * steepness)
    return factor


def _times(switch: float | Iterable[float] | None) -> tuple[float, ...]:
    if switch is None:
        return ()
    several = tuple(switch) if isinstance(switch, Iterable) and not isinstance(switch, str) else (switch,)
    return tuple(check_number("on", at, "be a time or times, as `off`", lambda x: not math.isnan(x)) for at in several)


class Gated(Waveform):
    """A waveform times a fixed factor of time.

    Args:
        waveform: shape (*batch, time).
        factor: shape (time,), see `gate`.

    Example:
        >>> import torch
        >>> from torch_clerq.controls import GaussianBasis
        >>> time = torch.tensor([0.0, 2.0])
        >>> waveform = GaussianBasis(time, 2, (0.0, 2.0), coefficients=torch.ones(2))
        >>> [round(x, 3) for x in Gated(waveform, gate(time, off=1.0, rise=0.1))().tolist()]
        [1.607, 0.0]
    """

    waveform: nn.Module

    factor: torch.Tensor

    def __init__(self, waveform: nn.Module, factor: torch.Tensor):
        super().__init__()
        if not isinstance(factor, torch.Tensor) or factor.ndim != 1 or not bool(factor.isfinite().all()):
            fail("factor", "be a finite tensor of shape (time,)", f"is {factor!r}")
        self.waveform = check_waveform("waveform", waveform)
        self.register_buffer("factor", factor.detach(), persistent=False)

    def forward(self, *coefficients: torch.Tensor) -> torch.Tensor:
        """The waveform, in its own unit, shape (*batch, time)."""
        waveform = self.waveform(*coefficients)
        check_grids(waveform=waveform, factor=self.factor)
        return waveform * self.factor

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        dark = self.factor.abs() < 1e-150  # its square underflows: nothing is known of the waveform there
        inner = torch.where(dark, 0, target / torch.where(dark, 1, self.factor))
        factor = torch.where(dark, 0, self.factor.abs())
        return start(self.waveform, inner, factor if weight is None else weight * factor)


class Bounded(Waveform):
    """A waveform squashed smoothly into bounds, so that an optimiser need not know of them.

    Between `low` and `high`: low + (high − low)/(1 + exp(−w)) of a real, dimensionless waveform w, whose 0 becomes the
    middle. Below a `peak`: w/√(1 + |w/peak|²) of a real or complex one, cyclic; it keeps the phase, and where it is
    small changes nothing.

    Args:
        waveform: the raw waveform, shape (*batch, time).
        low: lower bound, cyclic.
        high: upper bound, cyclic.
        peak: bound of |Ω|, cyclic, in place of the other two.

    Raises:
        ProblemError: the bounds are not finite, not in this order, or not one of the two kinds.

    Example:
        >>> import torch
        >>> from torch_clerq.controls import GaussianBasis
        >>> Bounded(GaussianBasis(torch.zeros(1), 1, (0.0, 0.0), 1.0), 0.0, 3.0)().tolist()
        [1.5]
        >>> large = GaussianBasis(torch.zeros(1), 1, (0.0, 0.0), 1.0, coefficients=torch.tensor([3e4j]))
        >>> Bounded(large, peak=2.0)().tolist()
        [2j]
    """

    waveform: nn.Module
    interval: Interval | None
    peak: float | None

    def __init__(
        self, waveform: nn.Module, low: float | None = None, high: float | None = None, *, peak: float | None = None
    ):
        super().__init__()
        if (low is None, high is None) != (peak is not None,) * 2:
            fail("peak", "be given in place of `low` and `high`", f"they are {peak}, {low} and {high}")
        self.waveform = check_waveform("waveform", waveform)
        self.interval = Interval(low, high) if low is not None and high is not None else None
        self.peak = None if peak is None else check_positive("peak", peak)

    def forward(self, *coefficients: torch.Tensor) -> torch.Tensor:
        """The waveform, cyclic, shape (*batch, time)."""
        waveform = self.waveform(*coefficients)
        if self.interval is not None:
            if waveform.is_complex():
                fail("waveform", "be real between `low` and `high` (take `peak`)", f"has dtype {waveform.dtype}")
            return self.interval.physical(waveform)
        ratio = waveform / self.peak
        size = ratio.detach().abs().clamp(min=1)  # divided out, since squares overflow
        ratio = ratio / size
        return self.peak * ratio / (size**-2 + (ratio * ratio.conj()).real).sqrt()

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        if self.interval is not None:
            low, span = self.interval.low, self.interval.high - self.interval.low
            share = ((target - low) / span).clamp(NEAR, 1 - NEAR)
            inner, slope = torch.logit(share), span * share * (1 - share)
        elif self.peak is not None:
            ratio = target / self.peak
            size = ratio.abs()
            ratio = ratio * (1 - NEAR) / size.clamp(min=1 - NEAR)
            rest = 1 - (ratio * ratio.conj()).real
            inner, slope = self.peak * ratio / rest.sqrt(), rest**1.5
        start(self.waveform, inner, slope if weight is None else weight * slope)
        return False

    def extra_repr(self) -> str:
        if self.interval is None:
            return f"peak={self.peak:g}"
        return f"low={self.interval.low:g}, high={self.interval.high:g}"


class UnitEnergy(Waveform):
    """A waveform scaled to a given energy ∫|Ω|² dt, by default 1; its shape alone is free.

    Args:
        waveform: shape (*batch, time), in any unit.
        time: its time grid, shape (time,).
        energy: ∫|Ω|² dt of the result, cyclic squared times time.

    Raises:
        ProblemError: the energy is not positive.

    Example:
        >>> import torch
        >>> from torch_clerq.controls import GaussianBasis
        >>> from torch_clerq.objectives import energy
        >>> time = torch.linspace(0.0, 6.0, 61)
        >>> waveform = GaussianBasis(time, 1, (3.0, 3.0), 0.5, coefficients=torch.ones(1))
        >>> round(energy(UnitEnergy(waveform, time, 4.0)(), time).item(), 3)
        4.0
    """

    waveform: nn.Module
    energy: float

    time: torch.Tensor

    def __init__(self, waveform: nn.Module, time: torch.Tensor, energy: float = 1.0):
        super().__init__()
        self.waveform, self.energy = check_waveform("waveform", waveform), check_positive("energy", energy)
        self.register_buffer("time", check_time(time), persistent=False)

    def forward(self, *coefficients: torch.Tensor) -> torch.Tensor:
        """The waveform, cyclic, shape (*batch, time); raises ProblemError where it is dark."""
        waveform = self.waveform(*coefficients)
        check_grids(waveform=waveform, time=self.time)
        if bridge.has_values(waveform) and not bool((waveform.detach() != 0).any(-1).all()):
            rule = "not be dark everywhere, since no factor gives it an energy (the coefficients of a basis start at 0)"
            fail("waveform", rule, "is 0: give it other `coefficients` to start from")
        tiny = torch.finfo(waveform.dtype).tiny
        waveform = waveform / waveform.detach().abs().amax(-1, keepdim=True).clamp(min=tiny)  # squares underflow
        return waveform * (self.energy / energy(waveform, self.time).clamp(min=tiny)).sqrt()[..., None]

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        now, then = energy(self.waveform(), self.time), energy(target, self.time)
        scale = torch.where((now > 0) & (then > 0), now / torch.where(then > 0, then, 1), 1).sqrt()
        start(self.waveform, target * scale[..., None], weight)
        return False

    def extra_repr(self) -> str:
        return f"energy={self.energy:g}"


class BandLimited(Waveform):
    """A waveform without the part of its spectrum beyond |ν| ≤ bandwidth.

    The filter passes all up to (1 − roll_off) bandwidth, falls as a squared cosine, and is 0 from the bandwidth on: its
    response in time falls as 1/t³. The waveform counts as 0 outside of its window, and as much is padded to it, so that
    the end does not reach round to the start. Of the result the window shows what it holds: where the light has not
    died by its ends, cutting it off there makes new frequencies.

    Args:
        waveform: shape (*batch, time).
        time: its time grid, uniform, shape (time,).
        bandwidth: the highest frequency, cyclic, at most half the rate of the grid.
        roll_off: part of the bandwidth over which the filter falls, from above 0 to 1.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> from torch_clerq.controls import Sampled
        >>> time = torch.linspace(-8.0, 8.0, 161)
        >>> both = torch.exp(-(time**2) / 2) * (1 + torch.cos(20 * time))  # around 0 and around ±3.2
        >>> slow = BandLimited(Sampled(time, both), time, bandwidth=1.5)()
        >>> bool((slow - torch.exp(-(time**2) / 2)).abs().max() < 1e-4)
        True
    """

    waveform: nn.Module
    bandwidth: float
    roll_off: float

    passed: torch.Tensor

    def __init__(self, waveform: nn.Module, time: torch.Tensor, bandwidth: float, *, roll_off: float = 0.25):
        super().__init__()
        check_time(time, uniform=True)
        self.waveform, self.bandwidth = check_waveform("waveform", waveform), check_positive("bandwidth", bandwidth)
        self.roll_off = check_positive("roll_off", roll_off)
        if roll_off > 1:
            fail("roll_off", "be at most 1", f"is {roll_off}")
        step = float(time[-1] - time[0]) / (len(time) - 1)
        if 2 * bandwidth * step > 1 + 1e-6:
            fail("bandwidth", f"be at most {0.5 / step:g}, half the rate of the time grid", f"is {bandwidth:g}")
        ringing = math.ceil(8 / (roll_off * bandwidth * step))
        count = next_fast_len(len(time) + max(len(time), ringing))
        frequency = torch.fft.fftfreq(count, step, dtype=torch.float64, device=time.device).abs()
        fall = ((frequency / bandwidth - (1 - roll_off)) / roll_off).clamp(0, 1)
        passed = torch.where(fall < 1, (math.pi / 2 * fall).cos() ** 2, 0)
        self.register_buffer("passed", passed.to(time), persistent=False)

    def _filtered(self, waveform: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.fft(waveform, n=len(self.passed)) * self.passed
        filtered = torch.fft.ifft(spectrum)[..., : waveform.shape[-1]]
        return filtered if waveform.is_complex() else filtered.real

    def forward(self, *coefficients: torch.Tensor) -> torch.Tensor:
        """The waveform, in its own unit, shape (*batch, time)."""
        return self._filtered(self.waveform(*coefficients))

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        start(self.waveform, target, weight)
        return False

    def extra_repr(self) -> str:
        return f"bandwidth={self.bandwidth:g}, roll_off={self.roll_off:g}"


class TimeSymmetric(Waveform):
    """The part of a waveform that is the same when time runs backwards about the middle of its window.

    Args:
        waveform: shape (*batch, time).
        time: its time grid, symmetric about its middle, shape (time,).

    Raises:
        ProblemError: the grid is not symmetric.

    Example:
        >>> import torch
        >>> from torch_clerq.controls import Sampled
        >>> time = torch.linspace(0.0, 4.0, 5)
        >>> TimeSymmetric(Sampled(time, torch.tensor([0.0, 1.0, 5.0, 3.0, 2.0])), time)().tolist()
        [1.0, 2.0, 5.0, 2.0, 1.0]
    """

    waveform: nn.Module

    def __init__(self, waveform: nn.Module, time: torch.Tensor):
        super().__init__()
        ends = check_time(time).detach().double()
        sums = ends + ends.flip(0)
        if not len(time) or not bool(
            (sums - sums.mean()).abs().amax() <= 16 * torch.finfo(time.dtype).eps * ends.abs().amax()
        ):
            fail("time", "be symmetric about its middle", "is not")
        self.waveform = check_waveform("waveform", waveform)

    def forward(self, *coefficients: torch.Tensor) -> torch.Tensor:
        """The waveform, in its own unit, shape (*batch, time)."""
        waveform: Any = self.waveform(*coefficients)
        return (waveform + waveform.flip(-1)) / 2

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        start(self.waveform, (target + target.flip(-1)) / 2, weight)
        return False
