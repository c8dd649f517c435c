"""Objectives: closed forms, gradients of order one where little is left, extremes of single precision, refusals."""

import math

import numpy as np
import pytest
import torch

from jax_kernel.medium import optical_path
from tests.conftest import lambda_system, two_level
from torch_clerq import ProblemError, Resolution, TorchPropagator
from torch_clerq.analysis import photon_number, populations, spin_wave, stored_excitations
from torch_clerq.controls import Sampled
from torch_clerq.objectives import (
    bandwidth_penalty,
    energy,
    log_energy,
    log_population_transfer,
    log_pulse_fidelity,
    log_pulse_infidelity,
    log_retrieval_efficiency,
    log_spectral_overlap,
    log_storage_efficiency,
    log_transmission,
    population_transfer,
    pulse_fidelity,
    retrieval_efficiency,
    smoothness_penalty,
    spectral_overlap,
    storage_efficiency,
    transmission,
)
from torch_clerq.spectra import freq_list, spectrum

TIME = torch.linspace(-8.0, 8.0, 321, dtype=torch.float64)


def random(*shape, seed=0):
    parts = np.random.default_rng(seed).normal(size=(2, *shape))
    return torch.complex(*torch.from_numpy(parts)).requires_grad_()


def gaussian(time=TIME, centre=0.0):
    return torch.exp(-((time - centre) ** 2))


# Energies and efficiencies


def test_energy_of_a_gaussian():
    time = torch.linspace(-8.0, 8.0, 801, dtype=torch.float64)
    field = (0.3 + 0.4j) * torch.exp(-(time**2) / 2)
    assert energy(field, time).item() == pytest.approx(0.25 * math.sqrt(math.pi), rel=1e-13)
    for after in (-0.05, 0.0, 1.234):
        expected = 0.25 * math.sqrt(math.pi) * math.erfc(after) / 2
        assert energy(field, time, after=after).item() == pytest.approx(expected, rel=1e-3)
    assert energy(field, time, after=8.0).item() == 0
    assert energy(field, time, after=-9.0).item() == energy(field, time).item()


