"""How fast two runs that start a rounding error apart move away from each other."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch


def one_ulp(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor times 1 + eps; eps itself where all of it is 0.

    Example:
        >>> one_ulp(torch.ones(1)).item() - 1 == torch.finfo(torch.float32).eps
        True
    """
    eps = torch.finfo(tensor.dtype).eps
    return tensor * (1 + eps) if bool(tensor.any()) else tensor + eps


class Growth:
    """The relative difference of two runs, step by step.

    In a run that contracts, a difference of a rounding error stays one. In a divergent (chaotic) one it grows by a
    factor a step, until the runs have nothing in common; no precision helps, it only delays the horizon.

    Args:
        tolerance: relative difference up to which two runs still count as the same.
        excess: growth since the first difference above which a run counts as divergent even before that.

    Attributes:
        relative: the relative difference at each step so far; nan counts as inf.

    Example:
        >>> growth = Growth()
        >>> for difference in (1e-16, 1e-13, 1e-10, 1e-7, 1e-4, 0.1):
        ...     growth.update(difference, scale=1.0)
        >>> growth.horizon, growth.of_order_one, growth.diverges, round(growth.factor)
        (4, True, True, 1000)
    """

    tolerance: float
    excess: float

    def __init__(self, *, tolerance: float = 1e-3, excess: float = 1e6):
        self.tolerance, self.excess = float(tolerance), float(excess)
        self.relative: list[float] = []

    @classmethod
    def of(cls, first: Iterable[Any], second: Iterable[Any], **options: float) -> "Growth":
        """The growth between two runs that are there already.

        Args:
            first: values or parameters at each step: numbers, arrays or tensors of any one shape.
            second: those of the other run.
            **options: those of the class.

        Example:
            >>> Growth.of([1.0, 2.0], [1.0, 2.5]).relative
            [0.0, 0.2]
        """
        growth = cls(**options)
        for a, b in zip(first, second, strict=True):
            a, b = (np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x) for x in (a, b))
            size = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)))
            growth.update(float(np.linalg.norm(a - b)), size)
        return growth

    def update(self, difference: float, scale: float) -> None:
        """Add one step.

        Args:
            difference: size of the difference of the two runs, in any norm.
            scale: size of what differs, in the same norm; where it is 0 there is no difference.
        """
        relative = 0.0 if difference == 0 else abs(difference) / scale if scale > 0 else math.inf
        self.relative.append(math.inf if math.isnan(relative) else relative)

    @property
    def start(self) -> float:
        """The first difference that is not 0, or 0."""
        return next((x for x in self.relative if x > 0), 0.0)

    @property
    def total(self) -> float:
        """The largest difference per first one; 1 where there is none."""
        return max(self.relative) / self.start if self.start > 0 else 1.0

    @property
    def factor(self) -> float:
        """Growth per step, the geometric mean from the first difference to the horizon, or to the largest one."""
        if self.start == 0:
            return 1.0
        first = self.relative.index(self.start)
        last = int(np.argmax(self.relative)) if self.horizon is None else self.horizon + 1
        last = min(last, len(self.relative) - 1)
        if last <= first or not math.isfinite(self.relative[last]):
            return 1.0 if last <= first else math.inf
        return (self.relative[last] / self.start) ** (1 / (last - first))

    @property
    def of_order_one(self) -> bool:
        """Whether the runs have nothing in common any more: a relative difference of a tenth."""
        return any(x >= 0.1 for x in self.relative)

    @property
    def exceeded(self) -> bool:
        """Whether the difference has grown by more than `excess` since it began."""
        return self.total > self.excess

    @property
    def horizon(self) -> int | None:
        """The last step up to which the runs agree within `tolerance`, −1 for none; None while they still do."""
        return next((step - 1 for step, x in enumerate(self.relative) if x > self.tolerance), None)

    @property
    def diverges(self) -> bool:
        """Whether a rounding error decides, or is about to decide, where the run goes."""
        return self.horizon is not None or self.exceeded

    def __repr__(self) -> str:
        latest = f"{self.relative[-1]:.1e}" if self.relative else "none"
        return f"Growth(steps={len(self.relative)}, latest={latest}, factor={self.factor:.3g}, horizon={self.horizon})"
