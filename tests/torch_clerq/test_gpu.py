"""Tensors on CUDA: what can be shown without one, and, marked `gpu`, what needs one."""

import logging

import jax
import jax.numpy as jnp
import pytest
import torch

from jax_kernel import BridgeError
from tests.conftest import two_level
from tests.torch_clerq.conftest import GRID, SMALL
from torch_clerq import TorchPropagator, jax_function
from torch_clerq.bridge import exchange

PROBLEM = two_level(g=1.5, rabi_freq=0.7, **GRID)

pytestmark = pytest.mark.usefixtures("unwatched")


def has_gpu():
    """Whether both PyTorch and JAX can use a GPU."""
    try:
        return torch.cuda.is_available() and bool(jax.devices("cuda"))
    except RuntimeError:
        return False


gpu = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="needs a GPU, and a JAX that knows it")]


@pytest.fixture
def unchecked():
    exchange._check_cuda.cache_clear()
    yield
    exchange._check_cuda.cache_clear()


class Elsewhere:
    """As much of a tensor on another device as is looked at."""

    def __init__(self, device):
        self.device, self.is_cpu = torch.device(device), device == "cpu"


@pytest.mark.skipif(has_gpu(), reason="needs a JAX without CUDA")
def test_a_jax_without_cuda_is_told_apart_and_what_to_install(unchecked):
    with pytest.raises(BridgeError, match=r"pip install 'torch_clerq\[gpu\]'.*\.cpu\(\)"):
        exchange.on_device([Elsewhere("cuda:0")])


@pytest.mark.parametrize(
    ("devices", "message"),
    [(("cpu", "cuda:0"), "cpu, cuda:0: move them"), (("xpu:0",), "must be on the CPU or on CUDA")],
)
def test_devices_that_are_refused(devices, message):
    with pytest.raises(BridgeError, match=message):
        exchange.on_device([Elsewhere(device) for device in devices])


def test_preallocation_is_warned_of_once_with_the_line_to_add(unchecked, monkeypatch, caplog):
    monkeypatch.setattr(jax, "devices", lambda kind: [kind])
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    with caplog.at_level(logging.WARNING, "torch_clerq"):
        for _ in range(2):
            assert exchange.on_device([Elsewhere("cuda:0")]) == torch.device("cuda:0")
    (record,) = caplog.records
    assert 'os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"' in record.getMessage()
    exchange._check_cuda.cache_clear()
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    exchange.on_device([Elsewhere("cuda:0")])
    assert len(caplog.records) == 1


def on_gpu(function):
    for mark in gpu:
        function = mark(function)
    return function


@on_gpu
def test_values_gradients_and_device_are_those_of_the_input():
    sines = jax_function(lambda x: jnp.sin(x) * jnp.abs(x))
    here = torch.randn(1000, dtype=torch.complex128)
    found = []
    for device in ("cpu", "cuda:0"):
        x = here.to(device).requires_grad_()
        y = sines(x)
        assert y.device == x.device
        y.abs().sum().backward()
        assert x.grad.device == x.device
        found.append((y.detach().cpu(), x.grad.cpu()))
    torch.testing.assert_close(*found)


@on_gpu
def test_nothing_is_copied_on_the_device():
    x = torch.randn(1 << 20, device="cuda:0")
    array = exchange.to_jax(x)
    assert array.unsafe_buffer_pointer() == x.data_ptr()
    made = array + 1
    assert exchange.to_torch(made, x.device).data_ptr() == made.unsafe_buffer_pointer()


@on_gpu
def test_work_on_another_stream_is_waited_for():
    double, stream = jax_function(lambda x: 2 * x), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(1 << 24, device="cuda:0")
        for _ in range(20):
            x = x + 1
        y = double(x)
        x.zero_()
    stream.synchronize()
    assert torch.equal(y.cpu(), torch.full((1 << 24,), 40.0))


@on_gpu
@pytest.mark.parametrize("trainable", [(), ("interaction_strengths", "decay_rates")])
def test_the_layer_on_the_device(trainable):
    fields = []
    for device in ("cpu", "cuda:0"):
        layer = TorchPropagator(PROBLEM, trainable=trainable, dtype=torch.float64, **SMALL).to(device)
        out = layer()
        assert out.device == torch.device(device)
        if trainable:
            out.abs().square().sum().backward()
            assert layer.decay_rates.grad.device == torch.device(device)
        fields.append(out.detach().cpu())
    torch.testing.assert_close(*fields)


@on_gpu
def test_two_devices_are_refused():
    total = jax_function(lambda x, y: x + y)
    with pytest.raises(BridgeError, match="on one device"):
        total(torch.ones(2), torch.ones(2, device="cuda:0"))


@on_gpu
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.hessian, torch.func.jacfwd])
def test_transforms_on_the_device(transform):
    energy = jax_function(lambda x: jnp.sum(jnp.sin(x) ** 2))
    x = torch.randn(5, dtype=torch.float64)
    torch.testing.assert_close(transform(energy)(x.cuda()).cpu(), transform(energy)(x))
