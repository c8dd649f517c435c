"""Far detuned and strongly damped systems: the exponential solver against closed forms and against Runge–Kutta."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import Problem, Resolution, choose_resolution, exponential, propagate, stiffness
from jax_kernel.options import Options
from jax_kernel.parameters import arrange
from tests.physics import closed_forms, solving
from tests.physics.solving import GAUSSIAN, STRENGTH, Row

pytestmark = pytest.mark.usefixtures("x64")

WEAK = 1e-5
SHIFT = 0.5  # of the probe's upper level, by the far-detuned control


def shifted(detuning: float) -> Row:
    """Row 4 on a ladder whose control is far off resonance: it moves the probe's line by control² / 4 detuning."""
    control = float(np.sqrt(4 * detuning * SHIFT))
    numbers = {"g": 2.0, "control": control, "control_detuning": detuning, "rabi": WEAK, "fwhm": 0.5, "centre": 0.0}

    def closed(time, path, g, control, control_detuning, rabi, fwhm, centre):
        nu = closed_forms.frequencies(time)
        exponent = closed_forms.eit_exponent(nu + 0.3, nu + control_detuning, g=g, rate=2.0, control=control,
                                             ground_rate=0.6)  # fmt: skip
        return closed_forms.transmitted(time, rabi * closed_forms.gaussian(time, fwhm, centre), exponent, path)

    pulses = (solving.gaussian_pulse(0.5), solving.constant_control())
    problem = solving.ladder_medium(pulses, rabi=(WEAK, control), g=(2.0, 3.0), detunings=(0.3, detuning), rate=2.0,
                                    upper_rate=0.6, t_min=-1.8, t_max=5.2)  # fmt: skip
    gradient = STRENGTH | GAUSSIAN | {
        "control": lambda gradient: gradient["rabi_freq"][1].real,
        "control_detuning": lambda gradient: gradient["detunings"][1],
    }  # fmt: skip
    return Row(problem, closed, numbers, gradient, Resolution(12, 32))


@pytest.mark.parametrize("detuning", [1e3, 1e4])
def test_light_shift_and_its_gradient(detuning):
    """The shift is most of the line; the steps are the same for any detuning."""
    row = shifted(detuning)
    assert stiffness.resolved(Options(), row.problem, arrange(row.problem, {}, None), None).solver == "exponential"
    solving.check_row(row, fields=1e-6, gradient=1e-3)
    unshifted = row.closed(row.problem.time, solving.path_of(row.problem), **row.numbers | {"control": 0.0})
    assert solving.deviation(unshifted[None], row.fields()) > 0.1


def test_auto_needs_no_more_steps_for_a_larger_splitting():
    """A hundred times the detuning and ten times the control, for the same shift: three times the steps."""
    near, far = (propagate(shifted(detuning).problem).resolution for detuning in (1e3, 1e5))
    assert far.t_substeps <= 4 * near.t_substeps <= 128


def test_strong_decay():
    """Row 2 with Γ·T of 2e3, which is left to Runge-Kutta: the light follows the decay, and no diagonal holds that."""
    rate = 50.0
    numbers = {"g": rate / 2, "rate": rate, "rabi": WEAK, "fwhm": 0.5, "centre": 0.0}

    def closed(time, path, g, rate, rabi, fwhm, centre):
        exponent = closed_forms.two_level_exponent(closed_forms.frequencies(time), g=g, rate=rate)
        return closed_forms.transmitted(time, rabi * closed_forms.gaussian(time, fwhm, centre), exponent, path)

    problem = solving.two_level(solving.gaussian_pulse(0.5), rabi=WEAK, g=rate / 2, rate=rate, t_min=-2.0, t_max=4.0,
                                t_steps=80)  # fmt: skip
    assert stiffness.resolved(Options(), problem, arrange(problem, {}, None), None).solver == "runge-kutta"
    gradient = STRENGTH | solving.RATE | GAUSSIAN
    solving.check_row(Row(problem, closed, numbers, gradient, Resolution(12, 64)), gradient=2e-5)


