"""Collocation on Gauss nodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import quadrature


@pytest.mark.parametrize("nodes", [2, 5, 16, 128])
def test_exact_for_polynomials(nodes, x64):
    rule = quadrature.gauss(nodes)
    for degree in {0, 1, nodes - 1}:
        f = rule.nodes**degree
        np.testing.assert_allclose(rule.running @ f, rule.nodes ** (degree + 1) / (degree + 1), atol=1e-13)
        points = jnp.asarray([0.0, 0.3, 1.0])
        integral, value = quadrature.read_out(rule, points)
        np.testing.assert_allclose(integral @ f, points ** (degree + 1) / (degree + 1), atol=1e-12)
        np.testing.assert_allclose(value @ f, points**degree, atol=1e-10)


def test_nothing_has_been_integrated_at_the_entrance(x64):
    integral, _ = quadrature.read_out(quadrature.gauss(24), jnp.zeros(1))
    assert np.all(np.asarray(integral) == 0)


def test_read_out_has_the_derivative_of_the_polynomial(x64):
    rule = quadrature.gauss(12)
    slope = jax.grad(lambda x: (quadrature.read_out(rule, x[None])[0] @ jnp.exp(rule.nodes))[0])(jnp.asarray(1.0))
    assert abs(slope - np.e) < 1e-9


def test_bound_is_above_what_is_missed_and_falls(x64):
    x = jnp.linspace(0, 1, 101)
    missed = []
    for nodes in (8, 16, 32):
        rule = quadrature.gauss(nodes)
        f = 1 / jnp.cosh((rule.nodes - 0.5) / 0.1)
        exact = 0.2 * (jnp.arctan(jnp.tanh((x - 0.5) / 0.2)) + jnp.arctan(jnp.tanh(2.5)))
        error = float(jnp.max(jnp.abs(quadrature.read_out(rule, x)[0] @ f - exact)))
        bound = float(quadrature.unresolved(rule, f))
        assert error < 3 * bound
        missed.append(bound)
    assert missed[0] > 10 * missed[1] > 100 * missed[2]
