"""Measured traces and spectra: the files, the media that explain them, and `torch-clerq fit`."""

import json

import numpy as np
import pytest
import torch

from tests.conftest import ROOT, lambda_system, two_level
from torch_clerq import Problem, ProblemError, TorchPropagator, cli, infer
from torch_clerq.measured import SPECTRA, TRACES, Measured, Medium, read_csv, with_sigma

TRUTH = {"interaction_strengths": [1.3], "decay_rates": [0.8]}


@pytest.fixture(scope="module")
def probe():
    return two_level(t_steps=120, z_steps=2).updated(interaction_strengths=[1.0])


@pytest.fixture(scope="module")
def light(probe):
    """The layer and the light that the truth transmits, shape (z, time)."""
    layer = TorchPropagator(probe, dtype=torch.float64, tol=1e-6)
    with torch.no_grad():
        return layer, layer(**TRUTH)[0]


def test_the_truth_is_found_from_noisy_power(tmp_path, capsys):
    """The example, whose trace was made with a strength of 1.62, a decay rate of 1.25 and noise of 0.002."""
    truth = {"interaction_strengths": 1.62, "decay_rates": 1.25}
    files = [str(ROOT / "examples" / name) for name in ("cell.json", "cell.csv")]
    args = ["--free", *truth, "--sigma", "2e-3", "--output", str(tmp_path)]
    assert cli.main(["fit", files[0], "--data", files[1], *args]) == 0
    assert capsys.readouterr().out.startswith("χ² ")
    result = json.loads((tmp_path / "result.json").read_text())
    for name, value in truth.items():
        assert abs(result["parameters"][name] - value) < 3 * result["standard_errors"][name]
        low, high = result["intervals"][name]
        assert low < result["parameters"][name] < high
    assert 0.5 < result["chi_square"] / result["degrees_of_freedom"] < 1.6
    fitted = Problem.from_json(tmp_path / "fitted.json")
    assert fitted.interaction_strengths == (result["parameters"]["interaction_strengths"],)
    assert fitted.decays[0].rate == result["parameters"]["decay_rates"]
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_the_factor_of_a_detector_may_be_inferred(tmp_path, capsys):
    lines = (ROOT / "examples" / "cell.csv").read_text().splitlines()
    scaled = [lines[0], *(f"{t},{3 * float(x)}" for t, x in (line.split(",") for line in lines[1:]))]
    (tmp_path / "scaled.csv").write_text("\n".join(scaled))
    data = ["--data", str(tmp_path / "scaled.csv"), "--free", "decay_rates", "--scale", "--json"]
    assert cli.main(["fit", str(ROOT / "examples" / "cell.json"), *data, "--output", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["parameters"]) == ["decay_rates", "scale[probe power]"]
    assert not found["sigma_known"]


@pytest.mark.parametrize("quantity", TRACES)
def test_models_of_traces_are_the_light(quantity, probe, light):
    layer, fields = light
    expected = {
        "power": (fields[-1].abs() / fields[0].abs().max()) ** 2,
        "amplitude": fields[-1].abs(),
        "real": fields[-1].real,
        "imag": fields[-1].imag,
    }[quantity]
    data = [Measured("x", 0, quantity, layer.time, expected)]
    medium = Medium(probe.updated(**TRUTH), ["decay_rates"], data, tol=1e-6)
    torch.testing.assert_close(medium.models()[0], expected, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("counter", [False, True])
@pytest.mark.parametrize("quantity", SPECTRA)
def test_models_of_spectra_are_the_closed_form_between_the_bins(quantity, counter):
    """Ω(L, ν) = Ω(0, ν) exp(−gL/(γ/2 + i(Δ + ν))), with a phase of more than a turn."""
    content = two_level(t_steps=200, t_max=17.0, g=6.0, rate=1.5, detuning=0.4, z_steps=1, rabi_freq=1e-5,
                        args={"ampl": 1.0, "centre": 0.0, "fwhm": 0.6}).to_dict()  # fmt: skip
    content["system"]["fields"][0] |= {"counter_propagating": counter, "factor_doppler_shift": 1.0 - 2 * counter}
    at = torch.linspace(-0.93, 0.71, 23, dtype=torch.float64)
    exponent = 6.0 / (0.75 + 1j * (0.4 + at))
    expected = torch.exp(-2 * exponent.real) if quantity == "transmission" else exponent.imag
    data = [Measured("x", 0, quantity, at, expected)]
    medium = Medium(Problem.from_dict(content), ["detunings"], data, tol=1e-7)
    torch.testing.assert_close(medium.models()[0], expected, rtol=1e-3, atol=1e-4)


def test_a_phase_that_turns_too_fast_is_refused():
    problem = two_level(t_steps=200, g=2e3, detuning=-9.0, args={"ampl": 1.0, "centre": 0.0, "fwhm": 0.6}, rate=0.1)
    at = torch.tensor([0.0], dtype=torch.float64)
    with pytest.raises(ProblemError, match=r"phases that turn by less than 2\.51"):
        Medium(problem, ["detunings"], [Measured("x", 0, "phase", at, at)])


def test_a_normalised_power_of_weak_light_says_nothing_of_its_strength(probe, light):
    time = light[0].time
    data = [Measured("power", 0, "power", time, time)]
    medium = Medium(probe.updated(rabi_freq=[1e-4]), ["rabi_freq", "decay_rates"], data)
    medium.models()[0].square().sum().backward()
    assert abs(1e-4 * medium.rabi_freq.grad) < 1e-5 * abs(medium.raw_decay_rates.grad)


def test_between_the_edges_of_pulses_lines_join_the_times():
    problem = two_level(envelope="square", args={"ampl": 1.0, "on": 0.0, "off": 2.0}, g=0.0, t_steps=100, rabi_freq=1.0)
    at = torch.tensor([-0.075, -0.02, 0.05, 1.0], dtype=torch.float64)
    medium = Medium(problem, ["decay_rates"], [Measured("x", 0, "real", at, at)], tol=1e-3)
    values = medium.models()[0].detach()
    assert values.amax() <= 1.0 + 1e-12
    assert values.amin() >= -1e-12
    assert values[-1] == pytest.approx(1.0)


def test_some_numbers_of_several():
    problem = lambda_system(g=(2.0, 2.0))
    layer = TorchPropagator(problem, dtype=torch.float64, tol=1e-5)
    truth = {"interaction_strengths": torch.tensor([1.5, 2.0]), "detunings": torch.tensor([0.1, 0.0])}
    args = [{"centre": torch.tensor(0.2)}, {}]
    with torch.no_grad():
        pulse = layer(**truth, pulse_args=args)[0, -1]
    parts = {"real": pulse.real, "imag": pulse.imag}
    columns = [Measured(f"probe.{name}", 0, name, layer.time[::2], part[::2]) for name, part in parts.items()]
    names = ["interaction_strengths[probe]", "detunings[0]", "pulse_args.probe.centre"]
    medium = Medium(problem, names, columns, tol=1e-5)
    found = infer(medium, Medium.residuals, sigma=1e-6, verify=False)
    values = list(found.parameters.values())
    assert medium.names == [*names[:2], "pulse_args_0_centre"]
    assert list(found.parameters) == medium.names
    np.testing.assert_allclose(values, [1.5, 0.1, 0.2], rtol=2e-3)
    fitted = medium.to_problem()
    assert fitted.interaction_strengths == pytest.approx((values[0], 2.0))
    assert dict(fitted.fields[0].envelope.args)["centre"] == pytest.approx(0.2, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line of names and lines of numbers, but has 0 lines"),
        ("time,power\n", "has 1 line"),
        ("t,power\n0,1\n", "`time` or `frequency` first"),
        ("time,power,power\n0,1,1\n", "'power' twice"),
        ("time,energy\n0,1\n", "has 'energy'"),
        ("time,transmission\n0,1\n", "a quantity among power, amplitude, real, imag over time"),
        ("frequency,power\n0,1\n", "a quantity among transmission, phase over frequency"),
        ("time,probe.power\n0,1\n", "`field` must be a label"),
        ("time,power\n0,x\n", "has 'x' in row 1 of column 'power'"),
        ("time,power\n0,nan\n", "has 'nan' in row 1"),
        ("time,power\n0,1,2\n", r"2 cells in each line, .* but has 3 in its row 1"),
        ("time,power\n,1\n", "a row without"),
        ("time,power\n99,1\n", r"times within the problem's window \(-3 to 7\), but has 99 to 99"),
        ("time,power,power.sigma\n0,1,0\n", "positive standard deviation"),
        ("time,power,real.sigma\n0,1,1\n", "column 'real' beside 'real.sigma'"),
        ("time,power\n0,\n", "none in 'power'"),
    ],
)
def test_faults_of_files_are_named(text, says, probe, tmp_path):
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(ProblemError, match=says):
        read_csv(tmp_path / "data.csv", probe)


def test_a_file_that_is_not_there_or_no_text(probe, tmp_path):
    with pytest.raises(ProblemError, match="readable CSV"):
        read_csv(tmp_path / "none.csv", probe)
    (tmp_path / "data.csv").write_bytes(b"\xff\xfe\x00time")
    with pytest.raises(ProblemError, match="readable CSV"):
        read_csv(tmp_path / "data.csv", probe)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("decay_rate", r"did you mean `decay_rates`"),
        ("decay_rates[1]", "positions from 0 to 0"),
        ("decay_rates[0][0]", "positions from 0 to 0"),
        ("thermal_width", "have names among"),
        ("detunings[pump]", "`field` must be a label"),
        ("pulse_args.0", "one argument of one pulse"),
        ("pulse_args.0.area", "name one of ampl, centre, fwhm"),
        ("decay_scale[0]", "without a position"),
    ],
)
def test_faults_of_names(name, says, probe, light):
    with pytest.raises(ProblemError, match=says):
        Medium(probe, [name], [Measured("power", 0, "power", light[0].time, light[0].time)])


