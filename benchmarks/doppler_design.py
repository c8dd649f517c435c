"""What does a memory of moving atoms retrieve after forty gradient steps, and what does the two-photon slope do to it?

Usage: python -m benchmarks.doppler_design [--quick]

A Λ memory of 11 velocity classes at an effective optical depth of 25 (of intensity, of the Doppler-broadened line on
resonance), stored with the control off and retrieved forward. Baseline: five parameters (centre and width of a Gaussian
probe, two strengths of a square control and when it goes off) by Nelder–Mead, 296 evaluations. Against it: 44 free
coefficients by 40 steps of L-BFGS and of Adam from one random start, with the same largest control. In a Λ of
co-propagating light of nearly equal wavelengths the excited level shifts with the velocity and the spin level does not:
slopes (0, 1, 0), a two-photon slope of 0. Slopes (0, 1, 1) are what a rule without sums along the couplings gives where
the control is written as a ladder's. Every value is verified at twice the nodes in z, the steps in t and the time grid,
and with 31 classes.
"""

import math
import time as clock

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import erfcx
from torch import nn

from torch_clerq import Driven, Problem, Resolution, TorchPropagator, fit
from torch_clerq.analysis import energy
from torch_clerq.controls import Fields, gate
from torch_clerq.objectives import log_retrieval_efficiency

from . import measure
from .memory_designs import COUNTED, END, F64, OFF, ON, PROBE_ENERGY, RISE, SYSTEM, TOL, control, probe, random
from .tables import markdown

DEPTH, STEPS, EVALUATIONS, LARGEST = 25.0, 40, 296, 3.0
WIDTHS = (0.2, 0.5, 1.0)
SLOPES = {"0": [0, 1, 0], "1": [0, 1, 1]}


def strength(width: float) -> float:
    """The interaction strength with this optical depth, 2gNL(√π/σ) erfcx(γ/2σ) with γ = 1 and one wavelength."""
    return DEPTH / (2 * math.sqrt(math.pi) / width * erfcx(0.5 / width))


def problem(width: float, slopes: list[float], finer: int = 1, classes: int = 11) -> Problem:
    """The memory over velocity classes up to 2.2 thermal widths."""
    reach = 2.2 * width if classes == 11 else 3.0 * width
    return Problem.from_dict({
        "system": SYSTEM | {"level_doppler_slopes": slopes},
        "velocity_classes": {"thermal_width": width, "thermal_delta_min": -reach, "thermal_delta_max": reach,
                             "thermal_delta_steps": classes - 1},
        "interaction_strengths": [strength(width)] * 2,
        "t_min": 0.0, "t_max": END, "t_steps": 280 * finer, "z_steps": 1,
    })  # fmt: skip


class Baseline(nn.Module):
    """A Gaussian probe and a control of two plateaus: five numbers."""

    def __init__(self, time: torch.Tensor):
        super().__init__()
        self.register_buffer("time", time, persistent=False)
        start = torch.tensor([4.0, 2.0, 1.5, 1.5, OFF], dtype=F64)
        self.numbers = nn.Parameter(start)  # centre, full width, strength before and after, off

    def forward(self) -> dict[str, torch.Tensor]:
        centre, width, before, after, off = self.numbers
        probe = torch.exp(-4 * math.log(2) * ((self.time - centre) / width) ** 2) * gate(self.time, off=OFF, rise=RISE)
        probe = probe * (PROBE_ENERGY / energy(probe, self.time)).sqrt()
        edge = torch.sigmoid((off - self.time) * 2 * math.log(9) / RISE)
        before, after = (LARGEST * torch.tanh(x.abs() / LARGEST) for x in (before, after))
        return {"probe": probe, "control": before * edge + after * gate(self.time, on=ON, rise=RISE)}


def free(time: torch.Tensor, seed: int = 0) -> Fields:
    """Probe and control of free shape."""
    generator = torch.Generator().manual_seed(seed)
    starts = random(generator, 16, 0.0, 1.0), random(generator, 28, -1.0, 1.0)
    shaped = control(time, starts[1], (0.5, 13.5), LARGEST, off=OFF, on=ON)
    return Fields({"probe": probe(time, starts[0]), "control": shaped})


