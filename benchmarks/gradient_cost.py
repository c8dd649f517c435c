"""What does a gradient cost, by number of parameters and method, and from how many on does reverse mode win?

Usage: python -m benchmarks.gradient_cost [--quick]

The parameters are the coefficients of a sum of Gaussians that is the first field's input; the objective is the output
energy. Central differences take 2N forwards, each of which is measured: for the kernel, for clerq.autodiff and for
clerq's solve(), of which clerq_solve has stored the time. Crossovers are where a cost that grows like N meets that of
reverse mode.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np

from jax_kernel import propagate

from . import cases, measure, tables
from .tables import markdown

NUMBERS = (1, 2, 5, 10, 20, 50, 100)
SHOWN = 50


def basis(case, count: int) -> np.ndarray:
    """Gaussians of equal distance over the window on the time grid, shape (count, time)."""
    problem = case.problem
    centres = np.linspace(problem.t_min, problem.t_max, count + 2)[1:-1]
    width = (problem.t_max - problem.t_min) / (count + 1)
    return np.exp(-(((np.asarray(problem.time) - centres[:, None]) / width) ** 2))


def entrance(case) -> np.ndarray:
    """Samples of all fields at the entrance, shape (field, time)."""
    return case.reference[:, 0]


def losses(case, count: int):
    """The objective of the coefficients, for reverse and for forward mode of the kernel; and what it takes as input."""
    gaussians, rest = jnp.asarray(basis(case, count), complex), jnp.asarray(entrance(case)[1:])

    def inputs(coefficients):
        first = jnp.astype(coefficients, complex) @ gaussians
        return jnp.concatenate([first[None], rest])

    def loss(mode):
        return lambda c: cases.energy(
            propagate(case.problem, input_fields=inputs(c), resolution=case.at, tol=1.0, mode=mode).fields
        )

    return loss("reverse"), loss("forward"), inputs


def coefficients(case, count: int):
    """Coefficients whose sum is about as strong as the problem's own pulse."""
    return jnp.full(count, float(np.abs(entrance(case)[0]).max()) / 2)


def of_kernel(case, count: int, quick: bool) -> dict:
    """Times of forward, reverse and forward mode with so many parameters."""
    reverse, forward, _ = losses(case, count)
    at = coefficients(case, count)
    functions = {
        "forward": jax.jit(reverse),
        "reverse": jax.jit(jax.value_and_grad(reverse)),
        "forward mode": jax.jit(jax.jacfwd(forward)),
    }
    calls = {name: lambda function=function: function(at) for name, function in functions.items()}
    times = measure.samples(calls, 0.5 if quick else 3, least=3)
    return {"N": count, "times": {name: measure.summary(t) for name, t in times.items()}}


def of_clerq(case, count: int, quick: bool) -> dict:
    """Times of clerq.autodiff's forward and reverse mode with so many parameters, and of solve() where it is known."""
    _, _, inputs = losses(case, count)
    autodiff = cases.clerq_autodiff(case)
    at = coefficients(case, count)
    forward = jax.jit(lambda c: autodiff.propagate({"omega0": inputs(c)}))
    reverse = jax.jit(jax.value_and_grad(lambda c: cases.energy(autodiff.propagate({"omega0": inputs(c)}))))
    calls = {"forward": lambda: forward(at), "reverse": lambda: reverse(at)}
    times = measure.samples(calls, 1 if quick else 10, least=2)
    summaries = {name: measure.summary(t) for name, t in times.items()}
    stored = tables.RESULTS / "clerq_solve.json"
    known = json.loads(stored.read_text(encoding="utf-8"))["results"] if stored.exists() else {}
    if case.name in known:
        summaries["solve"] = known[case.name]["times"]["solve"]
    return {"N": count, "times": summaries}


def measured(case, quick: bool) -> dict:
    """All numbers of parameters of one problem, and where the methods cross."""
    rows = [of_kernel(case, count, quick) for count in ((1, 10, 50) if quick else NUMBERS)]
    clerq = of_clerq(case, SHOWN, quick)
    last = {name: t["median"] for name, t in rows[-1]["times"].items()}
    per_tangent = (last["forward mode"] - last["forward"]) / rows[-1]["N"]
    crossovers = {
        "differences": last["reverse"] / (2 * last["forward"]),
        "forward mode": (last["reverse"] - last["forward"]) / per_tangent,
    }
    return {"title": case.title, "kernel": rows, "clerq": clerq, "reverse wins from N": crossovers}


def table(results: dict) -> str:
    """Forward, reverse, and the other methods at N = 50."""
    rows = []
    for of in results.values():
        row = next(row for row in of["kernel"] if row["N"] == SHOWN)
        time = {name: t["median"] for name, t in row["times"].items()}
        peer = {name: t["median"] for name, t in of["clerq"]["times"].items()}
        others = {
            "forward mode": time["forward mode"],
            "differences": 2 * SHOWN * time["forward"],
            "clerq, reverse": peer["reverse"],
            "clerq, differences": 2 * SHOWN * peer["forward"],
            "solve(), differences": 2 * SHOWN * peer.get("solve", np.nan),
        }
        wins = of["reverse wins from N"]
        rows.append(
            [
                of["title"],
                measure.duration(time["forward"]),
                f"{measure.duration(time['reverse'])} ({time['reverse'] / time['forward']:.2f}×)",
                *(f"{measure.duration(t)} ({t / time['reverse']:,.0f}×)" if t > 0 else "–" for t in others.values()),
                f"{wins['differences']:.1f}, {wins['forward mode']:.1f}",
            ]
        )
    head = ["N = 50; (× reverse)", "forward", "reverse (× forward)", "forward mode", "differences", "clerq, reverse"]
    head += ["clerq.autodiff, differences", "solve(), differences", "reverse wins from N (differences, forward mode)"]
    return markdown(head, rows)


def main() -> None:
    quick = measure.begin(__doc__)
    results = {}
    for case in cases.chosen(quick):
        results[case.name] = measured(case, quick)
        print(case.title, flush=True)
    print(table(results))
    measure.write("gradient_cost", results, quick)


if __name__ == "__main__":
    main()
