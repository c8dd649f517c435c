"""The three benchmark problems: resolutions, parameters, objective, and the functions of both peers that are timed.

Usage: python -m benchmarks.cases  (searches and prints the cheapest resolutions with an error below 1e-3)
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_kernel import Problem, ProblemError, Resolution, ResolutionError, propagate

PULSE = ("pulse_args", "rabi_freq")
MATERIAL = ("interaction_strengths", "detunings", "decay_rates")
EQUAL_ERROR = 1e-3
INNER = (1, 2, 4, 8, 16)
"""The z_steps_inner of clerq that are tried."""

SUBSTEPS = (*(Fraction(1, n) for n in (16, 8, 6, 4, 3, 2)), 1, 2)
"""The t_substeps of the kernel that are tried."""


@dataclass(frozen=True)
class Case:
    """One problem, and how finely it is solved.

    Attributes:
        name: short name.
        title: what the tables call it.
        file: problem file.
        at: resolution of the kernel whose error is no larger than that of clerq at the problem's own steps.
        equal: cheapest resolution of the kernel with an error of at most EQUAL_ERROR.
        converged: resolution of the reference.
        inner: smallest z_steps_inner of clerq with an error of at most EQUAL_ERROR, or the largest tried.
        peer: options of clerq.autodiff at its best: as fast as its error at the problem's own z steps allows.
        changes: keys of the problem that differ from the file.
    """

    name: str
    title: str
    file: str
    at: Resolution
    equal: Resolution
    converged: Resolution
    inner: int
    peer: tuple[tuple[str, Any], ...] = ()
    changes: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def content(self) -> dict:
        """The problem as clerq's arguments."""
        path = Path(__file__).parent / "problems" / self.file
        return json.loads(path.read_text(encoding="utf-8")) | dict(self.changes)

    @cached_property
    def problem(self) -> Problem:
        return Problem.from_dict(self.content)

    @cached_property
    def params(self) -> dict:
        """All that is differentiated, as JAX arrays in double precision: pulse and material parameters."""
        pulses = [field["rabi_freq_t_args"] for field in self.content["system"]["fields"]]
        return {
            "pulse_args": [{name: jnp.asarray(float(value)) for name, value in args.items()} for args in pulses],
            "rabi_freq": jnp.asarray([float(field.rabi_freq) for field in self.problem.fields]),
            "interaction_strengths": jnp.asarray(self.problem.interaction_strengths, float),
            "detunings": jnp.zeros(len(self.problem.fields)),
            "decay_rates": jnp.asarray([float(decay.rate) for decay in self.problem.decays]),
        }

    def part(self, names: tuple[str, ...]) -> dict:
        """Some of the parameters."""
        return {name: self.params[name] for name in names}

    @cached_property
    def reference(self) -> np.ndarray:
        """Fields of the converged run."""
        return np.asarray(propagate(self.problem, resolution=self.converged, tol=1.0).fields)

    def changed(self, title: str, **changes) -> "Case":
        """The same problem with other keys at its top level."""
        return replace(self, title=title, name=f"{self.name}, {title}", changes=(*self.changes, *changes.items()))


CASES = {
    case.name: case
    for case in (
        Case(
            "Λ",
            "Λ 201×60",
            "bench_lam.json",
            Resolution(6, 1),
            Resolution(4, 1),
            Resolution(48, 6),
            4,
            (("rtol", 1e-6), ("atol", 1e-8), ("strategy", "s2")),
        ),
        Case(
            "two-level",
            "two-level 1001×200",
            "bench_two_level.json",
            Resolution(32, 1 / 6),
            Resolution(56, 1 / 3),
            Resolution(160, 3),
            16,
            (("rtol", 1e-4), ("atol", 1e-6), ("strategy", "s2")),
        ),
        Case(
            "Rb87",
            "Rb87 11 levels, 11 classes, 201×50",
            "bench_rb87.json",
            Resolution(4, 1),
            Resolution(4, 1),
            Resolution(24, 6),
            8,
            (("rtol", 1e-4), ("atol", 1e-6), ("strategy", "s2")),
        ),
    )
}


def chosen(quick: bool) -> Iterator[Case]:
    """All problems, or the first, in a quick run."""
    yield from list(CASES.values())[: 1 if quick else None]


