"""Several devices for one run: the same numbers, work that is really divided, and what is refused."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from jax_kernel import ProblemError, Resolution, Sharding, propagate
from jax_kernel.options import Options
from tests.conftest import ROOT, two_level


@pytest.fixture(scope="module")
def runs():
    """What sharded_runs.py finds on four host devices."""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.jax_kernel.sharded_runs"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("what", ["values", "gradient", "unrolled", "blocks", "second order", "march"])
def test_division_changes_nothing(runs, what):
    assert runs[what] < 1e-12


def test_results_are_on_the_first_device(runs):
    assert runs["devices of the result"] == [0]


@pytest.mark.parametrize("what", ["unrolled loops", "blocks loops"])
def test_work_is_divided(runs, what):
    """Five classes on four devices: two a device, and a sum over all is all that a stage says to the others."""
    assert runs[what] == {
        "all-reduce": True,
        "all-gather": False,
        "all-to-all": False,
        "collective-permute": False,
        "divided": True,
        "whole": False,
    }


def test_too_few_devices(runs):
    for text in ("needs 6 and JAX has 4", "--xla_force_host_platform_device_count=6", "before JAX starts"):
        assert text in runs["too few"]
    with pytest.raises(ProblemError, match=r"needs 4096 and JAX has \d+"):
        propagate(two_level(t_steps=20), resolution=Resolution(4, 1), sharding=Sharding(batch=4096))


def test_a_sharding_is_a_value():
    sharding = Sharding(batch=2, classes=3)
    assert pickle.loads(pickle.dumps(sharding)) == sharding
    assert hash(sharding) == hash(Sharding(2, 3))
    assert hash(Options(sharding=sharding)) == hash(Options(sharding=Sharding(2, 3)))


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "2"])
def test_what_a_sharding_refuses(value):
    with pytest.raises(ProblemError, match=r"`sharding.classes` must be an integer of at least 1, but is"):
        Sharding(classes=value)
    with pytest.raises(ProblemError, match=r"`sharding` must be a Sharding, such as .* but is 2"):
        Options(sharding=2)
