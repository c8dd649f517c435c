"""Do the stated 95 % intervals of inferred parameters hold the truth in 95 % of repeated measurements?

Usage: python -m benchmarks.inference [--quick]

A thermal medium in a magnetic field (a V system, J = 0 to J = 1, driven with σ⁺ and σ⁻ alike), of which five parameters
are unknown: interaction strength, decay rate, detuning, field and thermal width. One batched run of weak pulses gives
the joint data: the transmission spectrum of a pulse that is short enough to cover both Zeeman lines, and the power over
time of two longer, detuned ones. White noise of 1 % is drawn 200 times, and every fit starts from a guess that is 10 to
30 % off. A second table compares ways to the Jacobian.
"""

import math
import time as clock

import numpy as np
import torch

from torch_clerq import Positive, Problem, TorchPropagator, infer, spectra

from . import measure
from .tables import markdown

SIGMA = 0.01
TRUTH = {"interaction_strengths": 1.2, "decay_rates": 1.0, "detunings": 0.3, "b_field": 1.0, "thermal_width": 0.5}
GUESS = {"interaction_strengths": 1.4, "decay_rates": 1.3, "detunings": 0.2, "b_field": 0.8, "thermal_width": 0.4}
UNDER = {name: None if name == "detunings" else Positive() for name in TRUTH}
PROBLEM = Problem.from_dict({
    "system": {
        "num_states": 3,
        "fields": [{"coupled_levels": [[0, 1], [0, 2]], "factors": [0.5**0.5, 0.5**0.5],
                    "detuning": TRUTH["detunings"]}],
        "decays": [{"rate": TRUTH["decay_rates"], "channels": [[0, 1], [0, 2]]}],
        "b_field": {"magnitude": TRUTH["b_field"], "units": "natural", "g_F": [0.0, 1.0, 1.0], "m_F": [0.0, -1.0, 1.0]},
    },
    "interaction_strengths": [TRUTH["interaction_strengths"]],
    "velocity_classes": {"quadrature": "gauss-hermite", "nodes": 18, "thermal_width": TRUTH["thermal_width"],
                         "thermal_delta_echo_tolerance": 1e-4},
    "t_min": -1.0, "t_max": 3.4, "t_steps": 55, "z_steps": 1,
})  # fmt: skip


class Experiment:
    """The medium and the pulses that are sent through it."""

    def __init__(self):
        self.layer = TorchPropagator(PROBLEM, trainable=UNDER, dtype=torch.float64, tol=1e-4)
        time = self.layer.time
        width = torch.tensor([0.15, 0.4, 0.4], dtype=torch.float64)[:, None]
        offset = torch.tensor([0.0, 0.8, -0.8], dtype=torch.float64)[:, None]
        self.pulses = torch.exp(-((time / width) ** 2) + 2j * math.pi * offset * time)[:, None]
        self.band = spectra.in_band(self.pulses[0], floor=0.1)
        self.truth = [part.detach() for part in self.signals(self.layer)]

    def signals(self, layer: TorchPropagator) -> list[torch.Tensor]:
        """The transmission spectrum, shape (frequency,), and the power that leaves, shape (pulse, time)."""
        light = 1e3 * layer(1e-3 * self.pulses)[:, 0]
        transmission = torch.exp(-2 * spectra.absorption(light[0], floor=0.1))
        return [transmission[self.band], light[1:, -1].abs().square()]

    def residuals(self, seed: int):
        """The residuals of one measurement, as a function of the layer."""
        numbers = np.random.default_rng(seed)
        seen = [part + SIGMA * torch.as_tensor(numbers.normal(size=part.shape)) for part in self.truth]
        return lambda layer: [model - data for model, data in zip(self.signals(layer), seen, strict=True)]

    def infer(self, seed: int, verify: bool = False):
        for name, value in GUESS.items():
            setattr(self.layer, name, value)
        return infer(self.layer, self.residuals(seed), sigma=SIGMA, verify=verify, tolerance=1e-5)


