"""Small JAX functions of every kind, through every derivative that torch can check by finite differences.

Each maps its inputs from R or C to R or C; gradcheck has forward mode and batched gradients both ways, gradgradcheck
reverse over reverse, forward over reverse and batched gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from torch_clerq import jax_function

R, C = torch.float64, torch.complex128
KINDS = {R: "R", C: "C"}


@dataclass(frozen=True)
class Toy:
    """A function and its inputs.

    Attributes:
        fn: the JAX function, of arrays and returning an array or a tuple of arrays.
        inputs: (shape, dtype) of each.
        outputs: dtype of each.
        safe: added to the inputs, where numbers near zero are not smooth.
        tree: what makes the arguments of `fn` from the inputs, and its outputs a tuple, where they are trees.
    """

    fn: Callable
    inputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    outputs: tuple[torch.dtype, ...]
    safe: float = 0.0
    tree: tuple[Callable, Callable] | None = None

    def make(self, **options) -> tuple[Callable, list[torch.Tensor]]:
        """The torch function of the inputs that returns a tuple, and the inputs."""
        generator = torch.Generator().manual_seed(0)
        inputs = [
            (0.6 * torch.randn(shape, dtype=dtype, generator=generator) + self.safe).requires_grad_()
            for shape, dtype in self.inputs
        ]
        bridged = jax_function(self.fn, **options)
        into, out = self.tree or (lambda *x: x, lambda y: y if isinstance(y, tuple) else (y,))
        return lambda *x: out(bridged(*into(*x))), inputs


def of(fn: Callable, *inputs: Any, to: Any, safe: float = 0.0, tree=None) -> Toy:
    """A toy; an input is a dtype, of three elements, or (dtype, *shape)."""
    shaped = tuple((tuple(x[1:]), x[0]) if isinstance(x, tuple) else ((3,), x) for x in inputs)
    return Toy(fn, shaped, to if isinstance(to, tuple) else (to,), safe, tree)


def scanned(start, rates):
    def step(state, rate):
        state = state + 0.1 * jnp.sin(rate * state)
        return state, state * rate

    end, along = jax.lax.scan(step, start, rates)
    return end, along


def looped(x):
    return jax.lax.fori_loop(0, 3, lambda k, y: y * x + 0.1 * k, jnp.ones_like(x))


def branched(x):
    return jax.lax.cond(jnp.sum(x) > 0, lambda x: jnp.sin(x) * x, lambda x: x**3, x)


def switched(z):
    return jax.lax.switch(1, [jnp.sin, lambda z: jnp.conj(z) * z**2, jnp.cos], z)


def checkpointed(z):
    return jax.checkpoint(lambda z: jnp.exp(-jnp.conj(z) * z) * z)(z)


def inner_gradient(x):
    return jax.grad(lambda x: jnp.sum(jnp.sin(x) * x**2))(x)


def inner_batch(m, x):
    return jax.vmap(lambda row: jnp.tanh(row) @ x)(m)


def mixed(x, z):
    return jnp.sum(x * jnp.abs(z) ** 2), jnp.exp(1j * x) * z, jnp.conj(z) + x


def nested(tree):
    return {"light": tree["fields"][0] * tree["gain"], "rest": [jnp.abs(tree["fields"][1]) ** 2, (tree["gain"] ** 2,)]}


TOYS = {
    # elementwise
    "sin": of(lambda x: jnp.sin(x) * x, R, to=R),
    "phase": of(lambda x: jnp.exp(1j * x) * x, R, to=C),
    "modulus squared": of(lambda z: jnp.abs(z) ** 2, C, to=R),
    "entire": of(lambda z: jnp.sin(z) * (1 - 2j), C, to=C),
    "not holomorphic": of(lambda z: jnp.conj(z) * z**2 * (1 - 2j), C, to=C),
    "real times complex": of(lambda x, z: jnp.tanh(x) * z**2, R, C, to=C),
    "complex against complex": of(lambda z, w: jnp.real(z * jnp.conj(w)) * jnp.imag(z), C, C, to=R),
    "power": of(lambda x, y: x**y, R, R, to=R, safe=2.0),
    "quotient": of(lambda z, w: z / w, C, C, to=C, safe=2.0),
    "broadcast": of(lambda x, y: x * jnp.cos(y), (R, 2, 1), (R, 3), to=R),
    "scalar": of(lambda x, z: x * z, (R,), (C,), to=C),
    # parts of complex numbers
    "modulus": of(lambda z: jnp.abs(z), C, to=R, safe=2.0),
    "angle": of(lambda z: jnp.angle(z) ** 2, C, to=R, safe=2.0),
    "conjugate": of(lambda z: jnp.conj(z) * jnp.imag(z), C, to=C),
    "real part": of(lambda z: jnp.real(z) ** 2 * jnp.imag(z), C, to=R),
    "imaginary part": of(lambda z: jnp.imag(z**3), C, to=R),
    "of parts": of(lambda x, y: jax.lax.complex(x * y, jnp.sin(y)), R, R, to=C),
    # reductions
    "sum": of(lambda x: jnp.sum(jnp.sin(x), 0), (R, 2, 3), to=R),
    "energy": of(lambda z: jnp.sum(jnp.abs(z) ** 2), C, to=R),
    "product": of(lambda z: jnp.prod(z), C, to=C),
    "logsumexp": of(lambda x: jax.nn.logsumexp(3 * x), R, to=R),
    "largest": of(lambda x: jnp.max(x) * jnp.min(x), R, to=R),
    "norm": of(lambda z: jnp.linalg.norm(z), C, to=R, safe=1.0),
    "cumsum": of(lambda z: jnp.cumsum(z**2), C, to=C),
    "cumsum of real": of(lambda x: jnp.cumsum(jnp.sin(x)), R, to=R),
    # linear algebra
    "matmul": of(lambda a, b: a @ jnp.sin(b), (R, 2, 3), (R, 3, 2), to=R),
    "matmul of real and complex": of(lambda a, z: a @ z**2, (R, 2, 3), C, to=C),
    "einsum": of(lambda a, z: jnp.einsum("ij,j,i->j", a, z, jnp.conj(z)), (C, 3, 3), C, to=C),
    "solve": of(lambda a, b: jnp.linalg.solve(a + 3 * jnp.eye(2), jnp.conj(b)), (C, 2, 2), (C, 2), to=C),
    "transpose": of(lambda z: (z * jnp.conj(z).T).reshape(-1), (C, 3, 3), to=C),
    # Fourier
    "fft": of(lambda z: jnp.fft.fft(z**2), C, to=C),
    "spectrum": of(lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2, (R, 4), to=R),
    "ifft of real": of(lambda x: jnp.fft.ifft(jnp.sin(x)), (R, 4), to=C),
    "irfft": of(lambda z: jnp.fft.irfft(z, 4) ** 2, (C, 3), to=R),
    # indices
    "gather": of(lambda x: x[jnp.array([2, 0, 2])] ** 2, R, to=R),
    "scatter": of(lambda x, z: jnp.zeros(5, jnp.complex128).at[jnp.array([1, 4, 1])].add(x * z), R, C, to=C),
    "set": of(lambda x, y: x.at[1].set(y[0] ** 2) * y, R, R, to=R),
    "where": of(lambda x: jnp.where(x > 0, x**3, jnp.sin(x)), R, to=R),
    "complex where": of(lambda x, z: jnp.where(x > 0, z, jnp.conj(z) ** 2), R, C, to=C),
    "roll and concatenate": of(lambda x, z: jnp.concatenate([jnp.roll(z, 1) * z, x + 0j]), R, C, to=C),
    "sort": of(lambda x: jnp.sort(x) * jnp.arange(3.0), R, to=R),
    # control flow
    "scan": of(scanned, (R, 2), (R, 3, 2), to=(R, R)),
    "complex scan": of(scanned, (C, 2), (R, 3, 2), to=(C, C)),
    "fori_loop": of(looped, C, to=C),
    "cond": of(branched, R, to=R),
    "switch": of(switched, C, to=C),
    "checkpoint": of(checkpointed, C, to=C),
    "inner gradient": of(inner_gradient, R, to=R),
    "inner batch": of(inner_batch, (R, 2, 3), R, to=R),
    # several outputs, and trees
    "mixed outputs": of(mixed, R, C, to=(R, C, C)),
    "an input unused": of(lambda x, y: (jnp.sin(x), x**2), R, R, to=(R, R)),
    "an output that is an input": of(lambda x, z: (x, x * z), R, C, to=(R, C)),
    "tree": of(
        nested, C, C, R, to=(C, R, R),
        tree=(lambda z, w, g: ({"fields": [z, w], "gain": g},),
              lambda y: (y["light"], y["rest"][0], y["rest"][1][0])),
    ),
}  # fmt: skip


def test_the_toys_cover_every_pairing_of_one_input_and_of_several():
    pairings = {(frozenset(d for _, d in toy.inputs), frozenset(toy.outputs)) for toy in TOYS.values()}
    single = {(i, o) for i in (R, C) for o in (R, C)}
    assert {(frozenset([i]), frozenset([o])) for i, o in single} <= pairings
    assert (frozenset([R, C]), frozenset([R, C])) in pairings


@pytest.mark.parametrize("name", TOYS)
def test_values_are_jaxs(name):
    toy = TOYS[name]
    fn, inputs = toy.make()
    with jax.enable_x64(True):
        into, out = toy.tree or (lambda *x: x, lambda y: y if isinstance(y, tuple) else (y,))
        right = out(toy.fn(*into(*(jnp.asarray(x.detach().numpy()) for x in inputs))))
        right = [torch.from_dlpack(jnp.array(y)) for y in right]
    found = fn(*inputs)
    assert tuple(y.dtype for y in found) == toy.outputs
    torch.testing.assert_close([y.detach() for y in found], right)


@pytest.mark.parametrize("name", TOYS)
def test_first_derivatives(name):
    fn, inputs = TOYS[name].make()
    assert gradcheck(
        fn, inputs, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True, rtol=1e-4
    )


@pytest.mark.parametrize("name", TOYS)
def test_second_derivatives(name):
    fn, inputs = TOYS[name].make()
    assert gradgradcheck(
        fn, inputs, check_fwd_over_rev=True, check_rev_over_rev=True, check_batched_grad=True, rtol=1e-4
    )
