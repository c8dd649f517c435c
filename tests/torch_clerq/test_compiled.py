"""torch.compile, torch.export, FakeTensor and make_fx: one call in the graph, right or refused, never zeros."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from jax_kernel import BridgeError, ResolutionError
from tests.conftest import ROOT, two_level
from tests.torch_clerq.conftest import GRID, SMALL
from torch_clerq import Resolution, TorchPropagator, jax_function

F64, C128 = torch.float64, torch.complex128
PROBLEM = two_level(g=1.5, rabi_freq=0.7, **GRID)
POINTS = PROBLEM.t_steps + 1

pytestmark = [
    pytest.mark.usefixtures("unwatched"),
    # what torch says while it compiles, of itself
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def sines(x, scale=1.0, *, kind="sin"):
    return {"wave": getattr(jnp, kind)(x) * x * scale, "rest": [jnp.abs(x) ** 2, None]}


SINES = jax_function(sines, static_argnames="kind")


def model(x, **options):
    out = SINES(x.cos(), **options)
    assert out["rest"][1] is None
    return (out["wave"] * out["rest"][0]).sum()


def values(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def value_and_gradient(function, x):
    x = x.clone().requires_grad_()
    y = function(x)
    return y.detach(), torch.autograd.grad(y, x)[0]


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("options", [{}, {"kind": "cos"}, {"scale": 2.0}, {"scale": np.ones(4)}, {"scale": values(4)}])
def test_fullgraph(backend, options):
    compiled = torch.compile(lambda x: model(x, **options), fullgraph=True, backend=backend)
    for seed in range(2):
        x = values(4, seed=seed)
        right = value_and_gradient(lambda x: model(x, **options), x)
        torch.testing.assert_close(value_and_gradient(compiled, x), right)


def test_numbers_among_the_arguments():
    compiled = torch.compile(lambda x, n: model(x, scale=n), fullgraph=True, dynamic=True, backend="eager")
    for n in (3, 5, 0.5, True):
        torch.testing.assert_close(compiled(values(4), n), model(values(4), scale=n))


def test_numpy_arrays_do_not_widen_floats():
    x, scale = torch.ones(4), np.ones(4)
    compiled = torch.compile(lambda x: SINES(x, scale=scale)["wave"] * 1, fullgraph=True, backend="eager")
    assert compiled(x).dtype == SINES(x, scale=scale)["wave"].dtype == torch.float32


def test_dynamic_shapes_are_traced_once():
    graphs = []
    compiled = torch.compile(
        model, fullgraph=True, dynamic=True, backend=lambda graph, inputs: graphs.append(graph) or graph.forward
    )
    for length in range(2, 12):
        x = values(length)
        torch.testing.assert_close(value_and_gradient(compiled, x), value_and_gradient(model, x))
    assert len(graphs) == 1


@pytest.mark.parametrize(
    "of",
    [lambda x: jnp.concatenate([x, x])[1:], lambda x: x.reshape(1, -1), lambda x: jnp.outer(x, x) * x.shape[0]],
)
def test_sizes_of_outputs_follow_those_of_inputs(of):
    function = jax_function(of)
    graphs = []
    compiled = torch.compile(
        lambda x: function(x) * 2, fullgraph=True, dynamic=True,
        backend=lambda graph, inputs: graphs.append(graph) or graph.forward,
    )  # fmt: skip
    for length in range(4, 12, 2):
        torch.testing.assert_close(compiled(values(length)), 2 * function(values(length)))
    assert len(graphs) <= 2


def test_a_function_that_looks_at_its_sizes_is_traced_for_each():
    function = jax_function(lambda x: x[:2] if x.shape[0] > 5 else x)
    compiled = torch.compile(lambda x: function(x) * 2, fullgraph=True, backend="eager")
    for length in (4, 7):
        torch.testing.assert_close(compiled(values(length)), 2 * function(values(length)))


TRANSFORMS = {
    "grad": torch.func.grad,
    "jacrev": torch.func.jacrev,
    "jacfwd": torch.func.jacfwd,
    "hessian": torch.func.hessian,
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
    "vmap of grad": lambda f: lambda x: torch.func.vmap(torch.func.grad(f))(torch.stack([x, 2 * x])),
    "grad of vmap": lambda f: torch.func.grad(lambda x: torch.func.vmap(f)(torch.stack([x, 2 * x])).sum()),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_within_a_compiled_region(name):
    """pytorch/pytorch#192985: never zeros."""
    transformed, x = TRANSFORMS[name](model), values(3)
    right = transformed(x)
    assert right.abs().max() > 0.1
    torch.testing.assert_close(torch.compile(transformed, fullgraph=True, backend="aot_eager")(x), right)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_a_compiled_function(name):
    x = values(3)
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(TRANSFORMS[name](compiled)(x), TRANSFORMS[name](model)(x))