def jacobians(experiment: Experiment, quick: bool) -> dict:
    """Seconds for the Jacobian of all residuals by several ways, and for the residuals themselves."""
    layer = experiment.layer
    names, given = zip(*((name, p.detach()) for name, p in layer.named_parameters()), strict=True)
    raw, sizes = torch.cat([p.flatten() for p in given]), [p.numel() for p in given]

    class Called(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self):
            return torch.cat([part.flatten() for part in experiment.signals(self.layer)])

    called, unit = Called(), torch.eye(len(raw), dtype=raw.dtype)

    def function(x):
        parts = zip(names, x.split(sizes), given, strict=True)
        return torch.func.functional_call(called, {f"layer.{n}": part.view(p.shape) for n, part, p in parts}, ())

    ways = {
        "the residuals alone": lambda: function(raw),
        "forward mode, all parameters at once": lambda: torch.func.jacfwd(function)(raw),
        "forward mode, one by one": lambda: [torch.func.jvp(function, (raw,), (e,)) for e in unit],
        "reverse mode, all residuals at once": lambda: torch.func.jacrev(function)(raw),
        "central differences": lambda: [function(raw + step * e) for e in unit for step in (1e-5, -1e-5)],
    }
    times = measure.samples(ways, 2.0 if quick else 20.0, least=3)
    return {name: measure.summary(one) for name, one in times.items()}


def run(quick: bool) -> dict:
    experiment = Experiment()
    first = experiment.infer(0, verify=True)
    begin = clock.perf_counter()
    found = [experiment.infer(seed) for seed in range(8 if quick else 200)]
    seconds = clock.perf_counter() - begin
    rows = {}
    for name, truth in TRUTH.items():
        values = np.array([one.parameters[name] for one in found])
        intervals = [one.interval(name) for one in found]
        rows[name] = {
            "truth": truth,
            "mean": float(values.mean()),
            "stated": float(np.mean([one.standard_errors[name] for one in found])),
            "scatter": float(values.std(ddof=1)),
            "coverage": float(np.mean([low <= truth <= high for low, high in intervals])),
        }
    return {
        "draws": len(found),
        "seconds": seconds,
        "parameters": rows,
        "chi_square": float(np.mean([one.chi_square for one in found])),
        "degrees_of_freedom": first.degrees_of_freedom,
        "condition_number": first.condition_number,
        "resolution": str(experiment.layer.resolution),
        "resolution_shift": first.resolution_shift,
        "jacobians": float(np.mean([one.jacobians for one in found])),
        "jacobian_times": jacobians(experiment, quick),
    }


def table(results: dict) -> str:
    """Each parameter, and the ways to the Jacobian."""
    of = results["of"]
    rows = [
        [name, f"{one['truth']:g}", f"{one['mean']:.4f}", f"{one['stated']:.4f}", f"{one['scatter']:.4f}",
         f"{100 * one['coverage']:.1f} %"]
        for name, one in of["parameters"].items()
    ]  # fmt: skip
    head = ["parameter", "truth", "mean", "stated standard error", "scatter of the fits", "truth in the 95 % interval"]
    about = (
        f"{of['draws']} draws, {of['jacobians']:.1f} Jacobians each, {of['seconds'] / of['draws']:.2f} s each; χ² is "
        f"{of['chi_square']:.1f} on average for {of['degrees_of_freedom']} degrees of freedom; the condition number of "
        f"JᵀJ is {of['condition_number']:.0f}; twice the resolution moves no parameter by more than "
        f"{of['resolution_shift']:.2f} standard errors."
    )
    times = of["jacobian_times"]
    alone = times["the residuals alone"]["median"]
    second = [[name, measure.median(one), f"{one['median'] / alone:.1f}"] for name, one in times.items()]
    residuals = of["degrees_of_freedom"] + len(TRUTH)
    ways = markdown([f"Jacobian of {residuals} residuals", "time", "per evaluation of the residuals"], second)
    return f"{about}\n\n{markdown(head, rows)}\n\n{ways}"


def main() -> None:
    quick = measure.begin(__doc__)
    results = {"of": run(quick)}
    print(table(results))
    measure.write("inference", results, quick)


if __name__ == "__main__":
    main()
