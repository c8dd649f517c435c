"""Everything that could be wrong with a problem, looked at before an hour is spent on it."""

import time as clock
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from jax_kernel import checks, conventions, parameters, stiffness
from jax_kernel.errors import ConventionWarning, PropagationError, ResolutionError, ResolutionWarning
from jax_kernel.problem import Problem
from jax_kernel.resolution import Resolution
from jax_kernel.solution import Solution

from ..analysis import energy
from ..checks import check_positive
from ..limits import optical_depth
from ..propagator import TorchPropagator
from .gradients import check_gradients
from .report import TRUSTED, GradientReport

TOPICS = ("conventions", "resolution", "window", "clerq's grid", "states", "float32", "cost", "gradients")
"""What is looked at, in this order."""

MARCH_LIMIT = 0.02
"""Error of clerq's own steps in z, of a field's peak, that is spoken of. On the files of its documentation, those steps
that clerq itself doubts have 0.021 and more, the others up to 0.018, and once 0.074."""

EDGE_LIMIT = 0.1
"""Change of the light at an edge of the window that is spoken of: half of what a run warns of."""

ROUNDING_LIMIT = 1e-4
"""Error of float32, of a field's peak, that is spoken of: the tolerance of a run in float32."""

RUNS, LONG = 60, 60.0
"""Runs, about, by which the gradient in one parameter is checked, and the seconds that all may take."""

FEW_NODES = 24
"""Nodes at most for the check of gradients, which are exact at any resolution."""


@dataclass(frozen=True)
class Finding:
    """Something that is probably not meant, or does not hold.

    Attributes:
        topic: one of `TOPICS`.
        text: what it is, with the remedy.

    Example:
        >>> print(Finding("float32", "In float32 the fields are off by 2e-3 of the peak: compute in float64."))
        float32: In float32 the fields are off by 2e-3 of the peak: compute in float64.
    """

    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}"


@dataclass(frozen=True)
class ProblemReport:
    """The outcome of `check_problem`; as text, one page.

    Attributes:
        facts: what was measured, by topic or name of a field.
        findings: what is probably wrong.
        gradients: of the transmitted energy in the problem's numbers; None where the problem cannot be solved, or where
            the check would take more than a minute.
    """

    facts: dict[str, str]
    findings: tuple[Finding, ...]
    gradients: GradientReport | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        width = max(map(len, self.facts), default=0)
        lines = [f"{topic.ljust(width)}  {text}" for topic, text in self.facts.items()]
        if self.ok:
            return "\n".join([*lines, "", "nothing found that speaks against this problem"])
        numbered = [f"{k}. {found}" for k, found in enumerate(self.findings, 1)]
        return "\n".join([*lines, "", f"{len(numbered)} found:", *numbered])


def check_problem(
    problem: Problem, *, tol: float | None = None, on_topic: Callable[[str], Any] = lambda topic: None
) -> ProblemReport:
    """Look for everything that could be wrong with a problem: what it means, how it is resolved, its gradients.

    The conventions (`ConventionWarning`) and the velocity classes; the resolution that meets `tol`; whether the time
    grid and the window hold the light, by the converged fields; how far clerq's march is off at the problem's own
    `z_steps_inner`; how fast coherences turn for the time grid; whether the density matrix is one; what is lost in
    float32; the gradient of the transmitted energy in all numbers (`check_gradients`); and what a run costs.

    Args:
        problem: what is checked.
        tol: error of the fields aimed at, relative to each field's peak, by default 1e-6.
        on_topic: called with the name of each topic before it is looked at.

    Returns:
        A `ProblemReport`.

    Raises:
        ProblemError: `tol` is not positive.

    Example:
        >>> from torch_clerq import Problem
        >>> problem = Problem.from_dict({
        ...     "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
        ...                "fields": [{"coupled_levels": [[1, 0]], "rabi_freq": 1e-3, "rabi_freq_t_func": "gaussian",
        ...                            "rabi_freq_t_args": {"ampl": 1.0, "centre": 1.5, "fwhm": 1.0}}]},
        ...     "t_max": 6.0, "t_steps": 60, "z_steps": 10, "interaction_strengths": [0.1]})
        >>> report = check_problem(problem, tol=1e-3)
        >>> report.ok, [found.topic for found in report.findings]
        (False, ['conventions'])
    """
    if tol is not None:
        check_positive("tol", tol)
    return _Check(problem, tol, on_topic).report()


