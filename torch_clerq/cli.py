"""The command line: torch-clerq solve | design."""

import argparse
import importlib.metadata
import json
import platform
import sys
import tempfile
import time as clock
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from jax_kernel.errors import ProblemError, PropagationError
from jax_kernel.problem import Problem
from jax_kernel.resolution import Resolution

from . import plotting
from .analysis import energy
from .cache import use_compilation_cache
from .design import Design, Trained, Verified, read
from .files import write
from .limits import optical_depth, storage_limit
from .progress import Bar, interruptible
from .propagator import TorchPropagator

PACKAGES = ("torch_clerq", "torch", "jax", "jaxlib", "diffrax", "equinox", "numpy", "scipy")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments, by default those of the process.

    Returns:
        The exit code: 0, 2 after an error, which is one line on stderr, or 130 after Ctrl-C.
    """
    args = _parser().parse_args(argv)
    say: Callable[[str], None] = (lambda line: None) if args.quiet else print
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            if args.cache:
                _keep_programs()
            return args.run(args, say)
        except (PropagationError, OSError) as error:
            _complain(str(error))
            return 2
        except KeyboardInterrupt:
            _complain("interrupted, nothing written")
            return 130


def _keep_programs() -> None:
    """Keep compiled programs for the next run, where there is a folder for them."""
    try:
        use_compilation_cache()
    except OSError as error:
        warnings.warn(f"compiled programs are not kept (--no-cache is silent): {error}", UserWarning, stacklevel=2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torch-clerq", description="Light through driven, decaying quantum media, with exact gradients."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version('torch_clerq')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., int], purpose: str, output: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=purpose, description=purpose)
        one.add_argument("file", metavar="FILE", type=Path, help=f"{'design' if name == 'design' else 'problem'} file")
        one.add_argument("--output", metavar="DIR", type=Path, help=f"folder for the results (default {output})")
        one.add_argument("--no-cache", dest="cache", action="store_false",
                         help="leave the compiled programs in the user's cache folder alone")  # fmt: skip
        one.add_argument("--quiet", action="store_true", help="print errors and warnings only")
        one.set_defaults(run=run)
        return one

    solve = command("solve", _solve, "Solve a problem file; write its fields and a z–t figure.", "solve/<name of FILE>")
    solve.add_argument("--float32", action="store_true", help="compute in single precision (default double)")
    solve.add_argument("--tol", type=float, help="error aimed at, relative to the peak (default 1e-6; 1e-4 in float32)")
    design = command("design", _design, "Shape the free pulses of a design file by gradient steps; verify the result.",
                     "design/<name of FILE>")  # fmt: skip
    design.add_argument("--seed", type=_count(0), default=0, help="of the random start (default 0)")
    design.add_argument("--steps", type=_count(1), help="gradient steps (default: the file's)")
    return parser


def _count(least: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, but is {value}")
        return value

    return integer


def _solve(args: argparse.Namespace, say: Callable[[str], None]) -> int:
    problem, _ = read(args.file)
    folder = _folder(args.output or Path("solve", args.file.stem))
    layer = TorchPropagator(problem, dtype=torch.float32 if args.float32 else torch.float64, tol=args.tol)
    with torch.no_grad():
        solution = layer.solve()
    say(repr(solution))
    for k, name in enumerate(_names(problem)):
        entering, leaving = (solution.fields[k, at] for at in _ends(problem, k))
        before = energy(entering, layer.time).item()
        share = f"{energy(leaving, layer.time).item() / before:.4g}" if before else "–, for it is dark at the entrance"
        say(f"{name}: peak {entering.abs().max():.4g} in, {leaving.abs().max():.4g} out; transmitted energy {share}")
    at = solution.resolution
    content = {
        "fields": solution.fields.numpy(),
        "z": solution.z.numpy(),
        "time": solution.time.numpy(),
        "labels": np.array(_names(problem)),
        "z_error": solution.z_error.numpy(),
        "time_error": solution.time_error.numpy(),
        "resolution": np.array([at.z_nodes, float(at.t_substeps)]),
    }
    write(folder / "fields.npz", lambda file: np.savez_compressed(file, **content))
    written = ["fields.npz", *_draw(folder, {"figure.png": lambda: plotting.zt_map(solution, _names(problem))})]
    say(f"wrote {', '.join(str(folder / name) for name in written)}")
    return 0


def _design(args: argparse.Namespace, say: Callable[[str], None]) -> int:
    begin = clock.perf_counter()
    design = Design.from_json(args.file)
    folder = _folder(args.output or Path("design", args.file.stem))
    steps = args.steps or design.steps
    count = sum(free.count for free in design.free)
    names = ", ".join(map(str, (free.name for free in design.free)))
    say(f"{count} coefficients of {names}; {steps} gradient steps from seed {args.seed}")
    best = 0.0
    promise = "the best so far will be verified and written"
    describe = lambda efficiency: f"efficiency {efficiency:.4f}, best {best:.4f}"  # noqa: E731
    with interruptible(promise) as interrupted:
        with Bar(steps, describe, quiet=args.quiet) as bar:

            def on_step(step: int, efficiency: float) -> bool:
                nonlocal best
                best = max(best, efficiency)
                bar(step, efficiency)
                return interrupted()

            trained = design.train(seed=args.seed, steps=steps, on_step=on_step)
        verified = design.verify(trained)
        limit = storage_limit(design.problem, design.field) if design.after is not None else None
        content = _result(design, trained, verified) | {
            "limit": limit,
            "seed": args.seed,
            "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
            "seconds": round(clock.perf_counter() - begin, 2),
        }
        write(folder / "result.json", lambda file: file.write(json.dumps(content, indent=1).encode()))
        written = ["result.json", *_draw(folder, {
            "figure.png": lambda: _figure(design, verified, limit),
            "zt.png": lambda: plotting.zt_map(verified.solution, _names(design.problem)),
        })]  # fmt: skip
        for line in _summary(design, trained, verified, limit):
            say(line)
        seconds = clock.perf_counter() - begin
        say(f"wrote {', '.join(str(folder / name) for name in written)} after {seconds:.1f} s")
        return 130 if interrupted() else 0


def _result(design: Design, trained: Trained, verified: Verified) -> dict[str, Any]:
    """What result.json says of a design, in JSON's types."""
    problem = design.problem
    output = verified.solution.fields[design.field, _ends(problem, design.field)[1]]
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
    solution = verified.solution
    at = solution.resolution
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
    stored = _names(design.problem)[design.field]
    title = (
        f"{100 * verified.efficiency:.2f} % of the {stored} {'transmitted' if design.after is None else 'retrieved'}"
    )
    if limit is not None:
        depth = optical_depth(design.problem, design.field)
        title += f"; the limit for any pulses at optical depth {depth:.4g} is {100 * limit:.2f} %"
    fields = verified.solution.fields
    ends = [_ends(design.problem, k) for k in range(len(fields))]
    inputs = {name: fields[k, ends[k][0]] for k, name in enumerate(_names(design.problem))}
    output = fields[design.field, ends[design.field][1]]
    return plotting.design_figure(verified.solution.time, inputs, output, stored=stored, after=design.after,
                                  title=title)  # fmt: skip


def _ends(problem: Problem, field: int) -> tuple[int, int]:
    """Indices of the positions at which a field enters and leaves."""
    return (-1, 0) if problem.fields[field].counter_propagating else (0, -1)


def _names(problem: Problem) -> list[str]:
    return [light.label or f"field {k}" for k, light in enumerate(problem.fields)]


def _folder(path: Path) -> Path:
    """The folder, made where it is not there; refused now, before any work, where it cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise ProblemError(
            f"Argument `output` must be a folder that can be written, but {path} cannot: {error.strerror}."
        ) from error
    return path


def _draw(folder: Path, figures: Mapping[str, Callable[[], Any]]) -> list[str]:
    """Write figures by name, or say in one line what they need; the names of those written."""
    for name, draw in figures.items():
        try:
            figure = draw()
        except ModuleNotFoundError as error:
            _complain(f"no figure, for it needs {error.name}: pip install 'torch_clerq[plot]'")
            return []
        write(folder / name, partial(figure.savefig, format="png"))
    return list(figures)


def _complain(text: str) -> None:
    tqdm.write(f"torch-clerq: {' '.join(text.split())}", file=sys.stderr)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    _complain(f"warning: {message}")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
