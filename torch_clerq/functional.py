"""propagate() on tensors: stateless; what the module calls."""

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
import torch

from jax_kernel import checks, conventions, march_options, memory, parameters, pulses, stiffness
from jax_kernel.errors import BridgeError, NotYetError, ProblemError
from jax_kernel.options import Options
from jax_kernel.prepare import prepare, start_parameter, to_arrays
from jax_kernel.problem import Problem
from jax_kernel.program import Program, batch_shape, batch_shapes, run
from jax_kernel.propagate import STATE_OUTPUTS, check_fields, check_problem, check_states, check_tolerance
from jax_kernel.resolution import MarchResolution, Resolution, first_guess, joined, longest_step, search, warn_above
from jax_kernel.sharding import Sharding
from jax_kernel.solution import Solution

from . import bridge

COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
REAL_OUTPUTS = {"populations", "z_error", "time_error"}
INTEGERS = {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64}


@dataclass(frozen=True)
class _Flat(bridge.Function):
    """A program as a function (constants, *tensors) -> outputs sorted by name; hashable, so that equal ones share.

    Attributes:
        program: what is run.
        tree: structure of all parameters.
        from_tensor: which of its leaves are tensors; the others are constants.
        sizes: shape of each output without batch axes.
    """

    program: Program
    tree: Any
    from_tensor: tuple[bool, ...]
    sizes: Mapping[str, tuple[int, ...]] = field(compare=False)
    name: str = "propagate"

    @property
    def x64(self) -> bool:  # type: ignore[override]
        return self.program.dtype == "float64"

    @property
    def sharding(self) -> Sharding | None:  # type: ignore[override]
        return self.program.sharding

    @property
    def outputs(self) -> list[str]:
        return sorted(name for name in self.program.outputs if name in self.sizes)

    def variant(self, derivatives: str) -> "_Flat":
        return replace(self, program=replace(self.program, derivatives=derivatives))

    def shapes(self, constants, tensors):
        given, rest = iter(tensors), iter(bridge.arrays_of(constants)[1])
        leaves = [next(given) if there else next(rest) for there in self.from_tensor]
        batches = batch_shapes(jax.tree.unflatten(self.tree, leaves))
        batch = tuple(torch.broadcast_shapes(*batches))
        real = torch.float64 if self.x64 else torch.float32
        dtypes = {name: real if name in REAL_OUTPUTS else real.to_complex() for name in self.sizes}
        return [((*batch, *self.sizes[name]), dtypes[name]) for name in self.outputs]

    def __call__(self, constants, *arrays):
        numbers, fixed = constants
        given, rest = iter(arrays), iter(fixed)
        leaves = [next(given) if there else next(rest) for there in self.from_tensor]
        out = run(self.program, numbers, jax.tree.unflatten(self.tree, leaves))
        return tuple(out[name] for name in sorted(out))


@lru_cache(maxsize=64)
def _defaults(problem: Problem, dtype: str) -> dict[str, Any]:
    return to_arrays(parameters.defaults(problem), dtype)


def resolve_dtype(dtype: torch.dtype | None, given: Iterable[torch.dtype]) -> torch.dtype:
    """The precision asked for, or the widest of the given ones, or torch's default."""
    if dtype is None:
        real = {d.to_real() for d in given if d not in INTEGERS}
        dtype = torch.float64 if torch.float64 in real else next(iter(real), torch.get_default_dtype())
    if dtype not in COMPLEX:
        raise ProblemError(
            f"Argument `dtype` must be torch.float32 or torch.float64, which the physics needs, but is {dtype}."
        )
    return dtype


def check_device(what: str, device: torch.device) -> None:
    """Raise unless it is the CPU or CUDA, or has no values, as on "meta"."""
    if device.type not in ("cpu", "cuda", "meta"):
        raise NotYetError(f"{what} must be on the CPU or on CUDA, but is on {device}, where JAX cannot join in.")


