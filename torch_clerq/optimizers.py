"""The optimisers that `fit` can be asked for."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from jax_kernel.errors import ProblemError
from jax_kernel.parameters import fail

from .checks import check_positive

OptimizerLike = str | Optimizer | Callable[..., Optimizer]
SchedulerLike = str | Callable[[Optimizer], Any] | None


def make_optimizer(optimizer: OptimizerLike, parameters: list[nn.Parameter], learning_rate: float | None) -> Optimizer:
    """The optimiser that a name, a class or a function of the parameters stands for, or the one that is given."""
    if isinstance(optimizer, Optimizer):
        if learning_rate is not None:
            fail("learning_rate", "be absent where an optimiser is given that has its own", f"is {learning_rate:g}")
        return optimizer
    if learning_rate is not None:
        learning_rate = check_positive("learning_rate", learning_rate)
    if isinstance(optimizer, str):
        known = {
            name.lower(): one
            for name, one in vars(torch.optim).items()
            if isinstance(one, type) and issubclass(one, Optimizer) and one not in (Optimizer, torch.optim.SparseAdam)
        }
        if optimizer.lower() not in known:
            fail("optimizer", f"be one of {', '.join(sorted(known))}, a class or a function", f'is "{optimizer}"')
        optimizer = known[optimizer.lower()]
    options: dict[str, Any] = {} if learning_rate is None else {"lr": learning_rate}
    if optimizer is torch.optim.LBFGS:
        options |= dict(max_iter=1, max_eval=25, tolerance_grad=0.0, tolerance_change=0.0, history_size=50)
        options |= dict(line_search_fn="strong_wolfe")
    if not callable(optimizer):
        fail("optimizer", "be a name, a class, a function of the parameters or an optimiser", f"is {optimizer!r}")
    if options and not isinstance(optimizer, type):
        fail("learning_rate", "be set by the function that makes the optimiser", f"is {learning_rate:g}")
    made = make("optimizer", optimizer, parameters, **options)
    if not isinstance(made, Optimizer):
        fail("optimizer", "return a torch.optim.Optimizer", f"returned {made!r}")
    return made


def make(name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a function or a class of the user makes of arguments that it may not be made for."""
    try:
        return function(*arguments, **options)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"Argument `{name}` must suit the module's parameters, but raised: {error}.") from error
