"""The medium along z: its optical path."""

import jax
import jax.numpy as jnp
import numpy as np

from . import parameters, pulses
from .problem import Problem


def optical_path(problem: Problem) -> np.ndarray:
    """∫N dz from z_min to each stored position, for the problem's own profile, to rounding."""
    envelope, z = problem.number_density, problem.z
    args = dict(envelope.args)
    widths = [abs(args[key]) for key in ("fwhm", "width") if key in args]
    width = 1 / (4 * args["width"]) if envelope.name == "sinc" else min(widths, default=np.inf) / 4
    inner = [args[key] for key in ("on", "off", "centre") if key in args] + list(args.get("tlist", ()))
    edges = np.unique(np.concatenate([z, [x for x in inner if z[0] < x < z[-1]]]))
    parts = int(np.clip(np.ceil(np.max(np.diff(edges)) / width), 1, max(1, 200_000 // len(edges))))
    edges = np.unique(np.concatenate([edges[:-1, None] + np.diff(edges)[:, None] * np.arange(parts) / parts]).ravel())
    edges = np.append(edges, z[-1])
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = np.diff(edges)[:, None] / 2
    at = edges[:-1, None] + half * (nodes + 1)
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        density = np.asarray(
            pulses.evaluate(envelope.name, {k: jnp.asarray(v) for k, v in args.items()}, jnp.asarray(at))
        )
    if np.any(density < 0):
        parameters.fail("num_density_z_args", "give a density that is nowhere negative", f"reaches {density.min():g}")
    running = np.append(0.0, np.cumsum((density * weights * half).sum(1)))
    return running[np.searchsorted(edges, z)]
