"""How long does the very first call take, in a fresh process, without and with JAX's compilation cache?

Usage: python -m benchmarks.first_call [--quick]

Every first call runs in a process of its own, after its imports, which are timed apart; it is compile and run, and the
preparation on the host. "cached" is the second process that uses one cache folder. clerq.autodiff is beside it, cold.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from .tables import markdown

TARGET = 1.5


def one(peer: str, name: str, what: str) -> None:
    """Print imports and first call of this process, in seconds."""
    start = time.perf_counter()
    import jax

    jax.config.update("jax_enable_x64", True)
    if peer == "clerq":
        import clerq  # noqa: F401
    from . import cases, measure

    case = cases.CASES[name]
    _ = case.params, jax.block_until_ready(jax.numpy.zeros(1))
    imported = time.perf_counter()
    calls = (cases.theirs if peer == "clerq" else cases.ours)(case)
    first = measure.seconds(calls[what])
    print(json.dumps({"imports": imported - start, "first": time.perf_counter() - imported, "call": first}))


def fresh(peer: str, name: str, what: str, cache: str | None) -> dict:
    """The seconds of one fresh process."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    if cache is not None:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.first_call", "--one", peer, name, what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def measured(name: str, quick: bool) -> dict:
    """Cold and cached first calls of one problem; medians of three processes, of clerq of one."""
    result = {}
    for what in ("forward", "pulse"):
        repeats = 1 if quick else 3
        with tempfile.TemporaryDirectory() as cache:
            cold = [fresh("kernel", name, what, None) for _ in range(repeats)]
            fresh("kernel", name, what, cache)
            cached = [fresh("kernel", name, what, cache) for _ in range(repeats)]
        runs = {"cold": cold, "cached": cached}
        if not (quick and what == "forward"):
            runs["clerq"] = [fresh("clerq", name, what, None)]
        result[what] = {
            which: {key: float(np.median([run[key] for run in of])) for key in of[0]} for which, of in runs.items()
        }
    return result


def table(results: dict) -> str:
    """First calls in seconds, by what is called."""
    rows = []
    for title, of in results.items():
        for what, first in of.items():
            clerq = first.get("clerq")
            gain = f"{clerq['first'] / first['cold']['first']:.1f}×" if clerq else ""
            rows.append(
                [
                    f"{title}, {'gradient' if what == 'pulse' else what}",
                    f"{first['cold']['imports']:.1f} s",
                    f"{first['cold']['first']:.2f} s",
                    f"{first['cached']['first']:.2f} s",
                    f"{clerq['first']:.1f} s" if clerq else "",
                    gain,
                ]
            )
    rows.append(["**target**", "", "", f"≤ {TARGET} s", "", "≥ 8× (gradient)"])
    return markdown(["", "imports", "cold", "cached", "clerq.autodiff, cold", "cold, gain"], rows)


def main() -> None:
    if "--one" in sys.argv:
        one(*sys.argv[-3:])
        return
    from . import cases, measure

    quick = measure.begin(__doc__)
    results = {case.title: measured(case.name, quick) for case in cases.chosen(quick)}
    print(table(results))
    measure.write("first_call", results, quick)


if __name__ == "__main__":
    main()
