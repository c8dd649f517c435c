"""The training loop: any torch optimiser on any objective of a module, with nothing lost on the way."""

import copy
import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jax_kernel.errors import DivergenceWarning, ProblemError
from jax_kernel.parameters import fail

from .checkpoint import random_states, set_random_states
from .checks import check_count, check_number, check_positive
from .layers import refining, trained
from .loop import Diverged, History, Loop, Objective, Progress, check_loss, copied
from .optimizers import OptimizerLike, SchedulerLike
from .progress import Bar, interruptible

DECADES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True)
class Fit:
    """What a fit found; the module itself holds the best parameters.

    Attributes:
        value: the smallest value of the objective; with `batches`, its mean over the best pass.
        step: number of updates of the parameters that gave it.
        history: of all steps.
        evaluations: of the objective with its gradient, without those of the guard's copy.
        seconds: in all.
        stopped: "steps", "target", "patience", "callback", "interrupted", "converged" or "diverged".
        verified: the value at twice the resolution of every layer, or None: where there is none to double, with
            `batches`, and after an interruption.
        diverging: what the guard saw, or None.
    """

    value: float
    step: int
    history: History
    evaluations: int
    seconds: float
    stopped: str
    verified: float | None
    diverging: str | None

    def __str__(self) -> str:
        count = len(self.history.values)
        verified = "" if self.verified is None else f", {self.verified:.6g} at twice the resolution"
        lines = [
            f"Fit: best {self.value:.6g} at step {self.step} of {count}{verified}",
            f"  stopped by {self.stopped}; {self.evaluations} evaluations, {self.seconds:.1f} s",
        ]
        return "\n".join(lines if self.diverging is None else [*lines, f"  {self.diverging}"])


