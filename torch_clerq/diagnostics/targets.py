"""A scalar as a function of named tensors, whatever it comes from: a module and an objective, or a plain function."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.parameter import is_lazy

from jax_kernel.errors import ProblemError
from jax_kernel.parameters import fail

from ..checkpoint import random_states, set_random_states
from ..flat import Holder
from ..layers import propagators

FLOATS = (torch.float32, torch.float64)


class _Unwatched:
    """Takes the place of what looks at a layer's resolution: a check has steps that are coarse on purpose."""

    def __call__(self, *args: Any) -> None:
        return None

    def warn(self, *args: Any) -> None:
        return None


class Target:
    """A scalar function of named tensors.

    Args:
        names: of the tensors.
        tensors: where it is looked at; not changed.
        function: of tensors in their place; other tensors of its own come in the precision of the first.
    """

    names: list[str]
    function: Callable[[Sequence[torch.Tensor]], Any]
    tensors: list[torch.Tensor]
    random: dict[str, Any]

    def __init__(
        self, names: list[str], tensors: list[torch.Tensor], function: Callable[[Sequence[torch.Tensor]], Any]
    ):
        self.names, self.function = names, function
        self.tensors = [t.detach().clone() for t in tensors]
        self.random = random_states()

    @property
    def dtype(self) -> torch.dtype:
        """The widest precision of the tensors, real."""
        real = [t.dtype.to_real() for t in self.tensors]
        return torch.float64 if torch.float64 in real else torch.float32

    def value(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The scalar at tensors, with the random numbers of the first call."""
        set_random_states(self.random)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = self.function([t.clone() for t in tensors])  # which it may write into
        if not (isinstance(value, torch.Tensor) and value.numel() == 1 and value.dtype in FLOATS):
            what = f"a tensor {value.dtype} of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else value
            raise ProblemError(
                f"Argument `objective` must return one real float32 or float64 number, but gives {what!s}."
            )
        return value.reshape(())

    def number(self, tensors: Sequence[torch.Tensor]) -> float:
        """The value without a derivative; nan where the function refuses its arguments."""
        try:
            with torch.no_grad():
                return float(self.value(tensors))
        except (ValueError, RuntimeError, ArithmeticError):
            return float("nan")

    def differentiate(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Value and gradients in reverse mode; zeros where the value does not depend on a tensor."""
        tensors = [t.detach().requires_grad_() for t in tensors]
        value = self.value(tensors)
        if not value.requires_grad:
            return value.detach(), [torch.zeros_like(t) for t in tensors]
        found = torch.autograd.grad(value, tensors, allow_unused=True)
        return value.detach(), [torch.zeros_like(t) if g is None else g for t, g in zip(tensors, found, strict=True)]

    def forward(self, k: int, direction: torch.Tensor) -> float:
        """The derivative of the value along a direction of the k-th tensor, in forward mode."""
        with forward_ad.dual_level(), torch.no_grad():
            duals = [
                forward_ad.make_dual(t, direction if i == k else torch.zeros_like(t))
                for i, t in enumerate(self.tensors)
            ]
            tangent = forward_ad.unpack_dual(self.value(duals)).tangent
            return 0.0 if tangent is None else float(tangent)

    def shifted(self, k: int, shift: torch.Tensor) -> list[torch.Tensor]:
        """The tensors, one of them moved."""
        return [t + shift if i == k else t for i, t in enumerate(self.tensors)]

    def converted(self, dtype: torch.dtype) -> list[torch.Tensor]:
        """The tensors in another precision."""
        return [t.to(dtype.to_complex() if t.is_complex() else dtype) for t in self.tensors]


def _swap(
    holder: Holder, names: list[str], objective: Callable[[nn.Module], Any]
) -> Callable[[Sequence[torch.Tensor]], Any]:
    def function(tensors: Sequence[torch.Tensor]) -> Any:
        given = dict(zip(names, tensors, strict=True))
        dtype = tensors[0].dtype.to_real()
        for name, other in (*holder.named_parameters(), *holder.named_buffers()):
            if name not in given and other.dtype.to_real() in FLOATS and other.dtype.to_real() != dtype:
                given[name] = other.detach().to(dtype.to_complex() if other.is_complex() else dtype)
        return torch.func.functional_call(holder, given, (objective,))

    return function


@contextmanager
def target_of(what: Any, objective: Any, inputs: Sequence[Any]) -> Iterator[Target]:
    """The target of a module and its objective, or of a function and its inputs; what is looked at stays as it was.

    Raises:
        ProblemError: an argument breaks a rule.
    """
    with ExitStack() as stack:
        stack.callback(set_random_states, random_states())
        if isinstance(what, nn.Module) and not (objective is None or isinstance(objective, torch.Tensor)):
            yield _of_module(what, objective, inputs, stack)
        else:
            yield _of_function(what, objective, inputs)


def _of_module(module: nn.Module, objective: Any, inputs: Sequence[Any], stack: ExitStack) -> Target:
    if not callable(objective):
        raise ProblemError(f"Argument `objective` must be a function of the module, but is {objective!r}.")
    holder = Holder(module)
    if any(is_lazy(p) for p in module.parameters()):
        fail("module_or_function", "have shapes for all its parameters", "has lazy ones: call it once before")
    trained = [(name, p) for name, p in holder.named_parameters() if p.requires_grad and p.dtype.to_real() in FLOATS]
    if not trained:
        raise ProblemError(
            "Argument `module_or_function` must have a trainable parameter, but has none: name some in `trainable`."
        )
    kept = [(b, b.detach().clone()) for b in module.buffers()]
    stack.callback(_restore, kept)
    names = [name for name, _ in trained]
    function = _swap(holder, names, lambda module: objective(module, *inputs))
    target = Target([name.removeprefix("module.") for name in names], [p for _, p in trained], function)
    with torch.no_grad():
        target.value([p for _, p in trained])  # searches the resolution of a layer that has none yet
    for _, layer in propagators(module):
        stack.callback(layer.__dict__.__setitem__, "watch", layer.watch)
        layer.__dict__["watch"] = _Unwatched()
    return target


def _restore(kept: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for buffer, before in kept:
            if not torch.equal(buffer, before):
                buffer.copy_(before)


def _of_function(function: Any, objective: Any, inputs: Sequence[Any]) -> Target:
    if not callable(function):
        raise ProblemError(f"Argument `module_or_function` must be a module or a function, but is {function!r}.")
    over = None
    if callable(objective) and not isinstance(objective, torch.Tensor):
        over = objective
    elif objective is not None:
        inputs = (objective, *inputs)
    chosen = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.dtype.to_real() in FLOATS]
    if not chosen:
        raise ProblemError(
            "Argument `inputs` must have a float32 or float64 tensor to differentiate in, but has none: give the "
            "function's arguments, or for a module its objective."
        )

    def of_chosen(tensors: Sequence[torch.Tensor]) -> Any:
        at_hand = iter(tensors)
        value = function(*(next(at_hand) if i in chosen else x for i, x in enumerate(inputs)))
        return value if over is None else over(value)

    try:
        known = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        known = []
    names = [known[i] if i < len(known) else f"input {i}" for i in chosen]
    return Target(names, [inputs[i] for i in chosen], of_chosen)
