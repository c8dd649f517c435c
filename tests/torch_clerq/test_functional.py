"""propagate on tensors: gradients against differences, outputs, batches and refusals."""

from dataclasses import dataclass, field
from typing import Any

import diffrax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jax_kernel import Problem, ProblemError, ResolutionError, ResolutionWarning, pulses
from tests.conftest import lambda_system, two_level
from tests.torch_clerq.conftest import AT, GRID, SMALL
from torch_clerq import bridge, functional, propagate

F64 = torch.float64


def real(*values):
    return torch.tensor(values if len(values) > 1 else values[0], dtype=F64)


def cycles(*values):
    return torch.tensor(values, dtype=torch.complex128)


def samples(*shape, real=False, seed=0):
    """Smooth random fields, shape (*shape, time)."""
    rng = np.random.default_rng(seed)
    t = np.linspace(-2, 4, GRID["t_steps"] + 1)
    waves = sum(
        (rng.normal(size=shape) + 1j * rng.normal(size=shape))[..., None] * np.exp(-((t - c) ** 2)) for c in (-1, 0, 1)
    )
    return torch.as_tensor(0.3 * (waves.real if real else waves))


@dataclass
class Case:
    """A function of named tensors: which parameters of which problem they are."""

    problem: Problem
    starts: dict[str, torch.Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    label: str | None = None
    fast: bool = False
    accuracy: float = 1e-8

    def __call__(self, *tensors):
        given = dict(zip(self.starts, tensors, strict=True))
        pulse_args = {}
        for name in [name for name in given if "." in name]:
            k, key = name.split(".")
            pulse_args.setdefault(int(k), {})[key] = given.pop(name)
        if pulse_args:
            given["pulse_args"] = pulse_args
        if "logits" in given:  # populations that stay populations under a difference
            given["initial_state"] = torch.softmax(given.pop("logits"), -1)
        samples = given.pop("input_fields", None)
        samples = samples if self.label is None else {self.label: samples}
        return propagate(self.problem, samples, **given, **SMALL, **self.options)

    def leaves(self, dtype=F64):
        kinds = {False: dtype, True: torch.complex64 if dtype == torch.float32 else torch.complex128}
        return [t.to(kinds[t.is_complex()], copy=True).requires_grad_() for t in self.starts.values()]


VELOCITIES = {"thermal_delta_min": -1, "thermal_delta_max": 1, "thermal_delta_steps": 3, "thermal_width": 0.6}

PULSES = (
    ("square", {"ampl": real(0.8)}, {"on": -1.03, "off": 1.56}),
    ("gaussian", {"ampl": real(0.8), "centre": real(0.2), "fwhm": real(0.9)}, {}),
    ("gaussian", {"n_pi": real(1.3), "centre": real(0.2), "fwhm": real(0.9)}, {}),
    ("sech", {"ampl": real(0.8), "centre": real(0.2), "width": real(0.5)}, {}),
    ("sech", {"n_pi": real(1.3), "centre": real(0.2), "fwhm": real(0.9)}, {}),
    ("ramp_on", {"ampl": real(0.8), "on": real(0.31), "fwhm": real(0.9)}, {}),
    ("ramp_off", {"ampl": real(0.8), "off": real(1.33), "fwhm": real(0.9)}, {}),
    ("ramp_onoff", {"ampl": real(0.8), "on": real(-0.31), "off": real(1.33), "fwhm": real(0.9)}, {}),
    ("ramp_offon", {"ampl": real(0.8), "on": real(1.33), "off": real(-0.31), "fwhm": real(0.9)}, {}),
    ("sinc", {"ampl": real(0.8), "width": real(0.7)}, {}),
    ("intp", {"ylist": real(0.1, 0.9, 0.4, 0.0)}, {"tlist": [-2.0, -0.3, 1.07, 4.0]}),
    ("intp", {"ylist": cycles(0.1, 0.9j, 0.4 - 0.3j, 0.0)}, {"tlist": [-2.0, -0.3, 1.07, 4.0]}),
)
"""Every kind of pulse: its name, the arguments that have a gradient, and its edges."""


def on_one_transition(kinds):
    """A two-level system driven by one field of each pulse: one executable for all of them."""
    fields = [
        {"coupled_levels": [[0, 1]], "factors": [0.4 + 0.05 * k], "rabi_freq": 0.5, "rabi_freq_t_func": name,
         "rabi_freq_t_args": {key: value.tolist() for key, value in args.items()} | edges}
        for k, (name, args, edges) in enumerate(kinds)
    ]  # fmt: skip
    return Problem.from_dict({
        "system": {"num_states": 2, "decays": [{"rate": 0.8, "channels": [[0, 1]]}], "fields": fields},
        "interaction_strengths": [0.5 + 0.1 * k for k in range(len(fields))],
    } | GRID)  # fmt: skip


PLAIN = two_level(g=1.5, rabi_freq=0.7, **GRID)

TWO_FIELDS = on_one_transition(PULSES[1:3])

LAMBDA = lambda_system(
    probe={"rabi_freq": 0.8, "detuning": 0.3},
    control={"rabi_freq": 1.1, "factors": [0.8]},
    system={"b_field": {"magnitude": 0.3, "g_F": [0.5, -0.3, 1.0], "m_F": [1, 0, -1]}},
    velocity_classes=VELOCITIES,
    **GRID,
)

FOUR_LEVELS = Problem.from_dict({
    "system": {
        "num_states": 4,
        "initial_state": [0.7, 0.3, 0, 0],
        "decays": [{"rate": 0.5, "channels": [[0, 2], [1, 3]], "factors": [0.9, 0.6]},
                   {"rate": 0.3, "channels": [[1, 2], [0, 3]]},
                   {"rate": 0.1, "channels": [[1, 1]]}],
        "fields": [{"coupled_levels": [[0, 2], [1, 3]], "factors": [0.8, -0.6], "rabi_freq": 0.9, "detuning": 0.4,
                    "detuning_positive": False, "factor_doppler_shift": 0.9, "rabi_freq_t_func": "ramp_on",
                    "rabi_freq_t_args": {"ampl": 1.0, "on": 0.0, "fwhm": 1.0}}],
    },
    "interaction_strengths": [2.0],
    "velocity_classes": VELOCITIES,
} | GRID)  # fmt: skip

CASES = {
    "pulses": Case(
        on_one_transition(PULSES),
        {f"{k}.{key}": value for k, (_, args, _) in enumerate(PULSES) for key, value in args.items()},
    ),
    "two-level": Case(
        two_level(g=1.5, rabi_freq=0.7, velocity_classes=VELOCITIES, **GRID),
        {
            "rabi_freq": real([0.8]),
            "interaction_strengths": real([1.4]),
            "detunings": real([0.3]),
            "decay_scale": real(1.2),
            "decay_rates": real([0.7]),
            "energies": real(0.1, 0.3),
            "number_density": real(1.1),
            "thermal_width": real(0.7),
        },
    ),
    "lambda": Case(
        LAMBDA,
        {
            "input_fields": samples(),
            "rabi_freq": cycles(0.8 + 0.2j, 1.1j),
            "interaction_strengths": real(1.4, 0.6),
            "detunings": real(0.3, -0.2),
            "decay_scale": real(0.9),
            "decay_rates": real([0.7]),
            "b_field": real(0.3),
            "energies": real(0.1, 0.3, -0.2),
            "number_density": real(0.5, 1.0, 1.2, 0.7, 0.1),
            "thermal_width": real(0.7),
            "logits": real(1.0, -0.5, 0.3),
            "0.fwhm": real(0.9),
        },
        label="control",
    ),
    "four-level": Case(
        FOUR_LEVELS,
        {
            "rabi_freq": cycles(0.9 - 0.1j),
            "interaction_strengths": real([2.0]),
            "detunings": real([0.4]),
            "decay_rates": real(0.5, 0.3, 0.1),
            "energies": real(0.0, 0.2, -0.1, 0.4),
            "thermal_width": real(0.6),
            "0.on": real(0.13),
        },
    ),
    "batch": Case(
        PLAIN,
        {"input_fields": samples(2, 1), "detunings": real([0.3]), "number_density": real(0.9, 1.2).view(2, 1)},
        fast=True,
    ),
    "lean": Case(
        PLAIN, {"input_fields": samples(1, real=True), "decay_rates": real([0.7])}, {"memory": "lean"}, fast=True
    ),
    "tsit5": Case(
        PLAIN,
        {"interaction_strengths": real([1.4]), "0.fwhm": real(0.9)},
        {"solver": diffrax.Tsit5()},
        accuracy=1e-6,  # its steps are chosen anew
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CASES if name != "tsit5"])
def test_gradcheck(name, unwatched):
    case = CASES[name]

    def seen(*leaves):
        return case(*leaves)[..., 1::3, 9::16]

    assert torch.autograd.gradcheck(seen, case.leaves(), atol=1e-7, rtol=1e-5, fast_mode=case.fast)


def loss(case, leaves):
    fields = case(*leaves)
    weights = torch.randn(fields.shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(1))
    return (weights.to(fields.dtype) * fields).sum().real


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_ladder_of_differences(case, unwatched):
    rng = torch.Generator().manual_seed(2)
    leaves = case.leaves()
    gradients = torch.autograd.grad(loss(case, leaves), leaves)
    for k, (leaf, gradient) in enumerate(zip(leaves, gradients, strict=True)):
        direction = torch.randn(leaf.shape, dtype=leaf.dtype, generator=rng)
        slope = (gradient.conj() * direction).sum().real

        def along(h, k=k, direction=direction):
            moved = [x.detach() + h * direction if i == k else x.detach() for i, x in enumerate(leaves)]
            return loss(case, moved)

        errors = [abs((along(h) - along(-h)) / (2 * h) - slope) / abs(slope) for h in 10.0 ** -np.arange(2, 7)]
        assert min(errors) < case.accuracy, (list(case.starts)[k], errors)


def assert_narrow_is_close(wide, narrow, names):
    for name, a, b in zip(names, wide, narrow, strict=True):
        assert b.dtype in (torch.float32, torch.complex64)
        assert (a - b).norm() < 1e-4 * a.norm(), name


def test_float32_gradients(unwatched):
    case = CASES["lambda"]
    wide, narrow = (
        torch.autograd.grad(loss(case, leaves), leaves) for leaves in (case.leaves(), case.leaves(torch.float32))
    )
    assert_narrow_is_close(wide, narrow, case.starts)


@dataclass(frozen=True)
class Shapes(bridge.Function):
    """The envelopes of all pulses on the time grid, as a function for the bridge."""

    x64: bool
    name = "shapes"

    def __call__(self, constants, *arrays):
        time = jnp.asarray(PLAIN.time, "float64" if self.x64 else "float32")
        given = iter(arrays)
        shapes = []
        for name, args, edges in PULSES:
            of = {key: next(given) for key in args} | {key: jnp.asarray(t, time.dtype) for key, t in edges.items()}
            shapes.append(pulses.evaluate(name, of, time))
        return tuple(shapes)


def test_float32_gradients_of_pulses():
    case = CASES["pulses"]
    rng = np.random.default_rng(0)
    weights = [torch.as_tensor(rng.normal(size=41)) for _ in PULSES]

    def gradients(dtype):
        leaves = case.leaves(dtype)
        shapes = bridge.call(Shapes(dtype == F64), (), leaves)
        total = sum((w.to(dtype) * (1 - 0.5j) * shape).sum().real for w, shape in zip(weights, shapes, strict=True))
        return torch.autograd.grad(total, leaves)

    assert_narrow_is_close(gradients(F64), gradients(torch.float32), case.starts)


# batches


def test_batches_are_one_call_and_equal_a_loop(unwatched, monkeypatch):
    calls = []
    call = bridge.call
    monkeypatch.setattr(bridge, "call", lambda *args: calls.append(args) or call(*args))
    waves, strengths, centres = samples(2, 1), real(0.5, 1.0, 1.5, 2.0, 2.5, 3.0).view(3, 2), real(-0.2, 0.0, 0.3)
    density = torch.linspace(0.2, 2.0, 10, dtype=F64).view(2, 1, 5)

    def run(wave, strength, centre, density):
        return propagate(TWO_FIELDS, {0: wave}, pulse_args=[{}, {"centre": centre}], interaction_strengths=strength,
                         number_density=density, **SMALL)  # fmt: skip

    batch = run(waves, strengths, centres, density)
    assert batch.shape == (2, 3, 2, 5, 41)
    assert len(calls) == 1
    for i, j in np.ndindex(2, 3):
        torch.testing.assert_close(batch[i, j], run(waves[i, 0], strengths[j], centres[j], density[i, 0]))


def test_results_are_the_callers_to_write_into(unwatched):
    case = CASES["batch"]
    leaves = [x.detach() for x in case.leaves()]
    before = [x.clone() for x in leaves]
    first = case(*leaves)
    right = first.clone()
    first.fill_(7)
    assert all(torch.equal(x, y) for x, y in zip(leaves, before, strict=True))
    assert torch.equal(case(*leaves), right)


def test_an_empty_batch_gives_an_empty_batch(fresh_watches):
    assert propagate(TWO_FIELDS, torch.zeros(0, 2, 41), **SMALL).shape == (0, 2, 5, 41)


# values and precision


def test_what_a_parameter_is_made_of_does_not_matter(unwatched):
    case = CASES["two-level"]
    right = case(*case.starts.values())
    for energies in ((0.1, 0.3), [0.1, 0.3], np.array([0.3, 0.1])[::-1], np.array([[0.1, 9.0], [0.3, 9.0]])[:, 0]):
        given = case.starts | {"energies": energies, "number_density": 1.1, "decay_rates": np.float64(0.7)[None]}
        assert torch.equal(case(*given.values()), right), energies


def test_integers_are_numbers(unwatched):
    case = CASES["two-level"]
    for energies in ([1, 2], torch.tensor([1, 2]), np.array([1, 2], np.uint16), np.broadcast_to(np.arange(1, 3), (2,))):
        whole, same = (case(*(case.starts | {"energies": e}).values()) for e in (energies, real(1.0, 2.0)))
        assert torch.equal(whole, same)


def precision(**given):
    return functional.Request(TWO_FIELDS, None, given, **{"dtype": None, "tol": None} | given.pop("options", {}))


def test_precision_is_that_of_the_tensors():
    narrow, wide = torch.ones(2), torch.zeros(2, dtype=F64)
    assert precision().options.dtype == "float32"
    assert precision(interaction_strengths=np.ones(2)).options.dtype == "float32"
    assert precision(interaction_strengths=narrow).options.dtype == "float32"
    assert precision(interaction_strengths=narrow, detunings=wide).options.dtype == "float64"
    assert precision(rabi_freq=narrow + 0j, detunings=wide + 0).options.dtype == "float64"
    assert precision(rabi_freq=torch.ones(2, dtype=torch.int64)).options.dtype == "float32"
    assert precision(detunings=wide, options={"dtype": torch.float32}).options.dtype == "float32"
    try:
        torch.set_default_dtype(F64)
        assert precision().options.dtype == "float64"
        assert precision(interaction_strengths=narrow).options.dtype == "float32"
    finally:
        torch.set_default_dtype(torch.float32)


def test_results_and_gradients_have_the_precision_asked_for(unwatched):
    case = CASES["two-level"]
    wide, narrow = case.leaves(), case.leaves(torch.float32)
    leaves = [pair[k % 2] for k, pair in enumerate(zip(wide, narrow, strict=True))]
    fields = case(*leaves)
    assert fields.dtype == torch.complex128
    fields.abs().sum().backward()
    assert all(x.grad.dtype == x.dtype for x in leaves)


def test_nothing_at_all_stays_nothing(unwatched):
    case = CASES["two-level"]
    leaves = [torch.zeros_like(x) for x in case.starts.values()]
    leaves[-1] += 1  # the thermal width
    leaves = [x.requires_grad_() for x in leaves]
    fields = case(*leaves)
    assert not fields.any()
    fields.abs().square().sum().backward()
    assert all(x.grad.isfinite().all() for x in leaves)


def test_a_level_that_was_empty_can_be_populated(unwatched):
    apart = Problem.from_dict({
        "system": {"num_states": 4, "fields": [{"coupled_levels": [[0, 1], [2, 3]]}]}, "interaction_strengths": [1.0],
    } | GRID)  # fmt: skip
    first, second = (propagate(apart, initial_state=state, **SMALL) for state in ([1, 0, 0, 0], [0, 0, 1, 0]))
    torch.testing.assert_close(first, propagate(apart, **SMALL))
    torch.testing.assert_close(second, first)


def test_without_decays_there_is_nothing_to_train(unwatched):
    rates = torch.zeros(0, requires_grad=True)
    fields = propagate(two_level(rate=None, **GRID), decay_rates=rates, **SMALL)
    fields.abs().sum().backward()
    assert rates.grad.shape == (0,)


def test_a_solution_that_does_not_stay_finite_raises(unwatched):
    case = CASES["lambda"]
    leaves = case.leaves(torch.float32)
    with pytest.raises(ResolutionError, match=r"must stay finite, but does not from z = 0, t = -.*raise `t_substeps`"):
        case(leaves[0], 1e30 * leaves[1], *leaves[2:])


# the resolution


def test_auto_is_searched_at_every_call(unwatched, monkeypatch):
    searched = []
    monkeypatch.setattr(functional.Request, "resolve", lambda self, at, *rest, **_: searched.append(at) or AT)
    case = CASES["two-level"]
    given = dict(zip(case.starts, case.leaves(), strict=True))
    for _ in range(2):
        assert torch.equal(propagate(case.problem, **given), case(*given.values()))
    assert searched.count("auto") == 2


def test_a_poor_resolution_warns_once_per_problem(fresh_watches):
    problem = two_level(g=5.0, rabi_freq=1.0, **GRID)
    poor = {"resolution": AT, "tol": 1e-9, "interaction_strengths": [5.0]}
    with pytest.warns(ResolutionWarning, match=r"raise `z_nodes` above 6 .* and `t_substeps` above 1 "):
        propagate(problem, **poor)
    propagate(problem, **poor)  # a second warning would be an error


def test_estimates_are_made_at_calls_that_double(fresh_watches, monkeypatch):
    estimated, call = [], 0
    monkeypatch.setattr(functional.Request, "errors", lambda *_: estimated.append(call) or (0.0, 0.0))
    for call in range(1, 18):  # noqa: B007
        propagate(TWO_FIELDS, interaction_strengths=torch.ones(2), **SMALL)
    assert estimated == [1, 2, 4, 8, 16]


# refusals

SQUARE = two_level(envelope="square", args={"ampl": 1.0, "on": 0.0, "off": 1.0}, **GRID)
INTP = two_level(envelope="intp", args={"tlist": [-2.0, 0.0, 4.0], "ylist": [0.0, 1.0, 0.0]}, **GRID)
DOPPLER = two_level(velocity_classes=VELOCITIES, **GRID)
NAN, INF = float("nan"), float("inf")

REFUSALS = [
    (PLAIN, {"detuning": [0.0]}, r"`params` must have names among pulse_args, .*has `detuning` \(did you mean `detun"),
    (PLAIN, {"interaction_strengths": 1.0}, r"`interaction_strengths` must have shape .*\(1,\), but has shape \(\)"),
    (PLAIN, {"interaction_strengths": [1.0, 2.0]}, r"`interaction_strengths` must have shape .*has shape \(2,\)"),
    (PLAIN, {"energies": torch.zeros(3, 3)}, r"`energies` must have shape .*\(2,\), but has shape \(3, 3\)"),
    (PLAIN, {"number_density": torch.ones(3)}, r"`number_density` must be a factor, .* samples, .*has shape \(3,\)"),
    (PLAIN, {"interaction_strengths": torch.ones(1, dtype=torch.float16)}, "must be float32 or .*torch.float16"),
    (PLAIN, {"interaction_strengths": torch.ones(1, dtype=torch.bfloat16)}, "must be float32 or .*torch.bfloat16"),
    (PLAIN, {"interaction_strengths": torch.ones(1, dtype=torch.bool)}, "must be float32 or float64.*torch.bool"),
    (PLAIN, {"interaction_strengths": torch.ones(1) + 0j}, "must be real numbers, but has dtype complex"),
    (PLAIN, {"interaction_strengths": "strong"}, "`interaction_strengths` must be a tensor or an array.*is 'strong'"),
    (PLAIN, {"interaction_strengths": [[1.0], [2.0, 3.0]]}, "must be a tensor or an array of numbers"),
    (PLAIN, {"interaction_strengths": [torch.ones((), requires_grad=True)]}, "torch.stack makes one of a list"),
    (PLAIN, {"interaction_strengths": object()}, "must be a tensor or an array of numbers"),
    (PLAIN, {"interaction_strengths": torch.ones(1).to_sparse()}, "must be a dense tensor, but .*sparse"),
    (PLAIN, {"interaction_strengths": [NAN]}, "`interaction_strengths` must be finite, but has nan"),
    (PLAIN, {"detunings": torch.tensor([-INF], requires_grad=True)}, "`detunings` must be finite, but has -inf"),
    (PLAIN, {"detunings": [1e300]}, "`detunings` must be finite, but has inf"),
    (PLAIN, {"decay_rates": [-0.1]}, "`decay_rates` must be nonnegative, but has -0.1"),
    (PLAIN, {"decay_scale": -1}, "`decay_scale` must be nonnegative, but has -1"),
    (PLAIN, {"number_density": [1, 1, -1, 1, 1]}, "`number_density` must be nonnegative, but has -1"),
    (PLAIN, {"initial_state": [0.6, 0.6]}, "`initial_state` must have populations that sum to 1"),
    (PLAIN, {"initial_state": [1.5, -0.5]}, "`initial_state` must have populations between 0 and 1"),
    (PLAIN, {"b_field": 1.0}, "`b_field` must be left out of a problem without a `b_field` block"),
    (PLAIN, {"thermal_width": 1.0}, "`thermal_width` must be left out of a problem without velocity classes"),
    (DOPPLER, {"thermal_width": 0.0}, "`thermal_width` must be positive, but is 0"),
    (PLAIN, {"pulse_args": [{}, {}]}, r"`pulse_args` must be a list of one dict per field \(1\) .*has length 2"),
    (PLAIN, {"pulse_args": "probe"}, r"`pulse_args` must be a list of one dict per field \(1\) .*is str"),
    (PLAIN, {"pulse_args": [1.0]}, r"`pulse_args\[0\]` must be a dict of pulse arguments, but is float"),
    (PLAIN, {"pulse_args": {"probe": {}}}, "must be a label .*but is \"probe\""),
    (PLAIN, {"pulse_args": [{"width": 1.0}]}, r"`pulse_args\[0\]` must have names among .*`gaussian` .*has `width`"),
    (PLAIN, {"pulse_args": [{"fwhm": 0.0}]}, r"`pulse_args\[0\].fwhm` must be positive, but is 0"),
    (PLAIN, {"pulse_args": [{"fwhm": "long"}]}, r"`pulse_args\[0\].fwhm` must be a tensor"),
    (SQUARE, {"pulse_args": [{"on": torch.zeros((), requires_grad=True)}]}, "edge of `square` .*ramp_on, ramp_off"),
    (SQUARE, {"pulse_args": [{"on": torch.zeros(2)}]}, "must be the same for the whole batch"),
    (SQUARE, {"pulse_args": [{"on": 2.0}]}, r"`pulse_args\[0\].on` must be at most `off` \(1\), but is 2"),
    (INTP, {"pulse_args": [{"ylist": [0.0, 1.0]}]}, r"ylist` must have shape .*time = 3, as many as `tlist`"),
    (INTP, {"pulse_args": [{"ylist": 1.0}]}, r"ylist` must have shape .*time = 3, as many as `tlist`"),
    (INTP, {"pulse_args": [{"tlist": [0.0, 2.0, 1.0]}]}, "tlist` must have at least two times, each above the last"),
    (INTP, {"pulse_args": [{"tlist": torch.ones(3, requires_grad=True)}]}, "tlist` must not be differentiated"),
    (PLAIN, {"input_fields": torch.zeros(2, 41)}, r"must have shape .*\(1, 41\), but has shape \(2, 41\)"),
    (PLAIN, {"input_fields": torch.zeros(41)}, r"`input_fields` must have shape .*\(1, 41\), but has shape \(41,\)"),
    (PLAIN, {"input_fields": 0.1}, r"`input_fields` must have shape .*has shape \(\)"),
    (PLAIN, {"input_fields": torch.full((1, 41), NAN)}, "`input_fields` must be finite, but has nan"),
    (PLAIN, {"input_fields": torch.zeros(1, 41, dtype=torch.bool)}, "`input_fields` must be float32 or float64"),
    (PLAIN, {"input_fields": {0: torch.zeros(40)}}, r"`input_fields\[0\]` must have shape .*time = 41"),
    (PLAIN, {"input_fields": {0: None}}, r"`input_fields\[0\]` must be a tensor"),
    (PLAIN, {"input_fields": {1: torch.zeros(41)}}, "an index from 0 to 0, but is 1"),
    (LAMBDA, {"input_fields": {"prob": torch.zeros(41)}}, 'must be a label .*did you mean "probe"'),
    (LAMBDA, {"input_fields": {"probe": torch.zeros(41), 0: torch.zeros(41)}}, "must name each field once"),
    (LAMBDA, {"input_fields": {"probe": torch.zeros(41)}, "pulse_args": {"probe": {"fwhm": 1}}}, "replaces the field"),
    (PLAIN, {"input_fields": torch.zeros(1, 41), "rabi_freq": [1.0]}, "`rabi_freq` must be left out where"),
    (PLAIN, {"input_fields": torch.zeros(3, 1, 41), "detunings": torch.zeros(2, 1)}, r"broadcast .*\(2,\), \(3,\)"),
    (PLAIN, {"dtype": torch.float16}, "`dtype` must be torch.float32 or torch.float64, .*torch.float16"),
    (PLAIN, {"dtype": torch.complex128}, "`dtype` must be torch.float32 or torch.float64, .*complex128"),
    (PLAIN, {"dtype": "float64"}, "`dtype` must be torch.float32 or torch.float64, .*float64"),
    (PLAIN, {"resolution": (6, 1)}, r"`resolution` must be a Resolution or \"auto\", but is \(6, 1\)"),
    (PLAIN, {"resolution": "fine"}, "`resolution` must be a Resolution or \"auto\", but is 'fine'"),
    (PLAIN, {"tol": 0.0}, "`tol` must be positive, but is 0.0"),
    (PLAIN, {"tol": NAN}, "`tol` must be positive, but is nan"),
    (PLAIN, {"tol": "small"}, "`tol` must be positive, but is 'small'"),
    (PLAIN, {"rtol": -1.0}, "`rtol` must be positive, but is -1.0"),
    (PLAIN, {"atol": INF}, "`atol` must be positive, but is inf"),
    (PLAIN, {"max_steps": 0, "solver": diffrax.Tsit5()}, "`max_steps` must be an integer of at least 1, but is 0"),
    (PLAIN, {"max_steps": 10}, "`max_steps` must be left out without a diffrax `solver`"),
    (PLAIN, {"rtol": 1e-6}, "`rtol` must be left out without a diffrax `solver`"),
    (PLAIN, {"solver": "Tsit5"}, "`solver` must be 'auto', .* a diffrax solver with error estimates, .*is 'Tsit5'"),
    (PLAIN, {"solver": diffrax.Tsit5}, "`solver` must be 'auto', .* a diffrax solver with error estimates"),
    (PLAIN, {"solver": diffrax.Euler()}, "`solver` must be 'auto', .* a diffrax solver with error estimates, .*Euler"),
    (PLAIN, {"memory": "small"}, "`memory` must be one of 'auto', 'fast', 'lean', but is 'small'"),
    (PLAIN, {"scheme": "cros"}, "`scheme` must be one of 'cross', 'march', but is 'cros'"),
    ("memory.json", {}, "`problem` must be a Problem .*but is str"),
    ({}, {}, "`problem` must be a Problem .*but is dict"),
]  # fmt: skip


@pytest.mark.parametrize(("problem", "given", "message"), REFUSALS, ids=[row[2] for row in REFUSALS])
def test_refusals_are_one_sentence(problem, given, message):
    with pytest.raises(ProblemError, match=message) as caught:
        propagate(problem, **SMALL | given)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_edges_may_require_a_gradient_that_nobody_takes():
    on = torch.zeros((), requires_grad=True)
    with torch.no_grad():
        request = functional.Request(SQUARE, None, {"pulse_args": [{"on": on}]}, dtype=None, tol=None)
    assert request.edges == ((0.0, 1.0),)
