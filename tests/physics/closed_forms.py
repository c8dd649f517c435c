"""Closed forms of weak and strong propagation, in NumPy and SciPy alone: nothing here knows the kernel.

Frequencies are cyclic, Ω is the complex Rabi frequency, t the retarded time, path = ∫N dz up to a position, ν NumPy's
FFT frequency (e^{+i2πνt}). Sources: McCall and Hahn, Phys. Rev. 183, 457 (1969) for the area theorem and the solitons;
Fleischhauer, Imamoglu and Marangos, Rev. Mod. Phys. 77, 633 (2005) for EIT; Torrey, Phys. Rev. 76, 1059 (1949);
Grobe, Hioe and Eberly, Phys. Rev. Lett. 73, 3183 (1994) for adiabatons.
"""

import numpy as np
from scipy import special

ROOT_LOG_2 = np.sqrt(np.log(2.0))


def gaussian(time, fwhm, centre=0.0):
    """A Gaussian of peak 1 and full width at half maximum `fwhm`."""
    return np.exp(-((2 * ROOT_LOG_2 * (time - centre) / fwhm) ** 2))


def gaussian_integral(time, fwhm, centre=0.0):
    """∫ of `gaussian` from −∞ to each time."""
    scale = 2 * ROOT_LOG_2 / fwhm
    return np.sqrt(np.pi) / (2 * scale) * (1 + special.erf(scale * (time - centre)))


def sech(x):
    return 1 / np.cosh(x)


def sech_light(time, n_pi, width, centre=0.0):
    """A sech of area π n_pi."""
    return n_pi / (2 * np.pi * width) * sech((time - centre) / width)


def frequencies(time):
    """FFT frequencies of a uniform grid whose last point repeats the first."""
    return np.fft.fftfreq(len(time) - 1, time[1] - time[0])


def transmitted(time, entrance, exponent, path):
    """Ω(z, t) on the grid without its last point, shape (z, time), for Ω(z, ν) = Ω(0, ν) exp(−path · exponent(ν))."""
    return np.fft.ifft(np.fft.fft(entrance[:-1]) * np.exp(-np.multiply.outer(path, exponent)))


def two_level_exponent(frequency, *, g, rate, detuning=0.0, factor=1.0):
    """Rows 1 and 2: attenuation of a weak field per path; `rate` is γ."""
    return g * factor**2 / (rate / 2 + 1j * (detuning + frequency))


def doppler_exponent(frequency, *, g, rate, thermal_width, detuning=0.0):
    """Row 3: the Voigt profile."""
    argument = (-(detuning + frequency) + 0.5j * rate) / thermal_width
    return g * np.sqrt(np.pi) / thermal_width * special.wofz(argument)


def eit_exponent(one_photon, two_photon, *, g, rate, control, ground_rate):
    """Row 4: attenuation per path at the frequencies ν + E₀₁ and ν + E₀₂; 0 where two-photon resonance is lossless."""
    ground = ground_rate / 2 + 1j * two_photon
    return g * ground / ((rate / 2 + 1j * one_photon) * ground + (control / 2) ** 2)


def doppler_eit_exponent(frequency, *, g, rate, control, ground_rate, thermal_width, slopes, detunings=(0.0, 0.0)):
    """Row 6: the average of row 4 over the classes, for Doppler slopes and detunings of levels 1 and 2."""
    shifts, step = np.linspace(-6 * thermal_width, 6 * thermal_width, 801, retstep=True)
    weights = step * np.exp(-((shifts / thermal_width) ** 2)) / (thermal_width * np.sqrt(np.pi))
    one_photon, two_photon = (
        frequency[:, None] + detuning - slope * shifts for slope, detuning in zip(slopes, detunings, strict=True)
    )
    return eit_exponent(one_photon, two_photon, g=g, rate=rate, control=control, ground_rate=ground_rate) @ weights


def saturated(path, *, g, rate, rabi):
    """Row 7: steady resonant field of any strength."""
    start = 2 * rabi**2 / rate**2
    saturation = special.lambertw(start * np.exp(start - 4 * g * path / rate)).real
    return rate * np.sqrt(saturation / 2)


