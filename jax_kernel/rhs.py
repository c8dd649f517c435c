"""The right-hand side at one instant, and its transposes, unrolled over the nonzeros of the generator.

A large system, whose unrolled code would compile for minutes, goes to `blocks` here, function by function.

Arrays, with z and the velocity class as the long axes: state (component, class, z); source and Ω (field, 2, z), the
axis of 2 holding real and imaginary parts. Everything is in angular frequency. Within one kernel (`fused`) a state is a
tuple of its components instead, each (class, z).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import blocks, fused
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


def one_by_one(structure: Structure, coefficients: Coefficients) -> Coefficients:
    """The coefficients as tuples of what broadcasts against (class, z), as the unrolled code takes them."""
    if not structure.unrolled or isinstance(coefficients.damping, tuple):
        return coefficients
    rotation = coefficients.rotation[:, :, None]
    split = (tuple(x[k] for k in range(len(x))) for x in (rotation, *coefficients[1:6]))
    return Coefficients._make([*split, coefficients.weights[:, None]])


def widened(structure: Structure, coefficients: Coefficients, shape: tuple[int, ...]) -> Coefficients:
    """Coefficients one by one, all of the shape (class, z): their cotangents need no sums."""
    if not structure.unrolled:
        return coefficients
    return jax.tree.map(lambda x: jnp.broadcast_to(x, shape), coefficients)


def over_classes(state: Any, rows: Any) -> Any:
    """The sum over the velocity classes, the axis before the last, as it may stand where the state does."""
    if isinstance(state, tuple):
        return fused.class_sum(rows)
    return jnp.sum(rows, axis=-2) if rows.shape[-2] > 1 else rows[..., 0, :]


def weighted(coefficients: Coefficients, state: Any) -> Any:
    """The state times the weights of the velocity classes."""
    weights = coefficients.weights if coefficients.weights.ndim == 2 else coefficients.weights[:, None]
    return jax.tree.map(lambda row: weights * row, state)


def average(coefficients: Coefficients, state: Any) -> Any:
    """Average over the velocity classes, shape (component, z)."""
    if isinstance(state, tuple):
        return jnp.stack([over_classes(state, row) for row in weighted(coefficients, state)])
    return over_classes(state, weighted(coefficients, state))


def source(structure: Structure, coefficients: Coefficients, state: Any) -> Any:
    """dΩ/dζ = 2i g ζ_total Σ_v w_v Σ f ρ_ab, shape (field, 2, z)."""
    if not structure.unrolled:
        return blocks.source(structure, coefficients, state)
    rows = emitted(structure, coefficients, state)
    return jnp.stack([jnp.stack([over_classes(state, row) for row in part]) for part in rows])


def emitted(structure: Structure, coefficients: Coefficients, state: Any) -> Any:
    """What every velocity class adds to the source, a real and an imaginary row (class, z) for each field."""
    c = one_by_one(structure, coefficients)
    rows: list = [[0, 0] for _ in range(structure.num_fields)]
    for p, (field, a, b) in enumerate(structure.pairs):
        parts = structure.element(a, b)
        if parts is not None:
            real, imaginary, sign = parts
            rows[field][0] = rows[field][0] - sign * c.factors[p] * state[imaginary]
            rows[field][1] = rows[field][1] + c.factors[p] * state[real]
    zero = jnp.zeros_like(state[0])
    return [[zero + c.weights * g * row for row in part] for g, part in zip(c.coupling, rows, strict=True)]


def add_source_transpose(structure: Structure, coefficients: Coefficients, rows: Any, cotangent: Any) -> Any:
    """Component rows plus the transpose of `source` in the state, from the cotangent of its result."""
    if not structure.unrolled:
        return rows + blocks.source_transpose(structure, coefficients, cotangent)
    c = one_by_one(structure, coefficients)
    through: dict = {}
    for p, (field, a, b) in enumerate(structure.pairs):
        parts = structure.element(a, b)
        if parts is not None:
            real, imaginary, sign = parts
            scale = c.coupling[field] * c.factors[p]
            through[imaginary] = through.get(imaginary, 0) - sign * scale * cotangent[field, 0]
            through[real] = through.get(real, 0) + scale * cotangent[field, 1]
    rows = list(rows)
    for component, row in through.items():
        rows[component] = rows[component] + c.weights * row
    return rows


def add_average_transpose(structure: Structure, coefficients: Coefficients, rows: Any, cotangent: Any) -> Any:
    """Component rows plus the transpose of `average` in the state, from the cotangent of its result."""
    if not structure.unrolled:
        return rows + coefficients.weights[:, None] * cotangent[:, None]
    weights = one_by_one(structure, coefficients).weights
    return [row + weights * cotangent[component] for component, row in enumerate(rows)]


def lindblad(structure: Structure, coefficients: Coefficients, state: Any, rabi: Any) -> Any:
    """Lindbladian applied to the state for a given Ω, as component rows (class, z)."""
    if not structure.unrolled:
        return blocks.lindblad(structure, coefficients, state, rabi)
    return _lindblad(structure, one_by_one(structure, coefficients), state, rabi)


def lindblad_transpose(structure: Structure, coefficients: Coefficients, state: Any, cotangent: Any, rabi: Any) -> Any:
    """The transposes of `lindblad`: component rows of the cotangent of the state, and that of Ω, (field, 2, z)."""
    if not structure.unrolled:
        return blocks.lindblad_transpose(structure, coefficients, state, cotangent, rabi)
    coefficients = one_by_one(structure, coefficients)
    rows = _lindblad(structure, coefficients, cotangent, rabi, transpose=True)
    return rows, _drive_cotangent(structure, coefficients, state, cotangent)


def _lindblad(structure: Structure, c: Coefficients, state, rabi, *, transpose: bool = False):
    drive = [
        (jnp.pi * c.factors[p] * rabi[field, 0], jnp.pi * c.factors[p] * rabi[field, 1])
        for p, (field, _, _) in enumerate(structure.pairs)
    ]
    rows: list = [0] * structure.num_components
    for term in structure.drive_terms:
        out, inn = (term.source, term.out) if transpose else (term.out, term.source)
        product = drive[term.pair][term.imaginary] * state[inn]
        rows[out] = rows[out] + (product if term.sign == 1 else term.sign * product)
    n, m = len(structure.populations), len(structure.coherences)
    for k in range(m):
        rotation = -c.rotation[k] if transpose else c.rotation[k]
        real, imaginary = n + k, n + m + k
        rows[real] = rows[real] + rotation * state[imaginary] - c.damping[k] * state[real]
        rows[imaginary] = rows[imaginary] - rotation * state[real] - c.damping[k] * state[imaginary]
    for channel, filled, emptied in structure.transfers:
        rate = c.transfer[channel]
        if transpose:
            rows[emptied] = rows[emptied] + rate * (state[filled] - state[emptied])
        else:
            rows[filled] = rows[filled] + rate * state[emptied]
            rows[emptied] = rows[emptied] - rate * state[emptied]
    for k, pair in enumerate(structure.mixing_terms):
        out, inn = pair[::-1] if transpose else pair
        rows[out] = rows[out] + c.mixing[k] * state[inn]
    return rows


def _drive_cotangent(structure: Structure, c: Coefficients, state, cotangent):
    """The transpose of `lindblad` in Ω: cotangent of Ω, shape (field, 2, z), from the cotangent of its result."""
    rows: list = [[0, 0] for _ in range(structure.num_fields)]
    per_pair: list = [[0, 0] for _ in structure.pairs]
    for out, inn, pair, imaginary, sign in structure.drive_terms:
        product = cotangent[out] * state[inn]
        per_pair[pair][imaginary] = per_pair[pair][imaginary] + (product if sign == 1 else sign * product)
    for p, (field, _, _) in enumerate(structure.pairs):
        for part in range(2):
            rows[field][part] = rows[field][part] + jnp.pi * c.factors[p] * per_pair[p][part]
    zero = jnp.zeros_like(state[0])
    return jnp.stack([jnp.stack([over_classes(state, zero + part) for part in row]) for row in rows])


def stack_rows(rows: Any, like: Any) -> Any:
    """Component rows (0 where none) as a state of the same kind."""
    if isinstance(rows, jax.Array):
        return rows
    zero = jnp.zeros_like(like[0])
    full = [zero + row for row in rows]
    return tuple(full) if isinstance(like, tuple) else jnp.stack(full)
