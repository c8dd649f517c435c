"""Problems with other values of their parameters."""

import numpy as np
import pytest

from jax_kernel import Problem, ProblemError
from tests.conftest import lambda_system, two_level


def test_values_take_their_places():
    problem = lambda_system(velocity_classes={"thermal_width": 0.5, "thermal_delta_min": -1.0, "thermal_delta_max": 1.0,
                                              "thermal_delta_steps": 4})  # fmt: skip
    other = problem.updated(
        rabi_freq=[0.1, 3.0], detunings=np.array([0.2, -0.1]), decay_rates=[0.7], energies=[0.0, 1.0, 2.0],
        initial_state=[0.5, 0.0, 0.5], interaction_strengths=[1.0, 4.0], thermal_width=0.25,
        pulse_args={"probe": {"centre": 0.5}},
    )  # fmt: skip
    assert [light.rabi_freq for light in other.fields] == [0.1, 3.0]
    assert [light.detuning for light in other.fields] == [0.2, -0.1]
    assert (other.decays[0].rate, other.energies, other.initial_state) == (0.7, (0.0, 1.0, 2.0), (0.5, 0.0, 0.5))
    assert (other.interaction_strengths, other.thermal_width) == ((1.0, 4.0), 0.25)
    assert dict(other.fields[0].envelope.args) == {"ampl": 1.0, "centre": 0.5, "fwhm": 1.0}
    assert problem.updated() == problem


def test_factors_come_last_whatever_the_order():
    problem = two_level()
    one = problem.updated(decay_scale=2.0, decay_rates=[3.0], number_density=0.5, interaction_strengths=[8.0])
    other = problem.updated(interaction_strengths=[8.0], number_density=0.5, decay_rates=[3.0], decay_scale=2.0)
    assert one == other
    assert (one.decays[0].rate, one.interaction_strengths) == (6.0, (4.0,))


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"decay_rate": [1.0]}, "did you mean `decay_rates`"),
        ({"decay_rates": [1.0, 2.0]}, r"`decay_rates` must have shape \(\*batch, decay\) with \(decay\) = \(1,\)"),
        ({"decay_rates": [[1.0], [2.0]]}, "no batch axes"),
        ({"decay_rates": [-1.0]}, "be nonnegative"),
        ({"decay_scale": [1.0, 2.0]}, "be one number"),
        ({"number_density": np.ones(9)}, "be one number"),
        ({"initial_density_matrix": np.diag([1.0, 0.0])[None, None]}, "has no place for it"),
        ({"b_field": 1.0}, "without a `b_field`"),
        ({"thermal_width": 1.0}, "without velocity classes"),
        ({"pulse_args": [{"area": 1.0}]}, "area"),
        ({"pulse_args": []}, "has length 0"),
        ({"interaction_strengths": ["x"]}, "real numbers"),
    ],
)
def test_what_has_no_place_is_refused(params, says):
    with pytest.raises(ProblemError, match=says):
        two_level().updated(**params)


def test_detunings_that_would_be_ignored_are_refused():
    content = two_level().to_dict()
    content["system"]["level_detunings"] = [0.0, 0.5]
    with pytest.raises(ProblemError, match="detunings"):
        Problem.from_dict(content).updated(detunings=[1.0])


def test_a_width_of_one_is_a_width():
    """clerq writes atoms at rest as velocity classes that are all defaults; a user's own block is no such thing."""
    own = two_level(velocity_classes={"thermal_width": 1.0})
    assert own.velocity_classes is not None
    assert own.updated(thermal_width=0.5).thermal_width == 0.5
    clerqs = {f"thermal_delta_{part}{edge}": 0 for part in ("", "inner_") for edge in ("min", "max", "steps")}
    assert two_level(velocity_classes={"thermal_width": 1.0} | clerqs).velocity_classes is None
