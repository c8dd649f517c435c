"""scheme="march": gradients of every parameter, strategies, constant steps, failures, and what is refused."""

import dataclasses

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import (
    MarchResolution,
    Problem,
    ProblemError,
    Resolution,
    ResolutionError,
    ResolutionWarning,
    choose_resolution,
    propagate,
)
from tests.conftest import lambda_system, two_level

DOPPLER = {"thermal_delta_min": -1, "thermal_delta_max": 1, "thermal_delta_steps": 2, "thermal_width": 0.6}
MARCH = {"scheme": "march", "tol": 1e3}
TIGHT = MARCH | {"rtol": 1e-11, "atol": 1e-13}
CONSTANT = MARCH | {"n_steps": 61}


def small(**top):
    window = {"t_steps": 30, "z_min": 0.0, "z_max": 1.0, "z_steps": 2, "z_steps_inner": 2, "velocity_classes": DOPPLER}
    magnet = {"b_field": {"magnitude": 0.2, "g_F": [0.5, -0.3, 0.1], "m_F": [1, 1, 0]}}
    return lambda_system(**{"system": magnet} | window | top)


def parameters(problem):
    """A value of every parameter, away from special points; the probe is sampled, the control a pulse."""
    time = jnp.asarray(problem.time)
    return {
        "pulse_args": [{}, {"ampl": jnp.asarray(1.1), "fwhm": jnp.asarray(0.6), "on": jnp.asarray(-0.9)}],
        "rabi_freq": jnp.asarray([1.0 + 0.0j, 1.5 - 0.2j]),
        "interaction_strengths": jnp.asarray([1.0, 1.4]),
        "detunings": jnp.asarray([0.2, -0.1]),
        "decay_scale": jnp.asarray(1.1),
        "decay_rates": jnp.asarray([0.8]),
        "energies": jnp.asarray([0.0, 0.1, -0.1]),
        "b_field": jnp.asarray(0.3),
        "number_density": 1 + 0.2 * jnp.arange(3.0),
        "thermal_width": jnp.asarray(0.7),
        "initial_state": jnp.asarray([0.7, 0.1, 0.2]),
        "input_fields": {"probe": jax.lax.complex(jnp.exp(-(time**2)), 0.2 * jnp.sin(time))},
    }


def objective(problem, **options):
    """A scalar that depends on all outputs."""
    rng = np.random.default_rng(0)
    light = jnp.asarray(rng.normal(size=(2, 3, 31)))
    matter = jnp.asarray(rng.normal(size=(3, 31, 3, 3)))

    def value(params):
        params = dict(params)
        samples = params.pop("input_fields")
        outputs = ("density_matrix", "populations", "coherences")
        s = propagate(problem, params, input_fields=samples, outputs=outputs, **options)
        total = jnp.sum(light * (jnp.real(s.fields) + 0.3 * jnp.imag(s.fields)))
        total = total + jnp.sum(matter * (jnp.real(s.density_matrix) - 0.7 * jnp.imag(s.density_matrix)))
        return total + jnp.sum(matter[..., 0] * s.populations) + jnp.sum(light * jnp.imag(s.coherences))

    return value


def direction(params):
    """A random direction for every leaf; populations keep their sum."""
    rng = np.random.default_rng(1)
    along = jax.tree.map(
        lambda x: jnp.asarray(
            rng.normal(size=x.shape) + (1j * rng.normal(size=x.shape) if jnp.iscomplexobj(x) else 0.0)
        ),
        params,
    )
    return along | {"initial_state": along["initial_state"] - jnp.mean(along["initial_state"])}


def product(gradient, along):
    """The derivative along a direction, of JAX's gradient (which for complex numbers is the conjugate)."""
    leaves = zip(jax.tree.leaves(gradient), jax.tree.leaves(along), strict=True)
    return sum(float(jnp.sum(jnp.real(g * d))) for g, d in leaves)


