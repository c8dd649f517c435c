"""Envelopes: values against clerq, gradients finite everywhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import pulses, stable

CASES = [
    ("square", {"ampl": 2.0, "on": 0.0, "off": 1.0}),
    ("gaussian", {"ampl": 2.0, "centre": 0.3, "fwhm": 0.7}),
    ("gaussian", {"n_pi": 2.0, "centre": 0.3, "fwhm": 0.7}),
    ("sech", {"ampl": 2.0, "centre": 0.3, "fwhm": 0.7}),
    ("sech", {"n_pi": 2.0, "centre": 0.3, "width": 0.7}),
    ("ramp_on", {"ampl": 2.0, "on": 0.3, "fwhm": 0.7}),
    ("ramp_off", {"ampl": 2.0, "off": 0.3, "fwhm": 0.7}),
    ("ramp_onoff", {"ampl": 2.0, "on": 0.3, "off": 2.0, "fwhm": 0.7}),
    ("ramp_offon", {"ampl": 2.0, "on": 2.0, "off": 0.3, "fwhm": 0.7}),
    ("sinc", {"ampl": 2.0, "width": 0.7}),
    ("intp", {"tlist": np.array([0.0, 1.0, 2.0]), "ylist": np.array([1.0, 3.0, 2.0])}),
]


@pytest.mark.parametrize(("name", "args"), CASES)
def test_agrees_with_clerq(name, args, x64):
    t_funcs = pytest.importorskip("clerq").t_funcs
    times = np.linspace(-3, 5, 41)
    function = getattr(t_funcs, name)(1)
    expected = [function(t, {f"{key}_1": value for key, value in args.items()}) for t in times]
    mine = pulses.evaluate(name, jax.tree.map(jnp.asarray, args), jnp.asarray(times))
    np.testing.assert_allclose(mine, expected, atol=1e-10)  # clerq rounds the full width of sech to 11 digits


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1e-30, 1e-6, 0.025, 1.0, 1e6])
@pytest.mark.parametrize(("name", "args"), CASES)
def test_gradients_are_finite_everywhere(name, args, width, dtype, x64):
    args = {k: jnp.asarray(width if k in ("fwhm", "width") else v, dtype) for k, v in args.items()}
    times = jnp.asarray([-1e6, -100.0, -1.0, 0.0, 0.3, 0.3 + 1e-7, 2.0, 4.5, 1e6], dtype)
    gradient = jax.jacrev(lambda a: pulses.evaluate(name, a, times))(args)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradient))
    assert all(x.dtype == dtype for x in jax.tree.leaves(gradient))


def test_area_of_n_pi_pulses(x64):
    t = jnp.linspace(-20, 20, 4001)
    for name, args in (("gaussian", {"fwhm": 1.3}), ("sech", {"width": 0.8}), ("sech", {"fwhm": 2.0})):
        full = {key: jnp.asarray(value) for key, value in (args | {"n_pi": 2.0, "centre": 0.1}).items()}
        area = 2 * np.pi * jnp.trapezoid(pulses.evaluate(name, full, t), t)
        assert abs(area - 2 * np.pi) < 1e-9


def test_second_derivative_at_the_centre(x64):
    curvature = jax.grad(jax.grad(stable.sech))(jnp.asarray(0.0))
    assert abs(curvature + 1) < 1e-12


def test_sinc_near_zero(x64):
    for x in (0.0, 1e-12, 1e-5, 0.1, 0.3183, 0.3184, 2.0):
        exact = np.cos(np.pi * x) / x - np.sin(np.pi * x) / (np.pi * x * x) if x > 0.05 else -(np.pi**2) * x / 3
        assert abs(jax.grad(stable.sinc)(jnp.asarray(x)) - exact) < 1e-9


def test_spline_is_scipys(x64):
    from scipy.interpolate import CubicSpline

    rng = np.random.default_rng(0)
    t, samples, at = np.linspace(0, 1, 30), rng.normal(size=30) + 1j * rng.normal(size=30), rng.uniform(0, 1, 200)
    mine = pulses.spline(jnp.asarray(t), jnp.asarray(samples))(jnp.asarray(at))
    np.testing.assert_allclose(mine, CubicSpline(t, samples)(at), atol=1e-13)