def of_each(name: str, description: str, measured: Callable, table: Callable) -> None:
    """The whole of a script that measures each problem: `measured(case, quick)`, printed as a table and stored."""
    from . import measure

    quick = measure.begin(description)
    results = {case.name: measured(case, quick) for case in chosen(quick)}
    print(table(results))
    measure.write(name, results, quick)


def label(at: Resolution) -> str:
    """A resolution for a table."""
    return f"{at.z_nodes} nodes, {at.t_substeps} step{'' if at.t_substeps == 1 else 's'} per interval"


def energy(fields):
    """The objective: output energy of all fields, in units of the time step."""
    return jnp.sum(jnp.abs(fields[..., -1, :]) ** 2)


def forward(case: Case, at: Resolution | None = None, **options) -> Callable:
    """The kernel's jitted forward: params -> fields."""
    given = {} if options.get("scheme") == "march" else {"resolution": at or case.at}
    solve = partial(propagate, case.problem, tol=1.0, **given, **options)
    return jax.jit(lambda params: solve(params).fields)


def gradient(case: Case, at: Resolution | None = None, **options) -> Callable:
    """The kernel's jitted value and gradient of the objective: (differentiated, other params) -> value, gradient.

    A march has no resolution: its steps are the problem's own.
    """
    given = {} if options.get("scheme") == "march" else {"resolution": at or case.at}
    solve = partial(propagate, case.problem, tol=1.0, **given, **options)
    return jax.jit(jax.value_and_grad(lambda some, rest: energy(solve(rest | some).fields)))


def ours(case: Case, at: Resolution | None = None, **options) -> dict[str, Callable]:
    """Calls of the kernel: forward, and value and gradient in the pulse and in the material."""
    run, grad = forward(case, at, **options), gradient(case, at, **options)
    pulse, material = case.part(PULSE), case.part(MATERIAL)
    return {
        "forward": lambda: run(case.params),
        "pulse": lambda: grad(pulse, material),
        "material": lambda: grad(material, pulse),
    }


def clerq_solver(case: Case, inner: int | None = None, **options):
    """clerq's PropagationSolver of the problem."""
    import clerq

    content = json.loads(json.dumps(case.content)) | options
    return clerq.PropagationSolver(**content | ({} if inner is None else {"z_steps_inner": inner}))


def clerq_autodiff(case: Case, inner: int | None = None):
    """clerq.autodiff of the problem, at its best settings."""
    return clerq_solver(case, inner).to_autodiff(**dict(case.peer))


def theirs(case: Case, inner: int | None = None) -> dict[str, Callable]:
    """The calls of `ours`, by clerq.autodiff."""
    autodiff = clerq_autodiff(case, inner)
    pulse, material = case.part(PULSE), case.part(MATERIAL)
    return {
        "forward": lambda: autodiff.propagate(case.params),
        "pulse": lambda: autodiff.value_and_grad(energy, pulse, fixed=material),
        "material": lambda: autodiff.value_and_grad(energy, material, fixed=pulse),
    }


def search(case: Case, tol: float = EQUAL_ERROR) -> list[tuple[float, Resolution]]:
    """(error, resolution) of the fewest z-nodes with an error of at most tol, for each t_substeps that reaches it."""
    from .measure import error

    found = []
    for step in SUBSTEPS:
        for nodes in (4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 56, 64):
            try:
                reached = error(forward(case, Resolution(nodes, step))(case.params), case.reference)
            except (ProblemError, ResolutionError):
                continue
            if reached <= tol:
                found.append((reached, Resolution(nodes, step)))
                break
    return found


def main() -> None:
    """Print what `equal` and `inner` should be."""
    from . import measure

    measure.begin(__doc__)
    for case in CASES.values():
        for reached, at in search(case):
            took = measure.summary(measure.samples({"": ours(case, at)["forward"]}, 1.0)[""])
            print(f"{case.title}: {at}, error {reached:.1e}, {measure.median(took)}", flush=True)
        for inner in INNER:
            reached = measure.error(theirs(case, inner)["forward"](), case.reference)
            print(f"{case.title}: clerq z_steps_inner {inner}, error {reached:.1e}", flush=True)
            if reached <= EQUAL_ERROR:
                break


if __name__ == "__main__":
    main()
