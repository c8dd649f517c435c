"""Where the integrator steps: the problem's time grid, divided or joined, split at the jumps of the pulses. NumPy."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np


class TimeSteps(NamedTuple):
    """The steps of one run; NumPy arrays, all of them run-time arguments of the executable.

    Attributes:
        h: step lengths, shape (segment, step); at the end at least one of length 0, which shows the state there.
        stage_times: times of the stages, shape (segment · step · stage,).
        inside: the middle of each stage's step, which decides on which side of a jump the stage lies; same shape.
        at: which step starts at or before each saved time, shape (saved,).
        hermite: weights of the value there, at the start of the next step, and of the two slopes (cubic Hermite
            interpolation), shape (4, saved); None where every saved time is the start of a step.
    """

    h: np.ndarray
    stage_times: np.ndarray
    inside: np.ndarray
    at: np.ndarray
    hermite: np.ndarray | None


def build(
    saved: np.ndarray,
    substeps: int | Fraction,
    jumps: Sequence[float],
    stages: np.ndarray,
    steps_per_segment: int | None,
) -> TimeSteps:
    """Divide each interval of the saved times, and each part of one that a jump cuts, into `substeps` equal steps.

    Args:
        saved: times at which the solution is kept, increasing, shape (saved,).
        substeps: steps per interval; 1/n joins n intervals to one step.
        jumps: times that a step must not straddle.
        stages: times of the stages within a step of length 1.
        steps_per_segment: steps between two checkpoints, or None for a single segment.
    """
    joined, divided = (1, int(substeps)) if substeps >= 1 else (round(1 / substeps), 1)
    grid = np.union1d(saved[::joined], saved[-1:])
    close = 1e-9 * (saved[-1] - saved[0])
    inner = [t for t in sorted(set(jumps)) if saved[0] < t < saved[-1] and np.min(np.abs(grid - t)) > close]
    edges = np.sort(np.concatenate([grid, inner]))
    lengths = np.diff(edges)
    starts = (edges[:-1, None] + lengths[:, None] * (np.arange(divided) / divided)).ravel()
    h = np.repeat(lengths / divided, divided)
    middles = starts + h / 2
    hermite = None
    if joined == 1:
        at = np.searchsorted(edges, saved) * divided
    else:
        cuts = 1 + np.flatnonzero([np.any(np.abs(t - np.asarray(jumps)) <= close) for t in edges[1:-1]])
        at = np.clip(np.searchsorted(edges, saved, side="right") - 1, 0, len(h) - 1)
        hermite = _hermite((saved - edges[at]) / lengths[at], lengths[at])
        at = at + np.searchsorted(cuts, at, side="right")
        # a step of length 0 ends the one before a jump, whose slope there is not that of the one after
        before = middles[cuts - 1]
        starts, h, middles = (np.insert(x, cuts, y) for x, y in ((starts, edges[cuts]), (h, 0.0), (middles, before)))
    per_segment = len(h) + 1 if steps_per_segment is None else steps_per_segment
    padding = per_segment - len(h) % per_segment
    starts = np.concatenate([starts, np.full(padding, saved[-1])])
    middles = np.concatenate([middles, np.full(padding, middles[-1])])
    h = np.concatenate([h, np.zeros(padding)])
    stage_times = (starts[:, None] + h[:, None] * stages).ravel()
    return TimeSteps(h.reshape(-1, per_segment), stage_times, np.repeat(middles, len(stages)), at, hermite)


def _hermite(x: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Weights of the values at both ends and of the slopes there, at the part x of a step."""
    rest = 1 - x
    return np.stack([(1 + 2 * x) * rest**2, x**2 * (3 - 2 * x), length * x * rest**2, -length * x**2 * rest])


class Twin(NamedTuple):
    """Another run of the same problem, whose difference from the run gives the time error (Richardson).

    Attributes:
        steps: its steps.
        share: error of the run per difference of the two.
    """

    steps: TimeSteps
    share: float


def twin(time: np.ndarray, substeps: int | Fraction, jumps: Sequence[float], stages: np.ndarray, order: int) -> Twin:
    """About half the substeps; about twice as many where there is but one; `order` is that of the errors."""
    other: int | Fraction = 2 if substeps == 1 else Fraction(1, max(1, round(1 / substeps) // 2))
    if substeps > 1:
        other = (int(substeps) + 1) // 2
    return Twin(build(time, other, jumps, stages, None), 1 / abs(float(substeps / other) ** order - 1))
