"""Hashable functions of arrays, their derivatives and batches, which are such functions again, and their executables.

JAX's cotangent of a complex number is the conjugate of PyTorch's, so complex cotangents are conjugated on the way in
and complex gradients on the way out; both happen inside the compiled function.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from operator import floordiv, mod
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from jax_kernel.sharding import gather, place

from . import exchange
from .compiled import unseen
from .exchange import dtype_of, logger

SIZE_OPERATIONS: dict[str, Callable[..., Any]] = {
    "floordiv": floordiv,
    "mod": mod,
    "max": torch.sym_max,
    "min": torch.sym_min,
}
"""What JAX writes sizes with, beside sums, products and powers."""

Shape = tuple[Any, ...]
"""Sizes, which are SymInts where torch traces with dynamic shapes."""

SLOW = 1.0
"""Seconds above which a compile is logged."""


class Function(ABC):
    """A hashable, jittable function (constants, *arrays) -> tuple of arrays. Equal functions share their executables.

    Attributes:
        name: what its nodes in a graph are called.
        x64: whether it computes in 64 bit.
        sharding: how several JAX devices share it, or None.
        is_derivative: whether its values are derivatives, which are handed out unchecked.
    """

    name: str
    x64: bool
    sharding: Any = None
    is_derivative: bool = False

    @abstractmethod
    def __call__(self, constants: Any, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        """Compute; constants are a pytree of arrays that have no derivative."""

    def variant(self, derivatives: str) -> "Function":
        """The form that also has "forward" derivatives, or "any"; this one need only have first ones in reverse."""
        return self

    def shapes(self, constants: Any, tensors: Sequence[torch.Tensor]) -> list[tuple[Shape, torch.dtype]]:
        """Shapes and dtypes of the outputs, from those of the tensors alone."""
        return traced_shapes(self, constants, tensors)


class Checked(NamedTuple):
    """Constants of one call, and what looks at the values that it computes.

    It goes with the call and not with the function, which other calls share.

    Attributes:
        arrays: pytree of arrays that have no derivative.
        check: raises where values are not to be handed out; a batch has its axes in front.
        before: raises where tensors that had no values at the call break a rule, or None where they had.
    """

    arrays: Any
    check: Callable[[Sequence[torch.Tensor]], None]
    before: Callable[[Sequence[torch.Tensor]], None] | None = None


def arrays_of(constants: Any) -> Any:
    """The constants as JAX takes them."""
    return constants.arrays if isinstance(constants, Checked) else constants


class _Derived(Function):
    """A derivative or a batch of a function; made by `vjp`, `jvp` and `batched`, so that equal ones are one."""

    fn: Function
    name: str
    x64: bool
    sharding: Any

    def __init__(self, fn: Function, name: str):
        self.fn, self.name, self.x64, self.sharding = fn, name, fn.x64, fn.sharding


def _conjugate(x):
    return jnp.conj(x) if jnp.iscomplexobj(x) else x


def _is_inexact(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _without(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """A tensor of the shape of one element along an axis."""
    return tensor.new_empty([size for i, size in enumerate(tensor.shape) if i != axis])


def _bind(fn: Function, constants: Any, arrays: Sequence[jax.Array], chosen: Sequence[bool]):
    """The function of the chosen arrays alone, and these."""

    def of_chosen(*values):
        at_hand = iter(values)
        return fn(constants, *(next(at_hand) if c else x for x, c in zip(arrays, chosen, strict=True)))

    return of_chosen, tuple(x for x, c in zip(arrays, chosen, strict=True) if c)


class Vjp(_Derived):
    """(constants, *arrays, *cotangents that are there) -> gradients of the needed arrays."""

    needed: tuple[bool, ...]
    there: tuple[bool, ...]
    is_derivative: bool

    def __init__(self, fn: Function, needed: tuple[bool, ...], there: tuple[bool, ...]):
        super().__init__(fn, f"{fn.name}Backward")
        self.needed, self.there, self.is_derivative = needed, there, True

    def variant(self, derivatives: str) -> "Vjp":
        return _vjp(self.fn.variant("any"), self.needed, self.there)

    def shapes(self, constants: Any, tensors: Any) -> Any:
        return [(tuple(t.shape), t.dtype) for t, need in zip(tensors, self.needed, strict=False) if need]

    def __call__(self, constants: Any, *arrays: Any) -> Any:
        count = len(self.needed)
        given: Iterator[Any] = iter(arrays[count:])
        of_needed, needed = _bind(self.fn, constants, arrays[:count], self.needed)
        outputs, transpose = jax.vjp(of_needed, *needed)

        def bar(out, present):
            if present:
                return _conjugate(next(given))
            return jnp.zeros_like(out) if _is_inexact(out) else np.zeros(out.shape, jax.dtypes.float0)

        bars = tuple(bar(out, present) for out, present in zip(outputs, self.there, strict=True))
        return tuple(_conjugate(x) for x in transpose(bars))


class Jvp(_Derived):
    """(constants, *arrays, *tangents of the moving ones) -> tangents of the outputs that have one."""

    moving: tuple[bool, ...]
    is_derivative: bool

    def __init__(self, fn: Function, moving: tuple[bool, ...]):
        super().__init__(fn, f"{fn.name}Forward")
        self.moving, self.is_derivative = moving, True

    def variant(self, derivatives: str) -> "Jvp":
        return _jvp(self.fn.variant(derivatives), self.moving)

    def shapes(self, constants: Any, tensors: Any) -> Any:
        of_outputs = self.fn.shapes(constants, tensors[: len(self.moving)])
        return [(shape, dtype) for shape, dtype in of_outputs if dtype.is_floating_point or dtype.is_complex]

    def __call__(self, constants: Any, *arrays: Any) -> Any:
        count = len(self.moving)
        of_moving, primals = _bind(self.fn, constants, arrays[:count], self.moving)
        _, tangents = jax.jvp(of_moving, primals, arrays[count:])
        return tuple(x for x in tangents if x.dtype != jax.dtypes.float0)


class Batched(_Derived):
    """The function over an axis of some of its arrays, as one program; it comes first in every output."""

    axes: tuple[int | None, ...]
    is_derivative: bool

    def __init__(self, fn: Function, axes: tuple[int | None, ...]):
        super().__init__(fn, fn.name)
        self.axes, self.is_derivative = axes, fn.is_derivative

    def variant(self, derivatives: str) -> "Batched":
        return _batched(self.fn.variant(derivatives), self.axes)

    def shapes(self, constants: Any, tensors: Any) -> Any:
        sizes = [t.shape[axis] for t, axis in zip(tensors, self.axes, strict=True) if axis is not None]
        single = [t if axis is None else _without(t, axis) for t, axis in zip(tensors, self.axes, strict=True)]
        return [((sizes[0], *shape), dtype) for shape, dtype in self.fn.shapes(constants, single)]

    def __call__(self, constants: Any, *arrays: Any) -> Any:
        return jax.vmap(partial(self.fn, constants), in_axes=self.axes)(*arrays)


def _orders(fn: Function) -> tuple[int, int]:
    """How often a function has been differentiated in reverse and in forward mode."""
    reverse = forward = 0
    while isinstance(fn, _Derived):
        reverse, forward = reverse + isinstance(fn, Vjp), forward + isinstance(fn, Jvp)
        fn = fn.fn
    return reverse, forward


_vjp = lru_cache(maxsize=1024)(Vjp)
_jvp = lru_cache(maxsize=1024)(Jvp)
_batched = lru_cache(maxsize=1024)(Batched)


@lru_cache(maxsize=1024)
def vjp(fn: Function, needed: tuple[bool, ...], there: tuple[bool, ...]) -> Vjp:
    """The reverse derivative: the function's own adjoint if it is a first derivative."""
    return _vjp(fn.variant("any") if any(_orders(fn)) else fn, needed, there)


