"""propagate(): the adjoint against JAX's own, memory modes, resolution, the adaptive path, refusals under a trace."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import (
    ProblemError,
    Resolution,
    ResolutionError,
    ResolutionWarning,
    choose_resolution,
    integrate,
    program,
    propagate,
)
from tests.conftest import lambda_system, two_level

DOPPLER = {"thermal_delta_min": -1, "thermal_delta_max": 1, "thermal_delta_steps": 2, "thermal_width": 0.6}
FINE = Resolution(8, 2)


def small(**top):
    return lambda_system(t_steps=60, z_steps=3, velocity_classes=DOPPLER, **top)


def parameters(problem):
    """A value of every parameter, away from special points."""
    n = len(problem.fields)
    return {
        "pulse_args": [{"centre": jnp.asarray(0.1), "fwhm": jnp.asarray(0.9)}, {"ampl": jnp.asarray(1.1)}],
        "rabi_freq": jnp.asarray([0.5 + 0.1j, 1.5 - 0.2j]),
        "interaction_strengths": jnp.linspace(1.0, 1.4, n),
        "detunings": jnp.asarray([0.2, -0.1]),
        "decay_scale": jnp.asarray(1.1),
        "decay_rates": jnp.asarray([0.8]),
        "energies": jnp.asarray([0.0, 0.1, -0.1]),
        "number_density": 1 + 0.2 * jnp.arange(4.0),
        "thermal_width": jnp.asarray(0.7),
        "initial_state": jnp.asarray([0.7, 0.1, 0.2]),
    }


def objective(problem, **options):
    """A scalar that depends on all outputs."""
    outputs = ("density_matrix", "populations", "coherences")
    weight = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 61)))

    def value(params):
        s = propagate(problem, params, resolution=FINE, tol=1.0, outputs=outputs, **options)
        light = jnp.sum(weight * (jnp.real(s.fields) + 0.3 * jnp.imag(s.fields)))
        return light + jnp.sum(weight[0, ..., None] * s.populations) + jnp.sum(weight * jnp.imag(s.coherences))

    return value


def test_adjoint_is_that_of_jax(x64, monkeypatch):
    problem = small()
    mine = jax.grad(objective(problem))(parameters(problem))
    monkeypatch.setattr(program, "integrate", integrate.integrate_plain)
    program.executable.cache_clear()
    theirs = jax.grad(objective(problem))(parameters(problem))
    program.executable.cache_clear()
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        assert np.all(np.abs(b) > 0)


def test_memory_modes_give_the_same_gradient(x64):
    problem = small()
    fast, lean = (jax.grad(objective(problem, memory=m))(parameters(problem)) for m in ("fast", "lean"))
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(lean), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


def test_directional_differences_over_a_ladder_of_steps(x64):
    problem = small()
    value = jax.jit(objective(problem))
    point = parameters(problem)
    gradient = jax.grad(value)(point)
    rng = np.random.default_rng(1)
    for key in point:
        along = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), point[key])
        if key == "initial_state":
            along = along - jnp.mean(along)
        exact = sum(
            float(jnp.sum(jnp.real(g * a)))
            for g, a in zip(jax.tree.leaves(gradient[key]), jax.tree.leaves(along), strict=True)
        )
        errors = []
        for h in (1e-2, 1e-3, 1e-4):

            def at(s, key=key, along=along):
                return float(value(point | {key: jax.tree.map(lambda x, d, s=s: x + s * d, point[key], along)}))

            # fourth-order central difference
            difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
            errors.append(abs(difference - exact) / abs(exact))
        assert min(errors) < 1e-8, (key, errors)


def test_adaptive_solver_agrees_with_the_fixed_grid(x64):
    problem = two_level(rabi_freq=1.0, t_steps=60, z_steps=3)

    def energy(g, **options):
        s = propagate(problem, {"interaction_strengths": g}, tol=1e-4, **options)
        return jnp.sum(jnp.abs(s.fields[0, -1]) ** 2), s

    (_, fixed), slope = jax.value_and_grad(energy, has_aux=True)(jnp.ones(1), resolution=Resolution(8, 8))
    for solver, tolerance in ((diffrax.Tsit5(), 1e-6), (diffrax.Kvaerno3(), 1e-5)):
        options = {"resolution": Resolution(8, 1), "solver": solver, "rtol": 0.1 * tolerance, "atol": 0.01 * tolerance}
        (_, adaptive), other = jax.value_and_grad(energy, has_aux=True)(jnp.ones(1), **options)
        assert adaptive.time_error is None
        np.testing.assert_allclose(adaptive.fields, fixed.fields, atol=tolerance)
        np.testing.assert_allclose(other, slope, rtol=100 * tolerance)


def test_adaptive_solver_does_not_step_over_a_pulse(x64):
    # 20 samples across the pulse in a window of 400 intervals; clerq's adaptive path misses such pulses
    problem = two_level(args={"n_pi": 1.0, "centre": 50.0, "fwhm": 5.0}, rate=None, g=0.01, rabi_freq=1.0, t_min=0.0,
                        t_max=100.0, t_steps=400, z_steps=2)  # fmt: skip
    s = propagate(problem, resolution=Resolution(8, 1), solver=diffrax.Tsit5(), tol=1e-3, outputs=("populations",))
    assert s.populations[0, -1, 1] > 0.999


def test_auto_meets_its_tolerance_and_says_so(x64):
    problem = small()
    best = propagate(problem, resolution=Resolution(24, 24))
    for tol in (1e-3, 1e-6):
        s = propagate(problem, tol=tol)
        assert max(float(s.z_error), float(s.time_error)) <= tol
        peak = np.abs(best.fields).max((1, 2), keepdims=True)
        assert np.max(np.abs(s.fields - best.fields) / peak) <= 2 * tol
        assert choose_resolution(problem, tol=tol) == s.resolution


def test_estimates_follow_the_true_errors(x64):
    problem = small()
    best = np.asarray(propagate(problem, resolution=Resolution(24, 24)).fields)
    peak = np.abs(best).max((1, 2), keepdims=True)
    for at in (Resolution(24, 2), Resolution(24, 3), Resolution(24, 4)):
        s = propagate(problem, resolution=at, tol=1.0)
        true = np.max(np.abs(s.fields - best) / peak)
        assert true / 3 < float(s.time_error) < 3 * true


def test_a_coarse_grid_warns_with_the_remedy(x64):
    problem = small()
    with pytest.warns(ResolutionWarning, match="raise `z_nodes` above 2"):
        propagate(problem, resolution=Resolution(2, 8))


def test_a_blown_up_run_raises_with_place_and_remedy(x64):
    problem = lambda_system(control={"rabi_freq": 300.0}, t_steps=30)
    with pytest.raises(ResolutionError, match=r"from z = .*, t = .*raise `t_substeps`"):
        propagate(problem, resolution=Resolution(4, 1))


def test_time_error_is_infinite_where_its_twin_diverges(x64):
    problem = lambda_system(
        probe={"rabi_freq": 40.0, "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 1.5}},
        control={"rabi_freq": 50.0, "rabi_freq_t_args": {"ampl": 1.0, "fwhm": 1.0, "on": -1e8, "off": 1e8}},
        rate=0.0,
        g=(2000.0, 2000.0),
        t_steps=320,
    )
    with pytest.warns(ResolutionWarning):
        solution = propagate(problem, resolution=Resolution(24, 8), tol=1e300)
    assert solution.time_error == np.inf


def test_out_of_reach_raises_with_the_estimates(x64):
    problem = two_level(rabi_freq=3e4, t_steps=10)
    with pytest.raises(ResolutionError, match="refine the problem's t_steps"):
        propagate(problem)


def test_auto_under_a_trace_is_refused(x64):
    problem = small()
    with pytest.raises(ProblemError, match="`resolution` must be a Resolution under jit"):
        jax.jit(lambda g: propagate(problem, {"interaction_strengths": g}).fields)(jnp.ones(2))


def test_batches_equal_single_runs(x64):
    problem = small()
    strengths = jnp.asarray([[1.0, 2.0], [0.5, 1.0], [0.0, 0.1]])
    rates = jnp.asarray([[[0.5]], [[1.5]]])
    together = propagate(problem, {"interaction_strengths": strengths, "decay_rates": rates}, resolution=FINE, tol=1.0)
    assert together.fields.shape == (2, 3, 2, 4, 61)
    assert together.z_error.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            params = {"interaction_strengths": strengths[j], "decay_rates": rates[i, 0]}
            alone = propagate(problem, params, resolution=FINE, tol=1.0)
            np.testing.assert_allclose(together.fields[i, j], alone.fields, atol=1e-13)


def test_vmap_equals_the_batch(x64):
    problem = small()
    strengths = jnp.asarray([[1.0, 2.0], [0.5, 1.0]])

    def energy(g):
        return jnp.sum(jnp.abs(propagate(problem, {"interaction_strengths": g}, resolution=FINE, tol=1.0).fields) ** 2)

    each = jnp.stack([jax.grad(energy)(g) for g in strengths])
    np.testing.assert_allclose(jax.vmap(jax.grad(energy))(strengths), each, rtol=1e-10)


def test_precision_follows_the_inputs():
    problem = two_level(t_steps=20)
    single = propagate(problem, resolution=FINE, tol=1.0)
    assert single.fields.dtype == np.complex64
    with jax.enable_x64(True):
        assert propagate(problem, resolution=FINE, tol=1.0).fields.dtype == np.complex128
        g = jnp.ones(1, np.float32)
        out = propagate(problem, {"interaction_strengths": g}, resolution=FINE, tol=1.0)
        assert out.fields.dtype == np.complex64
        assert out.time.dtype == np.float32
        np.testing.assert_array_equal(out.fields, single.fields)
    with pytest.raises(ProblemError, match=r"jax\.enable_x64"):
        propagate(problem, dtype="float64")


def test_solution_prints_four_lines(x64):
    text = repr(propagate(two_level(t_steps=20), resolution=FINE, tol=1.0))
    assert len(text.splitlines()) == 5
    assert "error       z " in text


def test_a_pulse_between_all_stages_is_not_overlooked(x64):
    problem = two_level(args={"n_pi": 1.0, "centre": 0.0437, "fwhm": 1e-4}, rabi_freq=1.0, t_steps=30)
    with pytest.raises(ResolutionError, match="inf"):
        propagate(problem)
    with pytest.warns(ResolutionWarning, match="`t_substeps`"):
        assert propagate(problem, resolution=Resolution(12, 1)).time_error == np.inf


def test_estimates_cover_the_states_that_are_asked_for(x64):
    problem = two_level(envelope="square", args={"ampl": 1.0, "on": -4.0, "off": 8.0}, rabi_freq=3.0, g=0.0, t_steps=60)
    outputs = ("populations",)
    fine = propagate(problem, resolution=Resolution(12, 16), tol=1.0, outputs=outputs).populations
    with pytest.warns(ResolutionWarning):
        coarse = propagate(problem, resolution=Resolution(12, 1), outputs=outputs)
    assert np.max(np.abs(coarse.populations - fine)) < 2 * float(coarse.time_error)


def test_float32_far_from_time_zero_is_refused():
    problem = two_level(args={"ampl": 1.0, "centre": 1e5, "fwhm": 1.0}, t_min=1e5 - 3, t_max=1e5 + 3)
    with pytest.raises(ProblemError, match="float64"):
        propagate(problem, resolution=FINE)
