"""Driven systems without a medium: no `interaction_strengths`, the light as it was, and the states of clerq."""

import json
import warnings

import numpy as np
import pytest
import torch

from jax_kernel import Problem, Resolution, propagate
from tests.physics import closed_forms, solving
from tests.physics.solving import RABI, RATE
from torch_clerq import TorchPropagator

AT = Resolution(6, 16)
OUTPUTS = ("density_matrix", "populations", "coherences")


@pytest.mark.parametrize("stem", ["tests_json__ob_solve_02", "tests_json__obs-two-two-fields"])
def test_states_are_those_of_clerq(stem, problem_file, x64):
    clerq = pytest.importorskip("clerq")
    content = json.loads(problem_file(stem).read_text())
    problem = Problem.from_dict(content)
    assert problem.interaction_strengths == (0.0, 0.0)
    tight = {"opts": {"rtol": 1e-9, "atol": 1e-11, "nsteps": 100_000}}
    window = {key: content[key] for key in ("t_max", "t_steps")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = clerq.LindbladSolver(system=content["atom"], **window, **tight).solve(save=False)

    solution = propagate(problem, outputs=OUTPUTS, resolution=AT)
    assert float(solution.time_error) < 1e-7
    for at_z in np.asarray(solution.density_matrix):
        np.testing.assert_allclose(at_z, expected, rtol=0, atol=1e-6)
    populations = np.diagonal(expected, axis1=1, axis2=2).real
    np.testing.assert_allclose(solution.populations[-1], populations, rtol=0, atol=1e-6)
    for coherence, field in zip(np.asarray(solution.coherences), problem.fields, strict=True):
        ((a, b),) = field.coupled_levels
        np.testing.assert_allclose(coherence[-1], expected[:, a, b], rtol=0, atol=1e-6)
        assert np.abs(coherence).max() > 0.1
    np.testing.assert_array_equal(solution.fields, np.asarray(solution.fields)[:, :1].repeat(len(problem.z), 1))
    assert np.abs(solution.fields).max() >= 5


def single_atom(rabi=1.3, rate=0.5) -> Problem:
    field = {"coupled_levels": [[0, 1]], "rabi_freq": rabi} | solving.constant_pulse()
    system = {"num_states": 2, "fields": [field], "decays": [{"rate": rate, "channels": [[0, 1]]}]}
    return Problem.from_dict({"system": system, "t_max": 3.0, "t_steps": 60, "z_steps": 1})


def test_damped_rabi_oscillation(x64):
    """Row 10 and its slopes."""
    numbers = {"rabi": 1.3, "rate": 0.5}
    solved = solving.solve(single_atom(), AT)
    upper = closed_forms.damped_rabi_oscillation(solved.time, **numbers)
    np.testing.assert_allclose(solved.populations[..., 1], [upper, upper], rtol=0, atol=1e-7)
    np.testing.assert_allclose(solved.fields, 1.3, rtol=1e-12)
    weights = np.zeros(solved.populations.shape)
    weights[1, :, 1] = solved.time
    pulled = solved.pull_back(None, weights)
    found = {name: float(at(pulled)) for name, at in (RABI | RATE).items()}

    def objective(name, value):
        return solved.time @ closed_forms.damped_rabi_oscillation(solved.time, **numbers | {name: value})

    solving.assert_derivatives(found, objective, numbers)


def test_losses_on_every_state_output_have_gradients_in_torch():
    layer = TorchPropagator(single_atom(), dtype=torch.float64, resolution=Resolution(4, 8), tol=1)

    def losses(rabi_freq, decay_rates, detunings):
        solution = layer.solve(outputs=OUTPUTS, rabi_freq=rabi_freq, decay_rates=decay_rates, detunings=detunings)
        seen = (solution.density_matrix[-1, 3::19], solution.populations[-1, 3::19], solution.coherences[0, -1, 3::19])
        tie = 0 * sum(x.abs().sum() for x in seen)  # one program for the gradients of all outputs
        return tuple(x.abs().square().sum() + tie for x in seen)

    starts = tuple(torch.tensor([x], dtype=torch.float64, requires_grad=True) for x in (1.3, 0.5, 0.2))
    assert torch.autograd.gradcheck(losses, starts, atol=1e-7, rtol=1e-5)
    for loss in losses(*starts):
        assert min(slope.abs() for slope in torch.autograd.grad(loss, starts, retain_graph=True)) > 1e-3
