"""What check_gradients and compare_jit say: of every case that they are for, and nothing of what is in order."""

import math
import time
from itertools import pairwise

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from jax_kernel import ProblemError, Resolution
from tests.conftest import lambda_system, two_level
from torch_clerq import Interval, Positive, TorchPropagator, clear_cache, stable
from torch_clerq.controls import Fields, GaussianBasis
from torch_clerq.diagnostics import Growth, Outcome, Verdict, check_gradients, compare_jit
from torch_clerq.objectives import energy, log_retrieval_efficiency

F32, F64 = torch.float32, torch.float64


def tensor(*values, dtype=F64):
    return torch.tensor(values if len(values) > 1 else values[0], dtype=dtype)


def verdict(function, x, **options):
    report = check_gradients(function, x, **options)
    (row,) = report.rows
    assert report.ok == (row.verdict in (Verdict.FINE, Verdict.NOISE_LIMITED)), str(report)
    assert row.verdict.value.split()[0] in str(report)
    assert all(len(line) <= 120 for line in str(report).splitlines())
    return row.verdict.name


def naive_ratio(x):
    return (1 - torch.cos(x)) / x**2


def half_angle(x):
    return 2 * (torch.sin(x / 2) / x) ** 2


def naive_softmax(x):
    return (torch.exp(x) / torch.exp(x).sum())[0]


def naive_logsumexp(x):
    return torch.log(torch.exp(x).sum())


def naive_softplus(x):
    return torch.log(1 + torch.exp(x))


def wilkinson(x):
    product = torch.ones_like(x)
    for root in range(1, 21):
        product = product * (x - root)
    return product


def trace_of_inverse(matrix):
    return torch.linalg.inv(matrix).trace()


def naive_variance(x):
    return (x**2).mean() - x.mean() ** 2


def two_pass_variance(x):
    return ((x - x.mean()) ** 2).mean()


DATA = torch.arange(5.0, dtype=F64)
STRONG = torch.tensor([[1.0, 0.9999], [0.9999, 1.0]], dtype=F64)
WEAK = torch.tensor([[2.0, 0.1], [0.1, 2.0]], dtype=F64)
SCORES, FALLING = tensor(1000.0, 1001.0, 1002.0), tensor(-1000.0, -1001.0, -1002.0)

