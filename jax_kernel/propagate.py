"""propagate(): light through a medium of driven, decaying quantum systems."""

import dataclasses
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import march_options, parameters, timesteps
from .adaptive import SolverOptions, largest
from .doppler import level_doppler_slopes
from .errors import NotYetError, ProblemError, ResolutionError
from .generator import Structure
from .integrate import STAGES
from .medium import optical_path
from .problem import Problem
from .program import Program, batch_shape, executable
from .reading import is_integer
from .resolution import (
    SOLVER_CURE,
    MarchResolution,
    Resolution,
    default_tolerance,
    longest_step,
    search,
    warn_above,
)
from .solution import Solution

STAGE_BUDGET = 256 * 2**20
"""Bytes up to which a gradient with memory="auto" stores every stage instead of computing it again."""

STEPS_PER_SEGMENT = 20
"""Steps whose stages are handled together where all are stored: few enough to stay in the processor's cache."""

TERM_LIMIT = 1500
"""Nonzeros of the generator up to which the contraction is unrolled."""

STATE_OUTPUTS = ("density_matrix", "populations", "coherences")
MEMORY = ("auto", "fast", "lean")
GAUSS = 1.399624493
"""Bohr magneton over Planck's constant, MHz per gauss."""


@dataclass(frozen=True)
class Options:
    """How to solve, apart from the physics; the keyword arguments of `propagate`.

    Attributes:
        dtype: "float32" or "float64".
        scheme: "cross" or "march".
        memory: "auto", "fast" (a gradient stores every stage) or "lean" (it stores one state per segment).
        solver: a diffrax solver, or None for the fixed grid (of a march, for Tsit5).
        rtol: relative tolerance of `solver`, by default by precision.
        atol: absolute tolerance of `solver`, by default by precision.
        max_steps: most steps of `solver`, by default 100 000.
        step: only of a march, as are the following: "ab" or "euler", by default "ab".
        strategy: "s2" (a gradient stores every slice), "s3" (it solves the slices again; the default) or "s4" (like
            "s3", with `checkpoints`).
        checkpoints: states that the gradient of one slice keeps, for "s4".
        n_steps: constant steps of a slice in place of adaptive ones.
        mode: "reverse" or "forward" derivatives, by default "reverse".
    """

    dtype: str = "float64"
    scheme: str = "cross"
    memory: str = "auto"
    solver: Any = None
    rtol: float | None = None
    atol: float | None = None
    max_steps: int | None = None
    step: str | None = None
    strategy: str | None = None
    checkpoints: int | None = None
    n_steps: int | None = None
    mode: str | None = None

    def __post_init__(self):
        def one_of(name, allowed):
            if getattr(self, name) not in allowed:
                parameters.fail(name, f"be one of {', '.join(map(repr, allowed))}", f"is {getattr(self, name)!r}")

        one_of("dtype", ("float32", "float64"))
        one_of("scheme", ("cross", "march"))
        one_of("memory", MEMORY)
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, numbers.Real) and 0 < float(value) < math.inf):
                parameters.fail(name, "be positive", f"is {value!r}")
        if self.max_steps is not None and not (is_integer(self.max_steps) and self.max_steps >= 1):
            parameters.fail("max_steps", "be an integer of at least 1", f"is {self.max_steps!r}")
        if self.scheme == "march":
            march_options.check_options(self)
        else:
            march_options.refuse_options(self)
            bounds = {"rtol": self.rtol, "atol": self.atol, "max_steps": self.max_steps}
            parameters.check_solver(self.solver, **bounds)
        object.__setattr__(self, "solver", self._portable_solver())

    @property
    def estimates_time(self) -> bool:
        """Whether a run comes with an estimate of its time error; elsewhere rtol and atol bound it."""
        return self.scheme == "cross" and self.solver is None

    def solver_options(self) -> SolverOptions | None:
        """What the adaptive path needs, or None for the fixed grid."""
        if self.solver is None:
            return None
        return SolverOptions(self.solver, *self.tolerances(), self.max_steps or 100_000)

    def tolerances(self) -> tuple[float, float]:
        """(rtol, atol) of a step, by default by precision."""
        rtol, atol = (1e-8, 1e-10) if self.dtype == "float64" else (1e-6, 1e-9)
        return self.rtol or rtol, self.atol or atol

    def _portable_solver(self) -> Any:
        """The solver with plain numbers where diffrax keeps a marker that means the tolerances of the steps.

        Copies and pickles of the marker are not recognised, so that a copied layer would fail.
        """
        finder = getattr(self.solver, "root_finder", None)
        if finder is None or isinstance(finder.rtol, (int, float)):
            return self.solver
        rtol, atol = self.tolerances()
        finder = dataclasses.replace(finder, rtol=rtol, atol=atol, norm=largest)
        return dataclasses.replace(self.solver, root_finder=finder)


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
    all_populated: bool,
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
        all_populated: whether every level may be populated at the start.
        batch_size: number of problems in the batch, for the memory rule.
    """
    if options.scheme == "cross" and any(field.counter_propagating for field in problem.fields):
        raise NotYetError(
            "Argument `system.fields` must have co-propagating fields only, for counter-propagation is not there yet."
        )
    kept = [
        (k, a, b, factor)
        for k, field in enumerate(problem.fields)
        for (a, b), factor in zip(field.coupled_levels, field.factors, strict=True)
        if factor
    ]
    channels = [
        (d, a, b, factor)
        for d, decay in enumerate(problem.decays)
        for (a, b), factor in zip(decay.channels, decay.factors, strict=True)
        if factor
    ]
    populated = range(problem.num_states) if all_populated else np.flatnonzero(problem.initial_state).tolist()
    structure = Structure.build(
        problem.num_states,
        len(problem.fields),
        [pair[:3] for pair in kept],
        [channel[1:3] for channel in channels],
        populated,
    )
    if len(structure.drive_terms) > TERM_LIMIT:
        raise NotYetError(
            f"Argument `system` must have at most {TERM_LIMIT} nonzeros in its generator, but has "
            f"{len(structure.drive_terms)}: the contraction for larger systems is not there yet."
        )
    jumps = sorted({t for k, times in enumerate(edges) if k not in sampled for t in times})
    arrays = _physics(problem, [pair[3] for pair in kept], [channel[3] for channel in channels])
    precision = np.finfo(options.dtype).eps * np.max(np.abs(problem.time))
    if precision > 0.02 * longest_step(problem, at):
        parameters.fail("dtype", "resolve the time steps (move the window to t = 0, or take float64)",
                        f"{options.dtype} resolves only {precision:.1g} at these times")  # fmt: skip
    common: dict[str, Any] = {
        "structure": structure,
        "channel_decays": tuple(channel[0] for channel in channels),
        "envelopes": tuple(field.envelope.name for field in problem.fields),
        "sampled": sampled,
        "outputs": outputs,
        "dtype": options.dtype,
    }
    if isinstance(at, MarchResolution):
        arrays |= {"jumps": np.asarray(jumps)} | march_options.arrays(problem, at)
        static = march_options.prepare(problem, at, options, options.tolerances(), jumps)
        program = Program(**common, z_nodes=0, store_stages=False, solver=None, march=static)
        return Prepared(program, to_arrays(arrays, options.dtype))
    steps = timesteps.build(problem.time, at.t_substeps, jumps, STEPS_PER_SEGMENT)
    stage_bytes = steps.h.size * STAGES * structure.num_components * len(problem.doppler_shifts) * at.z_nodes
    stage_bytes *= batch_size * np.dtype(options.dtype).itemsize
    store_stages = options.memory == "fast" or (options.memory == "auto" and stage_bytes <= STAGE_BUDGET)
    if not store_stages:
        per_segment = max(1, round(math.sqrt(steps.h.size / STAGES)))
        steps = timesteps.build(problem.time, at.t_substeps, jumps, per_segment)
    twin = timesteps.twin(problem.time, at.t_substeps, jumps)
    arrays["steps"] = steps._asdict()
    solver = options.solver_options()
    if solver is not None:
        arrays["jumps"] = np.asarray(jumps)
    elif "time_error" in outputs:
        arrays["twin"] = twin.steps._asdict() | {"share": twin.share}
    program = Program(**common, z_nodes=at.z_nodes, store_stages=store_stages, solver=solver)
    return Prepared(program, to_arrays(arrays, options.dtype))


def _physics(problem: Problem, factors: list[float], channel_factors: list[float]) -> dict[str, Any]:
    """The arrays of a problem that are neither parameters nor a scheme's, from the factors of pairs and channels."""
    signs = np.zeros((len(problem.fields), problem.num_states))
    for k, field in enumerate(problem.fields):
        signs[k, sorted({b for _, b in field.coupled_levels})] = 1.0 if field.detuning_positive else -1.0
    arrays: dict[str, Any] = {
        "time": problem.time,
        "z": problem.z,
        "path": optical_path(problem),
        "factors": np.asarray(factors),
        "channel_factors": np.asarray(channel_factors),
        "upper": signs,
        "slopes": level_doppler_slopes(problem),
        "shifts": problem.doppler_shifts,
        "intervals": problem.doppler_intervals,
    }
    if problem.b_field is not None:
        unit = GAUSS if problem.b_field.units == "gauss" else 1.0
        arrays["zeeman"] = unit * np.multiply(problem.b_field.g_F, problem.b_field.m_F)
    return arrays


