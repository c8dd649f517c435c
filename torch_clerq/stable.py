"""Numerically safe elementary forms of tensors: values and gradients stay finite and accurate at every argument.

The names are those of `jax_kernel.stable`. Where torch's own form is right it is the one here; that of softplus and of
sinc is not.
"""

import math

import torch


def sech(x: torch.Tensor) -> torch.Tensor:
    """1/cosh(x), with the argument clamped where cosh² would overflow.

    The value is then below 1e-18 in float32 and 1e-150 in float64.

    Example:
        >>> import torch
        >>> x = torch.tensor(1000.0, requires_grad=True)
        >>> torch.autograd.grad(sech(x), x)[0].item()
        0.0
    """
    limit = 0.49 * math.log(torch.finfo(x.dtype).max)
    return 1 / torch.cosh(x.clamp(-limit, limit))


def sinc(x: torch.Tensor) -> torch.Tensor:
    """sin(πx)/(πx); a series below |πx| = 1, where the gradient of torch.sinc loses digits.

    Example:
        >>> import torch
        >>> x = torch.tensor(1e-4, requires_grad=True)
        >>> round(torch.autograd.grad(sinc(x), x)[0].item(), 6)
        -0.000329
    """
    x = math.pi * x
    small = x.abs() < 1
    series = _alternating(torch.where(small, x, 0), 1)
    away = torch.where(small, 1, x)
    return torch.where(small, series, torch.sin(away) / away)


def one_minus_cos_over_square(x: torch.Tensor) -> torch.Tensor:
    """(1 − cos x)/x², with gradient −x/12 near 0; a series below |x| = 1, see `jax_kernel.stable`.

    Example:
        >>> import torch
        >>> x = torch.tensor(1e-6, requires_grad=True)
        >>> value = one_minus_cos_over_square(x)
        >>> print(f"{value:.3f} {torch.autograd.grad(value, x)[0]:.3e}")
        0.500 -8.333e-08
    """
    small = x.abs() < 1
    series = _alternating(torch.where(small, x, 0), 2) / 2
    away = torch.where(small, 1, x)
    return torch.where(small, series, 2 * (torch.sin(away / 2) / away) ** 2)


def _alternating(x: torch.Tensor, first: int) -> torch.Tensor:
    """1 − x²/((f+1)(f+2)) + x⁴/((f+1)…(f+4)) − …, to rounding for |x| ≤ 1."""
    square, series = x * x, torch.ones_like(x)
    for n in range(first + 13, first, -2):
        series = 1 - square / (n * (n + 1)) * series
    return series


def ratio(x: torch.Tensor, width: torch.Tensor) -> torch.Tensor:
    """x/width for width > 0, whose gradient in width cannot overflow.

    Example:
        >>> import torch
        >>> ratio(torch.tensor(1.0), torch.tensor(4.0)).item()
        0.25
    """
    return x / width.clamp(min=_least(width))


def clipped_ratio(x: torch.Tensor, width: torch.Tensor, limit: float) -> torch.Tensor:
    """x/width for width > 0, clipped to ±limit, beyond which all derivatives are 0.

    Example:
        >>> import torch
        >>> clipped_ratio(torch.tensor(1e9), torch.tensor(1e-15), 20.0).item()
        20.0
    """
    width = width.clamp(min=_least(width))
    far = x.abs() >= limit * width
    return torch.where(far, limit * x.sign(), torch.where(far, 0, x) / width)


def _least(width: torch.Tensor) -> float:
    return math.sqrt(torch.finfo(width.dtype).tiny)


def log1mexp(x: torch.Tensor) -> torch.Tensor:
    """log(1 − e⁻ˣ) for x > 0: the logarithm of what is absorbed of light at an optical depth x.

    Source: M. Mächler, Accurately computing log(1 − exp(−|a|)), R package Rmpfr (2012).

    Example:
        >>> import torch
        >>> round(log1mexp(torch.tensor(1e-12)).item(), 3)  # 1 − e⁻ˣ itself is 0
        -27.631
    """
    small = x < math.log(2)
    near, far = torch.where(small, x, 1), torch.where(small, 1, x)
    return torch.where(small, torch.log(-torch.expm1(-near)), torch.log1p(-torch.exp(-far)))


def softplus(x: torch.Tensor) -> torch.Tensor:
    """log(1 + eˣ); torch's own jumps by 2e-9 where it goes over to the identity.

    Example:
        >>> import torch
        >>> softplus(torch.tensor([0.0, 1000.0])).numpy().round(4)
        array([6.931e-01, 1.000e+03], dtype=float32)
    """
    return torch.logaddexp(x, torch.zeros_like(x))


def logsumexp(x: torch.Tensor, axis: int = -1) -> torch.Tensor:
    """log Σ eˣ along an axis, torch's own.

    Example:
        >>> import torch
        >>> round(logsumexp(torch.tensor([1000.0, 1001.0, 999.0])).item(), 4)
        1001.4076
    """
    return torch.logsumexp(x, axis)


def softmax(x: torch.Tensor, axis: int = -1) -> torch.Tensor:
    """eˣ/Σeˣ along an axis, torch's own.

    Example:
        >>> import torch
        >>> softmax(torch.tensor([1000.0, 1001.0, 1002.0])).numpy().round(4)
        array([0.09  , 0.2447, 0.6652], dtype=float32)
    """
    return torch.softmax(x, axis)


def modulus(z: torch.Tensor) -> torch.Tensor:
    """|z| of complex numbers, with all derivatives 0 at 0; √(x² + y²) has none there, and squares overflow.

    Example:
        >>> import torch
        >>> x = torch.tensor(0.0, requires_grad=True)
        >>> torch.autograd.grad(modulus(x + 0j), x)[0].item()
        0.0
    """
    dark = z == 0
    return torch.where(dark, 0, torch.where(dark, 1, z).abs())
