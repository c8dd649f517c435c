"""The propagation layers within a module."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from jax_kernel.resolution import MarchResolution, Resolution

from .propagator import TorchPropagator


def propagators(module: nn.Module) -> Iterator[tuple[str, TorchPropagator]]:
    """The layers within a module, by name."""
    return ((name, layer) for name, layer in module.named_modules() if isinstance(layer, TorchPropagator))


@contextmanager
def twice_the_resolution(module: nn.Module) -> Iterator[list[Resolution | MarchResolution]]:
    """Inside, every layer runs at twice the nodes and steps that it has found or was given; yields what it had."""
    kept = [(layer, layer.resolution) for _, layer in propagators(module) if layer.resolution is not None]
    try:
        for layer, at in kept:
            layer.resolution = at.doubled()
        yield [at for _, at in kept]
    finally:
        for layer, at in kept:
            layer.resolution = at
