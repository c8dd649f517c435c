"""How much faster is the kernel's forward than clerq's solve(), the one without derivatives?

Usage: python -m benchmarks.clerq_solve [--quick]
"""

import numpy as np

from . import cases, measure
from .tables import markdown

LONG = 20.0
"""Seconds above which solve(), which takes minutes on Rb87, runs once."""


def measured(case, quick: bool) -> dict:
    """Times and errors of both."""
    solver = cases.clerq_solver(case)

    def solve():
        solver.solve(progress=False, check_stability=False)
        return solver.rabi_freqs_zt

    calls = {"kernel": cases.ours(case)["forward"], "solve": solve}
    fields = {"kernel": calls["kernel"]()}
    once = measure.seconds(lambda: fields.update(solve=solve()))
    error = {peer: measure.error(found, case.reference) for peer, found in fields.items()}
    if once > LONG:
        times = measure.samples({"kernel": calls["kernel"]}, 2, warm=True) | {"solve": np.asarray([once])}
    else:
        times = measure.samples(calls, 2 if quick else 10, least=3, warm=True)
    return {
        "title": case.title,
        "times": {peer: measure.summary(t) for peer, t in times.items()},
        "gain": measure.ratio(times["solve"], times["kernel"]),
        "error": error,
    }


def table(results: dict) -> str:
    """Times, ratio and errors."""
    rows = [
        [
            of["title"],
            *(measure.median(of["times"][peer]) for peer in ("kernel", "solve")),
            measure.times(of["gain"]),
            *(measure.number(of["error"][peer]) for peer in ("kernel", "solve")),
        ]
        for of in results.values()
    ]
    return markdown(["problem", "ours", "solve()", "gain (95 %)", "error, ours", "error, solve()"], rows)


if __name__ == "__main__":
    cases.of_each("clerq_solve", __doc__, measured, table)
