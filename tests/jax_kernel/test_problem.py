"""Problems: what is read, what is refused and in which words, and that clerq understands what is written."""

import copy
import dataclasses
import json
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from jax_kernel.doppler import quadrature_weights
from jax_kernel.errors import ProblemError
from jax_kernel.problem import Decay, Envelope, Field, MagneticField, Problem, VelocityClasses

SHARED = Path(__file__).parents[2].parent / "shared" / "problems"
FILES = sorted(SHARED.rglob("*.json"))
REFUSED = {
    "tests_json__field-square-0": r"must define a problem, but defines a field \(it has the key `coupled_levels`\)",
    "tests_json__field-square-1": r"must define a problem, but defines a field \(it has the key `coupled_levels`\)",
    "tests_json__ob_atom_02": r"must define a problem, but defines a system \(it has the key `num_states`\)",
}
REMOVE = object()


def lambda_content():
    """A problem that uses every part of the format."""
    return {
        "system": {
            "label": "lambda",
            "num_states": 3,
            "energies": [0, 0.5, 0.1],
            "initial_state": [0.75, 0, 0.25],
            "decays": [{"rate": 1, "channels": [[0, 1], [2, 1]], "factors": [0.6, 0.8]}],
            "fields": [
                {
                    "label": "probe",
                    "coupled_levels": [[0, 1]],
                    "factors": [0.7],
                    "detuning": 0.1,
                    "rabi_freq": 1e-3,
                    "rabi_freq_t_func": "gaussian",
                    "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 1.0},
                },
                {
                    "label": "coupling",
                    "coupled_levels": [[2, 1]],
                    "detuning_positive": False,
                    "rabi_freq": 5,
                    "rabi_freq_t_func": "ramp_onoff",
                    "rabi_freq_t_args": {"ampl": 1.0, "fwhm": 0.2, "on": -1.0, "off": 9.0},
                },
            ],
            "b_field": {"magnitude": 0.3, "units": "gauss", "g_F": [0.5, 1, -0.5], "m_F": [1, 0, 1]},
        },
        "t_min": -2,
        "t_max": 8,
        "t_steps": 40,
        "z_min": -0.2,
        "z_max": 1.2,
        "z_steps": 6,
        "z_steps_inner": 3,
        "num_density_z_func": "gaussian",
        "num_density_z_args": {"ampl": 2.0, "centre": 0.5, "fwhm": 0.4},
        "interaction_strengths": [3.0, 2.0],
        "velocity_classes": {
            "thermal_width": 0.4,
            "thermal_delta_min": -1.0,
            "thermal_delta_max": 1.0,
            "thermal_delta_steps": 4,
        },
    }


def smallest():
    return {
        "system": {"num_states": 2, "fields": [{"coupled_levels": [[0, 1]]}]},
        "interaction_strengths": [1.0],
    }


def changed(content, path, value):
    """A copy of `content` with the value at the dotted `path` replaced or removed; numbers index lists."""
    content = copy.deepcopy(content)
    *parents, last = [int(word) if word.isdigit() else word for word in path.split(".")]
    target = content
    for word in parents:
        target = target[word]
    if value is REMOVE:
        del target[last]
    else:
        target[last] = value
    return content


def clerq_solver(content):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clerq = pytest.importorskip("clerq")
        return clerq.PropagationSolver(**copy.deepcopy(content))


def test_defaults_are_those_of_clerq():
    problem = Problem.from_dict(smallest())
    square = Envelope("square", (("ampl", 1.0), ("off", 1.0), ("on", 0.0)))
    assert problem == Problem(
        num_states=2,
        energies=(0.0, 0.0),
        initial_state=(1.0, 0.0),
        decays=(),
        fields=(Field("", ((0, 1),), (1.0,), 0.0, True, False, 1.0, 1.0, square),),
        b_field=None,
        t_min=0.0,
        t_max=1.0,
        t_steps=100,
        z_min=0.0,
        z_max=1.0,
        z_steps=10,
        z_steps_inner=2,
        number_density=square,
        interaction_strengths=(1.0,),
    )
    assert problem.time.shape == (101,)
    assert problem.z.shape == (11,)
    assert problem.doppler_shifts.tolist() == [0.0]
    assert problem.doppler_weights.tolist() == [1.0]
    assert problem.thermal_width == 1.0


