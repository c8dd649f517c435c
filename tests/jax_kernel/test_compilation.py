"""Executables are keyed by structure: numbers are arguments."""

import logging

import jax
import numpy as np

from jax_kernel import Resolution, propagate
from tests.conftest import lambda_system


def compilations(caplog, run):
    """How many programs of the kernel are compiled by a call."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        run()
    return sum("Compiling jit(run)" in record.getMessage() for record in caplog.records)


def random_problem(rng):
    return lambda_system(
        probe={"rabi_freq": rng.uniform(0.01, 0.1), "detuning": rng.normal(), "factors": [rng.uniform(0.5, 1)],
               "rabi_freq_t_args": {"ampl": 1.0, "centre": rng.normal() * 0.2, "fwhm": rng.uniform(0.5, 1)}},
        control={"rabi_freq": rng.choice([0.0, 1.0, 2.0]), "detuning": rng.normal()},
        rate=rng.choice([0.0, 1.0]),
        g=rng.uniform(0, 3, 2),
        t_min=-3 - rng.uniform(),
        z_max=rng.uniform(0.5, 2),
        system={"energies": [0, rng.normal(), rng.normal()]},
        velocity_classes={"thermal_delta_min": -1, "thermal_delta_max": 1, "thermal_delta_steps": 4,
                          "thermal_width": rng.uniform(0.3, 1)},
    )  # fmt: skip


def test_hundred_problems_of_one_structure_compile_once(caplog):
    rng = np.random.default_rng(0)

    def solve_hundred():
        results = [
            np.asarray(propagate(random_problem(rng), resolution=Resolution(7, 3), tol=1.0).fields) for _ in range(100)
        ]
        assert len({r.tobytes() for r in results}) == 100

    assert compilations(caplog, solve_hundred) == 1


def test_another_shape_compiles_again(caplog):
    problem = lambda_system(t_steps=90)
    assert compilations(caplog, lambda: propagate(problem, resolution=Resolution(5, 1), tol=1.0)) == 1
    assert compilations(caplog, lambda: propagate(problem, resolution=Resolution(5, 1), tol=1.0)) == 0
    assert compilations(caplog, lambda: propagate(problem, resolution=Resolution(6, 1), tol=1.0)) == 1
