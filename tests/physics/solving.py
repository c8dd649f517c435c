"""Build, solve and differentiate the problems that have closed forms.

Executables are keyed by structure and shapes, and compiling them takes most of the time, so the rows of one structure
share theirs: all light on two levels at rest is a sech (a constant where it is very long), all control light a
`ramp_onoff` (a constant, or a Gaussian where it goes off as it comes on), every decay is there (of rate 0 where there
is none), every Rabi frequency is complex, the density of a thermal medium is sampled (and 1 from 0 to 1), and every run
is differentiated in all parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import make_interp_spline

from jax_kernel import Problem, Resolution, propagate
from tests.physics import closed_forms

FAR = 1e8
TOLERANCE = 1e-6
FINE_TWO_LEVEL = Resolution(40, 8)
FINE_LAMBDA = Resolution(24, 16)
FINE_THERMAL = Resolution(16, 4)
FINE_V = Resolution(40, 4)
FACTOR = 1.5  # the estimates are of the first neglected order, which at one or two steps an interval is not all


def sech_pulse(n_pi: float, width: float, centre: float = 0.0) -> dict[str, Any]:
    return {"rabi_freq_t_func": "sech", "rabi_freq_t_args": {"n_pi": n_pi, "width": width, "centre": centre}}


def constant_pulse() -> dict[str, Any]:
    """A sech of peak 1 and so long that it is 1 to 1e-14 in any window."""
    return sech_pulse(2 * np.pi * FAR, FAR)


def gaussian_pulse(fwhm: float, centre: float = 0.0) -> dict[str, Any]:
    return {"rabi_freq_t_func": "gaussian", "rabi_freq_t_args": {"ampl": 1.0, "fwhm": fwhm, "centre": centre}}


def constant_control() -> dict[str, Any]:
    args = {"ampl": 1.0, "fwhm": 1.0, "on": -FAR, "off": FAR}
    return {"rabi_freq_t_func": "ramp_onoff", "rabi_freq_t_args": args}


def gaussian_control(fwhm: float, centre: float = 0.0) -> dict[str, Any]:
    args = {"ampl": 1.0, "fwhm": fwhm, "on": centre, "off": centre}
    return {"rabi_freq_t_func": "ramp_onoff", "rabi_freq_t_args": args}


def medium(fields, decays, *, strengths, states, **window) -> Problem:
    """A problem; `window` overrides the top-level keys."""
    system = {"num_states": states, "fields": fields, "decays": decays}
    window = {"t_steps": 320, "z_min": -0.2, "z_max": 1.2, "z_steps": 28} | window
    return Problem.from_dict({"system": system, "interaction_strengths": list(strengths)} | window)


def two_level(pulse, *, rabi, g=1.0, rate=0.0, dephasing=0.0, detuning=0.0, factor=1.0, channel_factor=1.0, **window):
    field = {"coupled_levels": [[0, 1]], "factors": [factor], "rabi_freq": rabi, "detuning": detuning} | pulse
    decays = [{"rate": rate, "channels": [[0, 1]], "factors": [channel_factor]},
              {"rate": dephasing, "channels": [[1, 1]]}]  # fmt: skip
    return medium([field], decays, strengths=[g], states=2, **window)


def three_level(pairs, pulses, *, rabi, g, decays, detunings=(0.0, 0.0), **window) -> Problem:
    fields = [
        {"coupled_levels": [pair], "rabi_freq": strength, "detuning": detuning} | pulse
        for pair, pulse, strength, detuning in zip(pairs, pulses, rabi, detunings, strict=True)
    ]
    return medium(fields, decays, strengths=g, states=3, **{"t_steps": 360} | window)


def lambda_medium(pulses, *, rate=0.0, ground_rate=0.0, **settings) -> Problem:
    """Λ: [0, 1] and [2, 1]; level 1 decays at `rate` in all, level 2 at `ground_rate`."""
    decays = [{"rate": rate, "channels": [[0, 1], [2, 1]], "factors": [0.6, 0.8]},
              {"rate": ground_rate, "channels": [[0, 2]]}]  # fmt: skip
    return three_level([[0, 1], [2, 1]], pulses, decays=decays, **settings)


def ladder_medium(pulses, *, rate=0.0, upper_rate=0.0, **settings) -> Problem:
    """Ladder: [0, 1] and [1, 2], each level decaying to the one below."""
    decays = [{"rate": rate, "channels": [[0, 1]]}, {"rate": upper_rate, "channels": [[1, 2]]}]
    return three_level([[0, 1], [1, 2]], pulses, decays=decays, **settings)


def v_medium(pulses, *, rate=0.0, **settings) -> Problem:
    """V: [0, 1] and [0, 2], both upper levels decaying to level 0."""
    decays = [{"rate": rate, "channels": [[0, 1], [0, 2]]}]
    return three_level([[0, 1], [0, 2]], pulses, decays=decays, **{"t_steps": 560} | settings)


def parameters_of(problem: Problem) -> dict[str, Any]:
    """Every number of a problem by the names of `propagate`, as JAX arrays."""
    tree = {
        "pulse_args": [dict(field.envelope.args) for field in problem.fields],
        "rabi_freq": [complex(field.rabi_freq) for field in problem.fields],
        "interaction_strengths": problem.interaction_strengths,
        "detunings": [field.detuning for field in problem.fields],
        "decay_rates": [decay.rate for decay in problem.decays],
        "number_density": 1.0,
    }
    if problem.velocity_classes is not None:
        tree |= {"thermal_width": problem.thermal_width, "number_density": np.ones(len(problem.z))}
    pulse_args = [{name: jnp.asarray(value) for name, value in args.items()} for args in tree.pop("pulse_args")]
    return {name: jnp.asarray(value) for name, value in tree.items()} | {"pulse_args": pulse_args}


def thermal(thermal_width: float, edge: float) -> dict[str, Any]:
    """Keys of a medium from 0 to 1 with 41 velocity classes from −edge to edge."""
    classes = {"thermal_width": thermal_width, "thermal_delta_min": -edge, "thermal_delta_max": edge,
               "thermal_delta_spacing": edge / 20}  # fmt: skip
    return {"velocity_classes": classes, "z_min": 0.0, "z_max": 1.0}


# How the derivative in one number follows from the gradient by parameter.
STRENGTH = {"g": lambda gradient: gradient["interaction_strengths"][0]}
STRENGTHS = {"g": lambda gradient: gradient["interaction_strengths"].sum()}
RATE = {"rate": lambda gradient: gradient["decay_rates"][0]}
DETUNING = {"detuning": lambda gradient: gradient["detunings"][0]}
RABI = {"rabi": lambda gradient: gradient["rabi_freq"][0].real}
GAUSSIAN = RABI | {
    "fwhm": lambda gradient: gradient["pulse_args"][0]["fwhm"],
    "centre": lambda gradient: gradient["pulse_args"][0]["centre"],
}
SECH = {
    name: lambda gradient, name=name: sum(args[name] for args in gradient["pulse_args"]) for name in ("width", "centre")
}


class Solved(NamedTuple):
    """A solved problem in NumPy.

    Attributes:
        fields: shape (field, z, time).
        populations: shape (z, time, level).
        time: shape (time,).
        path: ∫N dz of the default profile, a square on [0, 1], shape (z,).
        pull_back: from cotangents of fields and populations to the gradient by parameter, in NumPy.
    """

    fields: np.ndarray
    populations: np.ndarray
    time: np.ndarray
    path: np.ndarray
    pull_back: Callable[..., dict[str, Any]]


def solve(problem: Problem, at: Resolution, **parameters: Any) -> Solved:
    """Solve, check that the run is resolved to `TOLERANCE`, and keep what a gradient needs."""

    def run(tree):
        solution = propagate(problem, tree, outputs=("populations",), resolution=at)
        return (solution.fields, solution.populations), solution

    tree = parameters_of(problem) | {name: jnp.asarray(value) for name, value in parameters.items()}
    (fields, populations), transpose, solution = jax.vjp(run, tree, has_aux=True)

    def pull_back(fields_cotangent=None, populations_cotangent=None):
        cotangents = [
            jnp.zeros_like(like) if given is None else jnp.asarray(given, like.dtype)
            for given, like in ((fields_cotangent, fields), (populations_cotangent, populations))
        ]
        return jax.tree.map(np.asarray, transpose(tuple(cotangents))[0])

    assert solution.z_error + solution.time_error < TOLERANCE
    return Solved(np.asarray(fields), np.asarray(populations), problem.time, path_of(problem), pull_back)


def path_of(problem: Problem) -> np.ndarray:
    """∫N dz of the default profile, a square on [0, 1]."""
    return np.clip(problem.z, 0.0, 1.0)


def integral(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Running integral along the last axis, of eighth order."""
    return make_interp_spline(at, values, k=7, axis=-1).antiderivative()(at)


