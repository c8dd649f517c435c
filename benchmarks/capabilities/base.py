"""What a capability is, and how a result is told from the truth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


class Wrong(AssertionError):
    """Not the truth."""


class Silent(Wrong):
    """Wrong without any sign: zeros, no gradient at all, or digits that are gone."""


@dataclass(frozen=True)
class Capability:
    """One row.

    Attributes:
        group: heading of its rows.
        name: what is asked for.
        check: takes a bridge; raises `Wrong` where its answer is.
        seconds: longest time it may take.
        wide: whether the peers, which have no 64 bit of their own, get JAX's global flag.
    """

    group: str
    name: str
    check: Callable[[Callable], None]
    seconds: float
    wide: bool


ALL: dict[str, Capability] = {}
GROUPS = (
    "Calls",
    "Complex numbers",
    "Precision",
    "Memory",
    "Derivatives",
    "torch.func",
    "Compilers",
    "Training",
    "Threads and processes",
)


def capability(group: str, name: str, *, seconds: float = 60, wide: bool = False) -> Callable:
    """Enter a check into the table."""

    def enter(check: Callable) -> Callable:
        if name in ALL:
            raise ValueError(f"Two capabilities are named {name!r}.")
        ALL[name] = Capability(group, name, check, seconds, wide)
        return check

    return enter


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, grad: bool = False) -> torch.Tensor:
    """Reproducible normal numbers."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    made = torch.randn(*shape, dtype=wide, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).requires_grad_(grad)


def same(found: Any, right: Any, rtol: float = 1e-4) -> None:
    """Compare a tensor, or a sequence of them, with the truth."""
    if not isinstance(right, torch.Tensor):
        if not isinstance(found, Sequence) or len(found) != len(right):
            raise Wrong(f"{found!r} where {right!r} is right")
        for one, other in zip(found, right, strict=True):
            same(one, other, rtol)
        return
    if found is None:
        raise Silent("no gradient")
    if found.shape != right.shape:
        raise Wrong(f"shape {tuple(found.shape)} where {tuple(right.shape)} is right")
    if found.dtype != right.dtype:
        narrower = found.is_complex() == right.is_complex() and found.dtype.itemsize < right.dtype.itemsize
        raise (Silent if narrower else Wrong)(f"{found.dtype} where {right.dtype} is right")
    found, right = found.detach(), right.detach()
    if torch.allclose(found, right, rtol=rtol, atol=rtol * float(right.abs().max()) if right.numel() else 0.0):
        return
    if not found.any() and right.any():
        raise Silent("zeros")
    raise Wrong(f"{found.flatten()[:3].tolist()} where {right.flatten()[:3].tolist()} is right")


def connected(output: torch.Tensor) -> torch.Tensor:
    """The output, which must carry a gradient."""
    if not output.requires_grad:
        raise Silent("the output carries no gradient")
    return output


def gradients(output: torch.Tensor, inputs: Sequence[torch.Tensor], seed: int = 7) -> tuple[torch.Tensor, ...]:
    """Gradients of the inputs at a random cotangent that is contiguous."""
    cotangent = random(*output.shape, dtype=output.dtype, seed=seed)
    return torch.autograd.grad(connected(output), inputs, cotangent, allow_unused=True)


def agrees(of: Callable, truth: Callable, inputs: Sequence[torch.Tensor], rtol: float = 1e-4) -> None:
    """The value and every gradient of one output."""
    output, right = of(*inputs), truth(*inputs)
    same(output, right, rtol)
    needed = [x for x in inputs if x.requires_grad]
    same(gradients(output, needed), gradients(right, needed), rtol)
