"""Resolution of a run, and the search for one that meets a tolerance."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .errors import ProblemError, ResolutionError, ResolutionWarning, warn
from .problem import Problem
from .reading import is_integer, show

LOG = logging.getLogger(__name__)

Z_LADDER = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
MOST_JOINED = 64
"""Most intervals of the time grid that one step may span."""

MOST_NODES = 4096
"""Most nodes in z, whose matrices grow with the square and whose making grows with the cube."""

MOST_SUBSTEPS = 10**6

IMPLICIT = "an implicit `solver`, such as diffrax.Kvaerno5()"
SOLVER_CURE = f"raise `max_steps`, loosen `rtol` and `atol`, or take {IMPLICIT}"
JOINED = tuple(Fraction(1, n) for n in (16, 12, 8, 6, 4, 3, 2))
T_LADDER = (*JOINED, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


@dataclass(frozen=True)
class Resolution:
    """How finely a run resolves the problem.

    Attributes:
        z_nodes: nodes of the z-quadrature over the medium, at least 2.
        t_substeps: integrator steps per interval of the time grid, at least 1, or the inverse 1/n of an integer, as in
            `Resolution(12, 1/4)`, for steps that span n intervals, between whose ends the light is interpolated (cubic
            Hermite), at most 64, and of Runge–Kutta only; ignored with a diffrax solver.
        solver: what solver="auto" stands for at this resolution, "runge-kutta" or "exponential"; the search that found
            the resolution has set it, and None leaves it to the values of the call.
    """

    z_nodes: int
    t_substeps: Any
    solver: str | None = None

    def __repr__(self) -> str:
        solver = ", solver='exponential'" if self.solver == "exponential" else ""
        return f"Resolution(z_nodes={self.z_nodes}, t_substeps={self.t_substeps}{solver})"

    def __post_init__(self) -> None:
        if self.solver not in (None, "runge-kutta", "exponential"):
            raise ProblemError(
                f"Argument `resolution.solver` must be 'runge-kutta', 'exponential' or None, but is {self.solver!r}."
            )
        if not is_integer(self.z_nodes) or not 2 <= self.z_nodes <= MOST_NODES:
            raise ProblemError(
                f"Argument `resolution.z_nodes` must be an integer from 2 to {MOST_NODES}, but is {show(self.z_nodes)}."
            )
        object.__setattr__(self, "t_substeps", _substeps(self.t_substeps))

    def doubled(self) -> "Resolution":
        """Twice the nodes and at least twice the steps."""
        t = self.t_substeps
        finer = 2 * t if t >= 1 else Fraction(1, round(1 / t) // 2)
        return Resolution(2 * self.z_nodes, finer, self.solver)


def _substeps(given: Any) -> int | Fraction:
    """The steps per interval, an integer or a fraction 1/n."""
    if (
        isinstance(given, (int, float, Fraction, np.integer))
        and not isinstance(given, bool)
        and 0 < given <= MOST_SUBSTEPS
    ):
        joined = round(1 / given) if 0 < given < 1 else 1
        value = Fraction(round(given)) if given >= 1 else Fraction(1, joined)
        if joined <= MOST_JOINED and abs(float(value) - given) <= 1e-9:
            return int(value) if value >= 1 else value
    raise ProblemError(
        f"Argument `resolution.t_substeps` must be an integer from 1 to {MOST_SUBSTEPS}, or 1/2, 1/3 … "
        f"1/{MOST_JOINED} for steps over several intervals, but is {show(given)}."
    )


@dataclass(frozen=True)
class MarchResolution:
    """How finely a z-march resolves the problem.

    Attributes:
        z_steps_inner: steps per stored interval of z: the problem's own, or what "auto" found.
    """

    z_steps_inner: int

    def doubled(self) -> "MarchResolution":
        """Twice the steps in z."""
        return MarchResolution(2 * self.z_steps_inner)


def default_tolerance(dtype: str, scheme: str = "cross") -> float:
    """Tolerance of "auto", relative to the peak: 1e-6 in float64, 1e-4 in float32; 1e-2 of a march, of second order."""
    if scheme == "march":
        return 1e-2
    return 1e-6 if dtype == "float64" else 1e-4


def _next(ladder: tuple, now: Any, at_least: float) -> Any:
    """The first rung that is high enough, or the last above the present one, if there is any."""
    return next((n for n in ladder if n >= at_least), ladder[-1] if now < ladder[-1] else None)


def _predicted_nodes(tried: dict[int, float], tol: float) -> float:
    """Nodes at which an error that falls exponentially with their number meets tol, within a factor of two."""
    last = max(tried)
    before = max((n for n in tried if n < last), default=None)
    if before is None or not 0 < tried[last] < tried[before]:
        return 1.5 * last
    slope = np.log(tried[before] / tried[last]) / (last - before)
    return float(np.clip(last + np.log(tried[last] / tol) / slope, 1.15 * last, 2 * last))


def joined(errors: Callable[[Resolution], tuple[float, float]], tol: float, at: Resolution) -> Resolution:
    """A resolution with steps over several intervals that meets tol, too, or the one that was found.

    Args:
        errors: as in `search`.
        tol: what both must be below.
        at: what a search has found.
    """
    if at.t_substeps != 1 or at.solver == "exponential":
        return at
    _, time_error = errors(at)
    least = 1.3 * (time_error / tol) ** (1 / 4)
    for t in JOINED:
        if float(t) < least:
            continue
        coarser = Resolution(at.z_nodes, t, at.solver)
        if all(error <= tol for error in errors(coarser)):
            return coarser
    return at


def first_guess(problem: Problem, strengths_given: bool, solver: Any) -> Resolution:
    """Where the search starts: few nodes where nothing happens to the light, for then the start alone varies in z.

    Args:
        problem: what is solved.
        strengths_given: whether interaction strengths were given that are not the problem's.
        solver: the solver that the search is for, which the resolution keeps if it is one of the fixed grid.
    """
    alone = not any(problem.interaction_strengths) and not strengths_given
    return Resolution(2 if alone else 12, 1, solver if isinstance(solver, str) else None)


def search(
    errors: Callable[[Resolution], tuple[float, float]], tol: float, start: Resolution, *, time_is_fixed: bool
) -> Resolution:
    """Find a resolution whose estimated errors are both below tol.

    Args:
        errors: runs the problem; estimated (z, time) errors, inf where the solution did not stay finite.
        tol: what both must be below.
        start: the first one to try.
        time_is_fixed: whether the time steps are not ours to choose.

    Raises:
        ResolutionError: the finest grid of the ladders is not enough.
    """
    at = start
    tried: dict[int, float] = {}
    for _ in range(14):
        tested = at
        z_error, time_error = errors(at)
        LOG.info("%s: estimated errors %.1e (z), %.1e (time) of the peak", at, z_error, time_error)
        if time_is_fixed and not np.isfinite(z_error):
            raise ResolutionError(f"The solver must reach t_max, but gave up at {at}: {SOLVER_CURE}.")
        if time_is_fixed:
            time_error = 0.0
        if z_error <= tol and time_error <= tol:
            return at
        t, z = at.t_substeps, at.z_nodes
        next_t: Any = t
        next_z: int | None = z
        if not time_error <= tol:  # a run that blew up says nothing about the size of the error
            order = 2 if at.solver == "exponential" else 4
            growth = min(4.0, 1.1 * (time_error / tol) ** (1 / order)) if np.isfinite(time_error) else 2.0
            next_t = _next(T_LADDER, t, max(t + 1 if t >= 1 else 1.01 * t, t * growth))
        if np.isfinite(time_error) and not z_error <= tol:
            tried[z] = z_error
            next_z = _next(Z_LADDER, z, max(z + 1, _predicted_nodes(tried, tol)))
        if next_t is None or next_z is None:
            break
        at = Resolution(next_z, next_t, at.solver)
    cure = IMPLICIT if at.solver == "exponential" else f'solver="exponential" or {IMPLICIT}'
    raise ResolutionError(
        f"Argument `tol` must be within reach of the grid, but {tol:g} is not: at {tested} the estimated errors are "
        f"{z_error:.1e} (z) and {time_error:.1e} (time) of the peak; refine the problem's t_steps, raise `tol`, or, "
        f"if the problem is stiff, give {cure}."
    )


def longest_step(problem: Problem, at: Resolution | MarchResolution) -> float:
    """Length of the longest integrator step, in the problem's time."""
    interval = (problem.t_max - problem.t_min) / problem.t_steps
    return interval / at.t_substeps if isinstance(at, Resolution) else interval


def warn_above(
    z_error: float, time_error: float | None, tol: float, at: Resolution | MarchResolution, *, since: float = 0.0
) -> bool:
    """Warn when an estimate is above the tolerance and ten times `since`, saying what to raise; whether it did."""
    if isinstance(at, MarchResolution):
        late, where = [("z_steps_inner", z_error, at.z_steps_inner)], "the problem"
    else:
        late = [("z_nodes", z_error, at.z_nodes), ("t_substeps", time_error or 0.0, at.t_substeps)]
        where = "`resolution`"
    late = [(name, error, value) for name, error, value in late if not error <= max(tol, 10 * since)]
    if late:
        text = " and ".join(f"`{name}` above {value} (estimated error {error:.1e})" for name, error, value in late)
        warn(
            f"The solution is resolved to worse than tol = {tol:g} of the peak: raise {text} in {where}.",
            ResolutionWarning,
        )
    return bool(late)
