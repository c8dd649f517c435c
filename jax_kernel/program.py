"""From a problem and its parameters to arrays: the pure function behind `propagate`, keyed by structure alone."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient

from . import adaptive, doppler, exponential, march, pulses, quadrature, states
from .errors import ProblemError
from .generator import Structure
from .integrate import Inputs, Observed, Run, Setup, integrate, integrate_plain
from .march_options import MarchOptions
from .parameters import AXES
from .rhs import Coefficients
from .sharding import BATCH, CLASSES, Sharding, constrain, fill, gather, place


@dataclass(frozen=True)
class Program:
    """Everything an executable depends on besides shapes; hashable.

    Attributes:
        structure: levels, pairs and channels.
        channel_decays: decay to which each channel belongs.
        operator_decays: decay to which each dense operator belongs.
        backward: whether each field enters at the end of the medium.
        envelopes: name of each field's pulse.
        sampled: fields whose pulse is replaced by samples.
        z_nodes: nodes of the z-quadrature.
        outputs: names of what is returned, attributes of `Solution`.
        store_stages: whether a gradient stores every stage.
        dtype: "float32" or "float64".
        solver: "runge-kutta" or "exponential" on the fixed grid, or how diffrax integrates.
        march: the static part of a z-march, or None for cross-propagation.
        derivatives: "reverse" for first derivatives by vjp, whose adjoints are written by hand; "forward" for those of
            any order by jvp alone; "any" for every composition of the two.
        sharding: the devices that share the work, or None for one.
        fused: whether the loops of the fixed grid are one kernel.
    """

    structure: Structure
    channel_decays: tuple[int, ...]
    operator_decays: tuple[int, ...]
    backward: tuple[bool, ...]
    envelopes: tuple[str, ...]
    sampled: tuple[int, ...]
    z_nodes: int
    outputs: frozenset[str]
    store_stages: bool
    dtype: str
    solver: "str | adaptive.SolverOptions"
    march: MarchOptions | None = None
    derivatives: str = "reverse"
    sharding: Sharding | None = None
    fused: bool = False

    def __post_init__(self) -> None:
        if self.derivatives not in adaptive.DERIVATIVES:
            allowed = ", ".join(map(repr, adaptive.DERIVATIVES))
            raise ProblemError(f"Argument `derivatives` must be one of {allowed}, but is {self.derivatives!r}.")


@lru_cache(maxsize=128)
def executable(program: Program) -> Callable[..., Any]:
    """The jitted function (numbers, params) -> outputs of a program; at most 128 programs keep theirs."""
    jitted, sharding = jax.jit(partial(run, program)), program.sharding
    if sharding is None:
        return jitted
    return lambda *arguments: gather(sharding, jitted(*place(sharding, arguments)))


def batch_shapes(params: dict[str, Any]) -> list[tuple[int, ...]]:
    """The batch axes of every leaf of the parameters: those in front of its own."""

    def of(path, leaf) -> tuple[int, ...]:
        name = path[0].key
        if name == "input_fields":
            rank = 2 if len(path) == 1 else 1
        elif name == "pulse_args":
            rank = int(path[-1].key in ("tlist", "ylist"))
        else:
            rank = min(leaf.ndim, 1) if name == "number_density" else len(AXES.get(name, ()))
        return tuple(leaf.shape[: leaf.ndim - rank])

    return [of(path, leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)]


def batch_shape(params: dict[str, Any]) -> tuple[int, ...]:
    """The broadcast batch axes of all parameters."""
    shapes = batch_shapes(params)
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        different = ", ".join(str(shape) for shape in sorted(set(shapes)))
        raise ProblemError(
            f"Argument `params` must have batch axes that broadcast against each other, but they are {different}."
        ) from None


def run(program: Program, numbers: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """Run a program on every element of the batch, as one program.

    Args:
        program: the static part.
        numbers: the problem's arrays that are not parameters, from `jax_kernel.prepare`.
        params: every parameter by name and `input_fields`; leading axes beyond a parameter's own are batch axes and
            broadcast against each other.

    Returns:
        The outputs by name, each with the batch axes in front.
    """

    leaves, tree = jax.tree.flatten(params)
    batches = batch_shapes(params)
    batch, sharding = batch_shape(params), program.sharding
    if not batch:
        return _whole(sharding, _single(program, numbers, params))
    axes = [0 if b else None for b in batches]
    flat = [
        jnp.broadcast_to(leaf, (*batch, *leaf.shape[len(b) :])).reshape(-1, *leaf.shape[len(b) :]) if b else leaf
        for leaf, b in zip(leaves, batches, strict=True)
    ]
    if sharding is not None:
        flat = [
            constrain(sharding, fill(leaf, sharding.batch), BATCH) if b else leaf
            for leaf, b in zip(flat, batches, strict=True)
        ]
    mapped = jax.vmap(
        partial(_single, program, numbers),
        in_axes=(jax.tree.unflatten(tree, axes),),
        spmd_axis_name=None if sharding is None else BATCH,
    )
    out = _whole(sharding, mapped(jax.tree.unflatten(tree, flat)))
    return jax.tree.map(lambda x: x[: math.prod(batch)].reshape(*batch, *x.shape[1:]), out)


def _whole(sharding: Sharding | None, outputs):
    """The outputs, all of them on every device."""
    return jax.tree.map(partial(constrain, sharding), outputs)


def _single(program: Program, numbers: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    if program.march is not None:
        return _marched(program, program.march, numbers, params)
    structure, outputs = program.structure, program.outputs
    rule = quadrature.gauss(program.z_nodes)
    running = quadrature.directed(jnp.asarray(rule.running, program.dtype), rule.weights, program.backward)
    path, total = scaled_path(numbers, params["number_density"])
    coefficients = coefficients_of(program, numbers, params, total)
    state = states.start(structure, numbers, params, path, rule.nodes)
    state = jnp.broadcast_to(state, (len(state), len(coefficients.weights), len(rule.nodes)))
    classes = len(coefficients.weights)
    coefficients, state = _divided(program.sharding, coefficients, state)
    want_average = bool(outputs & {"density_matrix", "populations", "coherences"})
    on_grid = _on_grid_integrator(program)
    if isinstance(program.solver, str):
        steps = numbers["steps"]
        fused = program.fused and not jax.config.values["jax_disable_jit"]  # without a compiler there are no kernels
        setup = Setup(structure, want_average, "hermite" in steps, program.store_stages, fused)
        drive = _at_stages(program, numbers, params, steps)
        inputs = Inputs(coefficients, state, drive)
        seen, end = _saved(on_grid(inputs, setup=setup, running=running, h=steps["h"]), steps)
    else:
        drive_at = partial(_drive, program, _splines(program, numbers, params), params)
        seen, end, _ = adaptive.integrate(
            program.solver,
            coefficients,
            state,
            drive_at,
            numbers["time"],
            numbers["jumps"],
            structure=structure,
            running=running,
            want_average=want_average,
            derivatives=program.derivatives,
        )

    entrance = _entrance(program, numbers, params)
    integral, value = quadrature.read_out(rule, path)
    integral = quadrature.directed(integral, rule.weights, program.backward)
    inside = jnp.moveaxis(seen.source @ jnp.swapaxes(integral, -1, -2), 0, -1)
    fields = entrance[:, None, :] + jax.lax.complex(inside[:, 0], inside[:, 1])
    out = {"fields": fields}
    if "z_error" in outputs:
        out["z_error"] = _z_error(program, rule, fields, seen, end if "final_state" in outputs else None)
    if "time_error" in outputs and isinstance(program.solver, str):
        twin = numbers["twin"]
        still = stop_gradient((coefficients, state, _at_stages(program, numbers, params, twin)))
        setup = setup._replace(want_slopes="hermite" in twin)
        other, other_end = _saved(on_grid(Inputs(*still), setup=setup, running=running, h=twin["h"]), twin)
        out["time_error"] = _time_error(program, running, fields, seen, other, twin["share"])
        if "final_state" in outputs:
            difference = twin["share"] * jnp.abs(stop_gradient(end) - other_end)
            out["time_error"] = jnp.maximum(out["time_error"], _worst(difference, end, other_end))
    if want_average:
        out |= states.averaged(structure, coefficients, jnp.einsum("tcn,zn->czt", seen.average, value))
    if "final_state" in outputs:
        out["final_state"] = states.matrix(structure, jnp.einsum("cvn,zn->czv", end[:, :classes], value))
    return {name: out[name] for name in sorted(outputs & out.keys())}


def _saved(run: Run, steps: dict[str, Any]) -> tuple[Observed, Any]:
    """What was observed at the saved times, between steps where these are longer than the grid's; and the end."""
    at = steps["at"]
    if "hermite" not in steps:
        return jax.tree.map(lambda x: x[at], run.seen), run.end

    def between(x, slope):
        a, b, c, d = (w.reshape(-1, *[1] * (x.ndim - 1)) for w in steps["hermite"])
        return a * x[at] + b * x[at + 1] + c * slope[at] + d * slope[at + 1]

    return jax.tree.map(between, run.seen, run.slopes), run.end


