"""Gauss–Legendre collocation on [0, 1]: nodes, the running integral, and the polynomial that passes through the nodes.

The coordinate is the optical path ∫N dz, scaled to [0, 1]. The medium is the same at every point of it, so that a
density that jumps, vanishes or varies in z needs neither breakpoints nor nodes of its own, and the light is as smooth
in it as physics makes it: one polynomial over the whole medium is far more accurate than panels with as many nodes.
Source of the formulas: Hairer, Nørsett, Wanner, Solving Ordinary Differential Equations I, II.7 (collocation);
Abramowitz and Stegun 22.7.10 (recurrence) and 22.8.5 (integral of Legendre polynomials).
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Rule(NamedTuple):
    """Collocation at Gauss nodes; NumPy arrays.

    Attributes:
        nodes: shape (node,), increasing in (0, 1).
        running: `running @ f` is the integral of f from 0 to each node, shape (node, node).
        weights: `weights @ f` is the integral of f from 0 to 1, shape (node,).
        coefficients: `coefficients @ f` are the Legendre coefficients of f, shape (node, node).
    """

    nodes: np.ndarray
    running: np.ndarray
    weights: np.ndarray
    coefficients: np.ndarray


@lru_cache(maxsize=64)
def gauss(z_nodes: int) -> Rule:
    """The rule with `z_nodes` nodes."""
    x, weights = np.polynomial.legendre.leggauss(z_nodes)
    legendre = np.polynomial.legendre.legvander(x, z_nodes)
    coefficients = (np.arange(z_nodes)[:, None] + 0.5) * legendre[:, :z_nodes].T * weights
    return Rule((x + 1) / 2, _integrals(legendre) @ coefficients / 2, weights / 2, coefficients)


def _integrals(legendre):
    """∫_{−1}^{x} P_n for n < order, from P_0 … P_order along the last axis."""
    order = legendre.shape[-1] - 1
    n = np.arange(order, dtype=legendre.dtype)
    first = (n == 0).astype(n.dtype)
    below = legendre[..., np.maximum(np.arange(order) - 1, 0)] * (1 - first)
    return (legendre[..., 1:] - below) / (2 * n + 1) + first


def _legendre(x, order: int):
    """P_0 … P_order at x in [−1, 1], along a new last axis."""

    def next_degree(carry, n):
        below, here = carry
        above = ((2 * n + 1) * x * here - n * below) / (n + 1)
        return (here, above), above

    one = jnp.ones_like(x)
    _, higher = jax.lax.scan(next_degree, (one, x), jnp.arange(1, order, dtype=x.dtype))
    return jnp.concatenate([jnp.stack([one, x]), higher]).T


def read_out(rule: Rule, x: Any) -> Any:
    """Matrices that read the integral and the value of a function given at the nodes, at any points.

    Args:
        rule: the collocation rule.
        x: points in [0, 1], shape (point,); may be traced.

    Returns:
        (integral, value), each of shape (point, node): `integral @ f` is ∫_0^x f, `value @ f` is f(x).
    """
    order = len(rule.nodes)
    coefficients = jnp.asarray(rule.coefficients, x.dtype)
    legendre = _legendre(2 * x - 1, order)
    return _integrals(legendre) @ coefficients / 2, legendre[:, :order] @ coefficients


def directed(integrals: Any, weights: Any, backward: Any) -> Any:
    """Integrals from the entrance of each field, from those from 0 (…, node) and the integral over all, `weights`.

    Args:
        integrals: shape (point, node).
        weights: shape (node,).
        backward: whether each field enters at 1.

    Returns:
        Shape (field, point, node), or (point, node) where all enter at 0.
    """
    if not any(backward):
        return integrals
    return jnp.stack([jnp.asarray(weights, integrals.dtype) - integrals if back else integrals for back in backward])


def unresolved(rule: Rule, f: Any) -> Any:
    """Bound on what the polynomial misses of the integral of f, given at the nodes along the last axis.

    The two highest Legendre coefficients stand for the first one left out.
    """
    return last_coefficients(rule, f) / (2 * len(rule.nodes) + 1)


def last_coefficients(rule: Rule, f: Any) -> Any:
    """The larger modulus of the two highest Legendre coefficients of f, given at the nodes along the last axis."""
    return jnp.max(jnp.abs(f @ jnp.asarray(rule.coefficients[-2:], f.dtype).T), axis=-1)
