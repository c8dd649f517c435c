"""From a problem, a resolution and options to one executable's static part and the arrays that are not parameters."""

import itertools
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import exponential, fused, integrate, march_options, parameters, timesteps
from .doppler import gauss_hermite, level_doppler_slopes, quadrature_weights, upper_levels
from .generator import Structure
from .medium import optical_path
from .options import Options
from .problem import Problem
from .program import Program
from .quadrature import gauss
from .resolution import MarchResolution, Resolution, longest_step
from .states import to_nodes

STAGE_BUDGET = 256 * 2**20
"""Bytes up to which a gradient with memory="auto" stores every stage instead of computing it again.

Not where the loops are one kernel, for which it is faster to compute them again than to fetch them from memory.
"""

COMPLEX = {"float32": "complex64", "float64": "complex128"}


class Prepared(NamedTuple):
    """A problem made ready for one executable.

    Attributes:
        program: the static part, which keys the executable.
        numbers: arrays that are not parameters.
    """

    program: Program
    numbers: dict[str, Any]


@lru_cache(maxsize=64)
def prepare(
    problem: Problem,
    at: Resolution | MarchResolution,
    options: Options,
    outputs: frozenset[str],
    sampled: tuple[int, ...],
    edges: tuple[tuple[float, ...], ...],
    start: str,
    batch_size: int = 1,
) -> Prepared:
    """Everything about a run that is not a parameter, from concrete values alone.

    Args:
        problem: what is solved.
        at: resolution.
        options: how to solve.
        outputs: attributes of `Solution` to return.
        sampled: fields whose pulse is replaced by samples.
        edges: times at which each field's pulse jumps.
        start: parameter that gives the state at the start and, with it, which elements may be there: "initial_state",
            "initial_density_matrix", or "" for the populations of the problem.
        batch_size: number of problems in the batch, for the memory rule.
    """
    parts, structure = _parts(problem), structure_of(problem, start)
    jumps = sorted({t for k, times in enumerate(edges) if k not in sampled for t in times})
    arrays = _physics(problem, parts, structure)
    precision = np.finfo(options.dtype).eps * np.max(np.abs(problem.time))
    if precision > 0.02 * longest_step(problem, at):
        parameters.fail("dtype", "resolve the time steps (move the window to t = 0, or take float64)",
                        f"{options.dtype} resolves only {precision:.1g} at these times")  # fmt: skip
    common: dict[str, Any] = {
        "structure": structure,
        "channel_decays": tuple(channel[0] for channel in parts.channels),
        "operator_decays": tuple(parts.operators),
        "backward": tuple(field.counter_propagating for field in problem.fields),
        "envelopes": tuple(field.envelope.name for field in problem.fields),
        "sampled": sampled,
        "outputs": outputs,
        "dtype": options.dtype,
        "derivatives": options.mode,
        "sharding": options.sharding,
    }
    if isinstance(at, MarchResolution):
        march_options.refuse_states(outputs, start)
        arrays |= {"jumps": np.asarray(jumps)} | march_options.arrays(problem, at)
        static = march_options.prepare(problem, at, options, options.tolerances(), jumps)
        program = Program(**common, z_nodes=0, store_stages=False, solver=static.solver, march=static)
        return Prepared(program, to_arrays(arrays, options.dtype))
    if start == "initial_density_matrix":
        arrays["to_nodes"] = to_nodes(arrays["path"], gauss(at.z_nodes).nodes)
    method = exponential if options.solver == "exponential" else integrate
    if method is exponential and at.t_substeps < 1:
        parameters.fail("resolution.t_substeps", 'be at least 1 with solver="exponential"', f"is {at.t_substeps}")
    one_kernel = options.solver == "runge-kutta" and options.sharding is None and fused.is_available(structure)
    steps = timesteps.build(problem.time, at.t_substeps, jumps, method.STAGE_C, None)
    stage_bytes = steps.h.size * method.STORED * structure.num_components * len(problem.doppler_shifts) * at.z_nodes
    stage_bytes *= batch_size * np.dtype(options.dtype).itemsize
    affordable = not one_kernel and stage_bytes <= STAGE_BUDGET
    store_stages = options.memory == "fast" or (options.memory == "auto" and affordable)
    store_stages = store_stages and options.mode == "reverse"  # the others have checkpoints a segment
    if not store_stages:
        per_segment = max(1, round(math.sqrt(steps.h.size / method.STORED)))
        steps = timesteps.build(problem.time, at.t_substeps, jumps, method.STAGE_C, per_segment)
    arrays["steps"] = _given(steps)
    if not options.on_grid:
        arrays["jumps"] = np.asarray(jumps)
    elif "time_error" in outputs:
        order = 1 if method is exponential and at.t_substeps < 4 else method.ORDER  # which shows only at finer steps
        order = 2 if sampled and at.t_substeps < 1 else order  # samples may have kinks between the ends of a step
        twin = timesteps.twin(problem.time, at.t_substeps, jumps, method.STAGE_C, order)
        arrays["twin"] = _given(twin.steps) | {"share": twin.share}
    program = Program(
        **common, z_nodes=at.z_nodes, store_stages=store_stages, solver=options.solver_options(), fused=one_kernel
    )
    return Prepared(program, to_arrays(arrays, options.dtype))


