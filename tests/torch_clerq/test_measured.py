"""Measured traces and spectra: the files, the media that explain them, and `torch-clerq fit`."""

import json

import numpy as np
import pytest
import torch

from tests.conftest import ROOT, lambda_system, two_level
from torch_clerq import Problem, ProblemError, TorchPropagator, cli, infer, spectra
from torch_clerq.measured import SPECTRA, TRACES, Measured, Medium, read_csv

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


@pytest.mark.parametrize("quantity", [*TRACES, *SPECTRA])
def test_models_are_what_is_measured(quantity, probe, light):
    layer, fields = light
    frequency = spectra.freq_list(layer.time)
    at = layer.time if quantity in TRACES else frequency[spectra.in_band(fields, floor=0.02)]
    inside = spectra.in_band(fields, floor=0.02)
    expected = {
        "power": (fields[-1].abs() / fields[0].abs().max()) ** 2,
        "amplitude": fields[-1].abs(),
        "real": fields[-1].real,
        "imag": fields[-1].imag,
        "transmission": torch.exp(-2 * spectra.absorption(fields))[inside],
        "phase": spectra.dispersion(fields)[inside],
    }[quantity]
    medium = Medium(probe.updated(**TRUTH), ["decay_rates"], [Measured("x", 0, quantity, at, expected)], tol=1e-6)
    torch.testing.assert_close(medium.models()[0], expected, rtol=1e-4, atol=1e-9)


def test_some_numbers_of_several_and_scales(light):
    problem = lambda_system(g=(2.0, 2.0))
    layer = TorchPropagator(problem, dtype=torch.float64, tol=1e-5)
    truth = {"interaction_strengths": torch.tensor([1.5, 2.0]), "detunings": torch.tensor([0.1, 0.0])}
    args = [{"centre": torch.tensor(0.2)}, {}]
    with torch.no_grad():
        pulse = layer(**truth, pulse_args=args)[0, -1]
    columns = [Measured("probe.amplitude", 0, "amplitude", layer.time[::2], 3 * pulse.abs()[::2])]
    names = ["interaction_strengths[probe]", "detunings[0]", "pulse_args[probe][centre]"]
    medium = Medium(problem, names, columns, scale=True, tol=1e-5)
    found = infer(medium, Medium.residuals, sigma=1e-6, verify=False)
    values = list(found.parameters.values())
    assert list(found.parameters)[:3] == names == medium.names
    np.testing.assert_allclose([values[0], abs(values[1]), values[2], values[3]], [1.5, 0.1, 0.2, 3.0], rtol=2e-3)
    fitted = medium.problem()
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
        ("time,power\n0,1,2\n", "2 cells in each line, but has 3 in its row 1"),
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
        ("pulse_args[0]", "one argument of one pulse"),
        ("pulse_args[0][area]", "name one of ampl, centre, fwhm"),
        ("decay_scale[0]", "without a position"),
    ],
)
def test_faults_of_names(name, says, probe, light):
    with pytest.raises(ProblemError, match=says):
        Medium(probe, [name], [Measured("power", 0, "power", light[0].time, light[0].time)])


def test_spectra_where_there_is_no_light_are_refused(probe):
    far = torch.tensor([0.0, 5.0], dtype=torch.float64)
    with pytest.raises(ProblemError, match=r"frequencies where light enters, which for x is from -\S+ to \S+, but"):
        Medium(probe, ["decay_rates"], [Measured("x", 0, "transmission", far, far)])


def test_sigma_of_columns(probe, light):
    time = light[0].time
    known, unknown = Measured("a", 0, "power", time, time, time + 9), Measured("b", 0, "power", time, time)
    assert Medium(probe, ["decay_rates"], [unknown]).sigma(None) is None
    assert Medium(probe, ["decay_rates"], [unknown]).sigma(0.1) == [0.1]
    assert Medium(probe, ["decay_rates"], [known]).sigma(0.1)[0] is known.sigma
    with pytest.raises(ProblemError, match="be given for b, where other columns have one"):
        Medium(probe, ["decay_rates"], [known, unknown]).sigma(None)
    with pytest.raises(ProblemError, match="`sigma` must be positive"):
        Medium(probe, ["decay_rates"], [known]).sigma(0.0)
