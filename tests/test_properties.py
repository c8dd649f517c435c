"""Properties of any problem: files that are read back, states that stay states, shapes that are said."""

import json

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jax_kernel import Problem, Resolution
from torch_clerq import ProblemError, PropagationError, TorchPropagator, propagate

UNHURRIED = {"deadline": None, "suppress_health_check": list(HealthCheck)}
QUICK = settings(derandomize=True, max_examples=25, database=None, **UNHURRIED)
FEW = settings(QUICK, max_examples=8)
AT = Resolution(6, 2)


def numbers(low, high):
    return st.floats(low, high, allow_nan=False, allow_subnormal=False)


PULSES = st.one_of(
    st.fixed_dictionaries({"ampl": numbers(-2, 2), "centre": numbers(-3, 5), "fwhm": numbers(0.3, 3)}).map(
        lambda args: ("gaussian", args)),
    st.fixed_dictionaries({"n_pi": numbers(0, 2), "centre": numbers(-3, 5), "width": numbers(0.3, 3)}).map(
        lambda args: ("sech", args)),
    st.tuples(numbers(-2, 2), numbers(-3, 1), numbers(1, 5), numbers(0.2, 2)).map(
        lambda x: ("ramp_onoff", {"ampl": x[0], "on": x[1], "off": x[2], "fwhm": x[3]})),
)  # fmt: skip


@st.composite
def problems(draw, counts=(2, 3, 4)):
    """Valid problem files: some levels, one or two fields, decays, velocity classes, a magnetic field."""
    count = draw(st.sampled_from(counts))
    pair = st.tuples(st.integers(0, count - 2), st.just(count - 1)).map(list)
    lights = draw(st.lists(pair, min_size=1, max_size=2, unique_by=tuple))
    fields = []
    for k, coupled in enumerate(lights):
        name, args = draw(PULSES)
        fields.append({"coupled_levels": [coupled], "detuning": draw(numbers(-2, 2)), "label": f"light {k}Ω",
                       "rabi_freq": draw(numbers(0, 2)), "rabi_freq_t_func": name, "rabi_freq_t_args": args,
                       "detuning_positive": draw(st.booleans())})  # fmt: skip
    levels_ = st.integers(0, count - 1)
    decays = st.fixed_dictionaries({"rate": numbers(0, 2), "channels": st.lists(
        st.tuples(levels_, levels_).map(list), min_size=1, max_size=3, unique_by=tuple)})  # fmt: skip
    shares = draw(st.lists(numbers(0.1, 1), min_size=count, max_size=count))
    content = {
        "system": {"num_states": count, "fields": fields, "decays": draw(st.lists(decays, max_size=2)),
                   "energies": draw(st.lists(numbers(-1, 1), min_size=count, max_size=count)),
                   "initial_state": [share / sum(shares) for share in shares]},
        "t_min": -3.0, "t_max": 5.0, "t_steps": 40, "z_steps": 3, "interaction_strengths": [
            draw(numbers(0, 2)) for _ in fields],
    }  # fmt: skip
    if draw(st.booleans()):
        steps = draw(st.integers(0, 4))
        content["velocity_classes"] = {"thermal_width": draw(numbers(0.05, 0.5)), "thermal_delta_min": -0.4,
                                       "thermal_delta_max": 0.4, "thermal_delta_steps": steps}  # fmt: skip
    if draw(st.booleans()):
        content["system"]["b_field"] = {"magnitude": draw(numbers(-1, 1)), "g_F": [0.5] * count, "m_F": [1.0] * count}
    return content


@given(problems())
@QUICK
def test_a_problem_is_read_back_equal(tmp_path_factory, content):
    problem = Problem.from_dict(content)
    again = Problem.from_dict(json.loads(json.dumps(problem.to_dict())))
    path = tmp_path_factory.mktemp("problem") / "problem.json"
    problem.to_json(path)
    for other in (again, Problem.from_json(path), Problem.from_dict(problem.to_dict())):
        assert other == problem
        assert hash(other) == hash(problem)
        assert other.to_dict() == problem.to_dict()
    assert problem != Problem.from_dict(content | {"t_max": 6.0})


