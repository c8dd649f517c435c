"""Any jittable JAX function of arrays and pytrees as a torch function."""

import inspect
import re
import reprlib
import sys
import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, update_wrapper
from types import MethodType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from jax_kernel.errors import BridgeError, ProblemError

from .compiled import FromArray, InGraph, in_graph, refuse_script, unseen
from .exchange import check_process, dtype_of
from .functions import Function
from .nodes import call
from .views import autocast

WIDE = {torch.float64, torch.complex128, torch.int64, torch.uint64}
NUMBERS = (bool, int, float, complex, np.generic, np.ndarray, jax.Array)
SYMBOLS: dict[type, Callable[..., Any]] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
"""Numbers that torch.compile would rather not fix, as a constant has to be."""

WIDE_ARRAYS = {"float64", "complex128", "int64", "uint64"}
NARROW = {"float64": "float32", "complex128": "complex64"}


@dataclass(frozen=True, eq=False)
class _Flat(Function):
    """A function of a pytree as one of flat arrays; made by `_flat` alone, so that equal ones are identical.

    Attributes:
        fn: the user's function.
        tree: structure of (args, kwargs) without what is static.
        from_tensor: which leaves are tensors; the others are constants.
        statics: (position or name, value, its digits) of the static arguments.
        x64: whether it computes in 64 bit.
        narrow: whether floating-point outputs in 64 bit, which nothing asked for, are rounded.
        trees: structures of the outputs by what decides them, noted as it is traced.
    """

    fn: Callable
    tree: Any
    from_tensor: tuple[bool, ...]
    statics: tuple[tuple[Any, Hashable, Any], ...]
    x64: bool
    narrow: bool
    trees: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def name(self) -> str:  # type: ignore[override]
        return re.sub(r"\W", "", getattr(self.fn, "__name__", type(self.fn).__name__)) or "jax_function"

    def __call__(self, constants, *arrays):
        tensors, rest = iter(arrays), iter(constants)
        leaves = [next(tensors) if there else next(rest) for there in self.from_tensor]
        args, kwargs = jax.tree.unflatten(self.tree, leaves)
        args = list(args)
        for key, value, _ in self.statics:  # in order of position
            if isinstance(key, int):
                args.insert(key, value)
            else:
                kwargs[key] = value
        outputs, tree = jax.tree.flatten(self.fn(*args, **kwargs))
        _thread.tree = tree
        for x in outputs:
            extended = isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended)
            if extended or not isinstance(x, NUMBERS):
                raise ProblemError(
                    f"The function {self.name} must return arrays of numbers in dicts, lists and tuples, but returns "
                    f"{x.dtype if extended else type(x).__name__} among them: leave it out."
                )
        return tuple(self._pinned(jnp.asarray(x)) for x in outputs)

    def _pinned(self, x):
        return x.astype(NARROW[x.dtype.name]) if self.narrow and x.dtype.name in NARROW else x

    def structure(self, constants, tensors) -> Any:
        """The structure of the outputs of the call that this thread has just made."""
        traced, _thread.tree = getattr(_thread, "tree", None), None
        shapes = [tuple(t.shape) for t in tensors]
        if not all(isinstance(size, int) for shape in shapes for size in shape):
            return traced  # as it always is where torch traces with sizes that may change
        key = (*shapes, *map(_kind, constants))
        if key not in self.trees:
            if traced is None:  # the program is one that other arguments have made
                self.shapes(constants, [torch.empty(t.shape, dtype=t.dtype, device="meta") for t in tensors])
                traced, _thread.tree = _thread.tree, None
            self.trees[key] = traced
        return self.trees[key]


_thread = threading.local()


def _kind(constant: Any) -> tuple:
    """What of a constant a trace depends on."""
    if isinstance(constant, np.ndarray | np.generic | jax.Array):
        return constant.dtype.name, constant.shape, getattr(constant, "weak_type", False)
    return (type(constant),)