def test_every_part_is_read():
    problem = Problem.from_dict(lambda_content())
    assert problem.label == "lambda"
    assert problem.energies == (0.0, 0.5, 0.1)
    assert problem.initial_state == (0.75, 0.0, 0.25)
    assert problem.decays == (Decay(1.0, ((0, 1), (2, 1)), (0.6, 0.8)),)
    assert problem.b_field == MagneticField(0.3, "gauss", (0.5, 1.0, -0.5), (1.0, 0.0, 1.0))
    assert problem.fields[0].envelope == Envelope("gaussian", (("ampl", 1.0), ("centre", 0.0), ("fwhm", 1.0)))
    assert problem.fields[1].factors == (1.0,)
    assert problem.fields[1].detuning_positive is False
    assert problem.velocity_classes == VelocityClasses(0.4, -1.0, 1.0, 4)
    assert problem.number_density.name == "gaussian"
    assert problem.doppler_weights.sum() == pytest.approx(1.0, abs=1e-15)
    assert quadrature_weights(problem.doppler_shifts).tolist() == pytest.approx([0.5] * 5)
    for value in (problem.fields[1].rabi_freq, problem.decays[0].rate, *problem.energies, problem.t_min):
        assert type(value) is float


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("t_stepps", 3, r'`problem` must have known keys only, but has "t_stepps" \(did you mean "t_steps"\?\)\.$'),
        ("colour", 3, r'`problem` .* but has "colour"; known are system, t_min'),
        ("system.level", 3, r'`system` must have known keys only, but has "level"'),
        ("system.fields.1.detunning", 0, r'`system\.fields\[1\]` .* \(did you mean "detuning"\?\)'),
        (
            "system.decays.0.gamma",
            1,
            r'`system\.decays\[0\]` .* "gamma"; known are rate, channels, factors, operator\.$',
        ),
        ("system.b_field.B", 1, r"`system\.b_field` .* known are magnitude, units, g_F, m_F"),
        ("velocity_classes.thermal_widht", 1, r'`velocity_classes` .* \(did you mean "thermal_width"\?\)'),
        ("num_density_z_args.width", 1, r'`num_density_z_args` .* "width"; known are centre, fwhm, ampl, n_pi'),
        ("system.fields.0.rabi_freq_t_args.center", 1, r"rabi_freq_t_args` .* mean \"centre\""),
        ("atom", {"num_states": 2}, r"`atom` must be absent where `system` is given"),
        ("real_drive", True, r"`real_drive` must be false, but is true"),
        ("system", [1], r"`system` must be an object \(a dict\), but is \[1\]"),
        ("system.fields", 5, r"`system\.fields` must be a list, but is 5"),
        ("system.fields", [], r"`system\.fields` must have at least one field, but is empty"),
        ("system.fields.0", 5, r"`system\.fields\[0\]` must be an object"),
        ("system.num_states", 0, r"`system\.num_states` must be an integer of at least 1, but is 0"),
        ("system.num_states", 3.0, r"`system\.num_states` must be an integer of at least 1, but is 3\.0"),
        ("system.num_states", True, r"`system\.num_states` must be an integer of at least 1, but is true"),
        ("system.label", 5, r"`system\.label` must be a string, but is 5"),
        ("system.energies", [0.0], r"`system\.energies` must have one number per level \(3\), but has 1"),
        ("system.energies", [0, "1", 0], r'`system\.energies\[1\]` must be a real number, but is "1"'),
        ("system.energies", [0, float("nan"), 0], r"`system\.energies\[1\]` must be finite, but is nan"),
        ("system.initial_state", [1.0], r"`system\.initial_state` must have one number per level \(3\), but has 1"),
        ("system.initial_state", [1.5, -0.5, 0], r"`system\.initial_state\[0\]` must be a population .* is 1\.5"),
        ("system.initial_state", [0.5, 0.25, 0], r"`system\.initial_state` must sum to 1, but sums to 0\.75\.$"),
        ("system.decays.0.rate", -1, r"`system\.decays\[0\]\.rate` must be at least 0, but is -1"),
        ("system.decays.0.rate", REMOVE, r"`system\.decays\[0\]\.rate` must be given, but is missing"),
        ("system.decays.0.rate", False, r"`system\.decays\[0\]\.rate` must be a real number, but is false"),
        ("system.decays.0.channels", REMOVE, r"channels` must have at least one pair \[to, from\], but is empty"),
        ("system.decays.0.channels.1", [3, 1], r"channels\[1\]` must have levels from 0 to 2, but is \[3, 1\]"),
        ("system.decays.0.factors", [1.0], r"decays\[0\]\.factors` must have one factor per pair \(2\), but has 1"),
        ("system.decays.0.factors", [], r"decays\[0\]\.factors` must have one factor per pair \(2\), but has 0"),
        ("system.b_field.units", "tesla", r'units` must be "natural" or "gauss", but is "tesla"'),
        ("system.b_field.g_F", REMOVE, r"g_F` must have one number per level \(3\), but is missing"),
        ("system.b_field.m_F", [1, 0], r"m_F` must have one number per level \(3\), but has 2"),
        ("system.b_field.magnitude", "1 G", r'magnitude` must be a real number, but is "1 G"'),
        ("system.fields.1.label", "probe", r'`system\.fields` must have distinct labels, but has "probe" 2 times'),
        ("system.fields.0.coupled_levels", [], r"must have at least one pair \[lower, upper\], but is empty"),
        ("system.fields.0.coupled_levels", [[0, 3]], r"coupled_levels\[0\]` must have levels from 0 to 2, but is"),
        ("system.fields.0.coupled_levels", [[-1, 1]], r"coupled_levels\[0\]` must have levels from 0 to 2, but is"),
        ("system.fields.0.coupled_levels", [[1, 1]], r"coupled_levels\[0\]` must couple two different levels"),
        ("system.fields.0.coupled_levels", [[0, 1, 2]], r"must be a pair of levels \[lower, upper\], but is \[0, 1"),
        ("system.fields.0.coupled_levels", [[0, 1.0]], r"must be a pair of levels \[lower, upper\], but is \[0, 1"),
        ("system.fields.0.coupled_levels", [0, 1], r"coupled_levels\[0\]` must be a pair of levels"),
        ("system.fields.1.factors", [1, 2, 3], r"fields\[1\]\.factors` must have one factor per pair \(1\), but has 3"),
        ("system.fields.1.detuning", 1j, r"fields\[1\]\.detuning` must be a real number, but is 1j"),
        ("system.fields.1.detuning", 10**400, r"fields\[1\]\.detuning` must be finite"),
        ("system.fields.1.detuning_positive", 0, r"detuning_positive` must be true or false, but is 0"),
        ("system.fields.1.rabi_freq", complex("inf"), r"rabi_freq` must be finite"),
        ("system.fields.1.rabi_freq", [1, 0], r"rabi_freq` must be a number, but is \[1, 0\]"),
        ("system.fields.0.rabi_freq_t_func", "gauss", r'be one of square, .* "gauss" \(did you mean "gaussian"\?\)'),
        ("system.fields.0.rabi_freq_t_func", 3, r"rabi_freq_t_func` must be a string, but is 3"),
        ("system.fields.0.rabi_freq_t_args.n_pi", 1, r"must have one of `ampl` and `n_pi`, but has both for gaussian"),
        ("system.fields.0.rabi_freq_t_args.ampl", REMOVE, r"must have one of `ampl` and `n_pi`, but has neither"),
        ("system.fields.0.rabi_freq_t_args.fwhm", 0, r"rabi_freq_t_args\.fwhm` must be positive, but is 0"),
        ("system.fields.0.rabi_freq_t_args.fwhm", True, r"rabi_freq_t_args\.fwhm` must be a real number"),
        ("system.fields.0.rabi_freq_t_args.centre", REMOVE, r"`centre`, `fwhm`, `ampl`, but lacks `centre` for gaus"),
        ("system.fields.0.rabi_freq_t_args", REMOVE, r"must have one of `ampl` and `n_pi`, but has neither"),
        ("system.fields.1.rabi_freq_t_args.off", REMOVE, r"but lacks `off` for ramp_onoff"),
        ("interaction_strengths", [1.0], r"must have one strength per field \(2\), but has 1\.$"),
        ("interaction_strengths", 2.0, r"`interaction_strengths` must be a list, but is 2\.0"),
        ("t_max", -2, r"`t_max` must be above t_min \(-2\.0\), but is -2\.0"),
        ("z_max", -3, r"`z_max` must be above z_min \(-0\.2\), but is -3\.0"),
        ("t_steps", 2, r"`t_steps` must be .* at least 3 \(the sampled drive needs four time points\), but is 2"),
        ("z_steps", 0, r"`z_steps` must be an integer of at least 1, but is 0"),
        ("z_steps_inner", 0, r'`z_steps_inner` must be an integer of at least 1 or "auto", but is 0'),
        ("z_steps_inner", "Auto", r'`z_steps_inner` must be an integer of at least 1 or "auto", but is "Auto"'),
        ("num_density_z_args.ampl", -1, r"`num_density_z_args\.ampl` must be at least 0, as a number density is, but"),
        ("velocity_classes", 3, r"`velocity_classes` must be an object"),
        ("velocity_classes.thermal_width", 0, r"thermal_width` must be positive, but is 0"),
        ("velocity_classes.thermal_delta_steps", -2, r"thermal_delta_steps` must be an integer of at least 0"),
        ("velocity_classes.thermal_delta_spacing", 0.1, r"_steps` must be absent where `thermal_delta_spacing` is"),
        ("velocity_classes.thermal_delta_spacing", "Auto", r'must be a positive number or "auto", but is "Auto"'),
        ("velocity_classes.thermal_delta_spacing", -0.1, r"thermal_delta_spacing` must be positive, but is -0\.1"),
        ("velocity_classes.thermal_delta_echo_tolerance", 0.1, r'absent unless `thermal_delta_spacing` is "auto"'),
    ],
)
def test_refused(path, value, message):
    content = changed(lambda_content(), path, value)
    with pytest.raises(ProblemError, match=message) as caught:
        Problem.from_dict(content)
    assert re.fullmatch(r"Argument `[^`]+` must [^\n]+ but [^\n]+\.", str(caught.value))


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("square", {"ampl": 2}, r"must have `ampl`, `on`, `off`, but lacks `on` for square"),
        ("square", {"ampl": 2, "on": 1, "off": 0}, r"\.on` must be at most `off` \(0\.0\), but is 1\.0"),
        (None, {"fwhm": 2}, r'must have known keys only, but has "fwhm"; known are ampl, on, off'),
        ("sech", {"ampl": 2, "centre": 0}, r"must have one of `width` and `fwhm`, but has neither for sech"),
        ("sech", {"ampl": 2, "centre": 0, "width": 1, "fwhm": 1}, r"`width` and `fwhm`, but has both for sech"),
        ("sinc", {"ampl": 2, "width": -1}, r"\.width` must be positive"),
        ("intp", {"tlist": [0, 1]}, r"must have `tlist`, `ylist`, but lacks `ylist` for intp"),
        ("intp", {"tlist": [0, 0], "ylist": [0, 0]}, r"tlist` must have at least two times, each above the last"),
        ("intp", {"tlist": [0], "ylist": [0]}, r"tlist` must have at least two times"),
        ("intp", {"tlist": [0, 1], "ylist": [0, 1, 2]}, r"ylist` must have one value per time \(2\), but has 3"),
        ("intp", {"tlist": [0, 1], "ylist": [0, None]}, r"ylist\[1\]` must be a number, but is null"),
    ],
)
def test_envelope_refused(name, args, message):
    content = smallest()
    content["system"]["fields"][0] |= {"rabi_freq_t_func": name, "rabi_freq_t_args": args}
    with pytest.raises(ProblemError, match=message):
        Problem.from_dict(content)
    with pytest.raises(ProblemError, match=message):
        Problem.from_dict(smallest() | {"num_density_z_func": name, "num_density_z_args": args})


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("sech", {"n_pi": -1, "centre": 0, "width": 1}, r"n_pi` must be at least 0"),
        ("intp", {"tlist": [0, 1], "ylist": [0, -1]}, r"ylist\[1\]` must be real and at least 0"),
        ("intp", {"tlist": [0, 1], "ylist": [1j, 0]}, r"ylist\[0\]` must be real and at least 0"),
        ("ramp_onoff", {"ampl": 1, "fwhm": 1, "on": 1, "off": 0}, r"on` must be at most `off` \(0\.0\), but is 1\.0"),
        ("sinc", {"ampl": 1, "width": 3}, r"width` must keep sinc above 0 from z_min to z_max, but is 3\.0"),
    ],
)
def test_negative_density_refused(name, args, message):
    with pytest.raises(ProblemError, match=message):
        Problem.from_dict(smallest() | {"num_density_z_func": name, "num_density_z_args": args})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"thermal_delta_spacing": 0.1}, r"thermal_delta_max` must be above `thermal_delta_min` \(0\.0\) where"),
        ({"thermal_delta_spacing": 0.1, "thermal_delta_inner_steps": 2}, r"inner_steps` must be absent where"),
        (
            {"thermal_delta_max": 1, "thermal_delta_spacing": "auto", "thermal_delta_echo_tolerance": 1},
            r"thermal_delta_echo_tolerance` must be between 0 and 1, but is 1\.0",
        ),
        (
            {"thermal_delta_max": 1, "thermal_delta_spacing": 0.2, "thermal_delta_echo_tolerance": 0.1},
            r'must be absent unless `thermal_delta_spacing` is "auto", but is 0\.1',
        ),
    ],
)
def test_velocity_classes_refused(keys, message):
    with pytest.raises(ProblemError, match=message):
        Problem.from_dict(smallest() | {"velocity_classes": keys})


