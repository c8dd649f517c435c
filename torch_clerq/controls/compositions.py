"""Waveforms made of several: sums, complex ones of two real ones, and the fields of a problem."""

import functools
import math
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import nn

from jax_kernel.parameters import fail

from .waveform import Waveform, check_grids, check_waveform, start


class Sum(Waveform):
    """The sum of waveforms.

    Args:
        waveforms: shapes (*batch, time), whose batches broadcast; complex where one is.

    Example:
        >>> import torch
        >>> from torch_clerq.controls import Sampled
        >>> time = torch.tensor([0.0, 1.0])
        >>> Sum([Sampled(time, torch.tensor([1.0, 2.0])), Sampled(time, torch.tensor([1.0j, 0.0]))])().tolist()
        [(1+1j), (2+0j)]
    """

    waveforms: nn.ModuleList

    def __init__(self, waveforms: Iterable[nn.Module]):
        super().__init__()
        self.waveforms = _several(waveforms)

    def forward(self) -> torch.Tensor:
        """The waveform, in the unit of its parts, shape (*batch, time)."""
        first, *rest = parts = [waveform() for waveform in self.waveforms]
        check_grids(**{f"waveforms[{k}]": part for k, part in enumerate(parts)})
        return sum(rest, first)

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        for _ in range(3):  # each takes what the others leave
            for waveform in self.waveforms:
                start(waveform, target - (self() - waveform()), weight)
        return False


class Polar(Waveform):
    """A complex waveform by amplitude and phase, amplitude · e^{i phase}.

    Args:
        amplitude: real, cyclic, shape (*batch, time).
        phase: real, in radians, shape (*batch, time).

    Example:
        >>> import torch
        >>> from torch_clerq.controls import Sampled
        >>> time = torch.tensor([0.0, 1.0])
        >>> Polar(Sampled(time, torch.tensor([1.0, 2.0])), Sampled(time, torch.zeros(2)))().tolist()
        [(1+0j), (2+0j)]
    """

    amplitude: nn.Module
    phase: nn.Module

    def __init__(self, amplitude: nn.Module, phase: nn.Module):
        super().__init__()
        self.amplitude, self.phase = check_waveform("amplitude", amplitude), check_waveform("phase", phase)

    def forward(self) -> torch.Tensor:
        """The waveform, cyclic, shape (*batch, time)."""
        amplitude, phase = _real(amplitude=self.amplitude(), phase=self.phase())
        return torch.complex(amplitude * phase.cos(), amplitude * phase.sin())

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        amplitude = target.abs()
        start(self.amplitude, amplitude, weight)
        start(self.phase, _phase(target), amplitude if weight is None else weight * amplitude)
        return False


def _phase(target: torch.Tensor) -> torch.Tensor:
    """The phase without jumps of 2π, joined by lines where it is too dark for one."""
    flat = target.detach().cpu().numpy().reshape(-1, target.shape[-1])
    rows, index = [], np.arange(flat.shape[-1])
    for row in flat:
        bright = np.abs(row) > 1e-6 * max(np.abs(row).max(), np.finfo(float).tiny)
        phase = np.unwrap(np.angle(row[bright]))
        if len(phase):
            phase = np.interp(index, index[bright], phase)
            phase -= 2 * math.pi * np.round(np.median(phase) / (2 * math.pi))
        rows.append(phase if len(phase) else np.zeros(len(index)))
    return torch.as_tensor(np.array(rows), device=target.device).reshape(target.shape)


class Quadratures(Waveform):
    """A complex waveform by its real and imaginary part.

    Args:
        real: real, shape (*batch, time).
        imag: real, shape (*batch, time).

    Example:
        >>> import torch
        >>> from torch_clerq.controls import Sampled
        >>> time = torch.tensor([0.0, 1.0])
        >>> Quadratures(Sampled(time, torch.tensor([1.0, 2.0])), Sampled(time, torch.ones(2)))().tolist()
        [(1+1j), (2+1j)]
    """

    real: nn.Module
    imag: nn.Module

    def __init__(self, real: nn.Module, imag: nn.Module):
        super().__init__()
        self.real, self.imag = check_waveform("real", real), check_waveform("imag", imag)

    def forward(self) -> torch.Tensor:
        """The waveform, in the unit of its parts, shape (*batch, time)."""
        return torch.complex(*torch.broadcast_tensors(*_real(real=self.real(), imag=self.imag())))

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        exact = start(self.real, target.real, weight)
        return start(self.imag, target.imag, weight) and exact


