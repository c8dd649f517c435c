"""What arguments have to be, said in one sentence each."""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from jax_kernel.parameters import fail


def check_number(
    name: str, value: Any, rule: str = "be a finite number", allowed: Callable[[float], bool] = math.isfinite
) -> float:
    """Refuse what is not a real number, or not an allowed one.

    Example:
        >>> check_number("tolerance", 1)
        1.0
    """
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = math.nan
    if not allowed(number):
        fail(name, rule, f"is {value!r}")
    return number


def check_positive(name: str, value: Any) -> float:
    """Refuse what is not a positive, finite number."""
    return check_number(name, value, "be positive", lambda number: 0 < number < math.inf)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Refuse what is not an integer, or is below the least one."""
    try:
        count = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = least - 1
    if count < least:
        fail(name, f"be an integer of at least {least}", f"is {value!r}")
    return count


def check_window(window: Any, *, point: bool = False) -> tuple[float, float]:
    """Refuse a window that does not run from its start to its end."""
    try:
        first, last = (check_number("window", edge) for edge in window)
    except (TypeError, ValueError):
        fail("window", "be two finite times, (start, end)", f"is {window!r}")
    if not (first < last or (point and first == last)):
        fail("window", "have its start before its end", f"is ({first:g}, {last:g})")
    return first, last


def check_time(time: Any, *, uniform: bool = False) -> torch.Tensor:
    """Refuse what is not a grid of times; for transforms, one that is not uniform."""
    if not isinstance(time, torch.Tensor) or time.ndim != 1 or time.dtype not in (torch.float32, torch.float64):
        kind = f"has shape {tuple(time.shape)} and {time.dtype}" if isinstance(time, torch.Tensor) else f"is {time!r}"
        fail("time", "be a tensor of shape (time,), float32 or float64", kind)
    if not bool(time.isfinite().all()):
        fail("time", "be finite", "has values that are not")
    if uniform:
        steps = time.detach().double().diff()
        scale = time.detach().double().abs().amax() if len(time) else 0.0
        rounding = 8 * torch.finfo(time.dtype).eps * scale
        if len(time) < 2 or not bool((steps.mean() > 0) & ((steps - steps.mean()).abs().amax() <= rounding)):
            fail("time", "be a uniform grid of at least two times, as the Fourier transform needs it", "is not")
    return time
