"""The D lines of 85Rb, 87Rb, 133Cs, 39K and 23Na: `rubidium87.d2`, `caesium133.d1`, ….

Each line is a `HyperfineLine` in MHz with its wavelength, linewidth and mass, and so knows its laboratory units.

The numbers are those of D. A. Steck's "Rubidium 85 D Line Data" (revision 2.1.6, 2013), "Rubidium 87 D Line Data"
(revision 2.1.5, 2015), "Cesium D Line Data" and "Sodium D Line Data" (revision 2.1.4, 2010), and of T. G. Tiecke's
"Properties of Potassium" (version 1.02, 2011); each names the measurements. Frequencies are from centre of gravity to
centre of gravity. Steck's revisions 2.3 differ within the errors in A of 87Rb 5P1/2 (407.25 MHz) and in A and B of 85Rb
5P3/2 (25.0354 and 25.898 MHz); the octupole constant of 133Cs 6P3/2, 0.56 kHz, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import laboratory
from .hyperfine import FineLevel, HyperfineLine


@dataclass(frozen=True, kw_only=True)
class AlkaliLine(HyperfineLine):
    """A D line with its sublevels, in MHz.

    Attributes:
        name: Isotope and line.
        wavelength: In vacuum, nm.
        frequency: c / wavelength as measured, THz.
        lifetime: Of the upper level, ns; 1 / (2 pi linewidth).
        mass: Of the atom, u.
        source: Where the numbers are from.

    Example:
        >>> from jax_kernel.atoms import rubidium87
        >>> line = rubidium87.d2
        >>> print(f"{line.transition_frequency(2, 3):.9f} THz, {line.saturation_intensity:.4f} mW/cm^2")
        384.228115203 THz, 1.6693 mW/cm^2
    """

    name: str
    wavelength: float
    frequency: float
    lifetime: float
    mass: float
    source: str

    def transition_frequency(self, F: float, upper_F: float) -> float:
        """The frequency of F -> F'.

        Args:
            F: Lower level.
            upper_F: Upper level.

        Returns:
            THz.

        Raises:
            ProblemError: The line has no such level.
        """
        lower, upper = self.index(F, F), self.index(upper_F, upper_F, upper=True)
        return self.frequency + 1e-6 * (self.levels[upper].energy - self.levels[lower].energy)

    @property
    def saturation_intensity(self) -> float:
        """Of a cycling transition with the line's linewidth, mW/cm^2; see `jax_kernel.laboratory`."""
        return laboratory.saturation_intensity(self.linewidth, self.wavelength)

    def rabi_freq(self, intensity: Any) -> Any:
        """The Rabi frequency of light, for a field with this line's factors.

        Args:
            intensity: mW/cm^2.

        Returns:
            A field's `rabi_freq`, cyclic, MHz: that of a factor 1.

        Raises:
            ProblemError: The intensity is negative.

        Example:
            >>> from jax_kernel.atoms import rubidium87
            >>> cycling = rubidium87.d2.coupling("sigma+", lower_F=[2], upper_F=[3])["factors"][-1]
            >>> rabi_freq = cycling * rubidium87.d2.rabi_freq(2 * rubidium87.d2.saturation_intensity)
            >>> print(f"{abs(rabi_freq):.4f}")  # the linewidth
            6.0666
        """
        return laboratory.intensity_to_rabi_freq(intensity, self.linewidth, self.wavelength, self.dipole_strength)

    def intensity(self, rabi_freq: Any) -> Any:
        """The intensity of light; the inverse of `rabi_freq`.

        Args:
            rabi_freq: A field's, cyclic, MHz.

        Returns:
            mW/cm^2.
        """
        return laboratory.rabi_freq_to_intensity(rabi_freq, self.linewidth, self.wavelength, self.dipole_strength)

    def interaction_strength(self, number_density: Any) -> Any:
        """The interaction strength of atoms, for a field with this line's factors.

        Args:
            number_density: Atoms in all sublevels together, where the problem's density profile is 1, cm^-3.

        Returns:
            An entry of `interaction_strengths`, cyclic, MHz/cm.

        Raises:
            ProblemError: The density is negative.
        """
        return laboratory.interaction_strength(
            self.linewidth, self.wavelength, self.dipole_strength, number_density=number_density
        )

    def thermal_width(self, temperature: Any) -> Any:
        """The Doppler width of a vapour.

        Args:
            temperature: K.

        Returns:
            The `thermal_width` of `velocity_classes`: the 1/e half-width, cyclic, MHz.

        Raises:
            ProblemError: The temperature is not positive.
        """
        return laboratory.thermal_width(temperature, self.mass, self.wavelength)


