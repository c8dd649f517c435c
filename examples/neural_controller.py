"""Train a network to control a quantum memory: `python examples/neural_controller.py [--smoke]`.

A pulse of light is stored in a Λ medium. The network sees the pulse that is wanted back (when, how long, how high) and
shapes the control that retrieves it. It is trained through the propagation on batches of wanted pulses, and tested on
others, by the fidelity of what comes out and by its energy, beside the one control that is best for all of them.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from torch_clerq import Driven, Problem, Resolution, TorchPropagator, fit
from torch_clerq.controls import Bounded, Fields, Gated, GaussianBasis, gate
from torch_clerq.objectives import energy, pulse_fidelity

PROBLEM = Problem.from_dict({
    "system": {
        "num_states": 3,
        "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
        "fields": [
            {"label": "probe", "coupled_levels": [[0, 1]], "rabi_freq": 1e-3,
             "rabi_freq_t_func": "gaussian", "rabi_freq_t_args": {"ampl": 1.0, "centre": 2.2, "fwhm": 1.6}},
            {"label": "control", "coupled_levels": [[2, 1]]},
        ],
    },
    "interaction_strengths": [10.0, 10.0], "t_min": -1.0, "t_max": 12.5, "t_steps": 135, "z_steps": 1,
})  # fmt: skip
OFF, ON = 4.0, 5.0
TIME = torch.as_tensor(PROBLEM.time)
LATE = gate(TIME, on=ON, rise=0.3)
INPUT = 1e-3 * torch.exp(-4 * np.log(2) * ((TIME - 2.2) / 1.6) ** 2)
UNIT = energy(INPUT, TIME).sqrt()


def medium() -> TorchPropagator:
    """The memory, at optical depth 40; fine enough for any control that may come."""
    return TorchPropagator(PROBLEM, dtype=torch.float64, resolution=Resolution(14, 2), tol=3e-3)


def control() -> nn.Module:
    """A control pulse of free shape that is off while the light is stored."""
    shape = GaussianBasis(TIME, 24, (0.5, 11.0))
    return Gated(Bounded(shape, 0.0, 3.0), gate(TIME, on=(0.5, ON), off=(OFF, 11.0), rise=0.3))


class Controller(nn.Module):
    """From wanted pulses, shape (batch, time), to the fields of the memory that is to emit them."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(len(TIME) + 1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 24)
        ).double()
        self.control = control().requires_grad_(False)  # its coefficients are the network's
        self.medium = medium()

    def forward(self, wanted: torch.Tensor) -> torch.Tensor:
        share = energy(wanted, TIME)[:, None] / UNIT**2
        features = torch.cat([wanted / (UNIT * share.sqrt()), 10 * share], -1)  # the shape, and how much of it
        return self.medium({"control": self.control(self.network(features))})


def pulses(random: np.random.Generator, count: int) -> torch.Tensor:
    """Pulses to ask for: Gaussians at t = 7 … 9, of fwhm 1.2 … 2.4, with 15 … 40 % of the stored light."""
    centre, fwhm, share = torch.as_tensor(random.uniform((7.0, 1.2, 0.15), (9.0, 2.4, 0.4), (count, 3))).T[..., None]
    shape = torch.exp(-4 * np.log(2) * ((TIME - centre) / fwhm) ** 2)
    return shape * UNIT * (share[:, 0] / energy(shape, TIME)).sqrt()[:, None]


def retrieved(fields: torch.Tensor) -> torch.Tensor:
    """The probe behind the medium, once the control is on again."""
    return fields[..., 0, -1, :] * LATE


def error(fields: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Energy of the difference to the wanted pulses, per theirs."""
    return (energy(retrieved(fields) - wanted, TIME) / energy(wanted, TIME)).mean()


def say(name: str, fields: torch.Tensor, wanted: torch.Tensor) -> None:
    found = retrieved(fields).expand(len(wanted), -1)
    fidelity = pulse_fidelity(found, wanted, TIME)
    wrong = (energy(found, TIME) / energy(wanted, TIME) - 1).abs()
    print(f"{name}: fidelity {fidelity.mean():.3f} on average, {fidelity.min():.3f} at worst; "
          f"energy wrong by {wrong.mean():.0%}")  # fmt: skip


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    known, unseen = pulses(random, 32 if smoke else 512), pulses(random, 100)

    fixed = Driven(Fields({"control": control()}), medium())
    fit(fixed, lambda fixed: error(fixed(), known), optimizer="lbfgs", steps=3 if smoke else 60)

    controller = Controller()
    batches = DataLoader(known, batch_size=16, shuffle=True)
    found = fit(
        controller, lambda controller, wanted: error(controller(wanted), wanted), batches=batches,
        steps=10 if smoke else 160, learning_rate=1e-2, scheduler="cosine",
    )  # fmt: skip
    with torch.no_grad():
        say("best fixed control", fixed(), unseen)
        say("network", controller(unseen), unseen)
    if not found.value < found.history.values[0]:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    main("--smoke" in sys.argv[1:])
