"""Classify points with a pulse of light and a vapour: `python examples/optical_classifier.py [--smoke]`.

Encoder: two features set, linearly, the amplitudes of a train of pulses. Medium: two-level atoms, which the pulses
saturate, so that what one pulse meets depends on those before it (at an area of 2π they would pass unattenuated:
S. L. McCall and E. L. Hahn, Phys. Rev. 183, 457 (1969)). Decoder: the field that leaves, sampled and summed with
weights. Encoder and decoder are linear and are trained through the medium, which is all that can bend the line between
two rings. Beside it, the same model without the medium, and with light so weak that the medium is linear, too.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

from torch_clerq import Problem, Resolution, TorchPropagator, fit
from torch_clerq.controls import GaussianBasis

PROBLEM = Problem.from_dict({
    "system": {
        "num_states": 2,
        "decays": [{"rate": 0.1, "channels": [[0, 1]]}],
        "fields": [{"label": "light", "coupled_levels": [[0, 1]]}],
    },
    "interaction_strengths": [1.0], "t_min": 0.0, "t_max": 8.0, "t_steps": 80, "z_steps": 1,
})  # fmt: skip
PULSES = 6


class Classifier(nn.Module):
    """Points, shape (batch, 2), to the logit of their class, shape (batch,).

    Args:
        medium: whether the light passes through it.
        strength: Rabi frequency of a pulse of amplitude 1, cyclic; the detector's gain makes up for it.
    """

    def __init__(self, medium: bool = True, strength: float = 1.0):
        super().__init__()
        self.medium = TorchPropagator(PROBLEM, resolution=Resolution(12, 2), tol=1e-2) if medium else None
        self.strength = strength
        time = torch.as_tensor(PROBLEM.time, dtype=torch.float32)
        self.pulses = GaussianBasis(time, PULSES, (1.0, 6.0), 0.3).requires_grad_(False)
        self.encoder = nn.Linear(2, PULSES)
        self.decoder = nn.Linear(len(time), 1)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        light = self.strength * self.pulses(self.encoder(points))
        leaving = light if self.medium is None else self.medium(light[:, None])[:, 0, -1].real
        return self.decoder(leaving / self.strength)[:, 0]


def rings(random: np.random.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of two concentric rings, blurred, and 0 or 1 for the inner and the outer."""
    label = random.integers(0, 2, count)
    angle, radius = random.uniform(0, 2 * np.pi, count), 0.5 + label + 0.12 * random.standard_normal(count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    return torch.as_tensor(points, dtype=torch.float32), torch.as_tensor(label, dtype=torch.float32)


def loss(model: Classifier, batch: list[torch.Tensor]) -> torch.Tensor:
    points, label = batch
    return binary_cross_entropy_with_logits(model(points), label)


def main(smoke: bool) -> None:
    random = np.random.default_rng(0)
    training, (points, label) = rings(random, 64 if smoke else 512), rings(random, 500)
    for name, options in (
        ("without the medium", {"medium": False}),
        ("through the medium, weak light", {"strength": 1e-3}),
        ("through the medium", {}),
    ):
        torch.manual_seed(0)
        model = Classifier(**options)
        batches = DataLoader(TensorDataset(*training), batch_size=32, shuffle=True)
        found = fit(model, loss, batches=batches, steps=8 if smoke else 100, learning_rate=0.03, scheduler="cosine")
        with torch.no_grad():
            right = ((model(points) > 0) == (label > 0)).double().mean()
        print(f"{name}: {right:.1%} of unseen points right, loss {found.history.values[0]:.3f} to {found.value:.3f}")
    if not found.value < found.history.values[0]:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    main("--smoke" in sys.argv[1:])
