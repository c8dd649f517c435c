"""Compiled and op-by-op evaluation over an optimisation: a wrong program, or a trajectory that amplifies rounding."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from jax_kernel.errors import ProblemError

from ..checks import check_count, check_positive
from .growth import Growth, one_ulp
from .targets import target_of

LEAD = 1e4
"""How far a discrepancy may lie above the effect of one ulp: every step rounds many times."""

Evaluate = Callable[[Sequence[torch.Tensor]], tuple[float, list[torch.Tensor]]]


class Outcome(Enum):
    """What a comparison comes to; the value says what to do."""

    REPRODUCIBLE = "Both evaluations are the same program, and rounding stays rounding."
    DIVERGENT = (
        "The trajectory is divergent (chaotic): both evaluations are right, and a rounding error grows to the size "
        "of the result. Neither means anything beyond the horizon, and more precision only delays it. Lower the "
        "learning rate: torch_clerq.learning_rate_scan finds the range that descends."
    )
    WRONG = (
        "The compiled program is wrong: it is far from the op-by-op evaluation where one ulp still makes no "
        "difference. Look for state that is read while it is traced, for custom derivatives, and for numbers that "
        "became constants."
    )


@dataclass(frozen=True)
class TrajectoryReport:
    """The outcome of `compare_jit`; as text a table that ends in what to do.

    Attributes:
        outcome: what it comes to.
        compiled: loss at each step, from the start on, shape (steps + 1,).
        op_by_op: the same without a compiler.
        discrepancy: growth of their difference, in loss.
        perturbation: growth of the effect of one ulp at the start, in loss or parameters, whichever is larger.
        gradient: relative difference of the two gradients at the start.
    """

    outcome: Outcome
    compiled: tuple[float, ...]
    op_by_op: tuple[float, ...]
    discrepancy: Growth
    perturbation: Growth
    gradient: float

    @property
    def ok(self) -> bool:
        """Whether the result of the optimisation means something."""
        return self.outcome is Outcome.REPRODUCIBLE

    @property
    def horizon(self) -> int | None:
        """The last step up to which a run can be reproduced, None if that is all of them."""
        return self.perturbation.horizon

    def __str__(self) -> str:
        lines = [f"{'step':>4}  {'compiled':>12}  {'op by op':>12}  {'difference':>10}  {'one ulp':>10}"]
        rows = zip(self.compiled, self.op_by_op, self.discrepancy.relative, self.perturbation.relative, strict=True)
        for step, (a, b, c, d) in enumerate(rows):
            lines.append(f"{step:>4}  {a:>12.6g}  {b:>12.6g}  {c:>10.1e}  {d:>10.1e}")
        lines.append(f"gradients at the start: {self.gradient:.1e} apart")
        if self.outcome is Outcome.DIVERGENT:
            horizon = "not reached" if self.horizon is None else f"step {self.horizon}"
            lines.append(f"one ulp grows {self.perturbation.factor:.2g} times a step; horizon: {horizon}")
        text, words = "", self.outcome.value.split()
        for word in words:
            if len(text) + len(word) >= 120:
                lines.append(text)
                text = ""
            text = f"{text} {word}".strip()
        return "\n".join([*lines, text])


@torch.inference_mode(False)
@torch.enable_grad()
def compare_jit(
    fn: Callable[..., Any],
    *args: Any,
    compiled: Callable[..., Any] | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    learning_rate: float = 1e-2,
    steps: int = 20,
) -> TrajectoryReport:
    """Optimise twice, compiled and op by op, and a third time from a start one ulp away.

    Where the difference of the first two grows like that of the third, the trajectory is divergent, and neither program
    is wrong; where it is far above, the compiled program is. The update is torch's in all three.

    Args:
        fn: a JAX function loss(parameters, *rest) of a pytree of arrays; or a module with propagators, `args` then
            being its objective and the objective's further arguments; or a torch function loss(parameters, *rest) of a
            tensor or a pytree of tensors, which needs `compiled`.
        *args: what `fn` is called with.
        compiled: the program under suspicion: the JAX function that is compiled in place of `fn`, or the compiled form
            of a torch function, such as torch.compile(fn).
        optimizer: a class of torch.optim.
        learning_rate: its `lr`.
        steps: how many updates. Each evaluation of a layer without a compiler takes seconds: take few.

    Returns:
        A report: the outcome, the losses, both growths, the horizon.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import jax.numpy as jnp
        >>> report = compare_jit(lambda x: jnp.sum((x - 1) ** 2), jnp.zeros(3), steps=5)
        >>> report.outcome.name, report.horizon
        ('REPRODUCIBLE', None)
    """
    if not args:
        raise ProblemError("Argument `args` must hold the parameters, or a module's objective, but is empty.")
    check_count("steps", steps)
    learning_rate = check_positive("learning_rate", learning_rate)
    if isinstance(fn, nn.Module):
        if compiled is not None:
            raise ProblemError(
                "Argument `compiled` must be left out for a module, whose layers compile, but was given."
            )
        with target_of(fn, args[0], args[1:]) as target:

            def evaluate(tensors):
                value, gradients = target.differentiate(tensors)
                return float(value), gradients

            def plain(tensors):
                with jax.disable_jit():
                    return evaluate(tensors)

            return _compare(evaluate, plain, target.tensors, optimizer, learning_rate, steps)
    leaves = jax.tree.leaves(args[0])
    if any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        if compiled is None:
            raise ProblemError(
                "Argument `compiled` must be given for a torch function, such as torch.compile(fn), but is missing."
            )
        pair = (_of_torch(compiled, args), _of_torch(fn, args))
        return _compare(*pair, [x.detach() for x in leaves], optimizer, learning_rate, steps)
    if not leaves or not all(np.issubdtype(np.asarray(x).dtype, np.inexact) for x in leaves):
        raise ProblemError("Argument `args` must begin with a pytree of real or complex arrays, but does not.")
    return _compare(*_of_jax(fn, compiled or fn, args), [_tensor(x) for x in leaves], optimizer, learning_rate, steps)


def _tensor(array: Any) -> torch.Tensor:
    return torch.as_tensor(np.array(array))


def _of_torch(fn: Callable[..., Any], args: tuple[Any, ...]) -> Evaluate:
    tree = jax.tree.structure(args[0])

    def evaluate(tensors: Sequence[torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
        given = [t.detach().requires_grad_() for t in tensors]
        loss = fn(jax.tree.unflatten(tree, given), *args[1:])
        return float(loss.detach()), list(torch.autograd.grad(loss, given))

    return evaluate


def _of_jax(fn: Callable[..., Any], suspect: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Evaluate, Evaluate]:
    leaves, tree = jax.tree.flatten(args[0])
    wide = any(np.asarray(x).dtype.itemsize * (1 if np.isrealobj(x) else 0.5) == 8 for x in leaves)
    jitted = jax.jit(jax.value_and_grad(suspect))
    direct = jax.value_and_grad(fn)

    def evaluate(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
        with jax.enable_x64(bool(wide)):
            given = jax.tree.unflatten(tree, [jnp.asarray(t.detach().numpy()) for t in tensors])
            value, gradients = function(given, *args[1:])
            return float(value), [_tensor(x).conj().resolve_conj() for x in jax.tree.leaves(gradients)]

    def plain(tensors: Sequence[torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
        with jax.disable_jit():
            return evaluate(direct, tensors)

    return lambda tensors: evaluate(jitted, tensors), plain


class _Run(NamedTuple):
    losses: list[float]
    parameters: list[np.ndarray]
    gradient: np.ndarray


def _flat(tensors: Sequence[torch.Tensor]) -> np.ndarray:
    parts = [torch.view_as_real(t) if t.is_complex() else t for t in (t.detach() for t in tensors)]
    return np.concatenate([t.double().numpy(force=True).ravel() for t in parts])


def _descend(evaluate: Evaluate, start, optimizer, learning_rate: float, steps: int) -> _Run:
    parameters = [t.detach().clone().requires_grad_() for t in start]
    method = optimizer(parameters, lr=learning_rate)
    losses: list[float] = []
    path: list[np.ndarray] = []
    first: list[np.ndarray] = []

    def closure() -> float:
        loss, gradients = evaluate(parameters)
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = g.detach().clone()
        if not first:
            first.append(_flat(gradients))
        latest.append(loss)
        return loss

    for _ in range(steps):
        latest: list[float] = []
        path.append(_flat(parameters))
        method.step(closure)
        losses.append(latest[0])
    path.append(_flat(parameters))
    return _Run([*losses, evaluate(parameters)[0]], path, first[0])


def _compare(
    compiled: Evaluate, plain: Evaluate, start, optimizer, learning_rate: float, steps: int
) -> TrajectoryReport:
    eps = max(torch.finfo(t.dtype).eps for t in start)
    options = (optimizer, learning_rate, steps)
    one = _descend(compiled, start, *options)
    other = _descend(plain, start, *options)
    near = _descend(compiled, [one_ulp(t) for t in start], *options)

    # a loss that has fallen to nothing is compared with what rounding left of the first one
    floor = math.sqrt(eps) * abs(one.losses[0])
    discrepancy, perturbation = Growth(), Growth()
    for step in range(steps + 1):
        losses = [run.losses[step] for run in (one, other, near)]
        size = max(*map(abs, losses), floor)
        discrepancy.update(losses[0] - losses[1], size)
        at, beside = one.parameters[step], near.parameters[step]
        reach = max(float(np.linalg.norm(x)) for x in (*one.parameters[:2], at))  # a start may be 0
        moved = _part(float(np.linalg.norm(at - beside)), reach)
        perturbation.update(max(_part(losses[0] - losses[2], size), moved), 1.0)
    gradient = Growth.of([one.gradient], [other.gradient]).relative[0]
    near_gradient = Growth.of([one.gradient], [near.gradient]).relative[0]
    wrong = gradient > LEAD * max(eps, near_gradient)
    until = steps if perturbation.horizon is None else perturbation.horizon
    reached = eps
    for step in range(until + 1):
        reached = max(reached, *perturbation.relative[: step + 2])  # the discrepancy may be a step ahead
        wrong = wrong or discrepancy.relative[step] > LEAD * reached
    outcome = Outcome.WRONG if wrong else Outcome.DIVERGENT if perturbation.diverges else Outcome.REPRODUCIBLE
    return TrajectoryReport(outcome, tuple(one.losses), tuple(other.losses), discrepancy, perturbation, gradient)


def _part(difference: float, size: float) -> float:
    return abs(difference) / size if size > 0 else 0.0
