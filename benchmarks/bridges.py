"""Which bridge from JAX to PyTorch can do what?

Usage: python -m benchmarks.bridges [WORD ...]  (with words: only the rows whose names hold one, and nothing is written)

Every row of `capabilities` runs on every bridge of `peers`, each bridge in a process of its own that is replaced when
it crashes or hangs. A cell is one of

- right;
- wrong: a value that is not the truth;
- silent: wrong with zeros, without a gradient or with digits lost, and without a sign;
- error: an exception, a crash or a hang;
- refused: an error of this package's own that names the rule or the cure.

The peers compute in JAX's global 64-bit mode in the rows that check derivatives by finite differences, which need it.
Writes results/bridges.json and the table of docs/bridge.md.
"""

import importlib.metadata
import json
import multiprocessing
import sys
import warnings

import jax
import torch
from torch.autograd.gradcheck import GradcheckError

from jax_kernel.errors import PropagationError

from . import tables
from .capabilities import ALL, GROUPS, Capability, Silent, Wrong
from .peers import BRIDGES

OURS = "torch_clerq"
PACKAGES = ("jax2torch", "torch_jax_interop", "jax", "torch")


def chain(error: BaseException | None):
    """The error and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def line(error: BaseException) -> str:
    """Kind and first line of an error."""
    return f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0][:300]}"


def verdict(bridge: str, capability: Capability) -> tuple[str, str]:
    """One cell, and what was found."""
    try:
        capability.check(BRIDGES[bridge])
    except Silent as error:
        return "silent", str(error)
    except (Wrong, GradcheckError) as error:
        return "wrong", line(error)
    except Exception as error:
        for cause in chain(error):
            if isinstance(cause, PropagationError):
                return "refused", line(cause)
        return "error", line(error)
    return "right", ""


def work(bridge: str, pipe) -> None:
    """Answer names of capabilities with verdicts until there are no more."""
    warnings.simplefilter("ignore")
    while (name := pipe.recv()) is not None:
        capability = ALL[name]
        if bridge != OURS:
            jax.config.update("jax_enable_x64", capability.wide)
        pipe.send(verdict(bridge, capability))
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()


class Worker:
    """A process with one bridge."""

    def __init__(self, bridge: str):
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=work, args=(bridge, there))
        self.process.start()
        there.close()

    def ask(self, capability: Capability) -> tuple[str, str]:
        """The verdict, or the process's end."""
        self.pipe.send(capability.name)
        try:
            if self.pipe.poll(capability.seconds + 30):  # it may have to start
                return self.pipe.recv()
        except EOFError:
            self.process.join(10)
            return "error", f"the process ends with code {self.process.exitcode}"
        return "error", f"no answer in {capability.seconds:g} s"

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def column(bridge: str, names: list[str]) -> dict[str, tuple[str, str]]:
    """All verdicts of one bridge."""
    found, worker = {}, Worker(bridge)
    for name in names:
        found[name] = worker.ask(ALL[name])
        kind, detail = found[name]
        print(f"{bridge:20} {name:50} {kind:8} {detail[:120]}", flush=True)
        if detail.startswith(("the process", "no answer")):
            worker.end()
            worker = Worker(bridge)
    worker.end()
    return found


def table(found: dict[str, dict[str, tuple[str, str]]]) -> str:
    """The rows by group, ours first, and a last row that counts."""
    rows = []
    for group in GROUPS:
        rows.append([f"**{group}**", *[""] * len(found)])
        members = [capability.name for capability in ALL.values() if capability.group == group]
        rows += [[name, *(cells[name][0] for cells in found.values())] for name in members]
    rights = [sum(kind == "right" for kind, _ in cells.values()) for cells in found.values()]
    rows.append([f"**right, of {len(ALL)}**", *(f"**{count}**" for count in rights)])
    return tables.markdown(["", *found], rows)


def main() -> None:
    words = sys.argv[1:]
    names = [name for name in ALL if not words or any(word in name for word in words)]
    found = {bridge: column(bridge, names) for bridge in BRIDGES}
    if words:
        return
    content = {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "results": {bridge: {name: list(cell) for name, cell in cells.items()} for bridge, cells in found.items()},
    }
    tables.RESULTS.mkdir(exist_ok=True)
    (tables.RESULTS / "bridges.json").write_text(json.dumps(content, indent=1) + "\n")
    tables.render("docs/bridge.md", "bridges", table(found))


if __name__ == "__main__":
    main()
