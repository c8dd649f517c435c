"""Tensors to arrays and back: memory, precision, derivatives, threads."""

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from torch_clerq import bridge
from torch_clerq.bridge import exchange, functions, nodes

F32, F64, C64, C128 = torch.float32, torch.float64, torch.complex64, torch.complex128


@dataclass(frozen=True)
class Fn(bridge.Function):
    """A JAX function for the bridge, which counts how often it is traced."""

    of: Callable
    x64: bool = True
    traces: list = field(default_factory=list, compare=False)
    name: str = "toy"

    def __call__(self, constants, *arrays):
        self.traces.append(arrays)
        return self.of(*arrays)

    def on(self, *tensors):
        return bridge.call(self, (), tensors)


def random(*shape, dtype=C128, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def square(x):
    return (jnp.abs(x) ** 2,)


def wave(x):
    return (jnp.sin(x) * (1 + 2j),)


def cube(x):
    return (x**3,)


# memory


@pytest.mark.parametrize("dtype", [F32, F64, C64, C128])
@pytest.mark.parametrize("entries", ["lean", "public"])
def test_nothing_is_copied_either_way(dtype, entries, monkeypatch):
    public = exchange.PUBLIC
    if entries == "public":
        monkeypatch.setattr(exchange, "_dlpack", lambda: public)
    else:
        assert exchange._dlpack() != public
    tensor = random(3, 5, dtype=dtype)
    with jax.enable_x64(dtype in (F64, C128)):
        array = exchange.to_jax(tensor)
        assert array.unsafe_buffer_pointer() == tensor.data_ptr()
        assert array.dtype.name == str(dtype).removeprefix("torch.")
        made = array + 1
        back = exchange.to_torch(made)
    assert back.data_ptr() == made.unsafe_buffer_pointer()
    assert torch.equal(back, tensor + 1)


def test_the_public_entries_stand_in(monkeypatch):
    exchange._dlpack.cache_clear()
    monkeypatch.setattr(exchange, "to_dlpack", None)  # as good as a changed entry of jaxlib
    try:
        assert exchange._dlpack() is exchange.PUBLIC
        z = random(3, 5).requires_grad_()
        y = Fn(wave).on(z)[0]
        torch.testing.assert_close(y, torch.sin(z) * (1 + 2j))
        y.sum().abs().backward()
        assert z.grad.abs().max() > 0
    finally:
        exchange._dlpack.cache_clear()


LAYOUTS = {
    "plain": lambda z: z.clone(),
    "transposed": lambda z: z.T.clone().T,
    "every second": lambda z: torch.stack([z, z], -1).flatten(1)[:, ::2],
    "offset": lambda z: torch.cat([z.new_zeros(1), z.flatten()])[1:].view(z.shape),
    "conjugate": lambda z: z.conj().resolve_conj().conj(),
    "channels": lambda z: z.clone()[None, None].contiguous(memory_format=torch.channels_last)[0, 0],
}


@pytest.mark.parametrize("dtype", [C64, C128])
def test_every_layout_gives_the_right_values_from_one_program(dtype):
    fn = Fn(lambda z: wave(z), dtype == C128)
    z = random(4, 6, dtype=dtype)
    right = torch.sin(z) * (1 + 2j)
    for name, change in LAYOUTS.items():
        given = change(z)
        assert torch.equal(given, z)
        torch.testing.assert_close(fn.on(given)[0], right, msg=name)
    assert len(fn.traces) == 1


@pytest.mark.parametrize("length", [1, 7])
def test_a_negated_view_keeps_its_sign(length):
    z = random(length)
    view = z.conj().imag
    assert view.is_neg()
    assert view.is_contiguous() == (length == 1)
    assert torch.equal(Fn(lambda x: (x + 0,)).on(view)[0], -z.imag)


def test_expanded_and_size_one_axes():
    fn = Fn(lambda x: (2 * x,))
    for x in (torch.ones(1, dtype=F64).expand(3, 4), torch.ones(8, dtype=F64).as_strided((1, 4), (7, 1))):
        assert torch.equal(fn.on(x)[0], torch.full(x.shape, 2.0, dtype=F64))


@pytest.mark.parametrize("reduce", ["sum", "mean", "conj-sum", "imag-sum", "transposed"])
def test_cotangents_of_every_layout(reduce):
    reductions = {
        "sum": lambda y: y.sum(),
        "mean": lambda y: y.mean(),
        "conj-sum": lambda y: y.conj().sum(),
        "imag-sum": lambda y: y.imag.sum(),
        "transposed": lambda y: (y.T * torch.arange(12.0, dtype=F64).view(4, 3)).sum(),
    }
    z = random(3, 4).requires_grad_()

    def gradient(y):
        value = reductions[reduce](y)
        return torch.autograd.grad(value.real if value.is_complex() else value, z)[0]

    torch.testing.assert_close(gradient(Fn(wave).on(z)[0]), gradient(torch.sin(z) * (1 + 2j)))


def test_changing_an_input_before_backward_raises():
    x = torch.ones(3, dtype=F64, requires_grad=True)
    y = Fn(square).on(x)[0]
    with torch.no_grad():
        x.mul_(100)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_input_may_be_overwritten_right_after_the_call():
    x = torch.linspace(0, 1, 10_000_000, dtype=F64)
    right = torch.sin(x) + 1
    y = Fn(lambda x: (jnp.sin(x) + 1,)).on(x)[0]
    x.zero_()
    torch.testing.assert_close(y, right)


@pytest.mark.parametrize("of", [lambda x: (x,), lambda x: (x, x), lambda x: (jnp.zeros_like(x), x + 1, x + 1)])
def test_writing_into_an_output_changes_nothing_else(of):
    fn, x = Fn(of), torch.ones(100, dtype=F64)
    first = [y.clone() for y in fn.on(x)]
    for k in range(len(first)):
        again = fn.on(x)
        again[k].fill_(7)
        assert torch.equal(x, torch.ones_like(x))
        assert all(torch.equal(a, b) for i, (a, b) in enumerate(zip(again, first, strict=True)) if i != k)
    assert all(torch.equal(a, b) for a, b in zip(fn.on(x), first, strict=True))


def test_an_output_in_the_memory_of_an_input_or_of_another_is_copied(monkeypatch):
    monkeypatch.setattr(functions, "executable", lambda fn: lambda constants, arrays: arrays * 2)
    x = torch.ones(100, dtype=F64)
    first, second = functions.run(Fn(square), (), [x])
    assert len({first.data_ptr(), second.data_ptr(), x.data_ptr()}) == 3
    assert torch.equal(first, x)
    assert torch.equal(second, x)


def test_writing_into_a_gradient_changes_nothing_else():
    fn, x = Fn(lambda x, y: (x + y,)), torch.ones(100, dtype=F64, requires_grad=True)
    y, cotangent = torch.ones(100, dtype=F64, requires_grad=True), torch.ones(100, dtype=F64)
    for _ in range(2):
        a, b = torch.autograd.grad(fn.on(x, y)[0], (x, y), cotangent)
        a.zero_()
        assert torch.equal(b, torch.ones_like(b))
        assert torch.equal(cotangent, torch.ones_like(cotangent))


# precision


def test_64_bit_numbers_arrive_exactly_and_the_flag_is_untouched():
    assert not jax.config.jax_enable_x64
    x = torch.tensor([2.0**40 + 5 + 2**-12, 1 + 2**-50], dtype=F64, requires_grad=True)
    y = Fn(lambda x: (x - 1,)).on(x)[0]
    assert y.dtype == F64
    assert torch.equal(y, x - 1)
    y.sum().backward()
    assert x.grad.dtype == F64
    assert not jax.config.jax_enable_x64
    with pytest.raises(ZeroDivisionError):
        Fn(lambda x: 1 / 0).on(x)
    assert not jax.config.jax_enable_x64
    narrow = Fn(lambda x: (x * jnp.linspace(0.0, 1.0, 2),), x64=False)  # 64-bit where the mode is
    assert narrow.on(torch.ones(2))[0].dtype == F32


# derivatives


def test_the_gradient_of_a_modulus_points_outwards():
    z = torch.tensor(3 + 4j, dtype=C128, requires_grad=True)
    Fn(square).on(z)[0].backward()
    assert z.grad == 6 + 8j


PAIRINGS = {
    "real to real": (lambda x: (jnp.sin(x) * x,), F64),
    "real to complex": (lambda x: (jnp.exp(1j * x) * x,), F64),
    "complex to real": (lambda z: (jnp.real(z) * jnp.imag(z) ** 2,), C128),
    "complex to complex": (lambda z: (jnp.conj(z) * z**2 * (1 - 2j),), C128),
}


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_every_pairing_of_real_and_complex(pairing):
    of, dtype = PAIRINGS[pairing]
    assert torch.autograd.gradcheck(lambda x: Fn(of).on(x)[0], random(3, dtype=dtype).requires_grad_())


def test_real_and_complex_inputs_and_outputs_together():
    def of(x, z):
        return jnp.sin(x) * z, jnp.abs(z) ** 2 + x, jnp.conj(z) ** 2

    inputs = random(3, dtype=F64).requires_grad_(), random(3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, z: Fn(of).on(x, z), inputs)


def test_an_output_left_out_of_the_loss_counts_as_zero():
    fn = Fn(lambda x: (x**2, jnp.exp(x)))
    x = random(3, dtype=F64).requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(fn.on(x)[1].sum(), x)[0], x.exp())


