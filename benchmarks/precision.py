"""Float32 against float64: deviations of fields, objective and gradient, and what it gains in time.

Usage: python -m benchmarks.precision [--quick]

Both run at the same resolution; deviations are of the peak of a field, of the objective, and of the largest element of
the gradient in pulse and material, each element per relative change of its parameter.
"""

import jax
import jax.numpy as jnp

from jax_kernel import Resolution

from . import cases, measure
from .cases import MATERIAL, PULSE
from .tables import markdown

AT = {
    "bench_lam.json": Resolution(24, 1),
    "bench_two_level.json": Resolution(64, 1),
    "bench_rb87.json": Resolution(16, 1),
}
CASES = (
    *cases.CASES.values(),
    cases.CASES["Λ"].changed("Λ, 400 z", z_steps=400),
    cases.CASES["Λ"].changed("Λ, 4000 t", t_steps=4000),
)


def measured(case, quick: bool) -> dict:
    """Deviations and times of one problem."""
    values, calls = {}, {}
    at = AT[case.file]
    run, grad = cases.forward(case, at), cases.gradient(case, at)
    for dtype in ("float64", "float32"):
        params = jax.tree.map(lambda x, dtype=dtype: jnp.asarray(x, dtype), case.params)
        calls[f"forward {dtype}"] = lambda params=params: run(params)
        calls[f"gradient {dtype}"] = lambda params=params: grad(params, {})
        values[dtype] = (run(params), *grad(params, {}))
    assert values["float32"][0].dtype == "complex64"
    times = measure.samples(calls, 1 if quick else 8)
    (field, loss, gradient), (field64, loss64, gradient64) = values["float32"], values["float64"]
    return {
        "title": case.title,
        "parameters": list(PULSE + MATERIAL),
        "field": measure.error(field, field64),
        "loss": abs(float(loss) - float(loss64)) / float(loss64),
        "gradient": measure.relative(gradient, gradient64, case.params),
        "times": {name: measure.summary(t) for name, t in times.items()},
        "gain": {
            what: measure.ratio(times[f"{what} float64"], times[f"{what} float32"]) for what in ("forward", "gradient")
        },
    }


def table(results: dict) -> str:
    """Deviations and gains."""
    rows = [
        [
            of["title"],
            *(measure.number(of[what]) for what in ("field", "loss", "gradient")),
            *(measure.times(of["gain"][what]) for what in ("forward", "gradient")),
        ]
        for of in results.values()
    ]
    rows.append(["**target**", "≤ 2e-5", "", "≤ 5e-5", "≥ 1.4×", "≥ 1.4×"])
    return markdown(["problem", "fields", "objective", "gradient", "forward, gain", "gradient, gain"], rows)


def main() -> None:
    quick = measure.begin(__doc__)
    results = {case.title: measured(case, quick) for case in (CASES[:3] if quick else CASES)}
    print(table(results))
    measure.write("precision", results, quick)


if __name__ == "__main__":
    main()
