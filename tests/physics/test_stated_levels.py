"""Level detunings and Doppler slopes that accumulate along the couplings: rows 4 and 6 as they are meant."""

import numpy as np
import pytest

from jax_kernel import Resolution
from tests.physics import closed_forms, solving
from tests.physics.solving import FINE_LAMBDA, GAUSSIAN, RATE, STRENGTH, Row
from tests.physics.test_eit import CONTROL, PULSES, WEAK

pytestmark = pytest.mark.usefixtures("x64")

LEVELS = {
    name: lambda gradient, level=level: gradient["level_detunings"][level]
    for level, name in enumerate(("lowest", "first", "second"))
}
SHARED = {"g": 2.0, "rate": 2.0, "control": 1.6, "rabi": WEAK, "fwhm": 0.5, "centre": 0.0}
GRADIENT = STRENGTH | RATE | CONTROL | GAUSSIAN | LEVELS
GRADIENT |= {"second_rate": lambda gradient: gradient["decay_rates"][1]}


def at_rest(build, second_rate: str, sign: float) -> Row:
    """Row 4 with ν₁ = ν + Δp and the two-photon detuning ν₂ = ν + Δp + sign·Δc."""
    probe, control = 0.3, -0.2
    numbers = SHARED | {"second_rate": 0.6, "lowest": 0.0, "first": probe, "second": probe + sign * control}

    def closed(time, path, g, rate, second_rate, lowest, first, second, control, rabi, fwhm, centre):
        nu = closed_forms.frequencies(time)
        exponent = closed_forms.eit_exponent(
            nu + first - lowest, nu + second - lowest, g=g, rate=rate, control=control, ground_rate=second_rate
        )
        return closed_forms.transmitted(time, rabi * closed_forms.gaussian(time, fwhm, centre), exponent, path)

    levels = {"level_detunings": [numbers[name] for name in LEVELS]}
    problem = build(PULSES, rabi=(WEAK, 1.6), g=(2.0, 3.0), detunings=(probe, control), rate=2.0, levels=levels,
                    t_min=-1.8, t_max=5.2, **{second_rate: 0.6})  # fmt: skip
    return Row(problem, closed, numbers, GRADIENT, FINE_LAMBDA)


@pytest.mark.parametrize(
    ("build", "second_rate", "sign"),
    [
        pytest.param(solving.ladder_medium, "upper_rate", 1.0, id="ladder"),
        pytest.param(solving.lambda_medium, "ground_rate", -1.0, id="lambda"),
    ],
)
def test_two_photon_detuning(build, second_rate, sign):
    solving.check_row(at_rest(build, second_rate, sign))


def counter_propagating_ladder() -> Row:
    """Row 6 with b₁ = −1 and b₂ = 0, since the two Doppler shifts cancel; the control enters from the other end.

    The echo of 40 Gauss–Hermite classes comes after 2.8, when the decay has damped it to 2e-8.
    """
    numbers = SHARED | {"second_rate": 0.2, "lowest": 0.0, "first": 0.3, "second": 0.0, "thermal_width": 1.0,
                        "first_slope": -1.0, "second_slope": 0.0}  # fmt: skip

    def closed(time, path, g, rate, second_rate, lowest, first, second, control, rabi, fwhm, centre, thermal_width,
               first_slope, second_slope):  # fmt: skip
        exponent = closed_forms.doppler_eit_exponent(
            closed_forms.frequencies(time), g=g, rate=rate, control=control, ground_rate=second_rate,
            thermal_width=thermal_width, slopes=(first_slope, second_slope),
            detunings=(first - lowest, second - lowest),
        )  # fmt: skip
        return closed_forms.transmitted(time, rabi * closed_forms.gaussian(time, fwhm, centre), exponent, path)

    pulses = [PULSES[0], PULSES[1] | {"counter_propagating": True}]
    levels = {"level_detunings": [0.0, 0.3, 0.0], "level_doppler_slopes": [0.0, -1.0, 0.0]}
    classes = {"thermal_width": 1.0, "quadrature": "gauss-hermite", "nodes": 40}
    problem = solving.ladder_medium(pulses, rabi=(WEAK, 1.6), g=(2.0, 3.0), rate=2.0, upper_rate=0.2, levels=levels,
                                    velocity_classes=classes, t_min=-1.8, t_max=12.2, z_min=0.0, z_max=1.0)  # fmt: skip
    gradient = GRADIENT | {
        "thermal_width": lambda gradient: gradient["thermal_width"],
        "first_slope": lambda gradient: gradient["level_doppler_slopes"][1],
        "second_slope": lambda gradient: gradient["level_doppler_slopes"][2],
    }
    return Row(problem, closed, numbers, gradient, Resolution(12, 6), neglect=1e-8)


def test_doppler_free_transparency():
    row = counter_propagating_ladder()
    solving.check_row(row, gradient=1e-5)
    by_rule = row.fields(second_slope=1.0)[0].sum(-1)  # the one that clerq's rule makes of `counter_propagating`
    meant = row.fields()[0].sum(-1)
    survives, washed_out = (np.abs(area[-1] / area[0]) ** 2 for area in (meant, by_rule))
    assert survives > 0.55
    assert washed_out < 0.7 * survives
