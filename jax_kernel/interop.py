"""Problems from live clerq solvers, and back; clerq itself is needed only on the way back."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import ProblemError, WindowWarning, warn
from .problem import Problem, complex_values
from .reading import show

STRAIGHT = 1e-6
"""Deviation of a custom function from lines between its samples, of its peak, above which it is warned of."""


def read_solver(solver: Any) -> Problem:
    """See `Problem.from_clerq`."""
    if not any((cls.__module__, cls.__name__) == ("clerq.lindblad", "LindbladSolver") for cls in type(solver).__mro__):
        kinds = "a `clerq.PropagationSolver` or a `clerq.LindbladSolver`"
        raise ProblemError(f"Argument `solver` must be {kinds}, but is {type(solver).__name__}.")
    content = solver.get_json_dict()  # all but the initial state, functions of the user's own, and their arguments
    content["system"] |= {"initial_state": _populations(solver.system.initial_state.full())}
    for k, (field, light) in enumerate(zip(content["system"]["fields"], solver.system.fields, strict=True)):
        name = f"system.fields[{k}].rabi_freq_t"
        field |= _envelope(name, "rabi_freq_t", light.rabi_freq_t_func, light.rabi_freq_t_args, solver.tlist)
    if hasattr(solver, "num_density_z_func"):
        inner = np.linspace(solver.z_min, solver.z_max, solver.z_steps * solver.z_steps_inner + 1)
        name = "num_density_z"
        content |= _envelope(name, name, solver.num_density_z_func, solver.num_density_z_args, inner)
    return Problem.from_dict(content)


def write_solver(problem: Problem) -> Any:
    """See `Problem.to_clerq`."""
    own = complex_values(problem)
    own += [f"system.decays[{d}].operator" for d, decay in enumerate(problem.decays) if decay.operator is not None]
    own += [f"system.{key}" for key in ("level_detunings", "level_doppler_slopes") if getattr(problem, key) is not None]
    if problem.velocity_classes is not None and problem.velocity_classes.quadrature is not None:
        own.append("velocity_classes.quadrature")
    if own:
        named = ", ".join(f"`{name}`" for name in dict.fromkeys(own))
        raise ProblemError(
            f"Argument `problem` must be what clerq can express, but has {named}: leave out what is not real, or not "
            "clerq's."
        )
    try:
        from clerq import PropagationSolver
    except ImportError as error:
        raise ImportError("`Problem.to_clerq` needs clerq: pip install 'clerq'.") from error
    content = problem.to_dict()
    for field in content["system"]["fields"]:
        field["counter_propagating"] = False  # with which clerq would take every Doppler factor for -1
    solver = PropagationSolver(**content)
    for field, light in zip(problem.fields, solver.system.fields, strict=True):
        light.counter_propagating = field.counter_propagating
    return solver


def _populations(state: np.ndarray) -> list[float]:
    if np.any(state != np.diag(np.diag(state).real)):
        cure = "give it to `propagate` as `initial_density_matrix`"
        raise ProblemError(f"Argument `solver.system.initial_state` must be populations, but has coherences: {cure}.")
    return np.diag(state).real.tolist()


def _envelope(name: str, key: str, function: Any, args: dict[str, Any], at: np.ndarray) -> dict[str, Any]:
    """The function and its arguments under the keys of a problem; of one that is not clerq's, samples."""
    if getattr(function, "__module__", None) == "clerq.t_funcs":
        own, _, index = function.__name__.rpartition("_")
        read = {word.removesuffix(f"_{index}"): value for word, value in args.items()}
        return {f"{key}_func": own, f"{key}_args": read}

    def sample(points: np.ndarray) -> np.ndarray:
        try:
            return np.asarray([complex(function(float(point), args)) for point in points])
        except Exception as error:
            raise ProblemError(
                f"Argument `solver.{name}_func` must be a function of a number and `{name}_args` with a number for its "
                f"value, but is {show(function)}, which raised {type(error).__name__}: {error}."
            ) from error

    values, middles = sample(at), sample((at[1:] + at[:-1]) / 2)
    peak = max(np.max(np.abs(values)), np.max(np.abs(middles)))
    error = np.max(np.abs(middles - (values[1:] + values[:-1]) / 2)) / peak if peak else 0.0
    if error > STRAIGHT:
        cure = "give finer samples as `input_fields`" if key == "rabi_freq_t" else "give samples as `number_density`"
        warn(
            f"The custom function `{name}_func` is kept as its samples, from which straight lines between them differ "
            f"by {error:.1g} of the peak: raise the steps of the grid, or {cure}.",
            WindowWarning,
        )
    if not np.any(values.imag):
        values = values.real
    return {f"{key}_func": "intp", f"{key}_args": {"tlist": at.tolist(), "ylist": values.tolist()}}
