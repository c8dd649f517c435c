"""What does a call from PyTorch cost beyond a direct call of the compiled JAX function?

Usage: python -m benchmarks.bridge_overhead [--quick]  (quick: fewer rounds, and nothing is written)

The function is x sin x in float32. The bridges and JAX itself, with arrays of its own, take turns in every round, in an
order that rotates; a round is the mean of several calls. Times are medians over rounds, ratios are to JAX in the same
rounds, intervals are bootstraps over rounds (95 %). Where other processes run, threads wait for one another, and the
ratio of the fastest tenths of the rounds comes nearer to a quiet machine's. JAX's forward + backward is a call of the
jitted function and one of its jitted vjp. First calls, which compile, are kept apart. Then of ours alone: traces and
executables over calls whose values, layouts and views change, resident memory over many calls, and the pointers on both
sides. Writes results/bridge_overhead.json and the tables of docs/bridge.md.
"""

import argparse
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch

from torch_clerq.bridge import exchange, functions, jax_function

from . import tables
from .peers import jax2torch_patched, torch_jax_interop

SIZES = {"1 KB": 256, "1 MB": 262_144, "100 MB": 26_214_400}
CALLS = {"1 KB": 20, "1 MB": 3, "100 MB": 1}
ROUNDS = {"1 KB": 400, "1 MB": 100, "100 MB": 20}
TARGETS = {("1 KB", "forward"): 4.0, ("1 KB", "forward + backward"): 6.0}
TARGETS |= {("100 MB", what): 1.1 for what in ("forward", "forward + backward")}
BRIDGES = {"torch_clerq": jax_function, "jax2torch, patched": jax2torch_patched, "torch_jax_interop": torch_jax_interop}
MODULES = {"jax2torch, patched": "jax2torch", "torch_jax_interop": "torch_jax_interop"}
PACKAGES = ("jax", "torch", "jax2torch", "torch_jax_interop")
MIB = 2**20


def missing() -> list[str]:
    """The peers that are not installed."""
    return [name for name, module in MODULES.items() if importlib.util.find_spec(module) is None]


def toy(x):
    return jnp.sin(x) * x


def directly(size: int) -> dict[str, Callable]:
    """JAX's own calls."""
    forward = jax.jit(toy)
    transposed = jax.jit(lambda x, cotangent: jax.vjp(toy, x)[1](cotangent)[0])
    x, cotangent = jnp.linspace(0.0, 1.0, size), jnp.ones(size)

    def both():
        forward(x).block_until_ready()
        transposed(x, cotangent).block_until_ready()

    return {"forward": lambda: forward(x).block_until_ready(), "forward + backward": both}


def bridged(bridge: Callable, size: int) -> dict[str, Callable]:
    """The same through a bridge."""
    fn, x, cotangent = bridge(toy), torch.linspace(0, 1, size), torch.ones(size)
    leaf = x.clone().requires_grad_()
    return {
        "forward": lambda: fn(x),
        "forward + backward": lambda: torch.autograd.grad(fn(leaf), leaf, cotangent),
    }


