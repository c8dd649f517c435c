"""Driven atoms and strong steady light: rows 7, 9 and 10 of the closed forms, and square pulses."""

import numpy as np
import pytest
from scipy.special import jv

from jax_kernel import Resolution, propagate
from tests.physics import closed_forms, solving
from tests.physics.solving import DETUNING, FINE_TWO_LEVEL, RABI, RATE, STRENGTH

pytestmark = pytest.mark.usefixtures("x64")


def driven_atoms(pulse=None, *, rabi, **settings):
    """Atoms in light that they do not change; from t = 0 where the light is constant."""
    window = {"t_min": 0.0, "t_max": 3.0} if pulse is None else {"t_min": -2.0, "t_max": 2.0}
    return solving.two_level(pulse or solving.constant_pulse(), rabi=rabi, g=0.0, **window, **settings)


@pytest.mark.parametrize(
    ("settings", "closed", "gradient"),
    [
        pytest.param({"detuning": 0.6}, closed_forms.rabi_oscillation, RABI | DETUNING, id="9"),
        pytest.param({"rate": 0.5}, closed_forms.damped_rabi_oscillation, RABI | RATE, id="10"),
    ],
)
def test_populations(settings, closed, gradient):
    """Rows 9 and 10."""
    numbers = {"rabi": 1.3} | settings
    solved = solving.solve(driven_atoms(**numbers), FINE_TWO_LEVEL)
    upper = np.broadcast_to(closed(solved.time, **numbers), solved.populations.shape[:-1])
    np.testing.assert_allclose(solved.populations[..., 1], upper, rtol=0, atol=1e-7)
    np.testing.assert_allclose(solved.populations[..., 0], 1 - upper, rtol=0, atol=1e-7)

    weights = np.zeros(solved.populations.shape)
    weights[3, :, 1] = solved.time
    pulled = solved.pull_back(None, weights)
    found = {name: at(pulled) for name, at in gradient.items()}
    solving.assert_derivatives(found, lambda name, x: solved.time @ closed(solved.time, **numbers | {name: x}), numbers)


@pytest.mark.parametrize("phase", [1.0, np.exp(0.7j)])
def test_population_follows_the_area(phase):
    """Row 9 on resonance for a pulse of any envelope: sin²(θ/2), whatever the light's phase."""
    problem = driven_atoms(solving.sech_pulse(2.7, 0.1), rabi=phase)
    populations = solving.solve(problem, FINE_TWO_LEVEL).populations
    area = 2.7 * 2 * np.arctan(np.exp(problem.time / 0.1))
    np.testing.assert_allclose(populations[5, :, 1], np.sin(area / 2) ** 2, rtol=0, atol=1e-7)


def test_saturated_absorption():
    """Row 7: constant resonant light of twice the saturating intensity, for 6: e^{−πγ·6} = 4e-17."""
    numbers = {"g": 2.0, "rate": 2.0, "rabi": 2.0}
    problem = solving.two_level(solving.constant_pulse(), t_min=0.0, t_max=6.0, **numbers)
    solved = solving.solve(problem, FINE_TWO_LEVEL)
    np.testing.assert_allclose(solved.fields[0, :, -1], closed_forms.saturated(solved.path, **numbers), atol=1e-8)

    cotangent = np.zeros(solved.fields.shape)
    cotangent[0, -1, -1] = 1.0
    gradient = solved.pull_back(cotangent)
    found = {name: at(gradient) for name, at in (STRENGTH | RATE | RABI).items()}
    solving.assert_derivatives(found, lambda name, x: closed_forms.saturated(1.0, **numbers | {name: x}), numbers)


def square_problem(steps: int, rabi: float):
    pulse = {"rabi_freq_t_func": "square", "rabi_freq_t_args": {"ampl": 1.0, "on": 0.1 + 0.4 / 80, "off": 1.008}}
    return solving.two_level(pulse, rabi=rabi, g=1.0, t_min=0.0, t_max=2.0, t_steps=steps)


def test_square_between_grid_times():
    """Edges between the times of the grid cost no accuracy: a grid that has them agrees, and so does row 8."""
    off_grid = propagate(square_problem(80, 1.5), resolution=Resolution(24, 10))
    on_grid = propagate(square_problem(2000, 1.5), resolution=Resolution(24, 1))
    assert off_grid.time_error < 1e-7
    np.testing.assert_allclose(off_grid.fields, on_grid.fields[..., ::25], rtol=0, atol=1e-6)

    weak = 1e-5
    solution = propagate(square_problem(80, weak), resolution=Resolution(24, 10))
    assert solution.time_error < 1e-7
    path, time = solving.path_of(square_problem(80, weak))[:, None], np.asarray(solution.time)
    since = [np.maximum(time - edge, 0) for edge in (0.105, 1.008)]
    steps = [jv(0, 2 * np.sqrt(2 * np.pi * path * t)) * (t > 0) for t in since]
    assert solving.deviation(np.asarray(solution.fields), weak * (steps[0] - steps[1])) < 1e-6