def test_counter_propagating():
    def read(**keys):
        return Problem.from_dict(changed(smallest(), "system.fields.0", {"coupled_levels": [[0, 1]], **keys})).fields[0]

    assert read(counter_propagating=True).factor_doppler_shift == -1
    assert read(counter_propagating=True, factor_doppler_shift=-1).counter_propagating is True
    assert read(factor_doppler_shift=-0.3).factor_doppler_shift == -0.3
    assert read(counter_propagating=True, factor_doppler_shift=-780 / 480).factor_doppler_shift == -1.625
    for factor, cure in ((1, "write -1 for"), (1.625, r"write -1\.625 for this ratio"), (0, "leave it out for -1")):
        with pytest.raises(
            ProblemError, match=f"must be negative where `counter_propagating` is true, but is .*: {cure}"
        ):
            read(counter_propagating=True, factor_doppler_shift=factor)


def test_null_stands_for_the_default():
    nothing = dict.fromkeys(("detuning", "factors", "rabi_freq", "rabi_freq_t_func", "rabi_freq_t_args", "label"))
    content = smallest() | dict.fromkeys(("t_min", "t_steps", "z_steps_inner", "velocity_classes", "opts", "atom"))
    content["system"]["fields"][0] |= nothing
    content["system"] |= dict.fromkeys(("energies", "initial_state", "decays", "b_field", "label"))
    assert Problem.from_dict(content) == Problem.from_dict(smallest())