def deviation(fields: np.ndarray, closed: np.ndarray) -> float:
    """Largest deviation from a closed form ([field,] z, time), each field relative to its peak.

    Fields and times behind those of the closed form are left out.
    """
    closed = closed if closed.ndim == 3 else closed[None]
    fields = fields[: len(closed), :, : closed.shape[-1]]
    peaks = np.abs(closed).max((1, 2), keepdims=True)
    return float(np.max(np.abs(fields - closed) / peaks))


class Row(NamedTuple):
    """One closed form of the fields, with the problem that it solves.

    Attributes:
        problem: in the units of `numbers`.
        closed: function of time, path and the numbers; shape ([field,] z, time), the last time may be missing.
        numbers: arguments of the closed form by name.
        gradient: by name, how the derivative in a number follows from the gradient of `propagate`.
        fine: a resolution that solves the problem to 1e-7 or better.
        neglect: what the closed form leaves out, relative to the peak.
        field: whose output energy is differentiated.
    """

    problem: Problem
    closed: Callable[..., np.ndarray]
    numbers: dict[str, float]
    gradient: dict[str, Callable[[dict[str, Any]], float]]
    fine: Resolution
    neglect: float = 1e-9
    field: int = 0

    def fields(self, **numbers: float) -> np.ndarray:
        closed = self.closed(self.problem.time, path_of(self.problem), **self.numbers | numbers)
        return closed if closed.ndim == 3 else closed[None]


