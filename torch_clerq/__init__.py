"""Light through driven, decaying quantum media as a layer of a PyTorch model, with exact gradients."""

from jax_kernel.errors import (
    BridgeError,
    CacheError,
    ConventionWarning,
    DivergenceWarning,
    InferenceWarning,
    NotYetError,
    ProblemError,
    PropagationError,
    ResolutionError,
    ResolutionWarning,
    WindowWarning,
)
from jax_kernel.problem import Problem
from jax_kernel.resolution import MarchResolution, Resolution
from jax_kernel.sharding import Sharding
from jax_kernel.solution import Solution

from .bridge import clear_cache, jax2torch, jax_function
from .cache import use_compilation_cache
from .functional import propagate
from .inference import Inference, infer
from .parametrisations import Interval, Parametrisation, Positive, Simplex
from .propagator import Driven, TorchPropagator
from .training import Fit, LearningRateScan, fit, learning_rate_scan

__all__ = [
    "BridgeError",
    "CacheError",
    "ConventionWarning",
    "DivergenceWarning",
    "Driven",
    "Fit",
    "Inference",
    "InferenceWarning",
    "Interval",
    "LearningRateScan",
    "MarchResolution",
    "NotYetError",
    "Parametrisation",
    "Positive",
    "Problem",
    "ProblemError",
    "PropagationError",
    "Resolution",
    "ResolutionError",
    "ResolutionWarning",
    "Sharding",
    "Simplex",
    "Solution",
    "TorchPropagator",
    "WindowWarning",
    "clear_cache",
    "fit",
    "infer",
    "jax2torch",
    "jax_function",
    "learning_rate_scan",
    "propagate",
    "use_compilation_cache",
]