def to_arrays(tree: Any, dtype: str) -> Any:
    """NumPy values as JAX arrays of one precision that are concrete even inside a trace."""

    def one(x):
        x = np.asarray(x)
        kinds = {"f": dtype, "i": "int32" if x.ndim else dtype, "u": dtype, "c": COMPLEX[dtype]}
        return jnp.asarray(x.astype(kinds[x.dtype.kind]))

    with jax.ensure_compile_time_eval(), jax.enable_x64(dtype == "float64"):
        return jax.tree.map(one, tree)


def propagate(
    problem: Problem,
    params: Mapping[str, Any] | None = None,
    *,
    input_fields: Any = None,
    outputs: tuple[str, ...] = (),
    resolution: Resolution | str = "auto",
    tol: float | None = None,
    dtype: str | None = None,
    scheme: str = "cross",
    memory: str = "auto",
    solver: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int | None = None,
    step: str | None = None,
    strategy: str | None = None,
    checkpoints: int | None = None,
    n_steps: int | None = None,
    mode: str | None = None,
) -> Solution:
    """Propagate light through a medium of driven, decaying quantum systems (Maxwell and Lindblad).

    For every position z and velocity class v, in retarded time t = t_lab − z/c and with all user frequencies cyclic,

        dρ/dt = −i[H, ρ] + Σ_c (c ρ c† − ½{c†c, ρ}),      c = factor √(2π rate) |to><from|
        H = 2π diag(E) + 2π B diag(g_F m_F) + Σ_k [π f (Ω_k |a><b| + Ω_k* |b><a|) − 2π s_k (Δ_k + η_k δ_v) N_k]
        ∂Ω_k/∂z = 2i N(z) g_k Σ_v w_v Σ_(a,b) f ρ_ab

    with (a, b) = [lower, upper] the field's coupled levels, N_k the projector on its upper levels, s_k = ±1
    (`detuning_positive`), δ_v the class's Doppler shift, η_k `factor_doppler_shift` and w_v the class's weight.
    Source: the master equation of Lindblad, Commun. Math. Phys. 48, 119 (1976), and the slowly varying envelope
    equation, in the conventions of clerq 0.15.

    The scheme "cross" is cross-propagation: time is the outer loop, and at each instant the field is one integral over
    z, taken on Gauss nodes in the optical path ∫N dz. The scheme "march" is clerq's: z is the outer loop, each slice is
    solved in t, and an Adams–Bashforth step of length (z_max − z_min)/(z_steps · z_steps_inner) carries the light on.

    Args:
        problem: what is solved; its numbers are the defaults of all parameters.
        params: parameters by name, each with optional leading batch axes that broadcast against each other:
            `pulse_args` (a list with one dict of arguments per field, or a dict by label; partial),
            `rabi_freq` (field,) real or complex, cyclic; `interaction_strengths` (field,), cyclic per length;
            `detunings` (field,), cyclic; `decay_scale` (), a factor of all rates; `decay_rates` (decay,), cyclic;
            `b_field` (), in the problem's units; `energies` (level,), cyclic; `number_density`, a factor () or
            (*batch, 1) of the problem's profile, or samples (*batch, z) in its place; `thermal_width` (), cyclic;
            `initial_state` (level,), populations.
        input_fields: sampled fields at the entrance, complex or real, cyclic, shape (*batch, field, time) on the
            problem's time grid, or a dict {label or index: (*batch, time)} that replaces only some of them.
        outputs: further outputs among "density_matrix", "populations" and "coherences".
        resolution: a `Resolution`, or "auto" to search one that meets `tol`; "auto" needs concrete values.
        tol: error aimed at by "auto", above which a resolution warns; relative to each field's peak; by default 1e-6
            in float64 and 1e-4 in float32, and 1e-2 in a march.
        dtype: "float32" or "float64"; by default that of the given arrays, or JAX's own.
        scheme: "cross" or "march". A march has no `resolution` and no `memory`: its steps in z are the problem's
            `z_steps_inner`, of which "auto" searches one that meets `tol`.
        memory: "auto", "fast" or "lean": whether a gradient stores every stage or computes it again.
        solver: a diffrax solver with adaptive steps in place of the fixed grid; in a march, in place of Tsit5.
        rtol: relative tolerance of `solver`, by default 1e-8 in float64 and 1e-6 in float32.
        atol: absolute tolerance of `solver`, by default 1e-10 and 1e-9.
        max_steps: most steps of `solver` (in a march, in one slice), by default 100 000.
        step: of a march only, as all that follow: "ab" (Adams–Bashforth, second order; the default) or "euler".
        strategy: what its gradient stores: "s2" every slice; "s3", the default, the light at the stored positions;
            "s4" the same, and at most `checkpoints` states of the slice that it solves again.
        checkpoints: see `strategy`.
        n_steps: constant steps of each slice in place of adaptive ones.
        mode: "reverse" (the default: for grad and vjp) or "forward" (for jvp and jacfwd).

    Returns:
        The `Solution`. Under jit, grad or vmap its estimates are inf where the run did not stay finite.

    Raises:
        ProblemError: an argument breaks a rule.
        ResolutionError: the solution did not stay finite, or "auto" found no resolution that meets `tol`.
        NotYetError: the request is meaningful but not there yet.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax_kernel import Problem, Resolution, propagate
        >>> problem = Problem.from_dict({
        ...     "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}], "fields": [
        ...         {"coupled_levels": [[0, 1]], "rabi_freq": 1e-3, "rabi_freq_t_func": "ramp_on",
        ...          "rabi_freq_t_args": {"ampl": 1.0, "on": 1.0, "fwhm": 0.5}}]},
        ...     "t_max": 5.0, "interaction_strengths": [1.0]})
        >>> def transmission(g):
        ...     fields = propagate(problem, {"interaction_strengths": g}, resolution=Resolution(12, 1)).fields
        ...     return jnp.abs(fields[0, -1, -1] / fields[0, 0, -1])
        >>> value, slope = jax.value_and_grad(transmission)(jnp.ones(1))
        >>> print(f"{value:.3f} {slope[0]:.3f}")  # Beer–Lambert: exp(−2 g L / rate), and −2 times that
        0.135 -0.271
    """
    check_problem(problem)
    given = parameters.arrange(problem, params or {}, input_fields).map(_as_array)
    parameters.check(problem, given)
    options = Options(
        _dtype(dtype, given), scheme, memory, solver, rtol, atol, max_steps, step, strategy, checkpoints, n_steps, mode
    )
    if options.dtype == "float64" and not _in_64_bit_mode():
        cure = "put the call in `with jax.enable_x64(True):`"
        parameters.fail("dtype", f'be "float32" unless JAX is in 64-bit mode ({cure})', 'is "float64"')
    wanted = requested(outputs)
    tree = cast(parameters.merge(problem, given, parameters.defaults(problem)), options.dtype)
    concrete = all(parameters.is_concrete(leaf) for leaf in jax.tree.leaves(tree))
    batch_size = math.prod(batch_shape(tree))

    def solve(at: Resolution | MarchResolution) -> dict[str, Any]:
        edges = parameters.edges(problem, given)
        populated = "initial_state" in given.params
        prepared = prepare(problem, at, options, wanted, given.sampled, edges, populated, batch_size)
        out = executable(prepared.program)(prepared.numbers, tree)
        if "time_error" in out and longest_step(problem, at) > narrowest:
            out["time_error"] = jnp.full_like(out["time_error"], np.inf)  # run and twin may both miss the pulse
        return out

    narrowest = parameters.narrowest_pulse(problem, given)
    tol = check_tolerance(tol, options.dtype, options.scheme)
    at: Any = resolution
    if options.scheme == "march":
        kept: dict[Any, dict[str, Any]] = {}
        error = partial(_z_error, solve, kept) if concrete else None
        at = march_options.choose(problem, resolution, error, tol, step)
        out = kept.get(at) or solve(at)
    elif isinstance(at, Resolution):
        out = solve(at)
    elif at == "auto":
        if not concrete:
            parameters.fail("resolution", "be a Resolution under jit, grad or vmap (find one outside with "
                            "`choose_resolution`)", 'is "auto"')  # fmt: skip
        at, out = _search(solve, tol, options)
    else:
        parameters.fail("resolution", 'be a Resolution or "auto"', f"is {resolution!r}")
    if concrete:
        check_fields(np.asarray(out["fields"]), problem, at, options)
        worst = [float(np.max(out[name])) for name in ("z_error", "time_error") if name in out]
        warn_above(worst[0], worst[1] if len(worst) > 1 else None, tol, at)
    grids = to_arrays({"z": problem.z, "time": problem.time}, options.dtype)
    return Solution(**out, **grids, resolution=at)


