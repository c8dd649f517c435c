"""What training loops do with a layer."""

import copy
import io

import jax.numpy as jnp
import torch
from torch.utils.checkpoint import checkpoint

from .base import Wrong, capability, connected, random, same

GROUP = "Training"


def jax_map(x):
    return jnp.tanh(x) * jnp.exp(-(x**2))


def torch_map(x):
    return x.tanh() * torch.exp(-(x**2))


def gradient(run, fn):
    x = random(5, 4, grad=True)
    (connected(run(lambda x: fn(x.sin()).cos(), x)) * random(5, 4, seed=1)).sum().backward()
    return x.grad


@capability(GROUP, "activation checkpointing")
def checkpointing(bridge):
    right = gradient(lambda f, x: f(x), torch_map)
    same(gradient(lambda f, x: checkpoint(f, x, use_reentrant=False), bridge(jax_map)), right)


@capability(GROUP, "activation checkpointing, reentrant")
def reentrant(bridge):
    right = gradient(lambda f, x: f(x), torch_map)
    same(gradient(lambda f, x: checkpoint(f, x, use_reentrant=True), bridge(jax_map)), right)


@capability(GROUP, "hooks on saved tensors see the input")
def saved_hooks(bridge):
    packed, fn = [], bridge(jax_map)
    x = random(4, grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t.clone(), lambda t: t):
        y = fn(x)
    if not any(t.shape == x.shape and torch.equal(t, x) for t in packed):
        raise Wrong("nothing passes the hooks: the input is held where they do not reach")
    y.backward(torch.ones(4))
    same(x.grad, torch.autograd.grad(torch_map(x).sum(), x)[0])


@capability(GROUP, "save_on_cpu")
def save_on_cpu(bridge):
    def run(f, x):
        with torch.autograd.graph.save_on_cpu():
            return f(x)

    same(gradient(run, bridge(jax_map)), gradient(run, torch_map))


def mixed_precision(fn, inside):
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(4, 4), random(8, 4, seed=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (connected(fn(layer(x))) * random(8, 4, seed=1)).sum()
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    return layer.weight.grad, layer.bias.grad


@capability(GROUP, "autocast, backward outside")
def amp_outside(bridge):
    same(mixed_precision(bridge(jax_map), False), mixed_precision(torch_map, False), rtol=3e-2)


@capability(GROUP, "autocast, backward inside")
def amp_inside(bridge):
    same(mixed_precision(bridge(jax_map), True), mixed_precision(torch_map, True), rtol=3e-2)


@capability(GROUP, "gradient scaler")
def scaler(bridge):
    def of(fn):
        torch.manual_seed(0)
        layer, scaler = torch.nn.Linear(4, 4), torch.amp.GradScaler("cpu")
        optimiser = torch.optim.SGD(layer.parameters(), 0.1)
        for seed in range(3):
            optimiser.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = (connected(fn(layer(random(8, 4, seed=seed)))) * random(8, 4, seed=9)).sum()
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
        return layer.weight, layer.bias

    same(of(bridge(jax_map)), of(torch_map), rtol=3e-2)


class Layer(torch.nn.Module):
    """A parameter, and a bridged function as an attribute."""

    def __init__(self, fn):
        super().__init__()
        self.weight, self.fn = torch.nn.Parameter(random(4)), fn

    def forward(self, x):
        return self.fn(self.weight * x)


def answers(layer):
    layer.zero_grad()
    y = layer(random(4, seed=1))
    y.backward(random(4, seed=2))
    return y, layer.weight.grad.clone()


@capability(GROUP, "deepcopy of a module")
def deepcopy(bridge):
    layer = Layer(bridge(jax_map))
    before = answers(layer)
    same(answers(copy.deepcopy(layer)), before)
    same(before, answers(Layer(torch_map)))


@capability(GROUP, "torch.save of a whole module")
def save(bridge):
    layer, file = Layer(bridge(jax_map)), io.BytesIO()
    before = answers(layer)
    torch.save(layer, file)
    file.seek(0)
    same(answers(torch.load(file, weights_only=False)), before)
    same(before, answers(Layer(torch_map)))
