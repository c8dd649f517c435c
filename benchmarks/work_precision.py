"""Error against time: the kernel by resolution, clerq by z_steps_inner, and the same equations in plain torch.

Usage: python -m benchmarks.work_precision [--quick]

The torch-native alternative is what a user without the kernel would write: dense density matrices at the kernel's
z-nodes, the field as an integral over them, and torchdiffeq's odeint, by rk4 and by dopri5. It needs torchdiffeq.
"""

import importlib.util

from jax_kernel import Resolution

from . import cases, dense, measure
from .tables import markdown

_STEPS = {
    "Λ": ((4, 1), (6, 1), (8, 1), (12, 2), (16, 4)),
    "two-level": ((32, 1 / 8), (32, 1 / 6), (48, 1 / 4), (56, 1 / 3), (64, 1 / 2), (64, 1), (96, 1), (96, 2)),
    "Rb87": ((4, 1), (6, 1), (8, 2), (12, 4)),
}
LADDERS = {name: [Resolution(*at) for at in steps] for name, steps in _STEPS.items()}
INNER = {"Λ": (1, 2, 4, 8, 16), "two-level": (1, 4, 16), "Rb87": (1, 2, 4)}
TOLERANCES = (1e-3, 1e-5, 1e-7)
NO_TORCHDIFFEQ = "torchdiffeq is not installed, so that the torch-native alternative was left out."


def point(label: str, call, case, budget: float) -> dict:
    """Time and error of one setting."""
    error = measure.error(call(), case.reference)
    times = measure.samples({"": call}, budget, least=3)[""]
    return {"label": label, "error": error, "time": measure.summary(times)}


def measured(case, quick: bool) -> dict:
    """All settings of all peers on one problem."""
    budget = 0.3 if quick else 1.5
    ladder = LADDERS[case.name][:3] if quick else LADDERS[case.name]
    inner = INNER[case.name][: 2 if quick else None]
    series = {
        "kernel": [point(cases.label(at), cases.ours(case, at)["forward"], case, budget) for at in ladder],
        "clerq.autodiff": [point(f"z_steps_inner {n}", cases.theirs(case, n)["forward"], case, budget) for n in inner],
    }
    if importlib.util.find_spec("torchdiffeq") and case.name in ("Λ", "two-level"):
        system = dense.System(case.problem, case.at.z_nodes)
        series["torchdiffeq rk4"] = [point("rk4, one step per interval", lambda: system.solve("rk4"), case, budget)]
        series["torchdiffeq dopri5"] = [
            point(f"dopri5, rtol {tol:g}", lambda tol=tol: system.solve("dopri5", tol), case, budget)
            for tol in TOLERANCES[: 1 if quick else None]
        ]
    return {"title": case.title, "series": series}


def table(results: dict) -> str:
    """All points, by problem and peer."""
    rows = [
        [of["title"], name, point["label"], measure.number(point["error"]), measure.median(point["time"])]
        for of in results.values()
        for name, series in of["series"].items()
        for point in series
    ]
    text = markdown(["problem", "", "setting", "error", "forward"], rows)
    if not any("torchdiffeq" in name for of in results.values() for name in of["series"]):
        text += f"\n\n{NO_TORCHDIFFEQ}"
    return text


if __name__ == "__main__":
    cases.of_each("work_precision", __doc__, measured, table)
