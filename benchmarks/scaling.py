"""How does the time grow with levels, velocity classes, z-nodes, time steps and batch?

Usage: python -m benchmarks.scaling [--quick]

Everything but the size at hand stays as it is; exponents are slopes of straight lines through the logarithms of size
and time, over the upper half of the sizes, since below the time is that of the calls. For levels the size is the number
of nonzeros of the generator. Linear growth is an exponent of 1.
"""

import jax
import jax.numpy as jnp

from jax_kernel import Problem, Resolution, propagate
from jax_kernel.prepare import structure_of

from . import cases, measure
from .tables import markdown

SIZES = {
    "levels": (2, 3, 5, 8, 12, 18, 26, 36),
    "classes": (1, 5, 21, 51, 101, 201, 401),
    "z_nodes": (8, 16, 32, 64, 128),
    "t_steps": (100, 200, 400, 800, 1600, 3200),
    "batch": (1, 4, 16, 64, 256),
}


def ladder(levels: int = 3, classes: int = 1, t_steps: int = 100) -> Problem:
    """A ladder whose steps two fields drive in turn, with decay from each level to the one below."""

    def field(first: int) -> dict:
        return {
            "coupled_levels": [[k, k + 1] for k in range(first, levels - 1, 2)],
            "rabi_freq": 1.0,
            "rabi_freq_t_func": "gaussian",
            "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 1.0},
        }

    fields = [field(first) for first in range(min(2, levels - 1))]
    content = {
        "system": {
            "num_states": levels,
            "fields": fields,
            "decays": [{"rate": 1.0, "channels": [[k, k + 1] for k in range(levels - 1)]}],
        },
        "t_min": -2.0, "t_max": 3.0, "t_steps": t_steps, "z_steps": 20, "interaction_strengths": [1.0] * len(fields),
    }  # fmt: skip
    if classes > 1:
        content["velocity_classes"] = {
            "thermal_width": 0.5,
            "thermal_delta_min": -1.0,
            "thermal_delta_max": 1.0,
            "thermal_delta_steps": classes - 1,
        }
    return Problem.from_dict(content)


def problem_of(what: str, size: int) -> tuple[Problem, Resolution, int]:
    """Problem, resolution and batch in which one quantity has a given size."""
    common = {what: size} if what in ("levels", "classes", "t_steps") else {}
    return ladder(**common), Resolution(size if what == "z_nodes" else 16, 1), size if what == "batch" else 1


def nonzeros(problem: Problem) -> int:
    """Nonzeros of the generator: drive, and the diagonal of coherences with its rotation."""
    structure = structure_of(problem, "")
    return structure.num_terms + 4 * len(structure.coherences) + 2 * len(structure.transfers)


def times_of(what: str, size: int, quick: bool) -> dict:
    """Median times of forward and gradient at one size."""
    problem, at, batch = problem_of(what, size)
    rabi = jnp.asarray([float(field.rabi_freq) for field in problem.fields])
    if batch > 1:
        rabi = rabi * jnp.linspace(0.5, 1.0, batch)[:, None]

    def loss(rabi):
        return cases.energy(
            propagate(problem, {"rabi_freq": rabi}, resolution=at, tol=1.0, solver="runge-kutta").fields
        )

    run, grad = jax.jit(loss), jax.jit(jax.value_and_grad(loss))
    calls = {"forward": lambda: run(rabi), "gradient": lambda: grad(rabi)}
    times = measure.samples(calls, 0.2 if quick else 1.0, least=3)
    return {
        "size": size,
        "nonzeros": nonzeros(problem),
        "times": {name: measure.summary(t) for name, t in times.items()},
    }


def exponents(what: str, rows: list[dict]) -> dict:
    """The power of the size with which forward and gradient grow over the upper half of the sizes."""
    upper = rows[len(rows) // 2 :] if len(rows) > 3 else rows[-2:]
    sizes = [row["nonzeros" if what == "levels" else "size"] for row in upper]
    return {
        name: measure.exponent(sizes, [row["times"][name]["median"] for row in upper])
        for name in ("forward", "gradient")
    }


def table(results: dict) -> str:
    """Exponents, and the times at the ends."""
    rows = []
    for what, of in results.items():
        first, last = of["rows"][0], of["rows"][-1]
        span = f"{first['size']} … {last['size']}"
        if what == "levels":
            span += f" ({first['nonzeros']} … {last['nonzeros']} nonzeros)"
        ends = [
            f"{measure.median(first['times'][name])} … {measure.median(last['times'][name])}"
            for name in ("forward", "gradient")
        ]
        rows.append([what, span, *ends, *(f"{of['exponents'][name]:.2f}" for name in ("forward", "gradient"))])
    rows.append(["**target**", "", "", "", "≤ about 1", "≤ about 1"])
    return markdown(["", "sizes", "forward", "gradient", "exponent, forward", "exponent, gradient"], rows)


def main() -> None:
    quick = measure.begin(__doc__)
    results = {}
    for what, sizes in SIZES.items():
        rows = []
        for size in sizes[1:4:2] if quick else sizes:
            rows.append(times_of(what, size, quick))
            print(what, size, *(measure.median(t) for t in rows[-1]["times"].values()), flush=True)
        results[what] = {"rows": rows, "exponents": exponents(what, rows)}
    print(table(results))
    measure.write("scaling", results, quick)


if __name__ == "__main__":
    main()
