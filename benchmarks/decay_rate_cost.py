"""What do gradients in the decay rates cost beside those in the pulse, in reverse and in forward mode?

Usage: python -m benchmarks.decay_rate_cost [--quick]
"""

import jax

from jax_kernel import propagate

from . import cases, measure
from .tables import markdown


def measured(case, quick: bool) -> dict:
    """Times of value and gradient with and without the decay rates among the parameters."""
    without = case.part(cases.PULSE)
    names = {"without": cases.PULSE, "with": (*cases.PULSE, "decay_rates")}

    def loss(some, rest):
        return cases.energy(propagate(case.problem, rest | some, resolution=case.at, tol=1.0, mode="forward").fields)

    reverse, forward = cases.gradient(case), jax.jit(jax.jacfwd(loss))
    calls = {}
    for which, chosen in names.items():
        some = case.part(chosen)
        rest = {name: value for name, value in case.params.items() if name not in some}
        calls[f"reverse {which}"] = lambda some=some, rest=rest: reverse(some, rest)
        calls[f"forward {which}"] = lambda some=some, rest=rest: forward(some, rest)
    times = measure.samples(calls, 2 if quick else 8)
    return {
        "title": case.title,
        "pulse parameters": len(jax.tree.leaves(without)),
        "decay rates": len(case.problem.decays),
        "times": {name: measure.summary(t) for name, t in times.items()},
        "cost": {
            mode: measure.ratio(times[f"{mode} with"], times[f"{mode} without"]) for mode in ("reverse", "forward")
        },
    }


def table(results: dict) -> str:
    """Ratios by mode."""
    rows = [
        [of["title"], *(measure.times(of["cost"][mode]) for mode in ("reverse", "forward")), str(of["decay rates"])]
        for of in results.values()
    ]
    return markdown(["problem", "reverse, with / without", "forward mode, with / without", "decay rates"], rows)


if __name__ == "__main__":
    cases.of_each("decay_rate_cost", __doc__, measured, table)
