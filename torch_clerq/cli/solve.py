"""torch-clerq solve: fields, populations and spectra of a problem file."""

import argparse
import math
from typing import Any

import numpy as np
import torch

from jax_kernel.problem import Problem
from jax_kernel.resolution import MarchResolution
from jax_kernel.solution import Solution

from .. import plotting, spectra
from ..analysis import energy
from ..design import read
from ..propagator import TorchPropagator
from .console import Console
from .results import Results

DRAWN = 6
"""Levels at most whose populations are drawn."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--float32", action="store_true", help="compute in single precision (default double)")
    parser.add_argument(
        "--tol", type=float, help="error aimed at, relative to the peak (default 1e-6; 1e-4 in float32)"
    )
    parser.add_argument("--scheme", choices=("cross", "march"), default="cross",
                        help="cross (default), or march for clerq's own steps in z")  # fmt: skip


def run(args: argparse.Namespace, console: Console) -> int:
    problem, _ = read(args.file)
    results = Results(console, "solve", args.file, args.output)
    dtype = torch.float32 if args.float32 else torch.float64
    layer = TorchPropagator(problem, dtype=dtype, tol=args.tol, scheme=args.scheme)
    console.status("compiling and searching the resolution")
    with torch.no_grad(), console.reporting():
        solution = layer.solve(outputs=("populations", "coherences"))
        bands = _spectra(problem, solution)
    console.say(repr(solution))
    transmitted = {}
    for k, name in enumerate(problem.field_names):
        entering, leaving = (solution.fields[k, at] for at in problem.ends(k))
        before = energy(entering, layer.time).item()
        share = energy(leaving, layer.time).item() / before if before else None
        transmitted[name] = share
        text = "–, for it is dark at the entrance" if share is None else f"{share:.4g}"
        console.say(
            f"{name}: peak {entering.abs().max():.4g} in, {leaving.abs().max():.4g} out; transmitted energy {text}"
        )
    results.arrays("solution.npz", _arrays(problem, solution) | bands)
    results.figures(
        {
            "zt.png": lambda: plotting.zt_map(solution, problem=problem),
            "envelopes.png": lambda: plotting.envelopes(solution, problem=problem),
            "spectra.png": lambda: plotting.spectra(solution, problem=problem, floor=0.01),
            "populations.png": lambda: plotting.populations(solution, levels=_moved(solution)),
        }
    )
    console.say(results.close())
    console.result(
        {
            "transmitted_energy": transmitted,
            "resolution": _resolution(solution.resolution),
            "error": {"z": _number(solution.z_error), "time": _number(solution.time_error)},
            "files": console.written,
            "seconds": round(console.seconds, 2),
        }
    )
    return 0


def _spectra(problem: Problem, solution: Solution) -> dict[str, np.ndarray]:
    """Absorption and dispersion of each field from its entrance to its exit, 0 where no light enters."""
    found: dict[str, Any] = {"absorption": [], "dispersion": [], "in_band": []}
    for k, light in enumerate(solution.fields):
        light = light.flip(0) if problem.fields[k].counter_propagating else light
        found["absorption"].append(spectra.absorption(light))
        found["dispersion"].append(spectra.dispersion(light))
        found["in_band"].append(spectra.in_band(light))
    stacked = {name: torch.stack(parts).numpy() for name, parts in found.items()}
    return {"frequency": spectra.freq_list(solution.time).numpy()} | stacked


def _moved(solution: Solution) -> list[int]:
    """The levels, `DRAWN` at most, whose populations change the most."""
    change = (solution.populations.amax((0, 1)) - solution.populations.amin((0, 1))).argsort(descending=True)
    return sorted(change[:DRAWN].tolist())


def _arrays(problem: Problem, solution: Solution) -> dict[str, np.ndarray]:
    kept = {name: getattr(solution, name).numpy() for name in ("fields", "z", "time", "populations", "coherences")}
    return kept | {
        "labels": np.array(problem.field_names),
        "z_error": np.array(_number(solution.z_error) if solution.z_error is not None else math.nan),
        "time_error": np.array(_number(solution.time_error) if solution.time_error is not None else math.nan),
        "resolution": np.array(list(_resolution(solution.resolution).values())),
    }


def _number(error: torch.Tensor | None) -> float | None:
    return None if error is None else float(error)


def _resolution(at: Any) -> dict[str, float]:
    if isinstance(at, MarchResolution):
        return {"z_steps_inner": at.z_steps_inner}
    return {"z_nodes": at.z_nodes, "t_substeps": float(at.t_substeps)}
