"""Small problems of one structure each, so that the tests share their executables."""

import pytest

from jax_kernel import Resolution
from torch_clerq import functional

AT = Resolution(6, 1)
SMALL = {"resolution": AT, "tol": 1.0}
"""Options of a run whose accuracy does not matter."""

GRID = {"t_min": -2.0, "t_max": 4.0, "t_steps": 40, "z_steps": 4}


@pytest.fixture
def unwatched(monkeypatch):
    """No estimates of the resolution, which compile a program of their own."""
    monkeypatch.setattr(functional.Watch, "__call__", lambda *_: None)


@pytest.fixture
def fresh_watches():
    """No problem has been seen before."""
    functional._watch.cache_clear()