def choose_resolution(problem: Problem, params: Mapping[str, Any] | None = None, **options: Any) -> Resolution:
    """The resolution that `propagate` with resolution="auto" finds; takes the same arguments, concrete ones.

    Example:
        >>> from jax_kernel import Problem, choose_resolution
        >>> problem = Problem.from_dict({
        ...     "system": {"num_states": 2, "fields": [{"coupled_levels": [[0, 1]], "rabi_freq_t_func": "gaussian",
        ...         "rabi_freq_t_args": {"n_pi": 1.0, "centre": 0.5, "fwhm": 0.2}}]},
        ...     "interaction_strengths": [1.0]})
        >>> choose_resolution(problem, tol=1e-3)
        Resolution(z_nodes=12, t_substeps=1)
    """
    return propagate(problem, params, resolution="auto", **options).resolution


COMPLEX = {"float32": "complex64", "float64": "complex128"}


def check_problem(problem: Any) -> None:
    """Raise unless it is a Problem."""
    if not isinstance(problem, Problem):
        cure = "Problem.from_json and Problem.from_dict read one"
        parameters.fail("problem", f"be a Problem ({cure})", f"is {type(problem).__name__}")


def requested(outputs: Iterable[str]) -> frozenset[str]:
    """The outputs asked for by name, with those that are always there."""
    outputs = (outputs,) if isinstance(outputs, str) or not isinstance(outputs, Iterable) else tuple(outputs)
    for name in outputs:
        if name not in STATE_OUTPUTS:
            parameters.fail("outputs", f"have names among {', '.join(STATE_OUTPUTS)}", f"has {name!r}")
    return frozenset(outputs) | {"fields", "z_error", "time_error"}


