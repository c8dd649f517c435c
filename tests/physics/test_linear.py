"""Weak probes of a two-level medium: rows 1, 2, 3 and 8 of the closed forms."""

import numpy as np
import pytest
from scipy.special import erfcx

from tests.physics import closed_forms, solving
from tests.physics.solving import DETUNING, FINE_THERMAL, FINE_TWO_LEVEL, GAUSSIAN, RABI, RATE, SECH, STRENGTH, Row

pytestmark = pytest.mark.usefixtures("x64")

WEAK = 1e-5  # saturates the atoms by (Ω/γ)² or (πΩT)², at most 1e-8
FACTOR = 0.8


def two_level_transfer() -> Row:
    """Row 2, detuned and with a dipole factor; the pulse and its echo have died at the ends of the window."""
    numbers = {"g": 2.0, "rate": 2.0, "detuning": 0.7, "rabi": WEAK, "width": 0.1, "centre": 0.1}

    def closed(time, path, g, rate, detuning, rabi, width, centre):
        exponent = closed_forms.two_level_exponent(
            closed_forms.frequencies(time), g=g, rate=rate, detuning=detuning, factor=FACTOR
        )
        return closed_forms.transmitted(time, rabi * closed_forms.sech_light(time, 0.6, width, centre), exponent, path)

    problem = solving.two_level(solving.sech_pulse(0.6, 0.1, 0.1), rabi=WEAK, g=2.0, rate=2.0, detuning=0.7,
                                factor=FACTOR, t_min=-2.0, t_max=4.0)  # fmt: skip
    return Row(problem, closed, numbers, STRENGTH | RATE | DETUNING | RABI | SECH, FINE_TWO_LEVEL)


def doppler_transfer() -> Row:
    """Row 3; 41 classes are a quarter of the width apart, so their echo at time 4 is damped to exp(−πγ·4) = 6e-9."""
    numbers = {"g": 1.5, "rate": 1.5, "detuning": 0.4, "thermal_width": 1.0, "rabi": WEAK, "fwhm": 0.4, "centre": 0.0}

    def closed(time, path, g, rate, detuning, thermal_width, rabi, fwhm, centre):
        exponent = closed_forms.doppler_exponent(
            closed_forms.frequencies(time), g=g, rate=rate, detuning=detuning, thermal_width=thermal_width
        )
        return closed_forms.transmitted(time, rabi * closed_forms.gaussian(time, fwhm, centre), exponent, path)

    problem = solving.two_level(solving.gaussian_pulse(0.4), rabi=WEAK, g=1.5, rate=1.5, detuning=0.4,
                                t_min=-2.0, t_max=4.0, **solving.thermal(1.0, 5.0))  # fmt: skip
    gradient = STRENGTH | RATE | DETUNING | GAUSSIAN | {"thermal_width": lambda gradient: gradient["thermal_width"]}
    return Row(problem, closed, numbers, gradient, FINE_THERMAL, neglect=2e-8)


def weak_step() -> Row:
    """Row 8: constant light on atoms that start in the ground state at t = 0, without decay; (πΩT)² = 9e-9."""

    def closed(time, path, g, rabi):
        return rabi * closed_forms.step_response(path, time, g=g)

    problem = solving.two_level(solving.constant_pulse(), rabi=WEAK, g=1.0, t_min=0.0, t_max=3.0)
    return Row(problem, closed, {"g": 1.0, "rabi": WEAK}, STRENGTH | RABI, FINE_TWO_LEVEL, neglect=1e-8)


ROWS = [two_level_transfer, doppler_transfer, weak_step]


@pytest.mark.parametrize("row", ROWS)
def test_fields_and_gradient(row):
    solving.check_row(row())


@pytest.mark.parametrize("tol", [None, 1e-3])
@pytest.mark.parametrize("row", ROWS)
def test_auto(row, tol):
    solving.check_auto(row(), tol)


