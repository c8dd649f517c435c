"""The bridges that are compared, each as a function of a JAX function that returns a torch function."""

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType

import jax
import jax.numpy as jnp
import torch


def ours(fn: Callable, **static) -> Callable:
    """`torch_clerq.jax_function`."""
    import torch_clerq

    return torch_clerq.jax_function(fn, **static)


def _compiled(fn: Callable, static: dict) -> Callable:
    # the peers' own manuals put jax.jit in front; a static argument they only take without it
    return fn if static else jax.jit(fn)


def jax2torch_released(fn: Callable, **static) -> Callable:
    """`jax2torch` 0.0.7 as it is on PyPI."""
    from jax2torch import jax2torch

    return jax2torch(_compiled(fn, static))


def jax2torch_module() -> ModuleType:
    """A second copy of the jax2torch module whose two conversions work with the JAX of today; nothing else changes."""
    name = "jax2torch_patched"
    if name not in sys.modules:
        package = importlib.util.find_spec("jax2torch.jax2torch")
        if package is None or package.origin is None:
            raise ModuleNotFoundError("jax2torch is not installed.", name="jax2torch")
        spec = importlib.util.spec_from_file_location(name, package.origin)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.t2j = lambda tensor: jnp.from_dlpack(tensor.detach().contiguous())
        module.j2t = torch.from_dlpack
        sys.modules[name] = module
    return sys.modules[name]


def jax2torch_patched(fn: Callable, **static) -> Callable:
    """`jax2torch` 0.0.7 with working conversions."""
    return jax2torch_module().jax2torch(_compiled(fn, static))


def _without_parameters(fn: Callable, parameters: tuple, *arrays):
    return fn(*arrays)


def torch_jax_interop(fn: Callable, **static) -> Callable:
    """`torch_jax_interop`'s differentiable wrapper, without parameters of its own."""
    from torch_jax_interop import WrappedJaxFunction

    return WrappedJaxFunction(_compiled(partial(_without_parameters, fn), static), ())


BRIDGES = {
    "torch_clerq": ours,
    "jax2torch": jax2torch_released,
    "jax2torch, patched": jax2torch_patched,
    "torch_jax_interop": torch_jax_interop,
}
