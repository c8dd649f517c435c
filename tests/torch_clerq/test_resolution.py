"""What a layer's searched resolution holds for: the states that are asked for, and the solver of the search."""

import torch

from tests.conftest import lambda_system, two_level
from torch_clerq import TorchPropagator

F64 = torch.float64


def test_auto_is_searched_on_for_states():
    """A driven atom without a medium: the light says nothing of the resolution that its populations need."""
    problem = two_level(rate=None, g=0.0, envelope="square", args={"ampl": 1.0, "on": -9.0, "off": 9.0}, rabi_freq=2.0,
                        t_min=0.0, t_max=1.0, t_steps=10)  # fmt: skip
    module = TorchPropagator(problem, dtype=F64)
    module()
    assert module.resolution.t_substeps < 1
    for outputs in (("final_state",), ("populations",)):
        solution = TorchPropagator(problem, dtype=F64).solve(outputs=outputs)
        assert solution.time_error < 1e-6
    populations = module.solve(outputs=("populations",)).populations
    expected = torch.sin(2 * torch.pi * module.time) ** 2
    assert torch.allclose(populations[0, :, 1], expected, atol=1e-6)
    assert module.resolution.t_substeps > 4
    found = module.resolution
    module()
    assert module.resolution == found


def test_the_solver_stays_that_of_the_search():
    """A far level that a dark control couples; the search takes Runge-Kutta steps, and so do the calls after it."""
    problem = lambda_system(control={"rabi_freq": 0.0}, system={"level_detunings": [0.0, 0.0, 15.0]})
    module = TorchPropagator(problem, dtype=F64)
    first = module()
    assert module.resolution.solver == "runge-kutta"
    assert torch.equal(module(), first)