def test_spectra_where_there_is_no_light_are_refused(probe):
    far = torch.tensor([0.0, 5.0], dtype=torch.float64)
    with pytest.raises(ProblemError, match=r"where light enters: above 0\.01 of the peak of its spectrum, but x has 5"):
        Medium(probe, ["decay_rates"], [Measured("x", 0, "transmission", far, far)])


def test_a_number_is_named_once(probe, light):
    data = [Measured("power", 0, "power", light[0].time, light[0].time)]
    with pytest.raises(ProblemError, match=r"`free` must name each number once, but names detunings\[0\] twice"):
        Medium(probe, ["detunings", "detunings[0]"], data)


def test_factors_of_columns_with_one_name_and_labels_with_dots(light):
    content = two_level(t_steps=120, z_steps=2).to_dict()
    content["system"]["fields"][0]["label"] = "D1.probe"
    time = light[0].time
    data = [Measured("D1.probe.power", 0, "power", time, time)] * 2 + [Measured("D1.probe.real", 0, "real", time, time)]
    medium = Medium(Problem.from_dict(content), ["detunings[D1.probe]"], data, scale=True)
    assert [name for name, _ in medium.named_parameters()] == [
        "detunings[D1 probe]", "raw_scale[D1 probe power]", "raw_scale[D1 probe power 2]", "scale[D1 probe real]",
    ]  # fmt: skip


