"""Every error and warning of both packages; `torch_clerq` re-exports them."""


class PropagationError(Exception):
    """Root of all errors raised by `jax_kernel` and `torch_clerq`."""


class ProblemError(PropagationError, ValueError):
    """A problem, a parameter or an option breaks a rule; the text names it, the rule, what came and the cure."""


class ResolutionError(PropagationError, RuntimeError):
    """The grid cannot resolve the problem: the solution did not stay finite, or no resolution reached `tol`."""


class NotYetError(PropagationError, NotImplementedError):
    """The request is meaningful, but this version does not have it yet."""


class ConventionWarning(UserWarning):
    """A problem means by clerq's conventions something that was probably not meant; the text says what to write."""


class WindowWarning(UserWarning):
    """The problem's time grid or time window does not hold the light; the text says which to change."""


class ResolutionWarning(UserWarning):
    """The estimated error of a solution is above `tol`; the text says which resolution to raise."""
