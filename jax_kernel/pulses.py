"""Pulse and density envelopes with clerq's names and arguments, and the cubic drive of sampled fields.

Every envelope is smooth in its arguments wherever it is differentiable at all, and its gradients are finite everywhere,
in float32 too. Formulas: `fwhm` is the full width at half maximum of Ω (not of the intensity); `n_pi` is the pulse area
2π∫Ω dt in units of π.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import interpax
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Inexact

from .stable import clipped_ratio, ratio, sech, sinc

SECH_FWHM = 2 * float(np.arccosh(2.0))
"""Full width at half maximum of sech(t / width), in units of width."""

EDGES: dict[str, tuple[str, ...]] = {"square": ("on", "off"), "intp": ("tlist",)}
"""Arguments that are times of jumps and kinks: the solver places its steps by them, so they have no gradient."""


def _gauss(x, fwhm):
    """2^(−4x²/fwhm²), clamped where it has long underflowed."""
    x = clipped_ratio(x, fwhm, 20.0)
    return jnp.exp(-4 * float(np.log(2.0)) * x * x)


def _square(t, inside, args):
    return jnp.where((inside >= args["on"]) & (inside <= args["off"]), args["ampl"], 0)


def _gaussian(t, inside, args):
    fwhm = args["fwhm"]
    per_pi = float(np.sqrt(np.log(2.0) / np.pi))
    ampl = ratio(args["n_pi"] * per_pi, fwhm) if "n_pi" in args else args["ampl"]
    return ampl * _gauss(t - args["centre"], fwhm)


def _sech(t, inside, args):
    width = args["width"] if "width" in args else args["fwhm"] / SECH_FWHM
    ampl = ratio(args["n_pi"] / (2 * np.pi), width) if "n_pi" in args else args["ampl"]
    return ampl * sech(clipped_ratio(t - args["centre"], width, 1e3))


def _rise(t, args):
    return _gauss(jnp.minimum(t - args["on"], 0), args["fwhm"])


def _fall(t, args):
    return _gauss(jnp.maximum(t - args["off"], 0), args["fwhm"])


def _ramp_on(t, inside, args):
    return args["ampl"] * _rise(t, args)


def _ramp_off(t, inside, args):
    return args["ampl"] * _fall(t, args)


def _ramp_onoff(t, inside, args):
    return args["ampl"] * (_rise(t, args) + _fall(t, args) - 1)


def _ramp_offon(t, inside, args):
    return args["ampl"] * (_rise(t, args) + _fall(t, args))


def _sinc(t, inside, args):
    return args["ampl"] * sinc(args["width"] * t) / float(np.sqrt(np.pi / 2))


def _intp(t, inside, args):
    times, samples = args["tlist"], args["ylist"]
    parts = [jnp.real(samples), jnp.imag(samples)] if jnp.iscomplexobj(samples) else [samples]
    parts = [jnp.where((inside >= times[0]) & (inside <= times[-1]), jnp.interp(t, times, y), 0) for y in parts]
    return parts[0] if len(parts) == 1 else lax.complex(parts[0], parts[1])


ENVELOPES: dict[str, Callable[..., Any]] = {
    "square": _square,
    "gaussian": _gaussian,
    "sech": _sech,
    "ramp_on": _ramp_on,
    "ramp_off": _ramp_off,
    "ramp_onoff": _ramp_onoff,
    "ramp_offon": _ramp_offon,
    "sinc": _sinc,
    "intp": _intp,
}


def evaluate(
    name: str, args: Mapping[str, Any], t: Float[Array, "..."], inside: Float[Array, "..."] | None = None
) -> Inexact[Array, "..."]:
    """An envelope at times (or positions) t.

    Args:
        name: one of `ENVELOPES`.
        args: its arguments by name, as in a problem file.
        t: times, any shape.
        inside: times that decide on which side of a jump each t lies, by default t itself. The integrator passes the
            middle of the step, so that a stage that falls on a jump takes the value of its own step.

    Returns:
        The envelope, shape of t.

    Example:
        >>> import jax.numpy as jnp
        >>> evaluate("gaussian", {"ampl": 1.0, "centre": 0.0, "fwhm": 2.0}, jnp.asarray([0.0, 1.0])).round(3).tolist()
        [1.0, 0.5]
    """
    return ENVELOPES[name](t, t if inside is None else inside, args)


def jumps(name: str, args: Mapping[str, Any]) -> list[float]:
    """Times at which the envelope jumps or, for samples joined by lines, has a kink."""
    return [float(t) for edge in EDGES.get(name, ()) for t in np.atleast_1d(args[edge])]


def span(name: str, args: Mapping[str, Any]) -> tuple[float, float] | None:
    """From when until when an envelope is above 1e-9 of its peak, about; None where that is always, or not known."""
    reach = 3.0 * float(args["fwhm"]) if "fwhm" in args else 10.0 * float(args["width"]) if "width" in args else 0.0
    if name == "sech" and "fwhm" in args:
        reach *= 3.0
    if name in ("gaussian", "sech"):
        return float(args["centre"]) - reach, float(args["centre"]) + reach
    begin = float(args["on"]) - reach if name in ("square", "ramp_on", "ramp_onoff") else -math.inf
    end = float(args["off"]) + reach if name in ("square", "ramp_off", "ramp_onoff") else math.inf
    return None if math.isinf(begin) and math.isinf(end) else (begin, end)


def spline(
    t: Float[Array, " time"], samples: Inexact[Array, " time"]
) -> Callable[[Float[Array, "..."]], Inexact[Array, "..."]]:
    """A sampled field between its samples: the not-a-knot cubic spline of its real and imaginary part.

    Args:
        t: sample times, shape (time,).
        samples: complex or real envelope, shape (time,).

    Returns:
        A function of time, of any shape.
    """
    parts = [jnp.real(samples), jnp.imag(samples)] if jnp.iscomplexobj(samples) else [samples]
    wide = parts[0].dtype.itemsize == 8  # in 64-bit mode interpax computes float32 samples in float64, and warns
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(wide):  # interpax mixes integers and floats
        pieces = interpax.CubicSpline(t, jnp.stack(parts, -1), axis=0, bc_type="not-a-knot", check=False)

    def at(t):
        with jax.numpy_dtype_promotion("standard"), jax.enable_x64(wide):
            values = pieces(t)
        return lax.complex(values[..., 0], values[..., 1]) if len(parts) == 2 else values[..., 0]

    return at
