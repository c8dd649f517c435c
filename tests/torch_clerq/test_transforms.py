"""Every derivative of the layer: forward and double backward, torch.func, batches as one program."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

from jax_kernel import ProblemError, ResolutionError
from tests.conftest import lambda_system, two_level
from tests.torch_clerq.conftest import GRID, SMALL
from torch_clerq import Positive, Resolution, TorchPropagator, propagate
from torch_clerq.bridge import functions

F64, C128 = torch.float64, torch.complex128

TWO_LEVEL = two_level(g=1.5, rabi_freq=0.7, **GRID | {"t_steps": 16, "z_steps": 2})
LAMBDA = lambda_system(probe={"rabi_freq": 0.3}, **GRID | {"t_steps": 16, "z_steps": 2})
PROBLEMS = {"two-level": TWO_LEVEL, "lambda": LAMBDA}

pytestmark = pytest.mark.usefixtures("unwatched")


def inputs(problem, *batch):
    """Parameters of every kind: sampled complex fields, couplings, a rate and detunings."""
    count, points = len(problem.fields), problem.t_steps + 1
    random = np.random.default_rng(0)  # torch's own numbers depend on the processor
    real, imaginary = 0.1 * random.standard_normal((2, *batch, count, points))
    return (
        torch.complex(torch.from_numpy(real), torch.from_numpy(imaginary)),
        torch.tensor([1.5, 2.0][:count], dtype=F64).expand(*batch, count).clone(),
        torch.tensor([0.8], dtype=F64).expand(*batch, 1).clone(),
        torch.tensor([0.1, -0.2][:count], dtype=F64).expand(*batch, count).clone(),
    )


def fields(problem, options=SMALL):
    def of(samples, strengths, rates, detunings):
        given = {"interaction_strengths": strengths, "decay_rates": rates, "detunings": detunings}
        return propagate(problem, samples, **given, **options)[..., -1, ::4]

    return of


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradcheck_and_gradgradcheck(name):
    """Of all inputs in one vector: every choice among several would compile second derivatives of its own."""
    problem = PROBLEMS[name]
    samples, *real = inputs(problem)
    propagated = fields(problem, SMALL | {"resolution": Resolution(4, 1)})
    packed = torch.cat([samples.flatten(), *(x.to(C128) for x in real)]).requires_grad_()

    def of(packed):
        first, rest = packed[: samples.numel()], packed[samples.numel() :].real
        return propagated(first.view(samples.shape), *rest.split([len(x) for x in real]))

    every = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    second = {"check_fwd_over_rev": True, "check_rev_over_rev": True, "check_batched_grad": True}
    assert gradcheck(of, packed, fast_mode=True, **every)
    assert gradgradcheck(of, packed, fast_mode=True, check_undefined_grad=False, **second)


def loss(strengths, problem=TWO_LEVEL):
    return propagate(problem, interaction_strengths=strengths, **SMALL)[..., -1, :].abs().square().sum()


G = torch.tensor([1.5], dtype=F64)


def by_differences(function, x, step=1e-4):
    return (function(x + step) - function(x - step)) / (2 * step)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # linearize's own
def test_every_transform_agrees_with_differences():
    first, second = by_differences(loss, G), by_differences(grad(loss), G)
    for found in (grad(loss)(G), jacrev(loss)(G), jacfwd(loss)(G), vjp(loss, G)[1](torch.ones((), dtype=F64))[0]):
        torch.testing.assert_close(found, first[None], rtol=1e-7, atol=0)
    torch.testing.assert_close(jvp(loss, (G,), (torch.ones_like(G),))[1], first, rtol=1e-7, atol=0)
    torch.testing.assert_close(linearize(loss, G)[1](torch.ones_like(G)), first, rtol=1e-7, atol=0)
    for found in (hessian(loss)(G), jacrev(jacrev(loss))(G), jacfwd(jacfwd(loss))(G), jacrev(jacfwd(loss))(G)):
        torch.testing.assert_close(found, second[None], rtol=1e-6, atol=0)
    third = by_differences(lambda x: hessian(loss)(x).squeeze(), G)
    torch.testing.assert_close(jacfwd(jacrev(jacrev(loss)))(G).squeeze(), third, rtol=1e-6, atol=0)


def test_the_older_functions():
    right = hessian(loss)(G)
    for options in ({}, {"vectorize": True}, {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}):
        torch.testing.assert_close(torch.autograd.functional.hessian(loss, G, **options), right)
    direction = torch.full_like(G, 0.5)
    for product in (torch.autograd.functional.hvp, torch.autograd.functional.vhp):
        torch.testing.assert_close(product(loss, G, direction)[1], right[0] * 0.5)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(loss(forward_ad.make_dual(G, direction))).tangent
    torch.testing.assert_close(tangent, (grad(loss)(G) @ direction))


def test_a_batch_is_checked_as_its_own_problem():
    later = two_level(g=1.5, rabi_freq=0.7, **GRID | {"t_steps": 16, "z_steps": 2, "t_min": 10.0, "t_max": 16.0})
    for problem, start in ((TWO_LEVEL, "-1"), (later, "1[0-6]")):
        with pytest.raises(ResolutionError, match=f"t = {start}"):
            vmap(lambda s: propagate(problem, s, **SMALL))(1e300 * inputs(TWO_LEVEL, 2)[0])  # noqa: B023


def test_nothing_is_kept_of_a_call():
    strengths = G.clone().requires_grad_()
    given = strengths * 2
    kept = weakref.ref(given)
    loss(given).backward()
    del given
    gc.collect()
    assert kept() is None


def test_vmap_is_one_program(monkeypatch):
    runs = []
    call = functions.Executable.__call__
    monkeypatch.setattr(functions.Executable, "__call__", lambda *args: runs.append(args[0].fn) or call(*args))
    many = torch.linspace(0.5, 2.5, 5, dtype=F64)[:, None]
    torch.testing.assert_close(vmap(loss)(many), torch.stack([loss(g) for g in many]))
    assert len(runs) == 1 + len(many)
    runs.clear()
    found = vmap(grad(loss))(many)
    assert len(runs) == 2
    torch.testing.assert_close(found, torch.stack([grad(loss)(g) for g in many]))


@pytest.mark.parametrize("in_dims", [(0, None, None, None), (None, 0, None, 0), (2, 1, 0, None), (-1, None, None, 1)])
def test_vmap_over_any_axes_of_inputs_and_parameters(in_dims):
    of, given = fields(TWO_LEVEL), list(inputs(TWO_LEVEL, 3))
    for k, dim in enumerate(in_dims):
        given[k] = given[k][0] if dim is None else given[k].movedim(0, dim)
    found = vmap(of, in_dims)(*given)
    rows = [of(*(x if d is None else x.select(d, k) for x, d in zip(given, in_dims, strict=True))) for k in range(3)]
    torch.testing.assert_close(found, torch.stack(rows))


def test_vmap_of_scalars_and_within_another_batch():
    densities = torch.tensor([0.5, 1.0, 2.0], dtype=F64)  # as many as there are positions, which they are not
    of = lambda n: propagate(TWO_LEVEL, number_density=n, **SMALL)  # noqa: E731
    torch.testing.assert_close(vmap(of)(densities), torch.stack([of(n) for n in densities]))
    table = densities[:, None] * densities
    torch.testing.assert_close(vmap(vmap(of, in_dims=0), in_dims=1)(table), vmap(vmap(of))(table.T))
    samples = inputs(TWO_LEVEL, 2)[0]
    both = vmap(lambda n: propagate(TWO_LEVEL, samples, number_density=n, **SMALL))(densities)
    assert both.shape[:2] == (3, 2)
    torch.testing.assert_close(both[1, 0], propagate(TWO_LEVEL, samples[0], number_density=densities[1], **SMALL))


def test_per_sample_gradients_of_a_module():
    module = TorchPropagator(TWO_LEVEL, trainable={"interaction_strengths": Positive()}, dtype=F64, **SMALL)
    params = dict(module.named_parameters())
    samples = inputs(TWO_LEVEL, 3)[0]

    def energy(params, sample):
        return functional_call(module, params, (sample,))[..., -1, :].abs().square().sum()

    found = vmap(grad(energy), in_dims=(None, 0))(params, samples)
    rows = [grad(energy)(params, sample)["raw_interaction_strengths"] for sample in samples]
    torch.testing.assert_close(found["raw_interaction_strengths"], torch.stack(rows))


def test_an_ensemble_of_modules():
    modules = [TorchPropagator(TWO_LEVEL, trainable=("interaction_strengths",), dtype=F64, **SMALL) for _ in range(3)]
    for k, module in enumerate(modules):
        module.interaction_strengths = 0.5 + k
    params, buffers = torch.func.stack_module_state(modules)
    found = vmap(lambda p, b: functional_call(modules[0], (p, b), ()))(params, buffers)
    torch.testing.assert_close(found, torch.stack([module() for module in modules]))


def test_batched_gradients():
    strengths = G.clone().requires_grad_()
    light = propagate(TWO_LEVEL, interaction_strengths=strengths, **SMALL).abs()[0, -1, ::6]
    basis = torch.eye(len(light), dtype=F64)
    (found,) = torch.autograd.grad(light, strengths, basis, is_grads_batched=True, retain_graph=True)
    rows = [torch.autograd.grad(light, strengths, row, retain_graph=True)[0] for row in basis]
    torch.testing.assert_close(found, torch.stack(rows))


def test_batched_gradients_have_gradients():
    def bridged(x, w):
        return torch.stack([loss(x * w + k) for k in (0.0, 0.5)]) * w

    x, w = G.clone().requires_grad_(), torch.tensor(1.5, dtype=F64, requires_grad=True)
    jacobian = torch.autograd.functional.jacobian
    found, right = (
        torch.autograd.grad(jacobian(lambda x: bridged(x, w), x, vectorize=vectorize, create_graph=True).sum(), (x, w))
        for vectorize in (True, False)
    )
    torch.testing.assert_close(found, right)


def test_values_are_checked_under_every_wrapper():
    bad = torch.tensor([[1.0], [-1.0]], dtype=F64)
    rates = lambda r: propagate(TWO_LEVEL, decay_rates=r, **SMALL).abs().sum()  # noqa: E731
    for call in (lambda: vmap(rates)(bad), lambda: grad(rates)(bad[1]), lambda: vmap(grad(rates))(bad)):
        with pytest.raises(ProblemError, match="`decay_rates` must be nonnegative, but has -1"):
            call()
    with pytest.raises(ResolutionError, match="stay finite"):
        vmap(lambda s: propagate(TWO_LEVEL, s, **SMALL))(1e300 * inputs(TWO_LEVEL, 2)[0])
    edge = two_level(envelope="square", args={"ampl": 1.0, "on": 0.0, "off": 1.0}, **GRID)
    pulse = lambda on: propagate(edge, pulse_args=[{"on": on}], **SMALL).abs().sum()  # noqa: E731
    on = torch.zeros((), dtype=F64)
    for call in (lambda: grad(pulse)(on), lambda: jvp(pulse, (on,), (on + 1,)), lambda: vmap(pulse)(torch.zeros(2))):
        with pytest.raises(ProblemError, match=r"`pulse_args\[0\].on` must"):
            call()


def test_second_derivatives_where_stages_are_computed_again():
    def of(g):
        return propagate(TWO_LEVEL, interaction_strengths=g, memory="lean", **SMALL)[..., -1, :].abs().square().sum()

    torch.testing.assert_close(hessian(of)(G)[0], by_differences(grad(of), G), rtol=1e-4, atol=0)