@lru_cache(maxsize=1024)
def jvp(fn: Function, moving: tuple[bool, ...]) -> Jvp:
    """The forward derivative."""
    return _jvp(fn.variant("any" if _orders(fn)[0] else "forward"), moving)


def batched(fn: Function, dims: Sequence[int | None], tensors: Sequence[torch.Tensor]) -> Batched:
    """The function over the axes of some tensors that a torch transform names."""
    return _batched(fn, tuple(None if d is None else d % t.ndim for d, t in zip(dims, tensors, strict=True)))


_thread = threading.local()


class Executable:
    """A function and its compiled form."""

    fn: Function
    jitted: Any
    said: bool

    __slots__ = ("fn", "jitted", "said")

    def __init__(self, fn: Function):
        self.fn, self.said = fn, False

        def traced(constants, *arrays):
            _thread.traced = True
            return fn(constants, *arrays)

        traced.__name__ = fn.name
        self.jitted = jax.jit(traced)

    def __call__(self, constants: Any, arrays: Sequence[jax.Array]) -> Sequence[jax.Array]:
        _thread.traced, start = False, perf_counter()
        sharding = self.fn.sharding
        out = gather(sharding, self.jitted(*place(sharding, (constants, *arrays))))
        if _thread.traced:
            self._log(perf_counter() - start, arrays)
        return out

    def _log(self, seconds: float, arrays: Sequence[jax.Array]) -> None:
        slow = seconds > SLOW and not self.said
        self.said = self.said or slow
        shapes = ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in arrays)
        logger.log(
            logging.INFO if slow else logging.DEBUG,
            "Compiled %s%s in %.1f s.",
            self.fn.name,
            shapes and f" for {shapes}",
            seconds,
        )


