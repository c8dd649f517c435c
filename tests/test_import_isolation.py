"""What importing the packages does, in processes of their own: nothing."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PROBE = """
import json, os, sys
import jax
before, environment = dict(jax.config.values), dict(os.environ)
import {package}
from jax._src import xla_bridge
print(json.dumps({{
    "modules": sorted(set({watched}) & set(sys.modules)),
    "flags": [name for name, value in jax.config.values.items() if before.get(name, value) != value],
    "environment": dict(os.environ) == environment,
    "backends": xla_bridge.backends_are_initialized(),
}}))
"""


def python(code, **environment):
    """What a fresh process prints; its environment owes nothing to what this one has imported."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH", "SYSTEMROOT") if name in os.environ}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code],
        cwd=ROOT, env=kept | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize(
    ("package", "watched"),
    [
        ("jax_kernel", ("torch", "matplotlib", "clerq", "jax2torch", "torch_clerq")),
        ("torch_clerq", ("matplotlib", "clerq", "jax2torch", "torch._dynamo")),
    ],
)
def test_importing_changes_nothing(package, watched):
    assert json.loads(python(PROBE.format(package=package, watched=watched))) == {
        "modules": [],
        "flags": [],
        "environment": True,
        "backends": False,
    }


def test_either_precision_works_in_a_process_in_64_bit_mode():
    code = """
import jax, torch
from torch_clerq import Problem, Resolution, propagate
problem = Problem.from_dict({"system": {"num_states": 2, "fields": [{"coupled_levels": [[0, 1]]}]},
                             "t_steps": 40, "z_steps": 2, "interaction_strengths": [1.0]})
options = {"resolution": Resolution(2, 1), "tol": 1.0}
print(jax.config.jax_enable_x64, propagate(problem, dtype=torch.float64, **options).dtype)
g = torch.ones(1, requires_grad=True)
fields = propagate(problem, interaction_strengths=g, **options)
fields.abs().sum().backward()
print(fields.dtype, g.grad.dtype)
"""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"), "JAX_ENABLE_X64": "1"}
    assert python(code, **cache).splitlines() == [
        "True torch.complex128",
        "torch.complex64 torch.float32",
    ]
