"""The packed generator against dense matrices, and its transposes against JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import rhs
from jax_kernel.generator import Structure

SYSTEMS = {
    "two-level": (2, 1, [(0, 0, 1)], [(0, 1)]),
    "lambda": (3, 2, [(0, 0, 1), (1, 2, 1)], [(0, 1), (2, 1), (2, 2)]),
    "ladder": (3, 2, [(0, 0, 1), (1, 1, 2)], [(0, 1), (1, 2)]),
    "vee with a reversed pair": (3, 2, [(0, 1, 0), (1, 0, 2)], [(0, 1), (0, 2), (1, 1)]),
    "two fields on one pair": (2, 2, [(0, 0, 1), (1, 0, 1)], [(0, 1)]),
    "five levels": (5, 2, [(0, 0, 3), (0, 1, 4), (1, 2, 3), (1, 2, 4)], [(0, 3), (1, 3), (2, 4), (0, 4), (4, 4)]),
}


def random_case(name, seed=0):
    n, num_fields, pairs, channels = SYSTEMS[name]
    rng = np.random.default_rng(seed)
    structure = Structure.build(n, num_fields, pairs, channels, [(i, i) for i in range(n)])
    energies, factors = rng.normal(size=(n, 2)), rng.normal(size=len(pairs))
    transfer = rng.uniform(0.1, 1, len(channels))
    leaving = np.zeros(n)
    for (_, b), rate in zip(channels, transfer, strict=True):
        leaving[b] += rate
    coefficients = rhs.Coefficients(
        rotation=jnp.asarray([energies[i] - energies[j] for i, j in structure.coherences]),
        damping=jnp.asarray([(leaving[i] + leaving[j]) / 2 for i, j in structure.coherences]),
        transfer=jnp.asarray(transfer),
        mixing=jnp.zeros(0),
        factors=jnp.asarray(factors),
        coupling=jnp.asarray(rng.normal(size=num_fields)),
        weights=jnp.asarray([0.3, 0.7]),
    )
    return structure, coefficients, energies, rng


def pack(structure, density_matrix):
    real = [density_matrix[i, j].real for i, j in structure.coherences]
    imaginary = [density_matrix[i, j].imag for i, j in structure.coherences]
    return np.array([density_matrix[i, i].real for i in structure.populations] + real + imaginary)


@pytest.mark.parametrize("name", SYSTEMS)
def test_derivative_is_that_of_the_dense_master_equation(name, x64):
    structure, coefficients, energies, rng = random_case(name)
    n, _, pairs, channels = SYSTEMS[name]
    matrix = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    density_matrix = matrix @ matrix.conj().T
    rabi = rng.normal(size=(structure.num_fields, 2))
    hamiltonian = np.diag(energies[:, 1]).astype(complex)
    for (field, a, b), factor in zip(pairs, np.asarray(coefficients.factors), strict=True):
        hamiltonian[a, b] += np.pi * factor * (rabi[field, 0] + 1j * rabi[field, 1])
        hamiltonian[b, a] += np.pi * factor * (rabi[field, 0] - 1j * rabi[field, 1])
    expected = -1j * (hamiltonian @ density_matrix - density_matrix @ hamiltonian)
    for (a, b), rate in zip(channels, np.asarray(coefficients.transfer), strict=True):
        jump = np.zeros((n, n))
        jump[a, b] = np.sqrt(rate)
        square = jump.T @ jump
        expected += jump @ density_matrix @ jump.T - (square @ density_matrix + density_matrix @ square) / 2
    state = jnp.asarray(np.repeat(pack(structure, density_matrix)[:, None, None], 2, axis=1))
    rows = rhs.lindblad(structure, coefficients, state, jnp.asarray(rabi)[:, :, None])
    np.testing.assert_allclose(np.array([row[1, 0] for row in rows]), pack(structure, expected), atol=1e-13)

    source = np.asarray(rhs.source(structure, coefficients, state))[..., 0]
    moment = np.zeros(structure.num_fields, complex)
    for (field, a, b), factor in zip(pairs, np.asarray(coefficients.factors), strict=True):
        moment[field] += 1j * float(coefficients.coupling[field]) * factor * density_matrix[a, b]
    np.testing.assert_allclose(source[:, 0] + 1j * source[:, 1], moment, atol=1e-13)


@pytest.mark.parametrize("name", SYSTEMS)
def test_transposes_are_those_of_jax(name, x64):
    structure, coefficients, _, rng = random_case(name)
    state, bar = (jnp.asarray(rng.normal(size=(structure.num_components, 2, 3))) for _ in range(2))
    rabi, source_bar = (jnp.asarray(rng.normal(size=(structure.num_fields, 2, 3))) for _ in range(2))

    def slope(state, rabi):
        return rhs.stack_rows(rhs.lindblad(structure, coefficients, state, rabi), state)

    state_bar, rabi_bar = jax.vjp(slope, state, rabi)[1](bar)
    rows, mine = rhs.lindblad_transpose(structure, coefficients, state, bar, rabi)
    np.testing.assert_allclose(rhs.stack_rows(rows, bar), state_bar, atol=1e-13)
    np.testing.assert_allclose(mine, rabi_bar, atol=1e-13)
    expected = jax.vjp(lambda y: rhs.source(structure, coefficients, y), state)[1](source_bar)[0]
    rows = rhs.add_source_transpose(structure, coefficients, jnp.zeros_like(state), source_bar)
    mine = rhs.stack_rows(rows, state)
    np.testing.assert_allclose(mine, expected, atol=1e-13)


def test_pruning_keeps_what_any_values_could_reach():
    # Rb-like: the populated ground level reaches one excited level, which decays to another ground level
    structure = Structure.build(4, 1, [(0, 0, 2)], [(1, 2)], [(0, 0)])
    assert structure.populations == (0, 1, 2)
    assert structure.coherences == ((0, 2),)
    # an empty level joins the coherences as soon as a second field could bring it in
    structure = Structure.build(4, 2, [(0, 0, 2), (1, 1, 2)], [(1, 2)], [(0, 0)])
    assert structure.coherences == ((0, 1), (0, 2), (1, 2))
