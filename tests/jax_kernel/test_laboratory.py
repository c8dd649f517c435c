"""Laboratory units: equal to clerq.macro, one convention of optical depth, gradients through tensors and tracers."""

import math

import jax
import numpy as np
import pytest
from scipy import constants

from jax_kernel import laboratory
from jax_kernel.errors import ProblemError

RATE, WAVELENGTH = 6.0666, 780.241209686

CASES = [
    ("saturation_intensity", (RATE, WAVELENGTH)),
    ("intensity_to_rabi_freq", (0.3, RATE, WAVELENGTH)),
    ("intensity_to_rabi_freq", (0.0, RATE, WAVELENGTH, 0.5)),
    ("rabi_freq_to_intensity", (2.5, RATE, WAVELENGTH)),
    ("rabi_freq_to_intensity", (2.5, RATE, WAVELENGTH, 0.5)),
    ("gaussian_beam_peak_intensity", (1.5, 0.07)),
    ("interaction_strength", (RATE, WAVELENGTH)),
    ("interaction_strength", (RATE, WAVELENGTH, 0.3)),
    ("resonant_optical_depth", (3e10, 2.0, WAVELENGTH)),
    ("resonant_optical_depth", (3e10, 2.0, WAVELENGTH, 0.3)),
    ("thermal_width", (330.0, 86.9, WAVELENGTH)),
]


@pytest.mark.parametrize(("name", "args"), CASES)
def test_equals_clerq(name, args):
    macro = pytest.importorskip("clerq.macro")
    assert getattr(laboratory, name)(*args) == pytest.approx(getattr(macro, name)(*args), rel=1e-12)


def test_gauss_equals_clerq():
    hyperfine = pytest.importorskip("clerq.hyperfine")
    assert laboratory.gauss_to_natural(2.5) == hyperfine.gauss_to_natural(2.5)


def test_arrays_pass_through():
    intensities = np.array([0.0, 0.1, 2.0])
    found = laboratory.intensity_to_rabi_freq(intensities, RATE, WAVELENGTH)
    assert found == pytest.approx([laboratory.intensity_to_rabi_freq(i, RATE, WAVELENGTH) for i in intensities])
    np.testing.assert_allclose(laboratory.rabi_freq_to_intensity(found, RATE, WAVELENGTH), intensities, rtol=1e-14)


def test_optical_depth_has_one_convention():
    """OD = 4 g N L f^2 / gamma, whichever way g is found, and also where the dipole is that of hyperfine factors."""
    density, length = 2e10, 3.0
    for factor in (1.0, 0.25, 2.0):
        depth = laboratory.resonant_optical_depth(density, length, WAVELENGTH, factor)
        cross_section = laboratory.resonant_cross_section(WAVELENGTH, factor)
        dipole = laboratory.dipole_moment(RATE, WAVELENGTH, factor)
        for strength in (
            laboratory.interaction_strength(RATE, WAVELENGTH, factor, number_density=density),
            laboratory.interaction_strength(RATE, WAVELENGTH, number_density=density) * factor,  # a field's f^2
            laboratory.interaction_strength_of_cross_section(cross_section, RATE, number_density=density),
            laboratory.interaction_strength_of_dipole(dipole, WAVELENGTH, number_density=density),
        ):
            assert 4 * strength * length / RATE == pytest.approx(depth, rel=1e-12)
        assert depth == pytest.approx(density * cross_section * length, rel=1e-14)


def test_saturation_intensity_is_where_omega_squared_is_half_of_gamma_squared():
    intensity = laboratory.saturation_intensity(RATE, WAVELENGTH)
    assert laboratory.intensity_to_rabi_freq(intensity, RATE, WAVELENGTH) == pytest.approx(RATE / math.sqrt(2))


def test_rabi_frequency_is_the_dipole_in_the_field():
    """Omega = d E / h with I = eps0 c E^2 / 2."""
    intensity = 0.7
    amplitude = math.sqrt(2 * intensity * 10 / (constants.epsilon_0 * constants.c))
    dipole = laboratory.dipole_moment(RATE, WAVELENGTH) * constants.e * constants.physical_constants["Bohr radius"][0]
    expected = dipole * amplitude / constants.h / 1e6
    assert laboratory.intensity_to_rabi_freq(intensity, RATE, WAVELENGTH) == pytest.approx(expected, rel=1e-9)


def test_thermal_width_is_that_of_the_velocity_classes():
    """Its Gaussian has the full width at half maximum sqrt(8 ln 2 k T / m) / lambda: 511.3 MHz for 87Rb at 300 K."""
    width = laboratory.thermal_width(300.0, 86.909180520, WAVELENGTH)
    assert 2 * math.sqrt(math.log(2)) * width == pytest.approx(511.3, abs=0.1)


def test_gradients_pass_through():
    torch = pytest.importorskip("torch")
    density = torch.tensor(1e10, dtype=torch.float64, requires_grad=True)
    laboratory.interaction_strength(RATE, WAVELENGTH, number_density=density).backward()
    assert density.grad.item() == pytest.approx(laboratory.interaction_strength(RATE, WAVELENGTH), rel=1e-12)
    intensity = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    found = laboratory.intensity_to_rabi_freq(intensity, RATE, WAVELENGTH)
    found.backward()
    assert intensity.grad.item() == pytest.approx(found.item() / (2 * 0.5), rel=1e-12)
    temperature = torch.tensor(300.0, dtype=torch.float64, requires_grad=True)
    width = laboratory.thermal_width(temperature, 86.9, WAVELENGTH)
    width.backward()
    assert temperature.grad.item() == pytest.approx(width.item() / 600, rel=1e-12)


def test_gradients_pass_through_a_trace(x64):
    gradient = jax.grad(lambda power: laboratory.gaussian_beam_peak_intensity(power, 0.1))(2.0)
    assert gradient == pytest.approx(laboratory.gaussian_beam_peak_intensity(1.0, 0.1), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("saturation_intensity", (0.0, 780.0), "Argument `decay_rate` must be positive and finite, but is 0.0."),
        ("saturation_intensity", (6.0, -1.0), "Argument `wavelength` must be positive"),
        ("saturation_intensity", (6.0, math.nan), "Argument `wavelength` must be positive"),
        ("intensity_to_rabi_freq", (-1.0, 6.0, 780.0), "`intensity` must be finite and at least 0, but is -1.0."),
        ("intensity_to_rabi_freq", (np.array([1.0, -1.0]), 6.0, 780.0), "`intensity` must be finite and at least 0"),
        ("intensity_to_rabi_freq", (1.0, 6.0, 780.0, 0.0), "`factor` must be positive"),
        ("rabi_freq_to_intensity", (1.0, 6.0, 780.0, -1.0), "`factor` must be positive"),
        ("gaussian_beam_peak_intensity", (1.0, 0.0), "`waist` must be positive"),
        ("interaction_strength", (0.0, 780.0), "`decay_rate` must be positive"),
        ("interaction_strength_of_cross_section", (0.0, 6.0), "`cross_section` must be positive"),
        ("interaction_strength_of_dipole", (0.0, 780.0), "`dipole` must be positive"),
        ("resonant_optical_depth", (-1.0, 1.0, 780.0), "`number_density` must be finite and at least 0"),
        ("resonant_optical_depth", (1.0, 1.0, 0.0), "`wavelength` must be positive"),
        ("thermal_width", (0.0, 86.9, 780.0), "`temperature` must be positive"),
    ],
)
def test_refusals(name, args, message):
    with pytest.raises(ProblemError, match=message):
        getattr(laboratory, name)(*args)