@lru_cache(maxsize=256)
def executable(fn: Function) -> Executable:
    """The executable of a function; at most 256 functions keep theirs."""
    return Executable(fn)


@unseen
def run(fn: Function, constants: Any, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Compute on tensors with memory, without a graph."""
    exchange.check_process()
    if isinstance(constants, Checked) and constants.before and not isinstance(fn, _Derived):
        constants.before(tensors)
    device = exchange.on_device(tensors)
    # JAX's 64-bit mode belongs to the thread, and backward may run on another: enter it for every run
    with exchange.settings(fn.x64, device):
        arrays = [exchange.to_jax(t) for t in tensors]
        results = [exchange.to_torch(x, device) for x in executable(fn)(arrays_of(constants), arrays)]
    taken = {t.data_ptr() for t in tensors}
    for i, result in enumerate(results):
        if result.data_ptr() in taken:
            results[i] = result.clone()
        taken.add(result.data_ptr())
    if isinstance(constants, Checked) and not fn.is_derivative:
        constants.check(results)
    return tuple(results)


def forget() -> None:
    """Empty every cache of functions."""
    for cached in (executable, vjp, jvp, _vjp, _jvp, _batched):
        cached.cache_clear()


def traced_shapes(fn: Function, constants: Any, tensors: Sequence[torch.Tensor]) -> list[tuple[Shape, torch.dtype]]:
    """Shapes and dtypes of the outputs by JAX's own tracing; of dynamic shapes where the function allows for them."""
    given = [tuple(t.shape) for t in tensors]
    sizes: dict[str, Any] = {}
    for shape in given:
        for size in shape:
            if not isinstance(size, int):
                sizes.setdefault(str(size), size)
    if sizes:
        names = {text: f"d{i}" for i, text in enumerate(sizes)}
        symbols = dict(zip(sizes, jax.export.symbolic_shape(", ".join(names.values())), strict=True))
        symbolic = [tuple(size if isinstance(size, int) else symbols[str(size)] for size in shape) for shape in given]
        values = SIZE_OPERATIONS | {names[text]: size for text, size in sizes.items()}

        def size_of(dimension):  # its own evaluation compares sizes, which would fix them
            return dimension if isinstance(dimension, int) else eval(str(dimension).replace("^", "**"), values.copy())

        try:
            found = _eval_shape(fn, constants, symbolic, tensors)
            return [(tuple(map(size_of, shape)), dtype) for shape, dtype in found]
        except Exception as error:  # a function that looks at its sizes gets numbers, and torch traces each anew
            logger.debug("%s fixes its sizes: %s", fn.name, error)
            given = [tuple(map(int, shape)) for shape in given]
    return _eval_shape(fn, constants, given, tensors)


def _eval_shape(fn: Function, constants: Any, given, tensors) -> list[tuple[Shape, torch.dtype]]:
    arrays = [jax.ShapeDtypeStruct(shape, dtype_of(t)) for shape, t in zip(given, tensors, strict=True)]
    with jax.enable_x64(fn.x64):
        out = jax.eval_shape(partial(fn, arrays_of(constants)), *arrays)
    return [(tuple(x.shape), getattr(torch, x.dtype.name)) for x in out]
