"""Everything that needs a GPU, in one run of under three minutes, as a table: `python -m benchmarks.gpu_check`.

It runs the tests marked `gpu`, and compares the layer on the GPU with the CPU: values, gradients and times.
"""

import os
import subprocess
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import torch

from jax_kernel import BridgeError
from torch_clerq import Problem, Resolution, TorchPropagator

PROBLEM = Problem.from_dict({
    "system": {
        "num_states": 3,
        "fields": [
            {"coupled_levels": [[0, 1]], "rabi_freq": 1e-3, "rabi_freq_t_func": "gaussian",
             "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 1.0}},
            {"coupled_levels": [[1, 2]], "rabi_freq": 5.0, "rabi_freq_t_func": "ramp_onoff",
             "rabi_freq_t_args": {"ampl": 1.0, "fwhm": 0.2, "on": -1.0, "off": 1.0}},
        ],
        "decays": [{"rate": 1.0, "channels": [[0, 1], [1, 2]]}],
    },
    "t_min": -2.0, "t_max": 10.0, "t_steps": 200, "z_steps": 60, "interaction_strengths": [10.0, 10.0],
})  # fmt: skip


def timed(
    layer: TorchPropagator, strengths: torch.Tensor, repeats: int = 5
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Fields, gradient, and the median seconds of a forward and backward call after the first."""
    seconds = []
    for _ in range(repeats + 1):
        strengths.grad = None
        start = time.perf_counter()
        fields = layer(interaction_strengths=strengths)
        fields.abs().square().sum().backward()
        if strengths.is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return fields.detach().cpu(), strengths.grad.cpu(), sorted(seconds[1:])[repeats // 2]


def main() -> int:
    """Print the table; 0 where all is right, 1 where something is not, 2 where there is no GPU."""
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU here: nothing to check.")
        return 2
    rows = []
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-m", "gpu", "tests/torch_clerq/test_gpu.py", "-rA", "-q"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    for line in tests.stdout.splitlines():
        verdict, _, name = line.partition(" ")
        if verdict in ("PASSED", "FAILED", "ERROR", "SKIPPED"):
            rows.append((name.rpartition("::")[2], verdict.lower()))
    try:
        for batch in (1, 64):
            found = []
            for device in ("cpu", "cuda"):
                layer = TorchPropagator(PROBLEM, dtype=torch.float64, resolution=Resolution(16, 4)).to(device)
                strengths = torch.linspace(5, 10, 2 * batch, dtype=torch.float64, device=device).view(batch, 2)
                found.append(timed(layer, strengths.requires_grad_()))
            (here, grad, slow), (there, other, fast) = found
            error = float((here - there).abs().max() / here.abs().max())
            error = max(error, float((grad - other).abs().max() / grad.abs().max()))
            rows.append((f"lambda system, batch {batch}: error, CPU s, GPU s", f"{error:.1e}, {slow:.3f}, {fast:.3f}"))
    except BridgeError as error:
        rows.append(("the layer", f"refused: {error}"))
    width = max(len(name) for name, _ in rows)
    for name, verdict in rows:
        print(f"{name:<{width}}  {verdict}")
    return int(tests.returncode != 0 or any("refused" in verdict for _, verdict in rows))


if __name__ == "__main__":
    sys.exit(main())
