"""Layouts, views, aliases and whose memory is whose."""

import jax.numpy as jnp
import torch

from .base import Wrong, agrees, capability, random, same

GROUP = "Memory"
C64 = torch.complex64


def layout(bridge, change, leaf):
    """Value and gradient where the function sees `change(leaf)`."""
    fn = bridge(lambda x: x * jnp.conj(x) * 2 + x)
    if leaf.is_complex():  # the values only: the gradients have rows of their own
        same(fn(change(leaf)), change(leaf) * change(leaf).conj() * 2 + change(leaf))
    else:
        agrees(lambda x: fn(change(x)), lambda x: change(x) ** 2 * 2 + change(x), [leaf.requires_grad_()])


@capability(GROUP, "transposed input")
def transposed(bridge):
    layout(bridge, lambda x: x.T, random(3, 4))


@capability(GROUP, "strided input")
def strided(bridge):
    layout(bridge, lambda x: x[:, ::2], random(3, 4))


@capability(GROUP, "expanded input")
def expanded(bridge):
    layout(bridge, lambda x: x.expand(3, 4), random(4))


@capability(GROUP, "channels_last input")
def channels_last(bridge):
    layout(bridge, lambda x: x.to(memory_format=torch.channels_last), random(2, 3, 4, 5))


@capability(GROUP, "input at an offset")
def offset(bridge):
    layout(bridge, lambda x: x[1:], random(5))


@capability(GROUP, "conjugate view")
def conjugate(bridge):
    layout(bridge, lambda z: z.conj(), random(4, dtype=C64))


@capability(GROUP, "negative view")
def negative(bridge):
    z = random(1, dtype=C64)
    view = z.conj().imag
    if not (view.is_neg() and view.is_contiguous()):
        raise RuntimeError("torch has changed: this is no negative view.")
    same(bridge(lambda x: x + 0)(view), -z.imag)


@capability(GROUP, "axes of size one")
def size_one(bridge):
    layout(bridge, lambda x: x.as_strided((1, 4), (7, 1)), random(4))


@capability(GROUP, "no elements")
def empty(bridge):
    x = torch.zeros(0, 3, requires_grad=True)
    y = bridge(lambda x: 2 * x)(x)
    y.backward(torch.zeros(0, 3))
    same(y, 2 * x)
    same(x.grad, torch.zeros(0, 3))


@capability(GROUP, "expanded cotangent, as of sum()")
def expanded_cotangent(bridge):
    x = random(3, 4, grad=True)
    bridge(jnp.sin)(x).sum().backward()
    same(x.grad, x.detach().cos())


@capability(GROUP, "input changed in place before backward: right or raises")
def changed_in_place(bridge):
    x, y = torch.full((1000,), 3.0), torch.ones(1000, requires_grad=True)
    out = bridge(lambda x, y: x * y)(x, y)
    x.mul_(67)
    try:
        out.backward(torch.ones(1000))
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            return
        raise
    if float(y.grad[0]) != 3:
        raise Wrong(f"a gradient of {float(y.grad[0]):g} where 3 is right, and no error")


@capability(GROUP, "input overwritten right after the call")
def overwritten(bridge):
    fn = bridge(lambda x: jnp.sin(x) + jnp.cos(x) ** 3)
    for k in range(5):
        x = torch.linspace(0, 1 + k, 10_000_000)
        right = x.sin() + x.cos() ** 3
        y = fn(x)
        x.zero_()
        same(y, right)


@capability(GROUP, "writing into an output that is an input")
def output_is_input(bridge):
    x = random(1000)
    before = x.clone()
    bridge(lambda x: x)(x).zero_()
    if not torch.equal(x, before):
        raise Wrong("the input has changed")


@capability(GROUP, "writing into an output that is a constant")
def output_is_constant(bridge):
    constant = jnp.arange(1000.0)
    fn = bridge(lambda x: (x + 1, constant))
    x = random(1000)
    for _ in range(3):
        if not torch.equal(fn(x)[1], torch.arange(1000.0)) or float(constant[-1]) != 999:
            raise Wrong("the constant has changed")
        fn(x)[1].zero_()


@capability(GROUP, "writing into a gradient")
def writing_into_gradient(bridge):
    x, y = random(1000, grad=True), random(1000, seed=1, grad=True)
    cotangent = random(1000, seed=2)
    before = cotangent.clone()
    a, b = torch.autograd.grad(bridge(lambda x, y: x + y)(x, y), [x, y], cotangent)
    a.zero_()
    if not (torch.equal(b, before) and torch.equal(cotangent, before)):
        raise Wrong("another gradient or the cotangent has changed")