@lru_cache(maxsize=1024)
def _flat(fn: Callable, tree: Any, kinds: tuple[torch.dtype | str | bool, ...], statics: tuple) -> _Flat:
    """The function for leaves that are tensors of a dtype, arrays of a dtype, or constants in 64 bit or not."""
    dtypes = {kind for kind in kinds if isinstance(kind, torch.dtype)}  # not those of arrays that became tensors
    floats = {dtype for dtype in dtypes if dtype.is_floating_point or dtype.is_complex}
    x64 = not WIDE.isdisjoint(dtypes) or any(kind is True or kind in WIDE_ARRAYS for kind in kinds)
    from_tensor = tuple(not isinstance(kind, bool) for kind in kinds)
    return _Flat(fn, tree, from_tensor, statics, x64, narrow=bool(floats) and WIDE.isdisjoint(floats))


class JaxFunction(InGraph):
    """A torch function that computes in JAX; made by `jax_function`."""

    fn: Callable[..., Any]
    static_argnums: tuple[int, ...]
    static_argnames: tuple[str, ...]
    __name__: str

    def __init__(self, fn: Callable, static_argnums: tuple[int, ...], static_argnames: tuple[str, ...]):
        super().__init__()
        self.fn, self.static_argnums, self.static_argnames = fn, static_argnums, static_argnames
        update_wrapper(self, fn, updated=())
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)
        self.__qualname__ = getattr(fn, "__qualname__", self.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return in_graph(self, args, kwargs)
        return self.traced(args, kwargs)

    @unseen
    def traced(self, args: Any, kwargs: Any) -> Any:
        check_process()
        statics: tuple = ()
        if self.static_argnums or self.static_argnames:
            args, kwargs, statics = self._separate(args, kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        tensors: list[torch.Tensor] = []
        constants: list[Any] = []
        kinds: list[torch.dtype | str | bool] = []
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                if leaf.layout is not torch.strided:
                    raise BridgeError(f"Tensors must be dense, but one of {self.__name__}'s is {leaf.layout}.")
                leaf = autocast(leaf)
                tensors.append(leaf)
                kinds.append(leaf.dtype)
            elif isinstance(leaf, FromArray):
                tensors.append(leaf.tensor)
                kinds.append(dtype_of(leaf.tensor))
            elif type(leaf) in SYMBOLS or isinstance(leaf, NUMBERS):
                if type(leaf) in SYMBOLS:
                    leaf = SYMBOLS[type(leaf)](leaf)
                # a copy, for the array may be changed before it is read again
                constants.append(leaf.copy() if isinstance(leaf, np.ndarray) else leaf)
                kinds.append(_is_wide(leaf))
            else:
                raise ProblemError(
                    f"Arguments of {self.__name__} must be tensors, arrays, numbers or None, in dicts, lists and "
                    f"tuples, but {reprlib.repr(leaf)} is a {type(leaf).__name__}: name it in `static_argnames`."
                )
        fn = _flat(self.fn, tree, tuple(kinds), statics)
        out = call(fn, tuple(constants), tensors)
        return jax.tree.unflatten(fn.structure(constants, tensors), out)

    def _separate(self, args, kwargs):
        """The arguments without the static ones, and these."""
        statics: list[Any] = [(i, args[i]) for i in self.static_argnums if i < len(args)]
        statics += [(name, kwargs[name]) for name in self.static_argnames if name in kwargs]
        statics = [(key, SYMBOLS[type(value)](value) if type(value) in SYMBOLS else value) for key, value in statics]
        for key, value in statics:
            if isinstance(value, torch.Tensor):
                raise ProblemError(
                    f"Static argument `{key}` of {self.__name__} must be no tensor, but is {reprlib.repr(value)}: "
                    "leave it out of `static_argnums` and `static_argnames`."
                )
            try:
                hash(value)
            except TypeError as error:
                raise ProblemError(
                    f"Static argument `{key}` of {self.__name__} must be hashable, as a tuple is, but is "
                    f"{reprlib.repr(value)}."
                ) from error
        positions = {key for key, _ in statics}
        statics = [(key, value, _digits(value)) for key, value in statics]
        args = tuple(x for i, x in enumerate(args) if i not in positions)
        return args, {name: x for name, x in kwargs.items() if name not in positions}, tuple(statics)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __prepare_scriptable__(self) -> None:
        refuse_script()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By name where it stands in its module under the name of its function, as a decorator leaves it."""
        module = sys.modules.get(self.__module__)
        return (
            self.__qualname__ if getattr(module, self.__qualname__, None) is self else super().__reduce_ex__(protocol)
        )

    def __repr__(self) -> str:
        return f"jax_function({self.fn!r})"


def _digits(value: Any) -> Any:
    """What tells values apart that are equal and not the same, as 1, 1.0 and True."""
    return type(value), repr(value) if isinstance(value, int | float | complex | tuple | frozenset) else None


def _is_wide(constant: Any) -> bool:
    if isinstance(constant, int):
        return not -(2**31) <= constant < 2**31
    return isinstance(constant, np.generic | np.ndarray | jax.Array) and constant.dtype.name in WIDE_ARRAYS


def jax_function(
    fn: Callable, *, static_argnums: int | Iterable[int] = (), static_argnames: str | Iterable[str] = ()
) -> JaxFunction:
    """A JAX function as a torch function, through DLPack, without a copy.

    What is returned is called like `fn`. Tensors, NumPy or JAX arrays and numbers may stand anywhere in nested dicts,
    lists and tuples of its arguments; tensors carry derivatives: reverse, forward, of any order, under every transform
    of torch.func, torch.compile and torch.export. Equal arguments of new values never compile again; a new shape, dtype
    or structure does, once.

    Args:
        fn: a function that jax.jit accepts. It must be pure: it is traced once and then not called again.
        static_argnums: positions of arguments that are not arrays, as in jax.jit; each value compiles anew.
        static_argnames: names of such arguments; both ways of passing them are covered by either.

    Returns:
        The torch function. Its outputs are tensors in the structure that `fn` returns. It computes in 64 bit where a
        tensor or an array comes in 64 bit; floating-point outputs are in 32 bit where all floating-point tensors are.

    Raises:
        ProblemError: `fn` is no hashable function, a static argument is none of its own; or, raised by the call, an
            argument is neither array nor number and not named as static, or an output is no array of numbers.
        BridgeError: tensors on a device that JAX cannot use, or a forked process; raised by the call.

    Example:
        >>> import jax.numpy as jnp, torch
        >>> from torch_clerq import jax_function
        >>> energy = jax_function(lambda pulse, dt: jnp.sum(jnp.abs(pulse) ** 2) * dt)
        >>> pulse = torch.tensor([3 + 4j], dtype=torch.complex128, requires_grad=True)
        >>> energy(pulse, 0.5).backward()
        >>> pulse.grad
        tensor([3.+4.j], dtype=torch.complex128)
    """
    if not callable(fn):
        raise ProblemError(f"Argument `fn` must be a function, but is {reprlib.repr(fn)}.")
    try:
        hash(fn)
    except TypeError as error:
        raise ProblemError(
            f"Argument `fn` must be hashable, by which its compiled form is found, but is {reprlib.repr(fn)}: wrap it "
            "in a function, or make what it holds an argument."
        ) from error
    nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    return JaxFunction(fn, *_both_ways(fn, nums, names))


def jax2torch(fn: Callable) -> JaxFunction:
    """The drop-in for the one function of the package jax2torch: `jax_function(fn)`.

    Args:
        fn: a function that jax.jit accepts.

    Returns:
        The torch function; see `jax_function`, also for what it raises.

    Example:
        >>> import jax.numpy as jnp, torch
        >>> from torch_clerq import jax2torch
        >>> jax2torch(jnp.sum)(torch.ones(3))
        tensor(3.)
    """
    return jax_function(fn)


def _both_ways(fn: Callable, nums: tuple[int, ...], names: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of the static arguments, however they are passed."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return tuple(sorted(nums)), names
    kinds = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    open_ended = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values())
    count = len(kinds)
    nums = tuple(i + count if i < 0 else i for i in nums)
    if not open_ended and (wrong := [i for i in nums if not 0 <= i < count]):
        raise ProblemError(
            f"Argument `static_argnums` must be positions of the function's {count} arguments, but has {wrong[0]}."
        )
    if not open_ended and (unknown := [name for name in names if name not in parameters]):
        raise ProblemError(
            f"Argument `static_argnames` must name arguments of the function ({', '.join(parameters)}), "
            f"but has {unknown[0]!r}."
        )
    positional = {p.name: i for i, p in enumerate(parameters.values()) if p.kind is p.POSITIONAL_OR_KEYWORD}
    positions = {*nums, *(positional[name] for name in names if name in positional)}
    keywords = {*names, *(name for name, i in positional.items() if i in positions)}
    return tuple(sorted(positions)), tuple(sorted(keywords))
