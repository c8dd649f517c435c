"""Single precision: rows 2, 10 and 11 of the closed forms to 1e-4, without JAX's 64-bit mode."""

import numpy as np

from jax_kernel import Resolution, propagate
from tests.physics import closed_forms, solving, test_linear, test_solitons


def test_weak_transfer():
    row = test_linear.two_level_transfer()
    solution = propagate(row.problem, outputs=("populations",), resolution=Resolution(24, 2), dtype="float32")
    assert solution.fields.dtype == np.complex64
    assert solving.deviation(np.asarray(solution.fields), row.fields()) < 1e-4


def test_damped_rabi_oscillation():
    problem = solving.two_level(solving.constant_pulse(), rabi=1.3, g=0.0, rate=0.5, t_min=0.0, t_max=3.0)
    solution = propagate(problem, outputs=("populations",), resolution=Resolution(24, 2), dtype="float32")
    upper = np.asarray(solution.populations)[4, :, 1]
    assert upper.dtype == np.float32
    np.testing.assert_allclose(
        upper, closed_forms.damped_rabi_oscillation(problem.time, rabi=1.3, rate=0.5), rtol=0, atol=1e-4
    )


def test_soliton():
    row = test_solitons.soliton()
    solution = propagate(row.problem, outputs=("populations",), resolution=Resolution(24, 2), dtype="float32")
    assert solving.deviation(np.asarray(solution.fields), row.fields()) < 1e-4
