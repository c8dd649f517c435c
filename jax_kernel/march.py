"""scheme="march": clerq's march through z, one solve in t after the other.

A slice of the medium is solved in t for all velocity classes, driven by the light at its position; its source S then
carries the light one step further (h the inner step, N_i the number density at z_min + (i + 1) h, as clerq has it):

    Ω_1     = Ω_0 + 2i g h N_0 S_0                               (Euler)
    Ω_{i+1} = Ω_i + 2i g h N_i (3/2 S_i − 1/2 S_{i−1})           (Adams–Bashforth, or Euler again with step="euler")

S_0 is driven by the pulses themselves, every other slice by the not-a-knot cubic spline of Ω_i on the time grid.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from . import pulses, rhs
from .adaptive import adjoint, step_sizes
from .generator import Structure
from .integrate import Observed, observe
from .march_options import BLOW_UP, MarchOptions


class Marched(NamedTuple):
    """What a march returns.

    Attributes:
        fields: complex Rabi frequencies at the stored positions, shape (z, field, time). From where it failed they are
            inf after a blow-up and NaN after an exhausted step budget.
        average: class-averaged state at the stored positions, shape (z, component, time), or None.
        error: accumulated local error of the steps in z, cyclic, shape (field,).
    """

    fields: Any
    average: Any
    error: Any


def density_at(given: Any, z: Any, positions: Any, density: Any) -> Any:
    """Number density of every step: the problem's own times a factor, or straight lines through samples."""
    return density * given.reshape(()) if given.size == 1 else jnp.interp(positions, z, given)


def march(
    options: MarchOptions,
    coefficients: rhs.Coefficients,
    state: Any,
    entrance: Any,
    drive: Callable,
    *,
    structure: Any,
    time: Any,
    jumps: Any,
    density: Any,
    step: Any,
    want_average: bool,
    derivatives: str,
) -> Marched:
    """March from z_min to z_max.

    Args:
        options: the static part.
        coefficients: numbers of the generator, the coupling for N = 1.
        state: initial state, shape (component, class, 1).
        entrance: Ω at z_min on the time grid, shape (field, 2, time).
        drive: function t -> Ω at z_min, shape (field, 2).
        structure: which elements there are.
        time: the time grid, shape (time,).
        jumps: times at which the drive jumps, shape (jump,).
        density: N of every step, shape (step,).
        step: length of a step.
        want_average: whether the state is kept at the stored positions.
        derivatives: one of `adaptive.DERIVATIVES`.
    """
    euler = options.step == "euler"
    peak = jnp.max(jnp.sqrt(jnp.sum(stop_gradient(entrance) ** 2, axis=1)))
    limit = jnp.where(peak > 0, BLOW_UP * peak, jnp.inf)
    zero = jnp.zeros_like(entrance)

    def solve(field, drive, jumps):
        """The slice that a drive leaves, and the light there, NaN from where the solver gave up."""
        seen = solve_slice(
            options,
            coefficients,
            state,
            drive,
            structure=structure,
            time=time,
            jumps=jumps,
            want_average=want_average,
            derivatives=derivatives,
        )
        gave_up = jnp.isnan(stop_gradient(seen.source)) & jnp.isfinite(stop_gradient(field))
        return jnp.where(gave_up, jnp.nan, field), seen

    def inner_step(carry, density):
        """Carry the light to the next position and solve the slice there."""
        field, seen, source_before, before, earlier, error, taken = carry
        here = density * seen.source
        slope = here if euler else jnp.where(taken == 0, here, 1.5 * here - 0.5 * density * source_before)
        field = jnp.where(jnp.isfinite(stop_gradient(field)), field + step * slope, field)
        blown = jnp.sqrt(jnp.sum(stop_gradient(field) ** 2, axis=1, keepdims=True)) > limit
        field = jnp.where(blown, jnp.inf, field)
        still = stop_gradient(here)
        error = error + local_error(euler, step, still, before, earlier, taken)
        bad = ~jnp.all(jnp.isfinite(stop_gradient(field)))
        splined = pulses.spline(time, jnp.moveaxis(jnp.where(bad, zero, field), -1, 0))
        field, after = solve(field, splined, jnp.zeros(0, time.dtype))
        after = jax.tree.map(lambda x: jnp.where(bad, jnp.nan, x), after)
        return (field, after, seen.source, still, before, error, taken + 1), None

    def outer_step(carry, densities):
        carry, _ = jax.lax.scan(inner_step, carry, densities)
        return carry, (carry[0], carry[1].average)

    if derivatives != "forward" and options.strategy != "s2":
        outer_step = jax.checkpoint(outer_step, prevent_cse=False)
    entrance, seen = solve(entrance, drive, jumps)
    error, taken = jnp.zeros(len(entrance), entrance.dtype), jnp.zeros((), jnp.int32)
    carry = (entrance, seen, seen.source, zero, zero, error, taken)
    carry, (fields, average) = jax.lax.scan(outer_step, carry, density.reshape(options.z_steps, options.z_steps_inner))
    fields = jnp.concatenate([entrance[None], fields])
    if seen.average is not None:
        average = jnp.concatenate([seen.average[None], average])
    return Marched(jax.lax.complex(fields[:, :, 0], fields[:, :, 1]), average, carry[5])


