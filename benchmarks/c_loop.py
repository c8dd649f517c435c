"""How far is the kernel from the same algorithm as one fused C loop? One problem, and each of a batch of 64 pulses.

Usage: python -m benchmarks.c_loop [--quick]

The loop is generated from the terms of the generator's structure and compiled by gcc for this processor, with
-ffast-math. It does the integration alone, from the drive at every stage to the source at every step; `propagate`
also evaluates pulses and reads fields out, so that its integrator is measured by itself, too. Targets: one problem at
most 4 times the loop, each of 64 at most twice.
"""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_kernel import Resolution, integrate, parameters, prepare, program, pulses, quadrature
from jax_kernel.integrate import STAGE_A, STAGE_B, STAGE_C
from jax_kernel.options import Options

from . import c_source, cases, measure
from .cases import Case
from .tables import markdown

BATCH = 64
AT = {"Λ": Resolution(24, 1), "two-level": Resolution(64, 1), "Rb87": Resolution(16, 1)}
FLAGS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")
NO_COMPILER = "gcc is not there, so that there is no C loop to compare with."


class Inner(NamedTuple):
    """What the kernel integrates: the static program, its arrays, and the numbers of the generator."""

    program: Any
    numbers: dict
    params: dict
    coefficients: Any
    path: Any


def inner(case: Case, at: Resolution) -> Inner:
    """The kernel's own preparation. With `integrator` the only place that knows its insides."""
    problem = case.problem
    options = Options(dtype="float64", solver="runge-kutta")
    edges = tuple(() for _ in problem.fields)
    static, numbers = prepare.prepare(problem, at, options, frozenset({"fields"}), (), edges, "")
    params = prepare.to_arrays(parameters.defaults(problem), "float64")
    params = parameters.merge(problem, parameters.arrange(problem, {}, None), params)
    path, total = program.scaled_path(numbers, params["number_density"])
    return Inner(static, numbers, params, program.coefficients_of(static, numbers, params, total), path)


def integrator(case: Case, at: Resolution, batch: int | None = None):
    """A call of the kernel's integrator alone, of one pulse or of a batch of them."""
    static, numbers, params, coefficients, _ = inner(case, at)
    state = jnp.asarray(start(case, static.structure, len(coefficients.weights), at.z_nodes))
    running = jnp.asarray(quadrature.gauss(at.z_nodes).running)
    inputs = integrate.Inputs(coefficients, state, program._at_stages(static, numbers, params, numbers["steps"]))
    setup = integrate.Setup(
        static.structure, want_average=False, want_slopes=False, store_stages=False, fused=static.fused
    )
    run = jax.jit(lambda i: integrate.integrate(i, setup=setup, running=running, h=numbers["steps"]["h"]).seen.source)
    if batch is None:
        return lambda: run(inputs)
    many = inputs._replace(drive=inputs.drive * jnp.linspace(0.5, 1.0, batch)[:, None, None, None, None, None])
    axes = integrate.Inputs(None, None, 0)
    run_all = jax.jit(jax.vmap(run, in_axes=(axes,)))
    return lambda: run_all(many)


def start(case: Case, structure, classes: int, z_nodes: int) -> np.ndarray:
    """The packed state at t_min, shape (component, class, z)."""
    state = np.zeros((structure.num_components, classes, z_nodes))
    for k, level in enumerate(structure.populations):
        state[k] = case.problem.initial_state[level]
    return state


def step_edges(time: np.ndarray, t_substeps) -> np.ndarray:
    """Where steps start and end: intervals of the time grid divided, or several of them together."""
    if t_substeps < 1:
        together = round(1 / t_substeps)
        return np.append(time[:-1:together], time[-1])
    parts = np.arange(int(t_substeps)) / t_substeps
    return np.append((time[:-1, None] + np.diff(time)[:, None] * parts).ravel(), time[-1])


def drive_at(case: Case, times: np.ndarray) -> np.ndarray:
    """Ω of every field at the entrance, real and imaginary part, shape (*time, field, 2)."""
    rows = [
        complex(field.rabi_freq) * np.asarray(pulses.evaluate(field.envelope.name, args, jnp.asarray(times)))
        for field, args in zip(case.problem.fields, case.params["pulse_args"], strict=True)
    ]
    omega = np.stack(rows, -1)
    return np.ascontiguousarray(np.stack([omega.real, omega.imag], -1))


