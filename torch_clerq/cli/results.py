"""Folders of results, and the files in them, each whole or not there."""

import importlib.metadata
import itertools
import json
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jax_kernel.errors import ProblemError
from jax_kernel.files import write
from jax_kernel.problem import Problem

from .console import Console

PACKAGES = ("torch_clerq", "torch", "jax", "jaxlib", "diffrax", "equinox", "numpy", "scipy")


class Results:
    """The folder of a command's results, made now; refused before any work where it cannot be written.

    Args:
        console: told of every file.
        command: name of the command, of which the default folder is <command>/<name of the file>.
        file: what the command reads.
        given: the folder that the user asked for, whose files are replaced; the default one is never that of an
            earlier run, but gets a number behind its name.
    """

    def __init__(self, console: Console, command: str, file: Path, given: Path | None):
        self.console = console
        try:
            self.folder = _claimed(Path(command, file.stem)) if given is None else given
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise ProblemError(
                f"Argument `output` must be a folder that can be written, but {given or command} cannot: "
                f"{error.strerror}."
            ) from error

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Inside, the file of this path is written, whole or not at all."""
        path = self.folder / name
        try:
            yield path
        except OSError as error:
            raise ProblemError(
                f"Argument `output` must be a folder with room for the results, but {path} cannot be written "
                f"({error.strerror or error}), and an old file of this name is as it was: give another folder."
            ) from error
        self.console.written.append(str(path))

    def write(self, name: str, fill: Callable[[Any], Any]) -> None:
        with self.writing(name) as path:
            write(path, fill)

    def arrays(self, name: str, content: Mapping[str, Any]) -> None:
        """An .npz file."""
        self.write(name, lambda file: np.savez_compressed(file, **content))

    def json(self, name: str, content: Any) -> None:
        self.write(name, lambda file: file.write((json.dumps(content, indent=1) + "\n").encode()))

    def problem(self, name: str, problem: Problem) -> None:
        """A problem file."""
        with self.writing(name) as path:
            problem.to_json(path)

    def figures(self, draw: Mapping[str, Callable[[], Any]]) -> None:
        """PNG figures by name, or one line on what they need."""
        for name, figure in draw.items():
            self.console.status(f"drawing {name}")
            try:
                drawn = figure()
            except ModuleNotFoundError as error:
                self.console.warn(f"no figure, for it needs {error.name}: pip install 'torch_clerq[plot]'")
                return
            self.write(name, partial(drawn.savefig, format="png"))

    def close(self) -> str:
        """Which files were written, as a sentence."""
        return f"wrote {', '.join(self.console.written)} after {self.console.seconds:.1f} s"


def _claimed(folder: Path) -> Path:
    """A new folder of this name, or with a number behind it where there is one; no other run can have it, too."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for k in itertools.count(1):
        path = folder if k == 1 else folder.with_name(f"{folder.name}-{k}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise AssertionError("there are numbers without end")


def versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
