"""The Python of docs/when-gradients-go-wrong.md runs and prints what it says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "when-gradients-go-wrong.md"


def test_python_blocks_print_what_is_written(capsys):
    blocks = re.findall(r"```(python)?\n(.*?)```", PAGE.read_text(), flags=re.S)
    namespace: dict = {}
    ran = 0
    for (kind, text), following in zip(blocks, [*blocks[1:], ("python", "")], strict=True):
        if kind == "python":
            exec(compile(text, PAGE.name, "exec"), namespace)  # the page is our own
            assert capsys.readouterr().out == ("" if following[0] == "python" else following[1])
            ran += 1
    assert ran >= 15
