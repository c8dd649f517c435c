"""The checkpointed fixed-grid scan of the cross-propagation scheme, with its hand-written adjoint.

One low-storage Runge–Kutta stage is k ← A k + h f(y); y ← y + B k (Carpenter and Kennedy, NASA TM-109112, 1994, the
five-stage fourth-order scheme). Read backwards it is the adjoint: with (ȳ, k̄) the cotangents after the stage,
k̄ ← k̄ + B ȳ; ȳ ← ȳ + h (∂f/∂y)ᵀ k̄; k̄ ← A k̄.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import rhs
from .generator import Structure
from .rhs import Coefficients

STAGES = 5
STAGE_A = np.array(
    [
        0.0,
        -567301805773 / 1357537059087,
        -2404267990393 / 2016746695238,
        -3550918686646 / 2091501179385,
        -1275806237668 / 842570457699,
    ]
)
STAGE_B = np.array(
    [
        1432997174477 / 9575080441755,
        5161836677717 / 13612068292357,
        1720146321549 / 2090206949498,
        3134564353537 / 4481467310338,
        2277821191437 / 14882151754819,
    ]
)
STAGE_C = np.array(
    [
        0.0,
        1432997174477 / 9575080441755,
        2526269341429 / 6820363962896,
        2006345519317 / 3224310063776,
        2802321613138 / 2924317926251,
    ]
)

ORDER = 4
STORED = STAGES


class Inputs(NamedTuple):
    """The differentiable arguments of `integrate`.

    Attributes:
        coefficients: numbers of the generator.
        state: initial state, shape (component, class, z).
        drive: Ω at the entrance at every stage, shape (segment, step, stage, field, 2).
    """

    coefficients: Coefficients
    state: Float[Array, "component class z"]
    drive: Float[Array, "segment step stage field 2"]


class Observed(NamedTuple):
    """What is kept of the state at the start of every step and at the end; a linear function of the state.

    Attributes:
        source: dΩ/dζ, shape (step + 1, field, 2, z).
        average: class average of the state, shape (step + 1, component, z), or None when not asked for.
    """

    source: Float[Array, "time field 2 z"]
    average: Float[Array, "time component z"] | None


class Run(NamedTuple):
    """What an integration returns.

    Attributes:
        seen: what was observed.
        end: the state at the end, shape (component, class, z).
    """

    seen: Observed
    end: Float[Array, "component class z"]


class _Stages(NamedTuple):
    """The per-stage constants of one segment, one row a stage."""

    h: Float[Array, " stage"]
    a: Float[Array, " stage"]
    b: Float[Array, " stage"]


class _Trace(NamedTuple):
    """What the stages of a segment start from, one row a stage."""

    state: Float[Array, "stage component class z"]
    rabi: Float[Array, "stage field 2 z"]
    source: Float[Array, "stage field 2 z"]


def _stages(h) -> _Stages:
    steps = h.shape[0]
    return _Stages(
        jnp.repeat(h, STAGES),
        jnp.tile(jnp.asarray(STAGE_A, h.dtype), steps),
        jnp.tile(jnp.asarray(STAGE_B, h.dtype), steps),
    )


def field_at_nodes(drive, source, running):
    """Ω at the z-nodes from Ω at the entrance (…, field, 2) and the source (…, field, 2, z).

    `running` integrates from the entrance to each node, shape (z, z); (field, z, z) where fields enter at either end.
    """
    return drive[..., None] + source @ jnp.swapaxes(running, -1, -2)


def derivative(structure: Structure, coefficients: Coefficients, running, state, drive):
    """dρ/dt of the whole medium for Ω at the entrance: the one right-hand side of every integrator."""
    rabi = field_at_nodes(drive, rhs.source(structure, coefficients, state), running)
    return rhs.stack_rows(rhs.lindblad(structure, coefficients, state, rabi), state)


def observe(structure: Structure, want_average: bool, coefficients: Coefficients, state) -> Observed:
    """What is kept of one state."""
    average = rhs.average(coefficients, state) if want_average else None
    return Observed(rhs.source(structure, coefficients, state), average)


def whole_run(structure: Structure, want_average: bool, coefficients: Coefficients, seen: Observed, end) -> Run:
    """The run of what was seen at the start of every step, (segment, step, …), and of the end, observed, too."""
    last = observe(structure, want_average, coefficients, end)
    return Run(jax.tree.map(lambda a, b: jnp.concatenate([a.reshape(-1, *a.shape[2:]), b[None]]), seen, last), end)


def _segment(structure: Structure, coefficients: Coefficients, running, state, drive, h):
    """Advance over the steps of one segment; also state, Ω and source at the start of every stage."""

    def stage(carry, x):
        y, k = carry
        drive, c = x
        source = rhs.source(structure, coefficients, y)
        rabi = field_at_nodes(drive, source, running)
        slope = rhs.stack_rows(rhs.lindblad(structure, coefficients, y, rabi), y)
        k = c.a * k + c.h * slope
        return (y + c.b * k, k), _Trace(y, rabi, source)

    flat = drive.reshape(-1, *drive.shape[2:])
    (end, _), trace = jax.lax.scan(stage, (state, jnp.zeros_like(state)), (flat, _stages(h)))
    return end, trace


def _march(structure: Structure, want_average: bool, keep: str, inputs: Inputs, running, h, *, checkpoint=False):
    """Run all segments. `keep` is what the adjoint will need of them: "nothing", "segments" or "stages"."""
    coefficients = inputs.coefficients

    def segment(state, x):
        end, trace = _segment(structure, coefficients, running, state, *x)
        average = rhs.average(coefficients, trace.state[::STAGES]) if want_average else None
        kept = {"nothing": None, "segments": state, "stages": (trace.state, trace.rabi)}[keep]
        return end, (Observed(trace.source[::STAGES], average), kept)

    if checkpoint:
        segment = jax.checkpoint(segment, prevent_cse=False)
    end, (seen, kept) = jax.lax.scan(segment, inputs.state, (inputs.drive, h))
    return whole_run(structure, want_average, coefficients, seen, end), kept


def integrate_plain(inputs: Inputs, *, structure, running, h, want_average, store_stages=False) -> Run:
    """`integrate` without its hand-written adjoint, with derivatives of every kind and order.

    Of each order of reverse mode every segment stores one state, and computes its stages again.
    """
    return _march(structure, want_average, "nothing", inputs, running, h, checkpoint=True)[0]


@eqx.filter_custom_vjp
def integrate(inputs: Inputs, *, structure, running, h, want_average, store_stages) -> Run:
    """Integrate the medium over all steps.

    Args:
        inputs: the differentiable numbers.
        structure: which elements there are; static.
        running: the running z-integral, shape (z, z) or (field, z, z).
        h: step lengths, shape (segment, step); a step of length 0 changes nothing and serves as padding.
        want_average: whether to keep the class-averaged state; static.
        store_stages: whether a gradient stores every stage, or one state per segment and computes it again; static.

    Returns:
        What was observed at the start of each step and at the end, and the end itself.
    """
    return _march(structure, want_average, "nothing", inputs, running, h)[0]


@integrate.def_fwd
def _integrate_fwd(perturbed, inputs, *, structure, running, h, want_average, store_stages):
    run, kept = _march(structure, want_average, "stages" if store_stages else "segments", inputs, running, h)
    return run, (kept, run.end)


@integrate.def_bwd
def _integrate_bwd(residuals, cotangent, perturbed, inputs, *, structure, running, h, want_average, store_stages):
    kept, end = residuals
    coefficients, material = inputs.coefficients, any(perturbed.coefficients)
    segments, steps = h.shape

    def given(x, *shape):
        return jnp.zeros((*shape, end.shape[-1]), end.dtype) if x is None else x

    points = segments * steps + 1
    seen_bar = Observed(
        given(cotangent.seen.source, points, *inputs.drive.shape[3:]),
        given(cotangent.seen.average, points, end.shape[0]) if want_average else None,
    )
    end_bar = given(cotangent.end, *end.shape[:-1])
    last_bar = jax.tree.map(lambda x: x[-1], seen_bar)
    seen_bar = jax.tree.map(lambda x: x[:-1].reshape(segments, steps, *x.shape[1:]), seen_bar)

    def segment(state_bar, x):
        drive, h, kept, seen_bar = x
        states, rabi = kept if store_stages else _segment(structure, coefficients, running, kept, drive, h)[1][:2]
        state_bar, (rabi_bar, slope_bar) = _segment_adjoint(
            structure, coefficients, running, state_bar, states, rabi, _stages(h), seen_bar, material
        )
        drive_bar = jnp.sum(rabi_bar, axis=-1).reshape(drive.shape)
        if not material:
            return state_bar, (drive_bar, None)
        source_bar = rabi_bar @ running
        source_bar = source_bar.at[::STAGES].add(seen_bar.source)
        return state_bar, (
            drive_bar,
            _material(structure, coefficients, states, rabi, slope_bar, source_bar, seen_bar.average),
        )

    state_bar = _observe_transpose(structure, coefficients, last_bar, end_bar)
    state_bar, (drive_bar, coefficients_bar) = jax.lax.scan(
        segment, state_bar, (inputs.drive, h, kept, seen_bar), reverse=True
    )
    if material:
        _, transpose = jax.vjp(lambda c: observe(structure, want_average, c, end), coefficients)
        coefficients_bar = jax.tree.map(lambda a, b: jnp.sum(a, 0) + b, coefficients_bar, transpose(last_bar)[0])
    else:
        coefficients_bar = jax.tree.map(lambda _: None, coefficients)
    return Inputs(coefficients_bar, state_bar, drive_bar)


def _observe_transpose(structure: Structure, coefficients: Coefficients, seen_bar: Observed, state_bar):
    """Add the cotangent of what was observed to that of the state."""
    rows = rhs.add_source_transpose(structure, coefficients, state_bar, seen_bar.source)
    state_bar = rhs.stack_rows(rows, state_bar)
    if seen_bar.average is None:
        return state_bar
    return state_bar + coefficients.weights[:, None] * seen_bar.average[:, None, :]


def _segment_adjoint(structure, coefficients, running, state_bar, states, rabi, stages, seen_bar, material):
    """Carry the cotangent of the state backwards over one segment; also those of Ω and of dρ/dt at every stage."""

    def at_first_stage(x):
        return jnp.zeros((x.shape[0], STAGES, *x.shape[1:]), x.dtype).at[:, 0].set(x).reshape(-1, *x.shape[1:])

    def stage(carry, x):
        state_bar, k_bar = carry
        state, rabi, c, seen_bar = x
        k_bar = k_bar + c.b * state_bar
        slope_bar = c.h * k_bar
        rows, rabi_bar = rhs.lindblad_transpose(structure, coefficients, state, slope_bar, rabi)
        source_bar = rabi_bar @ running + seen_bar.source
        rows = rhs.add_source_transpose(structure, coefficients, rows, source_bar)
        state_bar = state_bar + rhs.stack_rows(rows, state_bar)
        if seen_bar.average is not None:
            state_bar = state_bar + coefficients.weights[:, None] * seen_bar.average[:, None, :]
        return (state_bar, c.a * k_bar), (rabi_bar, slope_bar if material else None)

    (state_bar, _), bars = jax.lax.scan(
        stage,
        (state_bar, jnp.zeros_like(state_bar)),
        (states, rabi, stages, jax.tree.map(at_first_stage, seen_bar)),
        reverse=True,
    )
    return state_bar, bars


def _material(structure, coefficients, states, rabi, slope_bar, source_bar, average_bar) -> Coefficients:
    """Cotangent of the coefficients from all stages of a segment at once: a few wide reductions, outside the scan."""

    def slope(c, y, r):
        return rhs.stack_rows(rhs.lindblad(structure, c, y, r), y)

    def slopes(c):
        return jax.vmap(partial(slope, c))(states, rabi)

    def add_slope(total, x):  # what is computed on the way would be too much of all stages of a large system
        state, rabi, slope_bar = x
        return jax.tree.map(
            jnp.add, total, jax.vjp(lambda c: slope(c, state, rabi), coefficients)[1](slope_bar)[0]
        ), None

    def observed(c):
        average = None if average_bar is None else rhs.average(c, states[::STAGES])
        return jax.vmap(lambda y: rhs.source(structure, c, y))(states), average

    if structure.unrolled:
        of_slopes = jax.vjp(slopes, coefficients)[1](slope_bar)[0]
    else:
        zero = jax.tree.map(jnp.zeros_like, coefficients)
        of_slopes, _ = jax.lax.scan(add_slope, zero, (states, rabi, slope_bar))
    return jax.tree.map(jnp.add, of_slopes, jax.vjp(observed, coefficients)[1]((source_bar, average_bar))[0])