def doppler_lambda(**settings) -> Problem:
    pulses = (solving.gaussian_pulse(1.0), solving.gaussian_control(1.5, 0.4))
    thermal = {"velocity_classes": {"thermal_width": 0.3, "thermal_delta_min": -0.5, "thermal_delta_max": 0.5,
                                    "thermal_delta_steps": 2}}  # fmt: skip
    return solving.lambda_medium(pulses, rabi=(1.0, 2.0), g=(2.0, 3.0), detunings=(0.2, -0.3), rate=0.8,
                                 ground_rate=0.1, t_min=-2.0, t_max=3.0, t_steps=40, **thermal | settings)  # fmt: skip


def loss_of(problem: Problem, solver: str, at: Resolution, memory: str = "auto"):
    def loss(tree):
        out = propagate(problem, tree, outputs=("density_matrix", "final_state"), solver=solver, resolution=at,
                        memory=memory, tol=1.0)  # fmt: skip
        states = jnp.sum(jnp.abs(out.density_matrix) ** 2) + jnp.sum(jnp.abs(out.final_state[..., 0, 2]) ** 2)
        return jnp.sum(jnp.abs(out.fields[:, -1]) ** 2) + 0.1 * states

    return jax.jit(jax.value_and_grad(loss))


def test_equals_runge_kutta_where_nothing_is_stiff():
    problem = doppler_lambda()
    tree = solving.parameters_of(problem)
    (first, gradient), (second, other) = (
        loss_of(problem, solver, Resolution(10, 12))(tree) for solver in ("runge-kutta", "exponential")
    )
    assert float(second) == pytest.approx(float(first), rel=1e-7)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6 * abs(float(first)))


def test_memory_modes_give_the_same_gradient():
    problem = doppler_lambda()
    tree = solving.parameters_of(problem)
    fast, lean = (loss_of(problem, "exponential", Resolution(8, 2), memory)(tree) for memory in ("fast", "lean"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), fast, lean)


def test_adjoint_is_that_of_jax(monkeypatch):
    problem, at = doppler_lambda(), Resolution(8, 2)
    tree = solving.parameters_of(problem)
    ours = loss_of(problem, "exponential", at)(tree)
    jax.clear_caches()
    plain = lambda args, *, structure, running: exponential._remainder(args, structure, running)[:2]  # noqa: E731
    monkeypatch.setattr(exponential, "remainder", plain)
    theirs = loss_of(problem, "exponential", at, "lean")(tree)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), ours, theirs)


@pytest.mark.parametrize("x", [0.0, 1e-9, 0.999, -1.001, 30.0 - 400.0j, -1e4 + 1e5j])
def test_phi_functions(x):
    """Against the matrix exponential of a Jordan block, whose first row they are."""
    from scipy.linalg import expm

    block = np.diag(np.ones(3, complex), 1)
    block[0, 0] = x
    expected = expm(block)[0] if abs(x) < 100 else None
    found = [complex(value) for value in exponential.phi(jnp.asarray(x, complex))]
    if expected is None:
        expected = [np.exp(x), (np.exp(x) - 1) / x]
        found = found[:2]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_choice_follows_the_values_that_are_given():
    problem = doppler_lambda()

    def chosen(at=None, **params):
        given = arrange(problem, {name: np.asarray(value) for name, value in params.items()}, None)
        return stiffness.resolved(Options(), problem, given, at).solver

    assert chosen() == "runge-kutta"
    assert chosen(detunings=[0.0, 500.0]) == "exponential"
    assert chosen(detunings=[[0.0, 0.0], [0.0, 500.0]]) == "exponential"
    assert chosen(decay_scale=400.0) == "runge-kutta"
    assert chosen(energies=[0.0, 0.0, 1e-3]) == "runge-kutta"
    assert [chosen(Resolution(8, n), detunings=[0.0, 20.0]) for n in (1, 8)] == ["exponential", "runge-kutta"]


def test_the_solver_of_a_search_holds_under_jit():
    """A detuning that is traced cannot be looked at; the resolution knows the solver that it was found with."""
    problem = doppler_lambda()
    far = jnp.asarray([0.0, 0.2, 300.0])
    at = choose_resolution(problem, {"level_detunings": far}, tol=1e-3)
    assert at.solver == "exponential"
    run = jax.jit(lambda x: propagate(problem, {"level_detunings": x}, resolution=at).fields)
    assert jnp.all(jnp.isfinite(run(far)))
