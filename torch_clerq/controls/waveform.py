"""What every waveform is, and how one is fitted to samples."""

import copy
import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import nn

from jax_kernel.parameters import fail

from ..checks import check_count
from ..functional import to_tensor
from ..parametrised import ComplexModule

LEAST = 1e-28
"""Mean square misfit at which a fit is at the rounding of float64."""

LARGEST = 1e140
"""Size of a target up to which the squares of it and of a waveform near it are finite."""

ROUND = 100
"""Steps of L-BFGS before it takes a new unit of the misfit."""


class Waveform(ComplexModule, ABC):
    """A waveform on a time grid: a module without inputs that returns it, real or complex, shape (*batch, time).

    The grid and all that derives from it are buffers outside of the state dict, so that the parameters of a waveform
    may be loaded into one on another grid. A subclass has a `forward`; it may say in `_start` where a fit begins.
    """

    @abstractmethod
    def forward(self) -> torch.Tensor:
        """The waveform, shape (*batch, time)."""

    @torch.inference_mode(False)
    def fit_to(self, target: Any, *, steps: int = 500) -> torch.Tensor:
        """Set the parameters, in place, to those whose waveform is nearest to samples in the sense of least squares.

        Coefficients of a basis are solved for exactly. Other parameters start where the inverse of what they stand
        behind leads, and are polished by L-BFGS, in float64: J. Nocedal and S. J. Wright, Numerical Optimization
        (2006), chapter 7. What does not require a gradient stays.

        Args:
            target: samples on the waveform's own time grid, shape (*batch, time) or what broadcasts to it.
            steps: most steps of L-BFGS.

        Returns:
            Root mean square of what is left, relative to that of the target, shape (*batch,); absolute where the
            target is dark.

        Raises:
            ProblemError: the target has another shape, is complex where the waveform is real, or is not finite.

        Example:
            >>> import torch
            >>> from torch_clerq.controls import Bounded, GaussianBasis
            >>> time = torch.linspace(0.0, 10.0, 101, dtype=torch.float64)
            >>> waveform = Bounded(GaussianBasis(time, 9, (0.0, 10.0)), 0.0, 3.0)
            >>> bool(waveform.fit_to(2 * torch.exp(-((time - 5) ** 2) / 8)) < 0.01)
            True
        """
        check_count("steps", steps, 0)
        with torch.no_grad():
            own = self()
        target = self._checked(target, own)
        before = copy.deepcopy(self).double()
        after = copy.deepcopy(before)
        with torch.no_grad():
            exact = after._start(target, None)
            better = exact or misfit(after(), target).sum() <= misfit(before(), target).sum()
        best = after if better else before
        if not exact:
            _polish(best, target, steps)
        with torch.no_grad():
            for parameter, found in zip(self.parameters(), best.parameters(), strict=True):
                parameter.copy_(found)
            return misfit(self().to(target.dtype), target).sqrt().to(own.dtype.to_real())

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        """Set the parameters near those of a target of the waveform's own shape, in place.

        Args:
            target: shape (*batch, time).
            weight: of the errors, real and not negative, shape (*batch, time), or None for 1.

        Returns:
            Whether they are those of the least squares already.
        """
        return False

    def _checked(self, target: Any, own: torch.Tensor) -> torch.Tensor:
        target = to_tensor("target", target).detach().to(own.device)
        try:
            fits = target.shape[-1:] == own.shape[-1:] and torch.broadcast_shapes(target.shape, own.shape) == own.shape
        except RuntimeError:
            fits = False
        if not fits:
            shape = f"have the waveform's shape {tuple(own.shape)}, or one that broadcasts to it"
            fail("target", shape, f"has shape {tuple(target.shape)}")
        if target.is_complex() and not own.is_complex():
            fail("target", "be real, as the waveform is", f"has dtype {target.dtype}")
        if not bool(target.isfinite().all()):
            fail("target", "be finite", "has values that are not")
        if target.numel() and bool(target.abs().amax() > LARGEST):
            fail("target", f"be below {LARGEST:g} in size, so that its squares are finite", "has larger values")
        return target.to(torch.complex128 if own.is_complex() else torch.float64).expand(own.shape)