CASES = {
    **{f"1 − cos at {x:g}": (naive_ratio, tensor(x), "CANCELLATION") for x in (1e-4, 1e-6, 1e-8, 1e-10, 1e-12)},
    "1 − cos at 0.1": (naive_ratio, tensor(0.1), "FINE"),
    "1 − cos in float32": (naive_ratio, tensor(1e-3, dtype=F32), "CANCELLATION"),
    **{f"half angle at {x:g}": (half_angle, tensor(x), "CANCELLATION") for x in (1e-6, 1e-8, 1e-10)},
    **{
        f"series at {x:g}, {dtype}": (stable.one_minus_cos_over_square, tensor(x, dtype=dtype), "FINE")
        for x in (1e-1, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)
        for dtype in (F32, F64)
    },
    "softmax": (naive_softmax, SCORES, "OVERFLOW"),
    "softmax of small numbers": (naive_softmax, FALLING, "UNDERFLOW"),
    "stable softmax": (lambda x: stable.softmax(x)[0], SCORES, "FINE"),
    "log-sum-exp": (naive_logsumexp, tensor(1000.0, 1001.0, 999.0), "OVERFLOW"),
    "stable log-sum-exp": (stable.logsumexp, tensor(1000.0, 1001.0, 999.0), "FINE"),
    "softplus at 0": (naive_softplus, tensor(0.0), "FINE"),
    "softplus at 100": (naive_softplus, tensor(100.0), "FINE"),
    "softplus at 100 in float32": (naive_softplus, tensor(100.0, dtype=F32), "OVERFLOW"),
    "softplus at 1000": (naive_softplus, tensor(1000.0), "OVERFLOW"),
    **{f"stable softplus at {x:g}": (stable.softplus, tensor(x), "FINE") for x in (0.0, 100.0, 1000.0)},
    "Wilkinson": (wilkinson, tensor(10.0), "ILL_CONDITIONED"),
    "Wilkinson beside": (wilkinson, tensor(10 + 1e-10), "ILL_CONDITIONED"),
    "inverse": (trace_of_inverse, STRONG, "ILL_CONDITIONED"),
    "good inverse": (trace_of_inverse, WEAK, "FINE"),
    "regularised inverse": (lambda a: trace_of_inverse(a + 0.1 * torch.eye(2).to(a)), STRONG, "FINE"),
    "sum of a softmax": (lambda x: stable.softmax(x).sum(), tensor(0.3, -1.0, 2.0), "FINE"),
    "sum of a softmax of large numbers": (lambda x: stable.softmax(x).sum(), SCORES, "FINE"),
    "root of a modulus": (lambda x: (x.abs() + 1e-10).sqrt().sum(), tensor(1.0, 2.0, 3.0), "FINE"),
    "sum of 1/n": (lambda x: (x / 1000).sum(), torch.ones(1000), "FINE"),
    "variance in float32": (naive_variance, (1e8 + DATA).float(), "CANCELLATION"),
    "variance at 1e8": (naive_variance, 1e8 + DATA, "CANCELLATION"),
    "variance at 2e8": (naive_variance, 2e8 + DATA, "CANCELLATION"),
    "two-pass variance": (two_pass_variance, 1e8 + DATA, "ILL_CONDITIONED"),
    "centred variance": (two_pass_variance, DATA, "FINE"),
    "centred variance in float32": (two_pass_variance, DATA.float(), "FINE"),
    "sech in float32": (lambda x: 2 / (torch.exp(x) + torch.exp(-x)), tensor(100.0, dtype=F32), "OVERFLOW"),
    "stable sech in float32": (stable.sech, tensor(100.0, dtype=F32), "FINE"),
    "product": (lambda x: torch.log(x.prod()), torch.full((400,), 0.1, dtype=F64), "UNDERFLOW"),
    "sum of logarithms": (lambda x: torch.log(x).sum(), torch.full((400,), 0.1, dtype=F64), "FINE"),
    "dark": (lambda x: torch.exp(-x), tensor(800.0), "UNDERFLOW"),
    "jump": (lambda x: torch.where(x >= 0.5, 1.0, 0.0).to(x) + x**2, tensor(0.5), "DISCONTINUITY"),
    "jump beside": (lambda x: torch.where(x >= 0.5, 1.0, 0.0).to(x) + x**2, tensor(0.5 + 1e-6), "DISCONTINUITY"),
    "steps": (lambda x: torch.round(10 * x) / 10, tensor(0.33), "DISCONTINUITY"),
    "steps in float32": (lambda x: torch.round(10 * x) / 10, tensor(0.33, dtype=F32), "DISCONTINUITY"),
    "sigmoid": (lambda x: torch.sigmoid((x - 0.5) * 10), tensor(0.5), "FINE"),
    "modulus": (lambda x: x.abs(), tensor(0.0), "KINK"),
    "modulus in float32": (lambda x: x.abs() + 1, tensor(0.0, dtype=F32), "KINK"),
    "relu": (lambda x: torch.relu(x).sum(), tensor(0.0, 1.0), "KINK"),
    "relu beside": (lambda x: torch.relu(x).sum(), tensor(0.3, -1.0), "FINE"),
    "root of a square": (lambda x: (x * x).sqrt(), tensor(0.0), "KINK"),
    "smooth modulus": (lambda x: (x * x + 1e-2).sqrt(), tensor(0.0), "FINE"),
    "outside": (lambda x: torch.log(x - 2), tensor(1.0), "UNDEFINED"),
    "flat": (torch.cos, tensor(0.0), "FINE"),
    "constant": (lambda x: torch.ones((), dtype=F64), tensor(0.0), "FINE"),
    "complex": (lambda z: (z * z.conj()).real.sum(), torch.tensor([1 + 2j, 0.3j], dtype=torch.complex128), "FINE"),
    "perfect fit": (lambda x: ((torch.sin(x * DATA) - torch.sin(0.7 * DATA)) ** 2).sum(), tensor(0.7), "FINE"),
    "near fit": (lambda x: ((torch.sin(x * DATA) - torch.sin(0.7 * DATA)) ** 2).sum(), tensor(0.7 + 1e-9), "FINE"),
    "detached": (lambda x: (x.detach() * x).sum(), tensor(1.0, 2.0), "WRONG"),
    "noise": (lambda x: 1e-3 * torch.sin(x) + (1e-5 * torch.sin(1e9 * x)).detach(), tensor(0.3), "NOISE_LIMITED"),
}