def test_reverse_is_forward_is_differences_for_every_parameter(x64):
    problem = small()
    point = parameters(problem)
    along = direction(point)
    gradient = jax.jit(jax.grad(objective(problem, **CONSTANT)))(point)
    value = jax.jit(objective(problem, **CONSTANT))
    forward = objective(problem, **CONSTANT, mode="forward")

    @jax.jit
    def derivative(tangent):
        return jax.jvp(forward, (point,), (tangent,))[1]

    still = jax.tree.map(jnp.zeros_like, along)
    for key in point:
        exact = product(gradient[key], along[key])
        np.testing.assert_allclose(exact, derivative(still | {key: along[key]}), rtol=1e-9)
        errors = []
        for h in (1e-2, 1e-3, 1e-4):

            def at(s, key=key):
                return float(value(point | {key: jax.tree.map(lambda x, d, s=s: x + s * d, point[key], along[key])}))

            difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
            errors.append(abs(difference - exact) / abs(exact))
        assert min(errors) < 1e-8, (key, errors)


def test_strategies_give_the_same_gradient(x64):
    problem = small()
    point = parameters(problem)
    gradients = [
        jax.jit(jax.grad(objective(problem, **TIGHT, **options)))(point)
        for options in ({"strategy": "s2"}, {"strategy": "s3"}, {"strategy": "s4", "checkpoints": 6})
    ]
    for other in gradients[1:]:
        for a, b in zip(jax.tree.leaves(gradients[0]), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_gradients_of_march_and_cross_approach_each_other_in_second_order(x64):
    def energy(problem, g, **options):
        s = propagate(problem, {"interaction_strengths": g}, **options)
        return jnp.sum(jnp.abs(s.fields[0, -1]) ** 2)

    g = jnp.asarray([1.5, 1.0])
    problem = small(z_steps=1, t_steps=120, velocity_classes=None, probe={"rabi_freq": 0.5})
    cross = jax.grad(lambda g: energy(problem, g, resolution=Resolution(16, 8), tol=1.0))(g)
    errors = []
    for inner in (4, 12):
        finer = dataclasses.replace(problem, z_steps_inner=inner)
        marched = jax.grad(lambda g, p=finer: energy(p, g, **MARCH))(g)
        errors.append(float(jnp.max(jnp.abs(marched - cross)) / jnp.max(jnp.abs(cross))))
    assert 6 < errors[0] / errors[1] < 14, errors


@pytest.mark.parametrize("n_steps", [30, 40, 90])
def test_constant_steps_on_the_time_grid_are_refused_before_tracing(n_steps, x64):
    problem = two_level(t_steps=10, z_steps=2)
    with pytest.raises(ProblemError, match=r"`n_steps` must have no common divisor .*diffrax 0.7.*: take"):
        jax.jit(lambda n: propagate(problem, {"number_density": n}, n_steps=n_steps, **MARCH).fields)(jnp.ones(()))


def test_gradient_of_a_jump_on_the_time_grid(x64):
    """Adaptive steps that start at an edge of a square pulse, which is a time of the grid."""
    problem = two_level(envelope="square", args={"ampl": 1.0, "on": -1.0, "off": 2.0}, rabi_freq=0.3, t_steps=20,
                        z_min=0.0, z_max=1.0, z_steps=2)  # fmt: skip

    def energy(rate, **options):
        s = propagate(problem, {"decay_rates": rate}, **MARCH, outputs=("populations",), **options)
        return jnp.sum(jnp.abs(s.fields) ** 2) + jnp.sum(s.populations[:, 5:, 1])

    reverse = jax.grad(energy)(jnp.ones(1))
    forward = jax.jvp(lambda r: energy(r, mode="forward"), (jnp.ones(1),), (jnp.ones(1),))[1]
    np.testing.assert_allclose(reverse[0], forward, rtol=1e-9)
    with pytest.raises(
        ProblemError, match=r"`n_steps` must be left out where a pulse jumps .*, but one jumps at t = -1"
    ):
        energy(jnp.ones(1), n_steps=401)


def test_a_batch_is_its_elements(x64):
    problem = two_level(t_steps=30, z_steps=2, rabi_freq=0.3)
    strengths = jnp.asarray([[0.5], [1.0], [2.0]])
    batch = propagate(problem, {"interaction_strengths": strengths}, **MARCH)
    assert batch.fields.shape == (3, 1, 3, 31)
    assert batch.z_error.shape == (3,)
    for g, fields in zip(strengths, batch.fields, strict=True):
        np.testing.assert_allclose(propagate(problem, {"interaction_strengths": g}, **MARCH).fields, fields, atol=1e-9)


def test_density_factor_and_samples_scale_the_same_medium(x64):
    problem = two_level(t_steps=30, z_steps=2, z_min=0.0, z_max=1.0, rabi_freq=0.3)
    runs = [
        propagate(problem, params, **MARCH).fields
        for params in (
            {"interaction_strengths": jnp.asarray([1.5])},
            {"number_density": jnp.asarray(1.5)},
            {"number_density": jnp.full(3, 1.5)},
        )
    ]
    np.testing.assert_allclose(runs[1], runs[0], atol=1e-12)
    np.testing.assert_allclose(runs[2], runs[0], atol=1e-12)


def test_no_pulse_is_stepped_over(x64):
    problem = two_level(args={"n_pi": 1.0, "centre": 50.0, "fwhm": 5.0}, rate=None, g=0.01, rabi_freq=1.0, t_min=0.0,
                        t_max=100.0, t_steps=400, z_steps=2)  # fmt: skip
    s = propagate(problem, scheme="march", outputs=("populations",))
    assert s.populations[0, -1, 1] > 0.999


def test_auto_inner_steps_meet_the_tolerance(x64):
    problem = two_level(t_steps=60, z_min=0.0, z_max=1.0, z_steps=2, z_steps_inner="auto", g=2.0)
    s = propagate(problem, scheme="march", tol=3e-3)
    assert isinstance(s.resolution, MarchResolution)
    assert s.resolution.z_steps_inner > 2
    assert s.time_error is None
    assert float(s.z_error) <= 3e-3
    assert choose_resolution(problem, scheme="march", tol=3e-3) == s.resolution
    exact = propagate(problem, resolution=Resolution(16, 8))
    assert np.max(np.abs(s.fields - exact.fields)) < 3e-3 * np.max(np.abs(exact.fields))
    with pytest.raises(ProblemError, match=r"`problem.z_steps_inner` must be an integer under jit.*choose_resolution"):
        jax.jit(lambda g: propagate(problem, {"interaction_strengths": g}, scheme="march").fields)(jnp.ones(1))


def test_auto_starts_from_an_unstable_march(x64):
    problem = two_level(t_steps=60, z_min=0.0, z_max=1.0, z_steps=10, z_steps_inner="auto", g=40.0, t_max=60.0,
                        args={"ampl": 1.0, "on": -1.0, "fwhm": 1.0}, envelope="ramp_on")  # fmt: skip
    s = propagate(problem, scheme="march", tol=0.1)
    assert float(s.z_error) <= 0.1


def test_a_coarse_step_warns_with_the_remedy(x64):
    problem = two_level(t_steps=60, z_min=0.0, z_max=1.0, z_steps=2, z_steps_inner=1, g=2.0)
    with pytest.warns(ResolutionWarning, match="raise `z_steps_inner` above 1 .* in the problem"):
        propagate(problem, scheme="march")


def test_an_unstable_march_raises_where_and_what_to_raise(x64):
    problem = two_level(t_steps=60, z_steps=10, z_steps_inner=1, g=200.0, t_max=60.0,
                        args={"ampl": 1.0, "on": -1.0, "fwhm": 1.0}, envelope="ramp_on")  # fmt: skip
    with pytest.raises(ResolutionError, match=r"blows up at z = 0\.\d+, t = .*raise `z_steps_inner` to 2 or more"):
        propagate(problem, **MARCH)
    inside = jax.jit(lambda g: propagate(problem, {"interaction_strengths": g}, **MARCH).z_error)
    assert np.isinf(inside(jnp.asarray([200.0])))


def test_an_exhausted_step_budget_says_where_and_what_to_try(x64):
    with pytest.raises(
        ResolutionError, match=r"`max_steps`, but 20 steps do not reach t_max, at z = .*, t = -?\d.*loosen"
    ):
        propagate(two_level(t_steps=60, z_steps=2), **MARCH, max_steps=20)


def test_depletion_of_light_against_the_march(x64):
    content = two_level(t_steps=40, z_min=0.0, z_max=1.0, z_steps=2, z_steps_inner=2).to_dict()
    content["system"]["fields"][0] |= {"counter_propagating": True, "factor_doppler_shift": -1.0}
    problem = Problem.from_dict(content)
    propagate(problem, {"interaction_strengths": jnp.asarray([1e-3])}, **MARCH)
    with pytest.warns(ResolutionWarning, match=r'field 0 .* changes by more than 1% of its peak: take scheme="cross"'):
        propagate(problem, {"interaction_strengths": jnp.asarray([0.03])}, **MARCH)
    with pytest.raises(ResolutionError, match=r'changes by \d\d\.\d% of its peak: take scheme="cross"'):
        propagate(problem, {"interaction_strengths": jnp.asarray([1.0])}, **MARCH)


def test_solvers(x64):
    problem = two_level(t_steps=30, z_steps=2, rabi_freq=0.3)
    default = propagate(problem, **TIGHT).fields
    for solver, options in (
        (diffrax.Dopri8(), {}),
        (diffrax.Kvaerno5(), {"rtol": 1e-7, "atol": 1e-9}),
        (diffrax.Heun(), {"n_steps": 3001}),
    ):
        np.testing.assert_allclose(propagate(problem, solver=solver, **MARCH | options).fields, default, atol=3e-6)


def test_float32(x64):
    problem = two_level(t_steps=60, z_steps=2, z_steps_inner=4, rabi_freq=0.3)
    single = propagate(problem, scheme="march", dtype="float32", tol=1.0)
    assert single.fields.dtype == jnp.complex64
    np.testing.assert_allclose(single.fields, propagate(problem, **MARCH).fields, atol=1e-5)


REFUSED = [
    ({"resolution": Resolution(8, 1)}, r"`resolution` must be a MarchResolution or left out with scheme=\"march\""),
    ({"memory": "lean"}, "`memory` must be left out .* `strategy`"),
    ({"step": "rk4"}, "`step` must be one of 'ab', 'euler', but is 'rk4'"),
    ({"strategy": "s1"}, "`strategy` must be one of"),
    ({"strategy": "s4"}, "`checkpoints` must be an integer of at least 1"),
    ({"checkpoints": 3}, "`checkpoints` must be left out unless strategy"),
    ({"mode": "both"}, "`mode` must be one of"),
    ({"mode": "forward", "strategy": "s2"}, "`strategy` must be left out with mode"),
    ({"n_steps": 0}, "`n_steps` must be an integer from 1 to 1000000"),
    ({"n_steps": 10**12}, "`n_steps` must be an integer from 1 to 1000000"),
    ({"n_steps": 99}, r"`n_steps` must be at least the problem's t_steps \(100\), .*: take 101"),
    ({"n_steps": 101, "rtol": 1e-3}, "`rtol` must be left out with `n_steps`"),
    ({"n_steps": 101, "solver": "rk4"}, "`solver` must be a diffrax solver"),
    ({"solver": diffrax.Euler()}, "`solver` must be 'auto' or a diffrax solver with error estimates"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_a_march_refuses(options, message):
    with pytest.raises(ProblemError, match=message):
        propagate(two_level(z_steps_inner=1), **{"scheme": "march"} | options)


@pytest.mark.parametrize("options", [{"step": "ab"}, {"strategy": "s3"}, {"checkpoints": 3}, {"n_steps": 101}])
def test_options_of_a_march_are_refused_elsewhere(options):
    with pytest.raises(ProblemError, match=f'`{next(iter(options))}` must be left out unless scheme="march"'):
        propagate(two_level(), **options)