@pytest.mark.parametrize("row", [two_level_transfer, doppler_transfer])
def test_spectrum(row):
    row = row()
    solved = solving.solve(row.problem, row.fine)
    spectrum = np.fft.fft(solved.fields[0, :, :-1])
    frequency = closed_forms.frequencies(solved.time)
    numbers = {name: row.numbers[name] for name in ("g", "rate", "detuning")}
    if row.problem.velocity_classes is None:
        exponent = closed_forms.two_level_exponent(frequency, factor=FACTOR, **numbers)
        optical_depth = 4 * 2.0 * FACTOR**2 / 2.0 / (1 + (2 * 0.7 / 2.0) ** 2)
    else:
        exponent = closed_forms.doppler_exponent(frequency, thermal_width=1.0, **numbers)
        optical_depth = 2 * exponent[0].real
    closed = spectrum[0] * np.exp(-np.multiply.outer(solved.path, exponent))
    band = np.abs(spectrum[0]) > 1e-3 * np.abs(spectrum[0]).max()
    assert band.sum() > 20
    np.testing.assert_allclose(spectrum[:, band], closed[:, band], rtol=0, atol=1e-7 * np.abs(spectrum[0]).max())
    assert abs(np.abs(spectrum[-1, 0] / spectrum[0, 0]) ** 2 - np.exp(-optical_depth)) < 1e-7


def test_doppler_optical_depth_on_resonance():
    """Row 3 at Δ = 0: OD = 2gNL(√π/σ) erfcx(γ/2σ), read off the spectrum at ν = 0."""
    problem = doppler_transfer().problem
    solved = solving.solve(problem, FINE_THERMAL, detunings=np.zeros(1))
    area = solved.fields[0, :, :-1].sum(-1)
    optical_depth = 2 * 1.5 * np.sqrt(np.pi) * erfcx(1.5 / 2)
    np.testing.assert_allclose(np.abs(area / area[0]) ** 2, np.exp(-optical_depth * solved.path), atol=1e-7)


def test_beer_lambert():
    """Row 1: steady light for 6: transients have decayed by exp(−πγ·6) = 6e-14."""
    problem = solving.two_level(solving.constant_pulse(), rabi=WEAK, g=2.0, rate=2.0, factor=FACTOR,
                                channel_factor=0.9, t_min=0.0, t_max=6.0)  # fmt: skip
    solved = solving.solve(problem, FINE_TWO_LEVEL)
    numbers = {"g": 2.0, "rate": 2.0, "rabi": WEAK}

    def closed(path, g, rate, rabi):
        return rabi * np.exp(-2 * g * path * FACTOR**2 / (rate * 0.9**2))

    np.testing.assert_allclose(solved.fields[0, :, -1], closed(solved.path, **numbers), atol=1e-8 * WEAK)

    cotangent = np.zeros(solved.fields.shape)
    cotangent[0, -1, -1] = 1.0
    gradient = solved.pull_back(cotangent)
    found = {name: at(gradient) for name, at in (STRENGTH | RATE | RABI).items()}
    solving.assert_derivatives(found, lambda name, x: closed(1.0, **numbers | {name: x}), numbers)


def test_dephasing_broadens():
    """Row 1 where the coherence also loses phase: a channel [1, 1] of rate r damps it at πr, so γ becomes γ + r."""
    problem = solving.two_level(solving.constant_pulse(), rabi=WEAK, g=1.5, rate=1.5, dephasing=0.8,
                                t_min=0.0, t_max=6.0)  # fmt: skip
    solved = solving.solve(problem, FINE_TWO_LEVEL)
    expected = WEAK * np.exp(-2 * 1.5 * solved.path / (1.5 + 0.8))
    np.testing.assert_allclose(solved.fields[0, :, -1], expected, atol=1e-7 * WEAK)


def test_slope_in_a_decay_rate_of_zero():
    """The right-sided gradient at rate 0 is finite: that of row 8 with decay, and of differences of the solver."""
    row = weak_step()
    solved = solving.solve(row.problem, FINE_TWO_LEVEL)
    cotangent = np.zeros(solved.fields.shape)
    cotangent[0, -1] = solved.time / WEAK
    found = solved.pull_back(cotangent)["decay_rates"][0]
    slope = closed_forms.step_response_slope_in_rate(1.0, solved.time, g=1.0)
    assert abs(found - solved.time @ slope) < 1e-6 * abs(found)

    step = 1e-4
    rates = [np.array([k * step, 0.0]) for k in range(4)]
    solutions = [solving.solve(row.problem, FINE_TWO_LEVEL, decay_rates=pair).fields for pair in rates]
    values = [np.sum(cotangent * fields.real) for fields in solutions]
    difference = (-11 * values[0] + 18 * values[1] - 9 * values[2] + 2 * values[3]) / (6 * step)
    assert abs(found - difference) < 1e-6 * abs(found)