def to_tensor(name: str, value: Any) -> torch.Tensor:
    """The value of an argument as a dense tensor of float32 or float64 numbers."""
    if isinstance(value, bridge.FromArray):
        value = value.tensor
    if not isinstance(value, torch.Tensor):
        try:  # a copy, for NumPy's memory may be read-only or run backwards
            value = torch.as_tensor(np.array(value, order="C"))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ProblemError(
                f"Argument `{name}` must be a tensor or an array of numbers (torch.stack makes one of a list of "
                f"tensors), but is {reprlib.repr(value)}."
            ) from error
    check_device(f"Argument `{name}`", value.device)
    if value.layout != torch.strided or value.is_nested:
        parameters.fail(name, "be a dense tensor", f"is a {'nested' if value.is_nested else value.layout} one")
    value = bridge.autocast(value)
    if value.dtype not in INTEGERS and value.dtype.to_real() not in COMPLEX:
        parameters.fail(name, "be float32 or float64 numbers, which the physics needs", f"has dtype {value.dtype}")
    return value


@lru_cache(maxsize=256)
def _look(problem: Problem) -> Callable[[str, torch.Tensor], Any]:
    """A function (name, tensor) -> NumPy view for the checks; a bare shape where the value may not be looked at."""
    named = [(k, pulses.EDGES.get(field.envelope.name, ())) for k, field in enumerate(problem.fields)]
    edges = {f"pulse_args[{k}].{key}" for k, keys in named for key in keys}

    def look(name: str, tensor: torch.Tensor) -> Any:
        remote = name.startswith("input_fields") and tensor.is_cuda  # which stays where it is
        value = None if remote else bridge.value(tensor)
        if value is None or (name in edges and bridge.is_differentiated(tensor)):
            return jax.ShapeDtypeStruct(tuple(tensor.shape), np.dtype(str(tensor.dtype).removeprefix("torch.")))
        if name == "number_density" and not tensor.ndim:
            value = value[..., None]  # whose batch axis is not to be taken for z
        return value

    return look


class Watch:
    """Decides at which calls the resolution is estimated, and warns of them: at calls 1, 2, 4, 8 ….

    Attributes:
        cured: whether someone takes care of what is `outgrown`, so that there is no need to warn.
        outgrown: whether an error was above the tolerance.
    """

    calls: int
    warned: float
    outgrown: bool

    def __init__(self):
        self.calls, self.warned = 0, 0.0
        self.cured = self.outgrown = False

    def __call__(self, request: "Request", at: Resolution | MarchResolution, fields: torch.Tensor) -> None:
        """Count a call; where it is due, estimate the errors and warn of one above the tolerance, or of the window."""
        if not bridge.has_values(fields):
            return
        self.calls += 1
        if self.calls & (self.calls - 1) == 0:
            request.warn_window(fields)
            self.warn(*request.errors(at), request.tol, at)

    def warn(self, z_error: float, time_error: float, tol: float, at: Resolution | MarchResolution) -> None:
        """Warn of an error above the tolerance, and again only when it has grown tenfold."""
        self.outgrown = self.outgrown or not max(z_error, time_error) <= tol
        if not self.cured and warn_above(z_error, time_error, tol, at, since=self.warned):
            self.warned = max(z_error, time_error)


@lru_cache(maxsize=256)
def _watch(problem: Problem, at: Resolution | MarchResolution, options: Options, tol: float) -> Watch:
    return Watch()


def worst(out: Mapping[str, torch.Tensor]) -> tuple[float, float]:
    """The largest (z, time) errors of a batch, 0 where there are none."""
    found = (bridge.value(out[name]) if name in out else None for name in ("z_error", "time_error"))
    z_error, time_error = (0.0 if x is None or not x.size else float(np.max(x)) for x in found)
    return z_error, time_error


