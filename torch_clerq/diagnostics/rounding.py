"""What rounding does inside a torch function: which operation loses digits, and how far random rounding moves a result.

Random rounding is Monte Carlo arithmetic (D. S. Parker, UCLA CSD-970002 (1997)): each operation's result is moved by at
most one unit in the last place, at random; the spread of repeated results is the error that rounding makes. A wrong
formula is as wrong each time, so that the two are told apart.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

SAMPLES = 6
_EXACT = """
_conj _conj_physical _copy_from _local_scalar_dense _reshape_alias _to_copy _unsafe_view abs alias amax amin
as_strided broadcast_to cat ceil clamp clamp_max clamp_min clone complex copy copy_ detach diagonal_backward
empty empty_like empty_strided eq expand fill fill_ flip floor full full_like gather ge gt imag index
index_put index_select is_nonzero isfinite le lift_fresh lt masked_fill max maximum min minimum ne neg
new_empty new_full new_ones new_zeros nonzero ones ones_like permute randn real relu resolve_conj round
scalar_tensor scatter select select_backward sgn sign slice slice_backward sort squeeze stack t
threshold_backward transpose trunc unsqueeze view view_as_complex view_as_real where zero_ zeros zeros_like
"""
EXACT = frozenset(_EXACT.split())
"""Operations that move, choose or count, and round nothing."""


@dataclass(frozen=True)
class Event:
    """One operation at which digits, or the whole number, went.

    Attributes:
        kind: "cancellation", "overflow", "underflow", "pole" or "undefined".
        operation: its name in torch.
        digits: decimal digits that a cancellation lost, of those that the precision has.
    """

    kind: str
    operation: str
    digits: float = 0.0


def _name(func) -> str:
    return func._schema.name.removeprefix("aten::")


def _floats(values) -> list[torch.Tensor]:
    return [x for x in values if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())]


def _results(result) -> list[torch.Tensor]:
    return _floats(result if isinstance(result, tuple | list) else [result])


class Witness(TorchDispatchMode):
    """Watches every operation for cancellation, overflow, underflow and poles, of values and of gradients."""

    def __init__(self):
        super().__init__()
        self.events: list[Event] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = _name(func)
        inputs = _floats(args)
        before = None
        if name in ("add_", "sub_"):
            before = [args[0].clone(), *args[1:]]
        result = func(*args, **(kwargs or {}))
        if not func._schema.name.startswith("aten::") or name in EXACT or name.startswith(("new_", "empty")):
            return result
        for out in _results(result):
            self._finite(name, args, inputs, out)
            if name in ("add", "sub", "rsub", "add_", "sub_"):
                self._cancels(name, before or args, out)
            if name in ("mul", "mul_", "div", "div_", "exp", "pow", "prod", "square", "sigmoid"):
                self._vanishes(name, args, inputs, out)
        return result

    def _finite(self, name, args, inputs, out):
        if bool(torch.isfinite(out).all()) or not all(bool(torch.isfinite(x).all()) for x in inputs):
            return
        at = {"div": 1, "div_": 1, "log": 0, "rsqrt": 0, "reciprocal": 0, "pow": 0}.get(name)
        pole = at is not None and bool((torch.as_tensor(args[at]) == 0).any())
        self.events.append(Event("pole" if pole else "undefined" if bool(out.isnan().any()) else "overflow", name))

    def _cancels(self, name, args, out):
        a, b = args[0], args[1]
        if not all(isinstance(x, torch.Tensor | float | int | complex) for x in (a, b)) or out.numel() == 0:
            return
        a, b = (torch.as_tensor(x).abs() for x in (a, b))
        size = torch.maximum(a.to(out.abs().dtype), b.to(out.abs().dtype)).expand_as(out)
        there = (size > 0) & torch.isfinite(size) & (torch.minimum(a, b) > 0)
        if not bool(there.any()):
            return
        eps = torch.finfo(out.dtype).eps
        left = (out.abs()[there] / size[there]).clamp(min=eps).min()
        digits = -math.log10(float(left))
        if digits > -math.log10(eps) / 2:
            self.events.append(Event("cancellation", name, digits))

    def _vanishes(self, name, args, inputs, out):
        tiny = torch.finfo(out.dtype).tiny
        nonzero = torch.ones_like(out, dtype=torch.bool)
        for x in inputs[:1] if name in ("div", "div_", "prod") else inputs if name != "exp" else ():
            nonzero = nonzero & ((x != 0).all() if name == "prod" else (x != 0))
        if name != "exp" and not all(bool(torch.isfinite(x).all()) for x in inputs):
            return
        scalar = args[1] if len(args) > 1 and isinstance(args[1], int | float) else 1
        if scalar != 0 and bool((nonzero & (out.abs() < tiny)).any()):
            self.events.append(Event("underflow", name))

    def worst(self) -> Event | None:
        """The cancellation that lost most digits."""
        lost = [event for event in self.events if event.kind == "cancellation"]
        return max(lost, key=lambda event: event.digits, default=None)

    def first(self, kind: str) -> int | None:
        """When an event of a kind came first."""
        return next((k for k, event in enumerate(self.events) if event.kind == kind), None)


class RandomRounding(TorchDispatchMode):
    """Moves every result that has been rounded by at most one unit in the last place, at random.

    Args:
        generator: of the random numbers.
        dtype: of the results that are moved, or its complex form; constants of another are left as they are.
    """

    generator: torch.Generator
    dtype: torch.dtype

    def __init__(self, generator: torch.Generator, dtype: torch.dtype):
        super().__init__()
        self.generator, self.dtype = generator, dtype

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = _name(func)
        if name in EXACT or name.startswith(("new_", "empty")) or not func._schema.name.startswith("aten::"):
            return result
        if any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):  # a view
            return result
        for out in _results(result):
            if out.dtype.to_real() == self.dtype and out.device.type == "cpu" and not out._is_zerotensor():
                moves = torch.randint(-1, 2, out.shape, generator=self.generator).to(out.dtype)
                out.mul_(1 + moves * torch.finfo(out.dtype).eps)
        return result


@dataclass(frozen=True)
class Spread:
    """Root mean square deviations under random rounding, inf where a result was not finite.

    Attributes:
        value: of the value.
        gradients: of each gradient, in the Euclidean norm.
    """

    value: float
    gradients: tuple[float, ...]


def spread(
    differentiate: Callable[[], tuple[torch.Tensor, list[torch.Tensor]]],
    value: torch.Tensor,
    gradients: list[torch.Tensor],
    seed: int,
) -> Spread:
    """How far random rounding moves a value and its gradients.

    Args:
        differentiate: computes both.
        value: what it computes as a rule.
        gradients: as a rule.
        seed: of the random numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    values, norms = [], []
    for _ in range(SAMPLES):
        with RandomRounding(generator, value.dtype):
            other, others = differentiate()
        values.append(float(other) - float(value))
        norms.append([float(torch.linalg.vector_norm(a - b)) for a, b in zip(others, gradients, strict=True)])
    return Spread(rms(values), tuple(rms(column) for column in zip(*norms, strict=True)))


def rms(values: Any) -> float:
    """Root mean square, inf where one is not finite."""
    values = np.abs(np.asarray(values, float))
    size = float(np.max(values, initial=0.0))
    if not np.all(np.isfinite(values)):
        return math.inf
    return size * float(np.sqrt(np.mean((values / size) ** 2))) if size > 0 else 0.0