def seconds(call: Callable, calls: int = 1) -> float:
    """Mean time of a call."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def interval(values: np.ndarray) -> list[float]:
    return [float(v) for v in np.percentile(values, [2.5, 97.5])]


def compare(size: str, quick: bool) -> dict:
    """Times of one size, by what is called and by whom."""
    there = {name: bridge for name, bridge in BRIDGES.items() if name not in missing()}
    calls = {"JAX": directly(SIZES[size])} | {name: bridged(b, SIZES[size]) for name, b in there.items()}
    rounds = max(8, ROUNDS[size] // 10) if quick else ROUNDS[size]
    results = {}
    for what in ("forward", "forward + backward"):
        run = {name: group[what] for name, group in calls.items()}
        first = {name: seconds(call) for name, call in run.items()}
        for call in run.values():
            seconds(call, CALLS[size])
        order, times = list(run), {name: [] for name in run}
        gc.collect()
        gc.disable()
        for _ in range(rounds):
            for name in order:
                times[name].append(seconds(run[name], CALLS[size]))
            order.append(order.pop(0))
        gc.enable()
        samples = {name: np.asarray(t) for name, t in times.items()}
        drawn = np.random.default_rng(0).integers(rounds, size=(2000, rounds))
        medians = {name: np.median(t[drawn], 1) for name, t in samples.items()}
        results[what] = {
            name: {
                "first_call": first[name],
                "median": float(np.median(t)),
                "median_interval": interval(medians[name]),
                "ratio": float(np.median(t) / np.median(samples["JAX"])),
                "ratio_interval": interval(medians[name] / medians["JAX"]),
                "ratio_of_fastest_tenths": float(np.percentile(t, 10) / np.percentile(samples["JAX"], 10)),
            }
            for name, t in samples.items()
        }
    return results


LAYOUTS = (
    lambda base: base[:12, :8],
    lambda base: base[:8, :12].T,
    lambda base: base[:, ::2][:12, :8],
    lambda base: base[0, :8].expand(12, 8),
    lambda base: base.flatten()[1:97].view(12, 8),
    lambda base: torch.complex(base, base).conj().imag[:12, :8],
    lambda base: base[:12, :8].clone(),
)


def stability(calls: int) -> dict:
    """Traces and executables over calls whose values, layouts and views change, forward and backward."""
    traces, seen, made = [], set(), functions.executable

    def fn(x):
        traces.append(x)
        return jnp.sin(x) * x

    def recorded(function):
        seen.add(made(function))
        return made(function)

    bridged, sizes = jax_function(fn), []
    functions.executable = recorded
    try:
        for k in range(calls):
            x = LAYOUTS[k % len(LAYOUTS)](torch.randn(16, 16)).requires_grad_()
            cotangent = LAYOUTS[(k // 7) % len(LAYOUTS)](torch.randn(16, 16))
            torch.autograd.grad(bridged(x), x, cotangent)
            sizes.append((len(traces), sum(one.jitted._cache_size() for one in seen)))
    finally:
        functions.executable = made
    return {
        "calls": calls,
        "traces": {"first call": sizes[0][0], "after all": sizes[-1][0]},
        "executables": {"first call": sizes[0][1], "after all": sizes[-1][1]},
    }


def resident() -> float:
    """Resident memory of this process in MiB."""
    try:
        import psutil

        return psutil.Process().memory_info().rss / MIB
    except ModuleNotFoundError:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def memory(calls: int, settle: int = 500) -> dict:
    """Growth of the resident memory over calls forward and backward, after the first ones."""
    fn, at = jax_function(toy), {}
    for k in range(calls + 1):
        if k in (settle, calls):
            gc.collect()
            at[k] = resident()
        x = LAYOUTS[k % len(LAYOUTS)](torch.randn(16, 16)).requires_grad_()
        fn(x).square().sum().backward()
    return {"calls": calls, "after": settle, "resident_MiB": at[calls], "growth_MiB": at[calls] - at[settle]}


def pointers() -> dict[str, bool]:
    """By dtype: whether every array of a call forward and backward has the memory of its tensor."""
    results = {}
    read, write = exchange.to_jax, exchange.to_torch
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        pairs = []

        def to_jax(tensor, pairs=pairs):
            array = read(tensor)
            pairs.append((tensor.data_ptr(), array.unsafe_buffer_pointer()))
            return array

        def to_torch(array, device=None, pairs=pairs):
            tensor = write(array, device)
            pairs.append((tensor.data_ptr(), array.unsafe_buffer_pointer()))
            return tensor

        exchange.to_jax, exchange.to_torch = to_jax, to_torch
        try:
            x = torch.ones(1000, dtype=dtype, requires_grad=True)
            y = jax_function(toy)(x)
            (gradient,) = torch.autograd.grad(y, x, torch.ones(1000, dtype=dtype))
        finally:
            exchange.to_jax, exchange.to_torch = read, write
        at_hand = {one for one, _ in pairs} >= {x.data_ptr(), y.data_ptr(), gradient.data_ptr()}
        results[str(dtype).removeprefix("torch.")] = at_hand and all(one == other for one, other in pairs)
    return results


def shown(value: float, low: float, high: float) -> str:
    return f"{value:.2f} ({low:.2f}–{high:.2f})"


def times_table(times: dict) -> str:
    """JAX's own time, the ratios to it, and the targets."""
    rows = []
    for size, group in times.items():
        for what, peers in group.items():
            present = [peers.get(name) for name in BRIDGES]
            cells = [shown(peer["ratio"], *peer["ratio_interval"]) if peer else "not installed" for peer in present]
            target = TARGETS.get((size, what))
            goal = f"≤ {target:g}" if target else ""
            fastest = f"{peers['torch_clerq']['ratio_of_fastest_tenths']:.2f}"
            cells.insert(1, fastest)
            rows.append([f"{size}, {what}", f"{1e6 * peers['JAX']['median']:,.1f} µs", *cells, goal])
    ours, *others = (f"{name}, × JAX" for name in BRIDGES)
    return tables.markdown(["", "JAX itself", ours, "its fastest tenth", *others, "target of ours"], rows)


def facts_table(stable: dict, grown: dict, shared: dict) -> str:
    """What is counted."""
    traces, executables = stable["traces"], stable["executables"]
    copied = [name for name, there in shared.items() if not there]
    rows = [
        [
            f"traces: first call, after {stable['calls']:,}",
            f"{traces['first call']}, {traces['after all']}",
        ],
        [
            f"executables: first call, after {stable['calls']:,}",
            f"{executables['first call']}, {executables['after all']}",
        ],
        [
            f"growth of resident memory from call {grown['after']} to call {grown['calls']:,}",
            f"{grown['growth_MiB']:.1f} MiB",
        ],
        ["arrays that are copies, of " + ", ".join(shared), ", ".join(copied) or "none"],
    ]
    return tables.markdown(["ours", ""], rows)


def table(results: dict) -> str:
    """Both tables, from what is stored."""
    facts = facts_table(results["stability"], results["memory"], results["zero_copy"])
    return times_table(results["times"]) + "\n\n" + facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and nothing is written")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    if missing():
        sentence = f"Not installed: {', '.join(missing())} (pip install '.[bench]')."
        if not quick:
            sys.exit(sentence)
        print(sentence)
    before = os.getloadavg()[0]
    if before > 0.5:
        print(f"Other processes run (load {before:.1f}): their turns are in the times.")
    stable, shared = stability(200 if quick else 1000), pointers()
    grown = memory(1500 if quick else 10_000)
    times = {size: compare(size, quick) for size in SIZES}
    results = {"times": times, "stability": stable, "memory": grown, "zero_copy": shared}
    text = table(results)
    print(text)
    if quick:
        return
    content = {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "load": [before, os.getloadavg()[0]]},
    } | results
    tables.RESULTS.mkdir(exist_ok=True)
    (tables.RESULTS / "bridge_overhead.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    tables.render("docs/bridge.md", "overhead", text)


if __name__ == "__main__":
    main()