class _Check:
    """One look at a problem: what is measured, and what is found."""

    def __init__(self, problem: Problem, tol: float | None, on_topic: Callable[[str], Any]):
        self.problem, self.tol, self.on_topic = problem, tol, on_topic
        self.facts: dict[str, str] = {"problem": repr(problem)}
        self.findings: list[Finding] = []

    def find(self, topic: str, text: str | None) -> None:
        if text:
            self.findings.append(Finding(topic, text))

    @contextmanager
    def topic(self, name: str) -> Iterator[None]:
        """Announce a topic; what a run warns of or fails with in it is found."""
        self.on_topic(name)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield
            except PropagationError as error:
                self.find(name, str(error))
        for text in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, ResolutionWarning)):
            self.find(name, text)  # the other kinds are found apart

    def report(self) -> ProblemReport:
        with self.topic("conventions"):
            for text, category in conventions.doubts(self.problem):
                self.find("conventions" if category is ConventionWarning else "window", text)
        solution = layer = None
        with self.topic("resolution"):
            layer, solution = self._solve()
        gradients = None
        if layer is not None and solution is not None:
            fields = solution.fields.numpy()
            self._look_at_window(fields)
            with self.topic("clerq's grid"):
                self._compare_march(fields)
            self._look_at_states(solution)
            with self.topic("float32"):
                self._compare_precision(solution)
            with self.topic("cost"):
                seconds = self._measure_cost(solution.resolution)
            with self.topic("gradients"):
                gradients = self._check_gradients(solution, seconds)
        return ProblemReport(self.facts, tuple(self.findings), gradients)

    def _solve(self) -> tuple[TorchPropagator, Solution]:
        layer = TorchPropagator(self.problem, dtype=torch.float64, tol=self.tol)
        begin = clock.perf_counter()
        with torch.no_grad():
            solution = layer.solve(outputs=("density_matrix",))
        self.first_call = clock.perf_counter() - begin
        at = solution.resolution
        errors = f"{float(solution.z_error):.1e} (z), {float(solution.time_error):.1e} (time) of the peak"
        self.facts["resolution"] = f"{at}: estimated errors {errors}"
        if not bool(solution.fields.abs().amax() > 0):
            self.find("window", "No field has any light within the time window: look at `rabi_freq` and the pulses.")
        for k, (label, text) in enumerate(self._transmission(solution)):
            lower = [a for a, _ in self.problem.fields[k].coupled_levels]
            sees = any(self.problem.initial_state[a] for a in lower)
            depth = optical_depth(self.problem, k) if sees else None
            self.facts[f"light: {label}"] = text + (
                "" if depth is None else f"; optical depth {depth:.4g} on resonance"
            )
        interval = (self.problem.t_max - self.problem.t_min) / self.problem.t_steps
        turn = stiffness.fastest(self.problem, "initial_state", {}) * interval
        self.facts["stiffness"] = f"coherences turn by up to {turn:.2g} rad per interval: {_solver(at, turn)}"
        return layer, solution

    def _transmission(self, solution: Solution) -> list[tuple[str, str]]:
        found = []
        for k, name in enumerate(self.problem.field_names):
            entering, leaving = (solution.fields[k, z] for z in self.problem.ends(k))
            before, after = (energy(pulse, solution.time).item() for pulse in (entering, leaving))
            share = f"{after / before:.4g} of its energy leaves" if before else "dark at the entrance"
            found.append((name, f"peak {entering.abs().max():.4g}, cyclic; {share}"))
        return found

    def _look_at_window(self, fields: np.ndarray) -> None:
        self.on_topic("window")
        self.find("window", checks.coarse_time_grid(self.problem, fields))
        self.find("window", checks.cut_off(self.problem, fields, limit=EDGE_LIMIT))
        error, change = checks.time_grid_error(fields), checks.window_edge_change(fields)
        self.facts["window"] = (
            f"every other time misses {_percent(error)} of the light; at the edges it changes by {_percent(change)}"
        )

    def _compare_march(self, fields: np.ndarray) -> None:
        """How far clerq's march with the problem's own steps is from the converged fields."""
        inner = self.problem.z_steps_inner
        if inner == "auto" or not any(self.problem.interaction_strengths):
            return
        where = f"clerq's march (scheme='march') in {self.problem.z_steps} × {inner} steps in z"
        cure = "raise `z_steps_inner`, or stay with the default scheme, which has no step in z"
        try:
            with torch.no_grad():
                marched = TorchPropagator(self.problem, dtype=torch.float64, scheme="march", tol=1e9)().numpy()
        except ResolutionError as failure:
            self.find("clerq's grid", str(failure))
            return
        error = _difference(marched, fields)
        self.facts["clerq's grid"] = f"{where} is off by {_of_peak(error)}"
        if error > MARCH_LIMIT:
            self.find("clerq's grid", f"{where} is off by {_of_peak(error)}: {cure}.")

    def _look_at_states(self, solution: Solution) -> None:
        """Whether the density matrices have trace 1 and no negative eigenvalue."""
        self.on_topic("states")
        states = solution.density_matrix.numpy()
        trace = float(np.abs(np.trace(states, axis1=-2, axis2=-1) - 1).max())
        least = float(np.linalg.eigvalsh(states).min())
        limit = 10 * max(self.tol or 1e-6, float(solution.z_error), float(solution.time_error))
        self.facts["states"] = f"trace 1 within {trace:.1e}, smallest eigenvalue {least:.1e}"
        if trace > limit or least < -limit:
            text = f"The density matrix is none (trace off by {trace:.1e}, an eigenvalue of {least:.1e}): lower `tol`."
            self.find("states", text)

    def _compare_precision(self, solution: Solution) -> None:
        with torch.no_grad():
            layer = TorchPropagator(self.problem, dtype=torch.float32, resolution=solution.resolution, tol=1e9)
            smooth = self._away_from_jumps()
            error = _difference(layer().numpy()[..., smooth], solution.fields.numpy()[..., smooth])
        self.facts["float32"] = f"fields differ by {error:.1e} of the peak from those in float64"
        if error > ROUNDING_LIMIT:
            self.find("float32", f"In float32 the fields are off by {error:.1e} of the peak: compute in float64.")

    def _away_from_jumps(self) -> np.ndarray:
        """Which times are not beside an edge of a pulse, where rounding decides on which side a time lies."""
        jumps = checks.jumps(self.problem)
        time = self.problem.time
        away = np.all(np.abs(time[:, None] - np.asarray(jumps, float)) > 1.5 * (time[1] - time[0]), axis=1)
        return away if away.any() else ~away  # samples joined by lines have kinks everywhere

    def _check_gradients(self, solution: Solution, seconds: float) -> GradientReport | None:
        """Of the sum of the transmitted shares of energy, in the numbers of the problem that have a gradient."""
        at = solution.resolution
        coarse = replace(at, z_nodes=min(at.z_nodes, FEW_NODES))
        layer = self._trainable(coarse)
        expected = RUNS * len(layer.parametrisations) * seconds
        if expected > LONG:
            self.facts["gradients"] = f"not checked, which would take {expected:.0f} s: `diagnostics.check_gradients`"
            return None
        ends = [self.problem.ends(k) for k in range(len(self.problem.fields))]
        before = [energy(solution.fields[k, z], solution.time).item() for k, (z, _) in enumerate(ends)]
        lit = [k for k, share in enumerate(before) if share]

        def transmitted(layer: TorchPropagator) -> torch.Tensor:
            fields = layer()
            shares = [energy(fields[k, ends[k][1]], layer.time) / before[k] for k in lit]
            return torch.stack(shares).sum() if shares else fields.abs().square().sum()

        report = check_gradients(layer, transmitted, jit=False)
        fine = sum(row.verdict in TRUSTED for row in report.rows)
        self.facts["gradients"] = f"{fine} of {len(report.rows)} confirmed by forward mode and differences"
        for row in report.rows:
            if row.verdict not in TRUSTED:
                self.find("gradients", f"{row.name}: {row.verdict.value}")
        return report

    def _trainable(self, at: Resolution) -> TorchPropagator:
        """A layer that has all numbers of the problem as parameters, and warns of nothing."""
        stated = "level_detunings" if self.problem.level_detunings is not None else "detunings"
        values = parameters.defaults(self.problem)
        names = [name for name in (*_DIFFERENTIATED, stated) if np.size(values.get(name, ()))]
        return TorchPropagator(self.problem, trainable=names, dtype=torch.float64, resolution=at, tol=1e9)

    def _measure_cost(self, at: Resolution) -> float:
        """Seconds of a run with its gradient, once it is compiled."""
        layer = self._trainable(at)

        def seconds(run: Callable[[], Any]) -> float:
            run()
            times = []
            for _ in range(3):
                begin = clock.perf_counter()
                run()
                times.append(clock.perf_counter() - begin)
            return sorted(times)[1]

        forward = seconds(lambda: layer().detach())
        both = seconds(lambda: layer().abs().square().sum().backward())
        self.facts["cost"] = (
            f"{1e3 * forward:.3g} ms a run, {1e3 * both:.3g} ms with its gradient; the first call took "
            f"{self.first_call:.1f} s, search and compilation included"
        )
        return both


_DIFFERENTIATED = (
    "rabi_freq", "interaction_strengths", "decay_rates", "thermal_width", "b_field", "pulse_args",
)  # fmt: skip


def _solver(at: Resolution, turn: float) -> str:
    name = "exponential" if at.solver == "exponential" or turn > stiffness.STIFF else "Runge–Kutta"
    return f"{name}, {at.t_substeps} step{'' if at.t_substeps == 1 else 's'} per interval"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def _of_peak(error: float) -> str:
    return f"{_percent(error)} of the peak" if error < 10 else f"{error:.2g} times the peak"


def _difference(fields: np.ndarray, converged: np.ndarray) -> float:
    """The largest deviation of any field, relative to its peak."""
    peaks = np.abs(converged).max((-2, -1))
    peaks = np.where(peaks > 1e-10 * peaks.max(), peaks, np.inf)
    return float((np.abs(fields - converged).max((-2, -1)) / peaks).max())