class Request:
    """One call, checked: the tensors of every given parameter, ready to run at any resolution.

    Args:
        problem: what is solved.
        input_fields: as in `propagate`.
        params: parameters by name.
        dtype: as in `propagate`.
        tol: as in `propagate`.
        least: precision that the inputs may widen, but not narrow, where `dtype` is None.
        at: the resolution that it will run at, or None where one is to be searched.
        **options: the other arguments of `jax_kernel.options.Options`.
    """

    options: Options
    tol: float
    given: parameters.Given
    start: str
    edges: tuple[tuple[float, ...], ...]
    narrowest: Callable[[Any], float]
    batch_size: int
    tree: Any
    from_tensor: tuple[bool, ...]
    tensors: list[torch.Tensor]
    fixed: tuple[Any, ...]

    def __init__(
        self,
        problem: Problem,
        input_fields: Any,
        params: Mapping[str, Any],
        *,
        dtype: torch.dtype | None,
        tol: float | None,
        least: torch.dtype | None = None,
        at: Any = None,
        **options: Any,
    ):
        bridge.check_process()
        check_problem(problem)
        conventions.warn_once(problem)
        precisions = [] if least is None else [resolve_dtype(least, [])]

        devices = set()

        def read(name: str, value: Any) -> torch.Tensor:
            tensor = to_tensor(name, value)
            if isinstance(value, torch.Tensor):  # numbers that came as anything else join the tensors
                precisions.append(tensor.dtype)
                devices.add(tensor.device)
            return tensor

        given = parameters.arrange(problem, params, input_fields).map(read)
        if len(devices) == 1 and (device := devices.pop()).type != "cpu":
            given = given.map(lambda _, t: t.to(device))
        dtype = resolve_dtype(dtype, precisions)
        self.options = Options(dtype=str(dtype).removeprefix("torch."), **options)
        self.tol = check_tolerance(tol, self.options.dtype, self.options.scheme)
        self.problem = problem
        self.given = given.map(lambda _, t: t.to(COMPLEX[dtype] if t.is_complex() else dtype))
        looked_at = self.given.map(_look(problem))
        parameters.check(problem, looked_at)
        self.options = stiffness.resolved(self.options, problem, looked_at, at if isinstance(at, Resolution) else None)
        self.start = start_parameter(self.given)
        self.edges = parameters.edges(problem, looked_at)
        self.narrowest = partial(parameters.narrowest_pulse, problem, looked_at)
        fields = {} if given.input_fields is None else {"input_fields": self.given.input_fields}
        sizes_known = not torch._C._len_torch_dispatch_stack()  # else a look at them would fix them for a whole graph
        self.batch_size = math.prod(batch_shape(self.given.params | fields)) if sizes_known else 1
        merged = parameters.merge(problem, self.given, _defaults(problem, self.options.dtype))
        leaves, self.tree = jax.tree.flatten(merged)
        self.from_tensor = tuple(isinstance(leaf, torch.Tensor) for leaf in leaves)
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.fixed = tuple(leaf for leaf in leaves if not isinstance(leaf, torch.Tensor))

    def run(self, at: Resolution | MarchResolution, outputs: frozenset[str]) -> dict[str, torch.Tensor]:
        """The outputs by name, at a resolution; fields are finite, and estimates have no gradient."""
        gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)
        memory.check(self.problem, at, self.options, outputs, self.start, self.batch_size, gradient)
        prepared = prepare(
            self.problem, at, self.options, outputs, self.given.sampled, self.edges, self.start, self.batch_size
        )
        sizes = _sizes(self.problem, self.options.on_grid)
        fn = _Flat(prepared.program, self.tree, self.from_tensor, sizes)
        check = partial(_check_outputs, self.problem, self.options, at, fn.outputs)
        constants = bridge.Checked((prepared.numbers, self.fixed), check, self._later())
        results = bridge.call(fn, constants, self.tensors)
        out = dict(zip(fn.outputs, results, strict=True))
        estimates = {name: out[name].detach() for name in ("z_error", "time_error") if name in out}
        if "time_error" in estimates and longest_step(self.problem, at) > self.narrowest(at):
            estimates["time_error"] = torch.full_like(estimates["time_error"], math.inf)  # the twin may miss it, too
        return out | estimates

    def _later(self) -> Callable[[Sequence[torch.Tensor]], None] | None:
        """What checks the values of the tensors once they have some; None if they have been checked."""
        if all(map(bridge.has_values, self.tensors)):
            return None
        places = {id(tensor): k for k, tensor in enumerate(self.tensors)}
        return partial(_check_values, self.problem, self.given.map(lambda _, tensor: places[id(tensor)]))

    def warn_window(self, fields: torch.Tensor) -> None:
        """Warn, once for a problem, of a time grid or a window that does not hold the light."""
        value = bridge.value(fields)
        if value is not None:
            continued = self.start == "initial_density_matrix"
            checks.warn_window(self.problem, value, continued=continued)

    def errors(self, at: Resolution | MarchResolution, states: frozenset[str] = frozenset()) -> tuple[float, float]:
        """Estimated (z, time) errors at a resolution, the worst of the batch, from the values of now.

        They are those of the fields and of the `states`, outputs by name.
        """
        with torch.no_grad():
            out = self.run(at, states | {"z_error", "time_error"})
        return worst(out)

    def resolve(
        self,
        resolution: Any,
        states: frozenset[str] = frozenset(),
        start: Resolution | None = None,
        *,
        join: bool = False,
    ) -> Resolution | MarchResolution:
        """The resolution given, or for "auto" the one at which the fields and the states meet the tolerance.

        Args:
            resolution: as in `propagate`.
            states: the states by name of output that are to meet the tolerance, too.
            start: where the search starts, by default at a guess.
            join: whether many calls will follow, so that it is worth to look for steps over several intervals.
        """
        if self.options.scheme == "march":
            return march_options.choose(
                self.problem, resolution, lambda at: self.errors(at)[0], self.tol, self.options.step
            )
        if isinstance(resolution, str) and resolution == "auto":
            if not all(map(bridge.has_values, self.tensors)):
                raise BridgeError(
                    'Argument `resolution` must be a Resolution where tensors have no values yet, but is "auto": give '
                    "one, or call the module once before it is traced."
                )
            strengths = "interaction_strengths" in self.given.params
            start = start or first_guess(self.problem, strengths, self.options.solver)
            errors = partial(self.errors, states=states)
            found = search(errors, self.tol, start, time_is_fixed=not self.options.on_grid)
            may_join = join and self.options.on_grid and self.given.input_fields is None
            return joined(errors, self.tol, found) if may_join else found
        return check_resolution(resolution)