def test_only_the_needed_gradients_are_computed(monkeypatch):
    asked = []
    vjp = nodes.vjp
    monkeypatch.setattr(nodes, "vjp", lambda fn, needed, there: asked.append(needed) or vjp(fn, needed, there))
    x, y, z = (random(3, dtype=F64, seed=k) for k in range(3))
    for leaf in (x, z):
        leaf.requires_grad_()
    Fn(lambda x, y, z: (x * y * z,)).on(x, y, z)[0].sum().backward()
    assert asked == [(True, False, True)]
    assert y.grad is None
    torch.testing.assert_close(z.grad, x.detach() * y)


def test_gradients_accumulate_and_a_graph_serves_twice():
    x = random(3, dtype=F64).requires_grad_()
    y = Fn(square).on(x)[0].sum()
    y.backward(retain_graph=True)
    y.backward()
    torch.testing.assert_close(x.grad, 4 * x.detach())
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_graph_where_none_is_wanted(mode):
    x = random(3).requires_grad_()
    with mode():
        y = Fn(square).on(x)[0]
    assert not y.requires_grad
    assert not Fn(square).on(x.detach())[0].requires_grad
    assert Fn(square).on(x)[0].requires_grad


def test_empty_tensors_pass():
    x, nothing = random(3, dtype=F64).requires_grad_(), torch.zeros(0, 3, dtype=F64, requires_grad=True)
    y, empty = Fn(lambda x, e: (x + jnp.sum(e, 0), 2 * e)).on(x, nothing)
    assert empty.shape == (0, 3)
    (y.sum() + empty.sum()).backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    assert nothing.grad.shape == (0, 3)


