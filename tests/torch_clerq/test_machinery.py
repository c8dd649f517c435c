"""The layer amid what trains PyTorch models: optimisers, hooks, checkpoints, precision, files, threads."""

import copy
import gc
import logging
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from jax_kernel import BridgeError
from tests.conftest import two_level
from tests.torch_clerq.conftest import GRID, SMALL
from torch_clerq import Positive, TorchPropagator, bridge, jax_function
from torch_clerq.bridge import functions

F32, F64, C128 = torch.float32, torch.float64, torch.complex128
PROBLEM = two_level(g=1.5, rabi_freq=0.7, **GRID)
FIELDS = torch.ones(1, PROBLEM.t_steps + 1, dtype=C128)

pytestmark = pytest.mark.usefixtures("unwatched")


def layer(trainable=("interaction_strengths", "decay_rates"), **options):
    return TorchPropagator(PROBLEM, trainable=trainable, **SMALL | {"dtype": F64} | options)


def left(fields):
    """The light that leaves, as a loss."""
    return fields[..., 0, -1, :].abs().square().sum()


def gradients(module, loss=None):
    module.zero_grad()
    (left(module()) if loss is None else loss).backward()
    return {name: p.grad.clone() for name, p in module.named_parameters()}


OPTIMISERS = sorted(
    name for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    and name not in ("Optimizer", "Muon", "SparseAdam")  # the last two take matrices and sparse gradients alone
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
@pytest.mark.parametrize("name", OPTIMISERS)
def test_one_step_of_every_optimiser(name):
    module = layer()
    before = {key: p.detach().clone() for key, p in module.named_parameters()}
    optimiser = getattr(torch.optim, name)(module.parameters(), lr=1e-2)

    def closure():
        optimiser.zero_grad()
        loss = left(module())
        loss.backward()
        return loss

    start = float(closure().detach())
    optimiser.step(closure)
    assert all(not torch.equal(before[key], p) for key, p in module.named_parameters())
    assert float(closure().detach()) < start


def test_lbfgs_finds_the_strength_that_made_the_light():
    target = layer(())().detach()
    module = layer({"interaction_strengths": Positive()})
    module.interaction_strengths = 0.5
    optimiser = torch.optim.LBFGS(module.parameters(), max_iter=30, line_search_fn="strong_wolfe", tolerance_change=0)

    def closure():
        optimiser.zero_grad()
        loss = (module() - target).abs().square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    torch.testing.assert_close(module.interaction_strengths.detach(), torch.tensor([1.5], dtype=F64), rtol=1e-6, atol=0)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_activation_checkpointing_of_the_layer(use_reentrant):
    module = layer()
    right = gradients(module)
    dummy = torch.zeros((), requires_grad=True)  # the older kind wants one input that is differentiated
    found = gradients(module, left(checkpoint(lambda _: module(), dummy, use_reentrant=use_reentrant)))
    assert all(torch.equal(found[name], right[name]) for name in right)


def test_saved_tensor_hooks_of_the_layer():
    module = layer()
    right = gradients(module)
    with torch.autograd.graph.save_on_cpu():
        fields = module()
    assert gradients(module, left(fields)) == right


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backward_inside", [True, False])
def test_autocast(dtype, backward_inside):
    features, weights = torch.randn(4, 3), nn.Linear(3, 1)

    def loss():
        strengths = weights(features).square()  # comes in the short dtype, and goes on in float32
        return left(layer((), dtype=F32)(interaction_strengths=strengths.mean(0)))

    with torch.autocast("cpu", dtype=dtype):
        assert weights(features).dtype == dtype
        value = loss()
        if backward_inside:
            value.backward()
    if not backward_inside:
        value.backward()
    assert value.dtype == F32
    found = weights.weight.grad
    weights.weight.grad = None
    loss().backward()
    torch.testing.assert_close(found, weights.weight.grad, rtol=0.1, atol=0.02 * float(found.abs().max()))


def test_the_gradient_scaler_scales_and_unscales():
    module = layer(("interaction_strengths",), dtype=F32)
    right = gradients(module)["interaction_strengths"]
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimiser.zero_grad()
    scaler.scale(left(module())).backward()
    torch.testing.assert_close(module.interaction_strengths.grad, 1024 * right, rtol=1e-4, atol=0)
    scaler.step(optimiser)
    scaler.update()
    torch.testing.assert_close(module.interaction_strengths.detach(), 1.5 - 0.1 * right, rtol=1e-4, atol=0)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled", "ignore:Error detected in")
def test_anomaly_mode_names_the_node():
    root = jax_function(lambda x: jnp.sqrt(x) * 0 / x)
    with (
        torch.autograd.detect_anomaly(),
        pytest.raises(RuntimeError, match=r"'lambdaBackward' returned nan values in its 0th output"),
    ):
        root(torch.zeros(1, requires_grad=True)).sum().backward()
    assert layer()().grad_fn.name() == "propagateBackward"


def test_gradient_hooks_and_clipping():
    module = layer()
    right = gradients(module)
    seen = []

    def forget(parameter):
        parameter.grad.zero_()

    module.interaction_strengths.register_hook(lambda grad: seen.append(grad.clone()) or 2 * grad)
    module.decay_rates.register_post_accumulate_grad_hook(forget)
    found = gradients(module)
    torch.testing.assert_close(seen[0], right["interaction_strengths"])
    torch.testing.assert_close(found["interaction_strengths"], 2 * right["interaction_strengths"])
    assert not found["decay_rates"].any()
    norm = nn.utils.clip_grad_norm_(module.parameters(), 1e-3)
    torch.testing.assert_close(norm, 2 * right["interaction_strengths"].norm())


def test_parametrize_beside_our_own_parametrisations():
    class Square(nn.Module):
        def forward(self, x):
            return x**2

    module = layer({"interaction_strengths": None, "decay_rates": Positive()})
    right = gradients(module)
    parametrize.register_parametrization(module, "interaction_strengths", Square(), unsafe=True)
    with torch.no_grad():
        module.parametrizations.interaction_strengths.original.fill_(1.5**0.5)
    found = gradients(module)
    torch.testing.assert_close(
        found["parametrizations.interaction_strengths.original"], 2 * 1.5**0.5 * right["interaction_strengths"]
    )
    torch.testing.assert_close(found["raw_decay_rates"], right["raw_decay_rates"])
    parametrize.remove_parametrizations(module, "interaction_strengths")
    torch.testing.assert_close(gradients(module), right)


def test_state_dicts_and_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    module, other = layer(), layer()
    with torch.no_grad():
        module.interaction_strengths.fill_(0.25)
    safetensors.save_model(module, str(tmp_path / "layer.safetensors"))
    safetensors.load_model(other, str(tmp_path / "layer.safetensors"))
    assert torch.equal(other(), module())
    torch.save(module.state_dict(), tmp_path / "layer.pt")
    third = layer()
    third.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    assert torch.equal(third(), module())


def test_an_averaged_model_and_a_deep_copy_train_apart():
    module = layer()
    averaged = torch.optim.swa_utils.AveragedModel(module)
    twin = copy.deepcopy(module)
    with torch.no_grad():
        twin.interaction_strengths.fill_(0.5)
    averaged.update_parameters(module)
    averaged.update_parameters(twin)
    torch.testing.assert_close(averaged.module.interaction_strengths.detach(), torch.tensor([1.0], dtype=F64))
    assert torch.equal(averaged(), layer(())(interaction_strengths=torch.tensor([1.0], dtype=F64)))


@pytest.mark.filterwarnings("ignore")  # torch's own words on torch.jit
@pytest.mark.parametrize("take", [torch.jit.script, lambda module: torch.jit.trace(module, (FIELDS,))])
@pytest.mark.parametrize("wrap", [lambda module: module, nn.Sequential])
def test_torch_jit_is_refused_with_the_remedy(take, wrap):
    with pytest.raises(BridgeError, match=r"take torch.compile or torch.export"):
        take(wrap(layer()))


def train(dtype, wait=lambda: None):
    """The loss after ten steps."""
    module = layer(dtype=dtype)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05)
    wait()
    for _ in range(10):
        optimiser.zero_grad()
        loss = left(module())
        loss.backward()
        optimiser.step()
    return float(loss.detach())


