"""Public bug reports against bridges between JAX and PyTorch, and against layers like ours, each as what is right.

The name of a test holds the tracker's number. Where the patched jax2torch is right, it and our drop-in are compared.
"""

import copy
import functools
import io
import json
import math
import multiprocessing
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
import torch
from torch import func
from torch.autograd import gradcheck

from benchmarks.peers import jax2torch_patched
from jax_kernel import PropagationError
from tests.conftest import ROOT, two_level
from tests.torch_clerq.conftest import GRID, SMALL
from torch_clerq import TorchPropagator, jax2torch, jax_function

F32, F64, C64, C128 = torch.float32, torch.float64, torch.complex64, torch.complex128
LAYERS = two_level(g=1.5, rabi_freq=0.7, **GRID)


def random(*shape, dtype=F64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def leaf(*shape, **options):
    return random(*shape, **options).requires_grad_()


def layer(**options):
    return TorchPropagator(LAYERS, trainable=("interaction_strengths",), **SMALL | options)


@pytest.fixture
def peer():
    """`jax2torch` with working conversions."""
    pytest.importorskip("jax2torch")
    return jax2torch_patched


def jax_map(x):
    return jnp.sin(x) * jnp.sum(x**2)


def torch_map(x):
    return x.sin() * (x**2).sum()


def jax_loss(x):
    return jnp.sum(jnp.sin(x) * x**2)


def torch_loss(x):
    return (x.sin() * x**2).sum()


def value_and_gradient(fn, x, cotangent):
    x = x.detach().requires_grad_()
    y = fn(x)
    return y.detach(), *torch.autograd.grad(y, x, cotangent)


# lucidrains/jax2torch


@pytest.mark.parametrize("bridge", [jax2torch, jax_function])
def test_jax2torch_6_an_input_that_requires_grad_is_accepted_by_the_newest_jax(bridge):
    x = leaf(5)
    y = bridge(jax.jit(jax_map))(x)
    assert y.requires_grad
    torch.testing.assert_close(value_and_gradient(bridge(jax_map), x, x), value_and_gradient(torch_map, x, x))


def test_jax2torch_6_cvxpylayers_133_as_the_peer(peer):
    for seed in range(3):
        given = random(5, dtype=F32, seed=seed), random(5, dtype=F32, seed=10 + seed)
        found = [value_and_gradient(bridge(jax_map), *given) for bridge in (jax2torch, peer)]
        assert {t.dtype for pair in found for t in pair} == {F32}
        torch.testing.assert_close(*found)


def test_jax2torch_6_several_arguments_and_outputs_as_the_peer(peer):
    def fn(x, y):
        return jnp.sin(x) * y, x**2 - y

    found = []
    for bridge in (jax2torch, peer):
        x, y = leaf(5, dtype=F32), leaf(5, dtype=F32, seed=1)
        a, b = bridge(fn)(y=y, x=x)
        (a.sum() * 3 + (b * b).sum()).backward()
        found.append([a, b, x.grad, y.grad])
    torch.testing.assert_close(*found)


def test_jax2torch_4_vmap_of_grad_and_hessian():
    x = random(4, 3)
    fn = jax_function(jax_loss)
    torch.testing.assert_close(func.vmap(func.grad(fn))(x), func.vmap(func.grad(torch_loss))(x))
    torch.testing.assert_close(func.hessian(fn)(x[0]), func.hessian(torch_loss)(x[0]))
    torch.testing.assert_close(func.vmap(func.hessian(fn))(x), func.vmap(func.hessian(torch_loss))(x))


# jax-ml/jax

PAIRINGS = {
    "real to real": (lambda x: jnp.sin(x) * jnp.sum(x), F64),
    "real to complex": (lambda x: jnp.exp(1j * x) * jnp.sum(x), F64),
    "complex to real": (lambda z: z.real * z.imag**2 + jnp.abs(z) ** 2, C128),
    "complex to complex": (lambda z: jnp.sin(z) * (1 - 2j), C128),
    "complex to complex, not holomorphic": (lambda z: z.conj() * z**2 * (1 - 2j) + z.real, C128),
}


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_jax_9110_every_pairing_of_real_and_complex(pairing):
    fn, dtype = PAIRINGS[pairing]
    assert gradcheck(jax_function(fn), leaf(3, dtype=dtype), check_forward_ad=True)


def test_jax_9110_real_and_complex_together():
    def fn(x, z):
        return jnp.sin(x) * z, jnp.abs(z) ** 2 + x, jnp.conj(z) ** 2

    assert gradcheck(jax_function(fn), (leaf(3), leaf(3, dtype=C128, seed=1)), check_forward_ad=True)


def test_jax_9110_the_gradient_of_a_modulus_points_outwards():
    z = torch.tensor(3 + 4j, dtype=C128, requires_grad=True)
    jax_function(lambda z: jnp.abs(z) ** 2)(z).backward()
    assert z.grad == 6 + 8j


@pytest.mark.parametrize("dtype", [F64, C128])
def test_jax_11895_pmwd_33_64_bit_numbers_arrive_exactly_and_the_flag_is_untouched(dtype):
    before = dict(jax.config.values)
    x = torch.tensor([2.0**40 + 5 + 2**-12, 1 + 2**-50], dtype=dtype, requires_grad=True)
    y = jax_function(lambda x: (x - 1) * 1)(x)
    assert y.dtype == dtype
    assert torch.equal(y, x - 1)
    (gradient,) = torch.autograd.grad(y, x, torch.full_like(y, 1 + 2**-50))
    assert torch.equal(gradient, torch.full_like(y, 1 + 2**-50))
    n = torch.tensor([2**40 + 5, -(2**62)])
    found = jax_function(lambda n: n + 1)(n)
    assert found.dtype == torch.int64
    assert torch.equal(found, n + 1)
    assert dict(jax.config.values) == before


def test_jax_11895_a_wide_integer_keeps_its_digits_beside_short_floats():
    n, x = torch.tensor([2**40 + 5]), leaf(1, dtype=F32)
    found, product = jax_function(lambda n, x: (n + 1, x * jnp.linspace(1.0, 2.0, 1)))(n, x)
    assert int(found) == 2**40 + 6
    assert product.dtype == F32


LAYOUTS = {
    "transposed": lambda: random(6, 4).T,
    "every second": lambda: random(4, 12)[:, ::2],
    "expanded": lambda: random(6).expand(4, 6),
    "offset": lambda: random(25)[1:].view(4, 6),
    "negative": lambda: random(4, 6, dtype=C128).conj().imag,
    "odd strides of size one": lambda: random(24).as_strided((1, 4, 6), (7, 6, 1))[0],
}


def test_jax_7657_24680_every_layout_gives_the_right_values_from_one_program():
    traces = []

    def fn(x):
        traces.append(x)
        return jnp.sin(x) * jnp.arange(6.0)

    bridged = jax_function(fn)
    for name, make in LAYOUTS.items():
        x, cotangent = make(), make()  # the cotangent's layout is as odd
        right = x.sin() * torch.arange(6.0, dtype=F64), x.cos() * torch.arange(6.0, dtype=F64) * cotangent
        torch.testing.assert_close(value_and_gradient(bridged, x, cotangent), right, msg=name)
        assert len(traces) <= 2, name  # one for the value, one for the gradient


ODD = {
    "channels_last": random(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "axes of size one": random(8).as_strided((1, 4, 1), (3, 2, 5)),
    "conjugate": random(4, dtype=C128).conj(),
    "negative and contiguous": random(1, dtype=C128).conj().imag,
}


@pytest.mark.parametrize("layout", ODD)
def test_jax_24680_odd_layouts_and_views(layout):
    x = ODD[layout]
    torch.testing.assert_close(jax_function(lambda x: x * 2 + jnp.sum(x))(x), x * 2 + x.sum())


@pytest.mark.parametrize("layout", ["transposed", "every second", "expanded", "offset"])
def test_jax_7657_as_the_peer(peer, layout):
    x = LAYOUTS[layout]().float()
    cotangent = torch.ones(()).expand(4, 6)
    torch.testing.assert_close(*(value_and_gradient(bridge(jax_map), x, cotangent) for bridge in (jax2torch, peer)))


CONSTANT = jnp.arange(100.0)


@pytest.mark.parametrize(
    "fn",
    [lambda x: (x, x + 1), lambda x: (x, x), lambda x: (CONSTANT, x), lambda x: (jnp.zeros_like(x), jnp.zeros(100))],
    ids=["an input", "an input twice", "a constant", "zeros"],
)
def test_jax_19123_writing_into_an_output_changes_no_input_constant_or_later_call(fn):
    bridged, x = jax_function(fn), random(100, dtype=F32)
    kept, first = x.clone(), [y.clone() for y in bridged(x)]
    for k in range(2):
        again = bridged(x)
        again[k].fill_(7)
        assert torch.equal(x, kept)
        assert torch.equal(again[1 - k], first[1 - k])
        assert all(torch.equal(a, b) for a, b in zip(bridged(x), first, strict=True))
    assert float(CONSTANT[-1]) == 99


def test_jax_19123_writing_into_a_gradient_changes_neither_the_cotangent_nor_the_other_gradient():
    x, y, cotangent = leaf(100), leaf(100, seed=1), random(100, seed=2)
    a, b = torch.autograd.grad(jax_function(lambda x, y: x + y)(x, y), (x, y), cotangent)
    a.zero_()
    assert torch.equal(b, random(100, seed=2))
    assert torch.equal(cotangent, b)


# others of the kind


def test_dali_5617_an_input_may_be_overwritten_right_after_the_call():
    x = torch.linspace(0, 1, 10_000_000, requires_grad=True)
    right, slope = x.detach().sin() + x.detach() ** 3, x.detach().cos() + 3 * x.detach() ** 2
    fn = jax_function(lambda x: jnp.sin(x) + x**3)
    y = fn(x)
    cotangent = torch.ones_like(y)
    (gradient,) = torch.autograd.grad(y, x, cotangent)
    y = fn(x.detach())
    with torch.no_grad():
        x.zero_()
        cotangent.zero_()
    torch.testing.assert_close(y, right)
    torch.testing.assert_close(gradient, slope)


def test_dali_5617_an_input_changed_before_backward_raises():
    x, y = torch.full((1000,), 3.0), leaf(1000, dtype=F32)
    out = jax_function(lambda x, y: x * y)(x, y)
    x.mul_(67)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_tidy3d_2607_a_vector_output_with_a_random_cotangent():
    weights = random(4, 6)

    def fn(x):
        return jnp.asarray(weights.numpy()) @ jnp.tanh(x)

    x = random(6)
    for seed in range(3):
        cotangent = random(4, seed=20 + seed)
        found = value_and_gradient(jax_function(fn), x, cotangent)
        torch.testing.assert_close(found, value_and_gradient(lambda x: weights @ x.tanh(), x, cotangent))


def test_tidy3d_2607_as_the_peer(peer):
    def fn(x):
        return jnp.cumsum(jnp.tanh(x) @ jnp.arange(6.0))

    x, cotangent = random(4, 6, dtype=F32), random(4, dtype=F32, seed=1)
    torch.testing.assert_close(*(value_and_gradient(bridge(fn), x, cotangent) for bridge in (jax2torch, peer)))


def test_pytorch_179652_jacrev_equals_jaxs():
    x = random(5)
    with jax.enable_x64(True):
        right = torch.from_dlpack(jax.jacrev(jax_map)(jnp.asarray(x.numpy())))
    fn = jax_function(jax_map)
    for jacobian in (func.jacrev, func.jacfwd, functools.partial(func.jacrev, chunk_size=2)):
        torch.testing.assert_close(jacobian(fn)(x), right)


def refused(error):
    return isinstance(error, PropagationError) or (error is not None and refused(error.__cause__ or error.__context__))


@pytest.mark.parametrize("transform", ["jvp", "grad", "jacfwd", "dual"])
def test_pytorch_192985_compiled_derivatives_equal_eager_ones_or_raise(transform):
    fn, x, v = jax_function(jax_map), random(4), random(4, seed=1)

    def dual(f, x, v):
        with torch.autograd.forward_ad.dual_level():
            return torch.autograd.forward_ad.unpack_dual(f(torch.autograd.forward_ad.make_dual(x, v))).tangent

    of = {
        "jvp": lambda f, x, v: func.jvp(f, (x,), (v,))[1],
        "grad": lambda f, x, v: func.grad(lambda x: (f(x) * v).sum())(x),
        "jacfwd": lambda f, x, v: func.jacfwd(f)(x) @ v,
        "dual": dual,
    }[transform]
    torch.compiler.reset()
    try:
        found = torch.compile(lambda x, v: of(fn, x, v), backend="aot_eager")(x, v)
    except Exception as error:
        if not refused(error):
            raise
    else:
        torch.testing.assert_close(found, of(torch_map, x, v))


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("bridge", ["ours", "peer"])
def test_pytorch_132388_amp_with_backward_inside_and_outside_autocast(inside, bridge, request):
    def gradients(fn):
        torch.manual_seed(0)
        linear = torch.nn.Linear(4, 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = fn(linear(random(8, 4, dtype=F32)))
            loss = (y.float() * random(8, 4, dtype=F32, seed=1)).sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        return y, linear.weight.grad, linear.bias.grad

    y, *found = gradients(jax_function(jax_map))
    assert y.dtype == F32
    right = torch_map if bridge == "ours" else request.getfixturevalue("peer")(jax_map)
    torch.testing.assert_close(found, gradients(right)[1:], rtol=0.05, atol=0.05 * float(found[0].abs().max()))


# processes and imports: one process prints what three tests read

PROBE = """
import json, multiprocessing, os
import jax, jax.numpy as jnp
before, environment = dict(jax.config.values), dict(os.environ)
import torch_clerq
from jax._src import xla_bridge

fn = torch_clerq.jax_function(lambda x: jnp.sin(x) @ x)
imported = {
    "flags": [name for name, value in jax.config.values.items() if before.get(name, value) != value],
    "environment": dict(os.environ) == environment,
    "device": xla_bridge.backends_are_initialized(),
}
import torch

def work(x, pipe):
    try:
        pipe.send(float(fn(x)[0, 0]))
    except torch_clerq.PropagationError as error:
        pipe.send(f"refused: {error}")

def forked(x):
    here, there = multiprocessing.get_context("fork").Pipe()
    worker = multiprocessing.get_context("fork").Process(target=work, args=(x, there), daemon=True)
    worker.start()
    answer = here.recv() if here.poll(20) else "hangs"
    worker.kill()
    return answer

x = torch.ones(300, 300)
cold = forked(x)
fn(x[:200, :200])
print(json.dumps({"imported": imported, "cold": cold, "warm": forked(x)}))
"""


@pytest.fixture(scope="module")
def probe():
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_pymbar_496_nemos_208_importing_flips_no_flag_and_takes_no_device(probe):
    assert probe["imported"] == {"flags": [], "environment": True, "device": False}


def test_ray_44087_a_forked_worker_raises_with_the_remedy_and_never_hangs(probe):
    assert probe["warm"].startswith("refused: ")
    assert "spawn" in probe["warm"]


def test_ray_44087_a_worker_forked_before_jax_has_worked_computes(probe):
    assert probe["cold"] == pytest.approx(300 * math.sin(1), rel=1e-4)


def gradient_sum(x, pipe):
    """What the spawned worker does."""
    pipe.send(float(torch.autograd.grad(jax_function(jax_loss)(x.requires_grad_()), x)[0].sum()))


def test_ray_44087_a_spawned_worker_computes():
    x = random(5)
    jax_function(jax_loss)(x)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    worker = context.Process(target=gradient_sum, args=(x, there), daemon=True)
    worker.start()
    with here, there:
        assert here.poll(60)
        assert here.recv() == pytest.approx(float(func.grad(torch_loss)(x.detach()).sum()))
    worker.join(10)


# complex ODEs, layers, precision


def test_torchdiffeq_264_the_complex_adjoint_of_a_linear_ode():
    def solve(generator, start):
        step = jnp.eye(3) + generator / 200 + generator @ generator / 80_000  # of second order
        return jax.lax.scan(lambda state, _: (step @ state, None), start, length=200)[0]

    generator, start, cotangent = random(3, 3, dtype=C128), random(3, dtype=C128, seed=1), random(3, dtype=C128, seed=2)

    def gradients(fn):
        leaves = [t.detach().requires_grad_() for t in (generator, start)]
        return torch.autograd.grad(fn(*leaves), leaves, cotangent)

    found = gradients(jax_function(solve))
    torch.testing.assert_close(found, gradients(lambda a, y: torch.matrix_exp(a) @ y), rtol=1e-3, atol=1e-4)


def test_torchdiffeq_264_the_complex_adjoint_of_the_layer(unwatched):
    module = layer(dtype=F64)
    pulse = leaf(1, GRID["t_steps"] + 1, dtype=C128)
    assert gradcheck(lambda pulse: module(pulse)[:, -1, ::7], pulse, fast_mode=True, atol=1e-6)


class Model(torch.nn.Module):
    """A parameter before a JAX function, and light after both."""

    def __init__(self):
        super().__init__()
        self.scale, self.fn, self.light = torch.nn.Parameter(random(1)), jax_function(jax_map), layer(dtype=F64)

    def forward(self, x):
        return self.fn(self.scale * x).sum() * self.light()[0, -1].abs().square().sum()


def saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, saved])
@pytest.mark.parametrize("called", [False, True], ids=["before a call", "after a call"])
def test_cvxpylayers_150_pennylane_2204_deepcopy_and_save_of_a_whole_model(duplicate, called, unwatched):
    model = Model()

    def gradients(of):
        of.zero_grad()
        of(random(4)).backward()
        return [p.grad.clone() for p in of.parameters()]

    if called:
        gradients(model)
    other = duplicate(model)
    torch.testing.assert_close(gradients(other), gradients(model))
    with torch.no_grad():
        other.scale.add_(1)
    assert not torch.equal(other(random(4)), model(random(4)))


def test_cvxpylayers_133_float32_in_float32_out(unwatched):
    def fn(x):
        return x * jnp.linspace(0.0, 1.0, 4), jnp.cumsum(x) * jnp.asarray(2.0)

    x = leaf(4, dtype=F32)
    y, z = jax_function(fn)(x)
    (y * z).sum().backward()
    assert (y.dtype, z.dtype, x.grad.dtype) == (F32, F32, F32)
    with jax.enable_x64(True):  # as in a process in 64-bit mode
        y, z = jax_function(fn)(x)
        (gradient,) = torch.autograd.grad((y * z).sum(), x)
    assert (y.dtype, z.dtype, gradient.dtype) == (F32, F32, F32)
    module = layer(dtype=F32)
    fields = module()
    fields.abs().sum().backward()
    assert (fields.dtype, module.interaction_strengths.grad.dtype) == (C64, F32)
