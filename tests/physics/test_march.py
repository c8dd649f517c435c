"""scheme="march" against the discrete recursion that it is (row 19 of the closed forms) and against clerq 0.15."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import Problem, Resolution, propagate
from tests.conftest import two_level
from tests.physics import closed_forms

DATA = Path(__file__).parents[1] / "data"
TIGHT = {"scheme": "march", "rtol": 1e-10, "atol": 1e-13, "tol": 1e3}
WEAK = 1e-6  # saturates the atoms by (Ω/γ)²
GAMMA = 2.0


def deviation(fields, others):
    """Largest difference of any field, relative to its own peak."""
    peak = np.max(np.abs(others), axis=(1, 2))
    return float(np.max(np.max(np.abs(fields - others), axis=(1, 2)) / peak))


def linear_problem(inner: int, t_steps: int) -> Problem:
    return two_level(args={"ampl": 1.0, "centre": 0.0, "fwhm": 0.5}, rabi_freq=WEAK, rate=GAMMA, g=2.0, detuning=0.3,
                     t_min=-2.0, t_max=4.0, t_steps=t_steps, z_steps=4, z_steps_inner=inner)  # fmt: skip


def recursion(problem: Problem, g, step: str):
    """Row 19 in JAX, for `linear_problem`: the light at the stored positions, shape (z, time − 1)."""
    time = problem.time[:-1]
    entrance = jnp.asarray(WEAK * closed_forms.gaussian(time, 0.5, 0.0), complex)
    frequency = jnp.asarray(closed_forms.frequencies(problem.time))
    decay = jax.lax.complex(jnp.full_like(frequency, GAMMA / 2), frequency + 0.3)
    absorbed = jax.lax.complex(g, 0.0 * g) / decay / (problem.z_steps * problem.z_steps_inner)
    light = [jnp.fft.fft(entrance)]
    for j in range(problem.z_steps * problem.z_steps_inner):
        second_order = step == "ab" and j > 0
        light.append(light[-1] - absorbed * (1.5 * light[-1] - 0.5 * light[-2] if second_order else light[-1]))
    return jnp.fft.ifft(jnp.stack(light[:: problem.z_steps_inner]))


@pytest.mark.parametrize("step", ["ab", "euler"])
def test_is_the_discrete_recursion_and_its_gradient(step, x64):
    problem = linear_problem(2, 1200)
    late = jnp.asarray(problem.time[:-1] - problem.t_min)

    def energy(light):
        return jnp.sum(late * jnp.abs(light[-1] / WEAK) ** 2)

    def marched(g):
        options = {"rtol": 1e-10, "atol": 1e-19, "tol": 1.0, "step": step}
        fields = propagate(problem, {"interaction_strengths": g[None]}, scheme="march", **options).fields[0, :, :-1]
        return energy(fields), fields

    g = jnp.asarray(2.0)
    (_, fields), slope = jax.value_and_grad(marched, has_aux=True)(g)
    expected = recursion(problem, g, step)
    assert deviation(np.asarray(fields)[None], np.asarray(expected)[None]) < 1e-8
    exact = jax.grad(lambda g: energy(recursion(problem, g, step)))(g)
    assert abs(float(slope / exact) - 1) < 1e-8


def test_converges_to_the_continuum_in_second_order_with_the_estimate_above_the_error(x64):
    time = linear_problem(1, 200).time
    entrance = WEAK * closed_forms.gaussian(time, 0.5, 0.0)
    frequency = closed_forms.frequencies(time)
    exponent = closed_forms.two_level_exponent(frequency, g=2.0, rate=GAMMA, detuning=0.3)
    exact = closed_forms.transmitted(time, entrance, exponent, np.linspace(0, 1, 5))
    errors = []
    for inner in (2, 4, 8):
        s = propagate(linear_problem(inner, 200), scheme="march", rtol=1e-9, atol=1e-17, tol=1.0)
        light = np.asarray(s.fields)[0]
        errors.append(np.max(np.abs(light[:, : exact.shape[-1]] - exact)) / WEAK)
        assert errors[-1] < float(s.z_error) < 30 * errors[-1]
    assert 3 < errors[0] / errors[1] < 5
    assert 3 < errors[1] / errors[2] < 5


REFERENCE = np.load(DATA / "clerq_reference.npz")
EXTRA = np.load(DATA / "clerq_extra.npz")


@pytest.mark.parametrize(
    ("name", "unit", "inner", "within"),
    [
        ("bench_lam", False, 1, 1e-7),
        ("bench_lam", True, 4, 1e-7),
        ("bench_two_level", False, 1, 1e-8),
        ("bench_two_level", True, 1, 1e-8),
        ("bench_rb87", False, 1, 1e-8),
        ("bench_rb87", False, 4, 1e-8),
    ],
)
def test_agrees_with_clerq(name, unit, inner, within, problem_file, x64):
    """With solve() at rtol 1e-10, atol 1e-12; with clerq.autodiff where that takes too long (Rb87, 4 inner steps)."""
    content = json.loads(problem_file(name).read_text()) | {"z_steps_inner": inner}
    content |= {"z_min": 0.0, "z_max": 1.0} if unit else {}
    stem = f"{name}_unit" if unit else name
    key = f"{stem}/inner{inner}"
    theirs = EXTRA[key] if key in EXTRA.files else REFERENCE[key]
    fields = np.asarray(propagate(Problem.from_dict(content), **TIGHT).fields)[:, REFERENCE[f"{stem}/slices"]]
    assert deviation(fields, theirs) < within


@pytest.mark.filterwarnings("ignore")  # clerq's own
@pytest.mark.parametrize("step", ["ab", "euler"])
def test_agrees_with_clerq_here(step, problem_file, x64):
    """solve() and autodiff, live, on fewer slices of the Λ problem; populations at z_min, which clerq averages."""
    clerq = pytest.importorskip("clerq")
    content = json.loads(problem_file("bench_lam").read_text()) | {"z_steps": 10, "z_steps_inner": 3}
    solver = clerq.PropagationSolver(
        **content, savefile=None, opts={"atol": 1e-13, "rtol": 1e-11, "nsteps": 100_000, "max_step": 0.01}
    )
    solver.solve(step=step, progress=False)
    problem = Problem.from_dict(content)
    solution = propagate(problem, **TIGHT, step=step, outputs=("populations", "coherences"))
    fields = np.asarray(solution.fields)
    assert deviation(fields, solver.rabi_freqs_zt) < 1e-7
    theirs = np.real(np.einsum("tii->ti", solver.states_zt[0]))  # the class average at index 0 alone
    assert np.max(np.abs(solution.populations[0] - theirs)) < 1e-9
    if step == "ab":
        with jax.numpy_dtype_promotion("standard"):
            automatic = np.asarray(solver.to_autodiff(rtol=1e-10, atol=1e-13, max_steps=10**6).propagate())
        assert deviation(fields, automatic) < 1e-7


@pytest.mark.filterwarnings("ignore")
def test_light_against_the_march_is_marched_forwards_as_in_clerq(x64):
    clerq = pytest.importorskip("clerq")
    fields = [
        {"coupled_levels": [[0, 1]], "rabi_freq": 1e-3, "rabi_freq_t_func": "gaussian",
         "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 1.0}},
        {"coupled_levels": [[2, 1]], "rabi_freq": 2.0, "counter_propagating": True, "rabi_freq_t_func": "ramp_on",
         "rabi_freq_t_args": {"ampl": 1.0, "on": -2.0, "fwhm": 0.5}},
    ]  # fmt: skip
    content = {
        "system": {"num_states": 3, "fields": fields, "decays": [{"rate": 1.0, "channels": [[0, 1], [2, 1]]}]},
        "t_min": -3.0, "t_max": 4.0, "t_steps": 70, "z_steps": 6, "z_steps_inner": 1,
        "interaction_strengths": [2.0, 2.0],
        "velocity_classes": {"thermal_delta_min": -0.5, "thermal_delta_max": 0.5, "thermal_delta_steps": 2},
    }  # fmt: skip
    theirs = clerq.PropagationSolver(
        **json.loads(json.dumps(content)), opts={"atol": 1e-12, "rtol": 1e-10, "nsteps": 100_000}
    )
    theirs.solve(progress=False)
    ours = propagate(Problem.from_dict(content), **TIGHT)
    assert deviation(np.asarray(ours.fields), theirs.rabi_freqs_zt) < 1e-7


def test_states_are_the_class_average_at_the_stored_positions(x64):
    """Those of the cross scheme, to the error in z; clerq's are of the last class alone, and one step before."""
    classes = {"thermal_delta_min": -1, "thermal_delta_max": 1, "thermal_delta_steps": 2, "thermal_width": 0.6}
    problem = two_level(rabi_freq=0.5, z_min=0.0, z_max=1.0, z_steps=4, z_steps_inner=32, velocity_classes=classes)
    outputs = ("density_matrix", "populations", "coherences")
    marched = propagate(problem, scheme="march", outputs=outputs)
    crossed = propagate(problem, outputs=outputs, resolution=Resolution(16, 8))
    for name in (*outputs, "fields"):
        difference = np.max(np.abs(getattr(marched, name) - getattr(crossed, name)))
        assert difference < 2e-4, name
    np.testing.assert_allclose(jnp.sum(marched.populations, -1), 1, atol=1e-9)
