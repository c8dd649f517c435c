"""Media of any density: only the path ∫N dz counts, and no medium is no change."""

import numpy as np
import pytest

from tests.physics import closed_forms, solving, test_linear
from tests.physics.solving import FINE_THERMAL, FINE_TWO_LEVEL

pytestmark = pytest.mark.usefixtures("x64")

NUMBERS = {"g": 2.0, "rate": 2.0, "detuning": 0.7}
WEAK = 1e-5

DEEP = 1 / (closed_forms.gaussian_integral(1.2, 0.3, 0.5) - closed_forms.gaussian_integral(-0.2, 0.3, 0.5))


def gaussian_path(z):
    return DEEP * (closed_forms.gaussian_integral(z, 0.3, 0.5) - closed_forms.gaussian_integral(-0.2, 0.3, 0.5))


# Each of path 1 from z_min to z_max.
PROFILES = {
    "default": ({}, lambda z: np.clip(z, 0, 1)),
    "gaussian": (
        {"num_density_z_func": "gaussian",
         "num_density_z_args": {"ampl": DEEP, "centre": 0.5, "fwhm": 0.3}},
        gaussian_path,
    ),
    "off-grid square": (
        {"num_density_z_func": "square", "num_density_z_args": {"ampl": 1 / 0.574, "on": 0.237, "off": 0.811}},
        lambda z: np.clip((z - 0.237) / 0.574, 0, 1),
    ),
}  # fmt: skip


def weak_problem(**profile):
    return solving.two_level(solving.sech_pulse(0.6, 0.1), rabi=WEAK, t_min=-2.0, t_max=4.0, **NUMBERS, **profile)


@pytest.mark.parametrize("name", PROFILES)
def test_weak_light_at_every_z(name):
    """Row 2 with the exact path."""
    profile, path = PROFILES[name]
    problem = weak_problem(**profile)
    solved = solving.solve(problem, FINE_TWO_LEVEL)
    exponent = closed_forms.two_level_exponent(closed_forms.frequencies(problem.time), **NUMBERS)
    entrance = WEAK * closed_forms.sech_light(problem.time, 0.6, 0.1)
    closed = closed_forms.transmitted(problem.time, entrance, exponent, path(problem.z))
    assert solving.deviation(solved.fields, closed) < 1e-9


@pytest.mark.parametrize("name", PROFILES)
def test_steady_light_at_every_z(name):
    """Row 1 with the exact path, and row 7 for strong light."""
    profile, path = PROFILES[name]
    settings = {"g": 2.0, "rate": 2.0, "t_min": 0.0, "t_max": 6.0, **profile}
    pulse = solving.constant_pulse()
    weak = solving.solve(solving.two_level(pulse, rabi=WEAK, **settings), FINE_TWO_LEVEL).fields[0, :, -1]
    strong = solving.two_level(pulse, rabi=2.0, **settings)
    at = path(strong.z)
    np.testing.assert_allclose(weak, WEAK * np.exp(-2 * at), rtol=1e-9)
    expected = closed_forms.saturated(at, g=2.0, rate=2.0, rabi=2.0)
    np.testing.assert_allclose(solving.solve(strong, FINE_TWO_LEVEL).fields[0, :, -1], expected, rtol=1e-9)


def test_profiles_of_equal_path_transmit_the_same():
    outputs = [
        solving.solve(
            solving.two_level(solving.sech_pulse(1.5, 0.1), rabi=1.0, t_min=-2.0, t_max=4.0, **NUMBERS, **profile),
            FINE_TWO_LEVEL,
        ).fields[0, -1]
        for profile, _ in PROFILES.values()
    ]
    for output in outputs[1:]:
        np.testing.assert_allclose(output, outputs[0], rtol=0, atol=1e-9 * 2.4)


def entrance(problem):
    return np.broadcast_to(WEAK * closed_forms.sech_light(problem.time, 0.6, 0.1), (1, 29, 321))


def slope_at_no_density(solved, exponent):
    """d/dN of the output energy per path at N = 0, and the cotangent of that energy; later light counts more."""
    weights = np.zeros(solved.fields.shape)
    weights[0, -1, :-1] = (solved.time[:-1] - solved.time[0]) / WEAK**2
    change = np.fft.ifft(-exponent * np.fft.fft(solved.fields[0, 0, :-1]))
    cotangent = 2 * weights * np.conj(solved.fields)
    return np.sum(cotangent[0, -1, :-1] * change).real, cotangent


@pytest.mark.parametrize(
    ("profile", "density"), [({}, 0.0), ({"num_density_z_args": {"ampl": 0.0, "on": 0.0, "off": 1.0}}, 1.0)]
)
def test_no_medium_changes_nothing(profile, density):
    problem = weak_problem(**profile)
    solved = solving.solve(problem, FINE_TWO_LEVEL, number_density=density)
    np.testing.assert_array_equal(solved.fields, solved.fields[:, :1].repeat(29, 1))
    np.testing.assert_allclose(solved.fields, entrance(problem), rtol=1e-12, atol=1e-15 * WEAK)
    exponent = closed_forms.two_level_exponent(closed_forms.frequencies(solved.time), **NUMBERS)
    expected, cotangent = slope_at_no_density(solved, exponent)
    found = solved.pull_back(cotangent)["number_density"]
    if density:  # a factor of nothing
        assert found == 0
    else:
        assert abs(found - expected) < 1e-6 * abs(expected)


def test_sampled_density():
    """Samples are joined by lines: the path is that of the trapezoids; at density 0 each sample has its slope."""
    row = test_linear.doppler_transfer()
    problem, z = row.problem, row.problem.z
    density = 1.5 * np.exp(-(((z - 0.6) / 0.3) ** 2))
    path = np.append(0, np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(z)))
    solved = solving.solve(problem, FINE_THERMAL, number_density=density)
    assert solving.deviation(solved.fields, row.closed(problem.time, path, **row.numbers)) < 5e-8

    solved = solving.solve(problem, FINE_THERMAL, number_density=np.zeros(len(z)))
    np.testing.assert_array_equal(solved.fields, solved.fields[:, :1].repeat(len(z), 1))
    exponent = closed_forms.doppler_exponent(
        closed_forms.frequencies(problem.time),
        **{name: row.numbers[name] for name in ("g", "rate", "detuning", "thermal_width")},
    )
    expected, cotangent = slope_at_no_density(solved, exponent)
    strips = np.full(len(z), z[1] - z[0])
    strips[[0, -1]] /= 2
    np.testing.assert_allclose(solved.pull_back(cotangent)["number_density"], expected * strips, rtol=1e-6)