def loop(case: Case, at: Resolution, folder: str):
    """A call of the C loop, and the fields that it finds with the times of its steps."""
    static, _, _, coefficients, path = inner(case, Resolution(at.z_nodes, 1))
    structure, rule = static.structure, quadrature.gauss(at.z_nodes)
    initial = start(case, structure, len(coefficients.weights), at.z_nodes)
    source = Path(folder) / f"{case.file}.c"
    source.write_text(c_source.code(structure, *initial.shape[1:]), encoding="utf-8")
    subprocess.run(["gcc", *FLAGS, "-o", str(source.with_suffix(".so")), str(source), "-lm"], check=True)
    library = ctypes.CDLL(str(source.with_suffix(".so")))
    edges = step_edges(np.asarray(case.problem.time), at.t_substeps)
    h = np.diff(edges)
    drive = drive_at(case, edges[:-1, None] + h[:, None] * STAGE_C)
    seen = np.zeros((len(h), structure.num_fields, 2, at.z_nodes))
    names = ("rotation", "damping", "transfer", "factors", "coupling", "weights")
    constants = [np.ascontiguousarray(getattr(coefficients, name)) for name in names]
    constants += [np.ascontiguousarray(x) for x in (rule.running.T, STAGE_A, STAGE_B)]
    state, slope = np.empty_like(initial), np.empty_like(initial)
    arrays = [ctypes.c_void_p(x.ctypes.data) for x in (drive, h, state, slope, seen, *constants)]

    def run() -> np.ndarray:
        state[:], slope[:] = initial, 0
        library.run(ctypes.c_int(len(h)), *arrays)
        return seen

    def fields() -> tuple[np.ndarray, np.ndarray]:
        inside = run() @ np.asarray(quadrature.read_out(rule, path)[0]).T
        whole = drive_at(case, edges[:-1])[..., None] + inside
        return np.moveaxis(whole[:, :, 0] + 1j * whole[:, :, 1], 0, -1), edges[:-1]

    run.kept = (drive, h, constants)  # their memory is that of `arrays`
    return run, fields


def deviation(case: Case, at: Resolution, fields, times) -> float:
    """Largest difference between the fields of the loop and of the kernel where both are known, of the peak."""
    grid = np.asarray(case.problem.time)
    indices = np.minimum(np.searchsorted(grid, times - 1e-9), len(grid) - 1)
    shared = np.abs(grid[indices] - times) < 1e-9
    kernel = np.asarray(cases.forward(case, at)(case.params))
    return measure.error(np.asarray(fields)[..., shared], kernel[..., indices[shared]])


def measured(case: Case, quick: bool) -> dict:
    """Times of the loop, of the kernel, of its integrator, and of 64 problems at once."""
    at = AT[case.name]
    with tempfile.TemporaryDirectory() as folder:
        run, fields = loop(case, at, folder)
        batched = case.params | {"rabi_freq": case.params["rabi_freq"] * jnp.linspace(0.5, 1.0, BATCH)[:, None]}
        forward = cases.forward(case, at)
        calls = {
            "loop": run,
            "forward": lambda: forward(case.params),
            "integrator": integrator(case, at),
            "batch": lambda: forward(batched),
            "batch, integrator": integrator(case, at, BATCH),
        }
        difference = deviation(case, at, *fields())
        times = measure.samples(calls, 1 if quick else 10)
    for name in ("batch", "batch, integrator"):
        times[name] = times[name] / BATCH
    return {
        "title": case.title,
        "resolution": cases.label(at),
        "difference": difference,
        "times": {name: measure.summary(t) for name, t in times.items()},
        "ratio": {name: measure.ratio(t, times["loop"]) for name, t in times.items() if name != "loop"},
    }


def table(results: dict | None) -> str:
    """The kernel over the loop."""
    if not results:
        return NO_COMPILER
    names = ("forward", "integrator", "batch", "batch, integrator")
    rows = [
        [
            f"{of['title']}, {of['resolution']}",
            measure.median(of["times"]["loop"]),
            *(f"{measure.median(of['times'][name])}, {measure.times(of['ratio'][name])}" for name in names),
            measure.number(of["difference"]),
        ]
        for of in results.values()
    ]
    rows.append(["**target**", "", "≤ 4×", "", "≤ 2×", "", ""])
    head = [
        "forward",
        "C loop",
        "`propagate`, × loop",
        "integrator alone",
        f"each of {BATCH}",
        f"integrator, each of {BATCH}",
    ]
    return markdown([*head, "difference of the fields"], rows)


def main() -> None:
    quick = measure.begin(__doc__)
    results = None
    if shutil.which("gcc"):
        results = {case.name: measured(case, quick) for case in cases.chosen(quick)}
    print(table(results))
    measure.write("c_loop", results, quick)


if __name__ == "__main__":
    main()