def test_energy_is_exact_for_lines_wherever_it_starts():
    time = torch.tensor([0.0, 1.0, 3.0, 4.0], dtype=torch.float64)
    field = time.sqrt()
    for after in (0.0, 0.4, 2.0, 3.0, 3.9):
        assert energy(field, time, after=after).item() == pytest.approx((16 - after**2) / 2, rel=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_objective_has_gradients_of_order_one_where_little_is_retrieved(dtype):
    time = torch.linspace(0.0, 4.0, 41, dtype=dtype)
    scale = torch.tensor(1e-25, dtype=dtype, requires_grad=True)
    fields = torch.stack([torch.ones_like(time) * 1e-3, scale * torch.exp(-((time - 3) ** 2))])[None]
    value = log_retrieval_efficiency(fields, time, after=2.0)
    value.backward()
    shape = torch.exp(-((time.double() - 3) ** 2))
    expected = math.log(energy(shape, time.double(), after=2.0) / 4e-6) - 50 * math.log(10)
    assert value.item() == pytest.approx(expected, rel=1e-6)
    assert (scale.grad * scale.detach()).item() == pytest.approx(2.0, rel=1e-5)  # d log E / d log scale


def test_log_energy_of_darkness_is_finite():
    field = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    value = log_energy(field, torch.arange(5.0, dtype=torch.float64))
    value.backward()
    assert math.isfinite(value.item())
    assert torch.equal(field.grad, torch.zeros_like(field))


def test_objective_gradcheck_and_batch():
    generator = torch.Generator().manual_seed(0)
    fields = torch.randn(3, 2, 2, 9, generator=generator, dtype=torch.complex128, requires_grad=True)
    time = torch.linspace(0.0, 2.0, 9, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: log_retrieval_efficiency(x, time, field=1, after=1.1), (fields,))
    batch = retrieval_efficiency(fields, time, field=1, after=1.1)
    for k in range(3):
        assert batch[k].item() == pytest.approx(retrieval_efficiency(fields[k], time, field=1, after=1.1).item())


def test_transmission_is_that_of_beer_and_lambert():
    problem = two_level(rate=1.0, g=2.0, rabi_freq=1e-4, t_min=-40.0, t_max=60.0, t_steps=500,
                        args={"ampl": 1.0, "centre": 0.0, "fwhm": 20.0})  # fmt: skip
    layer = TorchPropagator(
        problem, trainable=("interaction_strengths",), dtype=torch.float64, resolution=Resolution(24, 8), tol=1.0
    )
    fields = layer()
    logarithm = log_transmission(fields, layer.time)
    assert logarithm.item() == pytest.approx(-8.0, rel=0.02)  # optical depth 4g/γ; the pulse has a spectrum
    assert transmission(fields, layer.time).item() == pytest.approx(logarithm.exp().item(), rel=1e-12)
    assert logarithm.item() == log_retrieval_efficiency(fields, layer.time).item()
    logarithm.backward()
    assert layer.interaction_strengths.grad.item() == pytest.approx(-4.0, rel=0.05)
    backward = log_transmission(fields.flip(-2), layer.time, backward=True)
    assert backward.item() == pytest.approx(logarithm.item())


@pytest.fixture(scope="module")
def memory():
    control = {"rabi_freq": 1.0, "rabi_freq_t_args": {"ampl": 1.0, "fwhm": 0.5, "on": -3.0, "off": 0.8}}
    problem = lambda_system(g=(6.0, 6.0), t_steps=200, z_steps=20, control=control)
    options = {"dtype": torch.float64, "resolution": Resolution(16, 4), "tol": 1.0}
    layer = TorchPropagator(problem, trainable=("rabi_freq",), **options)
    return layer, layer.solve(outputs=("density_matrix",)), torch.as_tensor(optical_path(problem))


def test_storage_is_the_spin_wave_per_photon(memory):
    layer, solution, path = memory
    options = {"path": path, "interaction_strength": 6.0, "coupled_levels": (0, 2), "at": 3.0}
    found = storage_efficiency(solution.fields, solution.density_matrix, solution.time, **options)
    stored = stored_excitations(spin_wave(solution.density_matrix, solution.time, (0, 2), 3.0), path)
    photons = photon_number(solution.fields, solution.time, torch.tensor([6.0, 6.0], dtype=torch.float64))[0, 0]
    assert found.item() == pytest.approx((stored / photons).item(), rel=1e-12)
    assert 0.1 < found < 0.84
    logarithm = log_storage_efficiency(solution.fields, solution.density_matrix, solution.time, **options)
    assert logarithm.exp().item() == pytest.approx(found.item())
    (gradient,) = torch.autograd.grad(logarithm, layer.rabi_freq)
    assert gradient.isfinite().all()
    assert abs(gradient[1]) > 1e-3
    backward = storage_efficiency(
        solution.fields.flip(-2), solution.density_matrix, solution.time, backward=True, **options
    )
    assert backward.item() == pytest.approx(found.item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [10**-4.5, 1e-30])  # efficiencies of 1e-9, and where squares underflow
def test_every_logarithm_has_a_gradient_of_order_one_where_little_is_left(dtype, size):
    time, path = TIME.to(dtype), torch.linspace(0, 1, 2, dtype=dtype)
    size = torch.tensor(size, dtype=dtype, requires_grad=True)
    bright = gaussian(time)
    leaving = torch.stack([bright, size * bright])[None]
    states = size * torch.ones(2, len(time), 3, 3, dtype=dtype)
    late = gaussian(time, 7.0) * (time > 4)  # meets the early target nowhere
    mostly = late + size * gaussian(time, -3.0)
    early = gaussian(time, -3.0) * (time < 1)
    values = {
        log_energy(size * bright, time): 2,
        log_transmission(leaving, time): 2,
        log_retrieval_efficiency(leaving, time, after=0.5): 2,
        log_storage_efficiency(leaving, states, time, path=path, interaction_strength=1.0, coupled_levels=(0, 2),
                               at=0.0): 2,
        log_population_transfer(states, path, [1, 2]): 1,
        log_pulse_fidelity(mostly, early, time): 2,
        log_pulse_infidelity(early + size * late, early, time): 2,
        log_pulse_infidelity(early + size * late, early, time, global_phase=True): 2,
    }  # fmt: skip
    for value, power in values.items():
        (gradient,) = torch.autograd.grad(value, size, retain_graph=True)
        if size.item() < 1e-20 and value in list(values)[-2:]:
            continue  # what is added to a pulse is rounded away below its precision
        assert (gradient * size.detach()).item() == pytest.approx(power, rel=2e-3)  # d log F / d log size
    assert log_transmission(leaving, time).item() == pytest.approx(2 * math.log(size.item()), rel=1e-5)


@pytest.mark.parametrize(
    "objective",
    [lambda x: log_transmission(x[..., None, :2, :], COARSE), lambda x: pulse_fidelity(x[:, 0], x[:, 1], COARSE),
     lambda x: pulse_fidelity(x[:, 0], x[:, 1], COARSE, global_phase=True),
     lambda x: log_pulse_fidelity(x[:, 0], x[:, 1], COARSE), lambda x: log_pulse_infidelity(x[:, 0], x[:, 1], COARSE),
     lambda x: log_pulse_infidelity(x[:, 0], x[:, 1], COARSE, global_phase=True),
     lambda x: spectral_overlap(x[:, 0], x[:, 1], COARSE), lambda x: log_spectral_overlap(x[:, 0], x[:, 1], COARSE),
     lambda x: smoothness_penalty(x, COARSE), lambda x: bandwidth_penalty(x, COARSE, 0.4),
     lambda x: log_population_transfer(x.reshape(-1, 3, 1, 3, 3).real.square() + 0j, COARSE[4:7], [0, 2]),
     lambda x: log_storage_efficiency(x[:, None], x[:, :, :, None, None].expand(-1, -1, -1, 2, 2), COARSE,
                                      path=COARSE[4:7] ** 2, interaction_strength=2.0, coupled_levels=(0, 1), at=0.4)],
)  # fmt: skip
def test_gradcheck_and_batch(objective):
    values = random(2, 3, 9)
    assert torch.autograd.gradcheck(objective, (values,))
    batch = objective(values)
    assert batch.shape[0] == 2
    for k in range(2):
        torch.testing.assert_close(objective(values[k : k + 1])[0], batch[k])


COARSE = torch.linspace(-1.0, 1.0, 9, dtype=torch.float64)


# Fidelities


def test_fidelity_of_shifted_and_turned_pulses():
    for delay in (0.0, 0.5, 2.0):
        expected = math.exp(-(delay**2) / 2)  # ∫e^{-t² - (t - d)²} dt, normalised
        for factor in (1.0, -3.0, 2j):
            shifted = factor * gaussian(centre=delay) + 0j
            overlap = expected * (factor / abs(factor)).real
            assert pulse_fidelity(shifted, gaussian(), TIME).item() == pytest.approx(expected**2, rel=1e-12)
            with_phase = pulse_fidelity(shifted, gaussian(), TIME, global_phase=True).item()
            assert with_phase == pytest.approx(overlap, rel=1e-12, abs=1e-15)
            assert log_pulse_fidelity(shifted, gaussian(), TIME).item() == pytest.approx(-(delay**2), abs=1e-12)
            missing = log_pulse_infidelity(shifted, gaussian(), TIME, global_phase=True).exp().item()
            assert missing == pytest.approx(1 - overlap, rel=1e-9, abs=1e-15)
            if delay:
                missing = log_pulse_infidelity(shifted, gaussian(), TIME).exp().item()
                assert missing == pytest.approx(1 - expected**2, rel=1e-9)


@pytest.mark.parametrize(("dtype", "small"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_infidelity_is_right_where_the_difference_from_1_is_noise(dtype, small):
    time = TIME.to(dtype)
    pulse = gaussian(time)
    other = time * pulse  # orthogonal, with a quarter of the energy
    expected = 2 * math.log(small) - math.log(4)
    near = pulse + small * other
    assert log_pulse_infidelity(near, pulse, time).item() == pytest.approx(expected, abs=0.05)
    with_phase = log_pulse_infidelity(near, pulse, time, global_phase=True).item()
    assert with_phase == pytest.approx(expected - math.log(2), abs=0.05)
    assert abs(1 - pulse_fidelity(near, pulse, time).item()) < 10 * torch.finfo(dtype).eps  # which it is lost in


def test_infidelity_of_the_same_pulse_is_finite():
    pulse = gaussian().requires_grad_()
    value = log_pulse_infidelity(pulse, gaussian(), TIME)
    value.backward()
    assert -3000 < value.item() < -60
    assert pulse.grad.isfinite().all()


def test_fidelity_does_not_know_scales():
    field, target = random(9).detach().to(torch.complex64), random(9, seed=1).detach().to(torch.complex64)
    time = COARSE.float()
    functions = (pulse_fidelity, log_pulse_fidelity, log_pulse_infidelity, spectral_overlap, log_spectral_overlap)
    for function in functions:
        torch.testing.assert_close(
            function(1e-30 * field, 1e30 * target, time), function(field, target, time), rtol=1e-5, atol=1e-6
        )
    torch.testing.assert_close(bandwidth_penalty(1e-30 * field, time, 0.5), bandwidth_penalty(field, time, 0.5))
    dark = torch.zeros(9, requires_grad=True)
    for function in (*functions, lambda x, _, time: bandwidth_penalty(x, time, 0.5)):
        value = function(dark, target.real, time)
        (gradient,) = torch.autograd.grad(value, dark)
        assert value.isfinite()
        assert gradient.isfinite().all()


def test_spectral_overlap_knows_nothing_of_delay_and_chirp_alone():
    pulse = gaussian()
    assert spectral_overlap(gaussian(centre=3.0), pulse, TIME).item() == pytest.approx(1, abs=1e-9)
    assert spectral_overlap(1j * pulse, pulse, TIME).item() == pytest.approx(1, abs=1e-12)
    shifted = pulse * torch.exp(4j * TIME)
    assert log_spectral_overlap(shifted, pulse, TIME).item() == pytest.approx(-4.0, rel=1e-3)  # −Δω²/4
    missing = log_pulse_infidelity(spectrum(shifted).abs(), spectrum(pulse).abs(), freq_list(TIME)).exp()
    assert missing.item() == pytest.approx(1 - math.exp(-4.0), rel=1e-3)


# Populations


def test_transfer_of_a_pi_pulse():
    problem = two_level(rate=None, g=0.0, rabi_freq=1.0, t_steps=400, z_steps=3,
                        args={"n_pi": 1.0, "centre": 0.0, "fwhm": 1.0})  # fmt: skip
    layer = TorchPropagator(
        problem, trainable=("rabi_freq",), dtype=torch.float64, resolution=Resolution(2, 8), tol=1.0
    )
    path = torch.as_tensor(optical_path(problem))
    for share in (1.0, 0.5, 1e-5):
        layer.rabi_freq = share
        states = layer.solve(outputs=("density_matrix",)).density_matrix
        expected = math.sin(math.pi * share / 2) ** 2
        assert population_transfer(states, path, [1]).item() == pytest.approx(expected, rel=1e-5)
        logarithm = log_population_transfer(states, path, [1])
        assert logarithm.item() == pytest.approx(math.log(expected), abs=1e-4)
        (gradient,) = torch.autograd.grad(logarithm, layer.rabi_freq)
        slope = math.pi * share / math.tan(math.pi * share / 2)
        assert gradient.item() * share == pytest.approx(slope, abs=1e-3)


def test_transfer_is_the_mean_over_atoms():
    states = torch.diag_embed(
        torch.tensor([[[0.0, 1.0], [0.0, 1.0]], [[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
    )
    path = torch.tensor([0.0, 0.4, 0.4])  # the last place has no atoms
    assert population_transfer(states, path, [1]).item() == pytest.approx(0.5)
    assert populations(states, [1])[..., -1].tolist() == [1, 0, 0]


# Penalties


def test_smoothness_of_a_gaussian():
    time = torch.linspace(-8.0, 8.0, 6401, dtype=torch.float64)
    penalty = smoothness_penalty((0.6 + 0.8j) * gaussian(time), time).item()
    assert penalty == pytest.approx(math.sqrt(math.pi / 2), rel=1e-5)  # ∫4t²e^{-2t²} dt


def test_bandwidth_of_a_gaussian():
    bin_width = 1 / (2 * len(TIME) * 0.05)
    for bandwidth in (9.5 * bin_width, 19.5 * bin_width):
        share = bandwidth_penalty(gaussian(), TIME, bandwidth).item()
        expected = math.erfc(math.sqrt(2) * math.pi * bandwidth)  # |spectrum|² is e^{-2π²ν²}
        assert share == pytest.approx(expected, rel=0.05)


def test_samples_learn_a_bandwidth():
    noise = torch.from_numpy(np.random.default_rng(0).normal(size=321)) * gaussian()
    waveform = Sampled(TIME, noise)
    optimiser = torch.optim.LBFGS(waveform.parameters(), max_iter=40, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = bandwidth_penalty(waveform(), TIME, 1.0) + 1e-2 * (waveform() - noise).square().mean()
        loss.backward()
        return loss

    before = bandwidth_penalty(waveform(), TIME, 1.0).item()
    optimiser.step(closure)
    assert bandwidth_penalty(waveform(), TIME, 1.0).item() < 1e-2 < before


STATES = torch.full((2, 9, 2, 2), 0.5)
STORAGE = {"path": COARSE[:2], "coupled_levels": (0, 1)}


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: pulse_fidelity(torch.ones(8), torch.ones(9), COARSE),
         r"`field` must have shape \(\*batch, time\) with 9 times, but has shape \(8,\)"),
        (lambda: log_pulse_infidelity(torch.ones(9), torch.ones(8), COARSE),
         r"`target` must have shape \(\*batch, time\) with 9 times, but has shape \(8,\)"),
        (lambda: bandwidth_penalty(torch.ones(9), COARSE, 0.0), r"`bandwidth` must be positive, but is 0"),
        (lambda: population_transfer(STATES, torch.zeros(2), [1]), r"`path` must end above 0, with atoms on the way"),
        (lambda: population_transfer(STATES, COARSE[-2:], [2]), r"`levels` must have levels from 0 to 1, but has 2"),
        (lambda: storage_efficiency(torch.ones(1, 2, 9), STATES, COARSE, interaction_strength=0.0, at=0.0, **STORAGE),
         r"`interaction_strength` must be positive, but is 0"),
        (lambda: storage_efficiency(torch.ones(1, 2, 9), STATES, COARSE, interaction_strength=1.0, at=3.0, **STORAGE),
         r"`at` must be in the window from -1 to 1, but is 3"),
    ],
)  # fmt: skip
def test_refusals(call, text):
    with pytest.raises(ProblemError, match=text):
        call()


def test_grids_that_a_transform_or_an_integral_cannot_use():
    time = torch.linspace(0.0, 1.0, 9)
    pulse, bent = torch.ones(9), time**2
    for call in (lambda: bandwidth_penalty(pulse, bent, 1.0), lambda: spectral_overlap(pulse, pulse, bent)):
        with pytest.raises(ProblemError, match="`time` must be a uniform grid"):
            call()
    with pytest.raises(ProblemError, match="`time` must be increasing"):
        log_energy(pulse, time.flip(0))
    with pytest.raises(ProblemError, match="`field` must be the index of one of 1"):
        transmission(torch.ones(1, 2, 9), time, field=1)
    with pytest.raises(ProblemError, match="`field` must have shape"):
        log_energy(torch.ones(3), time)


@pytest.mark.parametrize("size", [0.0, 1e-42])
def test_no_slope_of_darkness(size):
    time = torch.linspace(0.0, 1.0, 9)
    field = torch.full((9,), size, requires_grad=True)
    value = log_pulse_infidelity(field, torch.ones(9), time, global_phase=True) + log_energy(field, time)
    assert torch.autograd.grad(value, field)[0].isfinite().all()
