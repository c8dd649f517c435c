"""Pulses that reshape the medium and leave it as it was: rows 11 to 14 of the closed forms."""

import numpy as np
import pytest

from tests.physics import closed_forms, solving
from tests.physics.solving import FINE_THERMAL, FINE_TWO_LEVEL, FINE_V, SECH, STRENGTH, STRENGTHS, Row

pytestmark = pytest.mark.usefixtures("x64")

WINDOW = {"t_min": -8.0, "t_max": 6.0}  # begins 19 widths before the pulse, where a sech is 1e-8
WIDTH, LONG_WIDTH = 0.25, 0.42
ANGLE = 0.6


def soliton(delay: float = 5.0) -> Row:
    """Row 11; the delay is in widths."""
    strength = delay / (2 * np.pi * WIDTH)
    problem = solving.two_level(solving.sech_pulse(2.0, WIDTH), rabi=1.0, g=strength, **WINDOW)
    numbers = {"g": strength, "width": WIDTH, "centre": 0.0}

    def closed(time, path, g, width, centre):
        return closed_forms.soliton(path, time, g=g, width=width, centre=centre)

    return Row(problem, closed, numbers, STRENGTH | SECH, FINE_TWO_LEVEL, neglect=2e-8)


def two_solitons(delay: float = 5.0) -> Row:
    """Row 12: pulses of widths LONG_WIDTH/3 and LONG_WIDTH come apart."""
    strength = delay / (2 * np.pi * LONG_WIDTH)
    problem = solving.two_level(solving.sech_pulse(4.0, LONG_WIDTH), rabi=1.0, g=strength, **WINDOW)
    numbers = {"g": strength, "width": LONG_WIDTH, "centre": 0.0}

    def closed(time, path, g, width, centre):
        return closed_forms.two_solitons(path, time, g=g, width=width, centre=centre)

    return Row(problem, closed, numbers, STRENGTH | SECH, FINE_TWO_LEVEL, neglect=2e-8)


def simulton(delay: float = 5.0) -> Row:
    """Row 14: a soliton shared by the two fields of a V."""
    strength = delay / (2 * np.pi * LONG_WIDTH)
    pulses = [solving.sech_pulse(2.0, LONG_WIDTH)] * 2
    problem = solving.v_medium(pulses, rabi=(np.cos(ANGLE), np.sin(ANGLE)), g=(strength, strength), **WINDOW)
    numbers = {"g": strength, "width": LONG_WIDTH, "centre": 0.0, "angle": ANGLE}

    def closed(time, path, g, width, centre, angle):
        shares = np.array([np.cos(angle), np.sin(angle)])
        return shares[:, None, None] * closed_forms.soliton(path, time, g=g, width=width, centre=centre)

    turn = {"angle": lambda gradient: gradient["rabi_freq"].real @ [-np.sin(ANGLE), np.cos(ANGLE)]}
    return Row(problem, closed, numbers, STRENGTHS | SECH | turn, FINE_V, neglect=2e-8)


ROWS = [soliton, two_solitons, simulton]


@pytest.mark.parametrize("row", ROWS)
def test_fields_and_gradient(row):
    solving.check_row(row())


@pytest.mark.parametrize("tol", [None, 1e-3])
@pytest.mark.parametrize("row", [soliton(2.0), two_solitons(2.0), simulton(1.0)], ids=["11", "12", "14"])
def test_auto(row, tol):
    """At shorter delays, with which what "auto" needs grows."""
    solving.check_auto(row, tol)


@pytest.mark.parametrize("area", [0.8 * np.pi, 1.3 * np.pi])
def test_area_theorem(area):
    """Row 13 for a Gaussian; the classes rephase at time 7, behind the window.

    The theorem holds when the atoms have dephased: the area still moves by some 1e-6 at the end.
    """
    rabi = area / (2 * np.pi) / closed_forms.gaussian_integral(np.inf, 0.28)
    problem = solving.two_level(solving.gaussian_pulse(0.28), rabi=rabi, g=0.3, t_min=-1.0, t_max=4.6,
                                **solving.thermal(0.6, 2.9))  # fmt: skip
    solved = solving.solve(problem, FINE_THERMAL)
    found = 2 * np.pi * solved.fields[0].real.sum(-1) * (solved.time[1] - solved.time[0])
    expected = closed_forms.pulse_area(solved.path, g=0.3, area=area, thermal_width=0.6)
    assert abs(expected[-1] - area) > 0.3
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-6)