def _divided(sharding: Sharding | None, coefficients: Coefficients, state) -> tuple[Coefficients, Any]:
    """Coefficients and a state (component, class, z) with the classes divided over the devices."""
    if sharding is None:
        return coefficients, state
    weights = coefficients.weights
    missing = -len(weights) % sharding.classes
    rotation = fill(coefficients.rotation, sharding.classes, axis=1)
    coefficients = coefficients._replace(
        rotation=constrain(sharding, rotation, None, CLASSES),
        weights=constrain(sharding, jnp.concatenate([weights, jnp.zeros(missing, weights.dtype)]), CLASSES),
    )
    return coefficients, constrain(sharding, fill(state, sharding.classes, axis=1), None, CLASSES, None)


def _on_grid_integrator(program: Program) -> Callable[..., Run]:
    """How the fixed grid is integrated, with the derivatives that are asked for."""
    if program.solver == "exponential":
        return partial(exponential.integrate, by_hand=program.derivatives == "reverse")
    return integrate if program.derivatives == "reverse" else integrate_plain


def _marched(program: Program, options: MarchOptions, numbers, params) -> dict[str, Any]:
    """The outputs of a z-march."""
    structure, outputs = program.structure, program.outputs
    coefficients = coefficients_of(program, numbers, params, jnp.ones((), program.dtype))
    state = states.start(structure, numbers, params, None, None)
    entrance = _entrance(program, numbers, params)
    state = jnp.broadcast_to(state, (len(state), len(coefficients.weights), 1))
    coefficients, state = _divided(program.sharding, coefficients, state)
    want_average = bool(outputs & {"density_matrix", "populations", "coherences"})
    marched = march.march(
        options,
        coefficients,
        state,
        jnp.stack(_parts(entrance), axis=1),
        partial(_drive, program, _splines(program, numbers, params), params),
        structure=structure,
        time=numbers["time"],
        jumps=numbers["jumps"],
        density=march.density_at(params["number_density"], numbers["z"], numbers["positions"], numbers["density"]),
        step=numbers["step"],
        want_average=want_average,
        derivatives=program.derivatives,
    )
    fields = jnp.moveaxis(marched.fields, 0, 1)
    out = {"fields": fields, "z_error": _worst(marched.error / _peaks(program, fields), jnp.abs(fields))}
    if want_average:
        out |= states.averaged(structure, coefficients, jnp.moveaxis(marched.average, 0, 1))
    return {name: out[name] for name in sorted(outputs & out.keys())}