def test_keys_of_clerq_alone_are_ignored():
    content = smallest() | {"method": "mesolve", "opts": {"method": "bdf"}, "savefile": "x", "real_drive": False}
    content["system"]["fields"][0]["index"] = 7
    assert Problem.from_dict(content) == Problem.from_dict(smallest())


def test_old_name_of_the_system():
    content = smallest()
    content["atom"] = content.pop("system")
    assert Problem.from_dict(content) == Problem.from_dict(smallest())
    with pytest.raises(ProblemError, match=r"Argument `atom\.fields\[0\]\.factors` must"):
        Problem.from_dict(changed(content, "atom.fields.0.factors", [1, 2]))


def test_numpy_values_are_read_as_python_values():
    content = smallest() | {"t_steps": np.int64(5), "interaction_strengths": np.array([1.0], np.float32)}
    content["system"]["fields"][0] |= {"coupled_levels": np.array([[0, 1]]), "rabi_freq": np.complex64(2)}
    problem = Problem.from_dict(content)
    assert type(problem.t_steps) is int
    assert type(problem.interaction_strengths[0]) is float
    assert problem.fields[0].coupled_levels == ((0, 1),)
    assert problem.fields[0].rabi_freq == 2.0
    assert type(problem.fields[0].rabi_freq) is float
    assert json.dumps(problem.to_dict())


