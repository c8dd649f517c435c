"""Waveforms: their values, their gradients, their life as modules."""

import copy
import pickle

import pytest
import torch

from torch_clerq import ProblemError
from torch_clerq.controls import Bounded, Fields, Gated, GaussianBasis, Normalised, gate
from torch_clerq.objectives import energy

TIME = torch.linspace(0.0, 10.0, 201, dtype=torch.float64)


def basis(*batch, time=TIME):
    generator = torch.Generator().manual_seed(3)
    coefficients = 0.5 + torch.rand(*batch, 5, generator=generator, dtype=torch.float64)
    return GaussianBasis(time, 5, (2.0, 8.0), 1.0, coefficients=coefficients)


WAVEFORMS = {
    "gaussian": basis,
    "bounded": lambda *batch, time=TIME: Bounded(basis(*batch, time=time), -0.5, 2.0),
    "gated": lambda *batch, time=TIME: Gated(basis(*batch, time=time), gate(time, off=4.0, on=6.0, rise=0.5)),
    "normalised": lambda *batch, time=TIME: Normalised(basis(*batch, time=time), time, 1e-6),
    "all": lambda *batch, time=TIME: Normalised(
        Gated(Bounded(basis(*batch, time=time), 0.0, 3.0), gate(time, off=6.0, rise=0.3)), time, 2.0
    ),
}


@pytest.mark.parametrize("make", WAVEFORMS.values(), ids=WAVEFORMS)
class TestWaveform:
    """What every waveform keeps."""

    def test_shape_and_precision(self, make):
        assert make()().shape == TIME.shape
        assert make(3, 2)().shape == (3, 2, *TIME.shape)
        assert make()().dtype == torch.float64
        assert make().float()().dtype == torch.float32

    def test_batch_is_a_stack_of_single_ones(self, make):
        batch = make(3)
        single = make()
        for k, expected in enumerate(batch()):
            single.load_state_dict({name: value[k] for name, value in batch.state_dict().items()})
            torch.testing.assert_close(single(), expected, rtol=1e-14, atol=0)

    def test_gradient(self, make):
        waveform = make()
        ((name, parameter),) = waveform.named_parameters()

        def of(coefficients):
            return torch.func.functional_call(waveform, {name: coefficients}, ())

        assert torch.autograd.gradcheck(of, (parameter.detach().clone().requires_grad_(),), rtol=1e-8)

    def test_copies_pickles_and_loads(self, make):
        waveform = make()
        for twin in (copy.deepcopy(waveform), pickle.loads(pickle.dumps(waveform))):
            assert torch.equal(twin(), waveform())

    def test_loads_onto_another_grid(self, make):
        coarse, fine = make(), make(time=torch.linspace(0.0, 10.0, 401, dtype=torch.float64))
        with torch.no_grad():
            next(coarse.parameters()).mul_(0.7)
        fine.load_state_dict(coarse.state_dict())
        torch.testing.assert_close(fine()[::2], coarse(), rtol=1e-3, atol=1e-9)  # as well as the grids know the energy

    def test_says_what_it_is(self, make):
        assert "count=5" in repr(make())


def test_gaussian_basis_is_the_sum_it_says():
    waveform = GaussianBasis(TIME, 2, (2.0, 5.0), 0.5, coefficients=torch.tensor([1.0, -2.0]))
    expected = torch.exp(-((TIME - 2) ** 2) / 0.5) - 2 * torch.exp(-((TIME - 5) ** 2) / 0.5)
    torch.testing.assert_close(waveform(), expected, rtol=1e-13, atol=1e-16)


def test_gaussian_basis_with_equal_coefficients_is_a_plateau():
    plateau = GaussianBasis(TIME, 21, (0.0, 10.0), coefficients=torch.ones(21))()[80:121]
    assert float((plateau.max() / plateau.min()).detach() - 1) < 1e-7


def test_bounds_are_never_crossed():
    waveform = Bounded(GaussianBasis(TIME, 5, (2.0, 8.0), coefficients=torch.tensor([1e3, -1e3, 0, 9, 5])), 0.0, 3.0)
    assert 0 <= waveform().min() < 1e-9
    assert 3 - 1e-9 < waveform().max() <= 3


def test_energy_is_kept():
    for scale in (1e-9, 1.0, 1e9):
        waveform = WAVEFORMS["all"]()
        with torch.no_grad():
            waveform.waveform.waveform.waveform.coefficients.mul_(scale)
        assert energy(waveform(), TIME).item() == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize(
    ("edges", "expected"),
    [({"off": 6.0}, (1, 1, 0.5, 0, 0)), ({"on": 6.0}, (0, 0, 0.5, 1, 1)),
     ({"off": 6.0, "on": 8.0}, (1, 1, 0.5, 0, 1)), ({"on": 2.0, "off": 6.0}, (0, 1, 0.5, 0, 0))],
)  # fmt: skip
def test_gate(edges, expected):
    time = torch.tensor([0.0, 4.0, 6.0, 7.0, 10.0], dtype=torch.float64)
    torch.testing.assert_close(gate(time, rise=0.1, **edges), torch.tensor(expected, dtype=torch.float64))


def test_gate_rises_in_the_time_it_says():
    edge = gate(torch.tensor([5.0, 5.4], dtype=torch.float64), on=5.2, rise=0.4)
    torch.testing.assert_close(edge, torch.tensor([0.1, 0.9], dtype=torch.float64))


def test_fields_keep_their_names():
    fields = Fields({"probe": basis(), 1: basis(4)})
    assert {key: value.shape for key, value in fields().items()} == {"probe": (201,), 1: (4, 201)}
    assert len(list(fields.parameters())) == 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: GaussianBasis(TIME, 0, (0.0, 1.0)), r"`count` must be at least 1, but is 0"),
        (lambda: GaussianBasis(TIME, 3, (2.0, 1.0)), r"`window` must have its start before its end"),
        (lambda: GaussianBasis(TIME, 3, (0.0, 1.0), 0.0), r"`width` must be positive, but is 0"),
        (lambda: GaussianBasis(TIME, 1, (1.0, 1.0)), r"`width` must be positive, but is None"),
        (lambda: GaussianBasis(TIME, 3, (0.0, 1.0), coefficients=torch.ones(4)), r"count = 3, but has shape \(4,\)"),
        (lambda: Bounded(basis(), 2.0, 1.0), r"`low` must be below `high`"),
        (lambda: Normalised(basis(), TIME, 0.0), r"`energy` must be positive, but is 0"),
        (lambda: gate(TIME, off=1.0, rise=0.0), r"`rise` must be positive, but is 0"),
    ],
)
def test_refusals(make, text):
    with pytest.raises(ProblemError, match=text):
        make()
