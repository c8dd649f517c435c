"""The differentiable parameters of a problem: their names, shapes, defaults and rules."""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import diffrax
import jax
import numpy as np

from . import pulses
from .errors import ProblemError
from .problem import Problem

PARAMETERS = (
    "pulse_args",
    "rabi_freq",
    "interaction_strengths",
    "detunings",
    "decay_scale",
    "decay_rates",
    "b_field",
    "energies",
    "number_density",
    "thermal_width",
    "initial_state",
    "initial_density_matrix",
    "level_detunings",
    "level_doppler_slopes",
)
"""Names of the parameters, in the order of the documentation of `propagate`."""

_NONNEGATIVE = ("decay_scale", "decay_rates", "number_density")
_COMPLEX = ("rabi_freq", "initial_density_matrix")


AXES: dict[str, tuple[str, ...]] = {
    "rabi_freq": ("field",),
    "interaction_strengths": ("field",),
    "detunings": ("field",),
    "decay_rates": ("decay",),
    "energies": ("level",),
    "initial_state": ("level",),
    "initial_density_matrix": ("z", "class", "level", "level"),
    "level_detunings": ("level",),
    "level_doppler_slopes": ("level",),
}
"""Axes of each parameter behind its batch axes, where it has any; `number_density` may have z."""


def _check_shape(problem: Problem, name: str, shape: tuple[int, ...]) -> None:
    if name == "number_density":
        if shape and shape[-1] not in (1, problem.z_steps + 1):
            points = problem.z_steps + 1
            fail(name, f"be a factor, shape () or (*batch, 1), or samples, shape (*batch, z) with z = {points}",
                 f"has shape {shape}")  # fmt: skip
        return
    if name == "initial_density_matrix":
        levels = problem.num_states
        sizes = (problem.z_steps + 1, len(problem.doppler_shifts), levels, levels)
        own = shape[-4:]
        fits = len(own) == 4 and own[2:] == sizes[2:] and own[0] in (1, sizes[0]) and own[1] in (1, sizes[1])
        if not fits:
            fail(name, f"have shape (*batch, z, class, level, level) with (z, class, level, level) = {sizes}, where z "
                 "and class may be 1", f"has shape {shape}")  # fmt: skip
        return
    axes = AXES.get(name, ())
    counts = {"field": len(problem.fields), "level": problem.num_states, "decay": len(problem.decays)}
    lengths = tuple(counts[axis] for axis in axes)
    if len(shape) < len(axes) or shape[len(shape) - len(axes) :] != lengths:
        listed = ", ".join(axes)
        fail(name, f"have shape (*batch, {listed}) with ({listed}) = {lengths}", f"has shape {shape}")


def defaults(problem: Problem) -> dict[str, Any]:
    """Every parameter's value in the problem, as NumPy arrays; `b_field` and `thermal_width` where there is one."""
    values: dict[str, Any] = {
        "pulse_args": tuple({key: np.asarray(value) for key, value in field.envelope.args} for field in problem.fields),
        "rabi_freq": np.asarray([field.rabi_freq for field in problem.fields]),
        "interaction_strengths": np.asarray(problem.interaction_strengths),
        "detunings": np.asarray([field.detuning for field in problem.fields]),
        "decay_scale": np.asarray(1.0),
        "decay_rates": np.asarray([decay.rate for decay in problem.decays], dtype=float),
        "energies": np.asarray(problem.energies),
        "number_density": np.asarray(1.0),
        "initial_state": np.asarray(problem.initial_state, dtype=float),
    }
    for name in ("level_detunings", "level_doppler_slopes"):
        if getattr(problem, name) is not None:
            values[name] = np.asarray(getattr(problem, name), dtype=float)
    if problem.b_field is not None:
        values["b_field"] = np.asarray(problem.b_field.magnitude)
    if problem.velocity_classes is not None:
        values["thermal_width"] = np.asarray(problem.velocity_classes.thermal_width)
    return values


