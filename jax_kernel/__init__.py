"""Differentiable propagation of light through driven, decaying quantum systems, in pure JAX."""

from .errors import (
    BridgeError,
    ConventionWarning,
    NotYetError,
    ProblemError,
    PropagationError,
    ResolutionError,
    ResolutionWarning,
    WindowWarning,
)
from .problem import Problem
from .propagate import choose_resolution, propagate
from .resolution import MarchResolution, Resolution
from .sharding import Sharding
from .solution import Solution

__all__ = [
    "BridgeError",
    "ConventionWarning",
    "MarchResolution",
    "NotYetError",
    "Problem",
    "ProblemError",
    "PropagationError",
    "Resolution",
    "ResolutionError",
    "ResolutionWarning",
    "Sharding",
    "Solution",
    "WindowWarning",
    "choose_resolution",
    "propagate",
]
