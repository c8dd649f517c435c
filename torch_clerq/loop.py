"""The state of a fit between two steps, and what a step does with it."""

import contextlib
import copy
import math
import pickle
import time as clock
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau

from jax_kernel.errors import ProblemError, PropagationError, ResolutionError, ResolutionWarning, warn
from jax_kernel.parameters import fail

from . import checkpoint
from .checks import check_positive
from .guard import Guard
from .layers import propagators, trained, twice_the_resolution
from .optimizers import OptimizerLike, SchedulerLike, make, make_optimizer

Objective = Callable[..., torch.Tensor]

SMALL_GRADIENT = 1e-3
"""Largest component below which a gradient is scaled to 1 for optimisers whose own thresholds would take it for 0."""


@dataclass(frozen=True)
class Progress:
    """Where a fit stands after a step, for callbacks.

    Attributes:
        step: number of the step, from 1.
        steps: how many there will be.
        value: of the objective at the parameters before the step.
        best: smallest value so far.
        gradient_norm: Euclidean norm of the gradient of `value`.
        learning_rate: with which the step was made.
        evaluations: of the objective with its gradient, so far.
        seconds: since the fit began, those of an earlier run included.
        module: what is trained, with the parameters after the step.
    """

    step: int
    steps: int
    value: float
    best: float
    gradient_norm: float
    learning_rate: float
    evaluations: int
    seconds: float
    module: nn.Module


@dataclass
class History:
    """One entry per step of `fit`: see `Progress`."""

    values: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class Diverged(Exception):
    """The objective or its gradient is not finite."""


