"""The README's Python runs and prints what it says; its commands are those that CI and the package know."""

import re
import tomllib

from tests import markdown
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()


def test_python_blocks_print_what_is_written(capsys):
    first, *others = markdown.run(ROOT / "README.md", capsys)
    assert others
    assert len([line for line in first.splitlines() if line.strip()]) <= 16


def test_commands_are_real():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert "torch-clerq" in scripts
    assert "torch-clerq design examples/memory.json" in README
    assert (ROOT / "examples" / "memory.json").exists()
    assert "torchrun --nproc_per_node 2 examples/distributed.py" in README  # run by tests/torch_clerq/test_processes.py
    test_line = "pip install -c constraints.txt '.[test]' && pytest"
    assert test_line in README
    assert test_line.replace("pip install", "pip install -q") in (ROOT / ".ci" / "run").read_text()


def test_figures_exist():
    assert "_TABLE" not in README
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (ROOT / path).exists()
