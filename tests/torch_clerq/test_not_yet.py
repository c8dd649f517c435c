"""Every request that is meaningful but not there yet, each refused by name."""

import ast
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad

import jax_kernel
import torch_clerq
from jax_kernel import NotYetError
from tests.conftest import two_level
from tests.torch_clerq.conftest import GRID, SMALL
from torch_clerq import TorchPropagator, propagate

PLAIN = two_level(**GRID)
ONE = torch.ones(1)


def light(strengths):
    return propagate(PLAIN, interaction_strengths=strengths, **SMALL).abs().sum()


def forward_mode():
    with forward_ad.dual_level():
        return light(forward_ad.make_dual(ONE, ONE))


def forward_mode_through_a_gradient():
    fields = propagate(PLAIN, interaction_strengths=ONE.clone().requires_grad_(), **SMALL)
    with forward_ad.dual_level():
        return fields.backward(forward_ad.make_dual(torch.ones_like(fields), torch.ones_like(fields)))


def second_derivative():
    strengths = ONE.clone().requires_grad_()
    (slope,) = torch.autograd.grad(light(strengths), strengths, create_graph=True)
    return slope.sum().backward()


FORWARD = "Forward-mode derivatives .* not there yet: use reverse mode"
SECOND = "Second derivatives .* not there yet: leave create_graph at False"
VMAP = "torch.func.vmap .* not there yet: give the inputs leading batch axes"

TABLE = {
    "another device": (
        lambda: propagate(PLAIN, torch.zeros(1, 41, device="meta")),
        "`input_fields` must be on the CPU",
    ),
    "a parameter on another device": (lambda: light(ONE.to("meta")), "`interaction_strengths` must be on the CPU"),
    "a module on another device": (lambda: TorchPropagator(PLAIN).to("meta")(), "The module must be on the CPU"),
    "forward_ad": (forward_mode, FORWARD),
    "forward_ad of a gradient": (forward_mode_through_a_gradient, FORWARD),
    "func.jvp": (lambda: torch.func.jvp(light, (ONE,), (ONE,)), FORWARD),
    "func.jacfwd": (lambda: torch.func.jacfwd(light)(ONE), f"{FORWARD}|{VMAP}"),
    "func.hessian": (lambda: torch.func.hessian(light)(ONE), f"{FORWARD}|{VMAP}"),
    "double backward": (second_derivative, SECOND),
    "func.grad of func.grad": (lambda: torch.func.grad(lambda g: torch.func.grad(light)(g).sum())(ONE), SECOND),
    "func.vmap": (lambda: torch.func.vmap(light)(torch.ones(3, 1)), VMAP),
    "func.vmap of func.grad": (lambda: torch.func.vmap(torch.func.grad(light))(torch.ones(3, 1)), VMAP),
    "func.jacrev": (lambda: torch.func.jacrev(lambda g: light(g)[None])(ONE), VMAP),
}


def refusal(request):
    with pytest.raises(NotYetError) as caught:
        request()
    return caught


@pytest.mark.parametrize("name", TABLE)
def test_refused_by_name(name, unwatched):
    request, message = TABLE[name]
    refusal(request).match(message)


def test_the_table_is_complete(unwatched):
    """Every place in both packages that raises NotYetError is where some row of the table ends."""
    sites = set()
    for package in (jax_kernel, torch_clerq):
        for path in Path(package.__file__).parent.glob("**/*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Raise) and node.exc and "NotYetError(" in ast.unparse(node.exc):
                    sites.add((path.name, node.lineno, node.end_lineno))
    assert sites
    reached = []
    for request, _ in TABLE.values():
        last = refusal(request).traceback[-1]
        reached.append((Path(last.path).name, last.lineno + 1))
    missing = {s for s in sites if not any(s[0] == name and s[1] <= line <= s[2] for name, line in reached)}
    assert not missing
