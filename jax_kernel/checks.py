"""Whether the problem's time grid and window hold the light: two measures of solved fields, and their warnings. NumPy.

Both are those that clerq 0.15 takes after a solve, with its limits, so that what it warns of is warned of here.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.linalg import solve_banded

from . import pulses
from .errors import WindowWarning, warn
from .problem import Problem

GRID_LIMIT = 0.1
EDGE_LIMIT = 0.2
EDGE = 0.05
"""Part of the window that counts as its edge."""

EDGE_LIGHT = 0.02
"""Light at an edge itself, of a field's peak, below which nothing is cut off, however near a short pulse is."""

SMALL_CHANGE = 0.01
"""Change along the medium, of a field's peak, below which its structure is of no account."""


def _peaks(fields: np.ndarray) -> np.ndarray:
    """What errors are relative to: each field's peak, shape (*batch, field, 1, 1); inf where it is noise of another."""
    peaks = np.abs(fields).max((-2, -1), keepdims=True)
    rounding = 0.01 * math.sqrt(np.finfo(fields.dtype).eps)  # as in the kernel's own estimates
    return np.where(peaks > rounding * peaks.max(-3, keepdims=True), peaks, np.inf)


def _missed(fields: np.ndarray, stride: int) -> np.ndarray:
    """What the not-a-knot cubic spline through every `stride`-th time misses midway between its knots.

    The slopes of the spline solve C. de Boor, A Practical Guide to Splines (2001), chapter IV, on a uniform grid. It is
    SciPy's CubicSpline, but for the checks and coefficients, which take most of the latter's time.

    Returns:
        Shape (*batch, field, z, knot − 1); of no length where there are fewer than four knots.
    """
    knots = fields[..., ::stride]
    between = fields[..., stride // 2 :: stride][..., : knots.shape[-1] - 1]
    if knots.shape[-1] < 4:
        return between[..., :0]
    rise = np.diff(knots, axis=-1)
    right = np.empty_like(knots)
    right[..., 1:-1] = 3 * (rise[..., 1:] + rise[..., :-1])
    right[..., 0] = (5 * rise[..., 0] + rise[..., 1]) / 2
    right[..., -1] = (5 * rise[..., -1] + rise[..., -2]) / 2
    bands = np.ones((3, knots.shape[-1]))
    bands[1, 1:-1], bands[0, 1], bands[2, -2] = 4, 2, 2
    slopes = solve_banded((1, 1), bands, right.reshape(-1, knots.shape[-1]).T).T.reshape(knots.shape)
    return (knots[..., 1:] + knots[..., :-1]) / 2 - np.diff(slopes, axis=-1) / 8 - between


def _grid_error(fields: np.ndarray, stride: int) -> float:
    """`time_grid_error` for the grid of every `stride`-th time."""
    missed, peaks = _missed(fields, stride), _peaks(fields)
    error = np.max(np.abs(missed) / peaks, initial=0)
    slices = fields.shape[-2]
    if slices > 1:
        changes = np.abs(np.diff(fields, axis=-2)).max((-2, -1), keepdims=True)
        changes = np.maximum(changes, SMALL_CHANGE / (slices - 1) * peaks)
        error = np.max(np.abs(np.diff(missed, axis=-2)) / changes, initial=error)
    return float(error)


def time_grid_error(fields: np.ndarray) -> float:
    """How far the fields, and what the medium adds to them, are from a spline through every other time.

    The spline is the cubic one that also drives the medium with sampled fields; on the whole grid its error is smaller
    by up to 2⁴. Fewer than seven times tell nothing, and the error is 0. What the medium adds is the difference between
    neighbouring positions, relative to the largest one of the field: it stands for the coherences, which clerq looks
    at and which may vary faster than the light. Where a field changes by less than 1 % of its peak over the medium,
    the difference is relative to that 1 %.

    Args:
        fields: finite complex Rabi frequencies on a uniform time grid, shape (*batch, field, z, time).

    Returns:
        The worst error of any field, position, time and member of the batch, relative to that field's peak.

    Example:
        >>> import numpy as np
        >>> gaussian = np.exp(-4 * np.log(2) * np.linspace(-3, 3, 61) ** 2)[None, None]
        >>> print(f"{time_grid_error(gaussian):.1e} {time_grid_error(gaussian[..., ::5]):.1e}")
        4.3e-04 1.4e-01
    """
    return _grid_error(np.asarray(fields), 2)


def suggested_t_steps(fields: np.ndarray) -> int:
    """Time steps that should bring `time_grid_error` below its limit of 0.1, at least half as many again as now.

    The order at which the error falls, between 1 and 4, is measured by leaving out three of four times.

    Args:
        fields: finite, shape (*batch, field, z, time).

    Returns:
        The number of intervals; a rough one while the grid misses most of the pulse.

    Example:
        >>> import numpy as np
        >>> suggested_t_steps(np.exp(-4 * np.log(2) * np.linspace(-3, 3, 13) ** 2)[None, None])
        18
    """
    error, coarse = _grid_error(fields, 2), _grid_error(fields, 4)
    order = min(max(math.log2(coarse / error), 1.0), 4.0) if 0 < error < coarse else 4.0
    return math.ceil((fields.shape[-1] - 1) * max((error / GRID_LIMIT) ** (1 / order), 1.5))


def _edge_changes(fields: np.ndarray) -> tuple[float, float]:
    """The largest changes at the start and at the end of the window."""
    edge = max(1, int((fields.shape[-1] - 1) * EDGE))
    peaks = _peaks(fields)
    start = np.abs(fields[..., 1 : edge + 1] - fields[..., :1]) / peaks
    end = np.abs(fields[..., -1 - edge : -1] - fields[..., -1:]) / peaks
    return float(start.max(initial=0)), float(end.max(initial=0))


def window_edge_change(fields: np.ndarray) -> float:
    """How much a field still changes within the first or the last 5 % of the window, where a pulse may be cut off.

    Args:
        fields: finite complex Rabi frequencies on a uniform time grid, shape (*batch, field, z, time).

    Returns:
        The largest difference from the first or the last time, at any position, relative to that field's peak.

    Example:
        >>> import numpy as np
        >>> gaussian = np.exp(-4 * np.log(2) * np.linspace(-3, 3, 61) ** 2)[None, None]
        >>> print(f"{window_edge_change(gaussian):.1e} {window_edge_change(gaussian[..., :26]):.1e}")
        1.7e-09 2.6e-01
    """
    return max(_edge_changes(np.asarray(fields)))


@dataclass
class _Seen:
    """What has been measured of a problem's solutions: how often one came, and which kinds were warned of."""

    solutions: int = 0
    warned: set[str] = field(default_factory=set)


@lru_cache(maxsize=256)
def _seen(problem: Problem) -> _Seen:
    return _Seen()


def warn_window(problem: Problem, fields: np.ndarray, *, continued: bool = False) -> None:
    """Warn of a time grid that is too coarse, above 0.1, and of a window that cuts light off, above 0.2.

    Each is warned of once for a problem, the grid only where no pulse jumps within the window, and measured no more
    after that; of solutions without fault the first, second, fourth, eighth and so on are measured.

    Args:
        problem: what was solved.
        fields: its finite fields, shape (*batch, field, z, time).
        continued: whether the run started from the state of another, so that light may be there at its start.

    Example:
        >>> import warnings
        >>> import numpy as np
        >>> from jax_kernel import Problem
        >>> problem = Problem.from_dict({"system": {"num_states": 2, "fields": [{"coupled_levels": [[0, 1]]}]},
        ...                              "interaction_strengths": [1.0], "t_steps": 20})
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     for _ in range(2):
        ...         warn_window(problem, np.exp(-9 * problem.time)[None, None])
        >>> print(*(str(warning.message).replace(": ", ":\\n") for warning in caught))
        The light still changes at the start (36 % of a field's peak) of the time window, which may cut a pulse off:
        lower `t_min` below 0, with `t_steps` in proportion.
    """
    seen = _seen(problem)
    seen.solutions += 1
    if seen.solutions & (seen.solutions - 1):
        return
    if "grid" not in seen.warned and (text := coarse_time_grid(problem, fields)):
        seen.warned.add("grid")
        warn(text, WindowWarning)
    if "edge" not in seen.warned and (text := cut_off(problem, fields, continued=continued)):
        seen.warned.add("edge")
        warn(text, WindowWarning)


def jumps(problem: Problem) -> list[float]:
    """Times at which the problem's own pulses jump or have kinks, within the window or not."""
    return [t for light in problem.fields for t in pulses.jumps(light.envelope.name, dict(light.envelope.args))]


def coarse_time_grid(problem: Problem, fields: np.ndarray) -> str | None:
    """What to say of a time grid that is too coarse for smooth light, with the remedy.

    Args:
        problem: what was solved.
        fields: its finite fields, shape (*batch, field, z, time).
    """
    smooth = not any(problem.t_min < t < problem.t_max for t in jumps(problem))  # no grid resolves a jump
    if not smooth or (error := time_grid_error(fields)) <= GRID_LIMIT:
        return None
    return (
        f"The time grid is too coarse for the light: every other time misses up to {100 * error:.0f} % of a field "
        f"or of what the medium adds to it: raise `t_steps` from {problem.t_steps} to about "
        f"{suggested_t_steps(fields)}."
    )


def cut_off(problem: Problem, fields: np.ndarray, *, continued: bool = False, limit: float = EDGE_LIMIT) -> str | None:
    """What to say of a time window that cuts light off, with the remedy.

    Args:
        problem: what was solved.
        fields: its finite fields, shape (*batch, field, z, time).
        continued: as in `warn_window`.
        limit: change within the first or last 5 % of the window, of the field's peak, that is nothing to speak of.
    """
    start, end = _edge_changes(fields)
    light = np.abs(fields) / _peaks(fields)
    start, end = (
        change if np.max(light[..., at], initial=0) > EDGE_LIGHT else 0.0 for change, at in ((start, 0), (end, -1))
    )
    cures = [("start", start, f"lower `t_min` below {problem.t_min:g}")] if start > limit and not continued else []
    cures += [("end", end, f"raise `t_max` above {problem.t_max:g}")] if end > limit else []
    if not cures:
        return None
    where = " and ".join(f"the {side} ({100 * change:.0f} % of a field's peak)" for side, change, _ in cures)
    return (
        f"The light still changes at {where} of the time window, which may cut a pulse off: "
        f"{' and '.join(cure for _, _, cure in cures)}, with `t_steps` in proportion."
    )
