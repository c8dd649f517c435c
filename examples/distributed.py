"""Fit a medium to measured pulses on several processes: `torchrun --nproc_per_node 2 examples/distributed.py`.

Every process takes its share of the pulses; DistributedDataParallel averages their gradients, so that the processes
keep equal parameters, and these are what one process with all pulses would find.
"""

import argparse
import os
import sys

import torch
from torch import distributed, nn

from torch_clerq import Positive, Problem, Resolution, TorchPropagator, propagate

PROBLEM = Problem.from_dict({
    "system": {
        "num_states": 2,
        "fields": [{"coupled_levels": [[0, 1]]}],
        "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
    },
    "interaction_strengths": [1.0], "t_min": -2.0, "t_max": 6.0, "t_steps": 80, "z_steps": 2,
})  # fmt: skip
AT = Resolution(z_nodes=24, t_substeps=4)


def pulses(count: int) -> torch.Tensor:
    """Gaussian pulses of several widths on the time grid, cyclic, shape (pulse, field, time)."""
    time = torch.as_tensor(PROBLEM.time)
    widths = torch.linspace(0.5, 1.5, count, dtype=torch.float64)[:, None, None]
    return 0.1 * torch.exp(-((time / widths) ** 2))


def layer() -> TorchPropagator:
    """The medium, whose strength and decay rate are unknown."""
    trainable = {"interaction_strengths": Positive(), "decay_rates": Positive()}
    return TorchPropagator(PROBLEM, trainable=trainable, dtype=torch.float64, resolution=AT)


def train(model: nn.Module, given: torch.Tensor, seen: torch.Tensor, steps: int) -> list[float]:
    """Lower the mean square difference to what was seen; returns that of each step."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = (model(given)[..., -1, :] - seen).abs().square().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--smoke", action="store_true", help="three steps only")
    parser.add_argument("--out", help="file for the parameters that this process found, {rank} standing for its number")
    options = parser.parse_args()
    given = pulses(8)
    with torch.no_grad():
        seen = propagate(PROBLEM, given, resolution=AT, interaction_strengths=[2.5], decay_rates=[0.6])[..., -1, :]
    model: nn.Module = layer()
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
        rank, size = distributed.get_rank(), distributed.get_world_size()
        model = nn.parallel.DistributedDataParallel(model)
        given, seen = given[rank::size], seen[rank::size]
    else:
        rank = 0
    losses = train(model, given, seen, 3 if options.smoke else options.steps)
    found = {name.removeprefix("module."): p.detach() for name, p in model.state_dict().items()}
    if options.out:
        torch.save(found, options.out.format(rank=rank))
    values = {name: x.tolist() for name, x in found.items()}
    print(f"process {rank}: loss {losses[0]:.3g} to {losses[-1]:.3g}, {values}")
    if distributed.is_initialized():
        distributed.destroy_process_group()
    if options.smoke and not losses[-1] < losses[0]:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    main()
