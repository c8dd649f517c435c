"""The layer over several JAX devices, which the CPU stands for in a process of its own."""

import os
import subprocess
import sys

from tests.conftest import CACHE, ROOT

CODE = """
import jax, torch
from tests.conftest import two_level
from torch_clerq import Resolution, Sharding, TorchPropagator, functional
functional.Watch.__call__ = lambda *_: None  # whose estimates compile programs of their own
classes = {"thermal_width": 0.5, "thermal_delta_min": -1.5, "thermal_delta_max": 1.5, "thermal_delta_steps": 6}
problem = two_level(g=1.5, rabi_freq=0.7, velocity_classes=classes, t_steps=24, z_steps=2)
strengths = torch.linspace(1.0, 2.0, 5, dtype=torch.float64)[:, None].requires_grad_()
found = []
for sharding in (None, Sharding(batch=2, classes=2)):
    layer = TorchPropagator(problem, trainable=("decay_rates",), dtype=torch.float64, resolution=Resolution(4, 1),
                            tol=1.0, sharding=sharding)
    fields = layer(interaction_strengths=strengths)
    grads = torch.autograd.grad(fields.abs().square().sum(), [strengths, layer.decay_rates])
    found.append((fields.detach(), *grads))
print(len(jax.devices()), max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*found)) < 1e-12)
"""


def test_batch_and_classes_over_four_devices():
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_COMPILATION_CACHE_DIR": CACHE,
    }
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["4 True"]
