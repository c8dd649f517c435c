"""Every request that is meaningful but not there yet, each refused by name."""

import ast
from pathlib import Path

import diffrax
import pytest
import torch

import jax_kernel
import torch_clerq
from jax_kernel import NotYetError
from tests.conftest import two_level
from tests.torch_clerq.conftest import GRID, SMALL
from torch_clerq import propagate
from torch_clerq.functional import check_device

PLAIN = two_level(**GRID)
ONE = torch.ones(1, dtype=torch.float64)


def light(strengths, **options):
    return propagate(PLAIN, interaction_strengths=strengths, **SMALL | options).abs().sum()


HALF = {"solver": diffrax.HalfSolver(diffrax.Heun())}
HALVED = "`solver` must not be a HalfSolver .* take the method itself"

TABLE = {
    "another kind of device": (
        lambda: check_device("The module", torch.device("mps")),
        "must be on the CPU or on CUDA",
    ),
    "forward mode of a HalfSolver": (
        lambda: torch.func.jvp(lambda g: light(g, **HALF), (ONE,), (ONE,)),
        HALVED,
    ),
    "second derivatives of a HalfSolver": (lambda: torch.func.hessian(lambda g: light(g, **HALF))(ONE), HALVED),
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