def _peaks(program: Program, fields):
    """Peak of each field, to which its errors are relative, shape (field,).

    Below a part of the strongest field a field that is dark at its entrance is noise of the others.
    """
    sizes = jnp.abs(stop_gradient(fields))
    peaks = jnp.max(sizes, axis=(1, 2))
    entrance = jnp.max(jnp.where(jnp.asarray(program.backward)[:, None], sizes[:, -1], sizes[:, 0]), axis=1)
    precision = float(np.finfo(program.dtype).eps)
    peaks = jnp.maximum(peaks, jnp.where(entrance > 0, 1e-3 * precision, 0.01 * precision**0.5) * jnp.max(peaks))
    return jnp.where(peaks > 0, peaks, 1)


def _z_error(program: Program, rule, fields, seen: Observed, end):
    """What the polynomials in z miss, of the fields and of the states where those are observed or the end is kept."""
    missed = jnp.max(quadrature.unresolved(rule, stop_gradient(seen.source)), axis=(0, 2))
    error = _worst(missed / _peaks(program, fields), seen.source)
    for state in (seen.average, end):
        if state is not None:
            error = jnp.maximum(error, _worst(quadrature.last_coefficients(rule, stop_gradient(state)), state))
    return error


def _time_error(program: Program, running, fields, seen: Observed, other: Observed, share):
    """Richardson's estimate from a run with other steps, of the fields and of the states where those are observed."""
    difference = (stop_gradient(seen.source) - other.source) @ jnp.swapaxes(running, -1, -2)
    difference = share * jnp.abs(difference)
    error = _worst(jnp.max(difference, axis=(0, 2, 3)) / _peaks(program, fields), seen.source, other.source)
    if seen.average is None or other.average is None:
        return error
    difference = share * jnp.abs(stop_gradient(seen.average) - other.average)
    return jnp.maximum(error, _worst(difference, seen.average, other.average))


