"""Watches a fit for divergence: a loss that runs away, and steps that turn a rounding into something else."""

import contextlib
import copy
import math
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from jax_kernel.errors import DivergenceWarning, PropagationError, warn

from . import checkpoint
from .diagnostics.growth import Growth, one_ulp

CURE = "lower the learning rate (`learning_rate_scan` finds one that descends), or set `max_grad_norm`"
WINDOW = 8
"""Steps over which a disturbed copy runs beside."""

LONGEST, FASTER = 200, 1.2
"""Steps over which the copy runs at most, and the growth of the difference per step from which on it runs longer."""

PARTED = 1e-2
"""Part of the objective from which on a difference between two courses says that they have parted."""


class Guard:
    """What `fit` asks whether the course still means anything.

    Two signs are watched. The objective and its gradient grow: the value has risen above the start by ten times what
    had been gained, with a gradient a hundred times as long as those of the first steps. Or a disturbance grows: over
    the first eight steps, and again from step 100, 1000 and so on, a copy of the module whose parameters differ by one
    rounding makes the same steps, and goes on with them as long as the difference of the two values grows by a fifth
    each time; where it has grown to a hundredth of the value, no later number can be reproduced on another machine.
    The copy costs as much as these steps, and leaves the random numbers of torch, NumPy and `random` as they are.

    Args:
        enabled: whether to look.
        patience: steps in a row that the objective must have grown in, more than one where each sees another batch.
    """

    patience: int
    grown: int
    best: Any
    since: int
    growth: Growth

    def __init__(self, enabled: bool = True, patience: int = 1):
        self.enabled = enabled
        self.patience, self.grown = patience, 0
        self.said: str | None = None
        self.start: float | None = None
        self.best = math.inf
        self.norms: list[float] = []
        self.twin: tuple[nn.Module, Optimizer] | None = None
        self.since, self.growth = 0, Growth()
        self.random: dict[str, Any] = {}

    def state(self) -> list[Any]:
        """What a checkpoint keeps: a copy that runs beside is not among it."""
        return [self.said, self.start, self.best, self.norms]

    def load(self, state: list[Any]) -> None:
        """Go on from `state`."""
        self.said, self.start, self.best, self.norms = state

    def before_step(self, module: nn.Module, optimizer: Optimizer, step: int) -> None:
        """Make the copy where one is due, and note the random numbers that the step will begin with."""
        if not self.enabled or isinstance(optimizer, torch.optim.LBFGS):
            return  # whose line search decides by comparing, so that its course parts at any rounding
        if step == 0 or (step >= 100 and math.log10(step).is_integer()):
            with contextlib.suppress(RuntimeError, TypeError, NotImplementedError):  # of what cannot be copied
                self.twin, self.since = copy.deepcopy((module, optimizer)), step
                self.growth = Growth(tolerance=PARTED)
                with torch.no_grad():
                    for p in self.twin[0].parameters():
                        if p.requires_grad:
                            p.copy_(one_ulp(p))
        if self.twin is not None:
            self.random = checkpoint.random_states()

    def after_step(
        self,
        step: int,
        optimizer: Optimizer,
        descend: Callable[[nn.Module, Optimizer], float | None],
        value: float,
        norm: float,
    ) -> None:
        """Look at the value and the gradient's norm before a step, and let the copy make the step `descend`, too.

        That returns the copy's value, or None if the objective does not depend on the module it is given.
        """
        if not self.enabled or self.said is not None:
            return
        self.start = value if self.start is None else self.start
        gained = max(self.start - self.best, 0.1 * abs(self.start))
        grown = value - self.start > 10 * gained and norm > 100 * statistics.median(self.norms or [math.inf])
        self.grown = self.grown + 1 if grown else 0
        if self.grown >= self.patience:
            self.say(f"the objective has grown from {self.start:.3g} to {value:.3g}, its gradient to {norm:.3g}")
        self.best = min(self.best, value)
        if len(self.norms) < 10:
            self.norms.append(norm)
        if self.twin is not None:
            self._compare(step, optimizer, descend, value)

    def _compare(self, step, optimizer, descend, value) -> None:
        assert self.twin is not None
        module, its = self.twin
        for group, original in zip(its.param_groups, optimizer.param_groups, strict=True):
            group |= {name: value for name, value in original.items() if name != "params"}  # as schedulers leave them
        after = checkpoint.random_states()
        checkpoint.set_random_states(self.random)
        other = None
        try:
            with contextlib.suppress(PropagationError):
                other = descend(module, its)
        finally:
            checkpoint.set_random_states(after)
        if other is None:
            self.twin = None
            return
        taken = step - self.since
        self.growth.update(other - value, max(abs(value), abs((self.start or 0.0) - self.best)))
        if self.growth.horizon is not None and self.growth.total > 100:
            self.say(
                f"a change of the parameters by one rounding has changed the objective from {value:.3g} to {other:.3g} "
                f"after {taken} steps, so that no number from here on can be reproduced"
            )
        calm = self.growth.relative[-1] <= self.growth.start * FASTER**taken
        if (taken >= WINDOW and calm) or taken >= LONGEST or self.said is not None:
            self.twin = None

    def say(self, text: str) -> None:
        """Warn, once."""
        self.said = text
        warn(f"The fit diverges: {text}. Its best parameters are kept; {CURE}.", DivergenceWarning)
