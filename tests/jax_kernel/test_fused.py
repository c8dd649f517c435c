"""Loops as one kernel: the same numbers as without it, for every kind of system, batch and size."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import Resolution, fused, prepare, propagate
from tests.conftest import lambda_system, two_level

AT = Resolution(5, 1)


def counter_propagating():
    return lambda_system(t_steps=60, z_steps=2, control={"rabi_freq_t_func": "gaussian", "counter_propagating": True,
                         "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 2.0}})  # fmt: skip


def doppler(classes, **top):
    grid = {"thermal_delta_min": -1, "thermal_delta_max": 1, "thermal_delta_steps": classes - 1, "thermal_width": 0.6}
    return lambda_system(velocity_classes=grid, **{"t_steps": 60, "z_steps": 2} | top)


PROBLEMS = {
    "two-level": lambda: two_level(t_steps=60, z_steps=2, rabi_freq=0.5),
    "lambda": lambda: lambda_system(t_steps=60, z_steps=2),
    "no decay": lambda: two_level(rate=None, t_steps=60, z_steps=2, rabi_freq=0.5),
    "from both ends": counter_propagating,
    "9 classes": lambda: doppler(9),
    "dense operator": lambda: lambda_system(
        t_steps=60,
        z_steps=2,
        system={"decays": [{"rate": 0.3, "operator": [[0.0, 0.5, 0.2], [0.0, 0.1, 0.0], [0.0, 0.4, 0.0]]}]},
    ),
    "nothing driven": lambda: two_level(t_steps=60, z_steps=2, factors=[0.0]),
}


@pytest.fixture
def plain(monkeypatch):
    """A function that takes fusion away."""

    def take_away():
        monkeypatch.setattr(fused, "is_available", lambda structure: False)
        prepare.prepare.cache_clear()

    yield take_away
    prepare.prepare.cache_clear()


def both(plain, function, *arguments):
    if not fused.is_available(prepare.structure_of(lambda_system(), "")):
        pytest.skip("this jaxlib or device makes no single kernel of the loops")
    mine = function()(*arguments)
    plain()
    return zip(jax.tree.leaves(mine), jax.tree.leaves(function()(*arguments)), strict=True)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_fields_states_and_gradients_are_those_of_separate_kernels(name, dtype, plain):
    problem = PROBLEMS[name]()
    with jax.enable_x64(dtype == "float64"):
        params = {"rabi_freq": jnp.asarray([0.5, 1.5][: len(problem.fields)], dtype),
                  "interaction_strengths": jnp.asarray([1.0, 1.4][: len(problem.fields)], dtype),
                  "detunings": jnp.asarray([0.2, -0.1][: len(problem.fields)], dtype)}  # fmt: skip

        def run():
            def value(params):
                s = propagate(problem, params, resolution=AT, tol=1.0, outputs=("populations",), memory="lean")
                return jnp.sum(jnp.abs(s.fields) ** 2) + jnp.sum(s.populations[..., 0]), (s.fields, s.populations)

            return jax.jit(jax.value_and_grad(value, has_aux=True))

        for a, b in both(plain, run, params):
            rtol, atol = (1e-9, 1e-12) if dtype == "float64" else (1e-3, 1e-5)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize("batch", [(3,), (2, 2)])
def test_batches_of_light_and_of_matter(batch, plain, x64):
    problem = lambda_system(t_steps=40, z_steps=2)
    many = 1 + 0.1 * jnp.arange(float(np.prod(batch))).reshape(batch)
    params = {"rabi_freq": many[..., None] * jnp.asarray([0.3, 1.0]), "decay_rates": many[..., None]}

    def run():
        return jax.jit(jax.grad(lambda p: jnp.sum(jnp.abs(propagate(problem, p, resolution=AT, tol=1.0).fields) ** 2)))

    for a, b in both(plain, run, params):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_constants_alone_and_large_arrays(plain, x64):
    """Nothing to give at run time; and rows that XLA would share between threads, in sums that it would look up."""
    problem = doppler(150, z_steps=3)
    run = lambda: jax.jit(lambda: propagate(problem, resolution=Resolution(96, 1), tol=1.0).fields)  # noqa: E731
    for a, b in both(plain, run):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_gradients_of_some_arguments_alone(x64):
    """What these do not need leaves no argument of the kernel without a use, which XLA would not survive."""
    problem = doppler(3)
    every = {"rabi_freq": jnp.asarray([0.5, 1.5]), "interaction_strengths": jnp.asarray([1.0, 1.4]),
             "detunings": jnp.asarray([0.2, -0.1]), "decay_rates": jnp.asarray([0.8]),
             "initial_state": jnp.asarray([0.7, 0.1, 0.2]), "thermal_width": jnp.asarray(0.7)}  # fmt: skip

    def value(params):
        return jnp.sum(jnp.abs(propagate(problem, every | params, resolution=AT, tol=1.0).fields[:, -1]) ** 2)

    together = jax.jit(jax.grad(value))(every)
    for name, x in every.items():
        np.testing.assert_allclose(jax.jit(jax.grad(value))({name: x})[name], together[name], rtol=1e-8, atol=1e-13)


def test_stored_stages_checkpoints_and_second_derivatives(plain, x64):
    """What differentiates the gradient, which XLA could not compile as one kernel, does without."""
    problem = lambda_system(t_steps=40, z_steps=2)

    def value(g, **options):
        fields = propagate(problem, {"interaction_strengths": g}, resolution=AT, tol=1.0, **options).fields
        return jnp.sum(jnp.abs(fields[:, -1]) ** 2)

    def slope(g):
        return jnp.sum(jax.grad(value)(g) ** 2)

    g = jnp.asarray([1.0, 1.4])

    def run():
        return lambda g: (
            jax.jit(jax.grad(partial(value, memory="fast")))(g),
            jax.jit(jax.grad(jax.checkpoint(value)))(g),
            jax.jit(jax.grad(slope))(g),
            jax.jit(jax.jacfwd(slope))(g),
            jax.hessian(value)(g),
            jax.jacrev(jax.grad(value))(g),
        )

    for a, b in both(plain, run, g):
        np.testing.assert_allclose(a, b, rtol=1e-8)


def test_one_kernel_holds_all_loops(x64):
    """No loop of the steps is left to XLA's own dispatch, and no library is called from one."""
    problem = doppler(9)
    params = {"rabi_freq": jnp.asarray([0.5, 1.5]), "decay_rates": jnp.asarray([0.8])}

    def value(params):
        return jnp.sum(jnp.abs(propagate(problem, params, resolution=AT, tol=1.0).fields) ** 2)

    text = jax.jit(jax.grad(value)).lower(params).compile().as_text()
    entry = text[text.index("\nENTRY") :]
    calls = re.findall(r" call\(.*inlineable=\"false\"", entry)
    assert len(calls) == 2  # forward and back
    loops = re.findall(r" while\(.*?known_trip_count\W+n\W+(\d+)", entry)
    assert all(int(turns) < problem.t_steps / 2 for turns in loops)  # those of the polynomials in z


@pytest.mark.parametrize("count", [1, 2, 4, 5, 8, 9, 16, 19, 40])
def test_sums(count, x64):
    random = np.random.default_rng(count)
    vectors, matrix, start = random.normal(size=(2, 2, count)), random.normal(size=(count, 3)), random.normal(size=3)
    started = np.broadcast_to(start, (2, 2, 3))
    np.testing.assert_allclose(fused.product(jnp.asarray(vectors), jnp.asarray(matrix), jnp.asarray(started)),
                               vectors @ matrix + start, atol=1e-13)  # fmt: skip
    rows = random.normal(size=(2, count, 3))
    np.testing.assert_allclose(fused.class_sum(jnp.asarray(rows)), rows.sum(1), atol=1e-13)
    np.testing.assert_allclose(fused.partial_sum(jnp.asarray(vectors)).sum(-1), vectors.sum(-1), atol=1e-13)
