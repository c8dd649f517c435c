"""What scheme="march" is asked for: its options and their rules, its steps in z, and the checks of what it returns."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

from . import parameters, pulses
from .adaptive import SolverOptions
from .errors import ResolutionError, ResolutionWarning, warn
from .problem import Problem
from .reading import is_integer
from .resolution import MarchResolution

STEPS = ("ab", "euler")
STRATEGIES = ("s2", "s3", "s4")
ONLY_MARCH = ("step", "strategy", "checkpoints", "n_steps")
BLOW_UP = 1e3
"""Growth of the peak of the light, over its peak at the entrance, that counts as an instability, as in clerq."""

MOST_INNER = 512
MOST_STEPS = 100_000
MOST_CONSTANT = 1_000_000
DEPLETION_WARNING, DEPLETION_ERROR = 0.01, 0.10


@dataclass(frozen=True)
class MarchOptions:
    """The static part of a march, which keys its executable.

    Attributes:
        z_steps: stored intervals.
        z_steps_inner: steps per stored interval.
        step: "ab" or "euler".
        strategy: "s2", "s3" or "s4".
        checkpoints: states that the adjoint of a slice keeps, for "s4" in reverse mode.
        n_steps: constant steps of a slice, or None for adaptive ones.
        solver: a diffrax solver and its tolerances.
    """

    z_steps: int
    z_steps_inner: int
    step: str
    strategy: str
    checkpoints: int | None
    n_steps: int | None
    solver: SolverOptions


def check_options(options: Any) -> None:
    """Raise unless the options of a march are allowed, alone and together."""

    def one_of(name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(options, name)
        if value is not None and value not in allowed:
            parameters.fail(name, f"be one of {', '.join(map(repr, allowed))}", f"is {value!r}")

    one_of("step", STEPS)
    one_of("strategy", STRATEGIES)
    if options.memory != "auto":
        parameters.fail("memory", 'be left out with scheme="march", whose memory is set by `strategy`',
                        f"is {options.memory!r}")  # fmt: skip
    if options.mode == "forward" and options.strategy is not None:
        parameters.fail("strategy", 'be left out with mode="forward", which stores nothing', f"is {options.strategy!r}")
    if options.mode == "any" and options.strategy == "s4":
        parameters.fail("strategy", 'be "s2" or "s3" with mode="any", which keeps no number of states', "is 's4'")
    if options.strategy == "s4":
        if not (is_integer(options.checkpoints) and options.checkpoints >= 1):
            parameters.fail(
                "checkpoints", 'be an integer of at least 1 for strategy="s4"', f"is {options.checkpoints!r}"
            )
    elif options.checkpoints is not None:
        parameters.fail("checkpoints", 'be left out unless strategy="s4"', f"is {options.checkpoints!r}")
    if options.n_steps is None:
        parameters.check_solver(options.solver, ("auto",))
        return
    if not (is_integer(options.n_steps) and 1 <= options.n_steps <= MOST_CONSTANT):
        parameters.fail("n_steps", f"be an integer from 1 to {MOST_CONSTANT}", f"is {options.n_steps!r}")
    if options.solver != "auto" and not isinstance(options.solver, diffrax.AbstractSolver):
        parameters.fail("solver", "be a diffrax solver, such as diffrax.Tsit5()", f"is {options.solver!r}")
    for name in ("rtol", "atol", "max_steps"):
        if getattr(options, name) is not None:
            parameters.fail(
                name, "be left out with `n_steps`, whose steps are constant", f"is {getattr(options, name)!r}"
            )


def refuse_options(options: Any) -> None:
    """Raise where an option of the march was given to another scheme."""
    for name in ONLY_MARCH:
        if getattr(options, name) is not None:
            parameters.fail(name, 'be left out unless scheme="march"', f"is {getattr(options, name)!r}")


def refuse_states(outputs: frozenset[str], start: str) -> None:
    """Raise where a run is to start from, or end with, the state of every class, which a march does not carry."""
    if start == "initial_density_matrix":
        parameters.fail(start, 'be left out with scheme="march" (take "cross")', "was given")
    if "final_state" in outputs:
        parameters.fail("outputs", 'have no "final_state" with scheme="march" (take "cross")', "has it")


def prepare(
    problem: Problem, at: MarchResolution, options: Any, tolerances: tuple[float, float], jumps: list[float]
) -> MarchOptions:
    """The static part of a march of one problem.

    Args:
        problem: what is solved.
        at: its steps.
        options: the checked `Options`.
        tolerances: (rtol, atol) of a slice.
        jumps: times at which a pulse jumps.

    Raises:
        ProblemError: constant steps skip intervals of the time grid, land on its times or straddle a jump.
    """
    n_steps, intervals = options.n_steps, problem.t_steps
    if n_steps is not None:
        good = next(n for n in range(max(n_steps, intervals) + 1, 10**9) if math.gcd(n, intervals) == 1)
        if n_steps < intervals:
            rule = f"be at least the problem's t_steps ({intervals}), for longer steps may miss a pulse"
            parameters.fail("n_steps", rule, f"is {n_steps}: take {good}")
        inside = [t for t in jumps if problem.t_min < t < problem.t_max]
        if inside:
            rule = "be left out where a pulse jumps (adaptive steps stop there)"
            parameters.fail("n_steps", rule, f"one jumps at t = {inside[0]:g}")
        if math.gcd(n_steps, intervals) > 1:
            rule = f"have no common divisor with the problem's t_steps ({intervals})"
            reason = "diffrax 0.7 gives wrong gradients where constant steps land on the times of the grid"
            parameters.fail("n_steps", rule, f"is {n_steps} ({reason}): take {good}")
    solver = diffrax.Tsit5() if options.solver == "auto" else options.solver
    return MarchOptions(
        z_steps=problem.z_steps,
        z_steps_inner=at.z_steps_inner,
        step=options.step or "ab",
        strategy=options.strategy or "s3",
        checkpoints=options.checkpoints,
        n_steps=n_steps,
        solver=SolverOptions(solver, *tolerances, options.max_steps or MOST_STEPS),
    )


def arrays(problem: Problem, at: MarchResolution) -> dict[str, Any]:
    """The arrays of a march that are not parameters: its step, where it takes the density, and that density."""
    step = (problem.z_max - problem.z_min) / problem.z_steps / at.z_steps_inner
    count = problem.z_steps * at.z_steps_inner
    positions = problem.z_min + np.arange(1, count + 1) * step  # rounded as in clerq, for it decides at a square's edge
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        args = {name: jnp.asarray(value) for name, value in problem.number_density.args}
        density = np.asarray(pulses.evaluate(problem.number_density.name, args, jnp.asarray(positions)))
    if np.any(density < 0):
        parameters.fail("num_density_z_args", "give a density that is nowhere negative", f"reaches {density.min():g}")
    return {"step": step, "positions": positions, "density": density}


def choose(
    problem: Problem,
    resolution: Any,
    error: Callable[[MarchResolution], float] | None,
    tol: float,
    step: str | None,
) -> MarchResolution:
    """The steps per stored interval: the problem's own, or for "auto" those that meet the tolerance.

    Args:
        problem: what is solved.
        resolution: the argument of `propagate`, which a march refuses.
        error: runs the problem; its estimated error, inf where it failed; None where values cannot be looked at.
        tol: what the error must be below.
        step: "ab", "euler" or None for the default.
    """
    if isinstance(resolution, MarchResolution):
        return resolution
    if not (isinstance(resolution, str) and resolution == "auto"):
        rule = 'be a MarchResolution or left out with scheme="march", whose steps in z are else `z_steps_inner`'
        parameters.fail("resolution", rule, f"is {resolution!r}")
    if problem.z_steps_inner != "auto":
        return MarchResolution(int(problem.z_steps_inner))
    if error is None:
        rule = "be an integer under jit, grad or vmap (find one outside with `choose_resolution`)"
        parameters.fail("problem.z_steps_inner", rule, 'is "auto"')
    return search(error, tol, step)


def suggest(inner: int, error: float, tol: float, order: int) -> int:
    """Steps at which an error that falls with the given power of their number meets tol; at least twice as many."""
    growth = (error / tol) ** (1 / order) if math.isfinite(error) else 2.0
    return math.ceil(inner * max(2.0, growth))


def search(error: Callable[[MarchResolution], float], tol: float, step: str | None) -> MarchResolution:
    """Find the steps per stored interval for z_steps_inner = "auto".

    Args:
        error: runs the problem; its estimated error, inf where it failed.
        tol: what the error must be below.
        step: "ab", "euler" or None for the default.

    Raises:
        ResolutionError: the most steps are not enough.
    """
    inner, order = 2, 1 if step == "euler" else 2
    while True:
        at = MarchResolution(inner)
        found = error(at)
        if found <= tol:
            return at
        if inner == MOST_INNER:
            raise ResolutionError(
                f'Argument `z_steps_inner` "auto" must find a step that meets tol = {tol:g}, but at {inner} the '
                f"estimated error is {found:.1e} of the peak: raise `tol`, z_steps or t_steps, or take "
                'scheme="cross".'
            )
        inner = min(suggest(inner, found, tol, order), MOST_INNER)


def check_finite(fields: np.ndarray, problem: Problem, at: MarchResolution, max_steps: int | None) -> None:
    """Raise where a march failed, saying where, why and what to try; see `march.Marched` for how it shows.

    Args:
        fields: shape (*batch, field, z, time).
        problem: what was solved.
        at: its steps.
        max_steps: the step budget of a slice that the user gave.
    """
    finite = np.isfinite(fields)
    if finite.all():
        return
    runs, good = fields.reshape(-1, *fields.shape[-3:]), finite.reshape(-1, *fields.shape[-3:])
    run = runs[int(np.argmin(good.all((1, 2, 3))))]
    z = int(np.argmin(np.isfinite(run).all((0, 2))))
    lost = ~np.isfinite(run[:, z]).all(0)
    where = f"z = {problem.z[z]:g}, t = {problem.time[int(np.argmax(lost))]:g}"
    inner = at.z_steps_inner
    if np.isinf(run[:, z][:, lost]).any():
        raise ResolutionError(
            f"The march must stay below {BLOW_UP:g} times the peak of the input, but blows up at {where}: the step in "
            f"z is too long for this medium; raise `z_steps_inner` to {2 * inner} or more (it is {inner}), take "
            'z_steps_inner="auto", or take scheme="cross", which has no step in z.'
        )
    budget = f"{max_steps or MOST_STEPS} steps"
    raise ResolutionError(
        f"The march must solve every slice within `max_steps`, but {budget} do not reach t_max, at {where}: raise "
        "`max_steps`, loosen `rtol` and `atol`, or take an implicit `solver`, such as diffrax.Kvaerno5()."
    )


def check_depletion(fields: np.ndarray, problem: Problem) -> None:
    """Warn or raise where light that runs against the march changes, so that a march forwards is not what it does.

    Args:
        fields: finite, shape (*batch, field, z, time).
        problem: what was solved.
    """
    strongest = np.max(np.abs(fields), axis=(-3, -2, -1)).reshape(-1)
    for k, field in enumerate(problem.fields):
        if field.factor_doppler_shift >= 0:
            continue
        peaks = np.max(np.abs(fields[..., k, :, :]), axis=-1).reshape(-1, fields.shape[-2])
        whole = np.where(peaks[:, 0] > 0, peaks[:, 0], strongest)  # dark light beside the other
        depletion = float(np.max(np.abs(peaks - peaks[:, :1]).max(1) / np.where(whole > 0, whole, 1), initial=0))
        if depletion < DEPLETION_WARNING:
            continue
        high = depletion >= DEPLETION_ERROR
        lost = f"{depletion:.1%}" if high else f"more than {DEPLETION_WARNING:.0%}"  # one text, so that it shows once
        text = (
            f"The counter-propagating field {field.label or k} must pass unchanged for a march, which carries it "
            f'forwards, but changes by {lost} of its peak: take scheme="cross".'
        )
        if high:
            raise ResolutionError(text)
        warn(text, ResolutionWarning)