def _check_values(problem: Problem, places: parameters.Given, tensors: Sequence[torch.Tensor]) -> None:
    """Look at the values of parameters that stand at the given places among the tensors."""
    look = _look(problem)
    parameters.check(problem, places.map(lambda name, k: look(name, tensors[k])))


def _check_outputs(
    problem: Problem,
    options: Options,
    at: Resolution | MarchResolution,
    names: list[str],
    results: Sequence[torch.Tensor],
) -> None:
    """Raise where what was computed is no solution."""
    out = dict(zip(names, results, strict=True))
    if "fields" not in out:  # errors of a search, which goes on
        return
    fields = out["fields"]
    if isinstance(at, MarchResolution) or not _is_finite(fields):
        check_fields(fields.numpy(force=True), problem, at, options)
    check_states({name: out[name].numpy(force=True) for name in STATE_OUTPUTS if name in out}, at)


def _is_finite(fields: torch.Tensor) -> bool:
    if fields.is_cpu:  # NumPy is the faster one
        return bool(np.isfinite(fields.numpy().view(str(fields.dtype.to_real()).removeprefix("torch."))).all())
    return bool(torch.isfinite(fields).all())


@lru_cache(maxsize=64)
def _sizes(problem: Problem, on_grid: bool) -> dict[str, tuple[int, ...]]:
    """Shape of every output without batch axes."""
    z, time, levels = problem.z_steps + 1, problem.t_steps + 1, problem.num_states
    fields, classes = len(problem.fields), len(problem.doppler_shifts)
    return {
        "fields": (fields, z, time),
        "density_matrix": (z, time, levels, levels),
        "populations": (z, time, levels),
        "coherences": (fields, z, time),
        "final_state": (z, classes, levels, levels),
        "z_error": (),
    } | ({"time_error": ()} if on_grid else {})