def test_two_threads_train_two_layers():
    start = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda dtype: train(dtype, start.wait), (F32, F64)))
    assert found == [train(F32), train(F64)]
    assert abs(found[0] - found[1]) < 1e-4 * found[1]


def test_threads_that_meet_at_an_operators_first_use():
    twelve = jax_function(lambda *xs: tuple(2 * x for x in xs))  # as many as no other test has
    start = threading.Barrier(2)

    def shapes(_):
        start.wait()
        return [x.shape for x in twelve(*(torch.ones(2, device="meta") for _ in range(12)))]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(shapes, range(2))) == [[(2,)] * 12] * 2


# executables


def test_the_cache_is_bounded_and_can_be_emptied():
    assert functions.executable.cache_info().maxsize == 256
    module = layer()
    module()
    assert functions.executable.cache_info().currsize > 0
    bridge.clear_cache()
    gc.collect()
    assert functions.executable.cache_info().currsize == 0
    module()
    assert functions.executable.cache_info().currsize == 1

    class Held:
        scale = 2.0

    held = Held()
    kept = weakref.ref(held)
    jax_function(lambda x, held=held: held.scale * x)(torch.ones(2))
    del held
    bridge.clear_cache()
    gc.collect()
    assert kept() is None


def test_a_slow_compile_says_so_once_and_a_new_shape_quietly(caplog, monkeypatch):
    monkeypatch.setattr(functions, "SLOW", 0.0)
    sine = jax_function(lambda x: jnp.sin(x))
    with caplog.at_level(logging.INFO, "torch_clerq"):
        for length in (2, 3, 4):
            sine(torch.ones(length))
    assert [r.getMessage().partition(" in ")[0] for r in caplog.records] == ["Compiled lambda for float32[2]"]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "torch_clerq"):
        sine(torch.ones(5))
        sine(torch.zeros(5))
    assert [(r.levelno, "float32[5]" in r.getMessage()) for r in caplog.records] == [(logging.DEBUG, True)]