def driven(kind, width: float, slopes: list[float], **options) -> Driven:
    layer = TorchPropagator(problem(width, slopes, **options), dtype=F64, tol=TOL)
    return Driven(kind(layer.time), layer)


def loss(model: Driven) -> torch.Tensor:
    return -log_retrieval_efficiency(model(), model.propagator.time, after=COUNTED)


def nelder_mead(model: Driven, evaluations: int) -> float:
    """The baseline's best efficiency; the model is left there."""
    numbers = model.controls.numbers
    best: list = [math.inf, None]

    def value(x: np.ndarray) -> float:
        with torch.no_grad():
            numbers.copy_(torch.as_tensor(x))
            found = float(loss(model))
        if found < best[0]:
            best[:] = [found, x.copy()]
        return found

    minimize(value, numbers.detach().numpy().copy(), method="Nelder-Mead", options={"maxfev": evaluations})
    with torch.no_grad():
        numbers.copy_(torch.as_tensor(best[1]))
    return math.exp(-best[0])


def verified(kind, width: float, slopes: list[float], model: Driven) -> float:
    finer = driven(kind, width, slopes, finer=2, classes=31)
    finer.load_state_dict(model.state_dict())
    at = model.propagator.resolution
    assert isinstance(at, Resolution)
    finer.propagator.resolution = at.doubled()
    with torch.no_grad():
        return math.exp(-float(loss(finer)))


def measured(width: float, slope: str, quick: bool) -> dict:
    """The three designs of one medium."""
    slopes, out = SLOPES[slope], {}

    def timed(name: str, kind, train) -> None:
        begin = clock.perf_counter()
        model = driven(kind, width, slopes)
        value = train(model)
        seconds = clock.perf_counter() - begin
        out[name] = {"efficiency": value, "verified": verified(kind, width, slopes, model), "seconds": seconds}

    def gradient(optimizer, **options):
        steps = 5 if quick else STEPS
        return lambda model: math.exp(-fit(
            model, loss, steps=steps, optimizer=optimizer, progress=False, verify=False, guard=False, **options
        ).value)  # fmt: skip

    adam = lambda parameters: torch.optim.Adam(parameters, lr=0.2, betas=(0.8, 0.95))  # noqa: E731
    timed("L-BFGS", free, gradient("lbfgs"))
    timed("Adam", free, gradient(adam, scheduler="cosine"))
    timed("Nelder–Mead", Baseline, lambda model: nelder_mead(model, 20 if quick else EVALUATIONS))
    return {"width": width, "slope": slope, "strength": strength(width), "designs": out}


def table(results: dict) -> str:
    """Each medium and method."""
    names = ("Nelder–Mead", "Adam", "L-BFGS")
    rows = [
        [
            f"{of['width']:g}",
            of["slope"],
            *(f"{of['designs'][name]['verified']:.3f}" for name in names),
            *(f"{of['designs'][name]['seconds']:.1f} s" for name in names),
        ]
        for of in results.values()
    ]
    rows.append(["reference", "not stated", "0.068", "0.106", "–", "2261 s", "1809 s", "–"])
    head = ["thermal width", "two-photon slope", *names, *(f"time, {name}" for name in names)]
    return markdown(head, rows)


def main() -> None:
    quick = measure.begin(__doc__)
    results = {}
    for width in WIDTHS[:1] if quick else WIDTHS:
        for slope in SLOPES:
            results[f"{width:g} {slope}"] = measured(width, slope, quick)
            designs = {name: round(of["verified"], 4) for name, of in results[f"{width:g} {slope}"]["designs"].items()}
            print(f"{width:g}, slope {slope}: {designs}", flush=True)
    print(table(results))
    measure.write("doppler_design", results, quick)


if __name__ == "__main__":
    main()
