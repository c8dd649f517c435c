"""What mkdocs.yml calls while the site is built.

Pages link to files outside of docs, which join the site here; and what our docstrings call Example is code.
"""

import re
from pathlib import Path

import griffe
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
OUTSIDE = (
    "CONTRIBUTING.md",
    "examples/*.py",
    "examples/*.json",
    "examples/*.csv",
    "benchmarks/README.md",
    "benchmarks/figures/*.png",
)


def on_files(files, config):
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    return re.sub(r"\]\((\.\./(?=examples/|benchmarks/|CONTRIBUTING)|docs/)", "](", markdown)


class Examples(griffe.Extension):
    """The heading that mkdocstrings knows."""

    def on_object(self, *, obj, **kwargs):
        if obj.docstring:
            obj.docstring.value = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.M)