def is_concrete(value: Any) -> bool:
    """Whether the value can be looked at now: it is neither a tracer nor a bare shape."""
    return isinstance(value, np.ndarray) or (isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer))


def fail(name: str, rule: str, actual: str) -> NoReturn:
    """Raise the house's one-sentence error."""
    raise ProblemError(f"Argument `{name}` must {rule}, but {actual}.")


def suggestion(name: Any, known: Sequence[str]) -> str:
    """The nearest known name as a question in brackets, or nothing."""
    near = difflib.get_close_matches(str(name), known, 1)
    return f" (did you mean `{near[0]}`?)" if near else ""


def _check_numbers(name: str, value: Any, *, nonnegative: bool = False, may_be_complex: bool = False) -> None:
    """Raise unless the array is numeric, of the right kind and, where it can be seen, finite and not negative."""
    dtype = np.dtype(value.dtype)
    if dtype.kind not in ("fiuc" if may_be_complex else "fiu"):
        fail(name, "be complex or real numbers" if may_be_complex else "be real numbers", f"has dtype {dtype.name}")
    if dtype.kind == "f" and dtype.itemsize < 4:
        fail(name, "be float32 or float64, which the physics needs", f"has dtype {dtype.name}")
    if is_concrete(value):
        seen = np.asarray(value)
        if not np.isfinite(seen).all():
            fail(name, "be finite", f"has {seen[~np.isfinite(seen)].flat[0]}")
        if nonnegative and (seen < 0).any():
            fail(name, "be nonnegative", f"has {seen.min():g}")


class Given(NamedTuple):
    """Parameters as a user gave them, by name and by field, with values that nobody has looked at yet.

    Attributes:
        params: value by name; `pulse_args` is a tuple with one dict per field. None values are left out.
        input_fields: None, one array for all fields, or a dict by field index.
        sampled: indices of the fields whose pulse the samples replace.
    """

    params: dict[str, Any]
    input_fields: Any
    sampled: tuple[int, ...]

    def map(self, fn: Callable[[str, Any], Any]) -> "Given":
        """Apply a function of (name, value) to every value."""

        def by_name(name: str, value: Any) -> Any:
            if name == "pulse_args":
                return tuple(
                    {key: fn(f"pulse_args[{k}].{key}", v) for key, v in args.items()} for k, args in enumerate(value)
                )
            return fn(name, value)

        fields = self.input_fields
        if isinstance(fields, Mapping):
            fields = {k: fn(f"input_fields[{k}]", v) for k, v in fields.items()}
        elif fields is not None:
            fields = fn("input_fields", fields)
        return Given({name: by_name(name, v) for name, v in self.params.items()}, fields, self.sampled)


def arrange(problem: Problem, params: Mapping[str, Any], input_fields: Any) -> Given:
    """Resolve names and labels, without looking at a value.

    Args:
        problem: the problem.
        params: parameters by name.
        input_fields: None, an array (*batch, field, time), or a dict {label or index: array (*batch, time)}.

    Raises:
        ProblemError: a name is unknown or given twice.
    """
    if isinstance(input_fields, Mapping):
        by_index: dict[int, Any] = {}
        for key, samples in input_fields.items():
            index = problem.field_index(key)
            if index in by_index:
                fail("input_fields", "name each field once", f"names field {index} twice")
            by_index[index] = samples
        input_fields, sampled = dict(sorted(by_index.items())) or None, tuple(sorted(by_index))
    else:
        sampled = () if input_fields is None else tuple(range(len(problem.fields)))
    arranged = {}
    for name, value in params.items():
        if name not in PARAMETERS:
            fail("params", f"have names among {', '.join(PARAMETERS)}", f"has `{name}`{suggestion(name, PARAMETERS)}")
        if value is not None:
            arranged[name] = _pulse_args_by_field(problem, value) if name == "pulse_args" else value
    return Given(arranged, input_fields, sampled)


