"""What importing the packages does, in processes of their own: nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import jax_kernel
import torch_clerq
from tests.conftest import CACHE, ROOT

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

STATE_OF_THE_PROCESS = """
import json, os, random, signal, sys, threading, warnings
import jax, numpy as np, torch
import scipy.linalg, scipy.signal  # has a thread, and filters of warnings, of its own

def state():
    backends = {
        f"{place}.{name}": repr(getattr(module, name))
        for place, module in (("cuda.matmul", torch.backends.cuda.matmul), ("cudnn", torch.backends.cudnn),
                              ("mkldnn", torch.backends.mkldnn))
        for name in ("allow_tf32", "deterministic", "benchmark", "enabled") if hasattr(module, name)}
    return backends | {
        "dtype": str(torch.get_default_dtype()), "device": str(torch.get_default_device()),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()), "grad": torch.is_grad_enabled(),
        "anomalies": torch.is_anomaly_enabled(), "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul": torch.get_float32_matmul_precision(), "seeds": (torch.initial_seed(), hash(random.getstate())),
        "random": float(torch.get_rng_state().double().sum()) + float(np.random.get_state()[1].sum()),
        "cuda": torch.cuda.is_initialized(), "numpy": np.geterr(), "warnings": len(warnings.filters),
        "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM)],
        "python threads": threading.active_count(), "jax": repr(sorted(jax.config.values.items())),
        "hooks": (str(sys.excepthook), str(sys.displayhook), str(threading.excepthook)),
        "path": list(sys.path),
        "kernel threads": len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0}

before = state()
import torch_clerq, jax_kernel
after = state()
print(json.dumps({name: (before[name], after[name]) for name in before if before[name] != after[name]}))
"""

SOLVES = """
import socket, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

def refused(*arguments):
    raise OSError("offline")

sys.meta_path.insert(0, Blocked())
socket.socket.connect = socket.getaddrinfo = refused
import torch, torch_clerq
problem = torch_clerq.Problem.from_dict({{"system": {{"num_states": 2, "fields": [{{"coupled_levels": [[0, 1]]}}]}},
                                         "t_steps": 40, "z_steps": 2, "interaction_strengths": [1.0]}})
layer = torch_clerq.TorchPropagator(problem, trainable=["rabi_freq"], resolution=torch_clerq.Resolution(2, 1), tol=1.0)
layer().abs().sum().backward()
print(bool(layer.rabi_freq.grad.isfinite().all()), torch_clerq.__file__)
"""


def python(code, cwd=ROOT, **environment):
    """What a fresh process prints; its environment owes nothing to what this one has imported."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH", "SYSTEMROOT") if name in os.environ}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code],
        cwd=cwd, env={name: value for name, value in (kept | environment).items() if value is not None},
        capture_output=True, text=True, check=False,
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
    cache = {"JAX_COMPILATION_CACHE_DIR": CACHE, "JAX_ENABLE_X64": "1"}
    assert python(code, **cache).splitlines() == [
        "True torch.complex128",
        "torch.complex64 torch.float32",
    ]


def test_importing_leaves_the_state_of_the_process():
    assert json.loads(python(STATE_OF_THE_PROCESS)) == {}


@pytest.mark.parametrize(
    ("blocked", "environment"),
    [
        (("matplotlib", "clerq", "qutip", "jax2torch", "pytorch_lightning", "safetensors", "pytest"), {}),
        ((), {"HOME": None, "PYTHONNOUSERSITE": "1"}),
        ((), {"HOME": "/proc/no-home"}),
    ],
    ids=["required packages only", "no home", "unwritable home"],
)
def test_solves_offline_and_writes_nothing_beside_itself(blocked, environment, tmp_path):
    for package in (jax_kernel, torch_clerq):
        folder = tmp_path / package.__name__
        shutil.copytree(Path(package.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    before = sorted(tmp_path.rglob("*"))
    printed = python(SOLVES.format(blocked=blocked), cwd=tmp_path, PYTHONDONTWRITEBYTECODE="1", **environment)
    assert printed.split() == ["True", str(tmp_path / "torch_clerq" / "__init__.py")]
    assert sorted(tmp_path.rglob("*")) == before
