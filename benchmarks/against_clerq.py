"""Forward and gradient beside clerq.autodiff, in one run: time, compile time, and the error of each result.

Usage: python -m benchmarks.against_clerq [FOLDER WITH THE PROBLEM FILES] (default ../shared/problems)

The peers take turns, call by call; times are medians, errors the largest deviation of any field at any z and t from a
converged run, relative to that field's peak. The objective is the output energy; "pulse" is its gradient in the Rabi
frequencies, "material" in interaction strengths, detunings and decay rates. Writes results/against_clerq.json.
"""

import importlib.metadata
import json
import sys
import time
import warnings
from pathlib import Path

import clerq
import jax
import jax.numpy as jnp
import numpy as np
import torch

from jax_kernel import Problem, Resolution, propagate
from torch_clerq import TorchPropagator

CASES = {
    "lambda 201 × 60": ("bench_lam", Resolution(12, 1), Resolution(48, 6)),
    "two-level 1001 × 200": ("bench_two_level", Resolution(64, 1), Resolution(160, 3)),
    "Rb87 11 levels 11 classes 201 × 50": ("bench_rb87", Resolution(8, 1), Resolution(24, 6)),
}
MATERIAL = ("interaction_strengths", "detunings", "decay_rates")


def energy(fields):
    return jnp.sum(jnp.abs(fields[:, -1]) ** 2)


def ours(problem, at, params):
    """Compiled forward, pulse gradient and material gradient of the kernel."""

    def loss(some, rest):
        return energy(propagate(problem, rest | some, resolution=at, tol=1.0).fields)

    pulse = {"rabi_freq": params["rabi_freq"]}
    material = {name: params[name] for name in MATERIAL}
    forward = jax.jit(lambda p: propagate(problem, p, resolution=at, tol=1.0).fields)
    gradient = jax.jit(jax.value_and_grad(loss))
    return {
        "forward": lambda: forward(params),
        "pulse": lambda: gradient(pulse, material),
        "material": lambda: gradient(material, pulse),
    }


def peers(content, params):
    """The same three of clerq.autodiff at its default settings."""
    solver = clerq.PropagationSolver(**json.loads(json.dumps(content)))
    autodiff = solver.to_autodiff()
    pulse = {"rabi_freq": params["rabi_freq"]}
    material = {name: params[name] for name in MATERIAL}

    def loss(fields):
        return energy(fields)

    return {
        "forward": lambda: autodiff.propagate(params),
        "pulse": lambda: autodiff.value_and_grad(loss, pulse, fixed=material),
        "material": lambda: autodiff.value_and_grad(loss, material, fixed=pulse),
    }


def layers(problem, at):
    """Forward and forward with backward of the torch layer, trained in its Rabi frequencies."""
    layer = TorchPropagator(problem, trainable=("rabi_freq",), dtype=torch.float64, resolution=at, tol=1.0)

    def both():
        layer()[:, -1].abs().square().sum().backward()

    def forward():
        with torch.no_grad():
            return layer()

    return {"forward": forward, "forward + backward": both}


def seconds(call) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def error(fields, converged) -> float:
    peak = np.abs(converged).max((1, 2), keepdims=True)
    return float(np.max(np.abs(np.asarray(fields) - converged) / peak))


def measure(folder: Path, name: str, at: Resolution, fine: Resolution) -> dict:
    content = json.loads((folder / f"{name}.json").read_text())
    problem = Problem.from_dict(content)
    params = {
        "rabi_freq": jnp.asarray([field.rabi_freq for field in problem.fields]),
        "interaction_strengths": jnp.asarray(problem.interaction_strengths),
        "detunings": jnp.zeros(len(problem.fields)),
        "decay_rates": jnp.asarray([decay.rate for decay in problem.decays]),
    }
    converged = np.asarray(propagate(problem, resolution=fine).fields)
    calls = {"kernel": ours(problem, at, params), "clerq": peers(content, params), "layer": layers(problem, at)}
    first = {peer: {what: seconds(call) for what, call in group.items()} for peer, group in calls.items()}
    times = {peer: {what: [] for what in group} for peer, group in calls.items()}
    for _ in range(5):
        for peer, group in calls.items():
            for what, call in group.items():
                repeats = 1 if peer == "clerq" else 8
                times[peer][what] += [seconds(call) for _ in range(repeats)]
    median = {peer: {what: float(np.median(t)) for what, t in group.items()} for peer, group in times.items()}
    return {
        "resolution": [at.z_nodes, at.t_substeps],
        "grid": [problem.t_steps + 1, problem.z_steps],
        "first_call": first,
        "median": median,
        "error": {
            "kernel": error(calls["kernel"]["forward"](), converged),
            "clerq": error(calls["clerq"]["forward"](), converged),
        },
        "gain": {what: median["clerq"][what] / median["kernel"][what] for what in median["kernel"]},
    }


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/problems")
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    results = {}
    for title, (name, at, fine) in CASES.items():
        results[title] = result = measure(folder, name, at, fine)
        median, first, gain = result["median"], result["first_call"], result["gain"]
        print(f"\n{title}, z_nodes {at.z_nodes}, t_substeps {at.t_substeps}")
        print(f"  true error   kernel {result['error']['kernel']:.1e}   clerq {result['error']['clerq']:.1e}")
        for what in ("forward", "pulse", "material"):
            print(
                f"  {what:9s} kernel {1e3 * median['kernel'][what]:8.2f} ms (first {first['kernel'][what]:.1f} s)   "
                f"clerq {1e3 * median['clerq'][what]:8.1f} ms (first {first['clerq'][what]:.1f} s)   {gain[what]:.0f}×"
            )
        print("  layer     " + "   ".join(f"{what} {1e3 * t:.2f} ms" for what, t in median["layer"].items()))
    versions = {p: importlib.metadata.version(p) for p in ("jax", "torch", "diffrax", "clerq")}
    target = Path(__file__).parent / "results" / "against_clerq.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({"versions": versions, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