@bridge.eager
def propagate(
    problem: Problem,
    input_fields: Any = None,
    *,
    dtype: torch.dtype | None = None,
    resolution: Resolution | str = "auto",
    tol: float | None = None,
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
    sharding: Sharding | None = None,
    **params: Any,
) -> torch.Tensor:
    """Propagate light through a medium; the stateless form of `TorchPropagator`.

    The equations, the parameters and the options are those of `jax_kernel.propagate`.

    Args:
        problem: what is solved; its numbers are the defaults of all parameters.
        input_fields: sampled fields at the entrance, complex or real, cyclic, shape (*batch, field, time) on the
            problem's time grid, or a dict {label or index: (*batch, time)} that replaces only some of them.
        dtype: torch.float32 or torch.float64; by default that of the given tensors, or torch's own.
        resolution: a `Resolution`, or "auto" to search one that meets `tol` (at every call: a module keeps it).
        tol: error above which a resolution warns, relative to each field's peak; 1e-6 or, in float32, 1e-4; in a march,
            1e-2.
        scheme: "cross", or "march" for that of clerq, where the problem's `z_steps_inner` stands for `resolution`.
        memory: "auto", "fast" or "lean".
        solver: "auto", "runge-kutta", "exponential" or a diffrax solver, see `jax_kernel.propagate`.
        rtol: relative tolerance of `solver`.
        atol: absolute tolerance of `solver`.
        max_steps: most steps of `solver`.
        step: of a march only, as all that follow: "ab" or "euler".
        strategy: "s2", "s3" or "s4": what its gradient stores.
        checkpoints: states of a slice that the gradient keeps, for strategy "s4".
        n_steps: constant steps of each slice in place of adaptive ones.
        sharding: a `Sharding` where several JAX devices are to share the batch and the velocity classes.
        **params: parameters by name; cyclic, in the problem's units, with optional leading batch axes.

    Returns:
        Complex Rabi frequencies, cyclic, shape (*batch, field, z, time).

    Raises:
        ProblemError: an argument breaks a rule.
        ResolutionError: the solution did not stay finite, or "auto" found no resolution that meets `tol`.
        NotYetError: the request is meaningful but not there yet.

    Example:
        >>> import torch
        >>> from torch_clerq import Problem, Resolution, propagate
        >>> problem = Problem.from_dict({
        ...     "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}], "fields": [
        ...         {"coupled_levels": [[0, 1]], "rabi_freq": 1e-3, "rabi_freq_t_func": "ramp_on",
        ...          "rabi_freq_t_args": {"ampl": 1.0, "on": 1.0, "fwhm": 0.5}}]},
        ...     "t_max": 5.0, "interaction_strengths": [1.0]})
        >>> g = torch.ones(1, dtype=torch.float64, requires_grad=True)
        >>> fields = propagate(problem, interaction_strengths=g, resolution=Resolution(12, 2))
        >>> transmission = (fields[0, -1, -1] / fields[0, 0, -1]).abs()
        >>> transmission.backward()
        >>> print(f"{transmission:.3f} {g.grad[0]:.3f}")  # Beer–Lambert: exp(−2 g L / rate), and −2 times that
        0.135 -0.271
    """
    options: dict[str, Any] = dict(scheme=scheme, memory=memory, solver=solver, rtol=rtol, atol=atol)
    options |= dict(max_steps=max_steps, sharding=sharding)
    march: dict[str, Any] = dict(step=step, strategy=strategy, checkpoints=checkpoints, n_steps=n_steps)
    request = Request(problem, input_fields, params, dtype=dtype, tol=tol, at=resolution, **options, **march)
    at = request.resolve(resolution)
    fields = request.run(at, frozenset({"fields"}))["fields"]
    _watch(problem, at, request.options, request.tol)(request, at, fields)
    return fields


def check_resolution(resolution: Any) -> Resolution:
    """The resolution, if it is one."""
    if not isinstance(resolution, Resolution):
        raise ProblemError(f'Argument `resolution` must be a Resolution or "auto", but is {resolution!r}.')
    return resolution


def to_solution(out: Mapping[str, torch.Tensor], request: Request, at: Resolution | MarchResolution) -> Solution:
    """A Solution of tensors."""
    dtype = getattr(torch, request.options.dtype)
    device = next(iter(out.values())).device
    z, time = (torch.as_tensor(x, dtype=dtype, device=device) for x in (request.problem.z, request.problem.time))
    return Solution(**out, z=z, time=time, resolution=at)