def local_error(euler: bool, step: Any, here: Any, before: Any, earlier: Any, taken: Any) -> Any:
    """Truncation error of one step by the next derivative of Ω in z, its largest in time, shape (field,).

    Args:
        euler: whether every step is an Euler step.
        step: its length.
        here: dΩ/dz of this step, shape (field, 2, time).
        before: that of the step before.
        earlier: that of the step before that.
        taken: number of steps taken before.
    """
    first = step / 2 * (here - before)  # of an Euler step, which the first always is
    second = 5 / 12 * step * (here - 2 * before + earlier)
    error = first if euler else jnp.where(taken == 1, first, second)
    error = jnp.max(jnp.sqrt(jnp.sum(error**2, axis=1)), axis=-1)
    return jnp.where(taken >= 1, error, 0)


def solve_slice(
    options: MarchOptions,
    coefficients: rhs.Coefficients,
    state: Any,
    drive: Callable,
    *,
    structure: Structure,
    time: Any,
    jumps: Any,
    want_average: bool,
    derivatives: str,
) -> Observed:
    """Solve one slice in t, with steps no longer than one interval of the time grid.

    Args:
        options: the static part.
        coefficients: numbers of the generator.
        state: initial state, shape (component, class, 1).
        drive: function t -> Ω, shape (field, 2).
        structure: which elements there are.
        time: the time grid, shape (time,).
        jumps: times that a step must not straddle, shape (jump,).
        want_average: whether to keep the class-averaged state.
        derivatives: one of `adaptive.DERIVATIVES`.

    Returns:
        Source, shape (field, 2, time), and average, shape (component, time); NaN from where the solver gave up.
    """

    def slope(t, y, args):
        return rhs.stack_rows(rhs.lindblad(structure, coefficients, y, drive(t)[..., None]), y)

    def seen(t, y, args) -> Observed:
        return observe(structure, want_average, coefficients, y)

    settings, interval = options.solver, time[1] - time[0]
    controller: diffrax.AbstractStepSizeController
    if options.n_steps is None:
        first, most, controller = interval / 10, settings.max_steps, step_sizes(settings, interval, jumps)
    else:  # with no jump in the window
        first, most = (time[-1] - time[0]) / options.n_steps, options.n_steps + 2
        controller = diffrax.ConstantStepSize()
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(slope),
        settings.solver,
        time[0],
        time[-1],
        first,
        state,
        saveat=diffrax.SaveAt(ts=time, fn=seen),
        stepsize_controller=controller,
        adjoint=adjoint(settings.solver, derivatives, options.checkpoints),
        max_steps=most,
        throw=False,
    )
    ok = solution.result == diffrax.RESULTS.successful

    def reached(x):
        return jnp.moveaxis(jnp.where(ok | jnp.isfinite(x), x, jnp.nan)[..., 0], 0, -1)

    return jax.tree.map(reached, solution.ys)
