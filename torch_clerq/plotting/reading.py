"""What figures read of a solution: NumPy arrays, names and directions, looked at before anything is drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from jax_kernel.parameters import fail
from jax_kernel.problem import Problem
from jax_kernel.solution import Solution

LONGEST = 60
"""Characters of a name at most."""

ONE_OF_A_BATCH = "draw one of a batch, as in `dataclasses.replace(solution, {part}=solution.{part}[0])`"


def numbers(name: str, values: Any, shape: Sequence[str | int] | None = None, *, cure: str = "") -> np.ndarray:
    """The finite numbers of a tensor, on any device and with any history, or of anything that NumPy reads.

    Args:
        name: what they are, for errors.
        values: real or complex.
        shape: of each axis its length, or its name where any length is right; None for any shape.
        cure: of a wrong shape.

    Raises:
        ProblemError: there are no numbers, not all are finite, or the shape is another one.
    """
    try:
        if isinstance(values, torch.Tensor):
            values = values.numpy(force=True)
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        array = np.empty((), dtype=object)
    if array.dtype.kind not in "fiuc":
        kind = f"{values.dtype}, {values.layout}" if isinstance(values, torch.Tensor) else type(values).__name__
        fail(name, "be a tensor or an array of numbers, dense and of a kind that NumPy has", f"is {kind}")
    single = array.dtype.newbyteorder("=") in (np.float32, np.complex64)
    kinds = (np.float32, np.complex64) if single else (np.float64, np.complex128)
    array = np.array(array, dtype=kinds[array.dtype.kind == "c"])  # of a kind and in a layout that all understand
    if shape is not None:
        fits = array.ndim == len(shape) and all(
            isinstance(n, str) or n == m for n, m in zip(shape, array.shape, strict=True)
        )
        if not fits:
            wanted = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
            fail(name, f"have shape {wanted}", f"has shape {array.shape}{cure and ': ' + cure}")
    if not np.isfinite(array).all():
        where = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
        fail(name, "be finite", f"has {array[where]} at index {where}")
    return array


@dataclass(frozen=True)
class Light:
    """The fields of one problem.

    Attributes:
        fields: shape (field, z, time).
        z: shape (z,).
        time: shape (time,).
        names: one a field.
        ends: of each field, the indices of the positions where it enters and leaves.
    """

    fields: np.ndarray
    z: np.ndarray
    time: np.ndarray
    names: list[str]
    ends: list[tuple[int, int]]


def read_light(solution: Solution, labels: Sequence[str], problem: Problem | None) -> Light:
    """The fields of a solution with their names and directions.

    Raises:
        ProblemError: there is something that cannot be drawn; the text says what.
    """
    z, time = read_grids(solution)
    shape = ("field", len(z), len(time))
    fields = numbers("solution.fields", solution.fields, shape, cure=ONE_OF_A_BATCH.format(part="fields"))
    if not len(fields):
        fail("solution.fields", "have a field", "has none")
    names, counter = read_names(labels, problem, len(fields))
    return Light(fields, z, time, names, [(-1, 0) if against else (0, -1) for against in counter])


def read_grids(solution: Solution) -> tuple[np.ndarray, np.ndarray]:
    """Positions and times of a solution, at least two of each."""
    if not isinstance(solution, Solution):
        fail("solution", "be a Solution, as `layer.solve()` returns one", f"is {type(solution).__name__}")
    z, time = (numbers(f"solution.{name}", getattr(solution, name), (name,)) for name in ("z", "time"))
    for name, grid in (("z", z), ("time", time)):
        if len(grid) < 2 or not (np.diff(grid) > 0).all():
            fail(f"solution.{name}", "be increasing, with at least two values", f"is {grid}")
    return z, time


def read_names(labels: Sequence[str], problem: Problem | None, count: int) -> tuple[list[str], list[bool]]:
    """The name of each field, and whether it runs against the others."""
    counter = [False] * count
    if problem is not None:
        if not isinstance(problem, Problem):
            fail("problem", "be the Problem that was solved", f"is {type(problem).__name__}")
        if len(problem.fields) != count:
            fail("problem", f"have the {count} fields of the solution", f"has {len(problem.fields)}")
        counter = [field.counter_propagating for field in problem.fields]
        labels = problem.field_names if isinstance(labels, Sequence) and len(labels) == 0 else labels
    return complete(labels, [f"field {k}" for k in range(count)]), counter


def complete(labels: Sequence[str], defaults: Sequence[str]) -> list[str]:
    """The labels that were given, and the default of each that was not."""
    named = isinstance(labels, Sequence) and not isinstance(labels, str)  # a string has letters
    if not (named and all(isinstance(label, str) for label in labels)):
        fail("labels", "be a list of names", f"is {labels!r}")
    if len(labels) > len(defaults):
        fail("labels", f"be at most {len(defaults)}, one for each that is drawn", f"are {len(labels)}: {list(labels)}")
    both = zip([*labels, *[""] * len(defaults)], defaults, strict=False)
    return [readable(label or default) for label, default in both]


def readable(text: str) -> str:
    """A text that matplotlib can draw: cut where it is long, and without mathematics that it cannot read."""
    from matplotlib.mathtext import MathTextParser

    text = text.encode(errors="backslashreplace").decode()
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    try:
        MathTextParser("path").parse(text)
    except ValueError:
        return text.replace("$", r"\$")
    return text


def nearest(z: np.ndarray, positions: Any) -> list[int]:
    """Indices of the stored positions that are nearest to some.

    Raises:
        ProblemError: one is not between the first and the last.
    """
    wanted = np.atleast_1d(numbers("z", positions))
    if wanted.ndim != 1 or not len(wanted) or wanted.dtype.kind == "c":
        fail("z", "be one or several positions", f"is {positions!r}")
    rounding = 1e-6 * (z[-1] - z[0])
    for position in wanted:
        if not z[0] - rounding <= position <= z[-1] + rounding:
            fail("z", f"have positions from {z[0]:g} to {z[-1]:g}", f"has {position:g}")
    return [int(np.abs(z - position).argmin()) for position in wanted]
