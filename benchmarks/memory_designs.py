"""How close to the physical limit do trained pulses bring a quantum memory, and in what time?

Usage: python -m benchmarks.memory_designs [--quick]

A Λ memory without Doppler broadening, at optical depths 10, 25 and 50, retrieved forward and backward. Probe and
control are free: 44 coefficients, trained by L-BFGS from random starts within a budget of 550 forward evaluations, of
which a gradient is charged its measured price. Every value is verified at twice the nodes in z, the steps in t and the
time grid. The limit is that of Gorshkov et al., Phys. Rev. A 76, 033805 (2007), for any pulses.
"""

import math
import time as clock

import torch
from torch import nn

from torch_clerq import Driven, Problem, TorchPropagator, fit
from torch_clerq.controls import Bounded, Fields, Gated, GaussianBasis, UnitEnergy, gate
from torch_clerq.layers import propagators
from torch_clerq.limits import memory_limit
from torch_clerq.objectives import log_energy, log_retrieval_efficiency

from . import measure
from .tables import markdown

F64 = torch.float64
BUDGET = 550
SEEDS = range(5)
TOL = 5e-4
RISE, OFF, ON, COUNTED, END = 0.3, 6.0, 7.5, 6.95, 14.0
PROBE_ENERGY = 1e-6
LARGEST_CONTROL = {10.0: 2.0, 25.0: 3.0, 50.0: 4.0}


SYSTEM = {
    "num_states": 3,
    "decays": [{"rate": 1.0, "channels": [[0, 1], [2, 1]], "factors": [math.sqrt(0.5)] * 2}],
    "fields": [{"label": "probe", "coupled_levels": [[0, 1]]}, {"label": "control", "coupled_levels": [[2, 1]]}],
}
"""A Λ system that decays to both of its lower levels alike."""


def problem(depth: float, start: float, end: float, t_steps: int, z_steps: int) -> Problem:
    """A Λ medium of an optical depth of intensity, over a window of time."""
    return Problem.from_dict({
        "system": SYSTEM,
        "interaction_strengths": [depth / 4] * 2, "t_min": start, "t_max": end, "t_steps": t_steps, "z_steps": z_steps,
    })  # fmt: skip


def random(generator: torch.Generator, count: int, low: float, high: float) -> torch.Tensor:
    """Start values of coefficients."""
    return low + (high - low) * torch.rand(count, generator=generator, dtype=F64)


def probe(time: torch.Tensor, start: torch.Tensor) -> nn.Module:
    """A weak pulse of free shape that is over when the control is off."""
    shape = GaussianBasis(time, 16, (1.0, OFF), 0.4, coefficients=start)
    return UnitEnergy(Gated(shape, gate(time, off=OFF, rise=RISE)), time, energy=PROBE_ENERGY)


def control(time: torch.Tensor, start: torch.Tensor, window: tuple[float, float], largest: float, **edges) -> nn.Module:
    """A control of free shape between 0 and its largest Rabi frequency, switched at given times."""
    shape = GaussianBasis(time, len(start), window, 0.5, coefficients=start)
    return Gated(Bounded(shape, 0.0, largest), gate(time, rise=RISE, **edges))


class Forward(Driven):
    """Storage and retrieval in one direction: one run."""

    def __init__(self, depth: float, seed: int = 0, finer: int = 1):
        medium = problem(depth, 0.0, END, 280 * finer, 1)
        layer = TorchPropagator(medium, dtype=F64, tol=TOL)
        generator = torch.Generator().manual_seed(seed)
        starts = random(generator, 16, 0.0, 1.0), random(generator, 28, -1.0, 1.0)
        fields = Fields({
            "probe": probe(layer.time, starts[0]),
            "control": control(layer.time, starts[1], (0.5, 13.5), LARGEST_CONTROL[depth], off=OFF, on=ON),
        })  # fmt: skip
        super().__init__(fields, layer)

    def log_efficiency(self) -> torch.Tensor:
        return log_retrieval_efficiency(self(), self.propagator.time, after=COUNTED)