@pytest.mark.parametrize("case", CASES)
def test_verdicts(case):
    function, x, expected = CASES[case]
    assert verdict(function, x) == expected


def test_numbers_of_the_cases():
    report = check_gradients(wilkinson, tensor(10.0))
    assert report.rows[0].norm == pytest.approx(math.factorial(9) * math.factorial(10), rel=1e-12)
    assert report.rows[0].norm == pytest.approx(1.316819e12, rel=1e-6)
    assert report.rows[0].amplification > 1e12
    assert float(wilkinson(tensor(10 + 1e-10))) == pytest.approx(131.7, abs=0.1)
    strong, weak = check_gradients(trace_of_inverse, STRONG).rows[0], check_gradients(trace_of_inverse, WEAK).rows[0]
    assert strong.norm == pytest.approx(1.0e8, rel=1e-3)
    assert weak.norm == pytest.approx(0.357984, abs=1e-6)
    assert strong.amplification == pytest.approx(19999, rel=1e-2)
    assert "amplified 2e+04 times" in strong.cause
    x = tensor(1.0, 2.0, 3.0).requires_grad_()
    (slope,) = torch.autograd.grad((x.abs() + 1e-10).sqrt().sum(), x)
    torch.testing.assert_close(slope, tensor(0.5, 0.35355339, 0.28867513), rtol=0, atol=1e-8)
    row = check_gradients(lambda x: (x.abs() + 1e-10).sqrt().sum(), tensor(1.0, 2.0, 3.0)).rows[0]
    assert row.differences < 5e-10


@pytest.mark.parametrize("count", [10, 1000, 10**6])
def test_a_sum_in_float32_is_bounded(count):
    parts = torch.full((count,), 1 / count, dtype=F32)
    assert abs(float(parts.sum()) - 1) < 5e-7
    assert abs(float(parts.double().sum()) - 1) < 1e-7  # 1/n itself is rounded


def test_data_collapse_before_they_are_centred():
    assert float(naive_variance((1e8 + DATA).float())) != 2
    assert float(naive_variance(2e8 + DATA)) != 2
    assert float(two_pass_variance(1e8 + DATA)) == 2
    assert float(two_pass_variance((1e8 + DATA).float())) == 0  # too late
    assert float(two_pass_variance((1e8 + DATA - 1e8).float())) == 2


def test_float32_is_told_of_in_float64():
    report = check_gradients(naive_softplus, tensor(100.0))
    assert report.ok
    assert "In float32 the gradient of x is not what it is in float64." in str(report)


class Wrong(torch.autograd.Function):
    """x³ with a backward that is 1 % off, and no forward mode."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3.03 * x**2


class WrongForward(torch.autograd.Function):
    """x² with a forward mode that has the wrong sign."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x**2

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx, tangent):
        return -2 * tangent * ctx.saved_tensors[0]


@pytest.mark.parametrize(("dtype", "rtol"), [(F32, 1e-3), (F64, None)])
def test_a_wrong_gradient(dtype, rtol):
    x, y = tensor(0.3, 0.7, dtype=dtype), tensor(2.0, dtype=dtype)
    report = check_gradients(lambda x, y: (Wrong.apply(x) * y).sum(), x, y, rtol=rtol)
    assert report["x"].verdict is Verdict.WRONG
    assert report["y"].verdict is Verdict.FINE
    assert report["x"].differences == pytest.approx(0.01, rel=0.05)
    assert "reverse mode is off by 0.0099" in str(report)
    assert "No forward mode" in str(report)
    with pytest.raises(KeyError):
        report["z"]


def test_a_wrong_gradient_beside_an_innocent_cancellation():
    assert verdict(lambda x: (Wrong.apply(x) + ((x - 1e-9) - x) ** 2).sum(), tensor(0.3, 0.7)) == "WRONG"


def test_a_wrong_forward_mode():
    report = check_gradients(lambda x: WrongForward.apply(x).sum(), tensor(0.3, 0.7))
    assert report["x"].verdict is Verdict.WRONG
    assert "forward mode is off by 2" in report["x"].cause


def test_a_compiler_on_request():
    def off(function):
        return lambda tensors: 1.001 * function(tensors)

    x = tensor(0.3, 0.7)
    assert check_gradients(lambda x: x.sin().sum(), x, compiler=lambda function: function).ok
    report = check_gradients(lambda x: x.sin().sum(), x, compiler=off)
    assert not report.ok
    assert "Wrong program" in str(report)


