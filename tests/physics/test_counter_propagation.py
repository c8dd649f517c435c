"""Light that enters at z_max: against its mirror image, closed forms, the photon balance and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import Problem, ProblemError, Resolution, propagate
from tests.physics import closed_forms, solving

pytestmark = pytest.mark.usefixtures("x64")

WEAK = 1e-5


def raman(*, counter: bool, z_steps: int = 400) -> Problem:
    """A Λ without decay whose control, from the other end, loses most of its photons."""
    probe = {"coupled_levels": [[0, 1]], "rabi_freq": 1.0} | solving.gaussian_pulse(2.0)
    control = {"coupled_levels": [[2, 1]], "rabi_freq": 0.4, "counter_propagating": counter}
    return Problem.from_dict({
        "system": {"num_states": 3, "fields": [probe, control | solving.gaussian_pulse(2.0, 0.5)],
                   "initial_state": [0.2, 0.0, 0.8]},
        "t_min": -5.0, "t_max": 6.0, "t_steps": 200, "z_steps": z_steps, "interaction_strengths": [0.6, 2.0],
    })  # fmt: skip


def test_a_field_from_the_other_end_is_the_mirror_image():
    fields = []
    for counter in (False, True):
        light = {"coupled_levels": [[0, 1]], "rabi_freq": 0.8, "counter_propagating": counter}
        problem = Problem.from_dict({
            "system": {"num_states": 2, "fields": [light | solving.gaussian_pulse(1.0)],
                       "decays": [{"rate": 1.0, "channels": [[0, 1]]}]},
            "t_min": -3.0, "t_max": 5.0, "z_min": -0.2, "z_max": 1.2, "z_steps": 14, "interaction_strengths": [3.0],
        })  # fmt: skip
        fields.append(np.asarray(propagate(problem, resolution=Resolution(24, 4)).fields))
    np.testing.assert_allclose(fields[1][:, ::-1], fields[0], atol=1e-14)


def test_photon_balance_with_most_of_the_light_gone():
    """Row 17, for each field apart: what it loses on its way is what its lower level has lost."""
    problem = raman(counter=True)
    solution = propagate(problem, outputs=("populations",), tol=1e-8)
    fields, populations = np.asarray(solution.fields), np.asarray(solution.populations)
    strengths = np.asarray(problem.interaction_strengths)[:, None]
    photons = np.pi / 2 / strengths * solving.integral(np.abs(fields) ** 2, problem.time)[..., -1]
    changes = populations[:, -1] - populations[:, 0]
    gained = [solving.integral(changes[:, level], problem.z) for level in (0, 2)]
    assert photons[1, 0] < 0.5 * photons[1, -1]
    assert np.ptp(photons[0] - gained[0]) < 1e-6 * photons[0, 0]
    assert np.ptp(photons[1] + gained[1]) < 1e-6 * photons[1, -1]


def test_gradient_of_a_depleted_counter_propagating_field():
    problem, at = raman(counter=True, z_steps=4), Resolution(32, 6)

    def energy(params):
        fields = propagate(problem, params, resolution=at).fields
        return jnp.sum(jnp.abs(fields[0, -1]) ** 2) + 2 * jnp.sum(jnp.abs(fields[1, 0]) ** 2)

    params = {"rabi_freq": jnp.asarray([1.0, 0.4]), "interaction_strengths": jnp.asarray([0.6, 2.0]),
              "detunings": jnp.asarray([0.1, -0.2]), "energies": jnp.asarray([0.0, 0.05, 0.0])}  # fmt: skip
    direction = jax.tree.map(lambda x: jnp.linspace(0.3, 1.0, x.size), params)
    gradient = jax.grad(energy)(params)
    found = sum(jnp.vdot(gradient[name], direction[name]) for name in params)

    def along(step):
        return float(energy(jax.tree.map(lambda x, d: x + step * d, params, direction)))

    assert closed_forms.slope(along, 0.0, 1e-3) == pytest.approx(float(found), rel=1e-8)


def test_doppler_shift_has_the_other_sign():
    """Row 6 on a ladder: by clerq's rule the slopes of the levels are −1 and, for a counter-propagating control, +1."""
    problem = Problem.from_dict({
        "system": {"num_states": 3, "decays": [{"rate": 2.0, "channels": [[0, 1]]},
                                               {"rate": 0.8, "channels": [[1, 2]]}],
                   "fields": [{"coupled_levels": [[0, 1]], "rabi_freq": WEAK} | solving.gaussian_pulse(0.5),
                              {"coupled_levels": [[1, 2]], "rabi_freq": 1.5, "counter_propagating": True}
                              | solving.constant_control()]},
        "t_min": -1.8, "t_max": 5.2, "t_steps": 280, "z_steps": 4, "interaction_strengths": [2.0, 2.0],
    } | {"velocity_classes": solving.thermal(0.4, 1.8)["velocity_classes"]})  # fmt: skip
    exponent = closed_forms.doppler_eit_exponent(
        closed_forms.frequencies(problem.time), g=2.0, rate=2.0, control=1.5, ground_rate=0.8, thermal_width=0.4,
        slopes=(-1.0, 1.0),
    )  # fmt: skip
    entrance = WEAK * closed_forms.gaussian(problem.time, 0.5)
    closed = closed_forms.transmitted(problem.time, entrance, exponent, problem.z)
    fields = np.asarray(propagate(problem, resolution=Resolution(12, 4)).fields)
    assert solving.deviation(fields, closed) < 2e-6
    wrong = closed_forms.doppler_eit_exponent(
        closed_forms.frequencies(problem.time), g=2.0, rate=2.0, control=1.5, ground_rate=0.8, thermal_width=0.4,
        slopes=(-1.0, -1.0),
    )  # fmt: skip
    assert solving.deviation(fields, closed_forms.transmitted(problem.time, entrance, wrong, problem.z)) > 1e-2


def test_two_opposite_fields_on_one_pair_are_refused():
    fields = [{"coupled_levels": [[0, 1]]}, {"coupled_levels": [[0, 1]], "counter_propagating": True}]
    with pytest.raises(
        ProblemError, match=r"fields\[1\]\.counter_propagating` must be false .*grating.* true for \[0, 1\]"
    ):
        Problem.from_dict({"system": {"num_states": 2, "fields": fields}, "interaction_strengths": [1.0, 1.0]})
