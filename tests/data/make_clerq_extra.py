"""What `make_clerq_reference.py` leaves out: clerq's time-grid error, and its autodiff where `solve()` takes too long.

Usage: python make_clerq_extra.py FOLDER [FOLDER ...]

`clerq_extra.npz` holds, at the slices of `clerq_reference.npz` and on the file's own time grid,
    <stem>/time            the coarser run of the reference once more, with twice the time steps (those under a minute),
    bench_lam_unit/fine_time_inner1, 4, 16    with 800 time steps,
    bench_rb87/inner4, inner16, bench_rb87_unit/inner1, inner4, inner16    from `clerq.autodiff` at tight tolerances.
"""

import json
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
from make_clerq_reference import HERE, Problem

FOLDERS = [Path(folder) for folder in sys.argv[1:]]


def definition(stem: str) -> dict:
    unit = stem.endswith("_unit")
    name = f"{stem.removesuffix('_unit')}.json"
    content = json.loads(next(f / name for f in FOLDERS if (f / name).exists()).read_text())
    return content | ({"z_min": 0.0, "z_max": 1.0} if unit else {})


def solve(stem: str, inner: int, refined: int) -> np.ndarray:
    content = definition(stem)
    solver = Problem(stem, content | {"t_steps": content["t_steps"] * refined}, False).solver(inner)
    solver.solve(recalc=True, progress=False)
    return solver.rabi_freqs_zt[:, :, ::refined]


def autodiff(stem: str, inner: int) -> np.ndarray:
    solver = Problem(stem, definition(stem), True).solver(inner)
    return np.asarray(solver.to_autodiff(rtol=1e-10, atol=1e-13).propagate({}))


def main() -> None:
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_x64", True)
    reference = np.load(HERE / "clerq_reference.npz")
    stems = sorted({key.split("/")[0] for key in reference.files})
    jobs = {}
    for stem in (s for s in stems if f"{s}/coarse" in reference.files):
        if reference[f"{stem}/seconds"][0] < 60:
            inner = int(reference[f"{stem}/inner"][0])
            jobs[f"{stem}/time"] = lambda stem=stem, inner=inner: solve(stem, inner, 2)
    for inner in (1, 4, 16):
        jobs[f"bench_lam_unit/fine_time_inner{inner}"] = lambda inner=inner: solve("bench_lam_unit", inner, 4)
        for stem in ("bench_rb87", "bench_rb87_unit"):
            jobs[f"{stem}/inner{inner}"] = lambda stem=stem, inner=inner: autodiff(stem, inner)
    path = HERE / "clerq_extra.npz"
    done = dict(np.load(path)) if path.exists() else {}
    for key, job in jobs.items():
        if key not in done and f"{key}" not in reference.files:
            done[key] = job()[:, reference[f"{key.split('/')[0]}/slices"]]
            np.savez_compressed(path, **done)
            print(key, flush=True)


if __name__ == "__main__":
    main()
