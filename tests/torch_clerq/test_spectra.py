"""Spectra: clerq's own functions on the same fields, rows 2 and 3 of the closed forms, gradients, dark light."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import wofz

from tests.conftest import two_level
from torch_clerq import ProblemError, Resolution, propagate
from torch_clerq.spectra import (
    absorption,
    absorption_two_linear_known,
    dispersion,
    dispersion_two_linear_known,
    faddeeva,
    freq_list,
    full_width_at_half_max,
    half_max_roots,
    in_band,
    maxwell_boltzmann,
    refractive_index,
    spectrum,
    susceptibility,
    susceptibility_two_linear_known,
    voigt_two_linear_known,
)

TIME = torch.linspace(-1.0, 4.0, 26, dtype=torch.float64)
LINE = torch.linspace(-2.0, 2.0, 9, dtype=torch.float64)


def tensor(*values):
    return torch.tensor(values if len(values) > 1 else values[0], dtype=torch.float64, requires_grad=True)


def medium_fields(*, slices=5, fields=2, seed=0):
    """A pulse with noise, its spectrum turned and damped along z by less than π a slice."""
    noise = torch.Generator().manual_seed(seed)
    pulse = torch.exp(-((TIME - 1) ** 2)) + 0.05 * torch.randn(fields, 26, dtype=torch.complex128, generator=noise)
    exponent = torch.randn(fields, 26, dtype=torch.complex128, generator=noise)
    along = torch.linspace(0, 1, slices, dtype=torch.float64)[:, None]
    spectra = torch.fft.fft(pulse)[:, None] * torch.exp(-along * exponent[:, None])
    return torch.fft.ifft(spectra).requires_grad_()


# clerq


@pytest.fixture(scope="module")
def clerq_spectral():
    return pytest.importorskip("clerq.spectral")


def as_clerq(fields):
    return SimpleNamespace(_Omegas_zt=2 * np.pi * fields.detach().numpy(), tlist=TIME.numpy())


@pytest.mark.parametrize("window", [None, "hann", ("tukey", 0.3)])
def test_spectra_are_those_of_clerq(clerq_spectral, window):
    fields = medium_fields()
    theirs = as_clerq(fields)
    assert np.allclose(freq_list(TIME), clerq_spectral.freq_list(theirs), atol=1e-13)
    for k in range(2):
        expected = clerq_spectral.rabi_freq(theirs, k, window=window)
        assert np.allclose(2 * np.pi * spectrum(fields, window=window)[k].detach(), expected, atol=1e-12)
        for z in (-1, 2):
            expected = clerq_spectral.absorption(theirs, k, z, window=window)
            ours = absorption(fields, z, window=window, floor=0.0)[k].detach()
            assert np.allclose(ours, expected, atol=1e-10)
            expected = clerq_spectral.dispersion(theirs, k, z, window=window)
            ours = dispersion(fields, z, window=window, floor=0.0)[k].detach()
            turns = (ours.numpy() - expected) / (2 * np.pi)
            assert np.allclose(turns, turns.round(), atol=1e-10)


def test_closed_forms_are_those_of_clerq(clerq_spectral):
    frequency = np.linspace(-3, 3, 13)
    ours = torch.from_numpy(frequency)
    for name, function in (
        ("susceptibility", susceptibility_two_linear_known),
        ("absorption", absorption_two_linear_known),
        ("dispersion", dispersion_two_linear_known),
    ):
        expected = getattr(clerq_spectral, f"{name}_two_linear_known")(frequency, 1.3, 0.7)
        assert np.allclose(function(ours, 1.3, 0.7), expected, rtol=1e-13)
    expected = clerq_spectral.voigt_two_linear_known(frequency, 0.7, 1.9)
    assert np.allclose(voigt_two_linear_known(ours, 0.7, 1.9), expected, rtol=1e-13)


def test_peaks_are_those_of_clerq():
    utility = pytest.importorskip("clerq.utility")
    x = np.linspace(-3, 4, 29)
    y = 2.3 / (1 + (x - 0.21) ** 2)
    ours = torch.from_numpy(x), torch.from_numpy(y)
    assert np.allclose(half_max_roots(*ours), utility.half_max_roots(x, y), atol=1e-10)
    assert np.allclose(full_width_at_half_max(*ours), utility.full_width_at_half_max(x, y), atol=1e-10)
    assert np.allclose(maxwell_boltzmann(ours[0], 1.7, 0.3), utility.maxwell_boltzmann(x, 1.7, 0.3), rtol=1e-13)


# Physics


@pytest.fixture(scope="module")
def weak():
    """Weak light through a two-level medium at rest: fields, ∫N dz = 1, and what they depend on."""
    problem = two_level(t_min=-3.0, t_max=9.0, t_steps=240, z_min=0.0, z_max=1.0, g=1.2, rate=1.5)
    problem = type(problem).from_dict(problem.to_dict() | {"z_steps": 4})
    g, rate = tensor([1.2]), tensor([1.5])
    fields = propagate(problem, interaction_strengths=g, decay_rates=rate, resolution=Resolution(12, 4))
    return problem, fields, g, rate


def test_weak_spectrum_is_row_2(weak):
    problem, fields, g, rate = weak
    time = torch.from_numpy(problem.time)
    frequency = freq_list(time)
    band = in_band(fields[0], floor=1e-3)
    found = susceptibility(fields, floor=1e-3)[0]
    known = susceptibility_two_linear_known(frequency, g, rate)
    assert 12 < band.sum() < 60
    assert torch.allclose(found[band], known[band], atol=1e-5)
    assert torch.all(found[~band] == 0)
    half = susceptibility(fields, 2, floor=1e-3)[0]
    assert torch.allclose(half[band], known[band] / 2, atol=2e-5)
    index = refractive_index(fields, torch.from_numpy(problem.z), 1e4, 2, floor=1e-3)[0]
    assert torch.allclose(index[band], 1 + known[band] / 1e4, atol=1e-8)
    slopes, expected = (
        torch.autograd.grad(x[band].imag.sum() + x[band].real.square().sum(), (g, rate), retain_graph=True)
        for x in (found, known)
    )
    for one, other in zip(slopes, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-4)


def test_thermal_spectrum_is_row_3():
    classes = {"thermal_width": 0.8, "thermal_delta_min": -3.2, "thermal_delta_max": 3.2, "thermal_delta_spacing": 0.08}
    problem = two_level(t_min=-3.0, t_max=9.0, t_steps=240, z_min=0.0, z_max=1.0, g=1.2, rate=0.5,
                        velocity_classes=classes)  # fmt: skip
    fields = propagate(problem, dtype=torch.float64, resolution=Resolution(12, 4), tol=1e-4)
    band = in_band(fields[0], floor=1e-3)
    known = 1.2 * voigt_two_linear_known(freq_list(torch.from_numpy(problem.time)), 0.5, 0.8)
    assert torch.allclose(susceptibility(fields, floor=1e-3)[0][band], known[band], atol=2e-5)


def test_voigt_is_the_thermal_average_and_its_limits():
    shifts = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    average = torch.trapezoid(
        susceptibility_two_linear_known(LINE[:, None] - shifts, 1.0, 0.6) * maxwell_boltzmann(shifts, 1.1), shifts
    )
    assert torch.allclose(voigt_two_linear_known(LINE, 0.6, 1.1), average, rtol=1e-10)
    cold = voigt_two_linear_known(LINE, 0.6, 1e-6)
    assert torch.allclose(cold, susceptibility_two_linear_known(LINE, 1.0, 0.6), rtol=1e-10)
    sharp = voigt_two_linear_known(LINE, 1e-9, 1.1).imag
    assert torch.allclose(sharp, math.pi * maxwell_boltzmann(LINE, 1.1), rtol=1e-8)


def test_strong_phases_do_not_jump():
    along = torch.linspace(0, 1, 12, dtype=torch.float64)[:, None]
    fields = torch.fft.ifft(torch.exp(1j * along * torch.linspace(-30, 30, 26, dtype=torch.float64)))
    expected = torch.fft.fftshift(-torch.linspace(-30, 30, 26, dtype=torch.float64))
    assert torch.allclose(dispersion(fields), expected, atol=1e-10)
    assert torch.all(dispersion(fields, 0) == 0)


# Dark light


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("function", [absorption, dispersion, lambda fields: susceptibility(fields).abs()])
@pytest.mark.parametrize("dark", ["all", "exit", "nearly", "entrance"])
def test_dark_light_has_finite_gradients(function, dark, dtype):
    fields = medium_fields().detach().to(dtype)
    factor = {"all": [0, 0], "exit": [1, 0], "nearly": [1, 1e-37], "entrance": [0, 1]}[dark]
    fields[:, 0] *= factor[0]
    fields[:, -1] *= factor[1]
    fields.requires_grad_()
    result = function(fields)
    result.sum().backward()
    assert torch.isfinite(result).all()
    assert torch.isfinite(torch.view_as_real(fields.grad)).all()
    if dark in ("all", "entrance"):
        assert torch.all(result == 0)
        assert torch.all(fields.grad == 0)


def test_outside_of_the_band_there_is_nothing():
    pulse = torch.exp(-4 * (TIME - 1.5) ** 2) * torch.ones(3, 1)
    fields = (pulse + 1e-9 * torch.randn(3, 26, dtype=torch.complex128)).requires_grad_()
    band = in_band(fields)
    assert 0 < band.sum() < 26
    absorbed = absorption(fields)
    assert torch.all(absorbed[~band] == 0)
    (slope,) = torch.autograd.grad(absorbed[~band].sum(), fields)
    assert torch.all(slope == 0)
    assert torch.equal(in_band(fields, floor=0.0), torch.ones(26, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_precision_and_batches(dtype):
    fields = medium_fields().detach().to(dtype)
    batch = torch.stack([fields, 2 * fields])
    for function in (absorption, dispersion, susceptibility):
        alone, both = function(fields), function(batch)
        assert alone.dtype in (dtype, dtype.to_real())
        assert torch.allclose(both[1], alone, atol=1e-5 if dtype is torch.complex64 else 1e-12)
    assert faddeeva(fields + 1j).dtype == dtype
    assert voigt_two_linear_known(LINE.to(dtype.to_real()), 0.5, 0.8).dtype == dtype


# Gradients

FIELDS = medium_fields(slices=3, fields=1)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda fields: spectrum(fields, window="hann"), (FIELDS,)),
        (lambda fields: absorption(fields, floor=0.1), (FIELDS,)),
        (lambda fields: dispersion(fields, floor=0.1), (FIELDS,)),
        (lambda fields: susceptibility(fields, 1), (FIELDS,)),
        (lambda fields, z: refractive_index(fields, z, 3.0), (FIELDS, tensor(0.0, 0.5, 1.0))),
        (lambda g, rate: susceptibility_two_linear_known(LINE, g, rate), (tensor(1.3), tensor(0.7))),
        (lambda rate: absorption_two_linear_known(LINE, 1.0, rate), (tensor(0.7),)),
        (lambda rate: dispersion_two_linear_known(LINE, 1.0, rate), (tensor(0.7),)),
        (voigt_two_linear_known, (tensor(-1.0, 0.2, 90.0), tensor(0.7), tensor(0.8))),
        (maxwell_boltzmann, (tensor(-1.0, 0.2), tensor(0.7), tensor(0.1))),
        (lambda y: half_max_roots(LINE, y), (tensor(*(1 / (1 + (LINE - 0.1) ** 2)).tolist()),)),
        (lambda y: full_width_at_half_max(LINE, y), (tensor(*(1 / (1 + (LINE - 0.1) ** 2)).tolist()),)),
    ],
)
def test_gradients(function, inputs):
    assert torch.autograd.gradcheck(function, inputs)


def test_faddeeva_is_analytic_near_and_far():
    z = torch.tensor([0.3j, 1 + 0.2j, -3 + 1j, 49.9 + 1j, 50.1 + 1j, 2e3j], dtype=torch.complex128, requires_grad=True)
    assert np.array_equal(faddeeva(z).detach(), wofz(z.detach()))
    assert torch.autograd.gradcheck(faddeeva, (z[:4].detach().requires_grad_(),), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(faddeeva, (z[:3].detach().requires_grad_(),))
    (slopes,) = torch.autograd.grad(faddeeva(z).sum().real, z)
    points = z.detach().numpy()
    step = 1e-3 * np.abs(points)
    weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
    expected = sum(c * (wofz(points + k * step) - wofz(points - k * step)) for k, c in weights.items()) / step
    assert np.allclose(slopes.numpy().conj(), expected, rtol=1e-9, atol=0)


# Refusals


def test_refuses_what_it_cannot_mean():
    with pytest.raises(ProblemError, match=r"`window` must be one that scipy\.signal\.get_window knows, but is 'hen'"):
        spectrum(torch.ones(8), window="hen")
    for y in (LINE, torch.cos(3 * LINE)):
        with pytest.raises(ProblemError, match="single peak that falls to half its maximum on both sides, but crosses"):
            half_max_roots(LINE, y)


def test_roots_on_samples_count_once():
    y = torch.tensor([0.0, 0.1, 0.4, 1.0, 2.0, 1.0, 0.4, 0.1, 0.0], dtype=torch.float64)
    assert [value.item() for value in half_max_roots(LINE, y)] == pytest.approx([1.0, -0.5, 0.5], abs=1e-12)