def _given(steps: timesteps.TimeSteps) -> dict[str, np.ndarray]:
    return {name: x for name, x in steps._asdict().items() if x is not None}


def _physics(problem: Problem, parts: "_Parts", structure: Structure) -> dict[str, Any]:
    """The arrays of a problem that are neither parameters nor a scheme's."""
    arrays = {
        "time": problem.time,
        "z": problem.z,
        "path": optical_path(problem),
        "factors": np.asarray([pair[3] for pair in parts.pairs]),
        "channel_factors": np.asarray([channel[3] for channel in parts.channels]),
        "upper": upper_levels(problem),
        "slopes": level_doppler_slopes(problem),
        "dissipators": structure.mixing(parts.operators.values()),
    } | _class_arrays(problem)
    if problem.b_field is not None:
        arrays["zeeman"] = np.asarray(problem.b_field.shifts)
    return arrays


class _Parts(NamedTuple):
    """What a problem's generator is made of.

    Attributes:
        pairs: (field, lower, upper, factor) of every driven pair with a nonzero factor.
        channels: (decay, to, from, factor) of every decay channel with a nonzero factor.
        operators: dense collapse operator of several elements by decay.
    """

    pairs: list[tuple[int, int, int, float]]
    channels: list[tuple[int, int, int, float]]
    operators: dict[int, np.ndarray]


def _parts(problem: Problem) -> _Parts:
    pairs = [
        (k, a, b, factor)
        for k, field in enumerate(problem.fields)
        for (a, b), factor in zip(field.coupled_levels, field.factors, strict=True)
        if factor
    ]
    channels, operators = [], {}
    for d, decay in enumerate(problem.decays):
        channels += [(d, a, b, f) for (a, b), f in zip(decay.channels, decay.factors, strict=True) if f]
        if decay.operator is not None:
            operator = np.asarray(decay.operator)
            elements = np.argwhere(operator).tolist()
            if len(elements) == 1:  # a channel, whose phase means nothing
                channels += [(d, a, b, float(abs(operator[a, b]))) for a, b in elements]
            else:
                operators[d] = operator
    return _Parts(pairs, channels, operators)


@lru_cache(maxsize=128)
def structure_of(problem: Problem, start: str) -> Structure:
    """Which elements of the generator and of the density matrix there are; `start` as in `prepare`."""
    pairs, channels, operators = _parts(problem)
    return Structure.build(
        problem.num_states,
        len(problem.fields),
        [pair[:3] for pair in pairs],
        [channel[1:3] for channel in channels],
        _start_elements(problem, start),
        [tuple((int(i), int(j)) for i, j in np.argwhere(operator)) for operator in operators.values()],
    )


def _start_elements(problem: Problem, start: str) -> Iterable[tuple[int, int]]:
    """Elements of the density matrix that may be there at the start."""
    levels = range(problem.num_states)
    if start == "initial_density_matrix":
        return itertools.product(levels, levels)
    return [(i, i) for i in levels if start == "initial_state" or problem.initial_state[i]]


def _class_arrays(problem: Problem) -> dict[str, np.ndarray]:
    """The velocity classes: nodes in units of the thermal width, or a grid of shifts."""
    classes = problem.velocity_classes
    if classes is not None and classes.quadrature is not None:
        rule = gauss_hermite(classes.nodes)
        return {"nodes": rule.nodes, "node_weights": rule.weights}
    return {"shifts": problem.doppler_shifts, "intervals": quadrature_weights(problem.doppler_shifts)}


def start_parameter(given: parameters.Given) -> str:
    """The parameter that gives the state at the start, "" where it is the problem's own."""
    return next((name for name in ("initial_state", "initial_density_matrix") if name in given.params), "")


def to_arrays(tree: Any, dtype: str) -> Any:
    """NumPy values as JAX arrays of one precision that are concrete even inside a trace."""

    def one(x):
        x = np.asarray(x)
        kinds = {"f": dtype, "i": "int32" if x.ndim else dtype, "u": dtype, "c": COMPLEX[dtype]}
        return jnp.asarray(x.astype(kinds[x.dtype.kind]))

    with jax.ensure_compile_time_eval(), jax.enable_x64(dtype == "float64"):
        return jax.tree.map(one, tree)
