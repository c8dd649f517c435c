"""The only place where tensors become arrays: JAX functions as torch functions, through DLPack, without a copy."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

import torch

from jax_kernel import program
from jax_kernel.prepare import prepare

from .call import call
from .compiled import InGraph, in_graph
from .functions import Function, executable
from .pytrees import JaxFunction, jax2torch, jax_function
from .views import autocast, has_values, is_differentiated, value

__all__ = [
    "Function",
    "InGraph",
    "JaxFunction",
    "autocast",
    "call",
    "clear_cache",
    "eager",
    "has_values",
    "in_graph",
    "is_differentiated",
    "jax2torch",
    "jax_function",
    "value",
]

_F = TypeVar("_F", bound=Callable)


def eager(function: _F) -> _F:
    """A function that torch.compile leaves to Python, around which it breaks the graph."""

    @wraps(function)
    def outer(*args, **kwargs):
        if torch.compiler.is_compiling():  # disable() imports the compiler, which takes seconds: not before it is used
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return cast(_F, outer)


def clear_cache() -> None:
    """Forget every compiled function and prepared problem of both packages."""
    for cached in (executable, program.executable, prepare):
        cached.cache_clear()