def test_sigma_of_columns(light):
    time = light[0].time
    known, unknown = Measured("a", 0, "power", time, time, time + 9), Measured("b", 0, "power", time, time)
    assert with_sigma([unknown], None) == [unknown]
    assert with_sigma([known], 0.1) == [known]
    assert with_sigma([unknown], 0.1)[0].sigma.tolist() == [0.1] * len(time)
    with pytest.raises(ProblemError, match="be given for b, where other columns have one"):
        with_sigma([known, unknown], None)
    with pytest.raises(ProblemError, match="`sigma` must be positive"):
        with_sigma([known], 0.0)


@pytest.mark.filterwarnings("always::jax_kernel.errors.InferenceWarning")
def test_a_background_and_a_factor_are_found_and_a_model_without_them_is_doubted(tmp_path, capsys):
    lines = (ROOT / "examples" / "cell.csv").read_text().splitlines()
    volts = ["time;power", *(f"{t};{3 * float(x) + 0.25}" for t, x in (line.split(",") for line in lines[1:]))]
    (tmp_path / "volts.csv").write_text("\n".join(volts))  # as a European spreadsheet writes it
    data = [str(ROOT / "examples" / "cell.json"), "--data", str(tmp_path / "volts.csv"), "--sigma", "6e-3", "--json"]
    args = ["fit", *data, "--free", "interaction_strengths", "decay_rates", "--output", str(tmp_path)]
    assert cli.main([*args, "--scale", "--offset"]) == 0
    found = json.loads(capsys.readouterr().out)["parameters"]
    assert found["offset[power]"] == pytest.approx(0.25, abs=0.01)
    assert found["scale[power]"] == pytest.approx(3.0, rel=0.5)
    assert cli.main(args) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["probability"] < 1e-6
    assert any(text.startswith("The model does not describe the data (χ² ") for text in found["warnings"])
