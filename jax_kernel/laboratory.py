"""From laboratory units to those of a problem: MHz, microseconds, cm, nm, mW/cm^2, cm^-3 (as in `clerq.macro`).

A transition is given by its natural linewidth `decay_rate` = Gamma / 2 pi, its vacuum wavelength, and `factor`, its
squared dipole over that of a two-level atom with the same linewidth: with a field's factors from `jax_kernel.hyperfine`
it is `HyperfineLine.dipole_strength`. A factor belongs in one place only, here or in a field's `factors`.

Optical depth is of intensity: a weak resonant beam leaves as exp(-OD), OD = 4 g N L f^2 / gamma with the interaction
strength g, density N, length L, a field's factor f and the total decay rate gamma of its upper level. With g from
`interaction_strength` this is `resonant_optical_depth`, N sigma L.

Numbers, arrays and tensors pass through and keep their gradients; only numbers and NumPy arrays are checked.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from scipy import constants

from .elements import MU_B_OVER_H
from .parameters import fail

_MHZ = 1e6  # in Hz
_NM = 1e-9  # in m
_CM = 1e-2  # in m
_MW_PER_CM2 = 10.0  # in W/m^2
_ATOMIC_DIPOLE = constants.e * constants.physical_constants["Bohr radius"][0]  # e a0 in C m


def _check(*, least: float | None = None, **values: Any) -> None:
    """Raise unless every number is positive, or at least `least` where that is given."""
    for name, value in values.items():
        if isinstance(value, (numbers.Number, np.ndarray)):
            seen = np.asarray(value)
            if not np.all(np.isfinite(seen) & ((seen > 0) if least is None else (seen >= least))):
                rule = "be positive and finite" if least is None else f"be finite and at least {least:g}"
                fail(name, rule, f"is {value}")


def saturation_intensity(decay_rate: Any, wavelength: Any) -> Any:
    """The intensity pi h c Gamma / (3 lambda^3) at which a cycling transition is saturated (Omega^2 = Gamma^2 / 2).

    Args:
        decay_rate: Natural linewidth, cyclic, MHz.
        wavelength: In vacuum, nm.

    Returns:
        mW/cm^2.

    Raises:
        ProblemError: A number is not positive.

    Example:
        >>> print(f"{saturation_intensity(6.0666, 780.241209686):.4f}")  # 87Rb D2; Steck has 1.66933
        1.6693
    """
    _check(decay_rate=decay_rate, wavelength=wavelength)
    gamma = 2 * math.pi * _MHZ * decay_rate
    return math.pi * constants.h * constants.c * gamma / (3 * (wavelength * _NM) ** 3) / _MW_PER_CM2


def intensity_to_rabi_freq(intensity: Any, decay_rate: Any, wavelength: Any, factor: Any = 1.0) -> Any:
    """The Rabi frequency gamma sqrt(factor I / (2 I_sat)) of light.

    Args:
        intensity: At the atoms, mW/cm^2.
        decay_rate: Natural linewidth, cyclic, MHz.
        wavelength: In vacuum, nm.
        factor: Squared dipole over that of a two-level atom with the linewidth.

    Returns:
        A field's `rabi_freq`, cyclic, MHz.

    Raises:
        ProblemError: The intensity is negative, or another number is not positive.

    Example:
        >>> i_sat = saturation_intensity(6.0, 780.0)
        >>> print(f"{intensity_to_rabi_freq(2 * i_sat, 6.0, 780.0):.6f}")
        6.000000
    """
    _check(least=0, intensity=intensity)
    _check(factor=factor)
    return decay_rate * (factor * intensity / (2 * saturation_intensity(decay_rate, wavelength))) ** 0.5


def rabi_freq_to_intensity(rabi_freq: Any, decay_rate: Any, wavelength: Any, factor: Any = 1.0) -> Any:
    """The intensity of light with a Rabi frequency; the inverse of `intensity_to_rabi_freq`.

    Args:
        rabi_freq: Cyclic, MHz; of a complex one the absolute value counts.
        decay_rate: Natural linewidth, cyclic, MHz.
        wavelength: In vacuum, nm.
        factor: Squared dipole over that of a two-level atom with the linewidth.

    Returns:
        mW/cm^2.

    Raises:
        ProblemError: A number other than the Rabi frequency is not positive.

    Example:
        >>> print(f"{rabi_freq_to_intensity(intensity_to_rabi_freq(0.5, 6.0, 780.0), 6.0, 780.0):.6f}")
        0.500000
    """
    _check(factor=factor)
    return 2 * saturation_intensity(decay_rate, wavelength) * (abs(rabi_freq) / decay_rate) ** 2 / factor


def gaussian_beam_peak_intensity(power: Any, waist: Any) -> Any:
    """The intensity 2 P / (pi w^2) on the axis of a round Gaussian beam.

    Args:
        power: Of the whole beam, mW.
        waist: Radius at which the intensity is 1/e^2 of the peak's, cm.

    Returns:
        mW/cm^2.

    Raises:
        ProblemError: A number is not positive.

    Example:
        >>> print(f"{gaussian_beam_peak_intensity(1.0, 0.1):.4f}")
        63.6620
    """
    _check(power=power, waist=waist)
    return 2 * power / (math.pi * waist**2)


def resonant_cross_section(wavelength: Any, factor: Any = 1.0) -> Any:
    """The cross-section factor * 3 lambda^2 / (2 pi) for weak resonant light.

    Args:
        wavelength: In vacuum, nm.
        factor: Squared dipole over that of a two-level atom with the linewidth.

    Returns:
        cm^2.

    Raises:
        ProblemError: A number is not positive.

    Example:
        >>> print(f"{resonant_cross_section(780.241209686):.5e}")  # 87Rb D2; Steck has 2.906692937721e-9
        2.90669e-09
    """
    _check(wavelength=wavelength, factor=factor)
    return factor * 3 * (wavelength * (_NM / _CM)) ** 2 / (2 * math.pi)


def dipole_moment(decay_rate: Any, wavelength: Any, factor: Any = 1.0) -> Any:
    """The dipole d of Gamma = 8 pi^2 d^2 / (3 eps0 hbar lambda^3), times sqrt(factor).

    Args:
        decay_rate: Natural linewidth, cyclic, MHz.
        wavelength: In vacuum, nm.
        factor: Squared dipole over that of a two-level atom with the linewidth.

    Returns:
        In units of e a0.

    Raises:
        ProblemError: A number is not positive.

    Example:
        >>> print(f"{dipole_moment(6.0666, 780.241209686, factor=2):.4f}")  # <J||er||J'> of 87Rb D2; Steck has 4.22752
        4.2275
    """
    _check(decay_rate=decay_rate, wavelength=wavelength, factor=factor)
    gamma = 2 * math.pi * _MHZ * decay_rate
    squared = 3 * constants.epsilon_0 * constants.hbar * gamma * (wavelength * _NM) ** 3 / (8 * math.pi**2)
    return (factor * squared) ** 0.5 / _ATOMIC_DIPOLE


def interaction_strength(decay_rate: Any, wavelength: Any, factor: Any = 1.0, *, number_density: Any = 1.0) -> Any:
    """The interaction strength sigma gamma / 4 of a transition's own cross-section; without a density, per atom.

    Args:
        decay_rate: Natural linewidth, cyclic, MHz.
        wavelength: In vacuum, nm.
        factor: Squared dipole over that of a two-level atom with the linewidth.
        number_density: Where the problem's density profile is 1, cm^-3.

    Returns:
        An entry of `interaction_strengths`, cyclic, MHz/cm (MHz cm^2 per atom).

    Raises:
        ProblemError: A number is not positive, or the density is negative.

    Example:
        >>> g = interaction_strength(6.0, 780.0, number_density=1e10)
        >>> print(f"{4 * g * 2.0 / 6.0:.6f} {resonant_optical_depth(1e10, 2.0, 780.0):.6f}")  # OD of 2 cm, two ways
        58.097920 58.097920
    """
    _check(decay_rate=decay_rate)
    return interaction_strength_of_cross_section(
        resonant_cross_section(wavelength, factor), decay_rate, number_density=number_density
    )


def interaction_strength_of_cross_section(cross_section: Any, decay_rate: Any, *, number_density: Any = 1.0) -> Any:
    """The interaction strength sigma gamma / 4 of a medium whose resonant cross-section is known.

    Args:
        cross_section: For weak resonant light, cm^2.
        decay_rate: Total decay rate of the upper level, cyclic, MHz.
        number_density: Where the problem's density profile is 1, cm^-3.

    Returns:
        An entry of `interaction_strengths`, cyclic, MHz/cm (MHz cm^2 per atom).

    Raises:
        ProblemError: A number is not positive, or the density is negative.

    Example:
        >>> print(f"{interaction_strength_of_cross_section(2.9e-9, 6.0, number_density=1e10):.6f}")
        43.500000
    """
    _check(cross_section=cross_section, decay_rate=decay_rate)
    _check(least=0, number_density=number_density)
    return number_density * (cross_section * decay_rate / 4)


def interaction_strength_of_dipole(dipole: Any, wavelength: Any, *, number_density: Any = 1.0) -> Any:
    """The interaction strength d^2 / (2 eps0 hbar lambda) of a dipole, from Maxwell's equation with no linewidth in it.

    Args:
        dipole: Of a factor-1 pair along the light's polarisation, in units of e a0; see `dipole_moment`.
        wavelength: In vacuum, nm.
        number_density: Where the problem's density profile is 1, cm^-3.

    Returns:
        An entry of `interaction_strengths`, cyclic, MHz/cm (MHz cm^2 per atom).

    Raises:
        ProblemError: A number is not positive, or the density is negative.

    Example:
        >>> d = dipole_moment(6.0, 780.0)
        >>> print(f"{interaction_strength_of_dipole(d, 780.0) / interaction_strength(6.0, 780.0):.9f}")
        1.000000000
    """
    _check(dipole=dipole, wavelength=wavelength)
    _check(least=0, number_density=number_density)
    squared = (dipole * _ATOMIC_DIPOLE) ** 2
    per_atom = squared / (2 * constants.epsilon_0 * constants.hbar * (wavelength * _NM))  # m^2/s
    return number_density * (per_atom / (_CM**2 * _MHZ))


def resonant_optical_depth(number_density: Any, length: Any, wavelength: Any, factor: Any = 1.0) -> Any:
    """The optical depth N sigma L of cold atoms for weak resonant light; intensity leaves as exp(-OD).

    Args:
        number_density: cm^-3.
        length: Of the medium, cm.
        wavelength: In vacuum, nm.
        factor: Squared dipole over that of a two-level atom with the linewidth, times a field's squared factor.

    Returns:
        The optical depth of intensity, 4 g N L f^2 / gamma.

    Raises:
        ProblemError: The wavelength or the factor is not positive, or the density or the length is negative.

    Example:
        >>> print(f"{resonant_optical_depth(1e9, 1.0, 780.241):.4f}")
        2.9067
    """
    _check(least=0, number_density=number_density, length=length)
    return number_density * resonant_cross_section(wavelength, factor) * length


def thermal_width(temperature: Any, mass: Any, wavelength: Any) -> Any:
    """The Doppler width sqrt(2 k T / m) / lambda of a vapour, of the weights exp(-(shift / width)^2).

    Args:
        temperature: K.
        mass: Of an atom, u.
        wavelength: In vacuum, nm.

    Returns:
        The `thermal_width` of `velocity_classes`: the 1/e half-width, cyclic, MHz.

    Raises:
        ProblemError: A number is not positive.

    Example:
        >>> print(f"{thermal_width(300.0, 86.909180520, 780.241209686):.2f}")  # its FWHM is 2 sqrt(ln 2) times this
        307.07
    """
    _check(temperature=temperature, mass=mass, wavelength=wavelength)
    speed = (2 * constants.k * temperature / (mass * constants.atomic_mass)) ** 0.5
    return speed / (wavelength * _NM) / _MHZ


def gauss_to_natural(magnetic_field: Any) -> Any:
    """The field mu_B B / h, which shifts a sublevel by g_F m_F times itself.

    Args:
        magnetic_field: Along the quantisation axis, gauss.

    Returns:
        The `magnitude` of a `b_field` in "natural" units, cyclic, MHz.

    Example:
        >>> print(f"{gauss_to_natural(2.0):.6f}")
        2.799249
    """
    return magnetic_field * MU_B_OVER_H