class Backward(nn.Module):
    """Storage, then retrieval from the other end: the state of one run, turned round, is the start of another."""

    def __init__(self, depth: float, seed: int = 0, finer: int = 1):
        super().__init__()
        middle, largest = 7.0, LARGEST_CONTROL[depth]
        self.write, self.read = (
            TorchPropagator(problem(depth, *window, 140 * finer, 40), dtype=F64, tol=TOL)
            for window in ((0.0, middle), (middle, END))
        )
        generator = torch.Generator().manual_seed(seed)
        starts = random(generator, 16, 0.0, 1.0), random(generator, 14, -1.0, 1.0), random(generator, 14, -1.0, 1.0)
        self.storing = Fields({
            "probe": probe(self.write.time, starts[0]),
            "control": control(self.write.time, starts[1], (0.5, OFF), largest, off=OFF),
        })  # fmt: skip
        self.retrieving = Fields({"control": control(self.read.time, starts[2], (ON, 13.5), largest, on=ON)})

    def log_efficiency(self) -> torch.Tensor:
        stored = self.write.solve(self.storing(), outputs=("final_state",))
        dark = torch.zeros_like(self.read.time)
        fields = self.read({"probe": dark} | self.retrieving(), initial_density_matrix=stored.final_state.flip(0))
        return log_energy(fields[0, -1], self.read.time) - log_energy(stored.fields[0, 0], self.write.time)


def loss(model) -> torch.Tensor:
    return -model.log_efficiency()


def price(model: nn.Module, quick: bool) -> float:
    """What a gradient costs, in forward evaluations, taking turns."""

    def forward():
        with torch.no_grad():
            return loss(model)

    def both():
        model.zero_grad()
        loss(model).backward()

    times = measure.samples({"forward": forward, "gradient": both}, 0.5 if quick else 3)
    return measure.ratio(times["gradient"], times["forward"])["ratio"]


def verified(kind: type, depth: float, model: nn.Module) -> float:
    """The efficiency anew, with everything twice as fine."""
    finer = kind(depth, finer=2)
    finer.load_state_dict(model.state_dict())
    for (_, fine), (_, coarse) in zip(propagators(finer), propagators(model), strict=True):
        fine.resolution = coarse.resolution.doubled()
    with torch.no_grad():
        return float(finer.log_efficiency().exp())


def design(kind: type, depth: float, seed: int, evaluations: int) -> tuple[nn.Module, dict]:
    """One design from one random start."""
    begin = clock.perf_counter()
    model = kind(depth, seed)
    found = fit(
        model, loss, steps=evaluations, optimizer="lbfgs", progress=False, verify=False,
        callbacks=[lambda at: at.evaluations >= evaluations],
    )  # fmt: skip
    return model, {
        "start": math.exp(-found.history.values[0]),
        "efficiency": math.exp(-found.value),
        "verified": verified(kind, depth, model),
        "evaluations": found.evaluations,
        "seconds": clock.perf_counter() - begin,
    }


def table(results: dict) -> str:
    """Each depth and way, with the limit."""
    rows = []
    for of in results.values():
        values = [one["verified"] for one in of["designs"]]
        thrice = [one["verified"] for one in of["thrice"]]
        rows.append([
            f"{of['depth']:g}, {of['way']}",
            f"{of['limit']:.4f}",
            f"{min(values):.4f} … {max(values):.4f}",
            f"{sorted(values)[len(values) // 2]:.4f}",
            f"{sorted(thrice)[len(thrice) // 2]:.4f}" if thrice else "–",
            f"{of['price']:.1f}",
            f"{max(one['seconds'] for one in of['designs']):.1f} s",
        ])  # fmt: skip
    rows.append(["**target**, 25", "", "≥ 0.55 forward", "≥ 0.69 backward", "≥ 0.565 forward", "", "≤ 10 s"])
    columns = ["limit", "verified, all seeds", "median", "… at 3 budgets", "price of a gradient", "longest"]
    return markdown(["optical depth, retrieval", *columns], rows)


def main() -> None:
    quick = measure.begin(__doc__)
    results = {}
    for depth in (25.0,) if quick else (10.0, 25.0, 50.0):
        for way, kind in (("forward", Forward), ("backward", Backward)):
            model = kind(depth)
            loss(model).backward()
            cost = price(model, quick)
            budget = round((100 if quick else BUDGET) / cost)
            designs = [design(kind, depth, seed, budget)[1] for seed in (SEEDS[:1] if quick else SEEDS)]
            thrice = [] if quick else [design(kind, depth, seed, 3 * budget)[1] for seed in SEEDS]
            results[f"{depth:g} {way}"] = {
                "depth": depth, "way": way, "limit": memory_limit(depth, way), "price": cost,
                "resolution": [repr(layer.resolution) for _, layer in propagators(model)],
                "designs": designs, "thrice": thrice,
            }  # fmt: skip
            print(f"{depth:g} {way}: {[round(one['verified'], 5) for one in designs]}", flush=True)
            assert all(one["verified"] <= results[f"{depth:g} {way}"]["limit"] + 1e-4 for one in designs + thrice)
    print(table(results))
    measure.write("memory_designs", results, quick)


if __name__ == "__main__":
    main()