def test_equality_and_hash_are_by_content():
    first, second = (Problem.from_dict(lambda_content()) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert pickle.loads(pickle.dumps(first)) == first
    other = Problem.from_dict(changed(lambda_content(), "system.fields.0.rabi_freq_t_args.fwhm", 1.5))
    assert other != first
    assert len({first, second, other}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.t_min = 3.0


def test_input_is_not_changed_and_output_is_fresh():
    content = lambda_content()
    problem = Problem.from_dict(content)
    assert content == lambda_content()
    problem.to_dict()["system"]["fields"][0]["rabi_freq_t_args"]["ampl"] = 9
    assert problem == Problem.from_dict(lambda_content())


@pytest.mark.parametrize(
    "velocity_classes",
    [
        None,
        {},
        {"thermal_delta_min": -1, "thermal_delta_max": 1, "thermal_delta_spacing": 0.3},
        {"thermal_delta_max": 1, "thermal_delta_spacing": "auto", "thermal_delta_echo_tolerance": 0.01},
        {"thermal_delta_inner_min": -0.1, "thermal_delta_inner_max": 0.1, "thermal_delta_inner_steps": 4},
    ],
)
def test_dict_round_trip(velocity_classes):
    problem = Problem.from_dict(lambda_content() | {"velocity_classes": velocity_classes, "z_steps_inner": "auto"})
    assert Problem.from_dict(problem.to_dict()) == problem
    assert json.loads(json.dumps(problem.to_dict())) == problem.to_dict()
    assert clerq_solver(problem.to_dict()).thermal_delta_list.shape == problem.doppler_shifts.shape


def test_complex_values_stay_in_python(tmp_path):
    content = changed(smallest(), "system.fields.0.rabi_freq", 1 + 2j)
    problem = Problem.from_dict(content)
    assert Problem.from_dict(problem.to_dict()) == problem
    with pytest.raises(ProblemError, match=r"`system\.fields\[0\]\.rabi_freq` must be real in a file, but is complex"):
        problem.to_json(tmp_path / "problem.json")
    content["system"]["fields"][0] |= {
        "rabi_freq": 1.0,
        "rabi_freq_t_func": "intp",
        "rabi_freq_t_args": {"tlist": np.array([0.0, 1.0]), "ylist": [1, 1j]},
    }
    problem = Problem.from_dict(content)
    assert problem.fields[0].envelope == Envelope("intp", (("tlist", (0.0, 1.0)), ("ylist", (1.0, 1j))))
    assert Problem.from_dict(problem.to_dict()) == problem
    with pytest.raises(ProblemError, match=r"`system\.fields\[0\]\.rabi_freq_t_args\.ylist` must be real in a file"):
        problem.to_json(tmp_path / "problem.json")
    assert not list(tmp_path.iterdir())


def test_file_round_trip(tmp_path):
    problem = Problem.from_dict(lambda_content())
    path = tmp_path / "problem.json"
    path.write_text("old")
    problem.to_json(path)
    assert Problem.from_json(path) == problem
    assert Problem.from_json(str(path)) == problem
    assert [item.name for item in tmp_path.iterdir()] == ["problem.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"must be JSON, but is not"),
        ("[1]", r"must hold one JSON object, but holds \[1\]"),
        ("null", r"must hold one JSON object, but holds null"),
        ('{"t_max": NaN}', r"must have finite numbers only, but has NaN"),
        ('{"t_max": -Infinity}', r"must have finite numbers only, but has -Infinity"),
        ('{"atom": {}}', r"`atom\.fields` must have at least one field, but is empty.* \(in file .*odd\.json\)\.$"),
        ('{"rabi_freq": 1}', r"must define a problem, but defines a field \(it has the key `rabi_freq`\)"),
        ('{"num_states": 1}', r"must define a problem, but defines a system \(it has the key `num_states`\)"),
    ],
)
def test_file_refused(tmp_path, text, message):
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(ProblemError, match=message) as caught:
        Problem.from_json(path)
    assert "odd.json" in str(caught.value)


def test_unreadable_file_refused(tmp_path):
    with pytest.raises(ProblemError, match=r"File .*missing\.json must be readable, but: No such file"):
        Problem.from_json(tmp_path / "missing.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProblemError, match=r"File .*binary\.json must be JSON, but is not"):
        Problem.from_json(tmp_path / "binary.json")
    with pytest.raises(ProblemError, match="must be an object"):
        Problem.from_dict([1])


def test_field_index():
    problem = Problem.from_dict(lambda_content())
    assert problem.field_index("coupling") == 1
    assert problem.field_index(np.int64(1)) == 1
    for wrong in (2, -1, True, "", None, "prob"):
        with pytest.raises(
            ProblemError, match=r'`field` must be a label \("probe", "coupling"\) or an index from 0 to 1'
        ):
            problem.field_index(wrong)
    with pytest.raises(ProblemError, match=r'but is "prob" \(did you mean "probe"\?\)\.$'):
        problem.field_index("prob")
    with pytest.raises(ProblemError, match=r"a label \(none is labelled\) or an index from 0 to 0"):
        Problem.from_dict(smallest()).field_index("probe")


def test_repr_is_one_line():
    assert repr(Problem.from_dict(lambda_content())) == (
        "Problem('lambda': 3 levels; probe, coupling; 5 velocity classes; "
        "t -2 to 8 in 40 steps; z -0.2 to 1.2 in 6 steps)"
    )


def sampled_drive(solver):
    return [
        [complex(field.rabi_freq * field.rabi_freq_t_func(t, field.rabi_freq_t_args)) for t in solver.tlist[::5]]
        for field in solver.system.fields
    ]


def assert_same_meaning(content, problem):
    """clerq makes the same Hamiltonian, decays, drive, density and grids of `content` and of what is written."""
    ours, theirs = clerq_solver(problem.to_dict()), clerq_solver(content)
    np.testing.assert_allclose(sampled_drive(ours), sampled_drive(theirs), rtol=1e-14)
    density = [[s.num_density_z_func(z, s.num_density_z_args) for z in theirs.zlist] for s in (ours, theirs)]
    np.testing.assert_allclose(*density, rtol=1e-14)
    for name in ("H_0", "H_Delta", "initial_state"):
        first, second = getattr(ours.system, name), getattr(theirs.system, name)
        np.testing.assert_allclose(first.full(), second.full(), rtol=1e-14)
    for first, second in zip(ours.system.c_ops, theirs.system.c_ops, strict=True):
        np.testing.assert_allclose(first.full(), second.full(), rtol=1e-14)
    for first, second in zip(ours.system.fields, theirs.system.fields, strict=True):
        for name in ("coupled_levels", "factors", "factor_doppler_shift", "counter_propagating"):
            assert getattr(first, name) == getattr(second, name)
    np.testing.assert_array_equal(problem.time, theirs.tlist)
    np.testing.assert_array_equal(problem.z, theirs.zlist)
    strengths = theirs.interaction_strengths or [0.0] * len(problem.fields)  # none for a single driven system
    np.testing.assert_array_equal(problem.interaction_strengths, strengths)
    np.testing.assert_array_equal(ours.thermal_delta_list, theirs.thermal_delta_list)
    assert ours.z_steps_inner == theirs.z_steps_inner


def test_clerq_understands_what_is_written():
    assert_same_meaning(lambda_content(), Problem.from_dict(lambda_content()))
    assert_same_meaning(smallest(), Problem.from_dict(smallest()))


@pytest.mark.skipif(not FILES, reason="the shared problem files are absent")
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_shared_files(path):
    content = json.loads(path.read_text())
    if path.stem in REFUSED:
        with pytest.raises(ProblemError, match=REFUSED[path.stem]):
            Problem.from_json(path)
        return
    before = copy.deepcopy(content)
    problem = Problem.from_dict(content)
    assert content == before
    assert problem == Problem.from_json(path)
    assert problem == Problem.from_dict(problem.to_dict())
    assert_same_meaning(content, problem)
