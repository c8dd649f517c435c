"""Maps between raw and physical values."""

import pytest
import torch

from jax_kernel import ProblemError
from torch_clerq import Interval, Positive

F64 = torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize(
    ("parametrisation", "values"),
    [
        (Positive(), [1e-30, 1e-6, 0.25, 1.0, 19.9, 20.1, 300.0, 1e9]),
        (Interval(-2.0, 5.0), [-1.9999, -1.0, 0.0, 1.5, 4.9999]),
        (Interval(0, 1e-3), [1e-9, 5e-4, 9.99e-4]),
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Interval(1.0, 1.0), "`low` must be below `high`, both finite, but they are 1.0, 1.0"),
        (lambda: Interval(0.0, float("inf")), "`low` must be below `high`, both finite"),
        (lambda: Interval(float("nan"), 1.0), "`low` must be below `high`, both finite"),
        (lambda: Interval("0", 1.0), "`low` must be below `high`, both finite, but they are '0', 1.0"),
        (lambda: Interval(0, 1).raw(torch.tensor([0.5, 1.0])), "must start between 0 and 1"),
        (lambda: Positive().raw(torch.tensor([1.0, 0.0])), "must start from positive values .* but has 0: leave the"),
        (lambda: Positive().raw(torch.tensor([1j])), "must have real parameters under a parametrisation"),
        (lambda: Interval(0, 1).raw(torch.tensor([1j])), "must have real parameters under a parametrisation"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ProblemError, match=message):
        make()