@given(problems(counts=(3,)), st.sampled_from([torch.float32, torch.float64]))
@FEW
@pytest.mark.filterwarnings("ignore::jax_kernel.errors.ResolutionWarning")
def test_states_stay_states(content, dtype):
    layer = TorchPropagator(Problem.from_dict(content), dtype=dtype, resolution=AT)
    solution = layer.solve(outputs=("populations", "density_matrix"))
    assert solution.fields.dtype == dtype.to_complex()
    assert torch.isfinite(torch.view_as_real(solution.fields)).all()
    sums = solution.populations.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-10)
    matrix = solution.density_matrix
    torch.testing.assert_close(matrix, matrix.mH, rtol=0, atol=1e-6)
    assert solution.populations.min() > -1e-2  # at this coarse resolution


SHAPES = st.lists(st.sampled_from([1, 2, 3]), max_size=2).map(tuple)
SMALL = Problem.from_dict({
    "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}], "fields": [
        {"coupled_levels": [[0, 1]], "rabi_freq": 0.1, "rabi_freq_t_func": "gaussian",
         "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 1.0}}]},
    "t_min": -3.0, "t_max": 5.0, "t_steps": 20, "z_steps": 2, "interaction_strengths": [1.0]})  # fmt: skip


def run(**params):
    return propagate(SMALL, resolution=AT, tol=1.0, dtype=torch.float64, **params)


@given(SHAPES, SHAPES)
@FEW
def test_batch_axes_broadcast_or_are_refused(first, second):
    params = {"rabi_freq": torch.full((*first, 1), 0.1), "interaction_strengths": torch.ones(*second, 1)}
    try:
        batch = np.broadcast_shapes(first, second)
    except ValueError:
        with pytest.raises(ProblemError, match=r"must have batch axes that broadcast against each other, but they are"):
            run(**params)
        return
    fields = run(**params)
    assert fields.shape == (*batch, 1, 3, 21)
    torch.testing.assert_close(fields, run().expand_as(fields))


NAMES = st.sampled_from(["rabi_freq", "decay_rates", "input_fields"])


@given(st.lists(st.integers(0, 3), max_size=4).map(tuple), NAMES)
@FEW
def test_shapes_are_right_or_refused(shape, name):
    given_ = {name: torch.zeros(shape, dtype=torch.float64)}
    if name != "input_fields" and shape[-1:] == (1,):
        assert run(**given_).shape == (*shape[:-1], 1, 3, 21)
        return
    with pytest.raises(PropagationError, match=rf"^Argument `{name}` must [^\n]*\.$"):
        run(**given_)


BASE = torch.as_tensor(np.random.default_rng(0).normal(size=(2, 2, 21)) * 0.1, dtype=torch.complex128)
LAYOUTS = {
    "strided": lambda x: torch.stack([x, x], -1).flatten(-2)[..., ::2],
    "transposed": lambda x: x.mT.contiguous().mT,
    "conjugated": lambda x: x.conj().resolve_conj().conj(),
    "negated": lambda x: torch._neg_view(-x),
    "offset": lambda x: torch.cat([x, x])[len(x) :],
    "read-only": lambda x: torch.from_numpy(np.array(x)),
    "imaginary part": lambda x: torch.complex(x.real, torch.zeros_like(x.real)) + 1j * x.imag,
}


@given(st.sampled_from(sorted(LAYOUTS)), st.sampled_from(["complex128", "complex64"]))
@QUICK
def test_the_layout_of_a_tensor_does_not_matter(name, dtype):
    plain = BASE[:, :1].to(getattr(torch, dtype))
    given_ = LAYOUTS[name](plain)
    assert torch.equal(given_.resolve_conj().resolve_neg(), plain)
    torch.testing.assert_close(run(input_fields=given_), run(input_fields=plain), rtol=0, atol=0)


def test_a_batch_of_one_member_many_times():
    one = BASE[:1, :1]
    torch.testing.assert_close(run(input_fields=one.expand(3, 1, 21)), run(input_fields=one).expand(3, 1, 3, 21))


@pytest.mark.parametrize("gradient", [False, True])
def test_an_empty_batch_is_empty(gradient):
    light = torch.zeros(0, 1, 21, dtype=torch.complex128, requires_grad=gradient)
    fields = run(input_fields=light)
    assert fields.shape == (0, 1, 3, 21)
    if gradient:
        fields.abs().sum().backward()
        assert light.grad.shape == light.shape
    layer = TorchPropagator(SMALL, dtype=torch.float64, tol=1.0)
    assert layer(light).shape == (0, 1, 3, 21)
    assert layer.solve(light, outputs=("populations",)).populations.shape == (0, 3, 21, 2)
