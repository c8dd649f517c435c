"""Forward and gradient beside clerq.autodiff 0.15, in one run: at no larger error, at equal error, first calls.

Usage: python -m benchmarks.against_clerq [--quick]

The objective is the output energy; "pulse" is its value and gradient in all arguments of the pulses and their Rabi
frequencies, "material" in interaction strengths, detunings and decay rates. clerq runs at its best settings: tolerances
as loose as its error at the problem's own z steps allows, and the faster strategy; beside it, at its defaults.
"""

import torch

from torch_clerq import TorchPropagator

from . import cases, measure
from .cases import Case
from .tables import markdown

WHAT = ("forward", "pulse", "material")
TARGETS = {  # forward and gradient at no larger error, forward at equal error
    "Λ": (80, 140, 60),
    "two-level": (40, 60, 400),
    "Rb87": (350, 500, 300),
}


def layer(case: Case) -> dict:
    """Forward, and forward with backward, of the torch layer trained in its Rabi frequencies."""
    module = TorchPropagator(case.problem, trainable=("rabi_freq",), dtype=torch.float64, resolution=case.at, tol=1.0)

    def both():
        module()[:, -1].abs().square().sum().backward()

    def forward():
        with torch.no_grad():
            module()

    return {"layer forward": forward, "layer forward + backward": both}


def default_settings(case: Case) -> dict:
    """clerq's forward and pulse gradient with the options that it has by itself."""
    autodiff = cases.clerq_solver(case).to_autodiff()
    pulse, material = case.part(cases.PULSE), case.part(cases.MATERIAL)
    return {
        "default forward": lambda: autodiff.propagate(case.params),
        "default pulse": lambda: autodiff.value_and_grad(cases.energy, pulse, fixed=material),
    }


def measured(case: Case, quick: bool) -> dict:
    """Times, ratios, errors and first calls of one problem."""
    peers = {"kernel": cases.ours(case), "clerq": cases.theirs(case)}
    kept = WHAT[:2] if quick else WHAT
    calls = {f"{peer} {what}": group[what] for peer, group in peers.items() for what in kept}
    calls |= layer(case) | ({} if quick else default_settings(case))
    first = {
        name: measure.seconds(call) for name, call in sorted(calls.items(), key=lambda item: "pulse" not in item[0])
    }
    times = measure.samples(calls, 3 if quick else 30, least=3, warm=True)
    ratios = {what: measure.ratio(times[f"clerq {what}"], times[f"kernel {what}"]) for what in kept}
    if not quick:
        ratios |= {
            f"default {what}": measure.ratio(times[f"default {what}"], times[f"kernel {what}"]) for what in WHAT[:2]
        }
    return {
        "title": case.title,
        "resolution": cases.label(case.at),
        "peer": dict(case.peer),
        "first": first,
        "times": {name: measure.summary(t) for name, t in times.items()},
        "gain": ratios,
        "gradient over forward": {
            what: measure.ratio(times[f"kernel {what}"], times["kernel forward"]) for what in kept[1:]
        },
        "layer over its forward": measure.ratio(times["layer forward + backward"], times["layer forward"]),
        "error": {peer: measure.error(group["forward"](), case.reference) for peer, group in peers.items()},
        "equal": at_equal_error(case, quick),
    }


def at_equal_error(case: Case, quick: bool) -> dict:
    """Both forwards at the cheapest settings whose error is at most EQUAL_ERROR."""
    calls = {"kernel": cases.ours(case, case.equal)["forward"], "clerq": cases.theirs(case, case.inner)["forward"]}
    error = {peer: measure.error(call(), case.reference) for peer, call in calls.items()}
    times = measure.samples(calls, 1 if quick else 15, least=3, warm=True)
    return {
        "resolution": cases.label(case.equal),
        "z_steps_inner": case.inner,
        "error": error,
        "times": {peer: measure.summary(t) for peer, t in times.items()},
        "gain": measure.ratio(times["clerq"], times["kernel"]),
    }


def table(results: dict) -> str:
    """The first table of the project, with its targets."""
    rows = []
    for name, of in results.items():
        forward, gradient, equal = TARGETS[name]
        times, error, first, at = of["times"], of["error"], of["first"], of["equal"]

        def both(what, times=times):
            return f"{measure.median(times[f'kernel {what}'])} / {measure.median(times[f'clerq {what}'])}"

        rows.append(
            [
                of["title"],
                f"error, ours ({of['resolution']}) / clerq",
                "",
                f"{error['kernel']:.1e} / {error['clerq']:.1e}",
                "≤",
            ]
        )
        for what, gain in of["gain"].items():
            goal = forward if "forward" in what else gradient
            plain = what.removeprefix("default ")
            label = plain if plain == "forward" else f"gradient, {plain}"
            if what != plain:
                label += ", clerq at its default tolerances"
                cell = f"{measure.median(times[f'kernel {plain}'])} / {measure.median(times[what])}"
            else:
                cell = both(what)
            rows.append(["", label, measure.times(gain), cell, f"≥ {goal}×"])
        cell = f"{measure.median(at['times']['kernel'])} / {measure.median(at['times']['clerq'])}"
        errors = f"errors {at['error']['kernel']:.1e} / {at['error']['clerq']:.1e}"
        reached = "" if at["error"]["clerq"] <= cases.EQUAL_ERROR else ", clerq's best of those tried"
        label = f"forward at error ≤ 1e-3: {at['resolution']} / z_steps_inner {at['z_steps_inner']}{reached}; {errors}"
        rows.append(["", label, measure.times(at["gain"]), cell, f"≥ {equal}×"])
        for what, over in of["gradient over forward"].items():
            rows.append(["", f"gradient, {what}, over forward", measure.times(over), "", "≤ 3.5×"])
        rows.append(
            ["", "layer, forward + backward over forward", measure.times(of["layer over its forward"]), "", "≤ 4.5×"]
        )
        fraction = first["clerq pulse"] / first["kernel pulse"]
        cell = f"{first['kernel pulse']:.2f} s / {first['clerq pulse']:.1f} s"
        rows.append(["", "first gradient, compile + run", f"{fraction:.3g}×", cell, "≥ 8×"])
    return markdown(["problem", "what", "gain or ratio (95 %)", "ours / clerq", "target"], rows)


if __name__ == "__main__":
    cases.of_each("against_clerq", __doc__, measured, table)
