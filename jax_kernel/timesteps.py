"""Where the integrator steps: the problem's time grid, divided, and split at the jumps of the pulses. NumPy."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class TimeSteps(NamedTuple):
    """The steps of one run; NumPy arrays, all of them run-time arguments of the executable.

    Attributes:
        h: step lengths, shape (segment, step); at the end at least one of length 0, which shows the state there.
        stage_times: times of the stages, shape (segment · step · stage,).
        inside: the middle of each stage's step, which decides on which side of a jump the stage lies; same shape.
        at: which step starts at each saved time, shape (saved,).
    """

    h: np.ndarray
    stage_times: np.ndarray
    inside: np.ndarray
    at: np.ndarray


def build(
    saved: np.ndarray, substeps: int, jumps: Sequence[float], stages: np.ndarray, steps_per_segment: int | None
) -> TimeSteps:
    """Divide each interval of the saved times, and each part of one that a jump cuts, into `substeps` equal steps.

    Args:
        saved: times at which the solution is kept, increasing, shape (saved,).
        substeps: steps per interval.
        jumps: times that a step must not straddle.
        stages: times of the stages within a step of length 1.
        steps_per_segment: steps between two checkpoints, or None for a single segment.
    """
    close = 1e-9 * (saved[-1] - saved[0])
    inner = [t for t in sorted(set(jumps)) if saved[0] < t < saved[-1] and np.min(np.abs(saved - t)) > close]
    edges = np.sort(np.concatenate([saved, inner]))
    fraction = np.arange(substeps) / substeps
    starts = (edges[:-1, None] + np.diff(edges)[:, None] * fraction).ravel()
    h = np.repeat(np.diff(edges) / substeps, substeps)
    at = np.searchsorted(edges, saved) * substeps
    per_segment = len(h) + 1 if steps_per_segment is None else steps_per_segment
    padding = per_segment - len(h) % per_segment
    h = np.concatenate([h, np.zeros(padding)])
    starts = np.concatenate([starts, np.full(padding, saved[-1])])
    stage_times = (starts[:, None] + h[:, None] * stages).ravel()
    inside = np.repeat(starts + h / 2, len(stages))
    return TimeSteps(h.reshape(-1, per_segment), stage_times, inside, at)


class Twin(NamedTuple):
    """Another run of the same problem, whose difference from the run gives the time error (Richardson).

    Attributes:
        steps: its steps.
        share: error of the run per difference of the two.
    """

    steps: TimeSteps
    share: float


def twin(time: np.ndarray, substeps: int, jumps: Sequence[float], stages: np.ndarray, order: int) -> Twin:
    """About half the substeps; twice as many where there is but one; `order` is that of the errors."""
    other = (substeps + 1) // 2 if substeps > 1 else 2
    return Twin(build(time, other, jumps, stages, None), 1 / abs((substeps / other) ** order - 1))