def _pulse_args_by_field(problem: Problem, value: Any) -> tuple[dict[str, Any], ...]:
    """One dict of given arguments per field, from a sequence of dicts or a dict by label or index."""
    count = len(problem.fields)
    if isinstance(value, Mapping):
        given: list[Any] = [{}] * count
        for key, args in value.items():
            given[problem.field_index(key)] = args
    elif isinstance(value, Sequence) and len(value) == count:
        given = list(value)
    else:
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        actual = f"has length {len(value)}" if is_list else f"is {type(value).__name__}"
        fail("pulse_args", f"be a list of one dict per field ({count}) or a dict by label", actual)
    for k, args in enumerate(given):
        if args is not None and not isinstance(args, Mapping):
            fail(f"pulse_args[{k}]", "be a dict of pulse arguments", f"is {type(args).__name__}")
    return tuple({key: v for key, v in (args or {}).items() if v is not None} for args in given)


def merge(problem: Problem, given: Given, values: dict[str, Any]) -> dict[str, Any]:
    """The whole tree of parameters: what was given, and elsewhere the problem's own `values`, from `defaults`."""
    pulse_args = given.params.get("pulse_args", ({},) * len(problem.fields))
    merged = values | given.params
    merged["pulse_args"] = tuple(
        {} if k in given.sampled else own | new
        for k, (own, new) in enumerate(zip(values["pulse_args"], pulse_args, strict=True))
    )
    if given.input_fields is not None:
        merged["input_fields"] = given.input_fields
    return merged


def check(problem: Problem, given: Given) -> None:
    """Look at the values: shapes, kinds and, where they are concrete, rules.

    Args:
        problem: the problem.
        given: values with `shape`, `ndim` and `dtype`: NumPy or JAX arrays (tracers are not looked into).

    Raises:
        ProblemError: one sentence says which rule was broken.
    """
    for name, value in given.params.items():
        if name == "pulse_args":
            for k, args in enumerate(value):
                _check_pulse_args(problem, k, args, k in given.sampled)
            continue
        if name == "b_field" and problem.b_field is None:
            fail(name, "be left out of a problem without a `b_field` block", "was given")
        if name == "thermal_width" and problem.velocity_classes is None:
            fail(name, "be left out of a problem without velocity classes", "was given")
        if name == "rabi_freq" and len(given.sampled) == len(problem.fields):
            fail(name, "be left out where `input_fields` replaces every field", "was given")
        _check_numbers(name, value, nonnegative=name in _NONNEGATIVE, may_be_complex=name in _COMPLEX)
        _check_shape(problem, name, tuple(value.shape))
        if name == "thermal_width":
            _check_positive(name, value)
        if name == "initial_state" and is_concrete(value):
            _check_populations(np.asarray(value))
        if name == "initial_density_matrix" and is_concrete(value):
            _check_density_matrix(np.asarray(value))
    check_alternatives(problem, given.params)
    _check_input_fields(problem, given.input_fields)


def check_alternatives(problem: Problem, params: Mapping[str, Any]) -> None:
    """Raise where of two parameters, by name, one would take the other's place without a word."""
    if "initial_density_matrix" in params and "initial_state" in params:
        fail("initial_state", "be left out where `initial_density_matrix` is given", "was given")
    if "detunings" in params and ("level_detunings" in params or problem.level_detunings is not None):
        fail("detunings", "be left out where `level_detunings` states the detuning of every level", "was given")
    density: Any = params.get("number_density", np.ones(1))
    sampled = is_concrete(density) and density.size > 1
    if "initial_density_matrix" in params and sampled and np.any(np.asarray(density) <= 0):
        fail("number_density", "be positive at every z where `initial_density_matrix` is given, whose spline runs in "
             "the optical path", f"has {np.asarray(density).min():g}")  # fmt: skip


def _check_positive(name: str, value: Any) -> None:
    if is_concrete(value) and np.any(np.asarray(value) <= 0):
        fail(name, "be positive", f"is {np.min(np.asarray(value)):g}")


