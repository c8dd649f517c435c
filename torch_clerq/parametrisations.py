"""Physical values from unconstrained raw parameters."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real

import torch

from jax_kernel.errors import ProblemError

from . import stable


class Parametrisation(ABC):
    """A smooth map from all real raw values to the allowed physical ones."""

    @abstractmethod
    def physical(self, raw: torch.Tensor) -> torch.Tensor:
        """The physical value of a raw one, same shape."""

    @abstractmethod
    def raw(self, physical: torch.Tensor) -> torch.Tensor:
        """The raw value of a physical one, same shape; raises ProblemError outside the allowed range."""


def _check_real(physical: torch.Tensor) -> None:
    if not isinstance(physical, torch.Tensor) or not bool(physical.isfinite().all()):
        raise ProblemError(f"Argument `trainable` must start from a tensor of finite numbers, but has {physical!r}.")
    if physical.is_complex():
        raise ProblemError(
            "Argument `trainable` must have real parameters under a parametrisation, but one is complex."
        )


@dataclass(frozen=True)
class Positive(Parametrisation):
    """Values above zero, as softplus of the raw value.

    Example:
        >>> import torch
        >>> p = Positive()
        >>> p.physical(p.raw(torch.tensor(0.25))).item()
        0.25
    """

    def physical(self, raw: torch.Tensor) -> torch.Tensor:
        return stable.softplus(raw)

    def raw(self, physical: torch.Tensor) -> torch.Tensor:
        _check_real(physical)
        if bool((physical <= 0).any()):
            raise ProblemError(
                f"Argument `trainable` must start from positive values under Positive(), but has {physical.min():g}: "
                "leave the parametrisation out to train from 0."
            )
        return physical + stable.log1mexp(physical)


@dataclass(frozen=True)
class Interval(Parametrisation):
    """Values strictly between two bounds, as a sigmoid of the raw value.

    Example:
        >>> import torch
        >>> p = Interval(1.0, 3.0)
        >>> p.physical(torch.tensor(0.0)).item()
        2.0
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        numbers = all(isinstance(x, Real) and math.isfinite(x) for x in (self.low, self.high))
        if not (numbers and self.low < self.high):
            raise ProblemError(
                f"Argument `low` must be below `high`, both finite, but they are {self.low!r}, {self.high!r}."
            )

    def physical(self, raw: torch.Tensor) -> torch.Tensor:
        return self.low + (self.high - self.low) * torch.sigmoid(raw)

    def raw(self, physical: torch.Tensor) -> torch.Tensor:
        _check_real(physical)
        if bool(((physical <= self.low) | (physical >= self.high)).any()):
            raise ProblemError(
                f"Argument `trainable` must start between {self.low:g} and {self.high:g} under {self}, but has "
                f"{physical.flatten().tolist()}."
            )
        return torch.log(physical - self.low) - torch.log(self.high - physical)  # precise at both ends


@dataclass(frozen=True)
class Simplex(Parametrisation):
    """Positive values whose sum over the last axis is 1, such as populations, as softmax of the raw values.

    Example:
        >>> import torch
        >>> p = Simplex()
        >>> p.physical(p.raw(torch.tensor([0.5, 0.25, 0.25]))).numpy().round(6)
        array([0.5 , 0.25, 0.25], dtype=float32)
    """

    def physical(self, raw: torch.Tensor) -> torch.Tensor:
        return torch.softmax(raw, -1)

    def raw(self, physical: torch.Tensor) -> torch.Tensor:
        _check_real(physical)
        if physical.ndim == 0:
            raise ProblemError("Argument `trainable` must have an axis of values under Simplex(), but has a number.")
        if bool((physical <= 0).any()):
            raise ProblemError(
                f"Argument `trainable` must start from positive values under Simplex(), but has {physical.min():g}: "
                "start from a small population in place of 0."
            )
        error = float((physical.detach().sum(-1) - 1).abs().amax()) if physical.numel() else 0.0
        if error > 1e3 * torch.finfo(physical.dtype).eps:
            raise ProblemError(f"Argument `trainable` must have the sum 1 under Simplex(), but is off by {error:.2g}.")
        return physical.log()
