"""The same right-hand side under any diffrax solver with adaptive steps, and how diffrax differentiates."""

from dataclasses import dataclass
from typing import Any

import diffrax
import jax
import jax.numpy as jnp

from .errors import NotYetError
from .integrate import Run, derivative, observe

DERIVATIVES = ("reverse", "forward", "any")
"""Which derivatives a program has: first ones by vjp, those of any order by jvp alone, or all compositions of both."""


@dataclass(frozen=True)
class SolverOptions:
    """How diffrax integrates.

    Attributes:
        solver: a diffrax solver.
        rtol: relative tolerance of a step.
        atol: absolute tolerance of a step, of elements of the density matrix.
        max_steps: steps after which it gives up.
    """

    solver: Any
    rtol: float
    atol: float
    max_steps: int


def largest(error: Any) -> Any:
    """Largest scaled error over components, classes and z: quiet classes must not hide an active one."""
    return jnp.max(jnp.abs(error))


def step_sizes(options: SolverOptions, interval: Any, jumps: Any) -> diffrax.AbstractStepSizeController[Any, Any]:
    """Adaptive steps of at most one interval of the time grid, so that no pulse is stepped over, that stop at jumps."""
    controller: diffrax.AbstractStepSizeController[Any, Any]
    controller = diffrax.PIDController(rtol=options.rtol, atol=options.atol, norm=largest, dtmax=interval)
    return diffrax.ClipStepSizeController(controller, jump_ts=jumps) if jumps.size else controller


def adjoint(solver: Any, derivatives: str, checkpoints: int | None = None) -> diffrax.AbstractAdjoint:
    """How diffrax differentiates a solve; the sizes of the steps count as given.

    Args:
        solver: a diffrax solver.
        derivatives: one of `DERIVATIVES`.
        checkpoints: states that "reverse" keeps, by default the logarithm of the most steps.

    Raises:
        NotYetError: the solver has no such derivatives in diffrax.
    """
    if derivatives == "reverse":
        return diffrax.RecursiveCheckpointAdjoint(checkpoints=checkpoints)
    if isinstance(solver, diffrax.AbstractRungeKutta) and not hasattr(solver, "scan_kind"):
        raise NotYetError(
            f"Argument `solver` must not be a HalfSolver of a Runge–Kutta method for derivatives other than first ones "
            f"in reverse mode, but is {solver!r}: take the method itself, or diffrax.Tsit5()."
        )
    return diffrax.ForwardMode() if derivatives == "forward" else diffrax.DirectAdjoint()


def integrate(
    options: SolverOptions,
    coefficients: Any,
    state: Any,
    drive: Any,
    time: Any,
    jumps: Any,
    *,
    structure: Any,
    running: Any,
    want_average: Any,
    derivatives: str = "reverse",
) -> Run:
    """Integrate the medium with steps no longer than one interval of the time grid.

    Args:
        options: solver and tolerances.
        coefficients: numbers of the generator.
        state: initial state, shape (component, class, z).
        drive: function t -> Ω at the entrance, shape (field, 2).
        time: times at which the solution is kept, shape (time,).
        jumps: times that a step must not straddle, shape (jump,).
        structure: which elements there are.
        running: the running z-integral, shape (z, z) or (field, z, z).
        want_average: whether to keep the class-averaged state.
        derivatives: one of `DERIVATIVES`.

    Returns:
        The run; NaN from where the solver gave up.
    """

    def slope(t, y, args):
        return derivative(structure, coefficients, running, y, drive(t))

    def seen(t, y, args):
        return observe(structure, want_average, coefficients, y)

    interval = time[1] - time[0]
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(slope),
        options.solver,
        time[0],
        time[-1],
        interval / 10,
        state,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=time, fn=seen), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=step_sizes(options, interval, jumps),
        adjoint=adjoint(options.solver, derivatives),
        max_steps=options.max_steps,
        throw=False,
    )
    seen_, end = solution.ys
    ok = solution.result == diffrax.RESULTS.successful
    seen_, end = jax.tree.map(lambda x: jnp.where(ok | jnp.isfinite(x), x, jnp.nan), (seen_, end[0]))
    return Run(seen_, jnp.where(ok, end, jnp.nan))
