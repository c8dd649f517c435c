"""Whole alkali D2 lines, 24 and 36 levels with 51 velocity classes: compile time, run time and memory.

Usage: python -m benchmarks.large_systems [--contraction unrolled | blocks] [--solver SOLVER] [--time FACTOR] [CASE ...]

The light drives every pair of the line that its polarisation allows, from both lower F, whose splitting is left out (a
frame for each); the upper splittings are the true ones, in MHz. A pulse of 2 ns meets a warm vapour on a grid of 150
steps and 12 z-nodes; FACTOR stretches it and its grid. "gradient" is value and gradient of the output energy in the
Rabi frequency, the interaction strength, the detuning and the decay rate. Every case is compiled cold in a process of
its own; compile times include tracing. Writes results/large_systems.json where no option is given.
"""

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jax_kernel import Problem, Resolution, generator, propagate
from jax_kernel.atoms import rubidium85, rubidium87
from jax_kernel.prepare import structure_of

from . import tables

LINES = {"Rb87 D2": rubidium87.d2, "Rb85 D2": rubidium85.d2}
CASES = [f"{line}, {light}" for line in LINES for light in ("sigma+", "linear")]
AT = Resolution(12, 1)
PARAMETERS = ("rabi_freq", "interaction_strengths", "detunings", "decay_rates")


def problem(case: str, stretch: float = 1.0) -> Problem:
    """One of the cases, times in µs and frequencies in MHz."""
    name, light = case.split(", ")
    line = LINES[name]
    lower = [level.F for level in line.levels if not level.upper]
    highest = max(level.energy for level in line.levels if level.upper)
    energies = [level.energy - highest if level.upper else 0.0 for level in line.levels]
    coupled = line.coupling({"linear": "x"}.get(light, light), lower_F=sorted(set(lower)))
    field = coupled | {
        "rabi_freq": 60.0 / stretch,
        "rabi_freq_t_func": "gaussian",
        "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 0.002 * stretch},
    }
    return Problem.from_dict({
        "system": {"num_states": len(energies), "energies": energies, "fields": [field], "decays": [line.decay()],
                   "initial_state": line.populations()},
        "t_min": -0.006 * stretch, "t_max": 0.018 * stretch, "t_steps": 150, "z_min": 0.0, "z_max": 1.0, "z_steps": 20,
        "interaction_strengths": [1e5 / stretch**3],
        "velocity_classes": {"thermal_width": line.thermal_width(330.0), "thermal_delta_min": -600.0,
                             "thermal_delta_max": 600.0, "thermal_delta_steps": 50},
    })  # fmt: skip


def measure(case: str, solver: str, stretch: float) -> dict:
    """Everything about one case."""
    jax.config.update("jax_enable_x64", True)
    built = problem(case, stretch)
    start = time.perf_counter()
    structure = structure_of(built, "")
    row = {
        "case": case,
        "components": structure.num_components,
        "nonzeros": structure.num_terms,
        "contraction": "unrolled" if structure.unrolled else "blocks",
        "structure s": time.perf_counter() - start,
    }
    params = {
        "rabi_freq": jnp.asarray([field.rabi_freq for field in built.fields]),
        "interaction_strengths": jnp.asarray(built.interaction_strengths),
        "detunings": jnp.asarray([field.detuning for field in built.fields]),
        "decay_rates": jnp.asarray([decay.rate for decay in built.decays]),
    }

    def fields(params):
        return propagate(built, params, resolution=AT, tol=1.0, solver=solver).fields

    def energy(params):
        return jnp.sum(jnp.abs(fields(params)[:, -1]) ** 2)

    for name, function in {"forward": fields, "gradient": jax.value_and_grad(energy)}.items():
        start = time.perf_counter()
        compiled = jax.jit(function).lower(params).compile()
        row[f"compile {name} s"] = time.perf_counter() - start
        row[f"temp {name} MiB"] = compiled.memory_analysis().temp_size_in_bytes / 2**20
        times = []
        while len(times) < 2 or (len(times) < 5 and sum(times) < 10):
            start = time.perf_counter()
            out = jax.block_until_ready(compiled(params))
            times.append(time.perf_counter() - start)
        row[f"run {name} s"] = min(times)
        if name == "forward":
            row["transmission"] = float(jnp.sum(jnp.abs(out[:, -1]) ** 2) / jnp.sum(jnp.abs(out[:, 0]) ** 2))
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(out))
    row["peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return row


def table(results: dict) -> str:
    """Times and memory of each case, forward / gradient."""
    head = ["", "components", "nonzeros", "compile (s)", "run (s)", "temporary MiB", "peak MiB"]
    pairs = ("compile {} s", "run {} s", "temp {} MiB")
    rows = [
        [
            row["case"],
            f"{row['components']}",
            f"{row['nonzeros']}",
            *(" / ".join(f"{row[key.format(what)]:.2g}" for what in ("forward", "gradient")) for key in pairs),
            f"{row['peak MiB']:.0f}",
        ]
        for row in results["rows"]
    ]
    return tables.markdown(head, rows)


def main() -> None:
    """Each case in a process of its own, as a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--contraction", choices=("unrolled", "blocks"))
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--time", type=float, default=1.0)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        generator.UNROLLED_LIMIT = {None: generator.UNROLLED_LIMIT, "unrolled": 10**9, "blocks": -1}[given.contraction]
        print(json.dumps(measure(given.cases[0], given.solver, given.time)))
        return
    rows = []
    for case in given.cases:
        options = [argument for argument in sys.argv[1:] if argument not in given.cases]
        command = [sys.executable, "-m", "benchmarks.large_systems", "--one", case, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        rows.append(json.loads(done.stdout))
        print(" | ".join(x if isinstance(x, str) else f"{x:.4g}" for x in rows[-1].values()), flush=True)
    print("columns:", " | ".join(rows[-1]))
    if len(sys.argv) == 1:
        content = {"rows": rows, "jax": jax.__version__, "dtype": "float64", "resolution": dataclasses.asdict(AT)}
        path = Path(__file__).parent / "results" / "large_systems.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
