"""What propagation conserves at every z: rows 17 and 18 of the closed forms."""

import numpy as np
import pytest

from jax_kernel import Resolution, propagate
from tests.physics import solving

pytestmark = pytest.mark.usefixtures("x64")

WINDOW = {"t_min": -8.0, "t_max": 6.0, "z_min": 0.0, "z_max": 1.0}


def photons(problem, fields, populations, excitations, decaying):
    """Photons that have passed z, and those that the medium before z has taken up or emitted sideways.

    Args:
        problem: of the default density.
        fields: shape (field, z, time).
        populations: shape (z, time, level).
        excitations: photons absorbed on the way to each level, shape (level,).
        decaying: rate at which each level gives off a photon, shape (level,).
    """
    inside = (problem.z > -1e-9) & (problem.z < 1 + 1e-9)
    fields, populations, path = fields[:, inside], populations[inside], solving.path_of(problem)[inside]
    energy = solving.integral(np.abs(fields) ** 2, problem.time)[..., -1]
    light = np.einsum("fz,f->z", energy, np.pi / (2 * np.array(problem.interaction_strengths)))
    stored = (populations[:, -1] - populations[:, 0]) @ excitations
    lost = solving.integral(2 * np.pi * populations @ decaying, problem.time)[:, -1]
    return light, solving.integral(stored + lost, path)


TWO_LEVEL = solving.two_level(solving.sech_pulse(0.8, 0.4), rabi=1.0, g=0.35, rate=0.05, detuning=0.4, **WINDOW)
V = solving.v_medium(
    [solving.sech_pulse(1.5, 0.4), solving.sech_pulse(0.8, 0.4, 0.5)], rabi=(1.0, 1.0), g=(0.4, 0.6),
    detunings=(0.2, -0.3), rate=0.05, **WINDOW,
)  # fmt: skip
LAMBDA = solving.lambda_medium(
    [solving.gaussian_pulse(0.6), solving.gaussian_control(0.8, 0.5)], rabi=(1.2, 1.6), g=(1.5, 1.0),
    detunings=(0.2, -0.3), rate=0.6, t_min=-1.5, t_max=2.5,
)  # fmt: skip
LADDER = solving.ladder_medium(
    [solving.gaussian_pulse(0.6), solving.gaussian_control(0.8, 0.3)], rabi=(1.2, 1.6), g=(0.3, 0.2),
    detunings=(0.2, -0.3), rate=0.3, upper_rate=0.1, t_min=-1.5, t_max=1.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("problem", "at", "excitations", "decaying"),
    [
        pytest.param(TWO_LEVEL, solving.FINE_TWO_LEVEL, [0, 1], [0, 0.05], id="two-level"),
        pytest.param(V, solving.FINE_V, [0, 1, 1], [0, 0.05, 0.05], id="V"),
        pytest.param(LAMBDA, solving.FINE_LAMBDA, [0, 1, 0], [0, 0.6, 0], id="lambda"),
    ],
)
def test_photon_balance(problem, at, excitations, decaying):
    """Row 17."""
    solved = solving.solve(problem, at)
    light, taken = photons(problem, solved.fields, solved.populations, np.array(excitations), np.array(decaying))
    assert taken[-1] > 0.05 * light[0]
    np.testing.assert_allclose(light + taken, light[0], rtol=1e-6)


def test_photon_balance_of_a_ladder():
    """Row 17, where level 2 holds two photons."""
    solution = propagate(LADDER, outputs=("density_matrix",), resolution=Resolution(12, 1))
    populations = np.diagonal(np.asarray(solution.density_matrix), axis1=-2, axis2=-1).real
    rates = np.array([0, 0.3, 0.1])
    light, taken = photons(LADDER, np.asarray(solution.fields), populations, np.array([0, 1, 2]), rates)
    assert taken[-1] > 0.05 * light[0]
    np.testing.assert_allclose(light + taken, light[0], rtol=1e-6)


def test_density_matrix():
    """Row 18."""
    solution = propagate(LAMBDA, outputs=("density_matrix",), resolution=Resolution(12, 1), tol=1e-3)
    matrix = np.asarray(solution.density_matrix)
    assert np.abs(matrix[-1, :, 0, 2]).max() > 0.1
    np.testing.assert_array_equal(matrix, np.conj(np.swapaxes(matrix, -1, -2)))
    np.testing.assert_allclose(np.trace(matrix, axis1=-2, axis2=-1), 1, rtol=0, atol=1e-12)
    assert np.linalg.eigvalsh(matrix).min() > -1e-7
