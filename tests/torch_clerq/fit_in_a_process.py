"""A fit that may be killed at any moment: what it does depends on random numbers, batches and a layer's own search."""

import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.torch_clerq.test_design import small_design
from torch_clerq import Driven, Problem, TorchPropagator, fit
from torch_clerq.controls import Fields, GaussianBasis
from torch_clerq.objectives import log_retrieval_efficiency

STEPS = 25


def pulse(kind):
    """A pulse through a thin absorber."""
    problem = Problem.from_dict({key: value for key, value in small_design().items() if key != "design"})
    layer = TorchPropagator(problem, dtype=torch.float64, tol=1e-2)
    start = torch.linspace(-1.0, 1.0, 5, dtype=torch.float64)
    driven = Driven(Fields({0: GaussianBasis(layer.time, 5, (1.0, 3.0), coefficients=start)}), layer)

    def loss(driven):
        noise = 0.0 if kind == "lbfgs" else 1e-3 * torch.randn(()) + 1e-3 * float(np.random.rand())
        efficiency = log_retrieval_efficiency(driven(), driven.propagator.time)
        return -efficiency + noise * driven.controls.waveforms[0].coefficients.sum()

    return driven, loss, {"optimizer": kind, "scheduler": "cosine" if kind == "adam" else None}


def network(kind):
    """A network with dropout on shuffled batches."""
    numbers = np.random.default_rng(0).normal(size=(40, 3))
    given = torch.tensor(numbers)
    loader = DataLoader(TensorDataset(given, given.sin().sum(1, keepdim=True)), batch_size=8, shuffle=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 16), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    ).double()

    def loss(model, batch):
        return (model(batch[0]) - batch[1]).square().mean()

    return model, loss, {"optimizer": "adamw", "batches": loader}


def main():
    kind, checkpoint, out = sys.argv[1:]
    module, loss, options = network(kind) if kind == "batches" else pulse(kind)
    torch.manual_seed(1)
    np.random.seed(1)
    print("ready", flush=True)
    found = fit(
        module,
        loss,
        steps=STEPS,
        learning_rate=None if kind == "lbfgs" else 0.05,
        checkpoint=checkpoint,
        progress=False,
        callbacks=[lambda at: print(at.step, flush=True)],
        **options,
    )
    history = vars(found.history) | {"seconds": None}
    torch.save({"state": module.state_dict(), "history": history, "value": found.value}, out)


if __name__ == "__main__":
    main()