def _check_populations(populations: np.ndarray) -> None:
    tolerance = 1e-6 if populations.dtype == np.float64 else 1e-5
    if np.any(populations < -tolerance) or np.any(populations > 1 + tolerance):
        fail("initial_state", "have populations between 0 and 1", f"is {populations.tolist()}")
    if np.any(np.abs(populations.sum(-1) - 1) > tolerance):
        fail("initial_state", "have populations that sum to 1", f"they sum to {populations.sum(-1).tolist()}")


def _check_density_matrix(given: np.ndarray) -> None:
    name, tolerance = "initial_density_matrix", 1e-3  # what an end state may have by the errors of its run
    adjoint = np.conj(np.swapaxes(given, -1, -2))
    if np.max(np.abs(given - adjoint), initial=0) > tolerance:
        fail(name, "be Hermitian in its levels", f"differs from its adjoint by {np.max(np.abs(given - adjoint)):.2g}")
    traces = np.trace(given, axis1=-2, axis2=-1).real
    if np.max(np.abs(traces - 1), initial=0) > tolerance:
        fail(name, "have trace 1", f"has a trace of {traces.flat[np.argmax(np.abs(traces - 1))]:.8g}")
    populations = np.diagonal(given, axis1=-2, axis2=-1).real
    if np.min(populations, initial=0) < -tolerance:
        fail(name, "have populations of at least 0", f"has {np.min(populations):.2g}")
    most = np.sqrt(np.maximum(populations[..., :, None] * populations[..., None, :], 0))
    excess = np.max(np.abs(given) - most, initial=0)
    if excess > tolerance**0.5:
        fail(name, "have coherences of at most the root of their two populations", f"exceeds it by {excess:.2g}")


def _check_pulse_args(problem: Problem, k: int, args: Mapping[str, Any], replaced: bool) -> None:
    envelope = problem.fields[k].envelope
    allowed = [key for key, _ in envelope.args]
    if args and replaced:
        fail(f"pulse_args[{k}]", "be left out where `input_fields` replaces the field", f"has {sorted(args)}")
    for key, value in args.items():
        where = f"pulse_args[{k}].{key}"
        if key not in allowed:
            fail(f"pulse_args[{k}]", f"have names among {allowed}, with which the pulse `{envelope.name}` was given",
                 f"has `{key}`")  # fmt: skip
        if key in pulses.EDGES.get(envelope.name, ()):
            if not is_concrete(value):
                fail(where, f"not be differentiated or traced, for it is an edge of `{envelope.name}` (the edges of "
                     "ramp_on, ramp_off, ramp_onoff and ramp_offon have gradients)", "is traced")  # fmt: skip
            if value.ndim > (key == "tlist"):
                fail(
                    where,
                    "be the same for the whole batch, for steps are placed by it",
                    f"has shape {tuple(value.shape)}",
                )
        _check_numbers(where, value, may_be_complex=key == "ylist")
        if key in ("fwhm", "width") and envelope.name != "sinc":
            _check_positive(where, value)
    if args:
        _check_edges(f"pulse_args[{k}]", envelope.name, dict(envelope.args) | dict(args))


def _check_edges(where: str, name: str, args: Mapping[str, Any]) -> None:
    """Raise unless the edges of a pulse, all concrete, are in order."""
    if name == "square" and args["on"] > args["off"]:
        fail(f"{where}.on", f"be at most `off` ({args['off']:g})", f"is {args['on']:g}")
    if name == "intp":
        times, samples = np.asarray(args["tlist"]), np.shape(args["ylist"])
        if times.ndim != 1 or len(times) < 2 or np.any(np.diff(times) <= 0):
            fail(f"{where}.tlist", "have at least two times, each above the last", f"is {times.tolist()}")
        if samples[-1:] != times.shape:
            fail(f"{where}.ylist", f"have shape (*batch, time) with time = {len(times)}, as many as `tlist`",
                 f"has shape {samples}")  # fmt: skip


