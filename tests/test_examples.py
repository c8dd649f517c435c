"""The scripts of examples/ run with their smoke flag, and show what they are for."""

import re
import runpy
import sys

import pytest

from tests.conftest import ROOT
from torch_clerq import WindowWarning


@pytest.fixture
def shown(monkeypatch, capsys):
    """What an example prints."""

    def run(name):
        monkeypatch.setattr(sys, "argv", [name, "--smoke"])
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_infer_medium_finds_what_it_hid(shown):
    assert shown("infer_medium.py").count("is in its interval") == 5


def test_doppler_memory_keeps_what_does_not_dephase_and_no_other(shown):
    with pytest.warns(WindowWarning, match="velocity classes miss the thermal distribution or rephase"):
        out = shown("doppler_memory.py")
    (best, finer), (_, dephased) = re.findall(r"([\d.]+) after 4 steps, ([\d.]+) with everything finer", out)
    assert float(finer) == pytest.approx(float(best), abs=1e-3)
    assert float(finer) > 0.5
    assert float(dephased) < 0.01