def step_response(path, time, *, g):
    """Row 8: response to a step of 1 at t = 0 without decay, shape (z, time)."""
    return special.jv(0, 2 * np.sqrt(2 * np.pi * g * np.multiply.outer(path, time)))


def step_response_slope_in_rate(path, time, *, g):
    """Derivative of the response to a step in the decay rate, at rate 0.

    exp(−a/(s + δ))/s with a = 2πgz and δ = πγ is 1 − ∫ e^{−δt} √(a/t) J₁(2√(at)) dt, whose derivative at δ = 0 is
    t J₂(2√(at)).
    """
    return np.pi * time * special.jv(2, 2 * np.sqrt(2 * np.pi * g * np.multiply.outer(path, time)))


def rabi_oscillation(time, *, rabi, detuning):
    """Row 9: population of the upper level under a constant field from t = 0."""
    generalised = np.hypot(abs(rabi), detuning)
    return (abs(rabi) / generalised * np.sin(np.pi * generalised * time)) ** 2


def damped_rabi_oscillation(time, *, rabi, rate):
    """Row 10: the same on resonance with radiative decay."""
    drive, decay = 2 * np.pi * rabi, 2 * np.pi * rate
    frequency = np.sqrt(drive**2 - decay**2 / 16)
    oscillation = np.cos(frequency * time) + 3 * decay / (4 * frequency) * np.sin(frequency * time)
    return drive**2 / (decay**2 + 2 * drive**2) * (1 - np.exp(-3 * decay * time / 4) * oscillation)


def soliton(path, time, *, g, width, centre=0.0):
    """Row 11: the 2π pulse, shape (z, time)."""
    delay = 2 * np.pi * g * width**2 * np.asarray(path)[..., None]
    return sech((time - centre - delay) / width) / (np.pi * width)


def two_solitons(path, time, *, g, width, centre=0.0):
    """Row 12: the pulse that enters as a sech of area 4π."""
    ratio, path = 0.5, np.asarray(path)[..., None]
    first, second = 3 / width, 1 / width
    one, two = (
        np.exp(a * (time - centre) - 2 * np.pi * g * path / a - np.log(ratio)) for a in (first, second)
    )  # fmt: skip
    real, imaginary = 1 - ratio**2 * one * two, one + two
    real_slope = -(ratio**2) * (first + second) * one * two
    imaginary_slope = first * one + second * two
    angular = 4 * (real * imaginary_slope - imaginary * real_slope) / (real**2 + imaginary**2)
    return angular / (2 * np.pi)


def pulse_area(path, *, g, area, thermal_width):
    """Row 13: the area theorem, on the branch below 2π."""
    half = np.arctan(np.tan(area / 2) * np.exp(-np.sqrt(np.pi) * g * path / thermal_width))
    return 2 * half if area < np.pi else 2 * (half + np.pi)


def adiabaton(path, time, *, g, probe, control, fwhm, centre=0.0):
    """Row 15: probe and control, shape (2, z, time), for a Gaussian probe on a constant control at the entrance."""

    def photons(t):  # ∫ Ω² dt
        return control**2 * t + probe**2 * gaussian_integral(t, fwhm / np.sqrt(2), centre)

    def intensity(t):
        return control**2 + (probe * gaussian(t, fwhm, centre)) ** 2

    target = photons(time) - 2 * g * np.asarray(path)[:, None] / np.pi
    earlier = np.broadcast_to(time, target.shape)
    for _ in range(30):  # Newton: the photon number rises with time at least as control²
        earlier = earlier - (photons(earlier) - target) / intensity(earlier)
    angle = np.arctan2(probe * gaussian(earlier, fwhm, centre), control)
    return np.sqrt(intensity(time)) * np.stack([np.sin(angle), np.cos(angle)])


def slope(function, at, step=None):
    """Derivative of a closed form by central differences of eighth order; right to about 1e-11."""
    step = 3e-3 * (abs(at) or 1.0) if step is None else step
    weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
    return sum(c * (function(at + k * step) - function(at - k * step)) for k, c in weights.items()) / step
