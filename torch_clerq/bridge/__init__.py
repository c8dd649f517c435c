"""The only place where tensors become arrays: JAX functions as torch functions, through DLPack, without a copy."""

from jax_kernel import program
from jax_kernel.prepare import prepare

from . import pytrees
from .compiled import FromArray, InGraph, eager, in_graph, refuse_script, unseen
from .exchange import check_process
from .functions import Checked, Function, arrays_of, forget
from .nodes import call, node
from .pytrees import JaxFunction, jax2torch, jax_function
from .views import autocast, has_values, is_differentiated, value

__all__ = [
    "Checked",
    "FromArray",
    "Function",
    "InGraph",
    "JaxFunction",
    "arrays_of",
    "autocast",
    "call",
    "check_process",
    "clear_cache",
    "eager",
    "has_values",
    "in_graph",
    "is_differentiated",
    "jax2torch",
    "jax_function",
    "refuse_script",
    "unseen",
    "value",
]


def clear_cache() -> None:
    """Forget every compiled function and prepared problem of both packages."""
    forget()
    for cached in (program.executable, prepare, pytrees._flat, node):
        cached.cache_clear()
