"""Every script under examples/ runs in seconds with --smoke, learns something, and says nothing but its progress."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.conftest import CACHE, ROOT

SCRIPTS = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
NEEDS = {"lightning_memory": "pytorch_lightning"}
WARNS = {"doppler_memory": r".*WindowWarning: The \d+ velocity classes .*\n.*\n"}  # which is what it shows
PROGRESS = re.compile(r"step \d+/\d+  \S.*")


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_runs_and_learns(script, tmp_path):
    """A script ends with an error where its loss did not fall."""
    if script in NEEDS and find_spec(NEEDS[script]) is None:
        pytest.skip(f"needs {NEEDS[script]}")
    environment = {
        "JAX_COMPILATION_CACHE_DIR": CACHE,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "PYTHONPATH": str(ROOT),
    }
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{script}.py"), "--smoke"],
        env=os.environ | environment, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    stderr = re.sub(WARNS.get(script, r"\Z"), "", run.stderr)
    assert [line for line in stderr.splitlines() if not PROGRESS.fullmatch(line)] == []
    assert re.search(r"\d", run.stdout)
    assert not any(tmp_path.iterdir())


def test_a_page_names_every_script():
    pages = "".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    for script in SCRIPTS:
        assert f"examples/{script}.py" in pages
