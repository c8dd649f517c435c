"""Gauss–Legendre panels on [0, 1]: nodes, the running integral, and the polynomial that passes through the nodes.

The coordinate is the optical path ζ(z) = ∫N dz, scaled to [0, 1]: the medium is the same at every ζ, so a density that
jumps, vanishes or varies in z needs neither breakpoints nor extra nodes (see `propagate`).
Source of the formulas: Hairer, Nørsett, Wanner, Solving Ordinary Differential Equations I, II.7 (collocation);
Abramowitz and Stegun 22.7.10 and 22.8.5 (Legendre recurrence and integral).
"""

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SINGLE_PANEL = 128
"""Nodes up to which one panel spans the medium: at equal nodes it is far more accurate than several."""

PANEL_NODES = 64
"""Nodes of a panel where there are several."""


class Panels(NamedTuple):
    """A composite Gauss rule on [0, 1]; NumPy arrays.

    Attributes:
        nodes: shape (node,), increasing.
        weights: shape (node,), summing to 1.
        running: shape (node, node); `running @ f` is the integral of f from 0 to each node.
        coefficients: shape (order, order); values at one panel's nodes to its Legendre coefficients.
        number: how many panels there are.
    """

    nodes: np.ndarray
    weights: np.ndarray
    running: np.ndarray
    coefficients: np.ndarray
    number: int


def layout(z_nodes: int) -> tuple[int, int]:
    """Panels and nodes per panel: one panel up to `SINGLE_PANEL` nodes, then panels of at most `PANEL_NODES`."""
    count = 1 if z_nodes <= SINGLE_PANEL else -(-z_nodes // PANEL_NODES)
    return count, -(-z_nodes // count)


@lru_cache(maxsize=64)
def panels(z_nodes: int) -> Panels:
    """The rule with at least `z_nodes` nodes (rounded up to equal panels)."""
    count, order = layout(z_nodes)
    x, w = np.polynomial.legendre.leggauss(order)
    vandermonde = np.polynomial.legendre.legvander(x, order)
    coefficients = (np.arange(order)[:, None] + 0.5) * vandermonde[:, :order].T * w
    width = 1.0 / count
    local = _integrals(np.polynomial.legendre.legvander(x, order)) @ coefficients * (width / 2)
    running = np.kron(np.eye(count), local) + np.kron(
        np.tril(np.ones((count, count)), -1), np.ones((order, 1)) * w * (width / 2)
    )
    nodes = (width * (np.arange(count)[:, None] + (x + 1) / 2)).ravel()
    return Panels(nodes, np.tile(w * width / 2, count), running, coefficients, count)


def _integrals(legendre):
    """∫_{−1}^{x} P_n for n < order, from P_0 … P_order along the last axis."""
    order = legendre.shape[-1] - 1
    n = np.arange(order, dtype=legendre.dtype)
    below = legendre[..., np.maximum(np.arange(order) - 1, 0)] * (n > 0)
    return (legendre[..., 1:] - below) / (2 * n + 1) + (n == 0)


def _legendre(x, order: int):
    """P_0 … P_order at x in [−1, 1], along a new last axis."""

    def next_degree(carry, n):
        below, here = carry
        above = ((2 * n + 1) * x * here - n * below) / (n + 1)
        return (here, above), above

    one = jnp.ones_like(x)
    _, higher = jax.lax.scan(next_degree, (one, x), jnp.arange(1, order, dtype=x.dtype))
    return jnp.concatenate([jnp.stack([one, x]), higher]).T


def read_out(rule: Panels, x):
    """Matrices that read the integral and the value of a function given at the nodes, at any points.

    Args:
        rule: the panels.
        x: points in [0, 1], shape (point,); may be traced.

    Returns:
        (integral, value), each of shape (point, node): `integral @ f` is ∫_0^x f, `value @ f` is f(x).
    """
    order, width = rule.coefficients.shape[0], 1.0 / rule.number
    dtype = x.dtype
    panel = jnp.clip(jnp.floor(jax.lax.stop_gradient(x) * rule.number), 0, rule.number - 1)
    legendre = _legendre(2 * (x * rule.number - panel) - 1, order)
    coefficients = jnp.asarray(rule.coefficients, dtype)
    here = panel[:, None] == jnp.arange(rule.number, dtype=dtype)
    before = panel[:, None] > jnp.arange(rule.number, dtype=dtype)

    def spread(rows):
        return (here[:, :, None] * rows[:, None, :]).reshape(x.shape[0], -1)

    integral = spread(_integrals(legendre) @ coefficients * (width / 2))
    whole = jnp.repeat(before, order, axis=1) * jnp.asarray(rule.weights, dtype)
    return integral + whole, spread(legendre[:, :order] @ coefficients)


def unresolved(rule: Panels, f):
    """Bound on what the polynomials miss of the integral of f, given at the nodes along the last axis.

    The two highest Legendre coefficients of each panel stand for the first one left out.
    """
    order = rule.coefficients.shape[0]
    coefficients = f.reshape(*f.shape[:-1], rule.number, order) @ jnp.asarray(rule.coefficients, f.dtype).T
    last = jnp.max(jnp.abs(coefficients[..., -2:]), axis=-1)
    return jnp.max(last, axis=-1) / (rule.number * (2 * order + 1))
