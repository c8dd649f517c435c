"""Numerically safe elementary forms: values and gradients stay finite and accurate at every argument."""

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
    """x/width for width > 0, whose gradient in width cannot overflow.

    Example:
        >>> import jax.numpy as jnp
        >>> float(ratio(jnp.float32(1.0), jnp.float32(4.0)))
        0.25
    """
    return x / jnp.maximum(width, float(np.sqrt(np.finfo(jnp.result_type(width)).tiny)))
