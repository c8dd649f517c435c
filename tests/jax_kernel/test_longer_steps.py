"""Steps over several intervals of the time grid: their order, their estimate, jumps, gradients, and the search."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import ProblemError, Resolution, ResolutionWarning, choose_resolution, integrate, program, propagate
from jax_kernel.resolution import joined
from jax_kernel.timesteps import build
from tests.conftest import lambda_system, two_level

OUTPUTS = ("populations", "coherences", "final_state")


def pulse(**top):
    return two_level(g=1.0, rabi_freq=0.8, **{"t_steps": 240, "z_steps": 3} | top)


def deviation(solution, exact):
    peak = jnp.max(jnp.abs(exact.fields))
    return float(jnp.max(jnp.abs(solution.fields - exact.fields)) / peak)


def test_fourth_order_with_an_estimate_that_follows(x64):
    problem = pulse()
    exact = propagate(problem, resolution=Resolution(16, 4), outputs=OUTPUTS)
    errors = []
    for count in (4, 8, 12):
        found = propagate(problem, resolution=Resolution(16, Fraction(1, count)), tol=1.0, outputs=OUTPUTS)
        errors.append(deviation(found, exact))
        worst = max(errors[-1], *(float(jnp.max(jnp.abs(getattr(found, x) - getattr(exact, x)))) for x in OUTPUTS))
        assert 0.5 * worst < found.time_error < 2 * worst
    assert 12 < errors[1] / errors[0] < 22
    assert errors[2] < 5e-2


def test_a_step_ends_where_a_pulse_jumps(x64):
    """Off the grid of the longer steps, once on the time grid and once off it."""
    for on in (-0.5, -0.52):
        problem = pulse(envelope="square", args={"ampl": 1.0, "on": on, "off": 1.03}, t_steps=1000)
        exact = propagate(problem, resolution=Resolution(16, 8), outputs=OUTPUTS)
        found = propagate(problem, resolution=Resolution(16, 1 / 5), tol=1.0, outputs=OUTPUTS)
        assert deviation(found, exact) < 2e-4
        np.testing.assert_allclose(found.populations, exact.populations, atol=2e-4)


def test_sampled_fields_and_an_uneven_grid(x64):
    problem = lambda_system(t_steps=203, z_steps=2)
    samples = propagate(problem, resolution=Resolution(8, 1), tol=1.0).fields[:, 0]
    exact = propagate(problem, input_fields=samples, resolution=Resolution(16, 4))
    found = propagate(problem, input_fields=samples, resolution=Resolution(16, 1 / 3), tol=1.0)
    assert deviation(found, exact) < 1e-3
    assert deviation(found, exact) < 2 * found.time_error


def test_the_adjoint_is_that_of_jax(x64, monkeypatch):
    problem = lambda_system(
        t_steps=181, z_steps=3, velocity_classes={"thermal_delta_min": -1, "thermal_delta_max": 1,
                                                 "thermal_delta_steps": 2, "thermal_width": 0.6},
        control={"rabi_freq_t_func": "square", "rabi_freq_t_args": {"ampl": 0.5, "on": -1.05, "off": 5.0}},
    )  # fmt: skip
    params = {
        "rabi_freq": jnp.asarray([0.5 + 0.1j, 0.8 - 0.2j]),
        "interaction_strengths": jnp.asarray([1.0, 1.4]),
        "decay_rates": jnp.asarray([0.8]),
        "detunings": jnp.asarray([0.2, -0.1]),
        "thermal_width": jnp.asarray(0.7),
        "initial_state": jnp.asarray([0.7, 0.1, 0.2]),
    }
    weight = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 182)))

    def value(params):
        s = propagate(
            problem,
            params,
            resolution=Resolution(6, 1 / 2),
            tol=1.0,
            outputs=OUTPUTS,
            memory="lean",
            solver="runge-kutta",
        )
        out = jnp.sum(weight * (jnp.real(s.fields) + jnp.imag(s.coherences))) + jnp.sum(jnp.real(s.final_state))
        return out + jnp.sum(weight[0, ..., None] * s.populations)

    mine = jax.grad(value)(params)
    monkeypatch.setattr(program, "integrate", integrate.integrate_plain)
    program.executable.cache_clear()
    theirs = jax.grad(value)(params)
    program.executable.cache_clear()
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        assert np.all(np.abs(b) > 0)


def test_intervals_of_a_fine_grid_are_joined(x64):
    problem = pulse(t_steps=4000)
    found = choose_resolution(problem, tol=1e-4)
    assert found.t_substeps == 1

    def errors(at):
        s = propagate(problem, resolution=at, tol=1e9)
        return float(s.z_error), float(s.time_error)

    at = joined(errors, 1e-4, found)
    assert at.t_substeps < Fraction(1, 4)
    exact = propagate(problem, resolution=Resolution(24, 1))
    assert deviation(propagate(problem, resolution=at, tol=1e-4), exact) < 1e-4
    assert joined(errors, 1e-14, found) == found


def test_a_spike_between_long_steps_is_not_passed_over(x64):
    problem = pulse(t_steps=640)
    samples = np.exp(-(problem.time**2))[None] + 0j
    assert propagate(problem, input_fields=0.1 * samples, resolution=Resolution(8, 1 / 16), tol=1e9).time_error < 0.1
    samples[0, 328:331] += 0.5
    with pytest.warns(ResolutionWarning, match=r"`t_substeps` above 1/16 \(estimated error inf\)"):
        propagate(problem, input_fields=0.1 * samples, resolution=Resolution(8, 1 / 16), tol=1e9)


def test_auto_takes_no_exponential_steps_over_several_intervals(x64):
    found = propagate(pulse(), {"detunings": jnp.asarray([5.0])}, resolution=Resolution(8, 1 / 2), tol=1e9)
    assert found.resolution.t_substeps == Fraction(1, 2)


def test_a_resolution_is_the_same_however_it_was_written():
    assert Resolution(8, 1 / 3) == Resolution(8, Fraction(1, 3))
    assert hash(Resolution(8, 0.25)) == hash(Resolution(8, Fraction(1, 4)))
    assert Resolution(8, 2.0) == Resolution(8, 2) == Resolution(8, 1).doubled().__class__(8, 2)
    assert repr(Resolution(8, 1 / 4)) == "Resolution(z_nodes=8, t_substeps=1/4)"
    assert Resolution(8, 1 / 4).doubled() == Resolution(16, 1 / 2)
    assert Resolution(8, 1 / 3).doubled() == Resolution(16, 1)
    for bad in (0, -1, 1.5, 0.3, 2 / 3, 1e-9, float("nan"), float("inf"), "1/4", True, None):
        with pytest.raises(ProblemError, match=r"t_substeps` must be an integer from 1 to 1000000, or 1/2"):
            Resolution(8, bad)


def test_exponential_steps_are_not_longer_than_an_interval(x64):
    with pytest.raises(ProblemError, match=r'must be at least 1 with solver="exponential", but is 1/2'):
        propagate(pulse(), resolution=Resolution(8, 1 / 2), solver="exponential")


def test_every_saved_time_lies_in_its_step():
    saved = np.linspace(-1, 1, 12)
    stages = np.array([0.0, 0.5])
    steps = build(saved, Fraction(1, 4), [-0.2, saved[5]], stages, 3)
    starts, h = steps.stage_times.reshape(-1, 2)[:, 0], steps.h.ravel()
    assert np.all((starts[steps.at] <= saved + 1e-12) & (saved <= starts[steps.at] + h[steps.at] + 1e-12))
    np.testing.assert_allclose(starts[steps.at + 1], starts[steps.at] + h[steps.at])
    cubic = np.polynomial.Polynomial([0.3, -1.0, 2.0, 0.7])
    a, b, c, d = steps.hermite
    value, slope = cubic(starts), cubic.deriv()(starts)
    read = a * value[steps.at] + b * value[steps.at + 1] + c * slope[steps.at] + d * slope[steps.at + 1]
    np.testing.assert_allclose(read, cubic(saved))
