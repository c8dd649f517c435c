"""Shared fixtures. JAX's 64-bit mode is entered per test; compiled programs are kept for the next run, of any clone."""

import os
from pathlib import Path

import jax
import pytest

import jax_kernel
from torch_clerq.cache import cache_folder

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"


def _cache() -> str:
    """A folder beside that of the user's own programs, or one in the repository where that cannot be written."""
    folder = Path(f"{cache_folder()}-tests")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return str(ROOT / ".jax_cache")
    return str(folder if os.access(folder, os.W_OK) else ROOT / ".jax_cache")


CACHE = os.environ.get("JAX_COMPILATION_CACHE_DIR") or _cache()
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def pytest_configure(config):
    # many tests look at small grids, at pulses that are still there at the end, and at clerq's reading of Doppler
    # shifts; test_checks.py and test_conventions.py have these warnings
    for category in ("WindowWarning", "ConventionWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::jax_kernel.errors.{category}")


@pytest.fixture
def x64():
    """JAX in 64-bit mode and with strict dtype promotion, for one test."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def problem_file():
    """Path of one of the shared problem files by name; skips where they are not there."""

    def path(name: str) -> Path:
        for folder in (SHARED / "problems", SHARED / "problems" / "real"):
            if (folder / f"{name}.json").exists():
                return folder / f"{name}.json"
        pytest.skip("the shared problem files are not part of a user's clone")

    return path


def two_level(*, envelope="gaussian", args=None, rate=1.0, g=1.0, factors=None, **top):
    """A problem of one field on one transition."""
    args = {"ampl": 1.0, "centre": 0.0, "fwhm": 1.0} if args is None else args
    field = {"coupled_levels": [[0, 1]], "rabi_freq_t_func": envelope, "rabi_freq_t_args": args}
    field["rabi_freq"] = top.pop("rabi_freq", 1e-3)
    field["detuning"] = top.pop("detuning", 0.0)
    if factors is not None:
        field["factors"] = factors
    system = {"num_states": 2, "fields": [field]}
    if rate is not None:
        system["decays"] = [{"rate": rate, "channels": [[0, 1]]}]
    window = {"t_min": -3.0, "t_max": 7.0, "t_steps": 100, "z_steps": 8, "interaction_strengths": [g]}
    return jax_kernel.Problem.from_dict({"system": system} | window | top)


def lambda_system(*, probe=None, control=None, rate=1.0, g=(2.0, 2.0), **top):
    """A Λ system: probe on [0, 1], control on [2, 1]."""
    probe = {"rabi_freq": 1e-2, "rabi_freq_t_func": "gaussian",
             "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 1.0}} | (probe or {})  # fmt: skip
    control = {"rabi_freq": 2.0, "rabi_freq_t_func": "ramp_onoff",
               "rabi_freq_t_args": {"ampl": 1.0, "fwhm": 0.5, "on": -1.0, "off": 5.0}} | (control or {})  # fmt: skip
    system = {
        "num_states": 3,
        "fields": [{"label": "probe", "coupled_levels": [[0, 1]]} | probe,
                   {"label": "control", "coupled_levels": [[2, 1]]} | control],
        "decays": [{"rate": rate, "channels": [[0, 1], [2, 1]], "factors": [0.7, 0.7]}],
    }  # fmt: skip
    system |= top.pop("system", {})
    window = {"t_min": -3.0, "t_max": 7.0, "t_steps": 100, "z_steps": 8, "interaction_strengths": list(g)}
    return jax_kernel.Problem.from_dict({"system": system} | window | top)
