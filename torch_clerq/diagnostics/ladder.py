"""Central differences along one direction over a ladder of steps, and what they say about the function there."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

PER_DECADE = 2
PLATEAU = 6
"""Steps over which a jump must stay as high as it is."""


@dataclass(frozen=True)
class Ladder:
    """What differences along a direction found.

    Attributes:
        derivative: the central difference at the best step; nan if there is none.
        step: the best step.
        floor: how well it is known: the change to the neighbouring steps and the noise of the values.
        jump: height of a discontinuity at or beside the point, or 0.
        kink: change of slope at the point, or 0.
    """

    derivative: float
    step: float
    floor: float
    jump: float = 0.0
    kink: float = 0.0


def steps(size: float, eps: float) -> np.ndarray:
    """The ladder, descending.

    Args:
        size: largest modulus of what is varied.
        eps: rounding unit of its precision.

    Example:
        >>> steps(1.0, 2.2e-16)[[0, 1, -1]].round(10).tolist()
        [0.1, 0.0316227766, 1e-08]
    """
    top = 0.1 * max(size, 1.0)
    least = 0.7 * math.sqrt(eps) * (1 if eps < 1e-10 else 0.2)
    bottom = max(min(least, 100 * math.sqrt(eps) * size), 100 * eps * size) if size > 0 else least
    count = math.ceil(PER_DECADE * math.log10(top / bottom) - 1e-9)
    return top * 10.0 ** (-np.arange(min(count, 48) + 1) / PER_DECADE)


def climb(
    function: Callable[[float], float], at_zero: float, slope: float, size: float, noise: float, eps: float
) -> Ladder:
    """Central differences of a function of one number at 0.

    Args:
        function: its value, nan where it has none.
        at_zero: its value at 0.
        slope: what its derivative is said to be.
        size: largest modulus of what is varied.
        noise: how far a value moves by rounding alone.
        eps: rounding unit.
    """
    h = steps(size, eps)
    above, below = (np.asarray([function(sign * x) for x in h]) for sign in (1, -1))
    with np.errstate(all="ignore"):
        central = (above - below) / (2 * h)
        largest = np.fmax(np.fmax(np.abs(above), np.abs(below)), abs(at_zero))
        moved = np.abs(above - at_zero) + np.abs(below - at_zero)  # the points are rounded, too
        noisy = (np.fmax(noise, eps * largest) + eps * size / h * moved) / h
        change = np.abs(np.diff(central))
        beside = np.fmax(np.append(change, np.nan), np.insert(change, 0, np.nan)) + noisy
    if not np.any(np.isfinite(beside)):
        return Ladder(math.nan, math.nan, math.inf)
    best = int(np.nanargmin(np.where(np.isfinite(beside), beside, np.nan)))
    rounding = 100 * eps * np.fmax(largest, np.finfo(float).tiny)
    jump = _jump(h, above, below, at_zero, slope, rounding, np.fmax(10 * noise, rounding), eps)
    kink = _kink(h, above + below - 2 * at_zero, np.fmax(10 * noise, rounding)) if jump == 0 else 0.0
    return Ladder(float(central[best]), float(h[best]), float(beside[best]), jump, kink)


def _jump(h, above, below, at_zero, slope, rounding, floor, eps) -> float:
    """The height of a jump: what a linear function misses stays as it is while the step shrinks, or is gone at once."""
    one_sided = (above - at_zero - slope * h, below - at_zero + slope * h)
    for missed in (*one_sided, above - below - 2 * slope * h):
        for k in range(len(h) - PLATEAU + 1):
            part, after = missed[k : k + PLATEAU], missed[k + PLATEAU : k + PLATEAU + 1]
            stays = np.all(np.abs(part) > rounding[k : k + PLATEAU]) and np.ptp(part) < 0.01 * abs(part[-1])
            if stays and np.all(np.abs(after) < 0.5 * abs(part[-1])):
                return float(abs(part[-1]))
    sudden = eps**-0.38  # between two steps; a smooth function falls by their ratio or its square
    for missed in one_sided:
        above_floor = np.abs(missed) / floor
        for k, (here, closer) in enumerate(pairwise(above_floor)):
            if here > sudden and closer <= 1 and np.all(above_floor[k + 1 :] <= 1):
                return float(abs(missed[k]))
    return 0.0


def _kink(h, second, floor) -> float:
    """The change of slope: the second difference per step, where it stays as the steps shrink, as far as they tell."""
    usable = np.isfinite(second) & (np.abs(second) > floor)
    change = (second / h)[usable]
    if len(change) < PLATEAU or not usable[len(h) - 3 :].any():
        return 0.0
    last = change[-PLATEAU:]
    return float(abs(last[-1])) if np.ptp(last) < 0.02 * abs(last[-1]) else 0.0
