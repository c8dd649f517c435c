"""Design a quantum memory that is read backwards, at optical depth 25: `python examples/backward_memory.py [--smoke]`.

Light is stored by one run and retrieved by another that starts from its final state, turned round in z: what went in
first comes out first, and the efficiency may reach 0.712 where forward retrieval ends at 0.569. Probe and control are
free, and trained through both runs by L-BFGS. A. V. Gorshkov et al., Phys. Rev. A 76, 033805 (2007).
"""

import math
import sys

import numpy as np
import torch
from torch import nn

from torch_clerq import Problem, TorchPropagator, fit
from torch_clerq.controls import Bounded, Fields, Gated, GaussianBasis, UnitEnergy, gate
from torch_clerq.limits import memory_limit
from torch_clerq.objectives import log_energy

DEPTH = 25.0


def medium(t_min: float, t_max: float) -> TorchPropagator:
    """The Λ medium over a window of time, in units of the excited level's lifetime and linewidth."""
    problem = Problem.from_dict({
        "system": {
            "num_states": 3,
            "decays": [{"rate": 1.0, "channels": [[0, 1], [2, 1]], "factors": [math.sqrt(0.5)] * 2}],
            "fields": [
                {"label": "probe", "coupled_levels": [[0, 1]]},
                {"label": "control", "coupled_levels": [[2, 1]]},
            ],
        },
        "interaction_strengths": [DEPTH / 4] * 2, "t_min": t_min, "t_max": t_max, "t_steps": 140, "z_steps": 40,
    })  # fmt: skip
    return TorchPropagator(problem, dtype=torch.float64, tol=5e-4)


class Memory(nn.Module):
    """A weak probe and a control that store it until t = 6, and a control that retrieves it from t = 7.5."""

    def __init__(self, random: np.random.Generator):
        super().__init__()
        self.write, self.read = medium(0.0, 7.0), medium(7.0, 14.0)
        until, since = (gate(layer.time, rise=0.3, **at)
                        for layer, at in ((self.write, {"off": 6.0}), (self.read, {"on": 7.5})))  # fmt: skip
        probe = GaussianBasis(self.write.time, 16, (1.0, 6.0), 0.4, coefficients=random.uniform(0, 1, 16))
        store = GaussianBasis(self.write.time, 14, (0.5, 6.0), coefficients=random.uniform(-1, 1, 14))
        retrieve = GaussianBasis(self.read.time, 14, (7.5, 13.5), coefficients=random.uniform(-1, 1, 14))
        self.storing = Fields({
            "probe": UnitEnergy(Gated(probe, until), self.write.time, energy=1e-6),
            "control": Gated(Bounded(store, 0.0, 3.0), until),
        })  # fmt: skip
        self.retrieving = Gated(Bounded(retrieve, 0.0, 3.0), since)

    def forward(self) -> torch.Tensor:
        """The logarithm of the energy that comes out per energy that went in."""
        stored = self.write.solve(self.storing(), outputs=("final_state",))
        dark = torch.zeros_like(self.read.time)
        fields = self.read(
            {"probe": dark, "control": self.retrieving()}, initial_density_matrix=stored.final_state.flip(0)
        )
        return log_energy(fields[0, -1], self.read.time) - log_energy(stored.fields[0, 0], self.write.time)


def main(smoke: bool) -> None:
    memory = Memory(np.random.default_rng(0))
    found = fit(
        memory, lambda memory: -memory(), optimizer="lbfgs", steps=5 if smoke else 100,
        progress=lambda value: f"efficiency {math.exp(-value):.5f}",
    )  # fmt: skip
    assert found.verified is not None
    start, verified = math.exp(-found.history.values[0]), math.exp(-found.verified)
    print(f"random pulses {start:.5f}, designed ones {verified:.5f} at twice the resolution, after {found.step} steps")
    print(f"limit {memory_limit(DEPTH, 'backward'):.5f}, forward {memory_limit(DEPTH, 'forward'):.5f}")
    if not found.value < found.history.values[0]:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    main("--smoke" in sys.argv[1:])