class Concat(Waveform):
    """One waveform per field of a problem, as a propagator takes them for `input_fields`.

    Args:
        waveforms: in the order of the fields, shapes (*batch, time), whose batches broadcast.

    Example:
        >>> import torch
        >>> from torch_clerq.controls import GaussianBasis
        >>> time = torch.linspace(0.0, 10.0, 101)
        >>> probes = GaussianBasis(time, 4, (2.0, 5.0), coefficients=torch.ones(3, 4))
        >>> Concat([probes, GaussianBasis(time, 9, (1.0, 9.0))])().shape
        torch.Size([3, 2, 101])
    """

    waveforms: nn.ModuleList

    def __init__(self, waveforms: Iterable[nn.Module]):
        super().__init__()
        self.waveforms = _several(waveforms)

    def forward(self) -> torch.Tensor:
        """The waveforms, cyclic, shape (*batch, field, time); complex where one is."""
        parts = [waveform() for waveform in self.waveforms]
        check_grids(**{f"waveforms[{k}]": part for k, part in enumerate(parts)})
        return torch.stack(torch.broadcast_tensors(*parts), -2)

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        targets = target.unbind(-2)
        weights = [None] * len(targets) if weight is None else weight.expand(target.shape).unbind(-2)
        return all([start(*parts) for parts in zip(self.waveforms, targets, weights, strict=True)])


class Fields(nn.Module):
    """The free fields of a problem, in the form that a `TorchPropagator` takes as `input_fields`.

    Args:
        waveforms: a waveform by label or index of its field. Fields that are not named keep their own pulse.

    Example:
        >>> import torch
        >>> from torch_clerq.controls import GaussianBasis
        >>> time = torch.linspace(0.0, 10.0, 101)
        >>> probe, control = GaussianBasis(time, 4, (2.0, 5.0)), GaussianBasis(time, 9, (1.0, 9.0))
        >>> fields = Fields({"probe": probe, "control": control})
        >>> {label: tuple(waveform.shape) for label, waveform in fields().items()}
        {'probe': (101,), 'control': (101,)}
    """

    names: tuple[str | int, ...]
    waveforms: nn.ModuleList

    def __init__(self, waveforms: Mapping[str | int, nn.Module]):
        super().__init__()
        if not isinstance(waveforms, Mapping):
            fail("waveforms", "be a dict of waveforms by label or index", f"is {waveforms!r}")
        self.names = tuple(waveforms)
        self.waveforms = _several(waveforms.values())

    def forward(self) -> dict[str | int, torch.Tensor]:
        """The waveforms by label or index, cyclic, each of shape (*batch, time)."""
        return {key: waveform() for key, waveform in zip(self.names, self.waveforms, strict=True)}


def _several(waveforms: Iterable[nn.Module]) -> nn.ModuleList:
    if not isinstance(waveforms, Iterable):
        fail("waveforms", "be several waveforms", f"is {waveforms!r}")
    several = nn.ModuleList(check_waveform("waveforms", waveform) for waveform in waveforms)
    if not len(several):
        fail("waveforms", "have at least one waveform", "is empty")
    return several


def _real(**waveforms: torch.Tensor) -> list[torch.Tensor]:
    """Real waveforms on one grid, in the wider of their precisions."""
    check_grids(**waveforms)
    for name, waveform in waveforms.items():
        if waveform.is_complex():
            fail(name, "be real", f"has dtype {waveform.dtype}")
    kind = functools.reduce(torch.promote_types, (waveform.dtype for waveform in waveforms.values()))
    return [waveform.to(kind) for waveform in waveforms.values()]
