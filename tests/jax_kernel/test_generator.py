"""The packed generator against dense matrices, and its transposes against JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import rhs
from jax_kernel.generator import Structure

# number of levels and of fields, driven pairs, decay channels, nonzeros of dense collapse operators
SYSTEMS = {
    "two-level": (2, 1, [(0, 0, 1)], [(0, 1)], []),
    "lambda": (3, 2, [(0, 0, 1), (1, 2, 1)], [(0, 1), (2, 1), (2, 2)], []),
    "ladder": (3, 2, [(0, 0, 1), (1, 1, 2)], [(0, 1), (1, 2)], []),
    "vee with a reversed pair": (3, 2, [(0, 1, 0), (1, 0, 2)], [(0, 1), (0, 2), (1, 1)], []),
    "two fields on one pair": (2, 2, [(0, 0, 1), (1, 0, 1)], [(0, 1)], []),
    "five levels": (5, 2, [(0, 0, 3), (0, 1, 4), (1, 2, 3), (1, 2, 4)], [(0, 3), (1, 3), (2, 4), (0, 4), (4, 4)], []),
    "coherent decay": (3, 1, [(0, 0, 1)], [(2, 2)], [((0, 1), (0, 2))]),
    "coherent dephasing": (3, 1, [(0, 0, 1)], [(0, 1)], [((1, 1), (2, 2)), ((0, 2),)]),
    "chain of operators": (5, 1, [(0, 0, 1)], [], [((2, 1),), ((3, 2), (4, 2))]),
    "dense operators": (4, 2, [(0, 0, 1), (1, 2, 3)], [(0, 3)], [tuple(np.ndindex(4, 4)), ((0, 1), (1, 0), (2, 3))]),
}


def random_case(name, seed=0):
    n, num_fields, pairs, channels, nonzeros = SYSTEMS[name]
    rng = np.random.default_rng(seed)
    structure = Structure.build(n, num_fields, pairs, channels, [(i, i) for i in range(n)], nonzeros)
    energies, factors = rng.normal(size=(n, 2)), rng.normal(size=len(pairs))
    transfer, operators = rng.uniform(0.1, 1, len(channels)), random_operators(name, rng)
    leaving = np.zeros(n)
    for (_, b), rate in zip(channels, transfer, strict=True):
        leaving[b] += rate
    coefficients = rhs.Coefficients(
        rotation=jnp.asarray([energies[i] - energies[j] for i, j in structure.coherences]),
        damping=jnp.asarray([(leaving[i] + leaving[j]) / 2 for i, j in structure.coherences]),
        transfer=jnp.asarray(transfer),
        mixing=jnp.asarray(structure.mixing(operators).sum(0)),
        factors=jnp.asarray(factors),
        coupling=jnp.asarray(rng.normal(size=num_fields)),
        weights=jnp.asarray([0.3, 0.7]),
    )
    return structure, coefficients, energies, operators, rng


def random_operators(name, rng):
    n, *_, nonzeros = SYSTEMS[name]
    operators = np.zeros((len(nonzeros), n, n), complex)
    for operator, at in zip(operators, nonzeros, strict=True):
        operator[tuple(np.transpose(at))] = rng.normal(size=len(at)) + 1j * rng.normal(size=len(at))
    return operators


def dissipated(operator, density_matrix):
    """M ρ M† − ½{M†M, ρ}."""
    square = operator.conj().T @ operator
    return operator @ density_matrix @ operator.conj().T - (square @ density_matrix + density_matrix @ square) / 2


def pack(structure, density_matrix):
    real = [density_matrix[i, j].real for i, j in structure.coherences]
    imaginary = [density_matrix[i, j].imag for i, j in structure.coherences]
    return np.array([density_matrix[i, i].real for i in structure.populations] + real + imaginary)


@pytest.mark.parametrize("name", SYSTEMS)
def test_derivative_is_that_of_the_dense_master_equation(name, x64):
    structure, coefficients, energies, operators, rng = random_case(name)
    n, _, pairs, channels, _ = SYSTEMS[name]
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
        expected += dissipated(jump, density_matrix)
    expected += sum(dissipated(operator, density_matrix) for operator in operators)
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
    structure, coefficients, *_, rng = random_case(name)
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


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("populated", [0, 1])
def test_kept_elements_are_those_that_the_dense_generator_reaches(name, populated):
    n, num_fields, pairs, channels, nonzeros = SYSTEMS[name]
    rng = np.random.default_rng(1)
    structure = Structure.build(n, num_fields, pairs, channels, [(populated, populated)], nonzeros)
    hamiltonian = np.zeros((n, n), complex)
    for _, a, b in pairs:
        hamiltonian[a, b] += complex(*rng.normal(size=2))
    hamiltonian += hamiltonian.conj().T
    units = np.eye(n * n).reshape(n, n, n, n)
    jumps = [rng.normal() * units[a, b] for a, b in channels] + list(random_operators(name, rng))

    def change(density_matrix):
        commutator = hamiltonian @ density_matrix - density_matrix @ hamiltonian
        return -1j * commutator + sum(dissipated(jump, density_matrix) for jump in jumps)

    generator = np.stack([change(unit).ravel() for unit in units.reshape(-1, n, n)], -1)
    linked = np.abs(generator) > 1e-12
    reached = units[populated, populated].ravel() > 0
    for _ in range(n * n):
        reached = reached | (linked @ reached)
    elements = {(int(i), int(j)) for i, j in np.argwhere(reached.reshape(n, n)) if i <= j}
    assert {(i, i) for i in structure.populations} | set(structure.coherences) == elements


@pytest.mark.parametrize("name", [name for name, (*_, nonzeros) in SYSTEMS.items() if nonzeros])
def test_terms_of_dense_operators_are_their_nonzeros_for_any_values(name):
    structure, *_, rng = random_case(name)
    operators = random_operators(name, rng)
    matrices = np.array([structure.dissipator(operator) for operator in operators])
    assert set(structure.mixing_terms) == set(map(tuple, np.argwhere(np.any(np.abs(matrices) > 1e-12, 0)).tolist()))
    rebuilt = np.zeros_like(matrices)
    rebuilt[:, *np.transpose(structure.mixing_terms)] = structure.mixing(operators)
    np.testing.assert_allclose(rebuilt, matrices, rtol=0, atol=1e-13)