def check_tolerance(tol: float | None, dtype: str, scheme: str = "cross") -> float:
    """The tolerance, by default by precision and scheme."""
    if tol is None:
        return default_tolerance(dtype, scheme)
    if isinstance(tol, bool) or not (isinstance(tol, numbers.Real) and 0 < float(tol) < math.inf):
        parameters.fail("tol", "be positive", f"is {tol!r}")
    return float(tol)


def cast(tree: Any, dtype: str) -> Any:
    """Arrays of one precision, real or complex as they are."""
    return jax.tree.map(lambda x: jnp.asarray(x, COMPLEX[dtype] if jnp.iscomplexobj(x) else dtype), tree)


def check_fields(fields: np.ndarray, problem: Problem, at: Resolution | MarchResolution, options: Options) -> None:
    """Raise where a solution did not stay finite or is not what it should be, saying where and what to try."""
    if isinstance(at, MarchResolution):
        march_options.check_finite(fields, problem, at, options.max_steps)
        march_options.check_depletion(fields, problem)
        return
    finite = np.isfinite(fields)
    if not finite.all():
        lost = ~finite.reshape(-1, *fields.shape[-2:]).all(0)
        z, t = problem.z[lost.any(1)][0], problem.time[lost.any(0)][0]
        if options.solver is not None:
            raise ResolutionError(f"The solver must reach t_max, but gave up: {SOLVER_CURE}.")
        raise ResolutionError(
            f"The solution must stay finite, but does not from z = {z:g}, t = {t:g} at {at}: raise `t_substeps`, or "
            "give an implicit `solver`, such as diffrax.Kvaerno5(), if the problem is stiff."
        )


