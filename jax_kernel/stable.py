"""Numerically safe elementary forms: values and gradients stay finite and accurate at every argument.

Automatic differentiation is exact for the arithmetic that it is given: where a formula cancels, overflows or divides by
zero, its derivative does so more strongly. `torch_clerq.stable` has the same names for tensors.
"""

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
    series = _alternating(jnp.where(small, x, 0), 1)
    away = jnp.where(small, 1, x)
    return jnp.where(small, series, jnp.sin(away) / away)


def one_minus_cos_over_square(x: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
    """(1 − cos x)/x², with gradient −x/12 near 0; a series below |x| = 1.

    The textbook form is 0 below x = 1e-8 and its gradient 1/x. The half-angle form 2 (sin(x/2)/x)² has the right
    values, but its gradient by automatic differentiation is the difference of two terms of size 1/x.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> value, slope = jax.value_and_grad(one_minus_cos_over_square)(jnp.float32(1e-6))
        >>> print(f"{value:.3f} {slope:.3e}")
        0.500 -8.333e-08
    """
    small = jnp.abs(x) < 1
    series = _alternating(jnp.where(small, x, 0), 2) / 2
    away = jnp.where(small, 1, x)
    return jnp.where(small, series, 2 * (jnp.sin(away / 2) / away) ** 2)


def _alternating(x, first: int):
    """1 − x²/((f+1)(f+2)) + x⁴/((f+1)…(f+4)) − …, to rounding for |x| ≤ 1."""
    square, series = x * x, jnp.ones_like(x)
    for n in range(first + 13, first, -2):
        series = 1 - square / (n * (n + 1)) * series
    return series


def log1mexp(x: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
    """log(1 − e⁻ˣ) for x > 0: the logarithm of what is absorbed of light at an optical depth x.

    Source: M. Mächler, Accurately computing log(1 − exp(−|a|)), R package Rmpfr (2012).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> value, slope = jax.value_and_grad(log1mexp)(jnp.float32(1e-12))
        >>> print(f"{value:.3f} {slope:.3e}")  # 1 − e⁻ˣ itself is 0
        -27.631 1.000e+12
    """
    small = x < float(np.log(2.0))
    near, far = jnp.where(small, x, 1), jnp.where(small, 1, x)
    return jnp.where(small, jnp.log(-jnp.expm1(-near)), jnp.log1p(-jnp.exp(-far)))


def softplus(x: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
    """log(1 + eˣ), where eˣ itself may overflow.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> value, slope = jax.value_and_grad(softplus)(jnp.float32(1000.0))
        >>> float(value), float(slope)
        (1000.0, 1.0)
    """
    return jnp.logaddexp(x, jnp.zeros_like(x))


def logsumexp(x: Inexact[Array, "..."], axis: int = -1) -> Inexact[Array, "..."]:
    """log Σ eˣ along an axis, whose gradient is `softmax`.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(logsumexp(jnp.asarray([1000.0, 1001.0, 999.0]))), 4)
        1001.4076
    """
    return jax.scipy.special.logsumexp(x, axis=axis)


def softmax(x: Inexact[Array, "..."], axis: int = -1) -> Inexact[Array, "..."]:
    """eˣ/Σeˣ along an axis, such as the weights of velocity classes from the logarithms of their densities.

    Example:
        >>> import jax.numpy as jnp
        >>> print(softmax(jnp.asarray([1000.0, 1001.0, 1002.0])).round(4))
        [0.09   0.2447 0.6652]
    """
    return jax.nn.softmax(x, axis=axis)


def modulus(z: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
    """|z| of complex numbers, with all derivatives 0 at 0; √(x² + y²) has none there, and squares overflow.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> float(jax.grad(lambda x: modulus(x + 0j))(0.0))
        0.0
    """
    dark = z == 0
    return jnp.where(dark, 0, jnp.abs(jnp.where(dark, 1, z)))


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
