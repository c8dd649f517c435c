"""Residuals of an inference, and their Jacobian."""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from jax_kernel.errors import ProblemError, PropagationError, ResolutionError
from jax_kernel.parameters import fail

from .flat import FlatParameters
from .layers import twice_the_resolution


class System:
    """The residuals in units of σ and their Jacobian, as functions of a vector of raw values.

    Attributes:
        initial: length of the residuals at the start.
        trouble: what the last failed trial step said.
        best_x: the raw values with the smallest χ² so far, None before the first.
    """

    flat: FlatParameters
    residuals: Callable[..., Any]
    sigma: Any
    priors: torch.Tensor
    count: int
    initial: float
    trouble: str
    best: float
    random: torch.Tensor

    def __init__(self, flat: FlatParameters, residuals: Callable, sigma: Any, priors: torch.Tensor):
        self.flat, self.residuals, self.sigma, self.priors = flat, residuals, sigma, priors
        self.count, self.initial, self.trouble = 0, math.nan, ""
        self.best = math.inf
        self.best_x: np.ndarray | None = None
        self.random = torch.get_rng_state()

    def _all(self, x: torch.Tensor) -> torch.Tensor:
        given = self.flat.call(self.residuals, x)
        parts = list(given) if isinstance(given, Sequence) else [given]
        scales = self.sigma if isinstance(self.sigma, Sequence) else [self.sigma] * len(parts)
        if len(scales) != len(parts):
            fail("sigma", f"have one entry for each of the {len(parts)} tensors of residuals", f"has {len(scales)}")
        scaled = [_scaled(part, scale) for part, scale in zip(parts, scales, strict=True)]
        place, mean, deviation = self.priors
        return torch.cat([*scaled, (self.flat.physical(x)[place.long()] - mean) / deviation])

    def values(self, x: np.ndarray) -> np.ndarray:
        """Shape (residual,); far above those of the start where a trial step fails."""
        try:
            found = self._repeated(self._all, x)
        except (ProblemError, ResolutionError) as error:
            if not self.count:
                raise
            self.trouble, found = str(error), np.full(1, math.nan)
        if not self.count:
            if not found.size:
                fail("residuals", "return at least one number", "returned none")
            if not np.isfinite(found).all():
                fail("residuals", "be finite at the start", f"have {found[~np.isfinite(found)][0]:g}")
            with np.errstate(over="ignore", under="ignore"):
                chi_square = float(found @ found)
            if not chi_square < math.inf or (chi_square < np.finfo(float).tiny and found.any()):
                fail("residuals", "be of a size whose squares are numbers, in units of `sigma`", f"have {found[0]:g}")
            self.count, self.initial = len(found), float(np.linalg.norm(found))
        if not np.isfinite(found).all():
            return np.full(self.count, 1e3 * (1 + self.initial))
        with np.errstate(over="ignore", under="ignore"):
            chi_square = float(found @ found)
        if chi_square < self.best:
            self.best, self.best_x = chi_square, x.copy()
        return found

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Shape (residual, parameter)."""
        try:
            found = self._repeated(torch.func.jacfwd(self._all, randomness="same"), x)
        except PropagationError:
            raise
        except (RuntimeError, NotImplementedError) as error:  # of what had a value a moment ago
            rule = "be differentiable in forward mode (of a module with BatchNorm, call `eval()`)"
            fail("residuals", rule, f"torch says: {str(error).splitlines()[0]}")
        if not np.isfinite(found).all():
            name = self.flat.names[int(np.argmin(np.isfinite(found).all(0)))]
            fail("residuals", "have finite derivatives", f"have none by `{name}` (a square root or a modulus at 0?)")
        return found

    def _repeated(self, function: Callable[[torch.Tensor], torch.Tensor], x: np.ndarray) -> np.ndarray:
        """The function's numbers, with the same random ones each time: with others there would be no minimum."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random)
            return function(torch.as_tensor(x)).detach().numpy()

    def at_twice_the_resolution(self, x: np.ndarray) -> np.ndarray | None:
        """The residuals with every layer at twice its resolution; None without layers, or where that fails."""
        with twice_the_resolution(self.flat.holder) as kept, contextlib.suppress(ResolutionError):
            return self._repeated(self._all, x) if kept else None
        return None


def flattened(part: Any, name: str) -> torch.Tensor:
    """The real numbers of a tensor, float64 on the CPU."""
    if not isinstance(part, torch.Tensor) or not (part.is_floating_point() or part.is_complex()):
        what = f"one of {part.dtype}" if isinstance(part, torch.Tensor) else f"a {type(part).__name__}"
        fail(name, "return tensors of real or complex numbers", f"returned {what}")
    part = torch.view_as_real(part.resolve_conj()) if part.is_complex() else part
    return part.flatten().to("cpu", torch.float64)


def _scaled(part: Any, sigma: Any) -> torch.Tensor:
    """Residuals in units of σ."""
    numbers = flattened(part, "residuals")
    if sigma is None:
        return numbers
    try:
        scale = torch.as_tensor(sigma).detach().to("cpu")
        scale = scale.double() if not scale.is_complex() else scale.new_zeros((), dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        scale = torch.zeros(())
    if not bool(((scale > 0) & scale.isfinite()).all()):
        fail("sigma", "be positive and finite, or None", f"is {sigma!r}")
    try:
        scale = scale.broadcast_to(part.shape).flatten()
    except RuntimeError:
        fail("sigma", f"broadcast to the residuals, of shape {tuple(part.shape)}", f"has shape {tuple(scale.shape)}")
    return numbers / (scale.repeat_interleave(2) if part.is_complex() else scale)
