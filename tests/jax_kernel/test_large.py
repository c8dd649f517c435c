"""The contraction of large systems, on blocks of levels, against the unrolled one and against the dense matrices."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jax_kernel import Problem, Resolution, generator, prepare, propagate, rhs
from jax_kernel.generator import Structure
from tests.jax_kernel.test_generator import SYSTEMS
from torch_clerq import TorchPropagator

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
    n, fields, pairs, channels, *_ = CASES[name]
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


@pytest.fixture
def force(monkeypatch):
    """Choose the contraction."""

    def choose(unrolled):
        monkeypatch.setattr(generator, "UNROLLED_LIMIT", 10**9 if unrolled else -1)
        prepare.structure_of.cache_clear()
        prepare.prepare.cache_clear()

    yield choose
    monkeypatch.undo()
    prepare.structure_of.cache_clear()
    prepare.prepare.cache_clear()


MEDIUM = Problem.from_dict({
    "system": {
        "num_states": 4,
        "fields": [
            {"coupled_levels": [[0, 2], [0, 3]], "factors": [0.5, -0.7], "rabi_freq": 0.5,
             "rabi_freq_t_func": "gaussian", "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 1.0}},
            {"coupled_levels": [[1, 2], [1, 3]], "factors": [0.8, 0.3], "rabi_freq": 1.5,
             "rabi_freq_t_func": "ramp_onoff", "rabi_freq_t_args": {"ampl": 1.0, "fwhm": 0.5, "on": -1.0, "off": 5.0}},
        ],
        "decays": [{"rate": 1.0, "channels": [[0, 2], [1, 3], [1, 1]], "factors": [0.7, 1.0, 0.2]},
                   {"rate": 0.5, "operator": [[0.0, 0.0, 0.3, 0.5]] + [[0.0] * 4] * 3}],
    },
    "t_min": -3.0, "t_max": 7.0, "t_steps": 40, "z_steps": 4, "interaction_strengths": [3.0, 2.0],
    "velocity_classes": {"thermal_delta_min": -1, "thermal_delta_max": 1, "thermal_delta_steps": 2,
                         "thermal_width": 0.6},
})  # fmt: skip


def parameters():
    return {
        "rabi_freq": jnp.asarray([0.5 + 0.1j, 1.5 - 0.2j]),
        "interaction_strengths": jnp.asarray([3.0, 2.0]),
        "detunings": jnp.asarray([0.2, -0.1]),
        "decay_rates": jnp.asarray([0.8, 0.6]),
        "thermal_width": jnp.asarray(0.7),
        "initial_state": jnp.asarray([0.6, 0.3, 0.1, 0.0]),
    }


def objective(**options):
    weight = jnp.asarray(np.random.default_rng(0).normal(size=(4, 5, 41)))
    outputs = ("density_matrix", "populations", "coherences")

    def value(params):
        s = propagate(MEDIUM, params, resolution=Resolution(6, 3), tol=1.0, outputs=outputs, **options)
        light = jnp.sum(weight[:2] * (jnp.real(s.fields) + 0.3 * jnp.imag(s.fields)))
        levels = jnp.moveaxis(s.populations + jnp.imag(s.density_matrix[..., 3]), -1, 0)
        return light + jnp.sum(weight * levels) + jnp.sum(weight[:2] * jnp.imag(s.coherences))

    return jax.jit(value)


@pytest.mark.parametrize("options", [{"memory": "fast"}, {"solver": "exponential"}], ids=str)
def test_a_propagation_and_its_gradient_are_the_same_both_ways(options, x64, force):
    options = {"solver": "runge-kutta"} | options
    force(unrolled=True)
    theirs = jax.jit(jax.value_and_grad(objective(**options)))(parameters())
    force(unrolled=False)
    mine = jax.jit(jax.value_and_grad(objective(**options)))(parameters())
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert np.all(np.abs(b) > 0)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.max(np.abs(b)))


def test_gradient_is_that_of_differences(x64, force):
    force(unrolled=False)
    value = objective(solver="runge-kutta", memory="lean")
    point = parameters()
    gradient = jax.jit(jax.grad(value))(point)
    rng = np.random.default_rng(1)
    along = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), point)
    exact = sum(
        float(jnp.sum(jnp.real(g * a))) for g, a in zip(*(jax.tree.leaves(x) for x in (gradient, along)), strict=True)
    )

    def at(step):
        return float(value(jax.tree.map(lambda x, d: x + step * d, point, along)))

    h = 1e-3  # fourth-order central difference
    difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    assert abs(difference - exact) < 1e-8 * abs(exact)


def test_batches_equal_single_runs(x64, force):
    force(unrolled=False)
    rates = jnp.asarray([[0.8, 0.6], [0.2, 1.0]])
    options = {"resolution": Resolution(6, 4), "tol": 1.0, "solver": "runge-kutta"}
    together = propagate(MEDIUM, {"decay_rates": rates}, **options).fields
    for k in range(2):
        alone = propagate(MEDIUM, {"decay_rates": rates[k]}, **options).fields
        np.testing.assert_allclose(together[k], alone, atol=1e-13)


MANY_LEVELS = Problem.from_dict({
    "system": {
        "num_states": 14,
        "fields": [{"coupled_levels": [[a, b] for a in range(7) for b in range(7, 14)], "rabi_freq": 0.1,
                    "rabi_freq_t_func": "gaussian", "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 1.0}}],
        "decays": [{"rate": 1.0, "channels": [[a, a + 7] for a in range(7)]}],
    },
    "t_min": -2.0, "t_max": 4.0, "t_steps": 40, "z_steps": 4, "interaction_strengths": [0.3],
})  # fmt: skip


def test_many_levels_through_the_layer():
    structure = prepare.structure_of(MANY_LEVELS, "")
    assert not structure.unrolled
    assert structure.num_terms > generator.UNROLLED_LIMIT
    layer = TorchPropagator(
        MANY_LEVELS, trainable=("rabi_freq", "interaction_strengths"), dtype=torch.float64, resolution=Resolution(6, 1),
        tol=1.0,
    )  # fmt: skip
    assert torch.autograd.gradcheck(lambda *_: layer()[:, -1].abs().square().sum(), tuple(layer.parameters()))