def _worst(errors, *runs):
    """The largest error; inf where a run behind it did not stay finite, which a maximum may overlook."""
    finite = jnp.isfinite(sum(jnp.sum(stop_gradient(run)) for run in runs))
    return jnp.where(finite, jnp.max(errors), jnp.inf)


def scaled_path(numbers: Any, density: Any) -> Any:
    """Scaled optical path ∫N dz up to each position of the problem, in [0, 1], and its scale.

    One number scales the problem's own profile, whose integral is exact; samples are joined by straight lines.
    """
    if density.size == 1:
        path, factor = numbers["path"], density.reshape(())
    else:
        strips = (density[1:] + density[:-1]) / 2 * jnp.diff(numbers["z"])
        path, factor = jnp.concatenate([jnp.zeros_like(strips[:1]), jnp.cumsum(strips)]), 1
    end = path[-1]
    scale = jnp.where(end > 0, end, 1)
    return path / scale, scale * factor


def coefficients_of(program: Program, numbers: Any, params: Any, total: Any) -> Coefficients:
    """The numbers of the generator from the physical parameters (all cyclic), in angular frequency."""
    structure = program.structure
    detunings = params["level_detunings"] if "level_detunings" in params else params["detunings"] @ numbers["upper"]
    energies = params["energies"] - detunings
    if "b_field" in params:
        energies = energies + params["b_field"] * numbers["zeeman"]
    shifts, weights = _classes(numbers, params)
    slopes = params.get("level_doppler_slopes", numbers["slopes"])
    levels = 2 * jnp.pi * (energies[:, None] + slopes[:, None] * shifts)
    rates = params["decay_rates"] * params["decay_scale"]
    channels = 2 * jnp.pi * rates[np.asarray(program.channel_decays, int)] * numbers["channel_factors"] ** 2
    origins = np.asarray([origin for _, origin in structure.channels], int)
    leaving = jnp.zeros(structure.num_states, program.dtype).at[origins].add(channels)
    first, second = np.asarray(structure.coherences, int).reshape(-1, 2).T
    return Coefficients(
        rotation=levels[first] - levels[second],
        damping=(leaving[first] + leaving[second]) / 2,
        transfer=channels,
        mixing=2 * jnp.pi * rates[np.asarray(program.operator_decays, int)] @ numbers["dissipators"],
        factors=numbers["factors"],
        coupling=2 * params["interaction_strengths"] * total,
        weights=weights,
    )


def _classes(numbers, params):
    """Doppler shifts and weights of the velocity classes: nodes that grow with the thermal width, or a fixed grid."""
    if "nodes" in numbers:
        return params["thermal_width"] * numbers["nodes"], numbers["node_weights"]
    if "thermal_width" in params:
        weights = doppler.weights(numbers["shifts"], numbers["intervals"], params["thermal_width"], xp=jnp)
        return numbers["shifts"], weights
    return numbers["shifts"], jnp.ones_like(numbers["shifts"])


def _samples(params, field):
    given = params["input_fields"]
    return given[field] if isinstance(given, dict) else given[..., field, :]


def _splines(program: Program, numbers, params):
    """Cubic drives of the sampled fields, real and imaginary part."""
    return {k: pulses.spline(numbers["time"], _samples(params, k)) for k in program.sampled}


def _drive(program: Program, splines, params, t, inside=None):
    """Ω of every field at the entrance, real and imaginary, shape (*t, field, 2)."""
    rows = []
    for k, name in enumerate(program.envelopes):
        if k in program.sampled:
            real, imaginary = _parts(splines[k](t))
        else:
            a, b = _parts(params["rabi_freq"][k])
            c, d = _parts(pulses.evaluate(name, params["pulse_args"][k], t, inside))
            real, imaginary = a * c - b * d, a * d + b * c
        rows.append(jnp.stack([real, imaginary], -1))
    return jnp.stack(rows, -2)


def _parts(x):
    return jnp.real(x), jnp.imag(x)


def _at_stages(program: Program, numbers, params, steps):
    drive = _drive(program, _splines(program, numbers, params), params, steps["stage_times"], steps["inside"])
    return drive.reshape(*steps["h"].shape, -1, *drive.shape[1:])


def _entrance(program: Program, numbers, params):
    """Ω of every field at the entrance on the time grid: the samples themselves where there are samples."""
    drive = _drive(program, {k: _on_grid(_samples(params, k)) for k in program.sampled}, params, numbers["time"])
    return jax.lax.complex(drive[..., 0], drive[..., 1]).T


def _on_grid(samples):
    return lambda t: samples