def test_an_objective_of_a_function_and_fixed_inputs():
    report = check_gradients(lambda x, n, y: x**n * y, lambda out: out.sum(), tensor(0.5, 2.0), 3, tensor(1.0))
    assert report.ok
    assert [row.name for row in report.rows] == ["x", "y"]


REFUSALS = {
    "no objective": (lambda: check_gradients(nn.Linear(1, 1)), "`inputs` must have a float32 or float64 tensor"),
    "an objective that is none": (
        lambda: check_gradients(nn.Linear(1, 1), 3.0),
        "`objective` must be a function of the",
    ),
    "no parameter": (lambda: check_gradients(nn.Tanh(), lambda m: m), "must have a trainable parameter, but has none"),
    "no scalar": (lambda: check_gradients(lambda x: 2 * x, tensor(1.0, 2.0)), "`objective` must return one real"),
    "no tensor": (lambda: check_gradients(lambda x: 2 * x, 1.0), "`inputs` must have a float32 or float64 tensor"),
    "no function": (lambda: check_gradients(3, tensor(1.0)), "must be a module or a function, but is 3"),
    "nothing to compare": (lambda: compare_jit(lambda x: x), "`args` must hold the parameters"),
    "no compiled form": (lambda: compare_jit(torch.sum, tensor(1.0)), "`compiled` must be given for a torch function"),
    "integers": (lambda: compare_jit(jnp.sum, np.arange(3)), "must begin with a pytree of real or complex arrays"),
    "no steps": (
        lambda: compare_jit(jnp.sum, np.ones(3), steps=0),
        "`steps` must be an integer of at least 1, but is 0",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case):
    call, message = REFUSALS[case]
    with pytest.raises(ProblemError, match=message):
        call()


# Layers


class Design(nn.Module):
    """A propagator under a control of 44 coefficients."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        coefficients = torch.as_tensor(np.random.default_rng(0).normal(size=44), dtype=layer.dtype)
        basis = GaussianBasis(layer.time, 44, (-3.0, 7.0), 0.4, coefficients=coefficients)
        self.fields = Fields({"control": basis})

    @property
    def time(self):
        return self.layer.time

    def forward(self):
        return self.layer(self.fields())


def leaving(module):
    """Energy that leaves, of order one."""
    return 1e6 * energy(module()[..., 0, -1, :], module.time)


def retrieved(module):
    return log_retrieval_efficiency(module(), module.time, after=2.0)


def layer(problem, *trainable, dtype=F64, **options):
    options = {"resolution": Resolution(8, 1), "tol": 1.0} | options
    return TorchPropagator(
        problem, trainable=trainable[0] if isinstance(trainable[0], dict) else trainable, dtype=dtype, **options
    )


CLASSES = {"thermal_width": 1.0, "thermal_delta_min": -2.0, "thermal_delta_max": 2.0, "thermal_delta_steps": 8}
TRAINED = {
    "interaction_strengths": None,
    "decay_rates": Positive(),
    "detunings": Interval(-1.0, 1.0),
    "pulse_args": None,
}
LAYERS = {
    "two levels": (lambda d: layer(two_level(), TRAINED, dtype=d), leaving),
    "two levels, log": (lambda d: layer(two_level(), TRAINED, dtype=d), lambda m: leaving(m).log()),
    "lambda": (
        lambda d: layer(lambda_system(), "interaction_strengths", "decay_rates", "rabi_freq", dtype=d),
        retrieved,
    ),
    "sampled": (lambda d: Design(layer(lambda_system(), "detunings", dtype=d)), retrieved),
    "doppler": (
        lambda d: layer(two_level(velocity_classes=CLASSES), "thermal_width", "decay_rates", "detunings", dtype=d),
        leaving,
    ),
    "exponential": (
        lambda d: layer(two_level(detuning=0.3), "detunings", "decay_rates", dtype=d, solver="exponential"),
        leaving,
    ),
}


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("case", LAYERS)
def test_no_false_alarm(case, dtype):
    make, objective = LAYERS[case]
    report = check_gradients(make(dtype), objective, jit=False)
    assert report.ok, str(report)
    assert all(row.verdict is Verdict.FINE for row in report.rows), str(report)
    assert all(row.forward < (1e-10 if dtype == F64 else 1e-3) or row.norm < 1e-6 for row in report.rows), str(report)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_no_false_alarm_at_a_perfect_fit(dtype):
    module = layer(two_level(), "interaction_strengths", "decay_rates", dtype=dtype)
    data = module()[0, -1].detach()
    report = check_gradients(module, lambda m: (m()[0, -1] - data.to(m().dtype)).abs().square().sum(), jit=False)
    assert report.ok, str(report)
    assert report.value == 0


def test_a_layer_with_and_without_a_compiler():
    module = Design(layer(lambda_system(), "interaction_strengths"))
    seen = module.layer.watch
    report = check_gradients(module, retrieved)
    assert report.ok, str(report)
    assert report["layer.interaction_strengths"].jit < 1e-10
    (compared,) = report.layers
    assert compared.value < 1e-10
    assert set(compared.gradients) == {"layer.interaction_strengths", "layer.input_fields.control"}
    assert module.layer.watch is seen  # nothing stays behind
    assert "_request" not in module.layer.__dict__
    start = time.perf_counter()
    check_gradients(module, retrieved, jit=False)
    assert time.perf_counter() - start < 20


def test_a_wrong_layer_is_told_from_a_right_one(monkeypatch):
    from jax_kernel import rhs

    plain = rhs.source

    def scaled(*args):
        return plain(*args) * (1.0 if jax.config.values["jax_disable_jit"] else 1.001)

    monkeypatch.setattr(rhs, "source", scaled)
    clear_cache()  # of what other tests have compiled, and then of this
    report = check_gradients(layer(two_level(), "interaction_strengths"), leaving)
    clear_cache()
    assert not report.ok
    assert "differs" in str(report)
    assert Verdict.MISCOMPILED.value[:20] in str(report)


def test_the_gradient_of_an_adaptive_solver_is_not_refuted():
    def problem(rtol):
        return layer(two_level(), "interaction_strengths", "decay_rates", solver=diffrax.Tsit5(), rtol=rtol, atol=rtol)

    loose = check_gradients(problem(1e-3), lambda m: 1e-3 * leaving(m))
    assert loose.ok, str(loose)  # not refuted
    assert "an adaptive solver takes too many steps" in str(loose)


def test_random_objectives_and_buffers_are_left_alone():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1)).double()
    x = torch.as_tensor(np.random.default_rng(0).normal(size=(8, 3)))
    before, state = module.state_dict()["1.running_mean"].clone(), torch.random.get_rng_state()
    report = check_gradients(module, lambda m: m(x).square().mean() + m[0].weight.sin().sum())
    assert report.ok, str(report)
    assert torch.equal(module.state_dict()["1.running_mean"], before)
    assert torch.equal(torch.random.get_rng_state(), state)


# Trajectories


def sine_network(seed=0):
    random = np.random.default_rng(seed)
    x = np.linspace(-5, 5, 128)[:, None]
    y = np.sin(x) + 0.1 * random.normal(size=x.shape)
    sizes = [1, 32, 32, 32, 32, 1]
    parameters = [(random.normal(size=(a, b)) / np.sqrt(a), np.zeros(b)) for a, b in pairwise(sizes)]

    def loss(parameters, x, y):
        for w, b in parameters[:-1]:
            x = jnp.sin(x @ w + b)
        w, b = parameters[-1]
        return jnp.mean((x @ w + b - y) ** 2)

    return loss, parameters, x, y


def test_a_divergent_trajectory_is_no_wrong_program():
    report = compare_jit(*sine_network(), learning_rate=2.0, steps=20)
    assert report.outcome is Outcome.DIVERGENT
    assert 2 <= report.horizon <= 6
    assert report.perturbation.of_order_one
    assert report.perturbation.factor > 100
    assert abs(report.compiled[-1] - report.op_by_op[-1]) > 1e-3
    assert "learning_rate_scan" in str(report)
    assert f"horizon: step {report.horizon}" in str(report)


def test_a_convergent_trajectory_is_reproducible():
    report = compare_jit(*sine_network(), learning_rate=2e-2, steps=20)
    assert report.outcome is Outcome.REPRODUCIBLE
    assert report.ok
    assert report.horizon is None
    assert max(report.discrepancy.relative) < 1e-12
    assert max(report.perturbation.relative) < 1e-12
    assert report.compiled[-1] < 0.1 * report.compiled[1]


def test_state_read_while_tracing_is_a_wrong_program():
    calls = [0]

    def loss(p):
        calls[0] += 1
        return jnp.sum((p - 1) ** 2) * (1 + 0.01 * calls[0])

    report = compare_jit(loss, np.zeros(3), steps=5)
    assert report.outcome is Outcome.WRONG
    assert "state that is read while it is traced" in str(report)


@pytest.mark.parametrize("learning_rate", [2.0, 2e-2])
def test_a_wrong_derivative_in_a_compiled_program(learning_rate):
    @jax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    @sine.defjvp
    def _(primals, tangents):
        return sine(primals[0]), 1.0001 * tangents[0] * jnp.cos(primals[0])

    loss, parameters, x, y = sine_network()

    def wrong(parameters, x, y):
        for w, b in parameters[:-1]:
            x = sine(x @ w + b)
        w, b = parameters[-1]
        return jnp.mean((x @ w + b - y) ** 2)

    report = compare_jit(loss, parameters, x, y, compiled=wrong, learning_rate=learning_rate, steps=4)
    assert report.outcome is Outcome.WRONG
    assert report.gradient > 1e-6


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.LBFGS])
def test_float32_complex_and_other_optimisers(optimizer):
    start = {"a": np.asarray([0.3, 0.7], np.float32), "b": np.asarray([1 + 2j], np.complex64)}
    report = compare_jit(
        lambda p: jnp.sum(jnp.cos(p["a"])) + jnp.sum(jnp.abs(p["b"]) ** 2),
        start,
        optimizer=optimizer,
        learning_rate=0.1,
    )
    assert report.outcome is Outcome.REPRODUCIBLE
    assert report.compiled[-1] < report.compiled[0]


def test_torch_functions_and_their_compiled_form():
    def loss(p):
        return ((p - 1) ** 2).sum()

    start = torch.zeros(3, dtype=F64)
    assert compare_jit(loss, start, compiled=lambda p: ((p - 1) * (p - 1)).sum()).ok
    report = compare_jit(loss, start, compiled=lambda p: ((p - 1.001) ** 2).sum())
    assert report.outcome is Outcome.WRONG


def test_a_layer_over_two_steps():
    problem = two_level(t_steps=4, z_steps=2, t_min=-0.2, t_max=0.2)
    module = layer(problem, "interaction_strengths", resolution=Resolution(3, 1))
    before = module.interaction_strengths.detach().clone()
    report = compare_jit(module, leaving, steps=2)
    assert report.outcome is Outcome.REPRODUCIBLE, str(report)
    assert torch.equal(module.interaction_strengths, before)


def test_growth():
    growth = Growth.of([1.0, 1.0, 1.0, 1.0], [1.0, 1 + 1e-12, 1 + 1e-6, 1.5])
    assert growth.relative[0] == 0
    assert growth.start == pytest.approx(1e-12, rel=1e-3)
    assert (growth.horizon, growth.of_order_one, growth.exceeded, growth.diverges) == (2, True, True, True)
    assert growth.factor == pytest.approx((1 / 3 / 1e-12) ** 0.5, rel=1e-2)
    calm = Growth.of([torch.ones(3)] * 3, [torch.ones(3) * (1 + 1e-7)] * 3)
    assert not calm.diverges
    assert calm.horizon is None
    assert calm.factor == pytest.approx(1)
    lost = Growth()
    lost.update(math.nan, 1.0)
    assert lost.horizon == -1
    assert Growth().factor == 1
    assert not Growth().diverges


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_on_inside_a_check(mode):
    with mode():
        assert check_gradients(lambda x: (x**2).sum(), torch.ones(3)).ok


def test_functions_that_write_into_their_arguments():
    x = torch.ones(3)
    assert check_gradients(lambda x: x.mul_(2).square().sum(), x).ok
    assert x.tolist() == [1, 1, 1]


def test_random_numbers_of_numpy_are_repeated():
    assert check_gradients(lambda x: (x * float(np.random.normal())).square().sum(), torch.ones(3)).ok


@pytest.mark.parametrize(
    ("options", "text"), [({"scale": "x"}, "`scale`"), ({"rtol": -1}, "`rtol`"), ({"seed": 1.5}, "`seed`")]
)
def test_options_of_a_check_that_are_none(options, text):
    with pytest.raises(ProblemError, match=text):
        check_gradients(lambda x: x.sum(), torch.ones(3), **options)
