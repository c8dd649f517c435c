"""A quantum memory in PyTorch Lightning: `python examples/lightning_memory.py [--smoke]`.

The density of a warm cell drifts by 40 %. Probe and control are shaped for all densities at once: a LightningModule
holds pulses and medium, a batch is some densities, and the trainer does the rest. It needs pytorch-lightning.
"""

import logging
import sys
import warnings

import numpy as np
import pytorch_lightning as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from torch_clerq import Problem, Resolution, TorchPropagator
from torch_clerq.controls import Bounded, Fields, Gated, GaussianBasis, UnitEnergy, gate
from torch_clerq.limits import memory_limit
from torch_clerq.objectives import log_retrieval_efficiency

PROBLEM = Problem.from_dict({
    "system": {
        "num_states": 3,
        "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
        "fields": [
            {"label": "probe", "coupled_levels": [[0, 1]]},
            {"label": "control", "coupled_levels": [[2, 1]]},
        ],
    },
    "interaction_strengths": [6.25, 6.25], "t_min": -1.0, "t_max": 14.0, "t_steps": 150, "z_steps": 1,
})  # fmt: skip
DEPTH, DRIFT = 25.0, 0.4


class Memory(lightning.LightningModule):
    """Pulses that store light until t = 6 and retrieve it from t = 7.5 to 13."""

    def __init__(self, random: np.random.Generator):
        super().__init__()
        self.medium = TorchPropagator(PROBLEM, dtype=torch.float64, resolution=Resolution(16, 2), tol=5e-3)
        time = self.medium.time
        probe = GaussianBasis(time, 16, (1.0, 6.0), 0.4, coefficients=random.uniform(0, 1, 16))
        control = GaussianBasis(time, 28, (0.5, 13.5), coefficients=random.uniform(-1, 1, 28))
        self.pulses = Fields({
            "probe": UnitEnergy(Gated(probe, gate(time, off=6.0, rise=0.3)), time, energy=1e-6),
            "control": Gated(Bounded(control, 0.0, 3.0), gate(time, off=(6.0, 13.0), on=7.5, rise=0.3)),
        })  # fmt: skip

    def forward(self, density: torch.Tensor) -> torch.Tensor:
        """The logarithm of the efficiency at densities per the nominal one, shape (batch, 1); shape (batch,)."""
        fields = self.medium(self.pulses(), number_density=density)
        return log_retrieval_efficiency(fields, self.medium.time, after=6.75)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return -self(batch[0]).mean()

    def configure_optimizers(self) -> dict:
        optimiser = torch.optim.Adam(self.parameters(), lr=0.2, betas=(0.8, 0.95))
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.trainer.max_epochs)
        return {"optimizer": optimiser, "lr_scheduler": decay}


def main(smoke: bool) -> None:
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    for about_itself in (".*does not have many workers.*", ".*LeafSpec.*"):
        warnings.filterwarnings("ignore", about_itself)
    torch.manual_seed(0)  # the order of the batches
    random = np.random.default_rng(0)
    memory = Memory(random)
    densities = torch.as_tensor(random.uniform(1 - DRIFT, 1 + DRIFT, (32, 1)))
    unseen = torch.linspace(1 - DRIFT, 1 + DRIFT, 9, dtype=torch.float64)[:, None]

    def efficiencies() -> torch.Tensor:
        with torch.no_grad():
            return memory(unseen).exp()

    before = efficiencies()
    trainer = lightning.Trainer(
        max_epochs=3 if smoke else 40, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(memory, DataLoader(TensorDataset(densities), batch_size=8, shuffle=True))
    after = efficiencies()
    limit = sum(memory_limit(DEPTH * float(density)) for density in unseen) / len(unseen)
    print(f"efficiency at densities of 0.6 to 1.4: random pulses {before.mean():.4f}, trained ones {after.mean():.4f} "
          f"({after.min():.4f} to {after.max():.4f})")  # fmt: skip
    print(f"limit, were the pulses made for each density: {limit:.4f}")
    if not after.mean() > before.mean():
        sys.exit("the efficiency did not rise")


if __name__ == "__main__":
    main("--smoke" in sys.argv[1:])
