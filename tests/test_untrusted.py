"""Files of others are read without running code from them."""

import ast
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import ROOT, two_level
from torch_clerq import ProblemError, checkpoint, cli

SOURCES = [path for package in ("jax_kernel", "torch_clerq") for path in sorted((ROOT / package).rglob("*.py"))]
FORBIDDEN = {"pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.loads", "exec", "compile", "__import__",
             "os.system", "os.popen", "yaml.load", "joblib.load", "np.fromfile", "torch.jit.load"}  # fmt: skip
SAFE = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}
DIMENSIONS = "torch_clerq/bridge/functions.py"
"""Where `eval` reads the sizes that JAX has written of its own dimensions, with names that are numbers."""


def called(node: ast.Call) -> str:
    return ast.unparse(node.func).replace("numpy.", "np.")


def unsafe(tree: ast.AST, file: str) -> list[str]:
    """The calls that may run code from what they read."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = called(node)
        if name in FORBIDDEN or (name == "eval" and file != DIMENSIONS):
            found.append(f"{file}:{node.lineno}: {name}")
        if name in SAFE:
            key, value = SAFE[name]
            given = {word.arg: word.value for word in node.keywords}
            if not (isinstance(given.get(key), ast.Constant) and given[key].value is value):
                found.append(f"{file}:{node.lineno}: {name} without {key}={value}")
        shell = any(word.arg == "shell" for word in node.keywords)
        if name.startswith("subprocess.") and shell:
            found.append(f"{file}:{node.lineno}: {name} with a shell")
    return found


def test_no_call_runs_code_that_it_reads():
    assert SOURCES
    found = []
    for path in SOURCES:
        found += unsafe(ast.parse(path.read_text(encoding="utf-8")), path.relative_to(ROOT).as_posix())
    assert found == []


@pytest.mark.parametrize(
    "line",
    ["pickle.loads(x)", "torch.load(f)", "torch.load(f, weights_only=False)", "np.load(f)", "numpy.load(f)", "eval(x)",
     "exec(x)", "subprocess.run(x, shell=True)"],
)  # fmt: skip
def test_the_check_finds_what_it_is_for(line):
    assert len(unsafe(ast.parse(line), "any.py")) == 1


class Payload:
    """Makes a folder when it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("pwned",))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    two_level(t_steps=20, z_steps=1).to_json("problem.json")
    return tmp_path


def malicious(kind: str) -> Path:
    path = Path(f"evil.{kind}")
    if kind == "npz":
        np.savez(path, fields=np.array([Payload()], dtype=object))
    elif kind == "pt":
        torch.save({"version": 1, "kind": {}, "module": Payload()}, path)
    elif kind == "csv":
        path.write_text("time,0.power\n=cmd|'/C calc'!A0,__import__('os').mkdir('pwned')\n")
    else:
        path.write_text(json.dumps({"system": {"num_states": "__import__('os').mkdir('pwned')"}}))
    return path


@pytest.mark.parametrize("kind", ["npz", "pt", "csv", "json"])
@pytest.mark.parametrize("command", ["solve", "design", "check", "fit", "data"])
def test_the_command_line_runs_nothing_that_it_reads(command, kind, here, capsys):
    evil = str(malicious(kind))
    free = ["--data", evil, "--free", "decay_rates"]
    args = {"fit": ["fit", evil, *free], "data": ["fit", "problem.json", *free]}
    assert cli.main(args.get(command, [command, evil])) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("torch-clerq: ")
    assert not (here / "pwned").exists()


@pytest.mark.parametrize("kind", ["npz", "pt", "csv", "json"])
def test_a_checkpoint_runs_nothing_either(kind, here):
    with pytest.raises(ProblemError, match="`checkpoint` must be a file that `fit` has written"):
        checkpoint.load(malicious(kind))
    assert not (here / "pwned").exists()
