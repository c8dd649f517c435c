"""The layer in several processes: distributed training, loaders' workers, forks, Lightning."""

import os
import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.conftest import CACHE, ROOT

ENVIRONMENT = {
    "JAX_COMPILATION_CACHE_DIR": CACHE,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    "OMP_NUM_THREADS": "1",
}
EXAMPLE = ROOT / "examples" / "distributed.py"


def test_two_processes_learn_what_one_does(tmp_path):
    """DistributedDataParallel over gloo, by the README's torchrun line: equal weights, and those of one process."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    for command, out in (([sys.executable], "alone.pt"), (launch, "shared{rank}.pt")):
        subprocess.run(
            [*command, str(EXAMPLE), "--steps", "3", "--out", str(tmp_path / out)],
            env=os.environ | ENVIRONMENT, check=True, timeout=240, capture_output=True,
        )  # fmt: skip
    alone, first, second = (
        torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("alone", "shared0", "shared1")
    )
    for name, value in alone.items():
        assert not torch.equal(value, torch.log(torch.expm1(torch.ones_like(value))))  # it has learnt
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], value, rtol=1e-9, atol=1e-12)


class Pulses(Dataset):
    """What a worker computes with the layer: fields for widths."""

    def __init__(self):
        from examples.distributed import layer

        self.layer = layer()

    def __len__(self):
        return 4

    def __getitem__(self, k):
        from examples.distributed import pulses

        with torch.no_grad():
            return self.layer(pulses(4)[k])[0, -1]


class LatePulses(Pulses):
    """The same, with a layer that the worker makes."""

    def __init__(self):
        pass

    def __getitem__(self, k):
        return Pulses()[k]


LOADING = """
import sys
import warnings
sys.path.insert(0, {root!r})
import torch
from torch.utils.data import DataLoader
from tests.torch_clerq.test_processes import LatePulses, Pulses

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # JAX's own, of forks
    {body}
"""

SAME = """
    data = Pulses()
    here = torch.stack([data[k] for k in range(4)])
    there = torch.cat(list(DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="{start}")))
    print(torch.equal(here, there))
"""

FORKED = """
    data = Pulses()
    {use}
    try:
        list(DataLoader(data, num_workers=1, multiprocessing_context="fork", timeout=60))
    except Exception as error:
        print("BridgeError" in str(error), "spawn" in str(error))
"""

EARLY = """
    loaded = list(DataLoader(LatePulses(), num_workers=1, multiprocessing_context="fork", timeout=120))
    print(len(loaded), bool(loaded[0].isfinite().all()))
"""


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_workers_of_a_loader_may_propagate(start, tmp_path):
    assert loading(SAME.format(start=start), tmp_path) == "True\n"


@pytest.mark.parametrize("use", ["data[0]", "pass"])
def test_a_forked_worker_is_told_what_to_do(use, tmp_path):
    assert loading(FORKED.format(use=use), tmp_path) == "True True\n"


def test_a_fork_before_jax_is_at_work_is_fine(tmp_path):
    assert loading(EARLY, tmp_path) == "4 True\n"


def loading(body, folder):
    """What a program prints: a file, for workers are started anew from it."""
    path = folder / "program.py"
    path.write_text(LOADING.format(root=str(ROOT), body=body.strip()))
    run = subprocess.run(
        [sys.executable, str(path)],
        env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.filterwarnings(
    "ignore:::pytorch_lightning",
    "ignore:::typing_extensions",
    "ignore:.*treespec, LeafSpec.*",
    "ignore:.*does not have many workers.*",
)
def test_lightnings_trainer(tmp_path, unwatched):
    lightning = pytest.importorskip("pytorch_lightning")
    from examples.distributed import layer, pulses

    class Fit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.medium = layer()

        def training_step(self, batch, index):
            return self.medium(batch)[..., -1, :].abs().square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1.0)

    model, alone = Fit(), layer()
    trainer = lightning.Trainer(
        max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(model, DataLoader(pulses(2), batch_size=1))
    optimiser = torch.optim.SGD(alone.parameters(), lr=1.0)
    for pulse in pulses(2):
        optimiser.zero_grad()
        alone(pulse[None])[..., -1, :].abs().square().mean().backward()
        optimiser.step()
    for found, right in zip(model.medium.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(found, right)
