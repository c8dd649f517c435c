"""propagate() on tensors: stateless; what the module calls."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import torch

from jax_kernel import parameters, pulses
from jax_kernel.errors import ProblemError
from jax_kernel.problem import Problem
from jax_kernel.program import Program, batch_shape, run
from jax_kernel.propagate import Options, check_finite, check_tolerance, prepare, to_arrays
from jax_kernel.resolution import Resolution, search, warn_above
from jax_kernel.solution import Solution

from . import bridge

COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


@dataclass(frozen=True)
class _Flat:
    """A program as a function (constants, *tensors) -> outputs sorted by name; hashable, so that equal ones share."""

    program: Program
    tree: Any
    from_tensor: tuple[bool, ...]

    @property
    def x64(self) -> bool:
        return self.program.dtype == "float64"

    def __call__(self, constants, *arrays):
        numbers, fixed = constants
        fixed, arrays = iter(fixed), iter(arrays)
        leaves = [next(arrays) if there else next(fixed) for there in self.from_tensor]
        out = run(self.program, numbers, jax.tree.unflatten(self.tree, leaves))
        return tuple(out[name] for name in sorted(out))


@lru_cache(maxsize=256)
def _defaults(problem: Problem, dtype: str) -> dict[str, Any]:
    return to_arrays(parameters.defaults(problem), dtype)


def resolve_dtype(dtype: torch.dtype | None, tensors: list[torch.Tensor]) -> torch.dtype:
    """The precision asked for, or that of the given tensors, or torch's default."""
    if dtype is None:
        floating = [t.dtype.to_real() for t in tensors if t.is_floating_point() or t.is_complex()]
        dtype = torch.float64 if torch.float64 in floating else (floating[0] if floating else torch.get_default_dtype())
    if dtype not in COMPLEX:
        raise ProblemError(
            f"Argument `dtype` must be torch.float32 or torch.float64, which the physics needs, but is {dtype}."
        )
    return dtype


def _looked_at(name: str, tensor: torch.Tensor) -> Any:
    """A NumPy view of a tensor for the checks; a bare shape where its value may not be looked at."""
    if tensor.dtype in (torch.bfloat16, torch.float16):
        parameters.fail(name, "be float32 or float64, which the physics needs", f"is {tensor.dtype}")
    edge = tensor.requires_grad and any(name in names for names in pulses.EDGES.values())
    if edge or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        dtype = str(tensor.dtype).removeprefix("torch.")
        return jax.ShapeDtypeStruct(tuple(tensor.shape), np.dtype(dtype))
    return tensor.detach().cpu().resolve_conj().resolve_neg().numpy()


