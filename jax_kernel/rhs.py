"""The right-hand side at one instant, and its transposes, unrolled over the nonzeros of the generator.

A large system, whose unrolled code would compile for minutes, goes to `blocks` here, function by function.

Arrays, with z and the velocity class as the long axes: state (component, class, z); source and Ω (field, 2, z), the
axis of 2 holding real and imaginary parts. Everything is in angular frequency.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import blocks
from .generator import Structure


class Coefficients(NamedTuple):
    """The numbers of the generator; all are run-time arguments, so that changing one compiles nothing.

    Attributes:
        rotation: angular frequency E_i − E_j of each kept coherence (i, j) and class, shape (coherence, class).
        damping: decay rate of each kept coherence, shape (coherence,).
        transfer: 2π·rate·factor² of each channel, shape (channel,).
        mixing: nonzeros of the dissipators of dense operators, shape (term,).
        factors: dipole factor of each pair, shape (pair,).
        coupling: 2·g·∫N dz of each field, shape (field,).
        weights: weight of each velocity class, summing to 1, shape (class,).
    """

    rotation: Float[Array, "coherence class"]
    damping: Float[Array, " coherence"]
    transfer: Float[Array, " channel"]
    mixing: Float[Array, " term"]
    factors: Float[Array, " pair"]
    coupling: Float[Array, " field"]
    weights: Float[Array, " class"]


def average(coefficients: Coefficients, state):
    """Average over the velocity classes, the axis before the last."""
    return jnp.sum(coefficients.weights[:, None] * state, axis=-2)


def source(structure: Structure, coefficients: Coefficients, state):
    """dΩ/dζ = 2i g ζ_total Σ_v w_v Σ f ρ_ab, shape (field, 2, z)."""
    if not structure.unrolled:
        return blocks.source(structure, coefficients, state)
    rows = [[jnp.zeros_like(state[0, 0])] * 2 for _ in range(structure.num_fields)]
    for p, (field, a, b) in enumerate(structure.pairs):
        parts = structure.element(a, b)
        if parts is not None:
            real, imaginary, sign = parts
            scale = coefficients.coupling[field] * coefficients.factors[p]
            rows[field][0] = rows[field][0] - sign * scale * average(coefficients, state[imaginary])
            rows[field][1] = rows[field][1] + scale * average(coefficients, state[real])
    return jnp.stack([jnp.stack(row) for row in rows])


def add_source_transpose(structure: Structure, coefficients: Coefficients, rows, cotangent):
    """Component rows plus the transpose of `source` in the state, from the cotangent of its result."""
    if not structure.unrolled:
        return rows + blocks.source_transpose(structure, coefficients, cotangent)
    through: dict = {}
    for p, (field, a, b) in enumerate(structure.pairs):
        parts = structure.element(a, b)
        if parts is not None:
            real, imaginary, sign = parts
            scale = coefficients.coupling[field] * coefficients.factors[p]
            through[imaginary] = through.get(imaginary, 0) - sign * scale * cotangent[field, 0]
            through[real] = through.get(real, 0) + scale * cotangent[field, 1]
    rows = list(rows)
    for c, row in through.items():
        rows[c] = rows[c] + coefficients.weights[:, None] * row
    return rows


def _drive(structure: Structure, coefficients: Coefficients, rabi):
    """π f Ω of each pair as (real, imaginary) rows of shape (z,)."""
    half = [jnp.pi * coefficients.factors[p] for p in range(len(structure.pairs))]
    return [(half[p] * rabi[field, 0], half[p] * rabi[field, 1]) for p, (field, _, _) in enumerate(structure.pairs)]


def lindblad(structure: Structure, coefficients: Coefficients, state, rabi):
    """Lindbladian applied to the state for a given Ω, as component rows (class, z)."""
    if not structure.unrolled:
        return blocks.lindblad(structure, coefficients, state, rabi)
    return _lindblad(structure, coefficients, state, rabi)


def lindblad_transpose(structure: Structure, coefficients: Coefficients, state, cotangent, rabi):
    """The transposes of `lindblad`: component rows of the cotangent of the state, and that of Ω, (field, 2, z)."""
    if not structure.unrolled:
        return blocks.lindblad_transpose(structure, coefficients, state, cotangent, rabi)
    rows = _lindblad(structure, coefficients, cotangent, rabi, transpose=True)
    return rows, _drive_cotangent(structure, coefficients, state, cotangent)


def _lindblad(structure: Structure, coefficients: Coefficients, state, rabi, *, transpose: bool = False):
    drive = _drive(structure, coefficients, rabi)
    rows: list = [0] * structure.num_components
    for term in structure.drive_terms:
        out, inn = (term.source, term.out) if transpose else (term.out, term.source)
        product = drive[term.pair][term.imaginary] * state[inn]
        rows[out] = rows[out] + (product if term.sign == 1 else term.sign * product)
    n, m = len(structure.populations), len(structure.coherences)
    for k in range(m):
        rotation = coefficients.rotation[k][:, None]
        rotation = -rotation if transpose else rotation
        damping = coefficients.damping[k]
        real, imaginary = n + k, n + m + k
        rows[real] = rows[real] + rotation * state[imaginary] - damping * state[real]
        rows[imaginary] = rows[imaginary] - rotation * state[real] - damping * state[imaginary]
    for channel, filled, emptied in structure.transfers:
        rate = coefficients.transfer[channel]
        if transpose:
            rows[emptied] = rows[emptied] + rate * (state[filled] - state[emptied])
        else:
            rows[filled] = rows[filled] + rate * state[emptied]
            rows[emptied] = rows[emptied] - rate * state[emptied]
    for k, pair in enumerate(structure.mixing_terms):
        out, inn = pair[::-1] if transpose else pair
        rows[out] = rows[out] + coefficients.mixing[k] * state[inn]
    return rows


def _drive_cotangent(structure: Structure, coefficients: Coefficients, state, cotangent):
    """The transpose of `lindblad` in Ω: cotangent of Ω, shape (field, 2, z), from the cotangent of its result."""
    rows: list = [[0, 0] for _ in range(structure.num_fields)]
    per_pair: list = [[0, 0] for _ in structure.pairs]
    for out, inn, pair, imaginary, sign in structure.drive_terms:
        product = cotangent[out] * state[inn]
        per_pair[pair][imaginary] = per_pair[pair][imaginary] + (product if sign == 1 else sign * product)
    zero = jnp.zeros_like(state[0])
    for p, (field, _, _) in enumerate(structure.pairs):
        for part in range(2):
            rows[field][part] = rows[field][part] + jnp.pi * coefficients.factors[p] * per_pair[p][part]
    stacked = jnp.stack([jnp.stack([zero + part for part in row]) for row in rows])
    return jnp.sum(stacked, axis=2) if state.shape[1] > 1 else stacked[:, :, 0]


def stack_rows(rows, like):
    """Component rows (0 where none) as one array."""
    if isinstance(rows, jax.Array):
        return rows
    return jnp.stack([jnp.zeros_like(like[0]) + row for row in rows])