def check_row(row: Row, fields: float = 1e-6, gradient: float = 1e-6) -> None:
    """The finely solved fields are those of the closed form, and so is the slope of the output energy in every number.

    Later light counts more in the energy, so that a change of the delay changes it.

    Args:
        row: the closed form.
        fields: largest deviation of the fields, besides the neglect.
        gradient: largest relative deviation of a derivative.
    """
    solved = solve(row.problem, row.fine)
    expected = row.fields()
    assert deviation(solved.fields, expected) < fields + row.neglect

    times = expected.shape[-1]
    weights = np.zeros(solved.fields.shape)
    weights[row.field, -1, :times] = (solved.time[:times] - solved.time[0]) / np.abs(expected[row.field]).max() ** 2
    pulled = solved.pull_back(2 * weights * np.conj(solved.fields))

    def energy(name, value):
        return np.sum(weights[row.field, -1, :times] * np.abs(row.fields(**{name: value})[row.field, -1]) ** 2)

    assert_derivatives({name: float(at(pulled)) for name, at in row.gradient.items()}, energy, row.numbers, gradient)


def assert_derivatives(found: dict[str, float], objective, numbers: dict[str, float], within: float = 1e-6) -> None:
    """Compare derivatives by name with those of objective(name, value) at the numbers."""
    for name, value in found.items():
        expected = closed_forms.slope(lambda x, name=name: objective(name, x), numbers[name])
        assert abs(value - expected) < within * abs(expected), (name, value, expected)


def check_auto(row: Row, tol: float | None) -> None:
    """At resolution "auto" the deviation from the closed form is what the solution says it is."""
    solution = propagate(row.problem, outputs=("density_matrix",), resolution="auto", tol=tol)
    estimate = float(solution.z_error + solution.time_error)
    assert estimate < 2 * (tol or TOLERANCE)
    assert deviation(np.asarray(solution.fields), row.fields()) < FACTOR * estimate + row.neglect
