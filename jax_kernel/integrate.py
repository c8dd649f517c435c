"""The checkpointed fixed-grid scan of the cross-propagation scheme, with its hand-written adjoint.

One low-storage Runge–Kutta stage is k ← A k + h f(y); y ← y + B k (Carpenter and Kennedy, NASA TM-109112, 1994, the
five-stage fourth-order scheme). Read backwards it is the adjoint: with ȳ the cotangent of y after the stage, and f̄ that
of f in the next stage, f̄ ← A f̄ + h B ȳ with the A of the next stage; ȳ ← ȳ + (∂f/∂y)ᵀ f̄.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from . import fused, rhs
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


class Setup(NamedTuple):
    """The static arguments of `integrate`.

    Attributes:
        structure: which elements there are.
        want_average: whether to keep the class-averaged state.
        want_slopes: whether to keep what is observed of dρ/dt, too.
        store_stages: whether a gradient stores every stage, or one state per segment and computes it again.
        fused: whether the loops are one kernel.
    """

    structure: Structure
    want_average: bool
    want_slopes: bool
    store_stages: bool
    fused: bool


class Observed(NamedTuple):
    """What is kept of a state, or of dρ/dt; a linear function of it, here along the steps.

    Attributes:
        source: dΩ/dζ, shape (step, field, 2, z).
        average: class average of the state, shape (step, component, z), or None when not asked for.
    """

    source: Float[Array, "step field 2 z"]
    average: Float[Array, "step component z"] | None


class Run(NamedTuple):
    """What an integration returns.

    Attributes:
        seen: what was observed of the state at the start of every step.
        end: the state at the end, shape (component, class, z).
        slopes: what was observed of dρ/dt at the start of every step, or None when not asked for.
    """

    seen: Observed
    end: Float[Array, "component class z"]
    slopes: Observed | None = None


class _Stages(NamedTuple):
    """The constants of every stage.

    Attributes:
        h: length of its step.
        a: A of the stage.
        a_after: A of the next stage.
        b: B of the stage.
        b_before: B of the stage before.
        number: of the stage within its segment.
    """

    h: Float[Array, "segment stage"]
    a: Float[Array, "segment stage"]
    a_after: Float[Array, "segment stage"]
    b: Float[Array, "segment stage"]
    b_before: Float[Array, "segment stage"]
    number: Int[Array, "segment stage"]


class _Trace(NamedTuple):
    """What the stages of a segment start from, one row a stage."""

    state: Any
    rabi: Float[Array, "stage field 2 z"]


def _stages(h) -> _Stages:
    segments, steps = h.shape
    factors = (STAGE_A, np.roll(STAGE_A, -1), STAGE_B, np.roll(STAGE_B, 1))
    tiled = [jnp.tile(jnp.asarray(x, h.dtype), (segments, steps)) for x in factors]
    number = jnp.broadcast_to(jnp.arange(steps * STAGES, dtype=jnp.int32), (segments, steps * STAGES))
    return _Stages._make([jnp.repeat(h, STAGES, axis=1), *tiled, number])


def field_at_nodes(drive: Any, source: Any, running: Any) -> Any:
    """Ω at the z-nodes from Ω at the entrance (…, field, 2) and the source (…, field, 2, z).

    `running` integrates from the entrance to each node, shape (z, z); (field, z, z) where fields enter at either end.
    """
    return drive[..., None] + source @ jnp.swapaxes(running, -1, -2)


def derivative(structure: Structure, coefficients: Coefficients, running: Any, state: Any, drive: Any) -> Any:
    """dρ/dt of the whole medium for Ω at the entrance: the one right-hand side of every integrator."""
    rabi = field_at_nodes(drive, rhs.source(structure, coefficients, state), running)
    return rhs.stack_rows(rhs.lindblad(structure, coefficients, state, rabi), state)


def observe(structure: Structure, want_average: bool, coefficients: Coefficients, state: Any) -> Observed:
    """What is kept of one state."""
    average = rhs.average(coefficients, state) if want_average else None
    return Observed(rhs.source(structure, coefficients, state), average)


def _plus_product(setup: Setup, start, vectors, matrix):
    """start (field, 2, z) plus vectors of this shape times a matrix (z, z), or one of each field."""
    if not setup.fused:
        return start + vectors @ matrix
    start = jnp.broadcast_to(start, vectors.shape)
    if matrix.ndim == 2:
        return fused.product(vectors, matrix, start)
    return jnp.stack([fused.product(*x) for x in zip(vectors, matrix, start, strict=True)])


def _segment(setup: Setup, coefficients: Coefficients, transposed, state, drive, stages: _Stages, *, trace: bool):
    """Advance over the steps of one segment; also what was seen at the start of each, and the trace of its stages."""
    structure, want_average = setup.structure, setup.want_average

    def stage(carry, x):
        y, k = carry
        drive, c = x
        y = jax.tree.map(lambda y, k: y + c.b_before * k, y, k)  # of the stage before, so that it needs no copy of y
        seen = observe(structure, want_average, coefficients, y)
        rabi = _plus_product(setup, drive[..., None], seen.source, transposed)
        slope = rhs.stack_rows(rhs.lindblad(structure, coefficients, y, rabi), y)
        slopes = observe(structure, want_average, coefficients, slope) if setup.want_slopes else None
        k = jax.tree.map(lambda k, s: c.a * k + c.h * s, k, slope)
        return (y, k), (seen, slopes, _Trace(y, rabi) if trace else None)

    flat = drive.reshape(-1, *drive.shape[2:])
    start = (state, jax.tree.map(jnp.zeros_like, state))
    (y, k), (seen, slopes, traced) = lax.scan(stage, start, (flat, stages))
    end = jax.tree.map(lambda y, k: y + float(STAGE_B[-1]) * k, y, k)
    return end, jax.tree.map(lambda x: x[::STAGES], (seen, slopes)), traced


def _march(setup: Setup, keep: str, inputs: Inputs, running, h, *, checkpoint: bool = False):
    """Run all segments. `keep` is what the adjoint will need of them: "nothing", "segments" or "stages"."""

    def all_segments(coefficients, state, drive, stages, transposed):
        coefficients = rhs.one_by_one(setup.structure, coefficients)
        state = tuple(state) if setup.fused else state

        def segment(state, x):
            end, seen, traced = _segment(setup, coefficients, transposed, state, *x, trace=keep == "stages")
            return end, (seen, {"nothing": None, "segments": state, "stages": traced}[keep])

        if checkpoint:
            segment = jax.checkpoint(segment, prevent_cse=False)
        end, ((seen, slopes), kept) = lax.scan(segment, state, (drive, stages))
        return jnp.stack(end) if setup.fused else end, seen, slopes, kept

    run = fused.single_kernel(all_segments, setup.fused)
    transposed = jnp.swapaxes(running, -1, -2)
    end, seen, slopes, kept = run(inputs.coefficients, inputs.state, inputs.drive, _stages(h), transposed)
    seen, slopes = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (seen, slopes))
    return Run(seen, end, slopes), kept


def integrate_plain(inputs: Inputs, *, setup: Setup, running: Any, h: Any) -> Run:
    """`integrate` without its hand-written adjoint, with derivatives of every kind and order.

    Of each order of reverse mode every segment stores one state, and computes its stages again.
    """
    return _march(setup._replace(fused=False), "nothing", inputs, running, h, checkpoint=True)[0]


@eqx.filter_custom_vjp
def integrate(inputs: Inputs, *, setup: Setup, running, h) -> Run:
    """Integrate the medium over all steps.

    Args:
        inputs: the differentiable numbers.
        setup: what is static.
        running: the running z-integral, shape (z, z) or (field, z, z).
        h: step lengths, shape (segment, step); one of length 0 changes nothing, but shows the state there.

    Returns:
        What was observed at the start of each step, and the end itself.
    """
    return _march(setup, "nothing", inputs, running, h)[0]


@integrate.def_fwd
def _integrate_fwd(perturbed, inputs, *, setup, running, h):
    return _march(setup, "stages" if setup.store_stages else "segments", inputs, running, h)


@integrate.def_bwd
def _integrate_bwd(kept, cotangent, perturbed, inputs, *, setup, running, h):
    structure, shape = setup.structure, inputs.state.shape
    chosen = tuple(bool(x) for x in perturbed.coefficients)

    def given(x, *shape):
        return jnp.zeros(shape, h.dtype) if x is None else x

    def observed(x: Observed | None) -> Observed:
        source = given(x and x.source, h.size, *inputs.drive.shape[3:], shape[-1])
        average = given(x and x.average, h.size, shape[0], shape[-1]) if setup.want_average else None
        return jax.tree.map(lambda x: x.reshape(*h.shape, *x.shape[1:]), Observed(source, average))

    def all_segments(coefficients, end_bar, drive, stages, kept, bars, running, transposed):
        coefficients = rhs.one_by_one(structure, coefficients)
        total = jax.tree.map(jnp.zeros_like, _chosen(rhs.widened(structure, coefficients, shape[1:]), chosen))

        def segment(carry, x):
            drive, stages, kept, bars = x
            if not setup.store_stages:
                kept = _segment(setup, coefficients, transposed, kept, drive, stages, trace=True)[2]
            return _segment_adjoint(setup, chosen, coefficients, running, carry, kept, stages, bars)

        end_bar = tuple(end_bar) if setup.fused else end_bar
        (state_bar, total), drive_bar = lax.scan(segment, (end_bar, total), (drive, stages, kept, bars), reverse=True)
        return jnp.stack(state_bar) if setup.fused else state_bar, total, drive_bar

    run = fused.single_kernel(all_segments, setup.fused)
    bars = observed(cotangent.seen), observed(cotangent.slopes) if setup.want_slopes else None
    matrices = running, jnp.swapaxes(running, -1, -2)
    state_bar, total, drive_bar = run(
        inputs.coefficients, given(cotangent.end, *shape), inputs.drive, _stages(h), kept, bars, *matrices
    )
    drive_bar = jnp.sum(drive_bar, axis=-1).reshape(inputs.drive.shape)
    return Inputs(_gathered(structure, inputs.coefficients, shape[1:], total, chosen), state_bar, drive_bar)


def _chosen(coefficients: Coefficients, chosen: tuple[bool, ...]) -> Coefficients:
    """The coefficients that a gradient is asked for; None in place of the others."""
    return Coefficients._make(x if choose else None for x, choose in zip(coefficients, chosen, strict=True))


def _filled(some: Coefficients, coefficients: Coefficients) -> Coefficients:
    """The coefficients, with some of them replaced."""
    return Coefficients._make(y if x is None else x for x, y in zip(some, coefficients, strict=True))


def _gathered(structure: Structure, coefficients: Coefficients, shape, total: Coefficients, chosen: tuple[bool, ...]):
    """The cotangents of the coefficients from those of the widened ones."""

    def wide(some: Coefficients) -> Coefficients:
        split = rhs.one_by_one(structure, _filled(some, coefficients))
        return _chosen(rhs.widened(structure, split, shape), chosen)

    return jax.vjp(wide, _chosen(coefficients, chosen))[1](total)[0]


def _segment_adjoint(setup: Setup, chosen, coefficients, running, carry, trace: _Trace, stages: _Stages, bars):
    """Carry the cotangents of state and coefficients backwards over one segment; also that of the drive, in parts."""
    structure = setup.structure

    def stage(carry, x):
        state_bar, slope_bar, total = carry
        (state, rabi), c = x
        step, within = c.number // STAGES, c.number % STAGES
        at_first = jax.tree.map(lambda x: jnp.where(within == 0, lax.dynamic_index_in_dim(x, step, 0, False), 0), bars)
        own = slope_bar = jax.tree.map(lambda s, y: c.a_after * s + (c.h * c.b) * y, slope_bar, state_bar)
        if at_first[1] is not None:
            slope_bar = _observed_transpose(structure, coefficients, slope_bar, at_first[1], state)
        rows, rabi_bar = rhs.lindblad_transpose(structure, coefficients, state, slope_bar, rabi)
        through = at_first[0]._replace(source=_plus_product(setup, at_first[0].source, rabi_bar, running))
        state_bar = jax.tree.map(jnp.add, state_bar, _observed_transpose(structure, coefficients, rows, through, state))
        if any(chosen):
            change = _coefficients_bar(setup, chosen, coefficients, state, rabi, slope_bar, through, at_first[1])
            total = jax.tree.map(jnp.add, total, change)
        drive_bar = fused.partial_sum(rabi_bar) if setup.fused else jnp.sum(rabi_bar, axis=-1, keepdims=True)
        return (state_bar, own, total), drive_bar

    state_bar, total = carry
    start = state_bar, jax.tree.map(jnp.zeros_like, state_bar), total
    (state_bar, _, total), drive_bar = lax.scan(stage, start, (trace, stages), reverse=True)
    return (state_bar, total), drive_bar


def _observed_transpose(structure: Structure, coefficients: Coefficients, rows, bar: Observed, like):
    """Component rows plus the transpose of `observe`, as a state."""
    rows = rhs.add_source_transpose(structure, coefficients, rows, bar.source)
    if bar.average is not None:
        rows = rhs.add_average_transpose(structure, coefficients, rows, bar.average)
    return rhs.stack_rows(rows, like)


def _contributions(setup: Setup, coefficients: Coefficients, state) -> Observed:
    """What is observed, not yet summed over the classes, the axis before the last, where the code is unrolled."""
    if not setup.structure.unrolled:
        return observe(setup.structure, setup.want_average, coefficients, state)
    average = jnp.stack(rhs.weighted(coefficients, tuple(state))) if setup.want_average else None
    return Observed(jnp.stack([jnp.stack(part) for part in rhs.emitted(setup.structure, coefficients, state)]), average)


def _coefficients_bar(setup: Setup, chosen, coefficients, state, rabi, slope_bar, seen_bar: Observed, slopes_bar):
    """The cotangent of the chosen coefficients, widened, from those of what one stage computes."""
    structure, shape = setup.structure, state[0].shape

    def linear(some: Coefficients):
        c = _filled(some, coefficients)
        slope = rhs.stack_rows(rhs.lindblad(structure, c, state, rabi), state)
        seen = _contributions(setup, c, state)
        if slopes_bar is None:
            return slope, seen
        return slope, seen, _contributions(setup, c, lax.stop_gradient(slope))

    values, transpose = jax.vjp(linear, _chosen(rhs.widened(structure, coefficients, shape), chosen))
    of_classes = [bar for bar in (seen_bar, slopes_bar) if bar is not None]
    if structure.unrolled:  # every class has the cotangent of the sum
        of_classes = [
            jax.tree.map(lambda x, like: jnp.broadcast_to(x[..., None, :], like.shape), bar, value)
            for bar, value in zip(of_classes, values[1:], strict=True)
        ]
    return transpose((slope_bar, *of_classes))[0]
