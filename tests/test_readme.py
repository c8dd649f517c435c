"""The README's Python runs and prints what it says; its commands are those that CI and the package know."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_python_blocks_print_what_is_written(capsys):
    blocks = re.findall(r"```(python)?\n(.*?)```", README, flags=re.S)
    namespace: dict = {}
    ran = 0
    for (kind, text), following in zip(blocks, [*blocks[1:], ("python", "")], strict=True):
        if kind == "python":
            exec(compile(text, "README.md", "exec"), namespace)  # the README is our own
            printed = capsys.readouterr().out
            assert printed == ("" if following[0] == "python" else following[1])
            ran += 1
    assert ran >= 2
    first = next(text for kind, text in blocks if kind == "python")
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
