"""Whether coherences turn fast for the time grid, which decides on the solver.

Decay does not count: where it is fast, the light and the populations that it feeds follow it, which no diagonal holds.
"""

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from . import doppler, parameters
from .options import Options
from .prepare import start_parameter, structure_of
from .problem import Problem
from .resolution import Resolution, longest_step

STIFF = 20.0
"""Largest |Im λ|Δt of an interval Δt of the time grid that is left to Runge–Kutta: benchmarks/stiff.py measured it."""

UNSTABLE = 3.3
"""Largest |λ|h of a step h at which Runge–Kutta is stable whatever the phase of λ (Carpenter and Kennedy 1994)."""

_RATES = (
    "energies", "detunings", "b_field", "thermal_width", "level_detunings", "level_doppler_slopes",
)  # fmt: skip


def resolved(options: Options, problem: Problem, given: parameters.Given, at: Resolution | None) -> Options:
    """The options with the solver that "auto" stands for, by the values that can be seen now.

    Args:
        options: as the user gave them.
        problem: what is solved.
        given: parameters, of which those that are concrete count.
        at: the resolution, or None where it is yet to be found.
    """
    if options.solver != "auto" or options.scheme != "cross":
        return options
    if at is not None and at.t_substeps < 1:  # which exponential steps cannot be
        return dataclasses.replace(options, solver="runge-kutta")
    if at is not None and at.solver is not None:
        return dataclasses.replace(options, solver=at.solver)
    seen = {name: given.params[name] for name in _RATES if parameters.is_concrete(given.params.get(name))}
    start = start_parameter(given)
    rate = fastest(problem, start, seen) if seen else _own(problem, start)
    interval = (problem.t_max - problem.t_min) / problem.t_steps
    stiff = rate * interval > STIFF or (at is not None and rate * longest_step(problem, at) > UNSTABLE)
    return dataclasses.replace(options, solver="exponential" if stiff else "runge-kutta")


@lru_cache(maxsize=256)
def _own(problem: Problem, start: str) -> float:
    return fastest(problem, start, {})


def fastest(problem: Problem, start: str, values: Mapping[str, Any]) -> float:
    """The largest |Im λ| on the diagonal of the generator, angular; `values` take the place of the problem's own."""
    merged = parameters.defaults(problem) | dict(values)
    detunings = merged.get("level_detunings", np.asarray(merged["detunings"]) @ doppler.upper_levels(problem))
    energies = np.asarray(merged["energies"]) - detunings
    if problem.b_field is not None:
        energies = energies + np.asarray(merged["b_field"])[..., None] * np.asarray(problem.b_field.shifts)
    slopes = np.asarray(merged.get("level_doppler_slopes", doppler.level_doppler_slopes(problem)))
    first, second = np.asarray(structure_of(problem, start).coherences, int).reshape(-1, 2).T
    farthest = np.max(np.abs(problem.doppler_shifts))
    classes = problem.velocity_classes
    if classes is not None and classes.quadrature is not None:  # nodes that move with the width
        farthest = farthest * np.asarray(merged["thermal_width"])[..., None] / classes.thermal_width
    rotation = np.abs(energies[..., first] - energies[..., second])
    rotation = rotation + np.abs(slopes[..., first] - slopes[..., second]) * farthest
    return 2 * np.pi * float(np.max(rotation, initial=0))
