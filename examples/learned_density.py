"""Learn an unknown density profile with the physics around it: `python examples/learned_density.py [--smoke]`.

A vapour cell was filled unevenly. Short pulses of several areas are sent through, and the light that the atoms scatter
to the side is imaged along the cell, N(z) ∫ρ₁₁(z, t) dt. The cell is optically thick, so that the front shadows the
back and the image is not the density. A network that corrects a uniform density, N(z) = exp(network(z)), is trained
through the propagation until the computed images are those that were seen, noise included.

Pulses that leave at the end would not do: light of one direction at its end knows ∫N dz alone, whatever lies where.
"""

import sys

import numpy as np
import torch
from torch import nn

from torch_clerq import Problem, TorchPropagator, fit

PROBLEM = Problem.from_dict({
    "system": {
        "num_states": 2,
        "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
        "fields": [{"label": "light", "coupled_levels": [[0, 1]]}],
    },
    "interaction_strengths": [1.5], "t_min": -2.0, "t_max": 4.0, "t_steps": 60, "z_steps": 40,
})  # fmt: skip
NOISE = 0.01
"""Of the images, per the brightest point of each."""


class Cell(nn.Module):
    """A medium whose density is corrected by a network, and the pulses that probe it."""

    def __init__(self):
        super().__init__()
        self.medium = TorchPropagator(PROBLEM, dtype=torch.float64, tol=1e-4)
        last = nn.Linear(24, 1)
        nn.init.zeros_(last.weight)  # begins with a uniform density
        nn.init.zeros_(last.bias)
        self.network = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), last).double()
        shape = torch.exp(-((self.medium.time / 0.5) ** 2))
        self.register_buffer("pulses", torch.tensor([0.05, 0.5, 1.0, 2.0], dtype=torch.float64)[:, None, None] * shape)

    def density(self) -> torch.Tensor:
        """N(z) in units of the nominal density, shape (z,)."""
        return self.network(2 * self.medium.z[:, None] - 1)[:, 0].exp()

    def images(self, density: torch.Tensor) -> torch.Tensor:
        """Scattered light along the cell per that of the brightest point, shape (pulse, z)."""
        excited = self.medium.solve(self.pulses, outputs=("populations",), number_density=density).populations[..., 1]
        light = density * torch.trapezoid(excited, self.medium.time)
        return light / light.amax(-1, keepdim=True)

    def forward(self) -> torch.Tensor:
        return self.images(self.density())


def true_density(z: torch.Tensor) -> torch.Tensor:
    """What the network has never seen: two clouds and a tail."""
    return 0.3 + 1.6 * torch.exp(-(((z - 0.3) / 0.1) ** 2)) + 1.0 * torch.exp(-(((z - 0.75) / 0.08) ** 2)) + 0.3 * z


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    cell = Cell()
    truth = true_density(cell.medium.z)
    with torch.no_grad():
        clean = cell.images(truth)
    seen = clean + NOISE * torch.as_tensor(random.standard_normal(clean.shape))

    def misfit(cell: Cell) -> torch.Tensor:
        return ((cell() - seen) / NOISE).square().mean()

    found = fit(cell, misfit, optimizer="lbfgs", steps=20 if smoke else 150)

    def error(density: torch.Tensor) -> float:
        """Root mean square, per the mean density."""
        return float((density - truth).square().mean().sqrt() / truth.mean())

    image = seen[0] * truth.mean() / seen[0].mean()
    print(f"misfit {found.history.values[0]:.1f} to {found.value:.2f}, of which noise is 1")
    print(f"error of N(z): uniform {error(truth.mean() + 0 * truth):.0%}, the image itself {error(image):.0%}, "
          f"learned {error(cell.density().detach()):.1%}")  # fmt: skip
    if not found.value < found.history.values[0]:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    main("--smoke" in sys.argv[1:])
