"""How everything here is measured: warmed up, blocking, taking turns; medians with bootstrap intervals."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from . import tables

PACKAGES = ("jax", "jaxlib", "diffrax", "equinox", "torch", "clerq", "numpy")
DRAWS = 2000


def arguments(description: str) -> argparse.Namespace:
    """The command line that all scripts share."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer cases and repeats: to see that it runs")
    return parser.parse_args()


def begin(description: str) -> bool:
    """Double precision and no warnings, for this process; whether the run is a quick one."""
    quick = arguments(description).quick
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    return quick


def seconds(call: Callable[[], Any]) -> float:
    """Wall time of one call, with everything it computes."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def samples(
    calls: dict[str, Callable], budget: float, least: int = 5, most: int = 200, warm: bool = False
) -> dict[str, np.ndarray]:
    """Times of each call. After a warm-up, if not yet `warm`, they take turns until about `budget` seconds are spent.

    A round is one call of the slowest and up to ten of the others, so that a fast one is not measured five times only.
    """
    for call in () if warm else calls.values():
        jax.block_until_ready(call())
    once = {name: seconds(call) for name, call in calls.items()}
    slowest = max(once.values())
    repeats = {name: int(np.clip(slowest / (5 * t), 1, 10)) for name, t in once.items()}
    one_round = sum(repeats[name] * t for name, t in once.items())
    order, times = list(calls), {name: [t] for name, t in once.items()}
    for _ in range(int(np.clip(budget / one_round, least, most)) - 1):
        for name in order:
            times[name] += [seconds(calls[name]) for _ in range(repeats[name])]
        order.append(order.pop(0))
    return {name: np.asarray(t) for name, t in times.items()}


def _medians(times: np.ndarray) -> np.ndarray:
    """Medians of samples drawn with replacement."""
    drawn = np.random.default_rng(0).integers(len(times), size=(DRAWS, len(times)))
    return np.median(times[drawn], axis=1)


def summary(times: np.ndarray) -> dict:
    """Median of the times in seconds, its 95 % bootstrap interval, and the number of calls."""
    low, high = np.percentile(_medians(times), [2.5, 97.5])
    return {"median": float(np.median(times)), "interval": [float(low), float(high)], "calls": len(times)}


def ratio(above: np.ndarray, below: np.ndarray) -> dict:
    """Ratio of two medians with its 95 % bootstrap interval."""
    draws = _medians(above) / np.random.default_rng(1).permutation(_medians(below))
    low, high = np.percentile(draws, [2.5, 97.5])
    return {"ratio": float(np.median(above) / np.median(below)), "interval": [float(low), float(high)]}


def compiled(function: Callable, *args) -> tuple[Any, dict]:
    """A jitted function compiled for its arguments; seconds of lowering and compiling, and temporary bytes."""
    start = time.perf_counter()
    lowered = function.lower(*args)
    middle = time.perf_counter()
    executable = lowered.compile()
    end = time.perf_counter()
    temporary = executable.memory_analysis().temp_size_in_bytes
    return executable, {"lower": middle - start, "compile": end - middle, "temp_bytes": int(temporary)}


def error(fields, reference) -> float:
    """Largest deviation of any field at any z and t, relative to that field's peak in the reference."""
    reference = np.asarray(reference)
    peak = np.abs(reference).max((-2, -1), keepdims=True)
    return float(np.max(np.abs(np.asarray(fields) - reference) / peak))


def relative(gradient, reference, params) -> float:
    """Largest deviation of any element of a gradient, relative to the largest element.

    Elements are per relative change of their parameter (per unit where it is zero), which makes them comparable.
    """
    scale = jax.tree.map(lambda p: np.where(np.asarray(p) == 0, 1.0, np.abs(p)), params)
    deviations = jax.tree.map(
        lambda a, b, s: np.max(s * np.abs(np.asarray(a) - np.asarray(b))), gradient, reference, scale
    )
    sizes = jax.tree.map(lambda b, s: np.max(s * np.abs(b)), reference, scale)
    return float(max(jax.tree.leaves(deviations)) / max(jax.tree.leaves(sizes)))


def exponent(sizes, times) -> float:
    """The power of the size with which the time grows: slope of a line through both logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def machine() -> dict:
    """What the numbers were measured on."""
    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"processor": processor, "cores": os.cpu_count(), "system": platform.system(), "load": os.getloadavg()[0]}


def versions() -> dict:
    """Versions of the packages that matter, of those that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write(name: str, results: Any, quick: bool) -> None:
    """Put the results in results/<name>.json, with date, machine and versions; not those of a quick run."""
    if quick:
        return
    content = {
        "date": datetime.date.today().isoformat(),
        "quick": quick,
        "dtype": "float64",
        "machine": machine(),
        "versions": versions(),
        "results": results,
    }
    tables.RESULTS.mkdir(exist_ok=True)
    path = tables.RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def duration(time: float) -> str:
    """Seconds for a table, in the unit that suits them."""
    return f"{time:,.3g} s" if 1 <= time < 100 else f"{time:,.0f} s" if time >= 100 else f"{1e3 * time:.3g} ms"


def median(summary: dict) -> str:
    """A median for a table."""
    return duration(summary["median"])


def times(ratio: dict) -> str:
    """A ratio for a table, with its interval."""
    return f"{ratio['ratio']:.3g}× ({ratio['interval'][0]:.3g}–{ratio['interval'][1]:.3g})"


def number(value: float) -> str:
    """An error for a table."""
    return f"{value:.1e}"


def mib(count: float) -> str:
    """Bytes for a table, in MiB."""
    return f"{count / 2**20:.3g}"
