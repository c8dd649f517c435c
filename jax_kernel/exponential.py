"""Exponential time differencing for stiff systems: the diagonal of the generator exactly, the rest by a 4-stage scheme.

Detunings, hyperfine splittings, Doppler shifts and decays stand on the diagonal of the generator, where they may be
thousands of times faster than anything that happens. With dy/dt = λy + N(y, t) the scheme of Krogstad (J. Comput. Phys.
203, 72 (2005)) integrates λ exactly and treats N as a polynomial in time; an off-resonant light shift, which is a
product of the two, comes out right at steps far longer than 1/|λ|, where an integrating factor (Lawson) would alias it.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from . import rhs
from .generator import Structure
from .integrate import Inputs, Observed, Run, Setup, field_at_nodes
from .rhs import Coefficients

STAGE_C = np.array([0.0, 0.5, 1.0])
"""Times within a step at which Ω at the entrance is needed; the second serves two stages."""

ORDER = 2
"""Of the errors where the problem is stiff, which is what the scheme is for; elsewhere the order is 4."""

STORED = 6
"""States a step, about, that a gradient keeps where it stores them all."""


class _Factors(NamedTuple):
    """What multiplies the state and the slopes in one step: real for populations, complex for coherences."""

    real: Float[Array, "factor population+coherence class 1"]
    imaginary: Float[Array, "factor coherence class 1"]


def integrate(inputs: Inputs, *, setup: Setup, running: Any, h: Any, by_hand: bool = True) -> Run:
    """Integrate the medium over all steps; arguments and result are those of `jax_kernel.integrate.integrate`.

    Without the adjoint written `by_hand` it has derivatives of every kind and order, and none stores every stage.
    """
    coefficients, structure = inputs.coefficients, setup.structure
    diagonal = _diagonal(structure, coefficients)

    def slope(state, drive):
        if by_hand:
            return remainder((coefficients, state, drive), structure=structure, running=running)
        return _remainder((coefficients, state, drive), structure, running)[:2]

    def step(state, x):
        drive, h = x
        factors = _factors(structure, diagonal, h)
        first, source = slope(state, drive[0])
        half = _combine(structure, factors, (0, state), (1, first))
        second, _ = slope(half, drive[1])
        half = _combine(structure, factors, (0, state), (2, first), (3, second))
        third, _ = slope(half, drive[1])
        full = _combine(structure, factors, (4, state), (5, first), (6, third))
        fourth, _ = slope(full, drive[2])
        end = _combine(structure, factors, (4, state), (7, first), (8, second + third), (9, fourth))
        return end, Observed(source, rhs.average(coefficients, state) if setup.want_average else None)

    def segment(state, x):
        return jax.lax.scan(step, state, x)

    if not (setup.store_stages and by_hand):
        segment = jax.checkpoint(segment)
    end, seen = jax.lax.scan(segment, inputs.state, (inputs.drive, h))
    return Run(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), seen), end)


def _diagonal(structure: Structure, coefficients: Coefficients) -> Complex[Array, "component class"]:
    """λ of the populations and of the coherences, in angular frequency; component counts a coherence once."""
    leaving = jnp.broadcast_to(
        _leaving_rates(structure, coefficients)[:, None],
        (len(structure.populations), coefficients.rotation.shape[1]),
    )
    damping = jnp.broadcast_to(coefficients.damping[:, None], coefficients.rotation.shape)
    return jax.lax.complex(
        -jnp.concatenate([leaving, damping]), jnp.concatenate([jnp.zeros_like(leaving), -coefficients.rotation])
    )


def _factors(structure: Structure, diagonal, h) -> _Factors:
    h = jax.lax.complex(h, jnp.zeros_like(h))
    both = phi(diagonal * jnp.stack([h / 2, h])[:, None, None])
    (half_exp, full_exp), (half_1, full_1), (half_2, full_2), (_, full_3) = both
    slopes = (
        half_1 / 2,
        half_1 / 2 - half_2,
        half_2,
        full_1 - 2 * full_2,
        2 * full_2,
        full_1 - 3 * full_2 + 4 * full_3,
        2 * full_2 - 4 * full_3,
        4 * full_3 - full_2,
    )
    half, full = slopes[:3], slopes[3:]
    stacked = jnp.stack([half_exp, *(h * x for x in half), full_exp, *(h * x for x in full)])[..., None]
    return _Factors(jnp.real(stacked), jnp.imag(stacked)[:, len(structure.populations) :])


def _combine(structure: Structure, factors: _Factors, *terms):
    """The sum of complex factors times packed states."""
    n, m = len(structure.populations), len(structure.coherences)
    populations: Any = 0
    real: Any = 0
    imaginary: Any = 0
    for k, state in terms:
        a, b = factors.real[k], factors.imaginary[k]
        below, x, y = state[:n], state[n : n + m], state[n + m :]
        populations = populations + a[:n] * below
        real, imaginary = real + a[n:] * x - b * y, imaginary + a[n:] * y + b * x
    return jnp.concatenate([populations, real, imaginary])


def phi(x: Complex[Array, "*axes"]) -> tuple[Complex[Array, "*axes"], ...]:
    """exp(x) and φ₁, φ₂, φ₃ of it: φ₁ = (eˣ − 1)/x, φ₂ = (φ₁ − 1)/x, φ₃ = (φ₂ − ½)/x, each to rounding.

    Within |x| < 1, where the quotients lose digits, the series Σ xʲ/(j + k)!.

    Example:
        >>> import jax.numpy as jnp
        >>> [round(float(p.real), 6) for p in phi(jnp.zeros((), complex))]
        [1.0, 1.0, 0.5, 0.166667]
    """
    small = jnp.abs(x) < 1
    near, away = jnp.where(small, x, 0), jnp.where(small, 1, x)
    series = jnp.zeros((3, *x.shape), x.dtype)
    for j in range(17, -1, -1):
        of_each = np.array([1 / math.factorial(j + k) for k in (1, 2, 3)]).reshape(3, *[1] * x.ndim)
        series = series * near + jnp.asarray(of_each, x.dtype)
    exponential = jnp.exp(away)
    first = (exponential - 1) / away
    second = (first - 1) / away
    third = (second - 0.5) / away
    quotients = zip((first, second, third), series, strict=True)
    return (jnp.exp(x), *(jnp.where(small, nearby, far) for far, nearby in quotients))


@eqx.filter_custom_vjp
def remainder(args, *, structure: Structure, running):
    """All of dρ/dt but its diagonal, with a hand-written adjoint.

    Args:
        args: coefficients, state and Ω at the entrance.
        structure: which elements there are.
        running: the running z-integral.

    Returns:
        (slope, source): shapes (component, class, z) and (field, 2, z).
    """
    return _remainder(args, structure, running)[:2]


def _remainder(args, structure, running):
    coefficients, state, drive = args
    source = rhs.source(structure, coefficients, state)
    rabi = field_at_nodes(drive, source, running)
    slope = rhs.lindblad(structure, _without_diagonal(coefficients), state, rabi)
    slope = rhs.stack_rows(slope, state) + _leaving(structure, coefficients, state)
    return slope, source, rabi


def _without_diagonal(coefficients: Coefficients) -> Coefficients:
    return coefficients._replace(
        rotation=jnp.zeros_like(coefficients.rotation), damping=jnp.zeros_like(coefficients.damping)
    )


def _leaving_rates(structure: Structure, coefficients: Coefficients) -> Float[Array, " population"]:
    channels, _, emptied = np.asarray(structure.transfers, int).reshape(-1, 3).T
    rates = jnp.zeros(len(structure.populations), coefficients.transfer.dtype)
    return rates.at[emptied].add(coefficients.transfer[channels])


def _leaving(structure: Structure, coefficients: Coefficients, state):
    """What leaves each population, which the diagonal accounts for; symmetric."""
    below = len(structure.populations)
    rates = _leaving_rates(structure, coefficients)
    return jnp.concatenate([rates[:, None, None] * state[:below], jnp.zeros_like(state[below:])])


@remainder.def_fwd
def _remainder_fwd(perturbed, args, *, structure, running):
    slope, source, rabi = _remainder(args, structure, running)
    return (slope, source), rabi


@remainder.def_bwd
def _remainder_bwd(rabi, cotangent, perturbed, args, *, structure, running):
    coefficients, state, _ = args
    slope_bar, source_bar = cotangent
    slope_bar = jnp.zeros_like(state) if slope_bar is None else slope_bar
    still = _without_diagonal(coefficients)
    rows, rabi_bar = rhs.lindblad_transpose(structure, still, state, slope_bar, rabi)
    through_field = rabi_bar @ running
    source_bar = through_field if source_bar is None else through_field + source_bar
    rows = rhs.add_source_transpose(structure, coefficients, rows, source_bar)
    state_bar = rhs.stack_rows(rows, state) + _leaving(structure, coefficients, slope_bar)
    if any(perturbed[0]):

        def linear(c):
            slope = rhs.stack_rows(rhs.lindblad(structure, _without_diagonal(c), state, rabi), state)
            return slope + _leaving(structure, c, state), rhs.source(structure, c, state)

        coefficients_bar = jax.vjp(linear, coefficients)[1]((slope_bar, source_bar))[0]
    else:
        coefficients_bar = jax.tree.map(lambda _: None, coefficients)
    return coefficients_bar, state_bar, jnp.sum(rabi_bar, axis=-1)
