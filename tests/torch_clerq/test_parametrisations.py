"""Maps between raw and physical values."""

import numpy as np
import pytest
import torch

from jax_kernel import ProblemError
from tests.conftest import lambda_system, two_level
from torch_clerq import Interval, Positive, Resolution, Simplex, TorchPropagator

F64 = torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize(
    ("parametrisation", "values"),
    [
        (Positive(), [1e-30, 1e-6, 0.25, 1.0, 19.9, 20.1, 300.0, 1e9]),
        (Interval(-2.0, 5.0), [-1.9999, -1.0, 0.0, 1.5, 4.9999]),
        (Interval(0, 1e-3), [1e-9, 5e-4, 9.99e-4]),
        (Simplex(), [1.0]),
        (Simplex(), [[0.5, 0.25, 0.25], [1e-30, 1e-6, 1 - 1e-6]]),
    ],
)
def test_round_trip(parametrisation, values, dtype):
    values = torch.tensor(values, dtype=dtype)
    raw = parametrisation.raw(values)
    assert raw.dtype == dtype
    assert raw.isfinite().all()
    torch.testing.assert_close(parametrisation.physical(raw), values, rtol=20 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("parametrisation", [Positive(), Interval(-2.0, 5.0)])
def test_smooth_and_increasing_everywhere(parametrisation):
    raw = torch.linspace(-30, 30, 2001, dtype=F64, requires_grad=True)
    physical = parametrisation.physical(raw)
    (slope,) = torch.autograd.grad(physical.sum(), raw)
    assert (slope > 0).all()
    middle = (slope[1:] + slope[:-1]) / 2
    torch.testing.assert_close(physical.diff() / raw.detach().diff(), middle, rtol=1e-4, atol=1e-12)
    far = torch.tensor([-1e6, 1e6], dtype=F64, requires_grad=True)
    parametrisation.physical(far).sum().backward()
    assert far.grad.isfinite().all()


def test_simplex_is_softmax_and_stays_one_anywhere():
    raw = torch.from_numpy(np.random.default_rng(0).normal(scale=300.0, size=(50, 4))).requires_grad_()
    physical = Simplex().physical(raw)
    assert (physical >= 0).all()
    torch.testing.assert_close(physical.sum(-1), torch.ones(50, dtype=F64))
    (gradient,) = torch.autograd.grad(physical[:, 0].sum(), raw)
    assert gradient.isfinite().all()
    torch.testing.assert_close(gradient.sum(-1), torch.zeros(50, dtype=F64))  # raw values may be shifted together
    small = raw.detach() / 300
    assert torch.autograd.gradcheck(Simplex().physical, small.requires_grad_())
    torch.testing.assert_close(Simplex().physical(small + 5), Simplex().physical(small))


MIXED = {"initial_state": (0.5, 0.2, 0.3)}
DETUNED = {"probe": {"detuning": 0.3}, "control": {"detuning": -0.2}}


@pytest.mark.parametrize(
    ("problem", "name", "parametrisation", "new"),
    [
        (two_level(t_steps=40, z_steps=2), "decay_rates", Positive(), [0.6]),
        (lambda_system(t_steps=40, z_steps=2, **DETUNED), "detunings", Interval(-1.0, 1.0), [0.1, 0.4]),
        (lambda_system(t_steps=40, z_steps=2, system=MIXED), "initial_state", Simplex(), [0.2, 0.1, 0.7]),
    ],
    ids=["rates", "detunings", "populations"],
)
def test_trained_through_a_propagator(problem, name, parametrisation, new):
    options = {"dtype": F64, "resolution": Resolution(6, 4), "tol": 1.0}
    layer = TorchPropagator(problem, trainable={name: parametrisation}, **options)
    plain = TorchPropagator(problem, trainable=[name], **options)
    torch.testing.assert_close(layer(), plain())
    setattr(layer, name, torch.tensor(new, dtype=F64))
    torch.testing.assert_close(getattr(layer, name), torch.tensor(new, dtype=F64))

    def loss(raw):
        fields = torch.func.functional_call(layer, {f"raw_{name}": raw}, ())
        return 1e4 * fields[..., 0, -1, :].abs().square().sum()

    raw = layer.get_parameter(f"raw_{name}")
    assert torch.autograd.gradcheck(loss, (raw,), rtol=1e-5, atol=1e-6)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = loss(raw)
    before.backward()
    raw.grad /= raw.grad.abs().max()
    optimiser.step()
    assert loss(raw) < before
    value = getattr(layer, name).detach()
    if name == "initial_state":
        assert value.sum().item() == pytest.approx(1, rel=1e-14)
    assert torch.equal(parametrisation.physical(raw.detach()), value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Interval(1.0, 1.0), "`low` must be below `high`, both finite, but they are 1.0, 1.0"),
        (lambda: Interval(0.0, float("inf")), "`low` must be below `high`, both finite"),
        (lambda: Interval(float("nan"), 1.0), "`low` must be below `high`, both finite"),
        (lambda: Interval("0", 1.0), "`low` must be below `high`, both finite, but they are '0', 1.0"),
        (lambda: Interval(0, 1).raw(torch.tensor([0.5, 1.0])), "must start between 0 and 1"),
        (lambda: Positive().raw(torch.tensor([1.0, 0.0])), "must start from positive values .* but has 0: leave the"),
        (lambda: Simplex().raw(torch.tensor([1.0, 0.0])), "must start from positive values under Simplex.*, but has 0"),
        (lambda: Simplex().raw(torch.tensor([0.5, 0.6])), "must have the sum 1 under Simplex.*, but is off by 0.1"),
        (lambda: Simplex().raw(torch.tensor(1.0)), "must have an axis of values under Simplex.*, but has a number"),
        (lambda: Simplex().raw(torch.tensor([1j])), "must have real parameters under a parametrisation"),
        (lambda: Positive().raw(torch.tensor([1j])), "must have real parameters under a parametrisation"),
        (lambda: Interval(0, 1).raw(torch.tensor([1j])), "must have real parameters under a parametrisation"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ProblemError, match=message):
        make()
