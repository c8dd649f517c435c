"""What `TorchPropagator` trains: the names it takes, where they start, and what it refuses at once."""

import numpy as np
import pytest
import torch

from jax_kernel import Problem, ProblemError
from tests.conftest import lambda_system, two_level
from tests.torch_clerq.conftest import GRID, SMALL
from torch_clerq import Interval, Positive, Resolution, TorchPropagator

LAMBDA = lambda_system(**GRID)
DETUNED = lambda_system(probe={"detuning": 0.3}, control={"detuning": -0.2, "factor_doppler_shift": 0.7}, **GRID)


def stated(problem=DETUNED, **levels):
    content = problem.to_dict()
    return Problem.from_dict(content | {"system": content["system"] | levels})


STATED = stated(level_detunings=[0.0, 0.3, 0.5], level_doppler_slopes=[0.0, -1.0, -0.3])


def layer(trainable, problem, **options):
    return TorchPropagator(problem, trainable=trainable, **SMALL | {"dtype": torch.float64} | options)


@pytest.mark.parametrize(
    ("trainable", "names"),
    [
        ((), []),
        ("detunings", ["detunings"]),
        (["rabi_freq", "energies"], ["rabi_freq", "energies"]),
        (iter(["number_density", "decay_scale", "initial_state"]), ["number_density", "decay_scale", "initial_state"]),
        ("pulse_args", [f"pulse_args_0_{k}" for k in ("ampl", "centre", "fwhm")]
         + [f"pulse_args_1_{k}" for k in ("ampl", "fwhm", "off", "on")]),
        (("pulse_args.probe.centre", "pulse_args.1.on"), ["pulse_args_0_centre", "pulse_args_1_on"]),
        ({"decay_rates": Positive(), "detunings": None}, ["raw_decay_rates", "detunings"]),
        ({"pulse_args.probe.fwhm": Interval(0.5, 2)}, ["raw_pulse_args_0_fwhm"]),
    ],
)  # fmt: skip
def test_trainable_names(trainable, names):
    module = layer(trainable, problem=LAMBDA)
    assert [name for name, _ in module.named_parameters()] == names


def test_trainable_labels_may_hold_dots_and_digits():
    problem = lambda_system(probe={"label": "1"}, control={"label": "beam.a"})
    module = layer(("pulse_args.1.centre", "pulse_args.beam.a.on"), problem=problem)
    assert [name for name, _ in module.named_parameters()] == ["pulse_args_0_centre", "pulse_args_1_on"]


SQUARE = two_level(envelope="square", args={"ampl": 1.0, "on": 0.0, "off": 1.0}, **GRID)


@pytest.mark.parametrize(
    ("trainable", "message"),
    [
        (5, "`trainable` must be names, or a dict of parametrisations by name, but is 5"),
        (None, "`trainable` must be names, or a dict"),
        ([None], "`trainable` must have names among"),
        ("decay_rate", r"must have names among .*has 'decay_rate' \(did you mean `decay_rates`\?\)"),
        ("b_field", "`trainable` must have names among .*has 'b_field'"),
        ("thermal_width", "`trainable` must have names among .*has 'thermal_width'"),
        ("pulse_args.ampl", "must have names among .*pulse_args.<field>.<argument>, but has 'pulse_args.ampl'"),
        ("pulse_args.", "`trainable` must have names among"),
        ("pulse_args.probe.ampl", 'must be a label .*but is "probe"'),
        ("pulse_args.1.ampl", "an index from 0 to 0, but is 1"),
        ("pulse_args.².ampl", "must be a label .*but is"),
        ("pulse_args.0.on", r"must name one of \['ampl'\] for field 0, .*`square` .*take the ramp pulses"),
        (["pulse_args", "pulse_args.0.ampl"], "must name each parameter once, but names `pulse_args_0_ampl` twice"),
        ({"decay_rates": Positive}, "must have a Parametrisation or None for each name"),
        ({"decay_rates": Interval(2, 3)}, "must start between 2 and 3"),
        ({"detunings": Positive()}, "must start from positive values under Positive"),
    ],
)
def test_trainable_names_that_are_refused(trainable, message):
    with pytest.raises(ProblemError, match=message):
        layer(trainable, problem=SQUARE)


@pytest.mark.parametrize(
    ("problem", "detunings", "slopes"),
    [(STATED, [0.0, 0.3, 0.5], [0.0, -1.0, -0.3]), (DETUNED, [0.0, 0.1, 0.0], [0.0, -1.7, 0.0])],
    ids=["stated", "by the rule of clerq"],
)
def test_levels_start_where_the_problem_has_them(unwatched, problem, detunings, slopes):
    module = layer(("level_detunings", "level_doppler_slopes"), problem)
    np.testing.assert_allclose(module.level_detunings.detach(), detunings, atol=1e-15)
    np.testing.assert_allclose(module.level_doppler_slopes.detach(), slopes, atol=1e-15)
    fields = module()
    torch.testing.assert_close(fields, layer((), problem)(), rtol=0, atol=1e-14)
    fields[0, -1].abs().square().sum().backward()
    assert module.level_detunings.grad.abs().max() > 0


DETUNINGS = "`detunings` must be left out where `level_detunings` states the detuning of every level, but was given"


@pytest.mark.parametrize(
    ("trainable", "problem", "message"),
    [
        (("detunings",), STATED, DETUNINGS),
        ({"detunings": Interval(-1.0, 1.0)}, STATED, DETUNINGS),
        (("level_detunings", "detunings"), DETUNED, DETUNINGS),
        (("initial_state", "initial_density_matrix"), DETUNED,
         "`initial_state` must be left out where `initial_density_matrix` is given, but was given"),
        ("initial_density_matrix", DETUNED,
         "`trainable` must leave out `initial_density_matrix`, .* start value .*: pass it to the call, but names it"),
    ],
)  # fmt: skip
def test_alternatives_are_refused_at_once(trainable, problem, message):
    with pytest.raises(ProblemError, match=message):
        layer(trainable, problem)


def test_a_state_passed_to_the_call_is_trained_there(unwatched):
    start = torch.diag(torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))[None, None].requires_grad_()
    module = layer((), DETUNED)
    fields = module(initial_density_matrix=start)
    torch.testing.assert_close(fields, module(), rtol=0, atol=1e-14)
    fields[0, -1].abs().square().sum().backward()
    assert start.grad.abs().max() > 0


def test_a_trained_layer_becomes_a_problem():
    problem = two_level()
    names = {"decay_rates": Positive(), "interaction_strengths": None, "pulse_args.0.centre": None, "rabi_freq": None}
    layer = TorchPropagator(problem, trainable=names, dtype=torch.float64, resolution=Resolution(6, 1), tol=1.0)
    assert layer.to_problem() == problem
    layer.decay_rates, layer.pulse_args_0_centre, layer.rabi_freq = 0.25, 0.5, 2e-3
    trained = layer.to_problem()
    assert trained.decays[0].rate == pytest.approx(0.25, rel=1e-12)
    assert dict(trained.fields[0].envelope.args)["centre"] == 0.5
    again = TorchPropagator(trained, dtype=torch.float64, resolution=Resolution(6, 1), tol=1.0)
    torch.testing.assert_close(again(), layer().detach(), rtol=1e-12, atol=1e-18)