@torch.inference_mode(False)
@torch.enable_grad()
def fit(
    module: nn.Module,
    objective: Objective,
    *,
    steps: int = 100,
    optimizer: OptimizerLike = "adam",
    learning_rate: float | None = None,
    scheduler: SchedulerLike = None,
    batches: Iterable[Any] | None = None,
    max_grad_norm: float | None = None,
    target: float | None = None,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    verify: bool = True,
    guard: bool = True,
    progress: bool | Callable[[float], str] = True,
    callbacks: Iterable[Callable[[Progress], bool | None]] = (),
) -> Fit:
    """Minimise an objective of a module's parameters by gradient steps; the module is left with the best ones.

    The best parameters of all evaluations are kept, Ctrl-C ends the fit after the step at hand with the best so far,
    and whatever the objective raises leaves them in the module, too. Gradients are None at the end.

    Gradients that are tiny everywhere, as of an efficiency of 1e-9, are scaled by a constant factor for optimisers that
    do not mind (Adam and its kin without weight decay, and L-BFGS), whose own thresholds would take them for zero.
    A layer that searches its own resolution is asked to search on where the pulses or parameters have outgrown what it
    found (see `TorchPropagator.search_again`), so that an optimiser cannot feed on the error of a grid.
    L-BFGS starts anew from the steepest descent where a step does not move it, and trial steps of its line search at
    which the medium cannot be resolved, or a parameter breaks a rule, count as bad, not as errors.

    Args:
        module: what is trained. A `TorchPropagator` should be a part of it (`Driven` joins controls and a layer), so
            that its resolution is verified, and kept in checkpoints.
        objective: a function of the module (and of a batch, with `batches`) that returns the real scalar to minimise.
        steps: updates of the parameters.
        optimizer: name of one in `torch.optim` ("adam", "lbfgs", …), its class, a function of the parameters that
            returns one, or one. "lbfgs" is torch's with a strong Wolfe line search, a step of `fit` being one of its
            iterations.
        learning_rate: of an optimiser given by name or class; torch's own default without; see `learning_rate_scan`.
        scheduler: "cosine" (to 0 over the steps), or a function of the optimiser that returns a scheduler of torch.
        batches: what the objective's second argument runs over, such as a DataLoader, again and again.
        max_grad_norm: norm to which longer gradients are cut.
        target: value at which the fit ends.
        patience: steps, or with `batches` passes over them, without a new best value after which it ends.
        checkpoint: a file that is written after every step, whole or not at all, so that a process that is killed loses
            one step at most. Where it exists, the fit goes on from it, and every later number is to the bit that of a
            run without a break, as long as the objective's randomness is that of torch, NumPy and `random`. Move it
            away to start anew.
        verify: whether the best value is computed again at twice the resolution of every layer in the module, with a
            `ResolutionWarning` where the difference is more than a hundredth of what the fit has gained. Not with
            `batches`.
        guard: whether to watch for a fit that runs away or has become chaotic, with a `DivergenceWarning`; see `Guard`.
        progress: whether to show a bar with the time to come; or a function that makes the text to show of the value
            of a step, a number.
        callbacks: called with a `Progress` after each step; one that returns True ends the fit.

    Returns:
        A `Fit`.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> from torch_clerq import Problem, TorchPropagator, fit
        >>> problem = Problem.from_dict({
        ...     "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}], "fields": [
        ...         {"coupled_levels": [[0, 1]], "rabi_freq": 1e-3, "rabi_freq_t_func": "ramp_on",
        ...          "rabi_freq_t_args": {"ampl": 1.0, "on": 1.0, "fwhm": 0.5}}]},
        ...     "t_max": 8.0, "interaction_strengths": [1.0]})
        >>> medium = TorchPropagator(problem, trainable=("interaction_strengths",), dtype=torch.float64)
        >>> def squared_error(medium):  # half of the amplitude is to leave
        ...     fields = medium()
        ...     return ((fields[0, -1, -1] / fields[0, 0, -1]).abs() - 0.5) ** 2
        >>> found = fit(medium, squared_error, optimizer="lbfgs", steps=20, target=1e-14, progress=False)
        >>> found.stopped, round(medium.interaction_strengths.item(), 4)  # Beer–Lambert: ln(2)/2
        ('target', 0.3466)
    """
    _check(module, objective, steps)
    if patience is not None:
        check_count("patience", patience)
    if target is not None:
        target = check_number("target", target, "be a number", lambda number: not math.isnan(number))
    if not isinstance(progress, bool) and not callable(progress):
        fail("progress", "be True, False or a function of a value", f"is {progress!r}")
    callbacks = tuple(callbacks) if isinstance(callbacks, Iterable) else (callbacks,)
    if not all(map(callable, callbacks)):
        fail("callbacks", "be functions of a `Progress`", f"are {callbacks!r}")
    if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
        fail("checkpoint", "be a path", f"is {checkpoint!r}")
    loop = Loop(module, objective, steps, batches, max_grad_norm, guard)
    loop.equip(optimizer, learning_rate, scheduler)
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        loop.resume(path)
        loop.check_saving(path)
    describe = progress if callable(progress) else "value {:.4g}".format
    promise = "the best so far will be kept"
    stopped = "target" if loop.step and target is not None and loop.best <= target else "steps"
    try:
        with (
            interruptible(promise) as interrupted,
            refining(module),
            Bar(steps, describe, quiet=not progress, done=loop.step) as bar,
        ):
            while loop.step < steps and stopped == "steps":
                moved = loop.advance()
                if path is not None:
                    loop.save(path)
                at = loop.at()
                bar(loop.step, at.value)
                asked = [bool(callback(at)) for callback in callbacks]
                reasons = {
                    "interrupted": interrupted(),
                    "callback": any(asked),
                    "target": target is not None and loop.best <= target,
                    "converged": not moved,
                    "patience": patience is not None and loop.round - loop.best_round >= patience,
                }
                stopped = next((reason for reason, given in reasons.items() if given), "steps")
            loop.look_at_the_end()
    except Diverged as trouble:
        stopped = "diverged"
        loop.guard.say(str(trouble))
    except BaseException as error:
        loop.restore()
        error.add_note(f"The module holds the best parameters of the {loop.step} steps before this error.")
        raise
    loop.restore()
    verified = loop.verified() if verify and stopped != "interrupted" and math.isfinite(loop.best) else None
    return Fit(
        value=loop.best,
        step=loop.best_step,
        history=loop.history,
        evaluations=loop.evaluations,
        seconds=loop.seconds,
        stopped=stopped,
        verified=verified,
        diverging=loop.guard.said,
    )


