"""The propagation layers within a module."""

from collections.abc import Callable, Iterator
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


@contextmanager
def refining(module: nn.Module) -> Iterator[list[TorchPropagator]]:
    """Inside, layers that search their own resolution need not warn that it is outgrown; yields them."""
    searching = [layer for _, layer in propagators(module) if layer.resolved is not None]
    for layer in searching:
        layer.watch.cured = True
    try:
        yield searching
    finally:
        for layer in searching:
            layer.watch.cured = False


def search_on(module: nn.Module, evaluate: Callable[[], object]) -> bool:
    """Evaluate, and let every layer that is above its tolerance there search on from what it found; whether any did."""
    with refining(module) as searching:
        for layer in searching:
            layer.watch.outgrown, layer.watch.calls = False, 0
        evaluate()
        outgrown = [layer for layer in searching if layer.watch.outgrown]
        for layer in outgrown:
            layer.watch.outgrown = False
            layer.search_again()
        if outgrown:
            evaluate()
    return bool(outgrown)
