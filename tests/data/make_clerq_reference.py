"""Solve the problem files with clerq 0.15 and keep its fields as test data.

Usage:
    python make_clerq_reference.py FOLDER [FOLDER ...] [--scratch FOLDER]

Every ``*.json`` of the folders is solved with tight integrator options on its own
output grid, at its own ``z_steps_inner`` and at twice that; at four times, too,
where those two differ by more than 1e-2 of the peak or where one of them failed.
The last two that succeeded are kept. Where the doubled solve takes longer than the
limit, half the file's own ``z_steps_inner`` stands in as the coarser one. The
``bench_*`` problems are solved at 1, 4 and 16 inner steps (2 where one of them takes
longer than the limit), on their own z range and on z from 0 to 1 (stem
``<stem>_unit``).

Every finished solve is written to the scratch folder at once and never repeated:
started again, the script goes on where it stopped. Single solves run cheap first.

``clerq_reference.npz`` holds, for each stem,
    ``<stem>/coarse``, ``<stem>/fine``  cyclic complex Rabi frequencies, shape
        (field, slice, time), at the z indices ``<stem>/slices``; for the bench
        problems ``<stem>/inner1``, ``<stem>/inner4``, ``<stem>/inner16`` instead,
    ``<stem>/inner``, ``<stem>/seconds``  ``z_steps_inner`` and wall time of each,
    ``<stem>/peak``  largest modulus of each field over all z and t, finest solve.
A stem with one successful solve has ``<stem>/fine`` only. ``clerq_reference.json``
holds the differences between the solves, relative to the peak and over the whole z
grid, and what clerq raised.
"""

from __future__ import annotations

import argparse
import heapq
import importlib.metadata
import itertools
import json
import logging
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import clerq
import numpy as np

HERE = Path(__file__).resolve().parent
TIGHT = {"atol": 1e-12, "rtol": 1e-10, "nsteps": 100_000}
BENCH_INNER = (1, 4, 16)
BENCH_STAND_IN = 2
REFINE_ABOVE = 1e-2
MANY_INNER = 50
SIZE_LIMIT = 4 * 1024**2


class TimeLimitReached(Exception):
    """A solve passed its time limit."""


@dataclass(frozen=True)
class Problem:
    """One problem of the reference.

    Args:
        stem: Name of its entries in the output.
        definition: clerq's keyword arguments, as in the file.
        bench: Whether it is a benchmark problem, solved at ``BENCH_INNER``.
    """

    stem: str
    definition: dict
    bench: bool

    def solver(self, inner: int | None = None) -> clerq.PropagationSolver:
        """Return a fresh solver with tight options; clerq mutates its arguments."""
        arguments = json.loads(json.dumps(self.definition))
        arguments["savefile"] = None
        arguments["opts"] = {**(arguments.get("opts") or {}), **TIGHT}
        if inner is not None:
            arguments["z_steps_inner"] = inner
        return clerq.PropagationSolver(**arguments)


def read_problems(folders: list[Path]) -> list[Problem]:
    """Return the problems of the folders, the bench ones also on z from 0 to 1."""
    problems = []
    for path in (p for folder in folders for p in sorted(folder.glob("*.json"))):
        definition = json.loads(path.read_text())
        bench = path.stem.startswith("bench_")
        problems.append(Problem(path.stem, definition, bench))
        if bench:
            unit = {**definition, "z_min": 0.0, "z_max": 1.0}
            problems.append(Problem(path.stem + "_unit", unit, bench))
    return problems