@dataclass(frozen=True)
class Alkali:
    """An alkali isotope.

    Attributes:
        d1: The line to nP1/2.
        d2: The line to nP3/2.
    """

    d1: AlkaliLine
    d2: AlkaliLine

    @property
    def nuclear_spin(self) -> float:
        """I."""
        return self.d1.nuclear_spin

    @property
    def mass(self) -> float:
        """Of an atom, u."""
        return self.d1.mass

    @property
    def ground_splitting(self) -> float:
        """Energy of F = I + 1/2 above F = I - 1/2, MHz."""
        low, high = sorted({level.F: level.energy for level in self.d1.levels if not level.upper}.items())
        return high[1] - low[1]


def _alkali(
    name: str,
    source: str,
    *,
    ground: FineLevel,
    d1: tuple[FineLevel, float, float, float, float],
    d2: tuple[FineLevel, float, float, float, float],
    **both: float,
) -> Alkali:
    """An atom; a line is its upper level, frequency (THz), wavelength (nm), lifetime (ns) and linewidth (MHz)."""
    lines = [
        AlkaliLine(lower=ground, upper=upper, frequency=frequency, wavelength=wavelength, lifetime=lifetime,
                   linewidth=linewidth, name=f"{name} {line}", source=source, **both)
        for line, (upper, frequency, wavelength, lifetime, linewidth) in (("D1", d1), ("D2", d2))
    ]  # fmt: skip
    return Alkali(*lines)


rubidium85: Alkali = _alkali(
    "85Rb",
    "D. A. Steck, Rubidium 85 D Line Data, revision 2.1.6 (2013)",
    nuclear_spin=2.5,
    g_I=-0.00029364000,
    mass=84.911789732,
    ground=FineLevel(0.5, A=1011.9108130, g_J=2.00233113),
    d1=(FineLevel(0.5, A=120.527, g_J=0.666), 377.107385690, 794.979014933, 27.679, 5.7500),
    d2=(FineLevel(1.5, A=25.0020, B=25.790, g_J=1.3362), 384.230406373, 780.241368271, 26.2348, 6.0666),
)
"""85Rb, I = 5/2: ground-state splitting 3035.732439 MHz."""

rubidium87: Alkali = _alkali(
    "87Rb",
    "D. A. Steck, Rubidium 87 D Line Data, revision 2.1.5 (2015)",
    nuclear_spin=1.5,
    g_I=-0.0009951414,
    mass=86.909180520,
    ground=FineLevel(0.5, A=3417.341305452145, g_J=2.00233113),
    d1=(FineLevel(0.5, A=407.24, g_J=0.666), 377.107463380, 794.978851156, 27.679, 5.7500),
    d2=(FineLevel(1.5, A=84.7185, B=12.4965, g_J=1.3362), 384.2304844685, 780.241209686, 26.2348, 6.0666),
)
"""87Rb, I = 3/2: ground-state splitting 6834.682610904 MHz."""

caesium133: Alkali = _alkali(
    "133Cs",
    "D. A. Steck, Cesium D Line Data, revision 2.1.4 (2010)",
    nuclear_spin=3.5,
    g_I=-0.00039885395,
    mass=132.905451931,
    ground=FineLevel(0.5, A=2298.1579425, g_J=2.00254032),
    d1=(FineLevel(0.5, A=291.9201, g_J=0.665900), 335.116048807, 894.59295986, 34.791, 4.575),
    d2=(FineLevel(1.5, A=50.28827, B=-0.4934, g_J=1.33400), 351.72571850, 852.34727582, 30.405, 5.234),
)
"""133Cs, I = 7/2: ground-state splitting 9192.63177 MHz, exactly."""

potassium39: Alkali = _alkali(
    "39K",
    "T. G. Tiecke, Properties of Potassium, version 1.02 (2011)",
    nuclear_spin=1.5,
    g_I=-0.00014193489,
    mass=38.96370668,
    ground=FineLevel(0.5, A=230.8598601, g_J=2.00229421),
    d1=(FineLevel(0.5, A=27.775, g_J=2 / 3), 389.286058716, 770.108385049, 26.72, 5.956),
    d2=(FineLevel(1.5, A=6.093, B=2.786, g_J=4 / 3), 391.01617003, 766.700921822, 26.37, 6.035),
)
"""39K, I = 3/2: ground-state splitting 461.7197202 MHz."""

sodium23: Alkali = _alkali(
    "23Na",
    "D. A. Steck, Sodium D Line Data, revision 2.1.4 (2010)",
    nuclear_spin=1.5,
    g_I=-0.00080461080,
    mass=22.9897692807,
    ground=FineLevel(0.5, A=885.81306440, g_J=2.00229600),
    d1=(FineLevel(0.5, A=94.44, g_J=0.66581), 508.3331958, 589.7558147, 16.299, 9.765),
    d2=(FineLevel(1.5, A=18.534, B=2.724, g_J=1.33420), 508.8487162, 589.1583264, 16.2492, 9.7946),
)
"""23Na, I = 3/2: ground-state splitting 1771.6261288 MHz."""
