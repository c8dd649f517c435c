"""torch.compile, export, tracing, and tensors without memory."""

import jax.numpy as jnp
import torch
from torch import func
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from .base import Silent, Wrong, agrees, capability, gradients, random, same

GROUP = "Compilers"


def jax_map(x):
    return jnp.sin(x) * jnp.sum(x**2)


def torch_map(x):
    return x.sin() * (x**2).sum()


def compiled_agrees(fn, truth, backend):
    compiled = torch.compile(lambda x: fn(x * 2) + 1, fullgraph=True, backend=backend)
    for seed in range(2):
        agrees(compiled, lambda x: truth(x * 2) + 1, [random(4, seed=seed, grad=True)])


@capability(GROUP, "torch.compile(fullgraph=True)", seconds=200)
def inductor(bridge):
    compiled_agrees(bridge(jax_map), torch_map, "inductor")


@capability(GROUP, "torch.compile, aot_eager", seconds=120)
def aot_eager(bridge):
    compiled_agrees(bridge(jax_map), torch_map, "aot_eager")


@capability(GROUP, "torch.compile(dynamic=True)", seconds=120)
def dynamic(bridge):
    fn = bridge(jax_map)
    compiled = torch.compile(lambda x: fn(x * 2) + 1, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (4, 5, 9):
        agrees(compiled, lambda x: torch_map(x * 2) + 1, [random(length, grad=True)])


@capability(GROUP, "torch.compile, a number that changes", seconds=120)
def changing_number(bridge):
    fn = bridge(lambda x, k: jnp.sin(x) * k)
    compiled = torch.compile(lambda x, k: fn(x, k), fullgraph=True, backend="aot_eager")
    for k in (0.5, 0.7, 3, 4):
        x = random(4, grad=True)
        y = compiled(x, k)
        same(y, x.sin() * k)
        same(gradients(y, [x]), gradients(x.sin() * k, [x]))


@capability(GROUP, "torch.compile, two functions in one place", seconds=120)
def two_functions(bridge):
    compiled = torch.compile(lambda fn, x: fn(x * 2), fullgraph=True, backend="aot_eager")
    for fn, truth in ((jnp.sin, torch.sin), (jnp.cos, torch.cos), (jnp.tanh, torch.tanh)):
        same(compiled(bridge(fn), random(4)), truth(random(4) * 2))


@capability(GROUP, "compiled jvp: right or refused", seconds=120)
def compiled_jvp(bridge):
    x, v = random(4), random(4, seed=1)
    fn = bridge(jax_map)
    right = func.jvp(torch_map, (x,), (v,))
    same(torch.compile(lambda x, v: func.jvp(fn, (x,), (v,)), backend="aot_eager")(x, v), right)


@capability(GROUP, "compiled func.grad: right or refused", seconds=120)
def compiled_grad(bridge):
    x = random(4)
    fn = bridge(lambda x: jnp.sum(jax_map(x)))
    right = func.grad(lambda x: torch_map(x).sum())(x)
    same(torch.compile(func.grad(fn), backend="aot_eager")(x), right)


@capability(GROUP, "torch.export", seconds=120)
def export(bridge):
    fn = bridge(jax_map)

    class Model(torch.nn.Module):
        def forward(self, x):
            return fn(x * 2)

    program = torch.export.export(Model(), (random(4),)).module()
    for seed in range(1, 3):
        same(program(random(4, seed=seed)), torch_map(random(4, seed=seed) * 2))


def replayed(trace, truth):
    """A trace at one input must hold at another."""
    x, other = random(4), random(4, seed=1)
    traced = trace(x)
    if torch.allclose(traced(other), truth(x)):
        raise Silent("the values at the tracing are baked in")
    same(traced(other), truth(other))


@capability(GROUP, "make_fx")
def fx(bridge):
    replayed(make_fx(bridge(jax_map)), torch_map)


@capability(GROUP, "make_fx of a gradient")
def fx_gradient(bridge):
    fn = bridge(lambda x: jnp.sum(jax_map(x)))
    replayed(make_fx(func.grad(fn)), func.grad(lambda x: torch_map(x).sum()))


@capability(GROUP, "shapes from FakeTensor")
def fake(bridge):
    fn = bridge(lambda x: (jnp.sum(x, 0), x.astype(jnp.complex64)))
    with FakeTensorMode() as mode:
        a, b = fn(mode.from_tensor(random(3, 4)))
    found = [(tuple(y.shape), y.dtype, type(y).__name__) for y in (a, b)]
    if found != [((4,), torch.float32, "FakeTensor"), ((3, 4), torch.complex64, "FakeTensor")]:
        raise Wrong(str(found))


@capability(GROUP, "shapes from meta tensors")
def meta(bridge):
    y = bridge(lambda x: jnp.sum(x, 0))(torch.empty(3, 4, device="meta"))
    if (tuple(y.shape), y.dtype, y.device.type) != ((4,), torch.float32, "meta"):
        raise Wrong(f"{tuple(y.shape)}, {y.dtype}, {y.device}")
