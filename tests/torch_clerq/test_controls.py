"""Waveforms: their values, their gradients, their life as modules, their fits."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch

from tests.conftest import lambda_system
from torch_clerq import Interval, Positive, ProblemError, Resolution, TorchPropagator, propagate
from torch_clerq.controls import (
    BandLimited,
    Bounded,
    BSpline,
    Concat,
    Fields,
    Fourier,
    Gated,
    GaussianBasis,
    LinearBasis,
    Neural,
    PiecewiseConstant,
    Polar,
    Pulse,
    Quadratures,
    Sampled,
    Sinc,
    Sum,
    TimeSymmetric,
    UnitEnergy,
    Waveform,
    gate,
)
from torch_clerq.objectives import energy

TIME = torch.linspace(0.0, 10.0, 201, dtype=torch.float64)
COARSE = TIME[::8]
ALL = (0.0, 10.0)
OTHER = 0.5 + torch.sin(TIME) * torch.exp(-((TIME - 4) ** 2) / 8)
"""A waveform that none of those below is."""


def random(*shape, seed=3, low=0.5, high=1.5):
    return torch.from_numpy(np.random.default_rng(seed).uniform(low, high, shape))


def random_complex(*shape, seed=3):
    return torch.complex(random(*shape, seed=seed), random(*shape, seed=seed + 100, low=-1.0, high=1.0))


def basis(*batch, time=TIME, seed=3):
    return GaussianBasis(time, 5, (2.0, 8.0), 1.0, coefficients=random(*batch, 5, seed=seed))


def complex_basis(*batch, time=TIME, seed=3):
    return GaussianBasis(time, 5, (2.0, 8.0), 1.0, coefficients=random_complex(*batch, 5, seed=seed))


def pulse(envelope, time, seed, batch, **args):
    """A pulse whose arguments vary by a fifth about the given ones."""
    varied = {name: value * random(*batch, seed=seed + k, low=0.9, high=1.1)
              for k, (name, value) in enumerate(args.items())}  # fmt: skip
    return Pulse(time, envelope, varied)


WAVEFORMS = {
    "linear": lambda *batch, time=TIME, seed=3: LinearBasis(
        time, torch.stack([time**k for k in range(3)]), coefficients=random(*batch, 3, seed=seed)),
    "gaussian": basis,
    "gaussian, complex": complex_basis,
    "b-spline": lambda *batch, time=TIME, seed=3: BSpline(time, 7, ALL, coefficients=random(*batch, 7, seed=seed)),
    "fourier": lambda *batch, time=TIME, seed=3: Fourier(time, 3, ALL, coefficients=random(*batch, 7, seed=seed)),
    "fourier, complex": lambda *batch, time=TIME, seed=3: Fourier(
        time, 3, ALL, coefficients=random_complex(*batch, 7, seed=seed)),
    "sinc": lambda *batch, time=TIME, seed=3: Sinc(
        time, 0.5, (2.0, 8.0), coefficients=random(*batch, 7, seed=seed)),
    "steps": lambda *batch, time=TIME, seed=3: PiecewiseConstant(
        time, 5, (1.0, 9.0), rise=0.6, coefficients=random(*batch, 5, seed=seed)),
    "sampled": lambda *batch, time=TIME, seed=3: Sampled(time, random(*batch, 26, seed=seed), at=COARSE),
    "neural": lambda *batch, time=TIME, seed=3: Neural(
        time, ALL, hidden=(4,), frequencies=2, batch=batch, seed=seed),
    "neural, complex": lambda *batch, time=TIME, seed=3: Neural(
        time, ALL, hidden=(4, 3), frequencies=1, batch=batch, complex=True, seed=seed),
    "pulse, gaussian": lambda *batch, time=TIME, seed=3: pulse(
        "gaussian", time, seed, batch, ampl=1.0, centre=5.0, fwhm=2.0),
    "pulse, gaussian by area": lambda *batch, time=TIME, seed=3: pulse(
        "gaussian", time, seed, batch, n_pi=1.0, centre=5.0, fwhm=2.0),
    "pulse, sech": lambda *batch, time=TIME, seed=3: pulse(
        "sech", time, seed, batch, ampl=1.0 + 0.5j, centre=5.0, width=1.0),
    "pulse, sech by area": lambda *batch, time=TIME, seed=3: pulse(
        "sech", time, seed, batch, n_pi=2.0, centre=5.0, fwhm=1.5),
    "pulse, ramp": lambda *batch, time=TIME, seed=3: pulse(
        "ramp_onoff", time, seed, batch, ampl=1.0, on=3.0, off=7.0, fwhm=1.5),
    "pulse, dip": lambda *batch, time=TIME, seed=3: pulse(
        "ramp_offon", time, seed, batch, ampl=1.0, off=3.0, on=7.0, fwhm=1.5),
    "pulse, on": lambda *batch, time=TIME, seed=3: pulse("ramp_on", time, seed, batch, ampl=1.0, on=3.0, fwhm=1.5),
    "pulse, off": lambda *batch, time=TIME, seed=3: pulse("ramp_off", time, seed, batch, ampl=1.0, off=3.0, fwhm=1.5),
    "pulse, sinc": lambda *batch, time=TIME, seed=3: pulse("sinc", time, seed, batch, ampl=1.0, width=0.3),
    "bounded": lambda *batch, time=TIME, seed=3: Bounded(basis(*batch, time=time, seed=seed), -0.5, 2.0),
    "bounded, peak": lambda *batch, time=TIME, seed=3: Bounded(basis(*batch, time=time, seed=seed), peak=1.5),
    "bounded, peak, complex": lambda *batch, time=TIME, seed=3: Bounded(
        complex_basis(*batch, time=time, seed=seed), peak=1.5),
    "gated": lambda *batch, time=TIME, seed=3: Gated(
        basis(*batch, time=time, seed=seed), gate(time, off=4.0, on=6.0, rise=0.5)),
    "unit energy": lambda *batch, time=TIME, seed=3: UnitEnergy(basis(*batch, time=time, seed=seed), time, 1e-6),
    "band-limited": lambda *batch, time=TIME, seed=3: BandLimited(
        basis(*batch, time=time, seed=seed), time, 0.4),
    "band-limited, complex": lambda *batch, time=TIME, seed=3: BandLimited(
        complex_basis(*batch, time=time, seed=seed), time, 0.4),
    "symmetric": lambda *batch, time=TIME, seed=3: TimeSymmetric(basis(*batch, time=time, seed=seed), time),
    "sum": lambda *batch, time=TIME, seed=3: Sum(
        [basis(*batch, time=time, seed=seed), Fourier(time, 1, ALL, coefficients=random(*batch, 3, seed=seed + 1))]),
    "polar": lambda *batch, time=TIME, seed=3: Polar(
        basis(*batch, time=time, seed=seed), basis(*batch, time=time, seed=seed + 1)),
    "quadratures": lambda *batch, time=TIME, seed=3: Quadratures(
        basis(*batch, time=time, seed=seed), basis(*batch, time=time, seed=seed + 1)),
    "all": lambda *batch, time=TIME, seed=3: UnitEnergy(
        Gated(Bounded(basis(*batch, time=time, seed=seed), 0.0, 3.0), gate(time, off=6.0, rise=0.3)), time, 2.0),
}  # fmt: skip


def difference(waveform, target):
    waveform, target = waveform.detach(), target.detach()
    return float((waveform - target).abs().square().mean().sqrt() / target.abs().square().mean().sqrt())


@pytest.mark.parametrize("make", WAVEFORMS.values(), ids=WAVEFORMS)
class TestWaveform:
    """What every waveform keeps."""

    def test_shape_and_precision(self, make):
        waveform = make()
        assert isinstance(waveform, Waveform)
        assert waveform().shape == TIME.shape
        assert make(3, 2)().shape == (3, 2, *TIME.shape)
        wide = waveform()
        assert wide.dtype.to_real() == torch.float64
        for narrow in (make().float(), make().to(torch.float32), make(time=TIME.float())):
            assert narrow().dtype == (torch.complex64 if wide.is_complex() else torch.float32)
            assert difference(narrow(), wide) < 1e-5
        back = waveform.float().double()
        assert back().dtype == wide.dtype
        assert difference(back(), wide) < 1e-6

    def test_batch_is_a_stack_of_single_ones(self, make):
        batch = make(3)
        single = make()
        for k, expected in enumerate(batch()):
            single.load_state_dict({name: value[k] for name, value in batch.state_dict().items()})
            assert difference(single(), expected) < 1e-14

    def test_gradient(self, make):
        waveform = make(time=COARSE)
        if isinstance(waveform, UnitEnergy):  # of order one, which the differences of gradcheck need
            waveform.energy = 1.0
        names = [name for name, _ in waveform.named_parameters()]

        def of(*values):
            return torch.func.functional_call(waveform, dict(zip(names, values, strict=True)), ())

        values = tuple(value.detach().clone().requires_grad_() for value in waveform.parameters())
        assert torch.autograd.gradcheck(of, values, rtol=1e-6, atol=1e-7)

    def test_every_parameter_has_a_gradient(self, make):
        waveform = make()
        waveform().abs().square().sum().backward()
        for parameter in waveform.parameters():
            assert parameter.grad.isfinite().all()

    def test_copies_pickles_and_loads(self, make):
        waveform = make()
        fresh = make(seed=4)
        assert not torch.equal(fresh(), waveform())
        fresh.load_state_dict(waveform.state_dict())
        for twin in (fresh, copy.deepcopy(waveform), pickle.loads(pickle.dumps(waveform))):
            assert torch.equal(twin(), waveform())
        assert set(waveform.state_dict()) == {name for name, _ in waveform.named_parameters()}

    def test_loads_onto_another_grid(self, make):
        coarse, fine = make(), make(time=torch.linspace(0.0, 10.0, 401, dtype=torch.float64))
        with torch.no_grad():
            for parameter in coarse.parameters():
                parameter.mul_(0.9)
        fine.load_state_dict(coarse.state_dict())
        # as well as the grids know the energy and the filter
        rtol = 2e-2 if isinstance(coarse, BandLimited) else 1e-3
        atol = rtol * float(coarse().detach().abs().max())
        torch.testing.assert_close(fine()[::2], coarse(), rtol=0, atol=atol)

    def test_says_what_it_is(self, make):
        text = repr(make())
        assert any(word in text for word in ("count=", "frequencies=", "trainable="))

    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_fit_recovers_a_waveform_it_can_be(self, make, batch, request):
        target, waveform = make(*batch, seed=7)().detach(), make(*batch)
        assert difference(waveform(), target) > 1e-3
        network = "neural" in request.node.callspec.id
        left = waveform.fit_to(target, steps=50 if network else 500)
        assert left.shape == batch
        assert not left.requires_grad
        assert difference(waveform(), target) <= 2 * float(left.max()) + 1e-16
        assert (left < (0.1 if network else 1e-8)).all()
        assert all(parameter.requires_grad for parameter in waveform.parameters())

    def test_fit_comes_nearer_to_others(self, make):
        waveform = make(2)
        before = waveform().detach()
        left = waveform.fit_to(OTHER, steps=50)
        for k in range(2):
            assert difference(waveform()[k], OTHER) == pytest.approx(left[k].item(), rel=1e-6)
            assert left[k] <= difference(before[k], OTHER) * (1 + 1e-9)

    def test_fit_in_single_precision(self, make, request):
        waveform = make().float()
        network = "neural" in request.node.callspec.id
        left = waveform.fit_to(make(seed=7)().detach(), steps=50 if network else 500)
        assert left.dtype == torch.float32
        assert left < (0.1 if network else 1e-4)

    def test_fit_refuses(self, make):
        waveform = make()
        for wrong in (TIME[:-1], TIME.expand(2, -1)):
            with pytest.raises(
                ProblemError, match=r"`target` must have the waveform's shape \(201,\).*, but has shape"
            ):
                waveform.fit_to(wrong)
        with pytest.raises(ProblemError, match="`target` must be finite"):
            waveform.fit_to(torch.full_like(TIME, torch.nan))
        if not waveform().is_complex():
            with pytest.raises(ProblemError, match="`target` must be real, as the waveform is"):
                waveform.fit_to(1j * TIME)

    def test_fit_leaves_what_is_frozen(self, make):
        waveform = make().requires_grad_(False)
        before = copy.deepcopy(waveform.state_dict())
        waveform.fit_to(OTHER, steps=5)
        assert all(torch.equal(before[name], value) for name, value in waveform.state_dict().items())


# Bases


def test_gaussian_basis_is_the_sum_it_says():
    waveform = GaussianBasis(TIME, 2, (2.0, 5.0), 0.5, coefficients=torch.tensor([1.0, -2.0]))
    expected = torch.exp(-((TIME - 2) ** 2) / 0.5) - 2 * torch.exp(-((TIME - 5) ** 2) / 0.5)
    torch.testing.assert_close(waveform(), expected, rtol=1e-13, atol=1e-16)


def test_gaussian_basis_with_equal_coefficients_is_a_plateau():
    plateau = GaussianBasis(TIME, 21, (0.0, 10.0), coefficients=torch.ones(21))()[80:121]
    assert float((plateau.max() / plateau.min()).detach() - 1) < 1e-7


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_b_splines_are_polynomials_between_knots_and_a_partition_of_one(degree):
    inside = (TIME >= 2.0) & (TIME <= 8.0)
    ones = BSpline(TIME, 9, (2.0, 8.0), degree=degree, coefficients=torch.ones(9))()
    torch.testing.assert_close(ones, inside.double(), rtol=1e-14, atol=1e-15)
    spline = BSpline(TIME, 9, (0.0, 10.0), degree=degree)
    assert spline.fit_to((TIME / 10) ** degree) < 1e-13


def test_other_coefficients_pass_through_what_is_wrapped_around_a_basis():
    """As those of a network do, with gradients."""
    others = random(3, 5, seed=9).requires_grad_()

    def wrapped(waveform):
        inner = Gated(Bounded(waveform, peak=2.0), gate(TIME, off=6.0, rise=0.5))
        return UnitEnergy(TimeSymmetric(BandLimited(inner, TIME, 2.0), TIME), TIME)

    own = GaussianBasis(TIME, 5, (2.0, 8.0), 1.0, coefficients=others.detach())
    torch.testing.assert_close(wrapped(basis())(others), wrapped(own)(), rtol=0, atol=0)
    wrapped(basis())(others).square()[:, :90].sum().backward()
    wrapped(own)().square()[:, :90].sum().backward()
    torch.testing.assert_close(others.grad, own.coefficients.grad)


def test_a_fourier_series_is_periodic_and_its_coefficients_are_amplitudes():
    waveform = Fourier(TIME, 2, (0.0, 5.0), coefficients=torch.tensor([1.0, 2.0, 0.0, 0.0, 3.0]))
    expected = 1 + 2 * torch.cos(2 * torch.pi * TIME / 5) + 3 * torch.sin(4 * torch.pi * TIME / 5)
    torch.testing.assert_close(waveform(), expected, rtol=1e-12, atol=1e-13)
    blue = Fourier(TIME, 1, (0.0, 5.0), complex=True)
    assert blue.fit_to(torch.exp(2j * torch.pi * TIME / 5)) < 1e-13


def outside(waveform, time, bandwidth):
    """Share of the energy beyond a bandwidth, of the waveform with darkness on both sides."""
    count = 16 * len(time)
    power = torch.fft.fft(waveform.detach(), n=count).abs().square()
    frequency = torch.fft.fftfreq(count, float(time[1] - time[0]), dtype=torch.float64).abs()
    return float(power[frequency > bandwidth].sum() / power.sum())


def test_sinc_takes_its_coefficients_as_values_and_keeps_its_band():
    time = torch.linspace(-60.0, 70.0, 2601, dtype=torch.float64)
    values = random(11)
    waveform = Sinc(time, 1.0, (0.0, 5.0), coefficients=values)
    assert waveform.coefficients.shape == (11,)
    torch.testing.assert_close(waveform()[1200:1301:10], values, rtol=1e-12, atol=1e-12)
    assert outside(waveform(), time, 1.02) < 1e-4  # the tails are cut off
    assert outside(waveform(), time, 0.9) > 1e-3


def test_steps_have_their_heights_and_their_rise():
    time = torch.linspace(0.0, 10.0, 100_001, dtype=torch.float64)
    waveform = PiecewiseConstant(time, 2, (2.0, 8.0), rise=0.5, coefficients=torch.tensor([1.0, 3.0]))().detach()
    torch.testing.assert_close(waveform[[35_000, 65_000]], torch.tensor([1.0, 3.0], dtype=torch.float64))
    edge = waveform[:35_000]
    ten, ninety = (int((edge > share).nonzero()[0]) for share in (0.1, 0.9))
    assert (ninety - ten) * 1e-4 == pytest.approx(0.5, abs=2e-4)
    assert waveform[20_000] == pytest.approx(0.5)
    assert waveform[50_000] == pytest.approx(2.0)
    assert (waveform >= 0).all()
    assert 0 < waveform[-20_000 + 8_000] < 1e-4  # the tail after the end has no rounding noise
    equal = PiecewiseConstant(TIME, 4, (2.0, 8.0), rise=0.5, coefficients=torch.ones(4))()[60:141]
    torch.testing.assert_close(equal, torch.ones(81, dtype=torch.float64), rtol=1e-5, atol=0)


def test_samples_are_what_they_are():
    samples = random(2, 201)
    assert torch.equal(Sampled(TIME, samples)(), samples)
    smooth = Sampled(TIME, torch.sin(COARSE), at=COARSE)()
    assert difference(smooth, torch.sin(TIME)) < 1e-4
    longer = torch.linspace(-1.0, 11.0, 25, dtype=torch.float64)
    assert (Sampled(longer, torch.ones(26), at=COARSE)()[[0, 1, -2, -1]] == 0).all()


def test_networks_start_from_their_seed():
    networks = [Neural(TIME, ALL, seed=seed)() for seed in (0, 0, 1)]
    assert torch.equal(networks[0], networks[1])
    assert not torch.allclose(networks[0], networks[2])
    assert 0.05 < networks[0].detach().std() < 5
    assert Neural(TIME, ALL, hidden=(16, 16)).fit_to(OTHER, steps=50) < 1e-2


# Pulses


@pytest.mark.parametrize(
    ("envelope", "args"),
    [("gaussian", {"ampl": 0.5, "centre": 4.0, "fwhm": 1.5}), ("gaussian", {"n_pi": 1.5, "centre": 4.0, "fwhm": 1.5}),
     ("sech", {"n_pi": 2.0, "centre": 4.0, "width": 0.7}), ("ramp_onoff", {"ampl": 1.0, "on": 3, "off": 6, "fwhm": 1}),
     ("sinc", {"ampl": 1.0, "width": 0.3})],
)  # fmt: skip
def test_pulses_are_those_of_problem_files(envelope, args):
    drive = {"rabi_freq": 1.0, "rabi_freq_t_func": envelope, "rabi_freq_t_args": args}
    problem = lambda_system(probe=drive, g=(0.0, 0.0), t_min=0.0, t_max=10.0, t_steps=200, z_steps=2)
    expected = propagate(problem, dtype=torch.float64, resolution=Resolution(2, 1), tol=1.0)[0, 0]
    torch.testing.assert_close(Pulse(TIME, envelope, args)() + 0j, expected, rtol=1e-12, atol=1e-14)


def test_arguments_are_in_physical_units_and_trained_as_asked():
    args = {"ampl": 0.5, "centre": 4.0, "fwhm": 1.5}
    assert [name for name, _ in Pulse(TIME, "gaussian", args).named_parameters()] == ["ampl", "centre", "raw_fwhm"]
    assert [name for name, _ in Pulse(TIME, "gaussian", args, trainable="centre").named_parameters()] == ["centre"]
    assert not list(Pulse(TIME, "gaussian", args, trainable=()).parameters())
    waveform = Pulse(TIME, "gaussian", args, trainable={"centre": Interval(3.0, 5.0), "fwhm": Positive()})
    assert [name for name, _ in waveform.named_parameters()] == ["raw_centre", "raw_fwhm"]
    waveform.centre, waveform.fwhm = 4.5, 0.8
    assert waveform.physical_parameters().keys() == {"centre", "fwhm"}
    torch.testing.assert_close(waveform(), Pulse(TIME, "gaussian", args | {"centre": 4.5, "fwhm": 0.8})())
    assert waveform.fit_to(Pulse(TIME, "gaussian", args | {"centre": 4.7, "fwhm": 2.0})().detach()) < 1e-10
    assert waveform.centre.item() == pytest.approx(4.7, rel=1e-9)
    assert waveform.fit_to(Pulse(TIME, "gaussian", args | {"centre": 7.0, "fwhm": 2.0})().detach()) > 0.1
    assert 3 < waveform.centre.item() < 5


def test_arguments_broadcast_to_one_batch():
    waveform = Pulse(TIME, "sech", {"ampl": torch.ones(3, 1), "centre": torch.tensor([2.0, 5.0]), "width": 1.0})
    assert waveform().shape == (3, 2, 201)
    assert waveform.width.shape == (3, 2)


def test_fit_finds_a_pulse_far_away():
    waveform = Pulse(TIME, "sech", {"ampl": 1.0, "centre": 1.0, "fwhm": 0.2})
    assert waveform.fit_to(Pulse(TIME, "sech", {"ampl": 1e-3, "centre": 7.0, "fwhm": 1.0})().detach()) < 1e-10


# Wrappers


def test_bounds_are_never_crossed():
    waveform = Bounded(GaussianBasis(TIME, 5, (2.0, 8.0), coefficients=torch.tensor([1e3, -1e3, 0, 9, 5])), 0.0, 3.0)
    assert 0 <= waveform().min() < 1e-9
    assert 3 - 1e-9 < waveform().max() <= 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_peak_is_never_crossed_and_small_waveforms_pass(dtype):
    time = TIME.to(dtype)
    for scale in (1e-30, 1e-3, 1.0, 1e3, 1e30):
        inner = GaussianBasis(time, 5, (2.0, 8.0), coefficients=scale * random_complex(5))
        waveform = Bounded(inner, peak=2.0)
        assert waveform().abs().max() <= 2 * (1 + 2 * torch.finfo(dtype).eps)
        bright = inner().abs() > 1e-3 * inner().abs().max()
        torch.testing.assert_close(waveform()[bright].angle(), inner()[bright].angle(), rtol=1e-5, atol=1e-5)
        if scale < 1e-2:
            torch.testing.assert_close(waveform(), inner(), rtol=1e-5, atol=0)
        waveform().abs().sum().backward()
        assert inner.coefficients.grad.isfinite().all()
    dark = GaussianBasis(time, 5, (2.0, 8.0), complex=True)
    Bounded(dark, peak=2.0)().real.sum().backward()
    torch.testing.assert_close(dark.coefficients.grad.real, dark.functions.sum(-1))  # the identity at 0


def test_energy_is_kept():
    for scale in (1e-30, 1e-9, 1.0, 1e9):
        waveform = WAVEFORMS["all"]()
        with torch.no_grad():
            waveform.waveform.waveform.waveform.coefficients.mul_(scale)
        assert energy(waveform(), TIME).item() == pytest.approx(2.0, rel=1e-12)
    assert energy(UnitEnergy(basis(), TIME)(), TIME).item() == pytest.approx(1.0, rel=1e-12)
    tiny = GaussianBasis(TIME.float(), 5, (2.0, 8.0), coefficients=1e-30 * random(5))
    assert energy(UnitEnergy(tiny, TIME.float())(), TIME.float()).item() == pytest.approx(1.0, rel=1e-5)


def test_darkness_has_no_energy_to_scale():
    with pytest.raises(ProblemError, match=r"`waveform` must not be dark everywhere, .* give it other `coefficients`"):
        UnitEnergy(GaussianBasis(TIME, 5, (2.0, 8.0)), TIME)()


@pytest.mark.parametrize("roll_off", [0.1, 0.25, 1.0])
def test_a_band_limited_waveform_has_no_spectrum_outside(roll_off):
    time = torch.linspace(-20.0, 30.0, 1001, dtype=torch.float64)
    noise = Gated(Sampled(time, random(1001, low=-1.0, high=1.0)), gate(time, on=0.0, off=10.0, rise=3.0))
    waveform = BandLimited(noise, time, 1.0, roll_off=roll_off)()
    assert outside(noise(), time, 1.0) > 0.5
    assert outside(waveform, time, 1.0) < 1e-5  # the response in time has tails that the window cuts off
    kept = torch.exp(-(time**2)) * torch.cos(time)
    slow = BandLimited(Sampled(time, kept), time, 4.0, roll_off=roll_off)()
    if roll_off < 1:
        torch.testing.assert_close(slow, kept, rtol=0, atol=1e-9)


def test_the_end_does_not_reach_round_to_the_start():
    late = Sampled(TIME, torch.where(TIME > 9.5, 1.0, 0.0))
    assert BandLimited(late, TIME, 2.0)()[:20].abs().max() < 1e-4


def test_symmetric_waveforms_are():
    waveform = TimeSymmetric(complex_basis(3), TIME)()
    assert torch.equal(waveform, waveform.flip(-1))
    symmetric = TimeSymmetric(basis(), TIME)()
    torch.testing.assert_close(TimeSymmetric(Sampled(TIME, symmetric.detach()), TIME)(), symmetric)


@pytest.mark.parametrize(
    ("edges", "expected"),
    [({"off": 6.0}, (1, 1, 0.5, 0, 0)), ({"on": 6.0}, (0, 0, 0.5, 1, 1)), ({}, (1, 1, 1, 1, 1)),
     ({"off": 6.0, "on": 8.0}, (1, 1, 0.5, 0, 1)), ({"on": 2.0, "off": 6.0}, (0, 1, 0.5, 0, 0)),
     ({"on": (2.0, 6.5), "off": (5.0, 8.0)}, (0, 1, 0, 1, 0)), ({"off": (2.0, 6.5), "on": [5.0]}, (1, 0, 1, 0, 0))],
)  # fmt: skip
def test_gate(edges, expected):
    time = torch.tensor([0.0, 4.0, 6.0, 7.0, 10.0], dtype=torch.float64)
    torch.testing.assert_close(gate(time, rise=0.1, **edges), torch.tensor(expected, dtype=torch.float64))


def test_gate_rises_in_the_time_it_says():
    edge = gate(torch.tensor([5.0, 5.4], dtype=torch.float64), on=5.2, rise=0.4)
    torch.testing.assert_close(edge, torch.tensor([0.1, 0.9], dtype=torch.float64))


def test_a_gate_stays_between_0_and_1_where_edges_meet():
    for edges in ({"on": 5.0, "off": 5.1}, {"off": 5.0, "on": 5.1}, {"on": (4.0, 5.1), "off": (5.0, 6.0)}):
        factor = gate(TIME, rise=2.0, **edges)
        assert factor.min() >= 0
        assert factor.max() <= 1 + 1e-15


# Compositions


def test_fields_keep_their_names():
    fields = Fields({"probe": basis(), 1: basis(4)})
    assert {key: value.shape for key, value in fields().items()} == {"probe": (201,), 1: (4, 201)}
    assert len(list(fields.parameters())) == 2


def test_concat_broadcasts_batches_and_is_fitted_field_by_field():
    waveforms = Concat([basis(4), complex_basis(), Pulse(TIME, "sech", {"ampl": 1.0, "centre": 5.0, "width": 1.0})])
    assert waveforms().shape == (4, 3, 201)
    assert waveforms().dtype == torch.complex128
    target = torch.stack([basis(seed=5)(), complex_basis(seed=6)(), 2 / torch.cosh(TIME - 4) + 0j]).detach()
    left = waveforms.fit_to(target)
    assert left.shape == (4, 3)
    assert (left < 1e-8).all()
    assert waveforms.float()().dtype == torch.complex64


def test_one_waveform_for_a_batch_takes_the_mean():
    waveforms = Concat([basis(2), basis()])
    targets = basis(2, 2, seed=5)().detach()
    waveforms.fit_to(targets)
    torch.testing.assert_close(waveforms()[:, 0], targets[:, 0])
    torch.testing.assert_close(waveforms()[0, 1], targets[:, 1].mean(0))


def test_a_dark_field_is_fitted_too():
    left = Concat([basis(), basis()]).fit_to(torch.stack([OTHER, 0 * OTHER]))
    assert 0 < left[0] < 0.5
    assert left[1] == 0


def test_a_weak_waveform_is_fitted_in_single_precision():
    waveform = GaussianBasis(TIME.float(), 5, (2.0, 8.0))
    assert 0.1 < waveform.fit_to(1e-25 * OTHER.float()) < 0.5  # of a target whose square underflows
    assert waveform().abs().max() > 1e-26


def test_phases_are_followed_through_turns():
    chirp = torch.exp(-((TIME - 5) ** 2) / 4 + 3j * (TIME - 5) ** 2)
    waveform = Polar(GaussianBasis(TIME, 21, ALL), BSpline(TIME, 9, ALL))
    assert waveform.fit_to(chirp) < 1e-4


def test_input_of_a_propagator():
    problem = lambda_system(t_min=0.0, t_max=10.0, t_steps=200, z_steps=2)
    layer = TorchPropagator(problem, dtype=torch.float64, resolution=Resolution(4, 2), tol=1.0)
    waveforms = Concat([UnitEnergy(basis(2), TIME, 1e-6), Bounded(basis(), 0.0, 3.0)])
    fields = layer(waveforms())
    assert fields.shape == (2, 2, 3, 201)
    torch.testing.assert_close(fields[..., 0, :], waveforms() + 0j)
    by_label = layer(Fields({"probe": waveforms.waveforms[0], "control": waveforms.waveforms[1]})())
    torch.testing.assert_close(by_label, fields)
    energy(fields[:, 0, -1], TIME).sum().backward()
    for parameter in waveforms.parameters():
        assert parameter.grad.abs().max() > 0


ARGS = {"ampl": 1.0, "centre": 5.0, "fwhm": 1.0}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: GaussianBasis(TIME, 0, (0.0, 1.0)), r"`count` must be an integer of at least 1, but is 0"),
        (lambda: GaussianBasis(TIME, 3, (2.0, 1.0)), r"`window` must have its start before its end"),
        (lambda: GaussianBasis(TIME, 3, (0.0, 1.0), 0.0), r"`width` must be positive, but is 0"),
        (lambda: GaussianBasis(TIME, 1, (1.0, 1.0)), r"`width` must be positive, but is None"),
        (lambda: GaussianBasis(TIME, 3, (0.0, 1.0), coefficients=torch.ones(4)), r"count = 3, but has shape \(4,\)"),
        (lambda: GaussianBasis(TIME[None], 3, (0.0, 1.0)), r"`time` must be a tensor of shape \(time,\)"),
        (lambda: GaussianBasis([0.0, 1.0], 3, (0.0, 1.0)), r"`time` must be a tensor of shape \(time,\)"),
        (lambda: LinearBasis(TIME, torch.ones(2, 5)), r"`functions` must have shape \(count, time\) = \(count, 201\)"),
        (lambda: BSpline(TIME, 3, ALL), r"`count` must be an integer of at least 4, but is 3"),
        (lambda: BSpline(TIME, 3, ALL, degree=0), r"`degree` must be an integer of at least 1, but is 0"),
        (lambda: BSpline(TIME, 9, (1.0, 1.0)), r"`window` must have its start before its end, but is \(1, 1\)"),
        (lambda: Fourier(TIME, -1, ALL), r"`harmonics` must be an integer of at least 0, but is -1"),
        (lambda: Sinc(TIME, 0.0, ALL), r"`bandwidth` must be positive, but is 0"),
        (lambda: PiecewiseConstant(TIME, 3, ALL, rise=0.0), r"`rise` must be positive, but is 0"),
        (lambda: Sampled(TIME, torch.ones(5)), r"`samples` must have shape \(\*batch, sample\) with 201 samples, but"),
        (lambda: Sampled(TIME, torch.ones(2), at=torch.tensor([1.0, 0.0])), r"`at` must be increasing times"),
        (lambda: Neural(TIME, ALL, frequencies=0), r"`frequencies` must be an integer of at least 1, but is 0"),
        (lambda: Neural(TIME, ALL, hidden=(0,)), r"`hidden` must be an integer of at least 1, but is 0"),
        (lambda: Pulse(TIME, "square", {"ampl": 1.0, "on": 1.0, "off": 2.0}), r"`envelope` must be a smooth pulse"),
        (lambda: Pulse(TIME, "gauss", ARGS), r'`envelope` must be one of .*, but is "gauss" \(did you mean'),
        (lambda: Pulse(TIME, "sech", ARGS | {"n_pi": 1.0}), r"`args` must have one of `ampl` and `n_pi`, but has both"),
        (lambda: Pulse(TIME, "gaussian", {"ampl": 1.0, "fwhm": 1.0}), r"`args` must have .*, but lacks `centre`"),
        (lambda: Pulse(TIME, "gaussian", ARGS | {"fwhm": 0.0}), r"`args.fwhm` must be positive, but is 0"),
        (lambda: Pulse(TIME, "gaussian", ARGS | {"centre": 1j}), r"`args.centre` must be real, but has dtype"),
        (lambda: Pulse(TIME, "gaussian", ARGS, trainable=["on"]), r"`trainable` must have names among ampl, centre, f"),
        (lambda: Pulse(TIME, "gaussian", ARGS | {"ampl": torch.ones(2), "centre": torch.ones(3)}),
         r"`args` must have shapes that broadcast to one another, but has \(2,\), \(3,\), \(\)"),
        (lambda: Bounded(basis(), 2.0, 1.0), r"`low` must be below `high`"),
        (lambda: Bounded(basis()), r"`peak` must be given in place of `low` and `high`, but they are None, None"),
        (lambda: Bounded(basis(), 0.0, 1.0, peak=1.0), r"`peak` must be given in place of `low` and `high`"),
        (lambda: Bounded(basis(), 0.0), r"`peak` must be given in place of `low` and `high`"),
        (lambda: Bounded(basis(), peak=0.0), r"`peak` must be positive, but is 0"),
        (lambda: UnitEnergy(basis(), TIME, 0.0), r"`energy` must be positive, but is 0"),
        (lambda: gate(TIME, off=1.0, rise=0.0), r"`rise` must be positive, but is 0"),
        (lambda: gate(TIME, off=(1.0, 2.0), rise=0.1), r"`on` must take turns with `off` in time, but they are"),
        (lambda: gate(TIME, off=1.0, on=1.0, rise=0.1), r"`on` must take turns with `off` in time"),
        (lambda: BandLimited(basis(), TIME, 0.0), r"`bandwidth` must be positive, but is 0"),
        (lambda: BandLimited(basis(), TIME, 20.0), r"`bandwidth` must be at most 10, half the rate of the time grid"),
        (lambda: BandLimited(basis(), TIME, 1.0, roll_off=2.0), r"`roll_off` must be at most 1, but is 2"),
        (lambda: BandLimited(basis(), TIME**2, 1.0), r"`time` must be a uniform grid"),
        (lambda: TimeSymmetric(basis(), TIME**2), r"`time` must be symmetric about its middle"),
        (lambda: Sum([]), r"`waveforms` must have at least one waveform, but is empty"),
        (lambda: Concat([]), r"`waveforms` must have at least one waveform, but is empty"),
    ],
)  # fmt: skip
def test_refusals(make, text):
    with pytest.raises(ProblemError, match=text):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: GaussianBasis(TIME, 2.5, ALL), "`count` must be an integer"),
        (lambda: GaussianBasis(TIME, 3, (0.0, math.inf)), "`window` must be two finite times"),
        (lambda: GaussianBasis(TIME * math.nan, 3, ALL), "`time` must be finite"),
        (lambda: GaussianBasis(TIME, 3, ALL, coefficients=[math.nan] * 3), "`coefficients` must be finite"),
        (lambda: Bounded(3, 0.0, 1.0), "`waveform` must be a waveform"),
        (lambda: Bounded(GaussianBasis(TIME, 3, ALL, complex=True), 0.0, 1.0)(), "`waveform` must be real"),
        (lambda: gate(TIME, off=math.nan, rise=0.1), "`on` must be a time or times"),
        (lambda: Neural(TIME, ALL, seed=-1), "`seed` must be an integer"),
        (lambda: GaussianBasis(TIME, 3, ALL).fit_to(torch.full((len(TIME),), 1e200, dtype=torch.float64)), "`target`"),
    ],
)
def test_more_arguments_that_are_none(make, text):
    with pytest.raises(ProblemError, match=text):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda one, other: Sum([one, other]), r"`waveforms\[1\]` must be on one time grid with `waveforms\[0\]`"),
        (lambda one, other: Concat([one, other]), r"`waveforms\[1\]` must be on one time grid with `waveforms\[0\]`"),
        (lambda one, other: Polar(one, other), "`phase` must be on one time grid with `amplitude`, of 201 times"),
        (lambda one, other: Quadratures(one, other), "`imag` must be on one time grid with `real`, of 201 times"),
        (
            lambda one, other: Gated(one, torch.ones(7)),
            "`factor` must be on one time grid with `waveform`, of 201 times",
        ),
        (lambda one, other: UnitEnergy(one, TIME[:7]), "`time` must be on one time grid with `waveform`, of 201 times"),
    ],
)
def test_parts_on_different_grids_are_refused(make, text):
    with pytest.raises(ProblemError, match=text):
        make(basis(), basis(time=TIME[:100]))()