@pytest.mark.parametrize("where", ["within", "around"])
def test_dual_tensors_are_refused_where_torch_would_lose_them(where):
    def tangent(function, x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones_like(x)))).tangent

    x = values(3)
    assert tangent(model, x).abs() > 0
    compiled = {
        "within": torch.compile(lambda x: tangent(model, x), backend="aot_eager"),
        "around": lambda x: tangent(torch.compile(model, backend="aot_eager"), x),
    }
    with pytest.raises(BridgeError, match=r"take torch.func.jvp"):
        compiled[where](x)


# graphs that are kept


class Model(nn.Module):
    def forward(self, x):
        return model(x)


def test_an_exported_program_has_derivatives_of_every_order():
    program = torch.export.export(Model(), (values(4),), dynamic_shapes=({0: torch.export.Dim("n")},)).module()
    x = values(7)

    def second(function):
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(leaf), leaf, create_graph=True)
        return torch.autograd.grad(first.sum(), leaf)[0]

    torch.testing.assert_close(value_and_gradient(program, x), value_and_gradient(model, x))
    torch.testing.assert_close(second(program), second(model))
    with forward_ad.dual_level():
        found, right = (
            forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x)))).tangent for f in (program, model)
        )
    torch.testing.assert_close(found, right)
    with pytest.raises(BridgeError, match="transform the function first"):
        torch.func.grad(program)(x)


def test_a_graph_of_another_process_is_refused(tmp_path):
    torch.export.save(torch.export.export(Model(), (values(3),)), tmp_path / "graph.pt2")
    code = f"""
import torch
import torch_clerq
from torch_clerq.bridge import operators
operators._operator(1, 2)
program = torch.export.load({str(tmp_path / "graph.pt2")!r}).module()
try:
    program(torch.ones(3, dtype=torch.float64))
except torch_clerq.BridgeError as error:
    print("trace it here" in str(error))
"""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.stdout == "True\n", run.stderr


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", ["values", "grad", "vmap of grad", "jvp"])
def test_make_fx_keeps_the_function_and_no_numbers(mode, name):
    function = TRANSFORMS.get(name, lambda f: f)(model)
    graph = make_fx(function, tracing_mode=mode)(values(3))
    torch.testing.assert_close(graph(values(3, seed=1)), function(values(3, seed=1)))


def test_fake_and_meta_tensors_have_the_right_shapes():
    with FakeTensorMode() as mode:
        fake = SINES(mode.from_tensor(values(4).requires_grad_()))["wave"]
        assert (fake.shape, fake.dtype, fake.requires_grad) == ((4,), F64, True)
    meta = values(4).to("meta").requires_grad_()
    model(meta).backward()
    assert meta.grad.shape == (4,)


def test_the_operator_keeps_torchs_rules():
    graph = make_fx(lambda x: SINES(x)["wave"])(values(3))
    (node,) = [n for n in graph.graph.nodes if "torch_clerq" in str(n.target)]
    for requires_grad in (False, True):
        torch.library.opcheck(node.target, (node.args[0], values(3).requires_grad_(requires_grad)))


# the layer


def layer(**options):
    return TorchPropagator(PROBLEM, trainable=("interaction_strengths", "decay_rates"), dtype=F64, **SMALL | options)


def inputs(batch):
    return torch.randn(batch, 1, POINTS, dtype=C128, generator=torch.Generator().manual_seed(batch))


def energy(fields):
    return fields[..., -1, :].abs().square().sum()


def test_the_layer_in_one_graph_of_any_batch():
    module, graphs = layer(), []
    compiled = torch.compile(
        lambda x: energy(module(x)), fullgraph=True, dynamic=True,
        backend=lambda graph, inputs: graphs.append(graph) or graph.forward,
    )  # fmt: skip
    for batch in (2, 3, 5):
        x = inputs(batch).requires_grad_()
        found, right = (
            torch.autograd.grad(f(x), [x, *module.parameters()]) for f in (compiled, lambda x: energy(module(x)))
        )
        torch.testing.assert_close(found, right)
    assert len(graphs) == 1


def test_the_exported_layer():
    module = layer()
    program = torch.export.export(module, (inputs(2),), dynamic_shapes=({0: torch.export.Dim.AUTO},)).module()
    torch.testing.assert_close(program(inputs(3)), module(inputs(3)))


def test_auto_is_searched_outside_the_graph_and_then_within():
    module = layer(resolution="auto", tol=0.1)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(module, fullgraph=True, backend="eager")(inputs(2))
    compiled = torch.compile(module, backend="eager")
    torch.testing.assert_close(compiled(inputs(2)), module(inputs(2)))
    assert isinstance(module.resolution, Resolution)
    torch.testing.assert_close(torch.compile(module, fullgraph=True, backend="eager")(inputs(2)), module(inputs(2)))


def test_auto_without_values_is_refused():
    with pytest.raises(BridgeError, match="call the module once"):
        layer(resolution="auto").to("meta")()


def test_a_solution_that_is_none_is_refused_within_the_graph():
    module = layer()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    compiled(inputs(2))
    with pytest.raises(ResolutionError, match="stay finite"):
        compiled(1e300 * inputs(2))
