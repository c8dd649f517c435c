"""Sizes whose memory is not there are refused in one sentence, before anything is allocated."""

import jax
import numpy as np
import pytest

from jax_kernel import Problem, ProblemError, Resolution, memory, propagate
from tests.conftest import two_level


def content(**changed):
    """A problem's content with changed keys, those of the system by a double underscore."""
    found = two_level().to_dict()
    for key, value in changed.items():
        home = found["system"] if key.startswith("system__") else found
        home[key.removeprefix("system__")] = value
    return found


CHANNEL = {"rate": 1.0, "channels": [[0, 1]]}
CLASSES = {"thermal_width": 0.1, "thermal_delta_min": -1.0, "thermal_delta_max": 1.0}


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"t_steps": 10**12}, "`t_steps` must be at most 10000000, but is 1000000000000"),
        ({"t_steps": 10**5000}, "`t_steps` must be at most 10000000, but is an integer of 16610 bits"),
        ({"z_steps": 10**12}, "`z_steps` must be at most"),
        ({"z_steps_inner": 10**12}, "`z_steps_inner` must be at most"),
        ({"system__num_states": 10**6}, "`system.num_states` must be at most 1000"),
        ({"system__decays": [CHANNEL] * 10**6}, "`system.decays` must have at most 1000 items, but has 1000000"),
        ({"system__decays": [CHANNEL | {"channels": [[0, 1]] * 10**6}]}, "channels` must have at most 100000 items"),
        ({"velocity_classes": CLASSES | {"thermal_delta_steps": 10**9}}, "thermal_delta_steps` must be at most 100000"),
        ({"velocity_classes": {"thermal_delta_inner_steps": 10**9}}, "thermal_delta_inner_steps` must be at most"),
        ({"velocity_classes": CLASSES | {"thermal_delta_spacing": 1e-12}}, r"gives 2e\+12: raise it, or bring"),
        ({"velocity_classes": {"quadrature": "gauss-hermite", "nodes": 10**7}}, "`velocity_classes.nodes` must be at"),
    ],
)
def test_absurd_numbers_are_refused_when_a_problem_is_read(changed, text):
    with pytest.raises(ProblemError, match=text):
        Problem.from_dict(content(**changed))


def test_absurd_resolutions_are_refused():
    for arguments in ((10**7, 1), (8, 10**400), (8, float("inf")), (10**5000, 1)):
        with pytest.raises(ProblemError, match=r"^Argument `resolution\.\w+` must be an integer from"):
            Resolution(*arguments)


def test_classes_of_an_automatic_spacing_are_counted_first():
    wide = {"thermal_delta_spacing": "auto", "thermal_delta_min": -1e90, "thermal_delta_max": 1e90}
    with pytest.raises(ProblemError, match="must have at most 100000 classes"):
        Problem.from_dict(content(velocity_classes=wide)).doppler_shifts  # noqa: B018


@pytest.mark.parametrize(
    ("grids", "options", "text"),
    [
        ({"t_steps": 10**6, "z_steps": 10**5}, {}, "most of it for the fields at all z and t, and 4 GiB are there"),
        ({"t_steps": 10**5, "z_steps": 10**3}, {"outputs": ("density_matrix",)}, "or ask for fewer `outputs`"),
        ({"t_steps": 10**6}, {"resolution": Resolution(12, 1000)}, "what is kept of each step"),
        ({"z_steps": 10**7}, {}, "lower `z_steps`|lower `t_steps` or `z_steps`"),
        ({"z_steps": 10**6, "z_steps_inner": 10**6}, {"scheme": "march", "resolution": "auto"}, "or `z_steps_inner`"),
        ({}, {"params": {"rabi_freq": np.ones((10**6, 1))}}, "in a batch of 1000000 its run .* or split the batch"),
    ],
)
def test_a_run_whose_memory_is_not_there_is_refused(grids, options, text, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 4 * 2**30)
    with pytest.raises(ProblemError, match=text) as caught:
        propagate(two_level(**grids), **{"resolution": Resolution(12, 1)} | options)
    assert "\n" not in str(caught.value)


def test_what_a_gradient_keeps_counts_only_where_there_is_one(monkeypatch, x64):
    classes = CLASSES | {"thermal_delta_steps": 1000}
    problem = two_level(t_steps=20, velocity_classes=classes)
    at, seen = Resolution(12, 1), []
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "available", lambda: 12 * 2**20)

    def end(g):
        seen.append(g)
        return abs(
            propagate(problem, {"interaction_strengths": g}, resolution=at, memory="fast", tol=1).fields[0, -1, -1]
        )

    end(np.ones(1))
    with pytest.raises(ProblemError, match=r'most of it for the states that a gradient keeps.*: take memory="lean"'):
        jax.grad(end)(jax.numpy.ones(1))
    assert len(seen) == 2


def test_the_memory_that_is_there_is_that_of_the_tightest_limit(monkeypatch):
    for names in (("_of_the_machine", 3), ("_of_the_group", 2), ("_of_the_process", None)):
        monkeypatch.setattr(memory, names[0], lambda size=names[1]: size)
    assert memory.available() == 2
    monkeypatch.undo()
    assert memory.available() > 2**20
