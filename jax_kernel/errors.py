"""Every error and warning of both packages; `torch_clerq` re-exports them."""

import sys
import warnings

_OURS = ("jax_kernel", "torch_clerq", "torch", "contextlib", "functools")


class PropagationError(Exception):
    """Root of all errors raised by `jax_kernel` and `torch_clerq`."""


class ProblemError(PropagationError, ValueError):
    """A problem, a parameter or an option breaks a rule; the text names it, the rule, what came and the cure."""


class ResolutionError(PropagationError, RuntimeError):
    """The grid cannot resolve the problem: the solution did not stay finite, or no resolution reached `tol`."""


class BridgeError(PropagationError, RuntimeError):
    """Tensors or a process that cannot be handed to JAX as they are; the text says what to do."""


class CacheError(PropagationError, OSError):
    """A folder that compiled programs must not be kept in; the text says why, and what to do."""


class NotYetError(PropagationError, NotImplementedError):
    """The request is meaningful, but this version does not have it yet."""


class ConventionWarning(UserWarning):
    """A problem means by clerq's conventions something that was probably not meant; the text says what to write."""


class WindowWarning(UserWarning):
    """The time grid, the time window or the velocity classes do not hold what happens; the text says what to change."""


class ResolutionWarning(UserWarning):
    """The estimated error of a solution is above `tol`; the text says which resolution to raise."""


class DivergenceWarning(UserWarning):
    """A training runs away, or no longer depends on its start in a reproducible way; the text says what to do."""


class InferenceWarning(UserWarning):
    """Data leave parameters open, or a fit of parameters has not reached its minimum; the text says what to do."""


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the line of the user's own code that led here, behind both packages and a module's `__call__`."""
    level, frame = 3, sys._getframe(1)
    while frame.f_back is not None and frame.f_back.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
