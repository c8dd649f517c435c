"""torch-clerq design: pulses of a design file, shaped by gradient steps and verified."""

import argparse
from typing import Any

import torch

from jax_kernel.resolution import Resolution

from .. import plotting
from ..design import Design, Trained, Verified
from ..limits import optical_depth, storage_limit
from ..progress import Bar, interruptible
from .console import Console
from .results import Results, versions


def count(least: int) -> Any:
    """A type of arguments: integers of at least so many that torch can count to."""

    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, but is {value}")
        if value >= 2**63:
            raise argparse.ArgumentTypeError(f"must be below 2**63, but is {text}")
        return value

    return integer


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=count(0), default=0, help="of the random start (default 0)")
    parser.add_argument("--steps", type=count(1), help="gradient steps (default: the file's)")


def run(args: argparse.Namespace, console: Console) -> int:
    design = Design.from_json(args.file)
    results = Results(console, "design", args.file, args.output)
    steps = args.steps or design.steps
    coefficients = sum(free.count for free in design.free)
    free = ", ".join(str(free.name) for free in design.free)
    console.say(f"{coefficients} coefficients of {free}; {steps} gradient steps from seed {args.seed}")
    best = 0.0
    promise = "the best so far will be verified and written"
    describe = lambda efficiency: f"efficiency {efficiency:.4f}, best {best:.4f}"  # noqa: E731
    with interruptible(promise, terminate=True) as interrupted:
        with Bar(steps, describe, quiet=args.quiet) as bar:

            def on_step(step: int, efficiency: float) -> bool:
                nonlocal best
                best = max(best, efficiency)
                bar(step, efficiency)
                return bool(interrupted())

            trained = design.train(seed=args.seed, steps=steps, on_step=on_step)
        verified = design.verify(trained)
        limit = storage_limit(design.problem, design.field) if design.after is not None else None
        content = _result(design, trained, verified) | {
            "limit": limit,
            "seed": args.seed,
            "versions": versions(),
            "seconds": round(console.seconds, 2),
        }
        results.json("result.json", content)
        results.problem("designed.json", design.to_problem(verified))
        results.figures(
            {
                "figure.png": lambda: _figure(design, verified, limit),
                "zt.png": lambda: plotting.zt_map(verified.solution, problem=design.problem),
            }
        )
        for line in _summary(design, trained, verified, limit):
            console.say(line)
        console.say(results.close())
        console.result({key: content[key] for key in _SHORT} | {"files": console.written})
        return 128 + interrupted() if interrupted() else 0


_SHORT = ("efficiency", "verified_efficiency", "limit", "interrupted", "resolution", "error", "seed", "seconds")
"""What --json repeats of result.json."""


def _result(design: Design, trained: Trained, verified: Verified) -> dict[str, Any]:
    """What result.json says of a design, in JSON's types."""
    problem = design.problem
    output = verified.solution.fields[design.field, problem.ends(design.field)[1]]
    with torch.no_grad():
        free = {str(name): waveform.tolist() for name, waveform in verified.fields().items()}

    def resolution(at: Resolution, t_steps: int) -> dict[str, float]:
        return {"z_nodes": at.z_nodes, "t_substeps": float(at.t_substeps), "t_steps": t_steps}

    return {
        "efficiency": trained.efficiency,
        "verified_efficiency": verified.efficiency,
        "interrupted": trained.interrupted,
        "history": list(trained.history),
        "resolution": {
            "training": resolution(trained.resolution, problem.t_steps),
            "verification": resolution(verified.solution.resolution, 2 * problem.t_steps),
        },
        "error": {
            "z": float(verified.solution.z_error),
            "time": float(verified.solution.time_error),
        },
        "coefficients": {
            str(free.name): [x for p in waveform.parameters() for x in p.tolist()]
            for free, waveform in zip(design.free, trained.fields.waveforms, strict=True)
        },
        "waveforms": {"time": verified.solution.time.tolist()} | free,
        "output": {"field": str(design.label), "real": output.real.tolist(), "imag": output.imag.tolist()},
    }


def _summary(design: Design, trained: Trained, verified: Verified, limit: float | None) -> list[str]:
    at = verified.solution.resolution
    lines = [
        f"efficiency {trained.efficiency:.4f}, the best of {len(trained.history)} steps (step {trained.step})",
        f"verified   {verified.efficiency:.4f} on finer grids ({at.z_nodes} nodes in z, "
        f"{round(2 * design.problem.t_steps * at.t_substeps)} steps in t)",
    ]
    if limit is not None:
        depth = optical_depth(design.problem, design.field)
        lines.append(f"limit      {limit:.4f} for any pulses at optical depth {depth:.4g}, retrieved forward")
    return lines


def _figure(design: Design, verified: Verified, limit: float | None) -> Any:
    labels = design.problem.field_names
    stored = labels[design.field]
    title = (
        f"{100 * verified.efficiency:.2f} % of the {stored} {'transmitted' if design.after is None else 'retrieved'}"
    )
    if limit is not None:
        depth = optical_depth(design.problem, design.field)
        title += f"; the limit for any pulses at optical depth {depth:.4g} is {100 * limit:.2f} %"
    fields = verified.solution.fields
    inputs = {name: fields[k, design.problem.ends(k)[0]] for k, name in enumerate(labels)}
    output = fields[design.field, design.problem.ends(design.field)[1]]
    return plotting.design_figure(verified.solution.time, inputs, output, stored=stored, after=design.after,
                                  title=title)  # fmt: skip
