"""Runs that start from a state and end with one: continued, retrieved from the other end, and differentiated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from jax_kernel import Problem, ProblemError, Resolution, ResolutionError, propagate, states
from jax_kernel.medium import optical_path
from jax_kernel.quadrature import gauss
from tests.physics import closed_forms, solving

pytestmark = pytest.mark.usefixtures("x64")

RESOLUTION = Resolution(32, 4)


def thermal_lambda(t_min: float, t_max: float, t_steps: int, z_steps: int = 56) -> Problem:
    probe = {"coupled_levels": [[0, 1]], "rabi_freq": 1.0} | solving.gaussian_pulse(2.0)
    control = {"coupled_levels": [[2, 1]], "rabi_freq": 1.5} | solving.gaussian_pulse(2.0, 0.5)
    return Problem.from_dict({
        "system": {"num_states": 3, "fields": [probe, control],
                   "decays": [{"rate": 0.3, "channels": [[0, 1], [2, 1]], "factors": [0.7, 0.7]}]},
        "t_min": t_min, "t_max": t_max, "t_steps": t_steps, "z_min": -0.2, "z_max": 1.2, "z_steps": z_steps,
        "interaction_strengths": [2.0, 3.0],
        "velocity_classes": {"thermal_width": 0.1, "thermal_delta_min": -0.2, "thermal_delta_max": 0.2,
                             "thermal_delta_steps": 4},
    })  # fmt: skip


def test_a_run_continues_another():
    """With the medium's ends between the stored positions, too; the spline through them is of eighth order."""
    at = Resolution(32, 8)
    whole = propagate(thermal_lambda(-5.0, 5.0, 200), outputs=("final_state",), resolution=at)
    first = propagate(thermal_lambda(-5.0, 0.5, 110), outputs=("final_state", "density_matrix"), resolution=at)
    second = propagate(thermal_lambda(0.5, 5.0, 90), {"initial_density_matrix": first.final_state},
                       outputs=("final_state",), resolution=at)  # fmt: skip
    assert first.final_state.shape == (57, 5, 3, 3)
    np.testing.assert_allclose(second.fields, whole.fields[..., 110:], atol=1e-6)
    np.testing.assert_allclose(second.final_state, whole.final_state, atol=1e-6)
    weights = thermal_lambda(-5.0, 5.0, 200).doppler_weights
    average = np.einsum("zvij,v->zij", first.final_state, weights)
    np.testing.assert_allclose(average, first.density_matrix[:, -1], atol=1e-13)


DEPTH = 12.5  # d, half the optical depth of 25


def memory() -> Problem:
    """A Λ of optical depth 25 with a constant control that retrieves everything within the window."""
    control = {"label": "control", "coupled_levels": [[2, 1]], "rabi_freq": 3.0} | solving.constant_control()
    return Problem.from_dict({
        "system": {"num_states": 3,
                   "fields": [{"label": "probe", "coupled_levels": [[0, 1]], "rabi_freq": 0.0}, control],
                   "decays": [{"rate": 1.0, "channels": [[0, 1], [2, 1]], "factors": [0.5**0.5, 0.5**0.5]}]},
        "t_max": 6.0, "t_steps": 300, "z_steps": 60, "interaction_strengths": [DEPTH / 2, DEPTH / 2],
    })  # fmt: skip


def kernel(z, other):
    return DEPTH / 2 * np.exp(-DEPTH * (z + other) / 2) * special.iv(0, DEPTH * np.sqrt(z * other))


