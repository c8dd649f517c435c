"""scheme="march" through the layer: the kernel's fields and gradients, and its refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import jax_kernel
from jax_kernel import MarchResolution, ProblemError, Resolution, ResolutionError
from tests.conftest import two_level
from tests.torch_clerq.conftest import GRID
from torch_clerq import TorchPropagator, propagate

LIGHT = {"z_min": 0.0, "z_max": 1.0, "rabi_freq": 0.3, "z_steps_inner": 2}
PROBLEM = two_level(**GRID | LIGHT)


def test_forward_and_backward_are_those_of_the_kernel(unwatched):
    layer = TorchPropagator(PROBLEM, scheme="march", trainable=("interaction_strengths", "decay_rates"),
                            dtype=torch.float64)  # fmt: skip
    fields = layer()
    weight = torch.linspace(0, 1, 41, dtype=torch.float64)
    (fields[0, -1].abs() ** 2 * weight).sum().backward()
    assert layer.resolution == MarchResolution(2)
    with jax.enable_x64(True):

        def energy(params):
            light = jax_kernel.propagate(PROBLEM, params, scheme="march", tol=1.0).fields
            return jnp.sum(jnp.abs(light[0, -1]) ** 2 * jnp.linspace(0, 1, 41)), light

        params = {"interaction_strengths": jnp.ones(1), "decay_rates": jnp.ones(1)}
        gradient, expected = jax.grad(energy, has_aux=True)(params)
    np.testing.assert_allclose(fields.detach(), expected, atol=1e-14)
    for name, value in gradient.items():
        np.testing.assert_allclose(getattr(layer, name).grad, value, rtol=1e-12)


def test_options_and_sampled_input(unwatched):
    pulse = torch.exp(-(torch.linspace(-2, 4, 41, dtype=torch.float64) ** 2)).to(torch.complex128)[None] * 0.3
    pulse.requires_grad_()
    problem = two_level(**GRID | LIGHT, args={"ampl": 1.0, "centre": 0.0, "fwhm": 2 * float(np.sqrt(np.log(2)))})
    fields = propagate(problem, pulse, scheme="march", strategy="s4", checkpoints=8, tol=1.0)
    fields[0, -1].abs().square().sum().backward()
    assert torch.all(pulse.grad.abs() > 0)
    constant = propagate(problem, scheme="march", n_steps=81, dtype=torch.float64, tol=1.0)
    assert (fields - constant).abs().max() < 1e-4


def test_solve_estimates_and_searches(unwatched):
    problem = two_level(**GRID | LIGHT | {"z_steps_inner": "auto"})
    layer = TorchPropagator(problem, scheme="march", tol=3e-3, dtype=torch.float64)
    solution = layer.solve(outputs=("populations",))
    assert isinstance(layer.resolution, MarchResolution)
    assert solution.z_error <= 3e-3
    assert solution.time_error is None
    assert solution.populations.shape == (5, 41, 2)


def test_refusals():
    with pytest.raises(ProblemError, match="`resolution` must be a MarchResolution or left out with scheme"):
        TorchPropagator(PROBLEM, scheme="march", resolution=Resolution(8, 1))
    with pytest.raises(ProblemError, match="`n_steps` must be left out unless scheme"):
        TorchPropagator(PROBLEM, n_steps=41)
    with pytest.raises(ProblemError, match="no common divisor"):
        propagate(PROBLEM, scheme="march", n_steps=80)


def test_an_unstable_march_raises():
    problem = two_level(**GRID | LIGHT | {"z_steps_inner": 1}, g=3000.0, envelope="ramp_on",
                        args={"ampl": 1.0, "on": -1.0, "fwhm": 1.0})  # fmt: skip
    with pytest.raises(ResolutionError, match="must stay below 1000 times the peak of the input, but blows up at z = "):
        propagate(problem, scheme="march")
