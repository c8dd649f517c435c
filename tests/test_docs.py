"""The Python of the pages runs and prints what they say, commands and links are real, tables name what there is."""

import importlib
import re
import shlex
import subprocess
import sys

import pytest
import yaml

import jax_kernel
from tests import markdown
from tests.conftest import ROOT
from torch_clerq import controls, objectives
from torch_clerq.cli.main import _parser

DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text() for path in sorted(DOCS.glob("**/*.md"))}
WITH_PYTHON = [name for name, text in PAGES.items() if "```python\n" in text]
COMMANDS = ("solve", "design", "fit", "check", "info")
NEEDS = {"coming-from-clerq.md": "clerq", "coming-from-torchdiffeq.md": "torchdiffeq"}
TEXTS = PAGES | {f"../{name}.md": (ROOT / f"{name}.md").read_text() for name in ("README", "CONTRIBUTING")}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder to which pages may write, with what they read."""
    for name in ("examples", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # QuTiP's, of clerq
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_blocks_print_what_is_written(page, capsys, elsewhere):
    if page in NEEDS:
        pytest.importorskip(NEEDS[page])
    assert markdown.run(DOCS / page, capsys)


def test_pages_are_found():
    assert {"architecture.md", "bridge.md", "conventions.md", "getting-started.md"} <= set(WITH_PYTHON)
    assert not re.search(r"^ *```py\w*(?<!python)$|^ +```python", "\n".join(PAGES.values()), flags=re.M)


@pytest.mark.parametrize("page", TEXTS)
def test_commands_are_those_of_the_command_line(page):
    for command in markdown.commands(TEXTS[page]):
        arguments = shlex.split(command)[1:]
        if arguments == ["--help"]:
            continue
        parsed = _parser().parse_args(arguments)
        file = getattr(parsed, "file", None)
        assert file is None or file.parts[0] != "examples" or (ROOT / file).exists(), command
    for name in re.findall(r"`torch-clerq (\w+)", TEXTS[page]):
        assert name in COMMANDS, name


def test_every_command_has_its_section():
    assert set(COMMANDS) == set(re.findall(r"^## (\w+)$", PAGES["command-line.md"], flags=re.M))
    (choices,) = (action.choices for action in _parser()._actions if action.choices)
    assert set(choices) == set(COMMANDS)


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_somewhere(page):
    for link in markdown.links(TEXTS[page]):
        path, _, anchor = link.partition("#")
        target = (DOCS / page).parent / path if path else DOCS / page
        assert target.exists(), link
        if anchor:
            assert anchor in markdown.anchors(target.read_text()), link


@pytest.mark.parametrize("page", ["architecture.md", "extending.md"])
def test_files_that_are_named_are_there(page):
    named = set(re.findall(r"`([\w/]+\.(?:py|md|json))`", PAGES[page]))
    assert len(named) > 10
    folders = (
        "",
        "jax_kernel",
        "torch_clerq",
        "torch_clerq/bridge",
        "torch_clerq/controls",
        "torch_clerq/cli",
        "tests/jax_kernel",
    )
    for name in named:
        assert any((ROOT / folder / name).exists() for folder in folders), name


def test_every_page_is_in_the_navigation():
    def leaves(item):
        if isinstance(item, str):
            return [item]
        return [page for part in (item.values() if isinstance(item, dict) else item) for page in leaves(part)]

    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed = leaves(site["nav"])
    assert len(listed) == len(set(listed))
    assert {page for page in listed if not (ROOT / page).exists()} == set(PAGES)
    assert all((ROOT / hook).exists() for hook in site["hooks"])


def test_the_site_builds(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings_handlers.python")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = [path.read_text() for path in tmp_path.glob("**/*.html")]
    assert len(pages) > len(PAGES)
    for page in pages:
        assert not re.findall(r'<(?:link|script|img)\b[^>]*(?:href|src)="https?://', page)  # nothing from elsewhere


def test_the_reference_has_all_public_names():
    listed = set(re.findall(r"^::: (\S+)$", "\n".join(PAGES.values()), flags=re.M))
    for name in listed:
        module, _, last = name.rpartition(".")
        assert hasattr(importlib.import_module(module), last), name
    ours = {f"torch_clerq.{name}" for name in importlib.import_module("torch_clerq").__all__}
    assert not ours - listed
    same = {f"torch_clerq.{name}" for name in jax_kernel.__all__} & ours
    assert not {f"jax_kernel.{name}" for name in jax_kernel.__all__ if f"torch_clerq.{name}" not in same} - listed
    for part in ("controls", "diagnostics", "plotting"):
        names = importlib.import_module(f"torch_clerq.{part}").__all__
        assert not {f"torch_clerq.{part}.{name}" for name in names} - listed


def test_every_waveform_and_objective_is_in_a_table():
    rows = [line for line in PAGES["controls.md"].splitlines() if line.startswith("|")]
    table = "\n".join(rows)
    for name in set(controls.__all__) - {"Waveform", "LinearBasis"}:
        assert f"`{name}" in table, name
    here = [name for name, value in vars(objectives).items() if getattr(value, "__module__", "") == objectives.__name__]
    for name in here:
        if not name.startswith("_"):
            assert f"`{name}`" in table, name