def describe(error: Exception) -> str:
    """Return the exception's type and message on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


class Run:
    """The solves of one problem, kept in the scratch folder.

    Args:
        problem: What is solved.
        scratch: Where each solve is written as soon as it ends.
    """

    def __init__(self, problem: Problem, scratch: Path) -> None:
        self.problem = problem
        self.scratch = scratch
        self.error = None
        self.records: dict[int, dict] = {}
        try:
            solver = problem.solver()
            solver.check()
        except Exception as error:
            self.error = describe(error)
            return
        self.base = solver.z_steps_inner
        self.z_steps = solver.z_steps
        self.opts = solver.opts
        self.input_peak = np.abs(solver.rabi_freqs_zt[:, 0]).max(axis=-1)
        # Relative cost of one inner step per slice, only used for the order.
        self.unit_cost = (
            len(solver.thermal_delta_list)
            * solver.z_steps
            * solver.t_steps
            * (1.0 + solver.system.num_states**2 / 50.0)
        )
        for path in sorted(scratch.glob(f"{problem.stem}__inner*.json")):
            record = json.loads(path.read_text())
            self.records[record["inner"]] = record

    def _path(self, inner: int, suffix: str) -> Path:
        return self.scratch / f"{self.problem.stem}__inner{inner}{suffix}"

    def field(self, inner: int) -> np.ndarray:
        """Return a finished solve's Rabi frequencies, shape (field, z, time)."""
        with np.load(self._path(inner, ".npz")) as stored:
            return stored["rabi_freqs_zt"]

    def solved(self) -> list[int]:
        """Return the ``z_steps_inner`` of the successful solves, ascending."""
        return sorted(i for i, r in self.records.items() if r["error"] is None)

    def slices(self) -> np.ndarray:
        """Return the z indices that are kept."""
        return np.unique([self.z_steps * k // 4 for k in range(5)])

    def wanted(self) -> list[int]:
        """Return the ``z_steps_inner`` still to be solved, as far as known now."""
        if self.error is not None:
            return []
        if self.problem.bench:
            ladder = list(BENCH_INNER)
            if any(record.get("limit") for record in self.records.values()):
                ladder.append(BENCH_STAND_IN)
        else:
            ladder = [self.base, 2 * self.base]
            if self.base >= MANY_INNER:
                ladder = [self.base // 10, self.base // 5, *ladder]
            first, second = ladder[-2:]
            if {first, second} <= self.records.keys():
                if self.records[second].get("limit") and first > 1:
                    ladder.append(first // 2)
                elif not {first, second} <= set(self.solved()) or (self.difference(first, second).max() > REFINE_ABOVE):
                    ladder.append(4 * self.base)
        return [inner for inner in ladder if inner not in self.records]

    def cost(self, inner: int) -> float:
        """Return the relative cost of a solve."""
        return inner * self.unit_cost

    def predicted_seconds(self, inner: int) -> float:
        """Return the expected wall time, 0 where no solve of the problem ended."""
        solved = self.solved()
        if not solved:
            return 0.0
        return self.records[solved[-1]]["seconds"] * inner / solved[-1]

    def solve(self, inner: int, limit: float) -> None:
        """Solve at one resolution and write the outcome to the scratch folder.

        Args:
            inner: ``z_steps_inner``.
            limit: Limit in seconds of processor time, so that a busy machine does
                not change the outcome.
        """
        record = {"inner": inner, "seconds": 0.0, "error": None}
        predicted = self.predicted_seconds(inner)
        start, start_cpu = time.perf_counter(), time.process_time()
        try:
            if predicted > 1.1 * limit:
                raise TimeLimitReached(f"skipped, would take about {predicted:.0f} s, limit {limit:.0f} s")
            solver = self.problem.solver(inner)
            mesolve = solver.system.mesolve

            def limited_mesolve(*args, **kwargs):
                if time.process_time() - start_cpu > limit:
                    raise TimeLimitReached(f"stopped after the limit of {limit:.0f} s")
                return mesolve(*args, **kwargs)

            solver.system.mesolve = limited_mesolve
            solver.solve(recalc=True, progress=False)
            fields = solver.rabi_freqs_zt
            record["step_error_estimate"] = float(solver.step_error_estimate)
            record["t_step_error_estimate"] = float(solver.t_step_error_estimate)
        except TimeLimitReached as error:
            record["error"], record["limit"] = describe(error), True
        except Exception as error:
            record["error"] = describe(error)
        else:
            np.savez(self._path(inner, ".npz"), rabi_freqs_zt=fields)
        record["seconds"] = round(time.perf_counter() - start, 3)
        self._path(inner, ".json").write_text(json.dumps(record))
        self.records[inner] = record

    def scale(self, inner: int) -> np.ndarray:
        """Return the modulus each field's differences are relative to, shape (field,).

        It is the field's own peak, or, where nothing is sent in, the largest one.
        """
        peak = np.abs(self.field(inner)).max(axis=(1, 2))
        scale = np.where(self.input_peak > 0.0, peak, peak.max())
        return np.where(scale > 0.0, scale, 1.0)

    def difference(self, coarse: int, fine: int) -> np.ndarray:
        """Return the largest deviation over z and t of the peak, shape (field,)."""
        deviation = np.abs(self.field(coarse) - self.field(fine)).max(axis=(1, 2))
        return deviation / self.scale(fine)

    def kept(self) -> list[int]:
        """Return the ``z_steps_inner`` of the solves that go into the reference."""
        return self.solved() if self.problem.bench else self.solved()[-2:]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the problem's entries of the ``.npz`` file."""
        kept = [] if self.error else self.kept()
        if not kept:
            return {}
        names = [f"inner{inner}" for inner in kept] if self.problem.bench else ["coarse", "fine"][-len(kept) :]
        slices = self.slices()
        entries = {name: self.field(inner)[:, slices] for name, inner in zip(names, kept, strict=True)}
        entries["slices"] = slices
        entries["inner"] = np.array(kept)
        entries["seconds"] = np.array([self.records[i]["seconds"] for i in kept])
        entries["peak"] = np.abs(self.field(kept[-1])).max(axis=(1, 2))
        return {f"{self.problem.stem}/{key}": value for key, value in entries.items()}

    def report(self) -> dict:
        """Return the problem's entry of the ``.json`` file."""
        if self.error is not None:
            return {"error": self.error}
        kept = self.kept()
        runs = [self.records[inner] for inner in sorted(self.records)]
        errors = [f"inner {r['inner']}: {r['error']}" for r in runs if r["error"]]
        pairs = [self.difference(a, b) for a, b in itertools.pairwise(kept)]
        entry = {
            "inner_of_the_file": self.base,
            "method": self.opts["method"],
            "inner": kept,
            "seconds": [self.records[inner]["seconds"] for inner in kept],
            "difference": [float(pair.max()) for pair in pairs],
            "difference_per_field": [pair.tolist() for pair in pairs],
            "error": "; ".join(errors) or None,
            "runs": runs,
        }
        if kept:
            entry["slices"] = self.slices().tolist()
            entry["peak"] = np.abs(self.field(kept[-1])).max(axis=(1, 2)).tolist()
        missing = self.wanted()
        if missing:
            entry["not_run"] = missing
        return entry


def solve_all(runs: list[Run], limit: float, budget: float) -> None:
    """Solve what is missing, cheap solves first, until the budget is used up.

    Args:
        runs: The problems.
        limit: Limit of one solve in seconds of processor time.
        budget: Wall-clock seconds after which no solve is started.
    """
    start = time.perf_counter()
    queue = [(run.cost(i), k, i) for k, run in enumerate(runs) for i in run.wanted()]
    heapq.heapify(queue)
    queued = {entry[1:] for entry in queue}
    while queue and time.perf_counter() - start < budget:
        _, k, inner = heapq.heappop(queue)
        run = runs[k]
        run.solve(inner, limit)
        record = run.records[inner]
        print(
            f"{time.perf_counter() - start:7.0f} s  {run.problem.stem}"
            f"  inner {inner}  {record['seconds']:.1f} s  {record['error'] or ''}",
            flush=True,
        )
        for more in run.wanted():
            if (k, more) not in queued:
                queued.add((k, more))
                heapq.heappush(queue, (run.cost(more), k, more))


def merge(runs: list[Run], limit: float, target: Path) -> None:
    """Write the ``.npz`` and ``.json`` files from the scratch folder.

    Args:
        runs: The problems.
        limit: The limit of one solve in seconds, recorded.
        target: Folder of the two files.
    """
    arrays = {key: value for run in runs for key, value in run.arrays().items()}
    path = target / "clerq_reference.npz"
    np.savez_compressed(path, **arrays)
    if path.stat().st_size > SIZE_LIMIT:
        arrays = {key: value.astype(np.complex64) if np.iscomplexobj(value) else value for key, value in arrays.items()}
        np.savez_compressed(path, **arrays)
    content = {
        "versions": {name: importlib.metadata.version(name) for name in ("clerq", "qutip", "numpy", "scipy")},
        "opts": TIGHT,
        "limit_seconds": limit,
        "files": {run.problem.stem: run.report() for run in runs},
    }
    (target / "clerq_reference.json").write_text(json.dumps(content, indent=1) + "\n")
    print(f"{path.name}: {len(arrays)} arrays, {path.stat().st_size} bytes")


def main() -> None:
    """Solve and merge, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders of problems")
    parser.add_argument(
        "--scratch",
        type=Path,
        default=Path(tempfile.gettempdir()) / "clerq_reference",
        help="where finished solves are kept (default: in the temporary folder)",
    )
    parser.add_argument("--limit", type=float, default=360.0, help="seconds a solve")
    parser.add_argument("--budget", type=float, default=2700.0, help="seconds in all")
    parser.add_argument("--target", type=Path, default=HERE, help="output folder")
    parser.add_argument("--merge-only", action="store_true", help="solve nothing")
    options = parser.parse_args()

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    np.seterr(all="ignore")
    options.scratch.mkdir(parents=True, exist_ok=True)
    runs = [Run(problem, options.scratch) for problem in read_problems(options.folders)]
    if not options.merge_only:
        solve_all(runs, options.limit, options.budget)
    merge(runs, options.limit, options.target)


if __name__ == "__main__":
    main()