def best_spin_wave(z: np.ndarray) -> tuple[float, np.ndarray]:
    """The largest eigenvalue of the storage kernel, and its mode at the positions z."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    nodes, weights = (nodes + 1) / 2, weights / 2
    root = np.sqrt(weights)
    values, modes = np.linalg.eigh(root[:, None] * kernel(nodes[:, None], nodes) * root)
    return values[-1], np.abs(kernel(z[:, None], nodes) @ (root * modes[:, -1]) / values[-1])


def test_backward_retrieval_reaches_its_limit():
    """The best mode is retrieved, sent in reversed in time, and what is stored of it retrieved from the other end."""
    problem = memory()
    limit, mode = best_spin_wave(problem.z)
    assert limit**2 == pytest.approx(0.71163, abs=1e-5)
    coherence = 1e-5 * mode[::-1]  # retrieved best from where it lies near the exit
    state = np.zeros((61, 1, 3, 3), complex)
    state[:, 0, 0, 0], state[:, 0, 2, 2] = 1 - coherence**2, coherence**2
    state[:, 0, 0, 2] = state[:, 0, 2, 0] = coherence
    retrieved = propagate(problem, {"initial_density_matrix": state}, resolution=RESOLUTION).fields[0, -1]

    def energy(light):
        return solving.integral(np.abs(np.asarray(light)) ** 2, problem.time)[-1]

    photons = np.pi / DEPTH * energy(retrieved)
    assert photons / solving.integral(coherence**2, problem.z)[-1] == pytest.approx(limit, rel=1e-3)
    light = jnp.conj(retrieved[::-1])
    stored = propagate(
        problem, input_fields={"probe": light}, outputs=("final_state",), resolution=RESOLUTION
    ).final_state
    again = propagate(problem, {"initial_density_matrix": stored[::-1]}, resolution=RESOLUTION).fields[0, -1]
    assert energy(again) / energy(light) == pytest.approx(limit**2, rel=1e-3)


def test_gradient_from_end_to_start():
    """A loss on the end of a second run, in parameters of the first: against differences."""
    first, second = thermal_lambda(-2.0, 0.5, 40, 8), thermal_lambda(0.5, 2.0, 24, 8)

    def loss(params):
        state = propagate(first, params, outputs=("final_state",), resolution=Resolution(10, 4)).final_state
        out = propagate(
            second, {"initial_density_matrix": state}, outputs=("final_state",), resolution=Resolution(10, 4)
        )
        return jnp.sum(jnp.abs(out.fields[0, -1]) ** 2) + jnp.sum(jnp.abs(out.final_state[3, :, 0, 2]) ** 2)

    params = {"rabi_freq": jnp.asarray([1.0, 1.5]), "interaction_strengths": jnp.asarray([2.0, 3.0]),
              "thermal_width": jnp.asarray(0.1)}  # fmt: skip
    loss = jax.jit(loss)
    gradient = jax.grad(loss)(params)
    for name in params:
        found = jnp.sum(gradient[name])
        expected = closed_forms.slope(lambda x, name=name: float(loss(params | {name: params[name] + x})), 0.0, 1e-3)
        assert float(found) == pytest.approx(expected, rel=1e-7)


def test_every_element_of_the_start_has_a_gradient():
    problem, at = thermal_lambda(0.0, 2.0, 20, 8), Resolution(8, 4)
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(9, 5, 3, 3)) + 1j * rng.normal(size=(9, 5, 3, 3))
    state = matrix @ np.conj(np.swapaxes(matrix, -1, -2)) + 4 * np.eye(3)
    state = jnp.asarray(state / np.trace(state, axis1=-2, axis2=-1)[..., None, None])
    change = rng.normal(size=state.shape) + 1j * rng.normal(size=state.shape)
    change = jnp.asarray(change + np.conj(np.swapaxes(change, -1, -2)))

    @jax.jit
    def loss(state):
        out = propagate(problem, {"initial_density_matrix": state}, outputs=("final_state",), resolution=at)
        return jnp.sum(jnp.abs(out.fields) ** 2) + jnp.sum(jnp.real(out.final_state) * jnp.real(change))

    found = float(jnp.real(jnp.sum(jax.grad(loss)(state) * change)))
    expected = closed_forms.slope(lambda x: float(loss(state + x * change)), 0.0, 1e-3)
    assert found == pytest.approx(expected, rel=1e-8)


def test_a_density_that_is_sampled_carries_the_start_with_it():
    """The same medium, once by its profile and once by samples of it."""
    problem, at = thermal_lambda(0.0, 2.0, 20, 8), Resolution(8, 2)
    content = problem.to_dict() | {"z_min": 0.0, "z_max": 1.0}
    problem = Problem.from_dict(content)
    state = np.zeros((9, 1, 3, 3), complex)
    state[:, 0, 0, 0], state[:, 0, 2, 2] = 1 - 0.5 * problem.z**2, 0.5 * problem.z**2
    runs = [
        propagate(problem, {"initial_density_matrix": state} | density, resolution=at, tol=1.0).fields
        for density in ({}, {"number_density": np.ones(9)})
    ]
    np.testing.assert_allclose(*runs, atol=1e-10)


REFUSED = [
    (np.eye(3)[None, None], r"must have trace 1, but has a trace of 3"),
    (
        np.array([[1, 1j, 0], [1j, 0, 0], [0, 0, 0]])[None, None],
        r"must be Hermitian in its levels, but differs .* by 2",
    ),
    (np.diag([1.5, -0.5, 0])[None, None], r"must have populations of at least 0, but has -0\.5"),
    (
        np.diag([1.0, 0, 0]),
        r"must have shape \(\*batch, z, class, level, level\) .* \(9, 5, 3, 3\), where z and class may",
    ),
    (
        np.array([[0.9, 0.5, 0], [0.5, 0.1, 0], [0, 0, 0]])[None, None],
        r"coherences of at most the root .* exceeds it by 0\.2",
    ),
    (np.full((1, 1, 3, 3), np.nan), r"must be finite, but has nan"),
]


@pytest.mark.parametrize(("state", "message"), REFUSED)
def test_what_is_no_density_matrix_is_refused(state, message):
    with pytest.raises(ProblemError, match=message):
        propagate(thermal_lambda(0.0, 2.0, 20, 8), {"initial_density_matrix": state})


def test_two_starts_are_refused():
    problem, state = thermal_lambda(0.0, 2.0, 20, 8), np.diag([1.0, 0, 0])[None, None]
    params = {"initial_density_matrix": state, "initial_state": [1.0, 0, 0]}
    with pytest.raises(ProblemError, match="`initial_state` must be left out where `initial_density_matrix` is given"):
        propagate(problem, params)
    params = {"initial_density_matrix": state, "number_density": np.zeros(9)}
    with pytest.raises(ProblemError, match=r"`number_density` must be positive .* but has 0"):
        propagate(problem, params)


@pytest.mark.parametrize("density", [("gaussian", {"ampl": 1.0, "centre": 0.5, "fwhm": 0.2}),
                                     ("ramp_onoff", {"ampl": 1.0, "on": 0.3, "off": 0.7, "fwhm": 0.2}),
                                     ("square", {"ampl": 1.0, "on": 0.299, "off": 0.7001})])  # fmt: skip
@pytest.mark.parametrize("z_steps", [10, 20, 40, 100])
def test_the_way_to_the_nodes_amplifies_little(density, z_steps):
    """Knots crowd in the optical path where the medium is thin; a spline through all of them would swing by 1e14."""
    name, args = density
    content = thermal_lambda(0.0, 2.0, 20, z_steps).to_dict()
    content |= {"z_min": 0.0, "z_max": 1.0, "num_density_z_func": name, "num_density_z_args": args}
    problem = Problem.from_dict(content)
    path, nodes = optical_path(problem), gauss(16).nodes
    matrix = states.to_nodes(path, nodes)
    assert np.abs(matrix).sum(1).max() < 200
    np.testing.assert_allclose(matrix @ np.ones(z_steps + 1), 1, atol=1e-12)
    np.testing.assert_allclose(matrix @ (path / path[-1]), nodes, atol=1e-9)


def test_an_unstable_state_raises():
    """Without a medium the light says nothing of it."""
    atom = thermal_lambda(0.0, 2.0, 20, 8).to_dict() | {"interaction_strengths": [0.0, 0.0]}
    with pytest.raises(ResolutionError, match=r"`populations` must have elements of at most 1, but has .*`t_substeps`"):
        propagate(Problem.from_dict(atom), {"rabi_freq": np.array([500.0, 500.0])}, outputs=("populations",),
                  resolution=Resolution(4, 1))  # fmt: skip
