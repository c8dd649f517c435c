"""Tables of results inside pages that are written by hand."""

import re
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def render(page: str, name: str, text: str) -> None:
    """Put the text between the page's lines `<!-- name -->` and `<!-- /name -->`."""
    path = ROOT / page
    between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", flags=re.S)
    changed, places = between.subn(lambda found: f"{found[1]}{text}\n{found[2]}", path.read_text())
    if places != 1:
        raise ValueError(f"{page} must hold the markers of {name} once, but holds them {places} times.")
    path.write_text(changed)
