"""Three levels and a strong control: rows 4, 5, 6 and 15 of the closed forms."""

import numpy as np
import pytest

from jax_kernel import Resolution, propagate
from tests.physics import closed_forms, solving
from tests.physics.solving import FINE_LAMBDA, GAUSSIAN, RATE, STRENGTH, STRENGTHS, Row

pytestmark = pytest.mark.usefixtures("x64")

WEAK = 1e-5  # the probe moves (Ω_p/Ω_c)² = 1e-10 of the atoms
CONTROL = {"control": lambda gradient: gradient["rabi_freq"][1].real}
PULSES = (solving.gaussian_pulse(0.5), solving.constant_control())


def transparency(build, second_rate: str, resonances) -> Row:
    """Row 4 off both resonances; `resonances` are ν + E₀₁ and ν + E₀₂ as functions of ν and the detunings."""
    numbers = {"g": 2.0, "rate": 2.0, "ground_rate": 0.6, "probe_detuning": 0.3, "control_detuning": -0.2,
               "control": 1.6, "rabi": WEAK, "fwhm": 0.5, "centre": 0.0}  # fmt: skip

    def closed(time, path, g, rate, ground_rate, probe_detuning, control_detuning, control, rabi, fwhm, centre):
        one_photon, two_photon = resonances(closed_forms.frequencies(time), probe_detuning, control_detuning)
        exponent = closed_forms.eit_exponent(
            one_photon, two_photon, g=g, rate=rate, control=control, ground_rate=ground_rate
        )
        return closed_forms.transmitted(time, rabi * closed_forms.gaussian(time, fwhm, centre), exponent, path)

    problem = build(PULSES, rabi=(WEAK, 1.6), g=(2.0, 3.0), detunings=(0.3, -0.2), rate=2.0, t_min=-1.8, t_max=5.2,
                    **{second_rate: 0.6})  # fmt: skip
    gradient = STRENGTH | RATE | CONTROL | GAUSSIAN | {
        "ground_rate": lambda gradient: gradient["decay_rates"][1],
        "probe_detuning": lambda gradient: gradient["detunings"][0],
        "control_detuning": lambda gradient: gradient["detunings"][1],
    }  # fmt: skip
    return Row(problem, closed, numbers, gradient, FINE_LAMBDA)


def lambda_transparency() -> Row:
    """Both fields end on level 1, whose energy takes both detunings; level 2 takes none."""
    return transparency(solving.lambda_medium, "ground_rate", lambda nu, probe, control: (nu + probe + control, nu))


def ladder_transparency() -> Row:
    """Detunings do not accumulate along the ladder."""
    return transparency(solving.ladder_medium, "upper_rate", lambda nu, probe, control: (nu + probe, nu + control))


def adiabaton(control: float = 60.0, neglect: float = 8e-6) -> Row:
    """Row 15; the closed form neglects what is not adiabatic, delay / (control² fwhm³), here 6.7e-6 of the peak."""
    probe, strength = 0.5 * control, 0.15 * np.pi / 2 * control**2
    numbers = {"g": strength, "probe": probe, "control": control, "fwhm": 2.0, "centre": 0.0}

    def closed(time, path, g, probe, control, fwhm, centre):
        return closed_forms.adiabaton(path, time, g=g, probe=probe, control=control, fwhm=fwhm, centre=centre)

    problem = solving.lambda_medium((solving.gaussian_pulse(2.0), solving.constant_control()), rabi=(probe, control),
                                    g=(strength, strength), t_min=-6.0, t_max=5.2)  # fmt: skip
    gradient = STRENGTHS | CONTROL | {"probe": GAUSSIAN["rabi"], "fwhm": GAUSSIAN["fwhm"], "centre": GAUSSIAN["centre"]}
    return Row(problem, closed, numbers, gradient, FINE_LAMBDA, neglect=neglect)


def test_fields_and_gradient():
    solving.check_row(lambda_transparency())


@pytest.mark.parametrize("tol", [None, 1e-3])
@pytest.mark.parametrize("row", [lambda_transparency, ladder_transparency])
def test_auto(row, tol):
    solving.check_auto(row(), tol)


def test_adiabaton():
    """The gradient as far as the neglect allows."""
    solving.check_row(adiabaton(), gradient=2e-4)


def test_adiabaton_auto():
    """At a control so weak that few steps do, and the neglect is what remains."""
    solving.check_auto(adiabaton(12.0, neglect=3e-4), 1e-3)


def slow_light(**settings):
    return solving.lambda_medium(PULSES, rabi=(WEAK, 3.0), g=(8.0, 3.0), rate=3.0, t_min=-2.0, t_max=6.0, **settings)


def moments(time: np.ndarray, fields: np.ndarray):
    """∫Ω dt and the mean time of Ω, the transmission and the group delay at ν = 0 of any weak pulse."""
    area, first = fields.sum(-1), (fields * time).sum(-1)
    return area, first / area


def test_slow_light():
    """Row 5: the delay of the mean time is exact, for it is the slope of the exponent at ν = 0."""
    solved = solving.solve(slow_light(), FINE_LAMBDA)
    area, mean = moments(solved.time, solved.fields[0])
    numbers = {"g": 8.0, "control": 3.0}

    def delay(path, g, control):
        return 2 * g * path / (np.pi * control**2)

    assert mean[-1] > 0.5
    np.testing.assert_allclose(area / area[0], 1, atol=1e-6)
    np.testing.assert_allclose(mean, delay(solved.path, **numbers), atol=1e-6)

    cotangent = np.zeros(solved.fields.shape)
    cotangent[0, -1] = solved.time / area[0].real
    gradient = solved.pull_back(cotangent)
    found = {name: at(gradient) for name, at in (STRENGTH | CONTROL).items()}
    solving.assert_derivatives(found, lambda name, x: delay(1.0, **numbers | {name: x}), numbers)


def test_slow_light_with_ground_decay():
    solved = solving.solve(slow_light(ground_rate=0.5), FINE_LAMBDA)
    area, _ = moments(solved.time, solved.fields[0])
    transmission = np.exp(-2 * 8.0 * solved.path / (3.0 / 2 + 3.0**2 / (2 * 0.5)))
    np.testing.assert_allclose(np.abs(area / area[0]) ** 2, transmission, atol=1e-6)


def test_doppler_transparency():
    """Row 6: in a Λ both fields shift level 1, so its slope is −2, and level 2 stays."""
    problem = solving.lambda_medium(PULSES, rabi=(WEAK, 1.6), g=(2.0, 3.0), rate=2.0, ground_rate=0.6, t_min=-2.0,
                                    t_max=6.0, **solving.thermal(0.6, 2.7))  # fmt: skip
    solution = propagate(problem, resolution=Resolution(12, 3), tol=1e-5)
    exponent = closed_forms.doppler_eit_exponent(
        closed_forms.frequencies(problem.time), g=2.0, rate=2.0, control=1.6, ground_rate=0.6, thermal_width=0.6,
        slopes=(-2.0, 0.0),
    )  # fmt: skip
    entrance = WEAK * closed_forms.gaussian(problem.time, 0.5)
    closed = closed_forms.transmitted(problem.time, entrance, exponent, solving.path_of(problem))
    assert solving.deviation(np.asarray(solution.fields), closed) < 2e-6