@dataclass(frozen=True)
class LearningRateScan:
    """What some steps at each of several learning rates have reached.

    Attributes:
        learning_rates: ascending.
        values: smallest value of the objective at each.
        verdicts: "diverges", "slow" or "descends".
        start: value before the first step.
        best: the rate that reached the smallest value of those that descend, or None.
    """

    learning_rates: tuple[float, ...]
    values: tuple[float, ...]
    verdicts: tuple[str, ...]
    start: float
    best: float | None

    def __str__(self) -> str:
        lines = [f"learning rate    smallest value (from {self.start:.6g})"]
        for rate, value, verdict in zip(self.learning_rates, self.values, self.verdicts, strict=True):
            mark = "  <- fastest" if rate == self.best else ""
            lines.append(f"{rate:13.3g}    {value:14.6g}  {verdict}{mark}")
        return "\n".join(lines)


@torch.inference_mode(False)
@torch.enable_grad()
def learning_rate_scan(
    module: nn.Module,
    objective: Objective,
    *,
    learning_rates: Sequence[float] = DECADES,
    steps: int = 20,
    optimizer: OptimizerLike = "adam",
) -> LearningRateScan:
    """Try learning rates on copies of a module, to find the range that descends and is not slow.

    Args:
        module: what is to be trained; it stays as it is, and so do random numbers, which are the same at each rate.
        objective: as in `fit`.
        learning_rates: what is tried, positive.
        steps: of each.
        optimizer: a name or a class, as in `fit`.

    Returns:
        A `LearningRateScan`. A rate diverges where the guard of `fit` says so, the value is not finite or the last
        value is above the first; it is slow where it gains less than a tenth of what the best one gains.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> from torch_clerq import learning_rate_scan
        >>> bowl = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.constant_(bowl.weight, 1.0)
        >>> scan = learning_rate_scan(bowl, lambda bowl: bowl.weight.square().sum(), optimizer="sgd",
        ...                           learning_rates=(1e-3, 0.1, 2.0))
        >>> scan.verdicts, scan.best
        (('slow', 'descends', 'diverges'), 0.1)
    """
    _check(module, objective, steps)
    try:
        rates = tuple(sorted(check_positive("learning_rates", rate) for rate in learning_rates))
    except (TypeError, ProblemError):
        rates = ()
    if not rates:
        fail("learning_rates", "be positive numbers, at least one", f"is {learning_rates!r}")
    before, random = copied(module), random_states()
    with torch.no_grad():
        # a layer that has yet to find its resolution finds it here, once for all
        start = float(check_loss(objective(module), constant=True))
    module.load_state_dict(before)
    values, diverges = [], []
    for rate in rates:
        set_random_states(random)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergenceWarning)
            found = fit(
                copy.deepcopy(module), objective, steps=steps, optimizer=optimizer, learning_rate=rate,
                verify=False, progress=False,
            )  # fmt: skip
        set_random_states(random)
        if found.stopped == "interrupted":
            raise KeyboardInterrupt
        values.append(found.value)
        diverges.append(found.diverging is not None or found.history.values[-1] > start)
    gains = [0.0 if bad else start - value for bad, value in zip(diverges, values, strict=True)]
    most = max(gains)
    verdicts = tuple(
        "diverges" if bad else "slow" if gain < 0.1 * most or most <= 0 else "descends"
        for bad, gain in zip(diverges, gains, strict=True)
    )
    best = rates[gains.index(most)] if most > 0 else None
    return LearningRateScan(rates, tuple(values), verdicts, start, best)


def _check(module: Any, objective: Any, steps: Any) -> None:
    trained(module)
    if not callable(objective):
        fail("objective", "be a function of the module", f"is {objective!r}")
    check_count("steps", steps)
