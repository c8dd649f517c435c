"""What torch.compile and torch.export see of us: one call in the graph, inside which Python runs as ever."""

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch.autograd import forward_ad

from jax_kernel.errors import BridgeError

from .exchange import logger

_F = TypeVar("_F", bound=Callable)

_numbers = itertools.count()
_objects: "WeakValueDictionary[str, InGraph]" = WeakValueDictionary()


class InGraph:
    """An object whose method `traced` a compiled graph calls.

    The compiler knows it by its key, a string, for it takes integers for sizes that may change.
    """

    key: str

    def __init__(self):
        super().__init__()
        self._enlist()

    def __setstate__(self, state: Any) -> None:
        """Restore a copy, which has a key of its own."""
        above = getattr(super(), "__setstate__", self.__dict__.update)
        above(state)
        self._enlist()

    def _enlist(self) -> None:
        self.key = str(next(_numbers))
        _objects[self.key] = self

    def traced(self, *args: Any) -> Any:
        """The call, on tensors that may have no values; arguments are pytrees of tensors and plain numbers."""
        raise NotImplementedError


def in_graph(called: InGraph, *args: Any) -> Any:
    """Call `called.traced(*args)` while torch compiles or exports, where Dynamo does not look into it."""
    if not torch.compiler.is_dynamo_compiling():  # but an export that runs the code
        return called.traced(*args)
    _be_ready()
    return _traced(called.key, _for_compiler(args))


class _Nothing:
    """What stands for None on the way through the compiler and back: a node without leaves, which becomes None."""


class FromArray:
    """A NumPy array that had to become a tensor for the compiler, and is no tensor of the user's."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor


def _for_compiler(tree: Any) -> Any:
    """The tree with what the compiler hands on: it takes neither None nor NumPy's arrays."""
    if tree is None:
        return _Nothing()
    if isinstance(tree, (np.ndarray, np.generic)):  # Dynamo reads no unions of types
        return FromArray(torch.as_tensor(tree))
    if isinstance(tree, dict):
        return {key: _for_compiler(value) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)([_for_compiler(value) for value in tree])
    return tree


def eager(function: _F) -> _F:
    """A function that torch.compile leaves to Python, around which it breaks the graph."""

    @wraps(function)
    def outer(*args, **kwargs):
        if torch.compiler.is_compiling():  # disable() imports the compiler: not before it is at work
            reason = "call the layer once, or give it a `resolution`; propagate() and solve() break the graph"
            return torch.compiler.disable(function, reason=reason)(*args, **kwargs)
        return function(*args, **kwargs)

    return cast(_F, outer)


def unseen(function: _F) -> _F:
    """A function whose frames, and all frames that it leads to, torch.compile runs without a look at them.

    torch.compiler.disable says the same, but imports the compiler, which takes seconds.
    """
    with suppress(AttributeError, TypeError):  # another torch, which then looks at them in vain
        compiler = torch._C._dynamo.eval_frame
        skip = compiler._FrameAction.SKIP
        compiler.set_code_exec_strategy(function.__code__, compiler._FrameExecStrategy(skip, skip))
    return function


def refuse_script() -> NoReturn:
    """Raise where torch.jit is at work."""
    raise BridgeError("A JAX function must not be scripted or traced by torch.jit: take torch.compile or torch.export.")


@unseen
def _run(key: str, args: tuple) -> Any:
    if forward_ad._current_level >= 0 and not torch._C._are_functorch_transforms_active():
        raise BridgeError(
            "Dual tensors must not go through torch.compile, which loses their tangents: take torch.func.jvp, which it "
            "keeps, or do not compile."
        )
    try:
        return _for_compiler(_objects[key].traced(*args))
    except Exception as error:  # which the compiler would hide
        logger.error("torch.compile cannot trace a call: %s", error)
        raise


_traced: Callable = _run


def _be_ready() -> None:
    """Tell the compiler of `_run`, now that it is at work: to import it takes seconds."""
    global _traced
    if _traced is _run:
        register = torch.utils._pytree.register_pytree_node
        register(_Nothing, lambda _: ([], None), lambda *_: None)
        register(FromArray, lambda array: ([array.tensor], None), lambda children, _: FromArray(*children))
        _traced = torch._dynamo.nonstrict_trace(_run)


_be_ready._dynamo_marked_constant = True  # type: ignore[attr-defined]  # which Dynamo runs instead of reading it
