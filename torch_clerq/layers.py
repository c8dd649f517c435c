"""The propagation layers within a module."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.parameter import is_lazy

from jax_kernel.parameters import fail
from jax_kernel.resolution import MarchResolution, Resolution

from .propagator import TorchPropagator


def propagators(module: nn.Module) -> Iterator[tuple[str, TorchPropagator]]:
    """The layers within a module, by name."""
    return ((name, layer) for name, layer in module.named_modules() if isinstance(layer, TorchPropagator))


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of a module that require a gradient, by name.

    Raises:
        ProblemError: it is no module, has no such parameter, or one that cannot be trained yet.
    """
    if not isinstance(module, nn.Module):
        fail("module", "be an nn.Module", f"is {module!r}")
    found = {name: p for name, p in module.named_parameters() if p.requires_grad}
    for name, p in found.items():
        if is_lazy(p):
            fail("module", "have shapes for all its parameters", f"`{name}` has none yet: call the module once before")
        if p.is_inference():
            fail("module", "be made outside of torch.inference_mode()", f"`{name}` was made inside")
        if not p.isfinite().all():
            fail("module", "have finite parameters", f"`{name}` has values that are not")
    if not any(p.numel() for p in found.values()):
        fail("module", "have a parameter that requires a gradient", "has none: name `trainable` ones")
    return found


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
