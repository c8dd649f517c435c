"""The Lindbladian as packed, pruned sparse terms, in NumPy, from structure alone.

The density matrix is Hermitian, so it is stored as real components: the populations ρ_ii, then Re ρ_ij, then Im ρ_ij
of the kept coherences i < j. Only elements that the populated levels can reach through the drive and the decays are
kept; the others stay exactly zero. Which elements those are depends on structure (pairs, channels and the nonzeros of
dense collapse operators), never on today's rates or fields, so that a quantity that is zero now keeps its gradient.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

Pair = tuple[int, int]

UNROLLED_LIMIT = 500
"""Nonzeros of the generator up to which the contraction is unrolled; measured, see docs/design.md."""


class DriveTerm(NamedTuple):
    """One nonzero of the drive: d(out)/dt += sign · drive[pair].(real | imaginary) · component[source]."""

    out: int
    source: int
    pair: int
    imaginary: bool
    sign: int


class Square(NamedTuple):
    """Where the packed components stand in the density matrix, arrays of shape (level, level).

    Attributes:
        real: component that holds Re ρ_ij.
        imaginary: component that holds Im ρ_ij, up to its sign.
        kept: 1 where ρ_ij is kept, 0 where it is always zero.
        sign: sign of the imaginary part, 0 on the diagonal and where nothing is kept.
    """

    real: np.ndarray
    imaginary: np.ndarray
    kept: np.ndarray
    sign: np.ndarray


@dataclass(frozen=True)
class Structure:
    """What an executable is keyed by: which levels, pairs and channels there are, and which elements are kept.

    Attributes:
        num_states: number of levels.
        pairs: (field, lower, upper) of every driven pair with a nonzero factor.
        channels: (lower, upper) = (to, from) of every decay channel with a nonzero factor; equal for pure dephasing.
        operators: the nonzeros (to, from) of each dense collapse operator.
        num_fields: number of fields.
        populations: kept levels.
        coherences: kept pairs (i, j), i < j.
        unrolled: whether the contraction is written out nonzero by nonzero, or works on whole blocks of levels.
    """

    num_states: int
    num_fields: int
    pairs: tuple[tuple[int, int, int], ...]
    channels: tuple[Pair, ...]
    operators: tuple[tuple[Pair, ...], ...]
    populations: tuple[int, ...]
    coherences: tuple[Pair, ...]
    unrolled: bool

    @classmethod
    def build(
        cls,
        num_states: int,
        num_fields: int,
        pairs: Iterable[tuple[int, int, int]],
        channels: Iterable[Pair],
        start: Iterable[Pair],
        operators: Iterable[tuple[Pair, ...]] = (),
        unrolled: bool | None = None,
    ) -> "Structure":
        """Close the set of elements at the start under the drive and the decays, and keep what was reached.

        `unrolled` is for comparisons; by default it follows from the number of nonzeros.
        """
        pairs, channels, operators = tuple(pairs), tuple(channels), tuple(operators)
        kept = _reachable(pairs, channels, operators, start)
        structure = cls(
            num_states,
            num_fields,
            pairs,
            channels,
            operators,
            tuple(sorted(i for i, j in kept if i == j)),
            tuple(sorted((i, j) for i, j in kept if i < j)),
            unrolled is not False,
        )
        if unrolled is None and structure.num_terms > UNROLLED_LIMIT:
            return replace(structure, unrolled=False)
        return structure

    @property
    def num_components(self) -> int:
        """Number of real components per z-node and velocity class."""
        return len(self.populations) + 2 * len(self.coherences)

    @property
    def num_terms(self) -> int:
        """Number of nonzeros of the drive, which are counted, not listed, and of the dense operators' dissipators."""
        kept, links = set(self.populations), np.zeros((self.num_states,) * 2, int)
        for _, a, b in self.pairs:
            if (min(a, b), max(a, b)) in self._index:
                links[a, b] += 1
                links[b, a] += 1
        degree = links.sum(1)
        first, second = np.asarray(self.coherences, int).reshape(-1, 2).T
        # each neighbour of either level gives four products, but two where its element is a population
        drive = 4 * (degree[first] + degree[second] - links[first, second]).sum() + 2 * degree[list(kept)].sum()
        return int(drive) + (len(self.mixing_terms) if self.operators else 0)

    @cached_property
    def square(self) -> Square:
        """Where the components stand in the density matrix."""
        square = Square(*(np.zeros((self.num_states,) * 2, int) for _ in Square._fields))
        for (i, j), (real, imaginary) in self._index.items():
            square.real[[i, j], [j, i]] = real
            square.kept[[i, j], [j, i]] = 1
            if imaginary is not None:
                square.imaginary[[i, j], [j, i]] = imaginary
                square.sign[[i, j], [j, i]] = 1, -1
        return square

    @cached_property
    def _index(self) -> dict[Pair, tuple[int, int | None]]:
        """Components (real, imaginary) of each kept element (i, j), i <= j."""
        n, m = len(self.populations), len(self.coherences)
        index: dict[Pair, tuple[int, int | None]] = {(i, i): (k, None) for k, i in enumerate(self.populations)}
        return index | {pair: (n + k, n + m + k) for k, pair in enumerate(self.coherences)}

    def element(self, i: int, j: int) -> tuple[int, int | None, int] | None:
        """Components of ρ_ij as (real, imaginary, sign of the imaginary part), or None where ρ_ij is always zero."""
        found = self._index.get((min(i, j), max(i, j)))
        return None if found is None else (*found, 1 if i < j else -1)

    @cached_property
    def drive_terms(self) -> tuple[DriveTerm, ...]:
        """The nonzeros of −i[W, ρ] with W = w|a><b| + w*|b><a| for every pair (a, b)."""
        total: dict[tuple[int, int, int, bool], int] = {}
        for i, j in self._index:
            for p, (_, a, b) in enumerate(self.pairs):
                # (element, factor ∓i, whether w enters conjugated) for W ρ and then for ρ W
                for at, source, factor, conjugated in (
                    (a == i, (b, j), -1j, False),
                    (b == i, (a, j), -1j, True),
                    (b == j, (i, a), 1j, False),
                    (a == j, (i, b), 1j, True),
                ):
                    parts = self.element(*source) if at else None
                    if parts is not None:
                        self._add_products(total, (i, j), p, parts, factor, conjugated)
        return tuple(DriveTerm(*key, sign) for key, sign in sorted(total.items()) if sign)

    def _add_products(self, total, out, pair, parts, factor, conjugated) -> None:
        """Add factor · w · ρ_source, split into real products, to the derivative of element `out`."""
        real, imaginary, sign = parts
        out_real, out_imaginary = self._index[out]
        for component, unit in ((real, 1), (imaginary, sign * 1j)):
            if component is None:
                continue
            for is_imaginary, w in ((False, 1), (True, -1j if conjugated else 1j)):
                product = complex(factor * unit * w)
                for target, value in ((out_real, product.real), (out_imaginary, product.imag)):
                    if target is not None and value:
                        key = (target, component, pair, is_imaginary)
                        total[key] = total.get(key, 0) + int(value)

    @cached_property
    def transfers(self) -> tuple[tuple[int, int, int], ...]:
        """(channel, component of the level filled, component of the level emptied) of each population transfer."""
        kept = self._index
        return tuple(
            (c, kept[a, a][0], kept[b, b][0]) for c, (a, b) in enumerate(self.channels) if a != b and (b, b) in kept
        )

    def dissipator(self, operator: np.ndarray) -> np.ndarray:
        """M ρ M† − ½{M†M, ρ} of a matrix M, on the kept components; shape (component, component)."""
        i, j = np.asarray([*((k, k) for k in self.populations), *self.coherences], int).reshape(-1, 2).T
        off = i != j
        both = operator.conj().T @ operator

        def change(row, column):  # of ρ_ij, along the first axis, by a one at ρ_(row, column), along the second
            jumps = operator[np.ix_(i, row)] * operator.conj()[np.ix_(j, column)]
            left = both[np.ix_(i, row)] * (j[:, None] == column)
            return jumps - (left + (i[:, None] == row) * both[np.ix_(column, j)].T) / 2

        here, mirrored = change(i, j), change(j, i)
        columns = np.concatenate([here + mirrored * off, 1j * (here - mirrored)[:, off]], 1)
        return np.concatenate([columns.real, columns.imag[off]])

    @cached_property
    def mixing_terms(self) -> tuple[tuple[int, int], ...]:
        """The nonzeros (out, source) of the dissipators of all dense operators, whatever the values of theirs."""
        support = np.zeros((self.num_components,) * 2, bool)
        generic = np.random.default_rng(0)
        for nonzeros in self.operators:
            operator = np.zeros((self.num_states,) * 2, complex)
            for at in nonzeros:
                operator[at] = complex(*generic.normal(size=2))
            support |= np.abs(self.dissipator(operator)) > 1e-12
        return tuple((int(out), int(source)) for out, source in np.argwhere(support))

    def mixing(self, operators: Iterable[np.ndarray]) -> np.ndarray:
        """The values of `mixing_terms` for each operator, shape (operator, term)."""
        outs, sources = np.asarray(self.mixing_terms, int).reshape(-1, 2).T
        values = [self.dissipator(operator)[outs, sources] for operator in operators]
        return np.reshape(values, (len(values), len(outs)))


def _reachable(pairs, channels, operators, start) -> set[Pair]:
    """Elements (i <= j) that those at the start reach through the commutator with the drive and the decays."""
    partners: dict[int, set[int]] = {}
    for _, a, b in pairs:
        partners.setdefault(a, set()).add(b)
        partners.setdefault(b, set()).add(a)
    fed = [(a, b) for a, b in channels if a != b]
    for nonzeros in operators:  # the anticommutator with M†M mixes the levels of one row
        for a, b in nonzeros:
            partners.setdefault(b, set()).update(j for i, j in nonzeros if i == a)
    kept: set[Pair] = set()
    fresh = [(min(pair), max(pair)) for pair in start]
    while fresh:
        i, j = pair = fresh.pop()
        if pair in kept:
            continue
        kept.add(pair)
        nearby = [(k, j) for k in partners.get(i, ())] + [(i, k) for k in partners.get(j, ())]
        nearby += [(a, a) for a, b in fed if i == j == b]
        nearby += [(a, c) for nonzeros in operators for a, b in nonzeros if b == i for c, d in nonzeros if d == j]
        fresh += [(min(pair), max(pair)) for pair in nearby]
    return kept
