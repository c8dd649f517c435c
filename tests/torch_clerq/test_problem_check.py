"""What `check_problem` says of problems with one trap each, and of one without."""

import json
import re

import pytest

from tests.conftest import lambda_system, two_level
from torch_clerq import Problem, ProblemError, cli
from torch_clerq.diagnostics import TOPICS, ProblemReport, check_problem


def topics(report: ProblemReport) -> list[str]:
    return [found.topic for found in report.findings]


def clean(**changes):
    return two_level(t_steps=200, z_steps=20, **changes)


@pytest.fixture(scope="module")
def report():
    said = []
    found = check_problem(clean(), on_topic=said.append)
    assert said == list(TOPICS)
    return found


def test_a_clean_problem_is_found_clean(report):
    assert report.ok, str(report)
    assert report.gradients.ok
    assert {row.name for row in report.gradients.rows} >= {"interaction_strengths", "decay_rates", "detunings"}
    text = str(report)
    assert text.endswith("nothing found that speaks against this problem")
    assert "optical depth 4 on resonance" in text  # 4gL/γ
    assert list(report.facts) == [
        "problem", "resolution", "light: field 0", "stiffness", "window", "clerq's grid", "states", "float32", "cost",
        "gradients",
    ]  # fmt: skip


def trapped():
    """A Λ system with its control's pair the wrong way round, on a coarse grid that ends too early."""
    return lambda_system(control={"coupled_levels": [[1, 2]]}, t_steps=12, t_max=0.3, z_steps=2, g=(20.0, 2.0))


@pytest.fixture(scope="module")
def findings():
    return check_problem(trapped(), tol=1e-3).findings


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("conventions", r"couples \[1, 2\] as \[lower, upper\], .* write \[2, 1\]"),
        ("window", "time grid is too coarse for the light"),
        ("window", "changes at the end"),
        ("clerq's grid", r"in 2 × 2 steps in z is off by .* the peak: raise `z_steps_inner`"),
    ],
)
def test_a_trap_is_found(topic, says, findings):
    assert any(re.search(says, one.text) for one in findings if one.topic == topic), findings


def test_what_cannot_be_solved_is_a_finding():
    found = check_problem(two_level(g=1e9, t_steps=20), tol=1e-9)
    assert topics(found)[0] == "resolution"
    assert found.gradients is None
    assert "within reach of the grid" in found.findings[0].text


def test_a_problem_without_a_medium_and_one_with_edges():
    content = two_level(envelope="square", args={"ampl": 1.0, "on": 0.0, "off": 1.0}, rabi_freq=0.5).to_dict()
    single = Problem.from_dict({**content, "interaction_strengths": []})
    found = check_problem(single, tol=1e-4)
    assert "clerq's grid" not in found.facts
    assert found.ok, str(found)


def test_a_tolerance_that_is_none():
    with pytest.raises(ProblemError, match="`tol` must be positive"):
        check_problem(two_level(), tol=-1.0)


def test_the_command_exits_1_where_something_is_found(tmp_path, capsys):
    trapped().to_json(tmp_path / "trapped.json")
    assert cli.main(["check", str(tmp_path / "trapped.json"), "--tol", "1e-3"]) == 1
    out, err = capsys.readouterr()
    assert "\n1. conventions: Field " in out
    assert [line.split("  ")[0] for line in err.splitlines()] == [f"{k}/8 {name}" for k, name in enumerate(TOPICS, 1)]
    assert cli.main(["check", str(tmp_path / "trapped.json"), "--tol", "1e-3", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert cli.main(["check", str(tmp_path / "trapped.json"), "--tol", "1e-3", "--quiet"]) == 1
    assert capsys.readouterr().err.startswith("torch-clerq: conventions: Field ")
    assert set(found) == {"ok", "facts", "findings", "seconds", "warnings"}
    assert found["findings"][0]["topic"] == "conventions"


def test_stated_level_detunings_are_no_fault():
    content = clean().to_dict()
    content["system"]["level_detunings"] = [0.0, 0.2]
    found = check_problem(Problem.from_dict(content), tol=1e-4)
    assert found.ok, str(found)
    assert "level_detunings" in {row.name for row in found.gradients.rows}


def test_darkness_and_signs_are_found():
    late = two_level(args={"ampl": 1.0, "centre": 50.0, "fwhm": 1.0}, t_steps=40, z_steps=1, g=-1.0)
    found = check_problem(late, tol=1e-3)
    assert [str(one).partition("; ")[0][:48] for one in found.findings][:3] == [
        'conventions: Field "field 0" has the interaction', 'window: Field "field 0" is dark in the time wind',
        "window: No field has any light within the time w",
    ]  # fmt: skip
