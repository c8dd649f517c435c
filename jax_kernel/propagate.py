"""propagate(): light through a medium of driven, decaying quantum systems."""

import math
import numbers
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import checks, conventions, march_options, parameters, stiffness
from .errors import ProblemError, ResolutionError
from .memory import check as memory_check
from .options import Options
from .prepare import COMPLEX, prepare, start_parameter, to_arrays
from .problem import Problem
from .program import batch_shape, executable
from .resolution import (
    IMPLICIT,
    SOLVER_CURE,
    MarchResolution,
    Resolution,
    default_tolerance,
    first_guess,
    longest_step,
    search,
    warn_above,
)
from .sharding import Sharding
from .solution import Solution

DIFFERENTIATED = ("JVPTracer", "LinearizeTracer")
"""What JAX calls the values that are being differentiated; there is no public way to ask."""

STATE_OUTPUTS = ("density_matrix", "populations", "coherences", "final_state")


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
    solver: Any = "auto",
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int | None = None,
    step: str | None = None,
    strategy: str | None = None,
    checkpoints: int | None = None,
    n_steps: int | None = None,
    mode: str = "reverse",
    sharding: Sharding | None = None,
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
            `initial_state` (level,), populations, or `initial_density_matrix` (z, class, level, level), where z and
            class may be 1; `level_detunings` (level,), cyclic, which lower the levels, in place of the detunings of the
            fields, and `level_doppler_slopes` (level,), the change of a level's energy per Doppler shift.
        input_fields: sampled fields at the entrance, complex or real, cyclic, shape (*batch, field, time) on the
            problem's time grid, or a dict {label or index: (*batch, time)} that replaces only some of them.
        outputs: further outputs among "density_matrix", "populations", "coherences" and "final_state".
        resolution: a `Resolution`, or "auto" to search one that meets `tol`; "auto" needs concrete values.
        tol: error aimed at by "auto", above which a resolution warns; relative to each field's peak; by default 1e-6
            in float64 and 1e-4 in float32, and 1e-2 in a march.
        dtype: "float32" or "float64"; by default that of the given arrays, or JAX's own.
        scheme: "cross" or "march". A march has no `resolution` and no `memory`: its steps in z are the problem's
            `z_steps_inner`, of which "auto" searches one that meets `tol`.
        memory: whether a gradient stores every stage ("fast") or computes it again ("lean"); "auto" is "lean" where the
            loops are one kernel, as on a CPU (docs/performance.md), else "fast" up to 256 MiB.
        solver: on the fixed grid "runge-kutta", or "exponential", which treats detunings, splittings and Doppler shifts
            exactly, or "auto", which takes the latter where these are fast for the time grid; or a diffrax solver with
            adaptive steps, which in a march takes the place of Tsit5.
        rtol: relative tolerance of `solver`, by default 1e-8 in float64 and 1e-6 in float32.
        atol: absolute tolerance of `solver`, by default 1e-10 and 1e-9.
        max_steps: most steps of `solver` (in a march, in one slice), by default 100 000.
        mode: which derivatives JAX may take: "reverse" (the default) first ones by grad and vjp; "forward" those of any
            order by jvp and jacfwd; "any" every composition of the two, as in a Hessian, at a higher cost.
        sharding: a `Sharding` where several devices are to share the batch and the velocity classes.
        step: of a march only, as all that follow: "ab" (Adams–Bashforth, second order; the default) or "euler".
        strategy: what its gradient stores: "s2" every slice; "s3", the default, the light at the stored positions;
            "s4" the same, and at most `checkpoints` states of the slice that it solves again.
        checkpoints: see `strategy`.
        n_steps: constant steps of each slice in place of adaptive ones.

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
    conventions.warn_once(problem)
    given = parameters.arrange(problem, params or {}, input_fields).map(_as_array)
    parameters.check(problem, given)
    options = Options(
        _dtype(dtype, given),
        scheme,
        memory,
        solver,
        rtol,
        atol,
        max_steps,
        step,
        strategy,
        checkpoints,
        n_steps,
        mode,
        sharding,
    )
    if options.dtype == "float64" and not _in_64_bit_mode():
        cure = "put the call in `with jax.enable_x64(True):`"
        parameters.fail("dtype", f'be "float32" unless JAX is in 64-bit mode ({cure})', 'is "float64"')
    options = stiffness.resolved(options, problem, given, resolution if isinstance(resolution, Resolution) else None)
    wanted = requested(outputs)
    tree = cast(parameters.merge(problem, given, parameters.defaults(problem)), options.dtype)
    concrete = all(parameters.is_concrete(leaf) for leaf in jax.tree.leaves(tree))
    differentiated = any(type(leaf).__name__ in DIFFERENTIATED for leaf in jax.tree.leaves(tree))
    batch_size = math.prod(batch_shape(tree))

    def solve(at: Resolution | MarchResolution) -> dict[str, Any]:
        edges = parameters.edges(problem, given)
        start = start_parameter(given)
        memory_check(problem, at, options, wanted, start, batch_size, differentiated)
        prepared = prepare(problem, at, options, wanted, given.sampled, edges, start, batch_size)
        out = executable(prepared.program)(prepared.numbers, tree)
        if "time_error" in out and longest_step(problem, at) > parameters.narrowest_pulse(problem, given, at):
            out["time_error"] = jnp.full_like(out["time_error"], np.inf)  # run and twin may both miss the pulse
        return out

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
        start = first_guess(problem, "interaction_strengths" in given.params, options.solver)
        at, out = _search(solve, tol, start, options)
    else:
        parameters.fail("resolution", 'be a Resolution or "auto"', f"is {resolution!r}")
    if concrete:
        fields = np.asarray(out["fields"])
        check_fields(fields, problem, at, options)
        check_states({name: np.asarray(out[name]) for name in STATE_OUTPUTS if name in out}, at)
        checks.warn_window(problem, fields, continued=start_parameter(given) == "initial_density_matrix")
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
        if not options.on_grid:
            raise ResolutionError(f"The solver must reach t_max, but gave up before t = {t:g}: {SOLVER_CURE}.")
        cure = IMPLICIT if options.solver == "exponential" else f'solver="exponential" or {IMPLICIT}'
        raise ResolutionError(
            f"The solution must stay finite, but does not from z = {z:g}, t = {t:g} at {at}: raise `t_substeps`, or, "
            f"if the problem is stiff, give {cure}."
        )


def check_states(states: Mapping[str, np.ndarray], at: Resolution | MarchResolution) -> None:
    """Raise where the elements of a state have left what those of a density matrix can be."""
    for name in ("populations", "density_matrix", "final_state"):
        largest = float(np.max(np.abs(states[name]), initial=0)) if name in states else 0.0
        if not largest < 2:
            raise ResolutionError(
                f"The output `{name}` must have elements of at most 1, but has {largest:.2g} at {at}: the run is "
                'unstable; raise `t_substeps`, or take resolution="auto".'
            )


def _z_error(solve, kept: dict[Any, dict[str, Any]], at: MarchResolution) -> float:
    kept[at] = out = solve(at)
    return float(np.max(out["z_error"]))


def _search(solve, tol: float, start: Resolution, options: Options):
    kept: dict[Resolution, dict[str, Any]] = {}

    def errors(at: Resolution) -> tuple[float, float]:
        kept[at] = out = solve(at)
        return float(np.max(out["z_error"])), float(np.max(out.get("time_error", 0.0)))

    found = search(errors, tol, start, time_is_fixed=not options.on_grid)
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