def _check_input_fields(problem: Problem, value: Any) -> None:
    points = problem.t_steps + 1
    if isinstance(value, Mapping):
        for key, samples in value.items():
            if samples.ndim < 1 or samples.shape[-1] != points:
                fail(f"input_fields[{key}]", f"have shape (*batch, time) with time = {points}, the problem's time grid",
                     f"has shape {tuple(samples.shape)}")  # fmt: skip
            _check_numbers(f"input_fields[{key}]", samples, may_be_complex=True)
    elif value is not None:
        expected = (len(problem.fields), points)
        if value.ndim < 2 or tuple(value.shape[-2:]) != expected:
            fail("input_fields", f"have shape (*batch, field, time) with (field, time) = {expected}",
                 f"has shape {tuple(value.shape)}")  # fmt: skip
        _check_numbers("input_fields", value, may_be_complex=True)


def check_solver(solver: Any, on_grid: Sequence[str], **tolerances: float | None) -> None:
    """Raise unless the solver is one of the fixed grid or of diffrax's, with which alone tolerances may come."""
    if isinstance(solver, str) and solver in on_grid:
        for name, value in tolerances.items():
            if value is not None:
                fail(name, "be left out without a diffrax `solver`, whose steps it bounds", f"is {value!r}")
        return
    if not isinstance(solver, diffrax.AbstractAdaptiveSolver):
        names = ", ".join(map(repr, on_grid))
        fail(
            "solver", f"be {names} or a diffrax solver with error estimates, such as diffrax.Tsit5()", f"is {solver!r}"
        )
    try:
        hash(solver)
    except TypeError:
        fail("solver", "have plain numbers for its settings, not arrays, which it is remembered by", f"is {solver!r}")


GAUSSIAN_SLOPE = 2 * math.sqrt(2 * math.log(2) / math.e)
"""Full width at half maximum of a Gaussian, times its steepest slope, of its peak."""


def narrowest_pulse(problem: Problem, given: Given, at: Any) -> float:
    """Smallest full width at half maximum of the pulses, where it can be seen: a longer step may miss the pulse.

    Of sampled fields it is that of a Gaussian as steep as they are, and counts for steps `at` that pass samples over.
    """
    new = given.params.get("pulse_args", ({},) * len(problem.fields))
    widths = [np.inf]
    for k, field in enumerate(problem.fields):
        args = dict(field.envelope.args) | new[k]
        scale = {"sinc": None, "sech": pulses.SECH_FWHM}.get(field.envelope.name, 1.0)
        for key, factor in (("fwhm", 1.0), ("width", scale)):
            value = args.get(key)
            if k in given.sampled or value is None or factor is None or not (np.isscalar(value) or is_concrete(value)):
                continue
            widths.append(factor * float(np.min(np.asarray(value))))
    if getattr(at, "t_substeps", 1) < 1:
        interval = (problem.t_max - problem.t_min) / problem.t_steps
        for samples in _samples(given):
            steepest, peak = np.abs(np.diff(samples)).max(-1), np.abs(samples).max(-1)
            moving = steepest > 0
            widths.append(interval * GAUSSIAN_SLOPE * float(np.min(peak[moving] / steepest[moving], initial=np.inf)))
    return min(widths)


def _samples(given: Given) -> list[np.ndarray]:
    """The sampled fields whose values can be seen, each (*batch, time)."""
    fields = given.input_fields
    each = fields.values() if isinstance(fields, Mapping) else [] if fields is None else [fields]
    return [np.asarray(x) for x in each if is_concrete(x)]


def edges(problem: Problem, given: Given) -> tuple[tuple[float, ...], ...]:
    """Times at which each field's pulse jumps, from its concrete arguments."""
    pulse_args = given.params.get("pulse_args", ({},) * len(problem.fields))
    return tuple(
        tuple(pulses.jumps(field.envelope.name, dict(field.envelope.args) | new))
        for field, new in zip(problem.fields, pulse_args, strict=True)
    )