class Loop:
    """The state of a fit between two steps, and what a step does with it."""

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        steps: int,
        batches: Iterable[Any] | None,
        max_grad_norm: float | None,
        guard: bool,
    ):
        self.module, self.objective, self.steps = module, objective, steps
        self.batches, self.max_grad_norm = batches, max_grad_norm
        self.parameters: list[Any] = list(trained(module).values())
        if max_grad_norm is not None:
            check_positive("max_grad_norm", max_grad_norm)
        if batches is not None and not isinstance(batches, Iterable) and not hasattr(batches, "__getitem__"):
            fail("batches", "be what a loop can run over, such as a DataLoader", f"is {batches!r}")
        self.searching = [layer for _, layer in propagators(module) if layer.resolved is not None]
        self.guard = Guard(guard, patience=1 if batches is None else 5)
        self.history = History()
        self.step = self.evaluations = self.best_step = 0
        self.round = self.best_round = 0  # of a step or, with batches, of a pass over them
        self.best, self.best_state = math.inf, copied(module)
        self.scale: float | None = None
        self.memo: dict[str, Any] | None = None
        self.begin, self.earlier = clock.perf_counter(), 0.0
        self.pass_values: list[float] = []
        self.pass_start: dict[str, Any] | None = None
        self.iterator: Iterator[Any] | None = None

    def equip(self, optimizer: OptimizerLike, learning_rate: float | None, scheduler: SchedulerLike) -> None:
        """Make the optimiser and its scheduler."""
        self.optimizer = make_optimizer(optimizer, self.parameters, learning_rate)
        trained = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        if not trained & {id(p) for p in self.parameters}:
            fail("optimizer", "hold parameters of the module", "holds others")
        self.searches = isinstance(self.optimizer, torch.optim.LBFGS)
        decays = any(group.get("weight_decay") for group in self.optimizer.param_groups)
        adaptive = "eps" in self.optimizer.defaults and not decays
        self.scales = self.searches or adaptive
        if scheduler == "cosine":
            scheduler = lambda one: CosineAnnealingLR(one, T_max=self.steps)  # noqa: E731
        if scheduler is not None and not callable(scheduler):
            fail("scheduler", 'be "cosine" or a function of the optimiser', f"is {scheduler!r}")
        self.scheduler = None if scheduler is None else make("scheduler", scheduler, self.optimizer)
        if scheduler is not None and (not hasattr(self.scheduler, "step") or isinstance(self.scheduler, Optimizer)):
            fail("scheduler", "return a scheduler of torch", f"returned {self.scheduler!r}")
        lasts = f" over {self.steps} steps" if isinstance(self.scheduler, CosineAnnealingLR) else ""
        self.kind = {
            "module": [[name, str(getattr(value, "dtype", "")), list(getattr(value, "shape", ()))]
                       for name, value in self.module.state_dict().items()],
            "optimizer": [type(self.optimizer).__name__, _plain(self.optimizer.defaults),
                          [len(group["params"]) for group in self.optimizer.param_groups]],
            "scheduler": type(self.scheduler).__name__ + lasts,
            "batches": self.batches is not None,
        }  # fmt: skip

    @property
    def seconds(self) -> float:
        return self.earlier + clock.perf_counter() - self.begin

    # One step

    def advance(self) -> bool:
        """One update of the parameters; whether it moved them, or another batch may."""
        self.round += self.batches is None
        self._refine()
        batch = self._next_batch()
        arguments = () if self.batches is None else (batch,)
        if self.batches is not None:
            self.memo = None
        before = [p.detach().clone() for p in self.parameters]
        rate = float(self.optimizer.param_groups[0]["lr"])
        first: list[tuple[float, float]] = []

        def closure() -> Any:  # a tensor, where torch's own annotation has a number
            loss, norm = self._evaluate(arguments, trial=bool(first))
            first.append((float(loss), norm))
            return loss * (self.scale or 1.0) if self.searches else loss

        self.guard.before_step(self.module, self.optimizer, self.step)
        if self.searches:
            self._rescale()
            self.optimizer.step(closure)
        else:
            closure()
            self.optimizer.step()
        value, norm = first[0]
        moved = not _same(before, self.parameters)
        if not moved and self.searches and self.optimizer.state:  # a direction that does not descend: forget the past
            self.optimizer.state.clear()
            self.scale, self.memo = None, None
            self.optimizer.step(closure)
            moved = not _same(before, self.parameters)
        self.step += 1

        def descend(module: nn.Module, optimizer: Optimizer) -> float | None:
            parameters = [p for p in module.parameters() if p.requires_grad]
            optimizer.zero_grad()
            loss = self.objective(module, *arguments)
            loss.backward()
            if all(p.grad is None for p in parameters):
                return None
            self._treat(parameters)
            optimizer.step()
            return float(loss.detach())

        self.guard.after_step(self.step, self.optimizer, descend, value, norm)
        self._schedule(value)
        history = self.history
        history.values.append(value)
        history.gradient_norms.append(norm)
        history.learning_rates.append(rate)
        history.evaluations.append(self.evaluations)
        history.seconds.append(self.seconds)
        self.pass_values.append(value)
        return moved or self.batches is not None or (norm > 0 and not self.searches)

    def _schedule(self, value: float) -> None:
        try:
            if isinstance(self.scheduler, ReduceLROnPlateau):
                self.scheduler.step(value)
            elif self.scheduler is not None:
                self.scheduler.step()
        except ValueError as error:  # one that was made for fewer steps
            text = f"Argument `scheduler` must last for all {self.steps} steps, but at step {self.step}: {error}."
            raise ProblemError(text) from error

    def _refine(self) -> None:
        """Let layers that have outgrown the resolution they found search on, and judge the best parameters by it."""
        outgrown = [layer for layer in self.searching if layer.watch.outgrown]
        for layer in outgrown:
            layer.watch.outgrown = False
            layer.search_again()
        if outgrown and self.batches is None and self.step:
            now, self.memo = copied(self.module), None
            self.restore()
            with torch.no_grad():
                self.best = float(self.objective(self.module))
            self.module.load_state_dict(now)

    def _evaluate(self, arguments: tuple[Any, ...], trial: bool) -> tuple[torch.Tensor, float]:
        """The objective, with the gradients in place, and their norm before any scaling."""
        if self.memo is not None and _same(self.memo["parameters"], self.parameters):
            for p, gradient in zip(self.parameters, self.memo["gradients"], strict=True):
                p.grad = gradient.clone()
            return self.memo["loss"], self.memo["norm"]
        self._forget_gradients()
        self.evaluations += 1
        try:
            with torch.enable_grad():
                loss = self.objective(self.module, *arguments)
            check_loss(loss)
            loss.backward()
        except (ProblemError, ResolutionError):
            if not trial:
                raise
            loss = torch.full((), math.nan)
        loss = loss.detach()
        if self.evaluations == 1 and all(p.grad is None for p in self.parameters):
            _refuse_loss("one that does not depend on any parameter")
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        norm = math.sqrt(sum(float(g.abs().square().sum()) for g in gradients))
        if not (math.isfinite(float(loss)) and math.isfinite(norm)):
            if trial:  # of a line search: worse than anything, and flat
                for p in self.parameters:
                    p.grad = torch.zeros_like(p)
                return torch.full_like(loss, 1e3 * (1 + abs(self.history.values[-1] if self.step else self.best))), 0.0
            raise Diverged(
                f"the objective became {float(loss):g} with a gradient of norm {norm:g} at step {self.step + 1}"
            )
        if self.batches is None:
            self._offer(float(loss), self.step + int(trial))
        if self.scale is None:
            peak = max(float(g.abs().max()) for g in gradients if g.numel())
            needed = self.scales and peak > 0 and (self.searches or peak < SMALL_GRADIENT)
            self.scale = 1 / peak if needed else 1.0
        self._treat(self.parameters)
        if self.searches:
            self.memo = {
                "parameters": [p.detach().clone() for p in self.parameters],
                "gradients": [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self.parameters],
                "loss": loss,
                "norm": norm,
            }
        return loss, norm

    def _treat(self, parameters: list[nn.Parameter]) -> None:
        """Cut long gradients, and scale those that an optimiser's threshold would take for zero."""
        if self.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
        if self.scale is not None and self.scale != 1.0:
            for p in parameters:
                if p.grad is not None:
                    p.grad.mul_(self.scale)

    def _rescale(self) -> None:
        """Bring gradients that have become small back to one, with all that L-BFGS remembers of earlier ones.

        It takes a product of a step and a change of the gradient below 1e-10 for rounding, and learns no more.
        """
        if self.memo is None:
            return
        peak = max(float(g.abs().max()) for g in self.memo["gradients"] if g.numel())
        if not 0 < peak < SMALL_GRADIENT:
            return
        state = self.optimizer.state[self.optimizer.param_groups[0]["params"][0]]
        self.scale = (self.scale or 1.0) / peak
        for gradient in self.memo["gradients"]:
            gradient.div_(peak)
        if not state.keys() >= {"old_dirs", "prev_flat_grad", "prev_loss", "H_diag", "ro"}:  # of another torch
            self.optimizer.state.clear()
            return
        for remembered in (*state["old_dirs"], state["prev_flat_grad"]):
            remembered.div_(peak)
        state["prev_loss"] /= peak
        state["H_diag"] = state["H_diag"] * peak
        state["ro"] = [inverse * peak for inverse in state["ro"]]

    def _forget_gradients(self) -> None:
        for p in self.parameters:
            p.grad = None

    def _offer(self, value: float, step: int) -> None:
        """Keep the parameters, those after some step, if they are the best so far."""
        if value < self.best:
            self.best, self.best_step, self.best_round = value, step, self.round
            self.best_state = copied(self.module)

    # Batches

    def _next_batch(self) -> Any:
        if self.batches is None:
            return None
        if self.iterator is None:
            self._start_pass()
        assert self.iterator is not None
        try:
            return next(self.iterator)
        except StopIteration:
            self._end_pass()
            self._start_pass()
        try:
            return next(self.iterator)
        except StopIteration:
            fail("batches", "hold a batch, and run anew for each pass", "is empty, or an iterator that has ended")

    def _start_pass(self) -> None:
        assert self.batches is not None
        self.pass_start, self.pass_values = checkpoint.random_states(), []
        self.iterator = iter(self.batches)

    def _end_pass(self) -> None:
        if self.pass_values:
            self.round += 1
            self._offer(sum(self.pass_values) / len(self.pass_values), self.step)

    # Before and after

    def at(self) -> Progress:
        history = self.history
        return Progress(
            step=self.step,
            steps=self.steps,
            value=history.values[-1],
            best=self.best,
            gradient_norm=history.gradient_norms[-1],
            learning_rate=history.learning_rates[-1],
            evaluations=self.evaluations,
            seconds=self.seconds,
            module=self.module,
        )

    def look_at_the_end(self) -> None:
        """The value after the last step, or of the last pass over the batches, if it is whole or the only one."""
        if self.batches is not None:
            whole = self.iterator is not None and next(self.iterator, self) is self
            if whole or not math.isfinite(self.best):
                self._end_pass()
        elif self.memo is None or not _same(self.memo["parameters"], self.parameters):
            with torch.no_grad(), contextlib.suppress(PropagationError):
                value = float(self.objective(self.module))
                self._offer(value if math.isfinite(value) else math.inf, self.step)

    def restore(self) -> None:
        """Put the best parameters into the module, without a gradient, which would be that of others."""
        self.module.load_state_dict(self.best_state)
        self._forget_gradients()

    def verified(self) -> float | None:
        """The best value at twice the resolution of every layer, or None."""
        with twice_the_resolution(self.module) as kept:
            if not kept or self.batches is not None:
                return None
            value = math.nan
            with torch.no_grad(), contextlib.suppress(PropagationError):
                value = float(self.objective(self.module))
        self.restore()  # buffers that an evaluation changes
        gained = abs(self.history.values[0] - self.best) if self.history.values else 0.0
        if not abs(value - self.best) <= 0.01 * max(gained, 1e-9 * abs(self.best)):
            text = (
                f"The objective is {self.best:.6g} at {kept[0]} and {value:.6g} at twice that: the fit has used an "
                "error of the grid, start it again from here with a finer `resolution` or a smaller `tol`."
            )
            warn(text, ResolutionWarning)
        return value

    # Checkpoints

    def save(self, path: Path, *, verify: bool = False) -> None:
        content = {
            "kind": self.kind,
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else _plain(self.scheduler.state_dict()),
            "history": vars(self.history),
            "numbers": [self.step, self.evaluations, self.best_step, self.best, self.scale, self.seconds],
            "rounds": [self.round, self.best_round],
            "best": self.best_state,
            "memo": self.memo,
            "guard": self.guard.state(),
            "pass": [self.pass_start, self.pass_values],
            "random": checkpoint.random_states(),
            "resolutions": checkpoint.resolutions(self.module),
        }
        checkpoint.save(path, content, verify=verify)

    def check_saving(self, path: Path) -> None:
        """Write the first checkpoint, and see that it can be read, while nothing is lost if not."""
        try:
            self.save(path, verify=True)
        except ProblemError:
            fail("module", "have a state of tensors and numbers for a checkpoint", "has objects of other classes")
        except (OSError, ValueError) as error:
            fail("checkpoint", "be a file that can be written", f"is {path} ({error})")
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            fail("module", "have a state that a checkpoint can hold", f"has another ({error})")

    def resume(self, path: Path) -> None:
        content = checkpoint.load(path)
        if content is None:
            if not path.parent.is_dir():
                fail("checkpoint", "lie in a folder that exists", f"is {path}")
            return
        known = content["kind"]
        for part, own in self.kind.items():
            if own != known[part]:
                which = "" if part == "module" else f", {known[part]} in place of {own}"
                raise ProblemError(
                    f"Argument `checkpoint` must be of this fit, but {path} is of one with another "
                    f"`{part}`{which}: move it away to start anew."
                )
        self.module.load_state_dict(content["module"])
        self.optimizer.load_state_dict(content["optimizer"])
        if self.scheduler is not None and content["scheduler"] is not None:
            self.scheduler.load_state_dict(content["scheduler"])
        self.history = History(**content["history"])
        self.step, self.evaluations, self.best_step, self.best, self.scale, self.earlier = content["numbers"]
        self.round, self.best_round = content["rounds"]
        self.best_state, self.memo = content["best"], content["memo"]
        if self.memo is not None:
            for kept in (self.memo["parameters"], self.memo["gradients"]):
                kept[:] = [one.to(p.device) for one, p in zip(kept, self.parameters, strict=True)]
        self.guard.load(content["guard"])
        checkpoint.set_resolutions(self.module, content["resolutions"])
        start, done = content["pass"]
        if start is not None:
            checkpoint.set_random_states(start)
            self._start_pass()
            assert self.iterator is not None
            for _ in done:
                if next(self.iterator, self) is self:
                    fail("batches", f"be those of {path}, to go on within a pass", f"are fewer than {len(done)}")
            self.pass_values = done
        elif self.step:
            self._check_objective(path)
            checkpoint.set_resolutions(self.module, content["resolutions"])  # and at which calls they look again
        checkpoint.set_random_states(content["random"])
        self.begin = clock.perf_counter()

    def _check_objective(self, path: Path) -> None:
        """Refuse to go on with another objective, which the best value so far says nothing of."""
        now = copied(self.module)
        self.restore()
        first, second = math.nan, math.nan
        with torch.no_grad(), contextlib.suppress(PropagationError):
            first, second = (float(self.objective(self.module)) for _ in range(2))
        self.module.load_state_dict(now)
        scale = abs(self.best) + abs(self.best - self.history.values[0])
        if first == second and abs(first - self.best) > 1e-6 * scale:  # else its values are random
            raise ProblemError(
                f"Argument `objective` must be the one that {path} was made with, but is {first:g} where that was "
                f"{self.best:g}: move the file away to start anew."
            )


def copied(module: nn.Module) -> dict[str, torch.Tensor]:
    """The state of a module, apart from it."""
    return {name: copy.deepcopy(value) for name, value in module.state_dict().items()}


def _same(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b.detach()) for a, b in zip(first, second, strict=True))


def check_loss(loss: Any, *, constant: bool = False) -> torch.Tensor:
    """Refuse what is not a real scalar tensor or, where it may not be `constant`, does not depend on parameters."""
    wrong = None
    if not isinstance(loss, torch.Tensor):
        wrong = f"a {type(loss).__name__}"
    elif loss.numel() != 1 or loss.is_complex():
        wrong = f"one of shape {tuple(loss.shape)} and {loss.dtype}"
    elif not (constant or loss.requires_grad):
        wrong = "one that does not depend on any parameter"
    if wrong is not None:
        _refuse_loss(wrong)
    return loss


def _refuse_loss(wrong: str) -> NoReturn:
    fail("objective", "return a real scalar tensor that depends on the module's parameters", f"returned {wrong}")


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    """The part of a scheduler's state that is numbers; functions are made anew."""
    kinds = (int, float, str, list, tuple, type(None))
    return {name: value for name, value in state.items() if isinstance(value, kinds)}
