"""Runs the Python of a page and compares what it prints with the block that follows; finds its commands and links."""

import re
import unicodedata
from pathlib import Path

import pytest

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.S | re.M)


def run(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run a page's Python blocks in order, in one namespace; returns their texts."""
    blocks = BLOCK.findall(path.read_text())
    namespace: dict = {"__name__": path.stem}
    for (kind, text), following in zip(blocks, [*blocks[1:], ("python", "")], strict=True):
        if kind == "python":
            exec(compile(text, path.name, "exec"), namespace)  # the pages are our own
            printed = capsys.readouterr().out
            assert printed == (following[1] if following[0] == "" else "")
    return [text for kind, text in blocks if kind == "python"]


def commands(text: str) -> list[str]:
    """The `torch-clerq` commands of the shell examples, lines that are indented by four, without their comments."""
    shell = re.findall(r"^ {4}(\S.*)$", BLOCK.sub("", text), flags=re.M)
    parts = [part.strip() for line in shell for part in re.split(r"&&|;|\|", line.split(" #")[0])]
    return [part for part in parts if part.startswith("torch-clerq ")]


def links(text: str) -> list[str]:
    """What the text links to, images included, except for other hosts."""
    found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", BLOCK.sub("", text)))
    return [link for link in found if "://" not in link]


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as the site makes them: what is not ASCII is left out."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), flags=re.M)
    plain = [unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode() for heading in headings]
    words = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in plain]
    return {re.sub(r"[-\s]+", "-", heading) for heading in words}
