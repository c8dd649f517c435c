"""Safe forms of both packages: values and gradients against exact ones, where the naive forms fail."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import torch

from jax_kernel import stable
from torch_clerq import stable as torch_stable

mpmath.mp.dps = 60
TINY = [1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.7, 0.99, 1.01, 1.5, 3.0, 6.0, 40.0]
LARGE = [1000.0, 100.0, 40.0, 5.0, 1.0, 1e-3, 1e-12, 0.0]


def _sinc(x):
    return mpmath.sin(mpmath.pi * x) / (mpmath.pi * x) if x else mpmath.mpf(1)


def _sinc_slope(x):
    y = mpmath.pi * x
    return mpmath.pi * (mpmath.cos(y) / y - mpmath.sin(y) / y**2) if x else mpmath.mpf(0)


def _cosc(x):
    return (1 - mpmath.cos(x)) / x**2 if x else mpmath.mpf(1) / 2


def _cosc_slope(x):
    return mpmath.sin(x) / x**2 - 2 * (1 - mpmath.cos(x)) / x**3 if x else mpmath.mpf(0)


def _signed(values):
    return [*(-x for x in values), *values]


EXACT = {
    "sech": (mpmath.sech, lambda x: -mpmath.sech(x) * mpmath.tanh(x), _signed(LARGE)),
    "sinc": (_sinc, _sinc_slope, _signed([x for x in TINY if x < 2])),
    "one_minus_cos_over_square": (_cosc, _cosc_slope, [0.0, *_signed(TINY)]),
    "log1mexp": (lambda x: mpmath.log(-mpmath.expm1(-x)), lambda x: 1 / mpmath.expm1(x), [*TINY, *LARGE[:-1]]),
    "softplus": (lambda x: mpmath.log1p(mpmath.exp(x)), lambda x: 1 / (1 + mpmath.exp(-x)), _signed(LARGE)),
}
NAIVE = {
    "sech": (lambda xp, x: 2 / (xp.exp(x) + xp.exp(-x)), 1000.0),
    "sinc": (lambda xp, x: xp.sin(np.pi * x) / (np.pi * x), 1e-10),
    "one_minus_cos_over_square": (lambda xp, x: (1 - xp.cos(x)) / x**2, 1e-10),
    "log1mexp": (lambda xp, x: xp.log(1 - xp.exp(-x)), 1e-18),
    "softplus": (lambda xp, x: xp.log(1 + xp.exp(x)), 1000.0),
}


def of_jax(function, x, dtype):
    """Value, gradient in reverse and in forward mode."""
    x = jnp.asarray(x, dtype)
    value, reverse = jax.value_and_grad(function)(x)
    return value, reverse, jax.jvp(function, (x,), (jnp.ones_like(x),))[1]


def of_torch(function, x, dtype):
    x = torch.tensor(x, dtype=getattr(torch, dtype), requires_grad=True)
    value = function(x)
    (reverse,) = torch.autograd.grad(value, x)
    forward = torch.func.jvp(function, (x.detach(),), (torch.ones_like(x),))[1]
    return value.detach(), reverse, forward


SIDES = {"jax": (stable, of_jax, jnp), "torch": (torch_stable, of_torch, torch)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", EXACT)
def test_values_and_gradients_are_exact(name, side, dtype, x64):
    module, derivatives, _ = SIDES[side]
    value, slope, points = EXACT[name]
    eps, tiny = (float(getattr(np.finfo(dtype), key)) for key in ("eps", "tiny"))
    for x in points:
        at = mpmath.mpf(float(np.dtype(dtype).type(x)))
        found = derivatives(getattr(module, name), x, dtype)
        for got, exact in zip(found, (value(at), slope(at), slope(at)), strict=True):
            # arguments of sines and exponentials are rounded, by eps times themselves
            allowed = (32 + 4 * abs(x)) * eps * abs(float(exact)) + (4 * tiny**0.49 if name == "sech" else tiny)
            allowed += 8 * eps if name in ("sinc", "one_minus_cos_over_square") and abs(x) > 0.3 else 0
            assert abs(float(got) - float(exact)) <= allowed, (x, float(got), float(exact))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", NAIVE)
def test_naive_forms_fail_where_these_do_not(name, side, x64):
    module, derivatives, xp = SIDES[side]
    naive, x = NAIVE[name]
    slope = float(EXACT[name][1](mpmath.mpf(x)))
    bad, good = derivatives(lambda y: naive(xp, y), x, "float64"), derivatives(getattr(module, name), x, "float64")
    assert not abs(float(bad[1]) - slope) <= 1e-3 * abs(slope)
    assert abs(float(good[1]) - slope) <= 1e-12 * abs(slope) + 1e-150


@pytest.mark.parametrize(("x", "error"), [(1e-10, 1e-6), (1e-12, 1e-5)])
def test_the_half_angle_form_has_a_bad_gradient(x, error, x64):
    value, slope, _ = of_jax(lambda y: 2 * (jnp.sin(y / 2) / y) ** 2, x, "float64")
    assert abs(float(value) - 0.5) < 1e-15
    assert abs(float(slope)) > error  # −8e-12 and −8e-14


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("offset", [0.0, 1000.0, -1000.0])
def test_softmax_and_logsumexp(side, dtype, offset, x64):
    module, _, xp = SIDES[side]
    scores = np.asarray([0.0, 1.0, 2.0]) + offset
    exact = [float(mpmath.exp(x) / sum(mpmath.exp(y) for y in (0, 1, 2))) for x in (0, 1, 2)]
    assert np.round(exact, 4).tolist() == [0.09, 0.2447, 0.6652]
    tol = dict(rtol=8 * np.finfo(dtype).eps, atol=0)
    if side == "jax":
        x = jnp.asarray(scores, dtype)
        soft, log_sum = module.softmax(x), module.logsumexp(x)
        first, of_log = jax.grad(lambda x: module.softmax(x)[0])(x), jax.grad(module.logsumexp)(x)
        forward = jax.jvp(module.softmax, (x,), (jnp.asarray([1.0, 0, 0], dtype),))[1]
    else:
        x = torch.tensor(scores, dtype=getattr(torch, dtype), requires_grad=True)
        soft, log_sum = module.softmax(x), module.logsumexp(x)
        (first,), (of_log,) = torch.autograd.grad(soft[0], x), torch.autograd.grad(log_sum, x)
        tangent = torch.tensor([1.0, 0, 0], dtype=x.dtype)
        forward = torch.func.jvp(module.softmax, (x.detach(),), (tangent,))[1]
        soft, log_sum = soft.detach(), log_sum.detach()
    np.testing.assert_allclose(np.asarray(soft), exact, **tol)
    np.testing.assert_allclose(np.asarray(of_log), exact, **(tol | {"rtol": 2000 * np.finfo(dtype).eps}))
    log_total = float(mpmath.log(sum(mpmath.exp(mpmath.mpf(x)) for x in scores)))
    np.testing.assert_allclose(float(log_sum), log_total, **tol)
    slopes = [exact[0] * (1 - exact[0]), -exact[0] * exact[1], -exact[0] * exact[2]]
    np.testing.assert_allclose(np.asarray(first), slopes, **tol)
    np.testing.assert_allclose(np.asarray(forward), slopes, **tol)
    assert np.round(slopes, 4).tolist() == [0.0819, -0.022, -0.0599]
    naive = xp.exp(x) / xp.exp(x).sum()
    assert bool(xp.isfinite(naive).all()) == (abs(offset) < 700)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("side", SIDES)
def test_modulus(side, dtype, x64):
    module, derivatives, xp = SIDES[side]
    large, small = (1e30, 1e-30) if dtype == "float32" else (1e300, 1e-300)
    join = jax.lax.complex if side == "jax" else torch.complex
    for scale in (1.0, large, small):
        found = derivatives(lambda x, y=4 * scale: module.modulus(join(x, y * xp.ones_like(x))), 3 * scale, dtype)
        value, reverse, forward = map(float, found)
        np.testing.assert_allclose([value / scale, reverse, forward], [5, 0.6, 0.6], rtol=8 * np.finfo(dtype).eps)

    def at_zero(x):
        return module.modulus(join(x, xp.zeros_like(x)))

    assert [float(x) for x in derivatives(at_zero, 0.0, dtype)] == [0, 0, 0]
    assert np.isnan(float(derivatives(lambda x: xp.sqrt(x * x), 0.0, dtype)[1]))
    if side == "jax":
        assert float(jax.grad(jax.grad(at_zero))(jnp.asarray(0.0, dtype))) == 0
    else:
        x = torch.tensor(0.0, dtype=getattr(torch, dtype), requires_grad=True)
        (slope,) = torch.autograd.grad(at_zero(x), x, create_graph=True)
        assert float(torch.autograd.grad(slope, x)[0]) == 0


@pytest.mark.parametrize("side", SIDES)
def test_ratios(side, x64):
    module, _, xp = SIDES[side]
    x, width = (xp.asarray(v, dtype=xp.float32) for v in (1e9, 1e-15))
    if side == "jax":
        slopes = jax.grad(module.clipped_ratio, 1)(x, width, 20.0), jax.grad(module.ratio, 1)(width, width)
    else:
        width.requires_grad_()
        slopes = [torch.autograd.grad(y, width)[0] for y in (module.clipped_ratio(x, width, 20.0),
                                                            module.ratio(width.detach(), width))]  # fmt: skip
    assert float(slopes[0]) == 0
    assert float(slopes[1]) == pytest.approx(-1e15, rel=1e-5)


def test_both_packages_have_the_same_forms():
    def names(module):
        return {
            k
            for k, v in vars(module).items()
            if callable(v) and not k.startswith("_") and v.__module__ == module.__name__
        }

    assert names(stable) == names(torch_stable)
