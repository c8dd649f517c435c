"""The contraction of large systems, on blocks of levels, against the unrolled one and against the dense matrices."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import rhs
from jax_kernel.generator import Structure
from tests.jax_kernel.test_generator import SYSTEMS

CLASSES, NODES = 2, 3


def _random(seed, levels, fields, pairs, channels):
    """A system of random pairs, of which some are there twice, in both directions or lead nowhere."""
    rng = np.random.default_rng(seed)
    between = [tuple(int(k) for k in rng.choice(levels, 2, replace=False)) for _ in range(pairs)]
    return (
        levels,
        fields,
        [(int(rng.integers(fields)), *pair) for pair in between],
        [tuple(int(k) for k in rng.integers(levels, size=2)) for _ in range(channels)],
    )


CASES = SYSTEMS | {
    "a chain of one field": (5, 1, [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 4)], [(0, 1), (1, 2), (2, 3), (3, 4)]),
    "no light": (3, 1, [], [(0, 1), (1, 2)]),
    "random, 6 levels": _random(1, 6, 2, 6, 8),
    "random, 9 levels": _random(2, 9, 3, 8, 12),
    "random, 12 levels": _random(3, 12, 2, 9, 20),
}
STARTS = {"populations": lambda n: [(i, i) for i in range(n)], "one level": lambda n: [(0, 0)],
          "coherences": lambda n: [(0, 0), (0, n - 1), (n - 2, n - 1)]}  # fmt: skip
OPERATORS = {"none": (), "sparse": (((0, 1), (1, 1)),), "dense": (((0, 1), (1, 0), (0, 0), (1, 1)), ((1, 0),))}


def both(name, start="populations", operators="none"):
    """The two structures of a case, and random coefficients and arrays."""
    n, fields, pairs, channels = CASES[name]
    parts = (n, fields, pairs, channels, STARTS[start](n), OPERATORS[operators])
    unrolled, blocks = (Structure.build(*parts, unrolled=kind) for kind in (True, False))
    assert replace(blocks, unrolled=True) == unrolled
    rng = np.random.default_rng(0)
    m = len(unrolled.coherences)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape))

    coefficients = rhs.Coefficients(
        normal(m, CLASSES), normal(m), normal(len(channels)), normal(len(unrolled.mixing_terms)), normal(len(pairs)),
        normal(fields), normal(CLASSES),
    )  # fmt: skip
    state, bar = (normal(unrolled.num_components, CLASSES, NODES) for _ in range(2))
    return unrolled, blocks, coefficients, state, bar, normal(fields, 2, NODES), normal(fields, 2, NODES)


def equal(mine, theirs):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13, atol=2e-13), mine, theirs)


def everything(structure, coefficients, state, bar, rabi, source_bar):
    """All that the kernel asks of a contraction."""

    def linear(coefficients, state, rabi):
        slope = rhs.stack_rows(rhs.lindblad(structure, coefficients, state, rabi), state)
        return slope, rhs.source(structure, coefficients, state)

    values, vjp = jax.vjp(linear, coefficients, state, rabi)
    rows, rabi_bar = rhs.lindblad_transpose(structure, coefficients, state, bar, rabi)
    return {
        "values": values,
        "transposes": vjp((bar, source_bar)),
        "state": rhs.stack_rows(rhs.add_source_transpose(structure, coefficients, rows, source_bar), state),
        "rabi": rabi_bar,
    }


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", CASES)
def test_blocks_are_the_unrolled_contraction(name, start, x64):
    unrolled, blocks, *numbers = both(name, start)
    mine = jax.jit(lambda *x: everything(blocks, *x))(*numbers)
    equal(mine, jax.jit(lambda *x: everything(unrolled, *x))(*numbers))
    _, state_bar, rabi_bar = mine["transposes"]
    equal((mine["state"], mine["rabi"]), (state_bar, rabi_bar))


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("operators", ["sparse", "dense"])
@pytest.mark.parametrize("name", ["lambda", "five levels", "random, 6 levels"])
def test_dense_operators(name, operators, matrix, x64, monkeypatch):
    monkeypatch.setattr("jax_kernel.blocks.DENSE", 1e9 if matrix else 0)
    unrolled, blocks, *numbers = both(name, operators=operators)
    assert unrolled.mixing_terms
    mine = everything(blocks, *numbers)
    equal(mine, everything(unrolled, *numbers))
    equal(mine["state"], mine["transposes"][1])


def test_dissipator_is_that_of_the_dense_matrices():
    structure = Structure.build(4, 1, [(0, 0, 2), (0, 1, 2)], [(0, 2), (3, 1)], [(0, 0), (1, 1)])
    rng = np.random.default_rng(0)
    operator = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4))
    both = operator.conj().T @ operator
    square = structure.square
    components = rng.normal(size=structure.num_components)
    density = square.kept * components[square.real] + 1j * square.sign * components[square.imaginary]
    change = operator @ density @ operator.conj().T - (both @ density + density @ both) / 2
    above = tuple(np.array(structure.coherences).T)
    populations = np.diag(change)[list(structure.populations)]
    expected = np.concatenate([populations.real, change[above].real, change[above].imag])
    np.testing.assert_allclose(structure.dissipator(operator) @ components, expected, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_nonzeros_are_counted(name):
    structure = both(name)[0]
    # a pair that is there in both directions cancels in part, which the count leaves out
    links = [frozenset(pair) for _, *pair in structure.pairs]
    if len(set(links)) == len(links):
        assert structure.num_terms == len(structure.drive_terms)
    else:
        assert structure.num_terms >= len(structure.drive_terms)
