"""Derivatives of torch.autograd and transforms of torch.func."""

import jax.numpy as jnp
import torch
from torch import func
from torch.autograd import forward_ad, functional

from .base import Silent, capability, connected, gradients, random, same

GROUP, FUNC = "Derivatives", "torch.func"
F64 = torch.float64


def jax_loss(x):
    return jnp.sum(jnp.sin(x) * x**2)


def torch_loss(x):
    return (x.sin() * x**2).sum()


def jax_map(x):
    return jnp.sin(x) * jnp.sum(x**2)


def torch_map(x):
    return x.sin() * (x**2).sum()


@capability(GROUP, "second derivative")
def second(bridge):
    def of(loss):
        x = random(4, grad=True)
        (first,) = torch.autograd.grad(connected(loss(x)), x, create_graph=True)
        return torch.autograd.grad(first, x, random(4, seed=1))

    same(of(bridge(jax_loss)), of(torch_loss))


@capability(GROUP, "second derivative of a composite")
def composite(bridge):
    def of(loss):
        x = random(4, grad=True)
        (first,) = torch.autograd.grad(connected(loss(x**2)) * x.sum(), x, create_graph=True)
        return torch.autograd.grad(first, x, random(4, seed=1))

    same(of(bridge(jax_loss)), of(torch_loss))


@capability(GROUP, "gradgradcheck", wide=True)
def gradgradcheck(bridge):
    torch.autograd.gradgradcheck(bridge(jax_map), random(3, dtype=F64, grad=True))


@capability(GROUP, "Hessian-vector product")
def hvp(bridge):
    x, v = random(4), random(4, seed=1)
    same(functional.hvp(bridge(jax_loss), x, v)[1], functional.hvp(torch_loss, x, v)[1])


@capability(GROUP, "forward mode, dual numbers")
def forward_mode(bridge):
    x, v = random(4), random(4, seed=1)

    def of(fn):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(fn(forward_ad.make_dual(x, v))).tangent

    found = of(bridge(jax_map))
    if found is None:
        raise Silent("no tangent")
    same(found, of(torch_map))


@capability(GROUP, "is_grads_batched")
def grads_batched(bridge):
    x, cotangents = random(4, grad=True), random(5, 4, seed=1)

    def of(fn):
        return torch.autograd.grad(connected(fn(x)), x, cotangents, is_grads_batched=True)

    same(of(bridge(jax_map)), of(torch_map))


@capability(GROUP, "jacobian(vectorize=True)")
def vectorize(bridge):
    x = random(4)
    same(functional.jacobian(bridge(jax_map), x, vectorize=True), functional.jacobian(torch_map, x))


@capability(GROUP, "jacobian(vectorize=True), forward mode")
def vectorize_forward(bridge):
    x = random(4)
    found = functional.jacobian(bridge(jax_map), x, vectorize=True, strategy="forward-mode")
    same(found, functional.jacobian(torch_map, x))


@capability(FUNC, "grad")
def grad(bridge):
    x = random(4)
    same(func.grad(bridge(jax_loss))(x), func.grad(torch_loss)(x))


@capability(FUNC, "vjp")
def vjp(bridge):
    x, cotangent = random(4), random(4, seed=1)
    same(func.vjp(bridge(jax_map), x)[1](cotangent), func.vjp(torch_map, x)[1](cotangent))


@capability(FUNC, "derivative of a vjp")
def derivative_of_vjp(bridge):
    x, weights = random(4), random(4, seed=1)

    def of(fn):
        return func.grad(lambda cotangent: (func.vjp(fn, x)[1](cotangent)[0] ** 2).sum())(weights)

    same(of(bridge(jax_map)), of(torch_map))


@capability(FUNC, "jvp")
def jvp(bridge):
    x, v = random(4), random(4, seed=1)
    same(func.jvp(bridge(jax_map), (x,), (v,)), func.jvp(torch_map, (x,), (v,)))


@capability(FUNC, "jacrev")
def jacrev(bridge):
    x = random(4)
    same(func.jacrev(bridge(jax_map))(x), func.jacrev(torch_map)(x))


@capability(FUNC, "jacfwd")
def jacfwd(bridge):
    x = random(4)
    same(func.jacfwd(bridge(jax_map))(x), func.jacfwd(torch_map)(x))


@capability(FUNC, "hessian")
def hessian(bridge):
    x = random(4)
    same(func.hessian(bridge(jax_loss))(x), func.hessian(torch_loss)(x))


@capability(FUNC, "vmap")
def vmap(bridge):
    x, y = random(5, 4), random(4, 5, seed=1)

    def of(fn):
        return func.vmap(fn, in_dims=(0, 1), out_dims=1)(x, y)

    same(of(bridge(lambda x, y: jnp.sin(x) * jnp.sum(y))), of(lambda x, y: x.sin() * y.sum()))


@capability(FUNC, "vmap(grad)")
def vmap_grad(bridge):
    x = random(5, 4)
    same(func.vmap(func.grad(bridge(jax_loss)))(x), func.vmap(func.grad(torch_loss))(x))


@capability(FUNC, "grad(vmap)")
def grad_vmap(bridge):
    x, weights = random(5, 4), random(5, 4, seed=1)

    def of(fn):
        return func.grad(lambda x: (func.vmap(fn)(x) * weights).sum())(x)

    same(of(bridge(jax_map)), of(torch_map))


@capability(FUNC, "linearize")
def linearize(bridge):
    x, v = random(4), random(4, seed=1)

    def of(fn):
        return func.linearize(fn, x)[1](v)

    same(of(bridge(jax_map)), of(torch_map))


def network(fn):
    """A module with the function between two layers."""

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.last(fn(self.first(x)))

    torch.manual_seed(0)
    return Network()


@capability(FUNC, "functional_call")
def functional_call(bridge):
    x = random(6, 3)

    def of(fn):
        model = network(fn)
        parameters = {name: value.detach() for name, value in model.named_parameters()}
        return func.grad(lambda p: (func.functional_call(model, p, (x,)) ** 2).sum())(parameters)

    found, right = of(bridge(jax_map)), of(torch_map)
    same([found[name] for name in right], list(right.values()))


@capability(FUNC, "gradients per sample")
def per_sample(bridge):
    x = random(6, 3)

    def of(fn):
        model = network(fn)
        parameters = {name: value.detach() for name, value in model.named_parameters()}
        loss = func.grad(lambda p, x: (func.functional_call(model, p, (x,)) ** 2).sum())
        return func.vmap(loss, in_dims=(None, 0))(parameters, x)

    found, right = of(bridge(jax_map)), of(torch_map)
    same([found[name] for name in right], list(right.values()))


@capability(FUNC, "vjp and jvp of complex numbers")
def complex_numbers(bridge):
    z, v = random(3, dtype=torch.complex64), random(3, dtype=torch.complex64, seed=1)
    fn = bridge(lambda z: jnp.conj(z) * z**2)
    same(func.vjp(fn, z)[1](v), func.vjp(lambda z: z.conj() * z**2, z)[1](v))
    same(func.jvp(fn, (z,), (v,)), func.jvp(lambda z: z.conj() * z**2, (z,), (v,)))
    same(gradients(fn(z.requires_grad_()), [z]), gradients(z.conj() * z**2, [z]))
