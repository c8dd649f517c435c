"""Every shared problem file against clerq 0.15, within clerq's own errors; and clerq's convergence towards us.

clerq's fields were computed once at tight tolerances, see tests/data/make_clerq_reference.py and make_clerq_extra.py.
What is allowed is twice the sum of its errors, each measured: `step`, how far two z-resolutions differ; `grid`, how far
two time grids differ (its later slices are driven by a spline through the time grid); `edge`, what one inner step more
or less of medium at either end changes, where the density jumps between its steps.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import Problem, ProblemError, Resolution, propagate

DATA = Path(__file__).parents[1] / "data"
REFERENCE, EXTRA = np.load(DATA / "clerq_reference.npz"), np.load(DATA / "clerq_extra.npz")
RESOLUTIONS = {stem: Resolution(*at) for stem, at in json.loads((DATA / "resolutions.json").read_text()).items()}
STEMS = sorted(key.removesuffix("/fine") for key in REFERENCE.files if key.endswith("/fine"))
UNRESOLVED_BY_CLERQ = {
    "mbs-Rb87_5s12_5p12_F11_q1-sech-2pi",
    "tests_bench_mb_solve__LAMBDA_EIT",
    "tests_json__mb_solve_lamda",
}


def deviation(fields, others):
    """Largest difference of any field, relative to its own peak."""
    peak = np.max(np.abs(fields), axis=(1, 2))
    return np.max(np.max(np.abs(fields - others), axis=(1, 2)) / np.maximum(peak, 1e-9 * np.max(peak)))


def solved(problem, stem, params=None):
    """The converged fields, shape (field, z, time)."""
    solution = propagate(problem, params, resolution=RESOLUTIONS[stem])
    assert max(float(solution.z_error), float(solution.time_error)) <= 1e-6
    return np.asarray(solution.fields)


@pytest.mark.parametrize("stem", STEMS)
def test_agrees_with_clerq(stem, problem_file, x64):
    problem = Problem.from_json(problem_file(stem))
    fields = solved(problem, stem)
    assert np.all(np.isfinite(fields))
    if stem in UNRESOLVED_BY_CLERQ:
        return
    slices = REFERENCE[f"{stem}/slices"]
    coarse, fine, ours = REFERENCE[f"{stem}/coarse"], REFERENCE[f"{stem}/fine"], fields[:, slices]
    allowed = deviation(fine, coarse)
    if f"{stem}/time" in EXTRA.files:
        allowed += deviation(fine, fine - coarse + EXTRA[f"{stem}/time"])
    density = dict(problem.number_density.args)
    if problem.number_density.name == "square" and (problem.z_min < density["on"] or density["off"] < problem.z_max):
        step = (problem.z_max - problem.z_min) / (problem.z_steps * REFERENCE[f"{stem}/inner"][-1])
        longer = jnp.asarray(1 + 2 * step / (min(problem.z_max, density["off"]) - max(problem.z_min, density["on"])))
        allowed += deviation(ours, solved(problem, stem, {"number_density": longer})[:, slices])
    assert deviation(fine, ours) <= 2 * allowed + 1e-5


@pytest.mark.parametrize(("name", "last"), [("bench_two_level", 3e-3), ("bench_lam", 3e-4), ("bench_rb87", 3e-4)])
def test_clerq_converges_towards_us(name, last, problem_file, x64):
    fields = solved(Problem.from_json(problem_file(name)), name)[:, REFERENCE[f"{name}/slices"]]
    runs = [clerq(f"{name}/inner{inner}") for inner in (1, 4, 16)]
    errors = [deviation(fields, run) for run in runs]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < last
    if name == "bench_rb87":  # relative to the control's peak, not to the probe's own
        assert np.max(np.abs(runs[2] - fields)) / np.max(np.abs(fields)) < 1e-4


@pytest.mark.parametrize(("name", "floor"), [("bench_two_level", 2e-5), ("bench_lam", 2e-5), ("bench_rb87", 1e-5)])
def test_clerq_is_second_order_where_the_density_ends_on_its_steps(name, floor, problem_file, x64):
    content = json.loads(problem_file(name).read_text()) | {"z_min": 0.0, "z_max": 1.0}
    kind = "fine_time_inner" if name == "bench_lam" else "inner"
    first, second, third = (clerq(f"{name}_unit/{kind}{inner}") for inner in (1, 4, 16))
    assert 12 < deviation(second, first) / deviation(third, second) < 24
    fields = solved(Problem.from_dict(content), name)[:, REFERENCE[f"{name}_unit/slices"]]
    assert deviation(fields, third) < floor  # where clerq's time grid ends its convergence


def clerq(key):
    return EXTRA[key] if key in EXTRA.files else REFERENCE[key]


@pytest.mark.parametrize("stem", ["tests_json__field-square-0", "tests_json__field-square-1", "tests_json__ob_atom_02"])
def test_what_is_no_problem_is_refused(stem, problem_file):
    with pytest.raises(ProblemError, match="must define a problem"):
        Problem.from_json(problem_file(stem))


@pytest.mark.parametrize(
    "stem", ["mbs-lambda-adiabatons__mbs-lambda-adiabatons-intuitive", "plotting__plotting-two-level"]
)
def test_auto_finds_a_resolution(stem, problem_file, x64):
    solution = propagate(Problem.from_json(problem_file(stem)))
    assert max(float(solution.z_error), float(solution.time_error)) <= 1e-6
    assert solution.resolution.t_substeps == RESOLUTIONS[stem].t_substeps


@pytest.mark.filterwarnings("ignore")  # clerq's own
@pytest.mark.parametrize("stem", ["mbs-linear-absorption__mbs-linear-absorption-ng1-decay", "tests_json__mb_solve_01"])
def test_the_stored_fields_are_those_of_clerq_here(stem, problem_file):
    solver_of = pytest.importorskip("clerq").PropagationSolver
    content = json.loads(problem_file(stem).read_text())
    inner = int(REFERENCE[f"{stem}/inner"][0])
    tight = {"opts": {"atol": 1e-12, "rtol": 1e-10, "nsteps": 100_000}, "savefile": None, "z_steps_inner": inner}
    solver = solver_of(**(content | tight))
    solver.solve(progress=False)
    fields = solver.rabi_freqs_zt[:, REFERENCE[f"{stem}/slices"]]
    assert deviation(fields, REFERENCE[f"{stem}/coarse"]) < 1e-7
