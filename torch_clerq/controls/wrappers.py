"""Control pulses as modules: waveforms on a time grid whose parameters an optimiser trains.

A waveform is a module without inputs; it returns a real tensor of shape (*batch, time). Wrappers (`Bounded`, `Gated`,
`Normalised`) take a waveform and are one. `Fields` collects one per light field for a `TorchPropagator`.
"""

import math
from collections.abc import Mapping

import torch
from torch import nn

from jax_kernel.errors import ProblemError

from .objectives import energy
from .parametrisations import Interval

RISE = 2 * math.log(9)
"""Time in which the logistic function 1/(1 + exp(−t)) rises from 10 % to 90 %."""


class GaussianBasis(nn.Module):
    """A sum of Gaussians on equally spaced centres: Σ_k c_k exp(−(t − t_k)²/(2 width²)).

    Args:
        time: times at which the waveform is returned, shape (time,); they set dtype and device.
        count: number of Gaussians.
        window: first and last centre, in the unit of time.
        width: standard deviation of each, in the unit of time; by default the distance between two centres, which
            makes equal coefficients a plateau that is flat to a part in 10⁸ and keeps the coefficients distinguishable.
        coefficients: start values, shape (*batch, count), in the unit of the waveform; 0 by default.

    Attributes:
        coefficients: nn.Parameter, shape (*batch, count). The only entry of the state dict, so that a waveform may be
            loaded onto another time grid.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 10.0, 101)
        >>> waveform = GaussianBasis(time, count=5, window=(3.0, 7.0), coefficients=torch.ones(5))
        >>> waveform().shape, round(waveform()[50].item(), 3)
        (torch.Size([101]), 2.484)
    """

    functions: torch.Tensor

    def __init__(
        self,
        time: torch.Tensor,
        count: int,
        window: tuple[float, float],
        width: float | None = None,
        *,
        coefficients: torch.Tensor | None = None,
    ):
        super().__init__()
        if count < 1:
            raise ProblemError(f"Argument `count` must be at least 1, but is {count}.")
        first, last = window
        if not (first < last or (first == last and count == 1)):
            raise ProblemError(f"Argument `window` must have its start before its end, but is ({first}, {last}).")
        width = ((last - first) / (count - 1) if count > 1 else None) if width is None else width
        if width is None or not width > 0:
            raise ProblemError(f"Argument `width` must be positive, but is {width}.")
        if coefficients is None:
            coefficients = torch.zeros(count)
        if coefficients.shape[-1:] != (count,):
            raise ProblemError(
                f"Argument `coefficients` must have shape (*batch, count) with count = {count}, but has shape "
                f"{tuple(coefficients.shape)}."
            )
        self.window, self.width = (float(first), float(last)), float(width)
        centres = torch.linspace(first, last, count, dtype=time.dtype, device=time.device)
        functions = torch.exp(-(((time - centres[:, None]) / width) ** 2) / 2)
        self.register_buffer("functions", functions, persistent=False)
        self.coefficients = nn.Parameter(coefficients.detach().to(functions).clone())

    def forward(self) -> torch.Tensor:
        """The waveform, shape (*batch, time)."""
        return self.coefficients @ self.functions

    def extra_repr(self) -> str:
        return f"count={self.coefficients.shape[-1]}, window={self.window}, width={self.width:g}"


class Bounded(nn.Module):
    """A waveform squashed smoothly into an interval: low + (high − low) / (1 + exp(−waveform)).

    Args:
        waveform: the raw waveform, dimensionless; 0 becomes the middle of the interval.
        low: lower bound, cyclic.
        high: upper bound, cyclic.

    Raises:
        ProblemError: the bounds are not finite, or not in this order.

    Example:
        >>> import torch
        >>> Bounded(GaussianBasis(torch.zeros(1), 1, (0.0, 0.0), 1.0), 0.0, 3.0)().tolist()
        [1.5]
    """

    def __init__(self, waveform: nn.Module, low: float, high: float):
        super().__init__()
        self.waveform, self.interval = waveform, Interval(low, high)

    def forward(self) -> torch.Tensor:
        """The waveform, cyclic, shape (*batch, time)."""
        return self.interval.physical(self.waveform())

    def extra_repr(self) -> str:
        return f"low={self.interval.low:g}, high={self.interval.high:g}"