def test_no_tensors_at_all():
    assert torch.equal(Fn(lambda: (jnp.arange(3.0),)).on()[0], torch.arange(3.0, dtype=F64))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_activation_checkpointing(use_reentrant):
    fn, x = Fn(wave), random(3).requires_grad_()

    def gradient(run):
        return torch.autograd.grad(run(lambda x: fn.on(x.sin())[0].cos(), x).abs().sum(), x)[0]

    if use_reentrant:  # this kind has no torch.autograd.grad
        checkpoint(lambda x: fn.on(x.sin())[0].cos(), x, use_reentrant=True).abs().sum().backward()
        found = x.grad
    else:
        found = gradient(lambda f, x: checkpoint(f, x, use_reentrant=False))
    torch.testing.assert_close(found, gradient(lambda f, x: f(x)))


def test_hooks_on_tensors_and_on_what_is_saved():
    x, seen, packed = random(3, dtype=F64).requires_grad_(), [], []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t.clone(), lambda t: t):
        y = Fn(square).on(x)[0]
    y.register_hook(seen.append)
    x.register_hook(lambda grad: 10 * grad)
    y.sum().backward()
    assert packed == [(3,)]
    assert torch.equal(seen[0], torch.ones(3, dtype=F64))
    torch.testing.assert_close(x.grad, 20 * x.detach())
    with torch.autograd.graph.save_on_cpu():
        torch.testing.assert_close(torch.autograd.grad(Fn(square).on(x)[0].sum(), x)[0], 20 * x.detach())


# threads and caches


def test_two_precisions_at_once():
    start = threading.Barrier(2)

    def work(dtype):
        fn = Fn(lambda x: (jnp.cumsum(jnp.sin(x)),), x64=dtype == F64)
        start.wait()
        for k in range(50):
            x = torch.full((40,), 0.1 * (k + 1), dtype=dtype, requires_grad=True)
            y = fn.on(x)[0]
            y[-1].backward()
            assert y.dtype == x.grad.dtype == dtype
            torch.testing.assert_close(y, torch.cumsum(torch.sin(x), 0))
            torch.testing.assert_close(x.grad, torch.cos(x.detach()))
        return True

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(work, (F32, F64)))
    assert not jax.config.jax_enable_x64


def test_backward_on_another_thread():
    x = torch.tensor([1 + 2**-50], dtype=F64, requires_grad=True)
    y = Fn(lambda x: (x**2,)).on(x)[0]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(y.sum().backward).result()
    assert torch.equal(x.grad, 2 * x.detach())


def test_host_callbacks_work_through_the_bridge():
    def of(x):
        return (jax.pure_callback(lambda a: np.asarray(a) + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x),)

    x = random(3, dtype=F64)
    assert torch.equal(Fn(of).on(x)[0], x + 1)


def test_equal_functions_share_their_executables_until_they_are_forgotten():
    traces: list = []
    x = random(3, dtype=F64).requires_grad_()
    for _ in range(2):
        Fn(cube, traces=traces).on(x)[0].sum().backward()
    assert len(traces) == 2  # one of the function, one of its gradient
    bridge.clear_cache()
    gc.collect()
    Fn(cube, traces=traces).on(x)
    assert len(traces) == 3