def _z_error(solve, kept: dict[Any, dict[str, Any]], at: MarchResolution) -> float:
    kept[at] = out = solve(at)
    return float(np.max(out["z_error"]))


def _search(solve, tol: float, options: Options):
    kept: dict[Resolution, dict[str, Any]] = {}

    def errors(at: Resolution) -> tuple[float, float]:
        kept[at] = out = solve(at)
        return float(np.max(out["z_error"])), float(np.max(out.get("time_error", 0.0)))

    found = search(errors, tol, time_is_fixed=options.solver is not None)
    return found, kept[found]


def _in_64_bit_mode() -> bool:
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def _as_array(name: str, value: Any) -> Any:
    try:
        return value if isinstance(value, jax.Array) else np.asarray(value)
    except ValueError as error:
        raise ProblemError(f"Argument `{name}` must be an array of numbers, but is {value!r}.") from error


def _dtype(dtype: str | None, given: parameters.Given) -> str:
    """The precision asked for, or that of the JAX arrays given, or JAX's own."""
    if dtype is not None:
        try:
            return np.dtype(dtype).name
        except TypeError:
            parameters.fail("dtype", 'be "float32" or "float64"', f"is {dtype!r}")
    arrays = [x for x in jax.tree.leaves((given.params, given.input_fields)) if isinstance(x, jax.Array)]
    if arrays and all(np.dtype(x.dtype).itemsize <= (8 if jnp.iscomplexobj(x) else 4) for x in arrays):
        return "float32"
    return "float64" if _in_64_bit_mode() else "float32"
