"""Numerically safe elementary forms: values and gradients stay finite and accurate at every argument."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact


def sech(x: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
    """1/cosh(x), with the argument clamped where cosh² would overflow.

    The value is then below 1e-18 in float32 and 1e-150 in float64. The textbook 2/(eˣ + e⁻ˣ) is NaN in its gradient
    beyond |x| = 88 in float32.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> bool(jnp.isfinite(jax.grad(sech)(jnp.float32(1000.0))))
        True
    """
    limit = 0.49 * float(np.log(np.finfo(x.dtype).max))
    return 1 / jnp.cosh(jnp.clip(x, -limit, limit))


def sinc(x: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
    """sin(πx)/(πx); a series below |πx| = 1, where the quotient's own gradient loses digits.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> round(float(jax.grad(sinc)(jnp.float32(1e-4))), 6)
        -0.000329
    """
    x = jnp.pi * x
    small = jnp.abs(x) < 1
    square = jnp.where(small, x, 0) ** 2
    series = jnp.ones_like(x)
    for n in range(7, 0, -1):
        series = 1 - square / ((2 * n) * (2 * n + 1)) * series
    away = jnp.where(small, 1, x)
    return jnp.where(small, series, jnp.sin(away) / away)


def ratio(x: Inexact[Array, "..."], width: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
    """x/width for width > 0, whose gradient in width cannot overflow, nor what its second derivative is made of.

    Example:
        >>> import jax.numpy as jnp
        >>> float(ratio(jnp.float32(1.0), jnp.float32(4.0)))
        0.25
    """
    return _quotient(x, jnp.maximum(width, _least(width)))


def clipped_ratio(x: Inexact[Array, "..."], width: Inexact[Array, "..."], limit: float) -> Inexact[Array, "..."]:
    """x/width for width > 0, clipped to ±limit, beyond which all derivatives are 0 even where x/width² overflows.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> float(jax.grad(jax.grad(clipped_ratio, 1), 1)(jnp.float32(1e9), jnp.float32(1e-15), 20.0))
        0.0
    """
    width = jnp.maximum(width, _least(width))
    far = jnp.abs(x) >= limit * width
    return jnp.where(far, limit * jnp.sign(x), _quotient(jnp.where(far, 0, x), width))


def _least(width) -> float:
    return float(np.sqrt(np.finfo(jnp.result_type(width)).tiny))


@jax.custom_jvp
def _quotient(x, y):
    """x/y, whose derivatives divide by y again and again, for powers of y overflow long before quotients do."""
    return x / y


@_quotient.defjvp
def _quotient_jvp(primals, tangents):
    (x, y), (x_dot, y_dot) = primals, tangents
    z = _quotient(x, y)
    return z, _quotient(x_dot - z * y_dot, y)
