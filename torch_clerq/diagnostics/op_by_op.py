"""Layers with and without a compiler, on a few intervals of their time grid."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

from jax_kernel.errors import PropagationError
from jax_kernel.resolution import Resolution

from ..functional import Request, to_tensor
from ..layers import propagators
from ..propagator import TorchPropagator

INTERVALS = 3
"""Intervals of the time grid: as few as a problem may have."""

NODES = 2


@dataclasses.dataclass(frozen=True)
class JitRow:
    """A compiled layer or function against the same without a compiler.

    Attributes:
        name: of the layer.
        where: on what it was run.
        value: relative difference of what it returns.
        gradients: relative differences of gradients by name of the parameter.
        differs: whether a difference is more than rounding.
    """

    name: str
    where: str
    value: float
    gradients: dict[str, float]
    differs: bool

    @classmethod
    def of(
        cls, name: str, where: str, found: Mapping[str, tuple[torch.Tensor, torch.Tensor, float]], tol: float
    ) -> "JitRow":
        """From pairs (compiled, op by op, size of what rounding may make of zero); the first is the value."""
        relative, differs = {}, False
        for key, (a, b, size) in found.items():
            difference = float(torch.linalg.vector_norm(a.detach() - b.detach()))
            norm = max(float(torch.linalg.vector_norm(x.detach())) for x in (a, b))
            relative[key] = difference / norm if norm > 0 else difference
            differs = differs or not difference <= tol * (norm + size)
        first = next(iter(found))
        return cls(name, where, relative.pop(first), relative, differs)

    def __str__(self) -> str:
        worst = max(self.gradients.values(), default=math.nan)
        says = "differs" if self.differs else "agrees"
        numbers = f"value {self.value:.0e}, gradients {worst:.0e}"
        return f"{self.name}, compiled against op by op ({self.where}): {says}; {numbers}."


def compare_layers(module: nn.Module, call: Callable[[], Any], seed: int) -> tuple[list[JitRow], list[str]]:
    """Every propagator of a module as `call` uses it, compiled and op by op.

    Args:
        module: with propagators inside, or one itself.
        call: what leads to them.
        seed: of the weights under which outputs are summed.

    Returns:
        A row a layer, and remarks on layers that could not be compared.
    """
    layers = dict(propagators(module))
    seen: dict[str, tuple[Any, ...]] = {}
    for name, layer in layers.items():
        layer.__dict__["_request"] = _spy(layer, name, seen)
    try:
        call()
    finally:
        for layer in layers.values():
            layer.__dict__.pop("_request", None)
    rows, remarks = [], []
    for name, layer in layers.items():
        title = f"{type(layer).__name__} {name}".strip()
        reason = _reason(layer) if name in seen else "it was not called"
        if not reason:
            try:
                rows.append(_compare(layer, title, f"{name}." if name else "", seen[name], seed))
            except PropagationError as error:
                reason = str(error)
        if reason:
            remarks.append(f"{title} was not run without a compiler: {reason.removesuffix('.')}.")
    return rows, remarks


def _spy(layer: TorchPropagator, name: str, seen: dict[str, tuple[Any, ...]]) -> Callable:
    plain = layer._request

    def request(own, input_fields, params, *rest):
        seen.setdefault(name, (own, input_fields, params))
        return plain(own, input_fields, params, *rest)

    return request


def _reason(layer: TorchPropagator) -> str:
    """Why a layer is not run without a compiler, or nothing."""
    if layer.options["scheme"] != "cross" or not isinstance(layer.resolution, Resolution):
        return "a march takes too many steps"
    if not isinstance(layer.options["solver"], str):
        return "an adaptive solver takes too many steps"
    return "it is shared by several devices" if layer.options["sharding"] is not None else ""


def _compare(layer: TorchPropagator, title: str, prefix: str, seen: tuple[Any, ...], seed: int) -> JitRow:
    own, input_fields, params = seen
    whole = Request(
        layer.problem, input_fields, layer._merged(own, params), dtype=None, least=layer.dtype, at=layer.resolution,
        **layer.options,
    )  # fmt: skip
    assert isinstance(layer.resolution, Resolution)
    with torch.no_grad():
        light = whole.run(layer.resolution, frozenset({"fields"}))["fields"].abs()
    light = light / light.amax((-1, -2), keepdim=True).clamp(min=torch.finfo(light.dtype).tiny)
    brightest = int(light.reshape(-1, light.shape[-1]).sum(0).argmax())
    first = int(np.clip(brightest - 1, 0, layer.problem.t_steps - INTERVALS))
    window = slice(first, first + INTERVALS + 1)
    time = layer.problem.time[window]
    problem = dataclasses.replace(
        layer.problem, t_min=float(time[0]), t_max=float(time[-1]), t_steps=INTERVALS, z_steps_inner=1
    )
    leaves: dict[str, torch.Tensor] = {}

    def leaf(name: str, tensor: Any) -> torch.Tensor:
        tensor = to_tensor(name, tensor).detach().clone()
        if tensor.is_floating_point() or tensor.is_complex():
            leaves[name] = tensor.requires_grad_()
        return tensor

    own = {name: leaf(name, value) for name, value in own.items()}
    if isinstance(input_fields, Mapping):
        fields: Any = {k: leaf(f"input_fields.{k}", to_tensor("x", x)[..., window]) for k, x in input_fields.items()}
    else:
        fields = None if input_fields is None else leaf("input_fields", to_tensor("x", input_fields)[..., window])
    params = jax.tree.map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, params)
    at = Resolution(min(layer.resolution.z_nodes, NODES), 1, layer.resolution.solver)
    random = np.random.default_rng(seed)

    def run(weights=None):
        request = Request(
            problem, fields, layer._merged(own, params), dtype=None, least=layer.dtype, at=at, **layer.options
        )
        out = request.run(at, frozenset({"fields"}))["fields"]
        if weights is None:
            weights = torch.as_tensor(random.normal(size=out.shape) + 1j * random.normal(size=out.shape)).to(out)
            weights = weights / out.detach().abs().amax((-1, -2), keepdim=True).clamp(min=torch.finfo(out.dtype).tiny)
        total = (out * weights).real.sum()
        gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True) if leaves else []
        return out, total, gradients, weights

    out, total, gradients, weights = run()
    with jax.disable_jit():
        plain, _, others, _ = run(weights)
    found = {"": (out, plain, 0.0)}
    for (name, x), a, b in zip(leaves.items(), gradients, others, strict=True):
        if a is not None and b is not None:
            raw = f"raw_{name}" if layer.parametrisations.get(name) is not None else name
            size = abs(float(total.detach())) / max(float(x.detach().abs().max()), 1.0)
            found[f"{prefix}{raw}"] = (a, b, size)
    return JitRow.of(title, f"{INTERVALS} intervals, {at.z_nodes} nodes", found, 1e5 * torch.finfo(layer.dtype).eps)
