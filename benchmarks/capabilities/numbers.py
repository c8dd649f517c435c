"""Complex numbers and precision."""

import jax
import jax.numpy as jnp
import torch

from .base import Silent, Wrong, agrees, capability, gradients, random, same

GROUP, PRECISION = "Complex numbers", "Precision"
F64, C64, C128 = torch.float64, torch.complex64, torch.complex128


def complex_input():
    return random(4, dtype=C64, grad=True)


@capability(GROUP, "real to real")
def real_to_real(bridge):
    agrees(bridge(lambda x: jnp.sin(x) * x), lambda x: x.sin() * x, [random(4, grad=True)])


@capability(GROUP, "real to complex")
def real_to_complex(bridge):
    agrees(bridge(lambda x: jnp.exp(1j * x) * x), lambda x: torch.exp(1j * x) * x, [random(4, grad=True)])


@capability(GROUP, "complex to real")
def complex_to_real(bridge):
    agrees(bridge(lambda z: z.real * z.imag**2), lambda z: z.real * z.imag**2, [complex_input()])


@capability(GROUP, "complex to complex, holomorphic")
def holomorphic(bridge):
    agrees(bridge(lambda z: jnp.sin(z) * (1 - 2j)), lambda z: z.sin() * (1 - 2j), [complex_input()])


@capability(GROUP, "complex to complex, not holomorphic")
def not_holomorphic(bridge):
    agrees(bridge(lambda z: z.conj() * z**2 * (1 - 2j)), lambda z: z.conj() * z**2 * (1 - 2j), [complex_input()])


@capability(GROUP, "real and complex, both ways at once")
def mixed(bridge):
    x, z = random(4, grad=True), complex_input()
    a, b = bridge(lambda x, z: (jnp.sin(x) * z, jnp.abs(z) ** 2 + x))(x, z)
    right = x.sin() * z, z.abs() ** 2 + x
    same([a, b], right)
    same(gradients(a * b, [x, z]), gradients(right[0] * right[1], [x, z]))


@capability(GROUP, "gradcheck in complex128", wide=True)
def complex_gradcheck(bridge):
    fn = bridge(lambda z: z.conj() * z**2 * (1 - 2j))
    torch.autograd.gradcheck(fn, random(3, dtype=C128, grad=True))


@capability(PRECISION, "float64 to the last digit")
def float64(bridge):
    x = torch.tensor([2.0**40 + 5 + 2**-12, 1 + 2**-50], dtype=F64, requires_grad=True)
    agrees(bridge(lambda x: x - 1), lambda x: x - 1, [x], rtol=0)


@capability(PRECISION, "complex128 to the last digit")
def complex128(bridge):
    z = torch.tensor([1 + 2**-50 + 1j], dtype=C128)
    same(bridge(lambda z: z - 1)(z), z - 1, rtol=0)


@capability(PRECISION, "2**40 + 5 as int64")
def int64(bridge):
    n = torch.tensor([2**40 + 5])
    y = bridge(lambda n: n + 1)(n)
    if int(y) != 2**40 + 6:
        raise Silent(f"{int(y)} where {2**40 + 6} is right")


@capability(PRECISION, "float32 in, float32 out")
def float32(bridge):
    agrees(
        bridge(lambda x: x * jnp.linspace(0.0, 1.0, 4)), lambda x: x * torch.linspace(0, 1, 4), [random(4, grad=True)]
    )


@capability(PRECISION, "the global flag is untouched")
def flag(bridge):
    before = dict(jax.config.values)
    x = random(4, dtype=F64, grad=True)
    y = bridge(jnp.sin)(x)
    y.backward(torch.ones_like(y))
    if dict(jax.config.values) != before:
        raise Wrong("JAX's configuration has changed")
