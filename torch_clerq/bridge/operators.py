"""JAX functions as operators of torch's dispatcher, for what traces: torch.compile, export, FakeTensor, make_fx.

An operator takes a number that stands for a function and its constants. Operators have a fixed number of tensors,
because batched gradients and `vectorize=True` do not accept lists of them.
"""

import itertools
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import torch

from jax_kernel.errors import BridgeError

from .functions import Function, arrays_of, batched, run

_LIBRARY = torch.library.Library("torch_clerq", "FRAGMENT")


class _Calls:
    """Functions with their constants by number; equal ones share a number.

    The first number is random, so that no other process can take a graph that was kept on disk for its own.
    """

    def __init__(self):
        self.next = itertools.count(secrets.randbits(48))
        self.numbers: dict[Any, int] = {}
        self.by_number: dict[int, tuple[Function, Any]] = {}
        self.lock = threading.Lock()

    def number(self, fn: Function, constants: Any) -> int:
        leaves = jax.tree.leaves(arrays_of(constants))  # arrays live as long as they are listed here
        key = (fn, tuple((type(x), x) if isinstance(x, int | float | complex) else id(x) for x in leaves))
        with self.lock:
            if key not in self.numbers:
                self.numbers[key] = next(self.next)
                self.by_number[self.numbers[key]] = fn, constants
            return self.numbers[key]

    def __getitem__(self, number: int) -> tuple[Function, Any]:
        if number not in self.by_number:
            raise BridgeError(
                "A graph must run in the process that traced it, but this one calls a JAX function of another, which "
                "no file carries: trace it here."
            )
        return self.by_number[number]


_calls = _Calls()


def apply(fn: Function, constants: Any, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Call a function through the dispatcher, without a graph of its own."""
    operator = _operator(len(tensors), len(fn.shapes(constants, tensors)))
    with torch._C._AutoDispatchBelowAutograd():
        return operator(_calls.number(fn, constants), *tensors)


_operators: dict[tuple[int, int], Callable[..., tuple[torch.Tensor, ...]]] = {}


def _operator(inputs: int, outputs: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    with _calls.lock:  # torch defines a name once
        if (inputs, outputs) not in _operators:
            _operators[inputs, outputs] = _define(inputs, outputs)
        return _operators[inputs, outputs]


def _define(inputs: int, outputs: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The operator of so many tensors in and out."""
    from .nodes import node  # which calls what is here

    name = f"call_{inputs}_{outputs}"
    given = "".join(f", Tensor x{i}" for i in range(inputs))
    _LIBRARY.define(f"{name}(int number{given}) -> ({', '.join(['Tensor'] * outputs)})")

    def only(results):
        return results if outputs != 1 else results[0]

    def compute(number, *tensors):
        return only(run(*_calls[number], tensors))

    def fake(number, *tensors):
        fn, constants = _calls[number]
        device = tensors[0].device if tensors else None
        return only(tuple(torch.empty(s, dtype=d, device=device) for s, d in fn.shapes(constants, tensors)))

    def differentiable(number, *tensors):
        fn, constants = _calls[number]
        if torch._C._are_functorch_transforms_active():
            raise BridgeError(
                "A graph of torch.export or make_fx must not be transformed by torch.func, but torch.func is at work: "
                "transform the function first, and then trace it."
            )
        return only(super(torch.autograd.Function, node(fn.name)).apply(fn, constants, *tensors))

    def vmap(info, in_dims, number, *tensors):
        fn, constants = _calls[number]
        out = apply(batched(fn, in_dims[1:], tensors), constants, tensors)
        return only(out), 0 if outputs == 1 else (0,) * len(out)

    qualified = f"torch_clerq::{name}"
    _LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    _LIBRARY.impl(name, differentiable, "Autograd")
    torch.library.register_fake(qualified, fake, lib=_LIBRARY)
    torch.library.register_vmap(qualified, vmap, lib=_LIBRARY)
    operator = getattr(torch.ops.torch_clerq, name).default

    def call(number, *tensors):
        result = operator(number, *tensors)
        return tuple(result) if isinstance(result, tuple | list) else (result,)

    return call
