"""The right-hand side of large systems: the same functions as those of `rhs`, on whole blocks of levels.

The kept coherences join the levels to blocks, between which the density matrix is zero. Here the packed components of
each block are gathered into a square, padded to the largest block, and the factors of a field's pairs are one real
matrix D of each block, the same at every z and for every class. With H = Ω D + Ω* Dᵀ, where D leads from upper to lower
levels,

    −i[H, ρ] = −i(A − A†),   A = H ρ = (Re Ω + i σ Im Ω) (D + Dᵀ) ρ,   σ = 1 on lower, −1 on upper levels,

so that a stage is one batch of real matrix products on long rows and the code is the same for any number of pairs.

The commutator is antisymmetric in tr(X ρ), where of components a coherence counts twice. So its transpose is minus it,
between two scalings: of the coherences by a half before it and by two after it.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .generator import Structure

if TYPE_CHECKING:
    from .rhs import Coefficients

DENSE = 16
"""How many times cheaper a product is in a matrix product than in a gather of rows."""


class _Drive(NamedTuple):
    """Pairs of one field, none of whose levels is lower in one pair and upper in another.

    Attributes:
        field: the field.
        pairs: indices of the pairs.
        side: 1 on lower levels, −1 on upper ones, 0 on others, shape (block, level).
    """

    field: int
    pairs: np.ndarray
    side: np.ndarray


class _Layout(NamedTuple):
    """Where everything stands in the squares of shape (block, level, level).

    Attributes:
        real: component of the real part.
        imaginary: component of the imaginary part.
        kept: 1 where an element is kept, 0 elsewhere.
        sign: sign of the imaginary part or 0.
        diagonal: places of the populations in the flattened squares.
        above: places of ρ_ij of the coherences.
        below: places of ρ_ji of the coherences.
        lower: (block, place) of the lower level of each pair, shape (2, pair).
        upper: the same of the upper level.
        drives: the pairs, sorted.
    """

    real: np.ndarray
    imaginary: np.ndarray
    kept: np.ndarray
    sign: np.ndarray
    diagonal: np.ndarray
    above: np.ndarray
    below: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    drives: tuple[_Drive, ...]


@lru_cache(maxsize=64)
def _layout(structure: Structure) -> _Layout:
    blocks = _blocks(structure)
    size = max(len(block) for block in blocks)
    members = np.array([block + block[:1] * (size - len(block)) for block in blocks])
    inside = np.array([[k < len(block) for k in range(size)] for block in blocks])
    rows, columns = members[:, :, None], members[:, None, :]
    both = inside[:, :, None] & inside[:, None, :]
    real, imaginary, kept, sign = (part[rows, columns] for part in structure.square)
    where = {level: (b, k) for b, block in enumerate(blocks) for k, level in enumerate(block)}

    def place(i, j):
        (b, row), (_, column) = where[i], where[j]
        return (b * size + row) * size + column

    pairs = [p for p, (_, a, b) in enumerate(structure.pairs) if a in where and b in where]
    drives: list[tuple[int, list[int], dict[int, int]]] = []
    for p in pairs:
        field, a, b = structure.pairs[p]
        fits = (x for x in drives if x[0] == field and x[2].get(a, 1) == 1 and x[2].get(b, -1) == -1)
        drive = next(fits, None)
        if drive is None:
            drive = (field, [], {})
            drives.append(drive)
        drive[1].append(p)
        drive[2].update({a: 1, b: -1})

    def sides(side):
        array = np.zeros(inside.shape)
        for level, value in side.items():
            array[where[level]] = value
        return array

    nowhere = (0, 0)
    return _Layout(
        real,
        imaginary,
        kept * both,
        sign * both,
        np.array([place(i, i) for i in structure.populations], int),
        np.array([place(i, j) for i, j in structure.coherences], int),
        np.array([place(j, i) for i, j in structure.coherences], int),
        np.array([where.get(a, nowhere) for _, a, _ in structure.pairs], int).reshape(-1, 2).T,
        np.array([where.get(b, nowhere) for _, _, b in structure.pairs], int).reshape(-1, 2).T,
        tuple(_Drive(field, np.array(chosen), sides(side)) for field, chosen, side in drives),
    )


def _blocks(structure: Structure) -> list[list[int]]:
    """Levels that kept coherences join."""
    block = {i: [i] for pair in (*((k, k) for k in structure.populations), *structure.coherences) for i in pair}
    for i, j in structure.coherences:
        if block[i] is not block[j]:
            block[i] += block[j]
            for k in block[j]:
                block[k] = block[i]
    return [sorted(levels) for i, levels in sorted(block.items()) if i == min(levels)]


def _squares(layout: _Layout, state, coherence: float = 1.0):
    """Real and imaginary part of the blocks, (block, level, class z)-like, the coherences times a factor."""
    scale = np.where(layout.sign == 0, 1.0, coherence)

    def part(index, weight):
        weight = jnp.asarray(weight * scale, state.dtype)
        return weight[..., None, None] * state[index]

    return part(layout.real, layout.kept), part(layout.imaginary, layout.sign)


def _driven(layout: _Layout, coefficients: "Coefficients", part):
    """π (D + Dᵀ) times one part of the squares, for each drive, shape (block, drive, level, level, class, z)."""
    blocks, size = layout.kept.shape[:2]
    matrix = jnp.zeros((blocks, len(layout.drives), size, size), part.dtype)
    for d, drive in enumerate(layout.drives):
        factors = jnp.pi * coefficients.factors[drive.pairs]
        (block, a), (_, b) = layout.lower[:, drive.pairs], layout.upper[:, drive.pairs]
        matrix = matrix.at[block, d, a, b].add(factors).at[block, d, b, a].add(factors)
    return jnp.einsum("bdij,bj...->bdi...", matrix, part)  # no reshape, which would undivide divided classes


def lindblad(structure: Structure, coefficients: "Coefficients", state: Any, rabi: Any) -> Any:
    """Lindbladian applied to the state for a given Ω, shape (component, class, z)."""
    layout = _layout(structure)
    driven = tuple(_driven(layout, coefficients, part) for part in _squares(layout, state))
    return _rows(structure, coefficients, state, _flow(layout, driven, rabi), False)


def lindblad_transpose(
    structure: Structure, coefficients: "Coefficients", state: Any, cotangent: Any, rabi: Any
) -> Any:
    """The transposes of `lindblad` in the state and in Ω: cotangents (component, class, z) and (field, 2, z).

    With the Hermitian X that belongs to the cotangent and B = (D + Dᵀ) X, that of Ω is 2 Im(Σ B* ρ), −2 Re(Σ σ B* ρ).
    """
    layout = _layout(structure)
    re, im = _squares(layout, state)
    a, b = driven = tuple(_driven(layout, coefficients, part) for part in _squares(layout, cotangent, 0.5))
    on_populations, real, imaginary = _flow(layout, driven, rabi)
    flow = -on_populations, -2 * real, -2 * imaginary
    rabi_bar = jnp.zeros((structure.num_fields, 2, state.shape[-1]), state.dtype)
    for d, drive in enumerate(layout.drives):
        side = _spread(drive.side, state.dtype)
        parts = a[:, d] * im - b[:, d] * re, -side * (a[:, d] * re + b[:, d] * im)
        for k, part in enumerate(parts):
            rabi_bar = rabi_bar.at[drive.field, k].add(2 * jnp.sum(jnp.sum(part, axis=(0, 1, 2)), axis=0))
    return _rows(structure, coefficients, cotangent, flow, True), rabi_bar


def _spread(side: np.ndarray, dtype):
    return jnp.asarray(side, dtype)[:, :, None, None, None]


def _flow(layout: _Layout, driven, rabi):
    """−i(A − A†), as rows of the populations, of real and of imaginary parts."""
    a = b = jnp.zeros((*layout.kept.shape, *driven[0].shape[-2:]), rabi.dtype)
    for d, drive in enumerate(layout.drives):
        u, v = rabi[drive.field]
        side = _spread(drive.side, rabi.dtype)
        real, imaginary = (part[:, d] for part in driven)
        a, b = a + u * real - v * (side * imaginary), b + u * imaginary + v * (side * real)
    a, b = (part.reshape(-1, *part.shape[-2:]) for part in (a, b))
    return 2 * b[layout.diagonal], b[layout.above] + b[layout.below], a[layout.below] - a[layout.above]


def _rows(structure: Structure, coefficients: "Coefficients", state, flow, transpose: bool):
    """What the drive does to a state, together with all that needs no light."""
    n, m = len(structure.populations), len(structure.coherences)
    re, im = state[n : n + m], state[n + m :]
    rotation, damping = coefficients.rotation[:, :, None], coefficients.damping[:, None, None]
    rotation = -rotation if transpose else rotation
    rows = jnp.concatenate([
        flow[0] + _transferred(structure, coefficients, state[:n], transpose),
        flow[1] + rotation * im - damping * re,
        flow[2] - rotation * re - damping * im,
    ])  # fmt: skip
    return rows + _mixed(structure, coefficients, state, transpose) if structure.mixing_terms else rows


def _transferred(structure: Structure, coefficients: "Coefficients", populations, transpose: bool):
    """What the decay channels move between the populations."""
    count = len(structure.populations)
    channel, filled, emptied = np.asarray(structure.transfers, int).reshape(-1, 3).T
    rates = coefficients.transfer[channel]
    matrix = jnp.zeros((count, count), populations.dtype)
    matrix = matrix.at[filled, emptied].add(rates).at[emptied, emptied].add(-rates)
    matrix = matrix.T if transpose else matrix
    return jnp.tensordot(matrix, populations, 1)


def _mixed(structure: Structure, coefficients: "Coefficients", state, transpose: bool):
    """The dissipators of dense operators: a few terms of every row, one by one, or a matrix where there are many."""
    outs, sources = np.asarray(structure.mixing_terms, int).T[:: -1 if transpose else 1]
    order = np.argsort(outs, kind="stable")
    outs, sources = outs[order], sources[order]
    turn = np.arange(len(outs)) - np.searchsorted(outs, outs)  # of each term among those of its row
    count, turns = len(state), turn.max() + 1
    if turns * DENSE > count:
        matrix = jnp.zeros((count, count), state.dtype).at[outs, sources].set(coefficients.mixing[order])
        return jnp.tensordot(matrix, state, 1)
    total = jnp.zeros_like(state)
    for k in range(turns):
        chosen = turn == k
        source = np.zeros(count, int)
        source[outs[chosen]] = sources[chosen]
        weight = jnp.zeros(count, state.dtype).at[outs[chosen]].set(coefficients.mixing[order[chosen]])
        total = total + weight[:, None, None] * state[source]
    return total


def _moments(structure: Structure, coefficients: "Coefficients"):
    """Components of the driven coherences, and the matrix that makes the source of their averages."""
    found = [(p, field, structure.element(a, b)) for p, (field, a, b) in enumerate(structure.pairs)]
    known = [(p, field, *parts) for p, field, parts in found if parts is not None]
    pair, field, real, imaginary, sign = np.asarray(known, int).reshape(-1, 5).T
    scale = coefficients.coupling[field] * coefficients.factors[pair]
    count = len(pair)
    matrix = jnp.zeros((structure.num_fields, 2, 2 * count), scale.dtype)
    matrix = matrix.at[field, 0, np.arange(count)].set(-jnp.asarray(sign, scale.dtype) * scale)
    matrix = matrix.at[field, 1, count + np.arange(count)].set(scale)
    return np.concatenate([imaginary, real]), matrix


def source(structure: Structure, coefficients: "Coefficients", state: Any) -> Any:
    """dΩ/dζ, shape (field, 2, z)."""
    rows, matrix = _moments(structure, coefficients)
    return matrix @ jnp.sum(coefficients.weights[:, None] * state[rows], axis=-2)


def source_transpose(structure: Structure, coefficients: "Coefficients", cotangent: Any) -> Any:
    """The transpose of `source` in the state, shape (component, class, z)."""
    rows, matrix = _moments(structure, coefficients)
    averages = jnp.zeros((structure.num_components, cotangent.shape[-1]), cotangent.dtype)
    averages = averages.at[rows].add(jnp.einsum("fpr,fpz->rz", matrix, cotangent))
    return coefficients.weights[:, None] * averages[:, None, :]