def _tensor(name: str, value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    try:
        return torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProblemError(f"Argument `{name}` must be a tensor or an array of numbers, but is {value!r}.") from error


class Watch:
    """Decides at which calls the resolution is estimated, and warns once: at calls 1, 2, 4, 8 …."""

    def __init__(self):
        self.calls, self.warned = 0, False

    def __call__(self, request: "Request", at: Resolution) -> None:
        """Count a call; where it is due, estimate the errors and warn of one above the tolerance."""
        self.calls += 1
        if not self.warned and self.calls & (self.calls - 1) == 0:
            self.warned = warn_above(*request.errors(at), request.tol, at)


@lru_cache(maxsize=256)
def _watch(problem: Problem, at: Resolution, options: Options) -> Watch:
    return Watch()


class Request:
    """One call, checked: the tensors of every given parameter, ready to run at any resolution."""

    def __init__(self, problem: Problem, input_fields: Any, params: Mapping[str, Any], options: dict[str, Any]):
        if not isinstance(problem, Problem):
            raise ProblemError(
                f"Argument `problem` must be a Problem (Problem.from_json reads one), but is {type(problem).__name__}."
            )
        given = parameters.arrange(problem, params, input_fields)
        came_as_tensors = [
            x for x in jax.tree.leaves((given.params, given.input_fields)) if isinstance(x, torch.Tensor)
        ]
        given = given.map(_tensor)
        dtype = resolve_dtype(options["dtype"], came_as_tensors)
        rest = {key: value for key, value in options.items() if key not in ("dtype", "tol")}
        self.options = Options(dtype=str(dtype).removeprefix("torch."), **rest)
        self.tol = check_tolerance(options["tol"], self.options.dtype)
        looked_at = given.map(_looked_at)
        parameters.check(problem, looked_at)
        self.problem = problem
        self.given = given.map(lambda _, t: t.to(COMPLEX[dtype] if t.is_complex() else dtype))
        self.edges = parameters.edges(problem, looked_at)
        merged = parameters.merge(problem, self.given, _defaults(problem, self.options.dtype))
        leaves, self.tree = jax.tree.flatten(merged)
        self.batch_size = math.prod(batch_shape(merged))
        self.from_tensor = tuple(isinstance(leaf, torch.Tensor) for leaf in leaves)
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.fixed = tuple(leaf for leaf in leaves if not isinstance(leaf, torch.Tensor))

    def run(self, at: Resolution, outputs: frozenset[str]) -> dict[str, torch.Tensor]:
        """The outputs by name, at a resolution."""
        populated = "initial_state" in self.given.params
        prepared = prepare(
            self.problem, at, self.options, outputs, self.given.sampled, self.edges, populated, self.batch_size
        )
        fn = _Flat(prepared.program, self.tree, self.from_tensor)
        names = sorted(outputs - ({"time_error"} if self.options.solver is not None else set()))
        out = dict(zip(names, bridge.call(fn, (prepared.numbers, self.fixed), self.tensors), strict=True))
        fields = out["fields"].detach() if "fields" in out else torch.zeros(0, dtype=torch.complex64)
        if not torch._C._functorch.is_functorch_wrapped_tensor(fields):
            if not math.isfinite(float(torch.view_as_real(fields).sum())):
                check_finite(fields.numpy(), self.problem, at)
        return out

    def errors(self, at: Resolution) -> tuple[float, float]:
        """Estimated (z, time) errors at a resolution, the worst of the batch, from the values of now."""
        with torch.no_grad():
            out = self.run(at, frozenset({"z_error", "time_error"}))
        return float(out["z_error"].max()), float(out["time_error"].max()) if "time_error" in out else 0.0

    def search(self) -> Resolution:
        """The resolution that meets the tolerance."""
        return search(self.errors, self.tol, time_is_fixed=self.options.solver is not None)


def propagate(
    problem: Problem,
    input_fields: Any = None,
    *,
    dtype: torch.dtype | None = None,
    resolution: Resolution | str = "auto",
    tol: float | None = None,
    scheme: str = "cross",
    memory: str = "auto",
    solver: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
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
        tol: error above which a resolution warns, relative to each field's peak; 1e-6 or, in float32, 1e-4.
        scheme: "cross".
        memory: "auto", "fast" or "lean".
        solver: a diffrax solver with adaptive steps in place of the fixed grid.
        rtol: relative tolerance of `solver`.
        atol: absolute tolerance of `solver`.
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
        >>> fields = propagate(problem, interaction_strengths=g, resolution=Resolution(12, 1))
        >>> transmission = (fields[0, -1, -1] / fields[0, 0, -1]).abs()
        >>> transmission.backward()
        >>> print(f"{transmission:.3f} {g.grad[0]:.3f}")  # Beer–Lambert: exp(−2 g L / rate), and −2 times that
        0.135 -0.271
    """
    options = dict(dtype=dtype, tol=tol, scheme=scheme, memory=memory, solver=solver, rtol=rtol, atol=atol)
    request = Request(problem, input_fields, params, options)
    at = request.search() if isinstance(resolution, str) and resolution == "auto" else check_resolution(resolution)
    fields = request.run(at, frozenset({"fields"}))["fields"]
    _watch(problem, at, request.options)(request, at)
    return fields


def check_resolution(resolution: Any) -> Resolution:
    """The resolution, if it is one."""
    if not isinstance(resolution, Resolution):
        raise ProblemError(f'Argument `resolution` must be a Resolution or "auto", but is {resolution!r}.')
    return resolution


def to_solution(out: Mapping[str, torch.Tensor], request: Request, at: Resolution) -> Solution:
    """A Solution of tensors."""
    dtype = getattr(torch, request.options.dtype)
    z, time = (torch.as_tensor(x, dtype=dtype) for x in (request.problem.z, request.problem.time))
    return Solution(**out, z=z, time=time, resolution=at)
