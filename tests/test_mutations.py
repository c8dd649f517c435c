"""A sample of tests/mutations.py; docs/faults.md has a whole run."""

import signal

import pytest

from tests import mutations


@pytest.mark.skipif(not hasattr(signal, "SIGPROF"), reason="the time limit needs POSIX signals")
def test_mutated_files_are_solved_or_refused_in_one_sentence():
    said = []
    counts = mutations.main(300, seed=7, report=said.append, few=True)
    outcomes = sum(counts.values(), mutations.Counter())
    assert not [text for text in said if "BAD" in text]
    assert outcomes.total() == 300
    assert outcomes["solved"] > 20
    assert outcomes["refused when read (ProblemError)"] > 100


def test_the_check_finds_what_it_is_for(tmp_path, monkeypatch):
    path = tmp_path / "problem.json"
    mutations.two_level().to_json(path)
    for error, text in (
        (ValueError("no"), "BAD: when solved: ValueError"),
        (mutations.ProblemError("a\nb"), "BAD: no sent"),
    ):

        def fail(*args, error=error, **options):
            raise error

        monkeypatch.setattr(mutations, "propagate", fail)
        assert mutations.outcome(path).startswith(text)
