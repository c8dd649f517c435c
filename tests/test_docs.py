"""The Python of the pages runs and prints what they say, and their tables name what there is."""

import pytest

from tests import markdown
from tests.conftest import ROOT
from torch_clerq import controls, objectives


@pytest.mark.parametrize(
    "page", ["analysis", "controls", "figures", "inference", "training", "when-gradients-go-wrong"]
)
def test_python_blocks_print_what_is_written(page, capsys):
    assert len(markdown.run(ROOT / "docs" / f"{page}.md", capsys)) >= 3


@pytest.mark.filterwarnings("ignore::FutureWarning")  # QuTiP's, of clerq
def test_the_page_for_users_of_clerq(capsys):
    pytest.importorskip("clerq")
    assert len(markdown.run(ROOT / "docs" / "coming-from-clerq.md", capsys)) == 3


def test_every_waveform_and_objective_is_in_a_table():
    rows = [line for line in (ROOT / "docs" / "controls.md").read_text().splitlines() if line.startswith("|")]
    table = "\n".join(rows)
    for name in set(controls.__all__) - {"Waveform", "LinearBasis"}:
        assert f"`{name}" in table, name
    here = [name for name, value in vars(objectives).items() if getattr(value, "__module__", "") == objectives.__name__]
    for name in here:
        if not name.startswith("_"):
            assert f"`{name}`" in table, name
