"""Every output with respect to every parameter, by torch's own gradcheck, with either solver of the fixed grid.

Two problems share the parameters between them, for some take the place of others.
"""

import pytest
import torch

from jax_kernel import Resolution
from jax_kernel.parameters import PARAMETERS
from jax_kernel.propagate import STATE_OUTPUTS
from tests.conftest import lambda_system
from torch_clerq import functional

AT = Resolution(6, 2)
OUTPUTS = ("fields", *STATE_OUTPUTS)
USUAL = ("detunings", "initial_state")
INSTEAD = ("level_detunings", "level_doppler_slopes", "initial_density_matrix")
PROBLEM = lambda_system(
    probe={"rabi_freq": 0.8, "detuning": 0.3},
    control={"rabi_freq": 1.1},
    system={"b_field": {"magnitude": 0.3, "g_F": [0.5, -0.3, 1.0], "m_F": [1, 0, -1]}},
    velocity_classes={"thermal_delta_min": -0.8, "thermal_delta_max": 0.8, "thermal_delta_steps": 2,
                      "thermal_width": 0.6},
    t_min=-1.0, t_max=1.0, t_steps=10, z_steps=2,
)  # fmt: skip


def starts():
    rng = torch.Generator().manual_seed(0)

    def random(*shape, dtype=torch.complex128):
        return torch.randn(shape, dtype=dtype, generator=rng)

    values = {
        "input_fields": 0.5 * random(11),
        "pulse_args": torch.tensor(0.9),
        "rabi_freq": torch.tensor([0.8 + 0.2j, 1.1j]),
        "interaction_strengths": torch.tensor([1.4, 0.6]),
        "detunings": torch.tensor([0.3, -0.2]),
        "decay_scale": torch.tensor(0.9),
        "decay_rates": torch.tensor([0.7]),
        "b_field": torch.tensor(0.3),
        "energies": torch.tensor([0.1, 0.3, -0.2]),
        "number_density": torch.tensor([0.9, 1.2, 0.7]),
        "thermal_width": torch.tensor(0.7),
        "initial_state": torch.tensor([1.0, -0.5, 0.3]),
        "initial_density_matrix": random(3, 3, 3, 3),
        "level_detunings": torch.tensor([0.1, 0.3, -0.2]),
        "level_doppler_slopes": torch.tensor([0.1, -1.0, 0.6]),
    }
    wide = {False: torch.float64, True: torch.complex128}
    return {name: value.to(wide[value.is_complex()]).requires_grad_() for name, value in values.items()}


def solved(solver, names, tensors):
    """The outputs; a state at the start is made of numbers that have no rule to obey."""
    given = dict(zip(names, tensors, strict=True))
    if "initial_state" in given:
        given["initial_state"] = torch.softmax(given["initial_state"], -1)
    if "initial_density_matrix" in given:
        root = given["initial_density_matrix"]
        square = root @ root.mH
        given["initial_density_matrix"] = square / square.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    given["pulse_args"] = {"probe": {"fwhm": given["pulse_args"]}}
    samples = {"control": given.pop("input_fields")}
    found = functional.Request(PROBLEM, samples, given, dtype=None, tol=None, solver=solver).run(AT, frozenset(OUTPUTS))
    tie = 0 * sum(x.abs().sum() for x in found.values())  # one program for the gradients of all outputs
    return tuple(found[name] + tie for name in OUTPUTS)


@pytest.mark.parametrize(
    ("solver", "left_out"),
    [
        pytest.param("runge-kutta", INSTEAD, id="fields and populations"),
        pytest.param("runge-kutta", USUAL, id="levels and matrices"),
        pytest.param("exponential", USUAL, id="exponential"),
    ],
)
def test_gradcheck(solver, left_out):
    values = {name: value for name, value in starts().items() if name not in left_out}
    assert set(values) | set(left_out) == {*PARAMETERS, "input_fields"}
    names, tensors = list(values), tuple(values.values())

    def outputs(*tensors):
        return solved(solver, names, tensors)

    for name, out in zip(OUTPUTS, outputs(*tensors), strict=True):
        weights = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
        slopes = torch.autograd.grad(out, tensors, weights, retain_graph=True)
        for parameter, slope in zip(names, slopes, strict=True):
            assert slope.abs().max() > 1e-3, f"d {name} / d {parameter}"  # nothing would be checked
    assert torch.autograd.gradcheck(outputs, tensors, atol=1e-6, rtol=1e-5, fast_mode=True)
