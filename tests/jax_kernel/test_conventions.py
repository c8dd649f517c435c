"""Warnings of what clerq's conventions probably mean otherwise: when they come, what they say, what silences them."""

import re
import warnings

import numpy as np
import pytest
import torch

from jax_kernel import ConventionWarning, Problem, ProblemError, Resolution, WindowWarning, conventions, propagate
from tests.conftest import two_level
from tests.jax_kernel.test_problem import changed
from torch_clerq import TorchPropagator
from torch_clerq import propagate as propagate_tensors

AT = {"resolution": Resolution(4, 1), "tol": 1e9}
CLASSES = {"thermal_width": 0.3, "quadrature": "gauss-hermite", "nodes": 4, "thermal_delta_echo_tolerance": 0.5}
PULSE = {"rabi_freq_t_func": "gaussian", "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.5, "fwhm": 0.3}}


@pytest.fixture(autouse=True)
def fresh_warnings():
    """No problem has been warned of before."""
    conventions.warn_once.cache_clear()


def content(*fields, classes=None, states=3, **system):
    fields = [{"coupled_levels": pairs, "rabi_freq": 0.1} | PULSE | keys for pairs, keys in fields]
    top = {"t_steps": 8, "z_steps": 1, "interaction_strengths": [1.0] * len(fields), "velocity_classes": classes}
    return {"system": {"num_states": states, "fields": fields} | system} | top


def texts(given):
    """The convention warnings of a problem's first use; at its second there are none."""
    first, second = (convention_warnings(lambda: conventions.warn_once(Problem.from_dict(given))) for _ in range(2))
    assert second == []
    return first


def convention_warnings(use):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use()
    return [str(warning.message) for warning in caught if warning.category is ConventionWarning]


PROBE, CONTROL = ([[0, 1]], {"label": "probe"}), ([[2, 1]], {"label": "control"})
REVERSED = content(PROBE, ([[1, 2]], {"label": "control"}), initial_state=[0.5, 0, 0.5])
SHARED_LOWER = content(PROBE, ([[1, 2]], {"label": "control"}), ([[2, 3]], {}), states=4)
DETUNED_LADDER = content(([[0, 1]], {"detuning": 0.3}), ([[1, 2]], {"detuning": -0.2}))
DETUNED_LAMBDA = content(([[0, 1]], {"detuning": 0.3}), ([[2, 1]], {"detuning": -0.2}))
DOWNWARDS = content(([[0, 1]], {"detuning": 0.3}), ([[1, 2]], {"detuning": 0.5, "detuning_positive": False}))
MOVING_LADDER = content(([[0, 1]], {}), ([[1, 2]], {"counter_propagating": True}), classes=CLASSES)
MOVING_LAMBDA = content(PROBE, CONTROL, classes=CLASSES)
ONE_UPPER_LEVEL = content(([[0, 1]], {}), ([[0, 1]], {}), states=2, classes=CLASSES)

WARNED = {  # the problem, the levels' numbers by clerq's rule, those meant, and the key that states them
    "detuned ladder": (DETUNED_LADDER, [0, 0.3, -0.2], [0, 0.3, 0.1], "level_detunings"),
    "detuned lambda": (DETUNED_LAMBDA, [0, 0.1, 0], [0, 0.3, 0.5], "level_detunings"),
    "second level below": (DOWNWARDS, [0, 0.3, -0.5], [0, 0.3, -0.2], "level_detunings"),
    "counter-propagating ladder": (MOVING_LADDER, [0, -1, 1], [0, -1, 0], "level_doppler_slopes"),
    "moving lambda": (MOVING_LAMBDA, [0, -2, 0], [0, -1, 0], "level_doppler_slopes"),
    "two fields on one upper level": (ONE_UPPER_LEVEL, [0, -2], [0, -1], "level_doppler_slopes"),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_does_not_add_up_is_warned_of_once_with_the_remedy(name):
    given, rule, meant, key = WARNED[name]
    (text,) = texts(given)
    what = {"level_detunings": "detunings", "level_doppler_slopes": "Doppler shifts"}[key]
    assert text.startswith(f"By clerq's rule the {what} of the fields belong to their upper levels")
    assert f"the levels have `{key}` {rule} here; the sums along the couplings are {meant}: " in text
    assert text.endswith(f"write the one you mean as `system.{key}`.")
    for stated in (rule, meant):  # either is an answer
        assert texts(changed(given, f"system.{key}", stated)) == []


def test_the_rule_of_clerq_can_be_stated(x64):
    """As keys of the problem and as parameters; `detunings` beside it would do nothing, and is refused."""
    given = changed(DETUNED_LADDER | {"velocity_classes": CLASSES}, "system.fields.1.factor_doppler_shift", -0.7)
    levels = {"level_detunings": [0.0, 0.3, -0.2], "level_doppler_slopes": [0.0, -1.0, 0.7]}
    problem = Problem.from_dict(given)
    stated = Problem.from_dict(given | {"system": given["system"] | levels})
    expected = propagate(problem, **AT).fields
    np.testing.assert_allclose(propagate(stated, **AT).fields, expected, rtol=0, atol=1e-15)
    params = {key: np.array(values) for key, values in levels.items()}
    np.testing.assert_allclose(propagate(problem, params, **AT).fields, expected, rtol=0, atol=1e-15)
    moved = propagate(problem, params | {"level_doppler_slopes": np.array([0.0, -1.0, 0.0])}, **AT).fields
    assert np.abs(moved - expected).max() > 1e-6

    refusal = "`detunings` must be left out where `level_detunings` states the detuning of every level, but was given"
    detunings = {"detunings": np.array([0.3, -0.2])}
    for at_fault, more in ((stated, {}), (problem, params)):
        with pytest.raises(ProblemError, match=refusal):
            propagate(at_fault, detunings | more, **AT)
        with pytest.raises(ProblemError, match=refusal):
            propagate_tensors(at_fault, **detunings, **more, **AT)


@pytest.mark.parametrize(
    ("given", "why"), [(REVERSED, "2 a lower or populated one"), (SHARED_LOWER, "2 a lower or populated one")]
)
def test_reversed_pairs_are_warned_of(given, why):
    (text,) = texts(given)
    assert text.startswith('Field "control" couples [1, 2] as [lower, upper], but 1 is an upper level of another field')
    assert why in text
    assert text.endswith("this one amplifies what [2, 1] absorbs; write [2, 1] if 1 is the upper level.")
    assert texts(changed(given, "system.fields.1.coupled_levels", [[2, 1]])) == []


def test_everything_wrong_is_said():
    given = changed(REVERSED, "system.fields.0.detuning", 0.3) | {"velocity_classes": CLASSES}
    assert [re.search(r"couples|`level_\w+`", text)[0] for text in texts(given)] == [
        "couples", "`level_detunings`", "`level_doppler_slopes`",
    ]  # fmt: skip


CLEAN = {
    "two levels": content(([[0, 1]], {"detuning": 0.3}), states=2, classes=CLASSES),
    "lambda at rest": content(PROBE, CONTROL),
    "ladder at rest": content(([[0, 1]], {}), ([[1, 2]], {})),
    "ladder with the upper field detuned": content(([[0, 1]], {}), ([[1, 2]], {"detuning": 0.3})),
    "lambda with one velocity class": content(PROBE, CONTROL, classes=CLASSES | {"nodes": 1}),
    "detunings that disagree": content(([[0, 1]], {"detuning": 0.3}), ([[0, 1]], {"detuning": 0.2}), states=2),
    "two hyperfine ground levels": content(([[0, 2], [1, 2]], {"detuning": 0.3}), classes=CLASSES),
    "a V": content(([[0, 1]], {"detuning": 0.3}), ([[0, 2]], {"detuning": -0.2}), classes=CLASSES),
    "an upper level on another atom": content(([[0, 1]], {"detuning": 0.3}), ([[2, 3]], {}), states=4),
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean_problems_are_not_warned_of(name):
    assert texts(CLEAN[name]) == []


def test_every_way_in_warns(x64):
    problem = Problem.from_dict(DETUNED_LADDER)
    for first_use in (
        lambda: propagate(problem, **AT),
        lambda: propagate_tensors(problem, dtype=torch.float64, **AT),
        lambda: TorchPropagator(problem, **AT),
    ):
        conventions.warn_once.cache_clear()
        (text,) = convention_warnings(first_use)
        assert text.endswith("write the one you mean as `system.level_detunings`.")
        assert convention_warnings(first_use) == []


def test_a_level_that_decays_to_the_one_it_is_said_to_be_below():
    content = {"system": {"num_states": 2, "fields": [{"coupled_levels": [[1, 0]]}],
                          "decays": [{"rate": 1.0, "channels": [[0, 1]]}]}, "interaction_strengths": [1.0]}  # fmt: skip
    with pytest.warns(ConventionWarning, match=r"couples \[1, 0\] as .* but 1 decays to 0.*write \[0, 1\]"):
        conventions.warn_once.__wrapped__(Problem.from_dict(content))
    content["system"]["decays"][0]["channels"] = [[0, 1], [1, 0]]  # a bath that is warm
    conventions.warn_once.__wrapped__(Problem.from_dict(content))


@pytest.mark.parametrize(
    ("envelope", "args", "named"),
    [
        ("gaussian", {"ampl": 1.0, "centre": 1500.0, "fwhm": 1.0}, "centre 1500"),
        ("gaussian", {"ampl": 1.0, "centre": -8.0, "fwhm": 1.0}, "centre -8"),
        ("sech", {"ampl": 1.0, "centre": 60.0, "width": 1.0}, "centre 60"),
        ("square", {"ampl": 1.0, "on": 8.0, "off": 9.0}, "on 8, off 9"),
        ("ramp_on", {"ampl": 1.0, "on": 20.0, "fwhm": 1.0}, "on 20"),
        ("ramp_off", {"ampl": 1.0, "off": -20.0, "fwhm": 1.0}, "off -20"),
    ],
)
def test_a_pulse_outside_of_the_window_is_named(envelope, args, named):
    """As of a time in ns where the window is in µs."""
    (text, category), *_ = conventions.doubts(two_level(envelope=envelope, args=args))
    assert category is WindowWarning
    assert text.startswith(f'Field "field 0" is dark in the time window, -3 to 7: its {envelope} pulse has {named};')


@pytest.mark.parametrize(
    ("envelope", "args"),
    [
        ("gaussian", {"ampl": 1.0, "centre": 8.0, "fwhm": 1.0}),
        ("square", {"ampl": 1.0, "on": -100.0, "off": 100.0}),
        ("ramp_onoff", {"ampl": 1.0, "on": 8.0, "off": 100.0, "fwhm": 1.0}),
        ("sinc", {"ampl": 1.0, "width": 1.0}),
    ],
)
def test_a_pulse_that_reaches_into_the_window_is_not(envelope, args):
    assert not conventions.doubts(two_level(envelope=envelope, args=args))
    assert not conventions.doubts(two_level(args={"ampl": 1.0, "centre": 1500.0, "fwhm": 1.0}, rabi_freq=0.0))


def test_the_default_pulse_is_nobodys():
    content = two_level(t_min=7.0, t_max=14.0).to_dict()
    for key in ("rabi_freq_t_func", "rabi_freq_t_args"):
        del content["system"]["fields"][0][key]
    assert not conventions.doubts(Problem.from_dict(content))
