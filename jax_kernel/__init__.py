"""Differentiable propagation of light through driven, decaying quantum systems, in pure JAX."""

from .errors import NotYetError, ProblemError, PropagationError, ResolutionError, ResolutionWarning
from .problem import Problem
from .propagate import choose_resolution, propagate
from .resolution import MarchResolution, Resolution
from .solution import Solution

__all__ = [
    "MarchResolution",
    "NotYetError",
    "Problem",
    "ProblemError",
    "PropagationError",
    "Resolution",
    "ResolutionError",
    "ResolutionWarning",
    "Solution",
    "choose_resolution",
    "propagate",
]
