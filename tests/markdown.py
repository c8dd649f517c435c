"""Runs the Python of a page and compares what it prints with the block that follows."""

import re
from pathlib import Path

import pytest


def run(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run a page's Python blocks in order, in one namespace; returns their texts."""
    blocks = re.findall(r"```(python)?\n(.*?)```", path.read_text(), flags=re.S)
    namespace: dict = {}
    for (kind, text), following in zip(blocks, [*blocks[1:], ("python", "")], strict=True):
        if kind == "python":
            exec(compile(text, path.name, "exec"), namespace)  # the pages are our own
            printed = capsys.readouterr().out
            assert printed == ("" if following[0] == "python" else following[1])
    return [text for kind, text in blocks if kind == "python"]