def misfit(waveform: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean square of waveform − target, relative to that of the target where it is not dark, shape (*batch,)."""
    square = (target * target.conj()).real.mean(-1)
    error = waveform - target
    return (error * error.conj()).real.mean(-1) / torch.where(square > 0, square, 1)


def start(waveform: nn.Module, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
    """`Waveform._start` of a part of a waveform, whose shape and kind need not be those of the target.

    Where one waveform stands for several, the mean of their targets with the squares of the weights is its own.
    """
    if not isinstance(waveform, Waveform):
        return False
    own = waveform()
    if target.is_complex() and not own.is_complex():
        target = target.real
    if own.shape != target.shape:
        square = (torch.ones_like(target.real) if weight is None else weight**2).expand(target.shape)
        total = square.sum_to_size(own.shape)
        target = (square * target).sum_to_size(own.shape) / torch.where(total > 0, total, 1)
        weight = total.sqrt()
    return waveform._start(target, weight)


def least_squares(functions: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    """The coefficients c of least norm among those that minimise Σ_t weight² |target − Σ_k c_k functions_k|².

    Args:
        functions: shape (count, time) or (*batch, count, time).
        target: shape (*batch, time).
        weight: shape (*batch, time), or None for 1.

    Returns:
        Shape (*batch, count).
    """
    columns = functions.mT.to(target.dtype)
    if weight is None and columns.ndim == 2:
        rows = target.reshape(-1, target.shape[-1]).T
        return _lstsq(columns, rows).T.reshape(*target.shape[:-1], columns.shape[-1])
    if weight is not None:
        columns, target = columns * weight[..., None], target * weight
    return _lstsq(columns.expand(*target.shape, -1), target[..., None])[..., 0]


def _lstsq(columns: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """By singular values, since bases may be nearly dependent; torch has that on the CPU alone."""
    solved = torch.linalg.lstsq(columns.cpu(), rows.cpu(), driver="gelsd").solution
    return solved.to(rows.device)


@torch.enable_grad()
def _polish(waveform: Waveform, target: torch.Tensor, steps: int) -> None:
    """Minimise the misfit from where a waveform is, in units of each parameter's own size.

    In rounds, each in units of the misfit that it starts from: torch's L-BFGS learns nothing from a step whose change
    of the gradient times the step is below 1e-10, and would stall where the misfit is small.
    """
    named = {name: value for name, value in waveform.named_parameters() if value.requires_grad}
    sizes = {name: value.detach().abs().amax() for name, value in named.items()}
    sizes = {name: torch.where(size > 0, size, 1) for name, size in sizes.items()}
    if not named:
        return
    free = {name: (value.detach() / sizes[name]).requires_grad_() for name, value in named.items()}
    kept: dict[str, torch.Tensor] = {}
    best = unit = math.inf

    def closure():
        nonlocal best
        for value in free.values():
            value.grad = None
        values = {name: value * sizes[name] for name, value in free.items()}
        loss = misfit(torch.func.functional_call(waveform, values, ()), target).sum()
        if loss.item() < best:
            best = loss.item()
            kept.update({name: value.detach().clone() for name, value in free.items()})
        loss = loss / unit
        loss.backward()
        return loss

    closure()
    while steps > 0 and LEAST < best < 0.9 * unit:
        unit = best
        optimiser = torch.optim.LBFGS(
            list(free.values()), max_iter=min(steps, ROUND), history_size=50, tolerance_grad=1e-12,
            tolerance_change=1e-12, line_search_fn="strong_wolfe",
        )  # fmt: skip
        optimiser.step(closure)
        steps -= ROUND
        with torch.no_grad():
            for name, value in free.items():
                value.copy_(kept[name])
    with torch.no_grad():
        for name, value in kept.items():
            named[name].copy_(value * sizes[name])


def check_grids(**parts: torch.Tensor) -> None:
    """Refuse waveforms, factors and times that are not of one length along their last axis."""
    (first, one), *rest = parts.items()
    for name, part in rest:
        if part.shape[-1] != one.shape[-1]:
            rule = f"be on one time grid with `{first}`, of {one.shape[-1]} times"
            fail(name, rule, f"has {part.shape[-1]}: build both from one `time`")


def check_waveform(name: str, waveform: Any) -> nn.Module:
    """Refuse what is no module, of which a waveform is to be made."""
    if not isinstance(waveform, nn.Module):
        fail(name, "be a waveform, an nn.Module without inputs", f"is {waveform!r}")
    return waveform
