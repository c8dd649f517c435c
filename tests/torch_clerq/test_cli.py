"""The command line, in its own process where signals and exit codes matter."""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time as clock
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from jax_kernel.files import write
from tests.conftest import CACHE, ROOT, two_level
from tests.torch_clerq.test_design import MEMORY, small_design
from torch_clerq import Problem, Resolution, ResolutionError, TorchPropagator, cli, propagate, spectra
from torch_clerq.cli.console import Console
from torch_clerq.cli.results import Results
from torch_clerq.objectives import retrieval_efficiency

DESIGNED = ["designed.json", "figure.png", "result.json", "zt.png"]
SOLVED = ["envelopes.png", "populations.png", "solution.npz", "spectra.png", "zt.png"]


def environment():
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": CACHE,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "PYTHONPATH": str(ROOT),
    }


def command(*args, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "torch_clerq", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        **options,
    )


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "thin.json"
    path.write_text(json.dumps({key: value for key, value in small_design().items() if key != "design"}))
    return path


@pytest.fixture
def design(tmp_path):
    path = tmp_path / "shape.json"
    path.write_text(json.dumps(small_design()))
    return path


def test_solve_in_a_process(problem, tmp_path):
    process = command("solve", problem, "--tol", "1e-2", cwd=tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    said = "torch-clerq: warning: The (light|time grid)|compiling|Compiled|Resolution|drawing"
    assert all(re.match(said, line) for line in err.splitlines()), err
    assert re.search(r"^Resolution\(z_nodes=12, .* of the peak  \(\d+\.\d s\)$", err, re.MULTILINE), err
    lines = out.splitlines()
    assert lines[0] == "Solution"
    assert [line.split()[0] for line in lines[1:5]] == ["fields", "states", "resolution", "error"]
    assert lines[5].startswith("probe: peak 0.001 in, ")
    assert lines[6].startswith("wrote solve/thin/solution.npz, solve/thin/zt.png")
    assert sorted(path.name for path in (tmp_path / "solve" / "thin").iterdir()) == SOLVED


def test_solve_writes_what_propagate_gives(problem, tmp_path, capsys):
    assert cli.main(["solve", str(problem), "--output", str(tmp_path / "out"), "--tol", "1e-2"]) == 0
    out = capsys.readouterr().out
    with np.load(tmp_path / "out" / "solution.npz") as content:
        assert set(content) == {
            "fields", "z", "time", "labels", "z_error", "time_error", "resolution", "populations", "coherences",
            "frequency", "absorption", "dispersion", "in_band",
        }  # fmt: skip
        assert content["labels"].tolist() == ["probe"]
        assert content["fields"].dtype == np.complex128
        assert content["z_error"] < 1e-2 > content["time_error"]
        nodes, substeps = content["resolution"].tolist()
        at = Resolution(int(nodes), substeps)
        expected = propagate(Problem.from_json(problem), dtype=torch.float64, resolution=at, tol=1e-2)
        np.testing.assert_allclose(content["fields"], expected.numpy(), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(content["populations"].sum(-1), 1, rtol=1e-9)
        lit = content["in_band"][0]
        assert lit.any()
        absorbed = content["absorption"][0, lit]
        np.testing.assert_allclose(absorbed, spectra.absorption(expected[0]).numpy()[lit], rtol=1e-9, atol=1e-12)
        entering, leaving = np.abs(content["fields"][0, 0]), np.abs(content["fields"][0, -1])
        share = np.trapezoid(leaving**2) / np.trapezoid(entering**2)
    assert f"probe: peak 0.001 in, {leaving.max():.4g} out; transmitted energy {share:.4g}" in out


def test_solve_in_single_precision_and_quiet(problem, tmp_path, capfd):
    assert cli.main(["solve", str(problem), "--float32", "--quiet", "--tol", "1e-2", "--output", str(tmp_path)]) == 0
    assert capfd.readouterr() == ("", "")
    with np.load(tmp_path / "solution.npz") as content:
        assert content["fields"].dtype == np.complex64


def test_solve_leaves_the_design_block_alone(design, tmp_path, capsys):
    assert cli.main(["solve", str(design), "--tol", "1e-2", "--output", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("Solution\n")


def test_design_of_three_steps(design, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["design", str(design), "--steps", "3", "--seed", "7"]) == 0
    out, err = capfd.readouterr()
    steps = [line for line in err.splitlines() if not line.startswith("drawing")]
    assert [line.split("  ")[0] for line in steps] == ["step 1/3", "step 3/3"]
    assert "ETA" in steps[-1]
    lines = out.splitlines()
    assert lines[0] == "5 coefficients of probe; 3 gradient steps from seed 7"
    assert lines[1].startswith("efficiency 0.")
    assert lines[2].startswith("verified   0.")
    folder = tmp_path / "design" / "shape"
    assert sorted(path.name for path in folder.iterdir()) == DESIGNED


def test_interrupt_of_a_process_keeps_the_best(design, tmp_path):
    process = command("design", design, "--steps", 1_000_000, "--output", tmp_path / "out")
    begin = clock.monotonic()
    while not process.stderr.readline().startswith("step 10/"):
        assert process.poll() is None
        assert clock.monotonic() < begin + 120
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the best so far will be verified and written" in err
    assert "Traceback" not in err
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["interrupted"]
    assert 10 <= len(result["history"]) < 1_000_000
    assert result["efficiency"] >= max(result["history"])
    assert result["verified_efficiency"] == pytest.approx(result["efficiency"], abs=1e-3)
    assert f"verified   {result['verified_efficiency']:.4f}" in out


def test_the_memory_is_designed(tmp_path, capfd):
    """The main job, from seed 0: within half a percent of what physics allows, and not above it."""
    assert cli.main(["design", str(MEMORY), "--seed", "0", "--output", str(tmp_path)]) == 0
    out, err = capfd.readouterr()
    assert len([line for line in err.splitlines() if line.startswith("step ")]) == 10
    assert "limit      0.5690 for any pulses at optical depth 25, retrieved forward" in out
    result = json.loads((tmp_path / "result.json").read_text())
    assert set(result) == {
        "efficiency", "verified_efficiency", "limit", "waveforms", "output", "coefficients", "history", "versions",
        "resolution", "error", "seed", "seconds", "interrupted",
    }  # fmt: skip
    assert 0.54 <= result["verified_efficiency"] <= 0.570
    assert result["verified_efficiency"] == pytest.approx(result["efficiency"], abs=1e-3)
    assert result["efficiency"] >= max(result["history"])
    assert len(result["history"]) == 85
    assert result["history"][0] < 0.3  # the start is not the answer
    assert result["limit"] == pytest.approx(0.56898, abs=1e-5)
    assert [len(result["coefficients"][name]) for name in ("probe", "control")] == [16, 28]
    time, probe, control = (np.array(result["waveforms"][name]) for name in ("time", "probe", "control"))
    output = np.array(result["output"]["real"])
    assert time.shape == probe.shape == control.shape == output.shape == (561,)
    assert 0 <= control.min() < control.max() < 3
    designed = Problem.from_json(tmp_path / "designed.json")
    layer = TorchPropagator(designed, dtype=torch.float64, resolution=Resolution(12, 1), tol=1e-2)
    share = retrieval_efficiency(layer(), layer.time, field=0, after=6.95).item()
    assert share == pytest.approx(result["verified_efficiency"], abs=1e-4)
    late = time > 6.95 - 1e-9
    retrieved = np.trapezoid(output[late] ** 2, time[late]) / np.trapezoid(probe**2, time)
    assert retrieved == pytest.approx(result["verified_efficiency"], abs=1e-6)
    training, verification = (result["resolution"][name] for name in ("training", "verification"))
    assert all(verification[name] == 2 * training[name] for name in ("z_nodes", "t_substeps", "t_steps"))
    assert max(result["error"].values()) < 1e-4
    assert {"torch", "jax", "python", "torch_clerq"} < set(result["versions"])
    assert (result["seed"], result["interrupted"]) == (0, False)


@pytest.mark.parametrize(
    ("content", "args", "text"),
    [
        (None, [], "must be readable"),
        ("{", [], "must be JSON"),
        ('{"system": {"num_states": 2}}', [], "`interaction_strengths` must|`system.fields` must"),
        ({"t_stepz": 3}, [], r'"t_stepz" \(did you mean "t_steps"\?\)'),
        ({}, ["--tol", "-1"], "`tol` must be positive, but is -1"),
        ({}, ["--output", "{file}/below"], "`output` must be a folder that can be written"),
    ],
)
def test_errors_are_one_line_and_exit_2(content, args, text, tmp_path, capsys):
    path = tmp_path / "problem.json"
    if isinstance(content, str):
        path.write_text(content)
    elif content is not None:
        path.write_text(json.dumps(two_level(t_steps=20, z_steps=1).to_dict() | content))
    args = ["--output", str(tmp_path / "out"), *(arg.format(file=path) for arg in args)]
    assert cli.main(["solve", str(path), *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("torch-clerq: ")
    assert re.search(text, err)


def test_a_failed_solve_is_one_line_too(problem, tmp_path, monkeypatch, capsys):
    def fail(*args, **options):
        raise ResolutionError("The solution must stay finite,\nbut does not.")

    monkeypatch.setattr(cli.solve, "TorchPropagator", fail)
    assert cli.main(["solve", str(problem), "--output", str(tmp_path)]) == 2
    assert capsys.readouterr() == ("", "torch-clerq: The solution must stay finite, but does not.\n")
    assert cli.main(["solve", str(problem), "--output", str(tmp_path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"] == "The solution must stay finite, but does not."


def test_light_from_the_other_end_is_counted_from_there(tmp_path, capsys):
    said = []
    for counter in (False, True):
        content = two_level(t_steps=200).to_dict()
        content["system"]["fields"][0] |= {"counter_propagating": counter, "factor_doppler_shift": 1.0 - 2 * counter}
        (tmp_path / "light.json").write_text(json.dumps(content))
        assert cli.main(["solve", str(tmp_path / "light.json"), "--output", str(tmp_path)]) == 0
        said.append(capsys.readouterr().out.splitlines()[5])
    assert said[0] == said[1]


def test_design_needs_a_design_block(problem, tmp_path, capsys):
    assert cli.main(["design", str(problem), "--output", str(tmp_path / "out")]) == 2
    assert "must have a `design` block" in capsys.readouterr().err


def test_wrong_arguments_exit_2(design, capsys):
    for args in (["design", str(design), "--steps", "0"], ["design", str(design), "--seed", "x"], ["paint"], []):
        with pytest.raises(SystemExit, match="2"):
            cli.main(args)
    assert "must be at least 1, but is 0" in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out.startswith("torch-clerq ")


def test_without_matplotlib_all_but_the_figure_is_written(design, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["design", str(design), "--steps", "1", "--quiet", "--output", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "torch-clerq: warning: no figure, for it needs matplotlib: pip install 'torch_clerq[plot]'\n"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["designed.json", "result.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_results_of_an_earlier_run_stay(problem, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("thin", "thin-2", "thin-3"):
        assert cli.main(["solve", str(problem), "--tol", "1e-2"]) == 0
        assert f"wrote solve/{name}/solution.npz" in capsys.readouterr().out.replace(os.sep, "/")
    assert len(list((tmp_path / "solve").iterdir())) == 3


def test_json_is_all_that_stdout_has(problem, tmp_path, capsys):
    args = [str(problem), "--json", "--tol", "1e-2"]
    assert cli.main(["solve", *args, "--output", str(tmp_path / "out")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"transmitted_energy", "resolution", "error", "files", "seconds", "warnings"}
    assert 0 < found["transmitted_energy"]["probe"] < 1
    assert cli.main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"torch", "jax", "python", "matplotlib"} < set(found["versions"])
    assert "cpu" in found["devices"]["jax"]


def test_solve_by_the_march(tmp_path, capsys):
    path = tmp_path / "light.json"
    two_level(t_steps=60, z_steps=10, z_steps_inner=4).to_json(path)
    shares = []
    for scheme in ("cross", "march"):
        args = ["--scheme", scheme, "--json", "--output", str(tmp_path / scheme)]
        assert cli.main(["solve", str(path), *args]) == 0
        shares.append(json.loads(capsys.readouterr().out)["transmitted_energy"]["field 0"])
    assert shares[1] == pytest.approx(shares[0], rel=1e-2)
    with np.load(tmp_path / "march" / "solution.npz") as content:
        assert content["resolution"].tolist() == [4]
        assert np.isnan(content["time_error"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_during_a_solve_leave_the_old_results(number, problem, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "solution.npz").write_text("old")
    process = command("solve", problem, "--output", folder, "--tol", "1e-9", "--no-cache")
    assert process.stderr.readline().startswith("compiling")
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert out == ""
    assert err.splitlines()[-1].endswith("nothing written")
    assert "Traceback" not in err
    assert [path.name for path in folder.iterdir()] == ["solution.npz"]
    assert (folder / "solution.npz").read_text() == "old"


def test_sigterm_during_a_design_keeps_the_best(design, tmp_path):
    """Also in the background of a shell, where Ctrl-C is ignored."""
    args = ["design", str(design), "--steps", "1000000", "--output", str(tmp_path / "out")]
    shell = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "torch_clerq", *args]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(shell, env=environment(), **pipes)
    begin = clock.monotonic()
    while not process.stderr.readline().startswith("step 10/"):
        assert process.poll() is None
        assert clock.monotonic() < begin + 120
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143
    assert json.loads((tmp_path / "out" / "result.json").read_text())["interrupted"]


def test_on_a_terminal_the_status_is_one_line_that_goes_away(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    console = Console()
    console.status("a long description of what is done")
    assert terminal.getvalue() == "a long description "
    console.complain("two\nlines")
    assert terminal.getvalue() == "a long description \r\x1b[Ktorch-clerq: two lines\n"


def solved_before(problem, tmp_path):
    """A folder with the results of a run, and their bytes."""
    folder = tmp_path / "out"
    assert cli.main(["solve", str(problem), "--tol", "1e-2", "--quiet", "--output", str(folder)]) == 0
    return folder, {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("fault", [signal.SIGINT, signal.SIGTERM, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("step", ["fill", "fsync", "replace"])
def test_a_fault_while_results_are_written_leaves_the_old_ones(fault, step, problem, tmp_path, monkeypatch, capsys):
    folder, before = solved_before(problem, tmp_path)
    capsys.readouterr()
    write_all = np.savez_compressed

    def strike(*args, **content):
        if step == "fill":
            args[0].write(b"half")
        if not isinstance(fault, signal.Signals):
            raise OSError(fault, os.strerror(fault))
        os.kill(os.getpid(), fault)
        write_all(*args, **content)

    home, name = (np, "savez_compressed") if step == "fill" else (os, step)
    monkeypatch.setattr(home, name, strike)
    code = cli.main(["solve", str(problem), "--tol", "1e-2", "--quiet", "--output", str(folder)])
    monkeypatch.undo()
    assert code == (128 + fault if isinstance(fault, signal.Signals) else 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        r"torch-clerq: (terminated|interrupted), nothing written\n|torch-clerq: Argument `output` must .*\n", err
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_during_a_fit(number, problem, tmp_path):
    time = np.linspace(0.5, 3.5, 50)
    rows = "\n".join(f"{t},{np.exp(-((t - 2) ** 2))}" for t in time)
    (tmp_path / "trace.csv").write_text(f"time,probe.power\n{rows}\n")
    folder = tmp_path / "out"
    process = command("fit", problem, "--data", tmp_path / "trace.csv", "--free", "decay_rates", "--output", folder,
                      "--no-cache")  # fmt: skip
    while "compiling" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert out == ""
    assert err.splitlines()[-1].endswith("nothing written")
    assert "Traceback" not in err
    assert list(folder.iterdir()) == []


def test_two_runs_never_share_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: Results(Console(), "solve", Path("p.json"), None).folder, range(16)))
    assert len(set(made)) == 16
    assert {path.name for path in made} == {"p", *(f"p-{k}" for k in range(2, 17))}


def test_what_stdout_cannot_show_costs_no_results(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    content = two_level(t_steps=20, z_steps=1).to_dict()
    content["system"]["fields"][0]["label"] = "Ωp"
    (tmp_path / "greek.json").write_text(json.dumps(content))
    process = command("solve", "greek.json", "--tol", "1e-1", cwd=tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "\\u03a9p: peak" in out
    assert (tmp_path / "solve" / "greek" / "solution.npz").exists()


def test_a_reader_that_goes_away_is_no_traceback():
    process = command("info", "--json")
    process.stdout.close()
    with process.stderr:
        assert "Traceback" not in process.stderr.read()
    assert process.wait(120) == 2


def test_a_seed_that_torch_cannot_count_to(design, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["design", str(design), "--seed", "9" * 23])
    assert "below 2**63" in capsys.readouterr().err