def gate(time: torch.Tensor, *, off: float | None = None, on: float | None = None, rise: float) -> torch.Tensor:
    """A factor between 0 and 1 that switches smoothly, along logistic edges.

    Args:
        time: shape (time,).
        off: time at which it is half off, or None if it never switches off.
        on: time at which it is half on, or None if it never switches on. After `off`, light is dark in between;
            before it, light is on in between.
        rise: time from 10 % to 90 % of an edge.

    Returns:
        The factor, shape (time,).

    Raises:
        ProblemError: `rise` is not positive.

    Example:
        >>> import torch
        >>> gate(torch.tensor([0.0, 6.0, 6.75, 7.5, 14.0]), off=6.0, on=7.5, rise=0.3).round(decimals=3).tolist()
        [1.0, 0.5, 0.0, 0.5, 1.0]
    """
    if not rise > 0:
        raise ProblemError(f"Argument `rise` must be positive, but is {rise}.")
    steepness = RISE / rise
    fall = torch.ones_like(time) if off is None else torch.sigmoid((off - time) * steepness)
    climb = torch.ones_like(time) if on is None else torch.sigmoid((time - on) * steepness)
    return fall + climb if off is not None and on is not None and off < on else fall * climb


class Gated(nn.Module):
    """A waveform times a fixed factor of time.

    Args:
        waveform: shape (*batch, time).
        factor: shape (time,), see `gate`.

    Example:
        >>> import torch
        >>> time = torch.tensor([0.0, 2.0])
        >>> waveform = GaussianBasis(time, 2, (0.0, 2.0), coefficients=torch.ones(2))
        >>> [round(x, 3) for x in Gated(waveform, gate(time, off=1.0, rise=0.1))().tolist()]
        [1.607, 0.0]
    """

    factor: torch.Tensor

    def __init__(self, waveform: nn.Module, factor: torch.Tensor):
        super().__init__()
        self.waveform = waveform
        self.register_buffer("factor", factor, persistent=False)

    def forward(self) -> torch.Tensor:
        """The waveform, in its own unit, shape (*batch, time)."""
        return self.waveform() * self.factor


class Normalised(nn.Module):
    """A waveform scaled to a given energy ∫|Ω|² dt; its shape alone is free.

    Args:
        waveform: shape (*batch, time), in any unit.
        time: its time grid, shape (time,).
        energy: ∫|Ω|² dt of the result, cyclic squared times time.

    Raises:
        ProblemError: the energy is not positive.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 6.0, 61)
        >>> waveform = GaussianBasis(time, 1, (3.0, 3.0), 0.5, coefficients=torch.ones(1))
        >>> round(energy(Normalised(waveform, time, 4.0)(), time).item(), 3)
        4.0
    """

    time: torch.Tensor

    def __init__(self, waveform: nn.Module, time: torch.Tensor, energy: float):
        super().__init__()
        if not energy > 0:
            raise ProblemError(f"Argument `energy` must be positive, but is {energy}.")
        self.waveform, self.energy = waveform, float(energy)
        self.register_buffer("time", time, persistent=False)

    def forward(self) -> torch.Tensor:
        """The waveform, cyclic, shape (*batch, time)."""
        waveform = self.waveform()
        return waveform * (self.energy / energy(waveform, self.time)).sqrt()[..., None]

    def extra_repr(self) -> str:
        return f"energy={self.energy:g}"


class Fields(nn.Module):
    """The free fields of a problem, in the form that a `TorchPropagator` takes as `input_fields`.

    Args:
        waveforms: a waveform by label or index of its field. Fields that are not named keep their own pulse.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 10.0, 101)
        >>> probe, control = GaussianBasis(time, 4, (2.0, 5.0)), GaussianBasis(time, 9, (1.0, 9.0))
        >>> fields = Fields({"probe": probe, "control": control})
        >>> {label: tuple(waveform.shape) for label, waveform in fields().items()}
        {'probe': (101,), 'control': (101,)}
    """

    def __init__(self, waveforms: Mapping[str | int, nn.Module]):
        super().__init__()
        self.names = tuple(waveforms)
        self.waveforms = nn.ModuleList(waveforms.values())

    def forward(self) -> dict[str | int, torch.Tensor]:
        """The waveforms by label or index, cyclic, each of shape (*batch, time)."""
        return {key: waveform() for key, waveform in zip(self.names, self.waveforms, strict=True)}
