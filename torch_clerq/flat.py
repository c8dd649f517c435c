"""The trainable parameters of a module as one vector of real numbers."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from .layers import trained
from .parametrisations import Parametrisation, Simplex
from .parametrised import Parametrised


class Holder(nn.Module):
    """Calls a function of a module as a method, so that torch can put other parameters into the module meanwhile.

    Example:
        >>> line = torch.nn.Linear(1, 1)
        >>> other = {"module.weight": torch.ones(1, 1)}
        >>> torch.func.functional_call(Holder(line), other, (lambda line: line.weight.item(),))
        1.0
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, function: Callable[[nn.Module], Any]) -> Any:
        return function(self.module)


class FlatParameters:
    """The trainable parameters of a module as one vector: of raw values, which are free, or of physical ones.

    Args:
        module: with parameters that require a gradient.

    Attributes:
        names: of each number: that of the parameter, with "[1, 0]" behind where it has several, and ".real" or ".imag"
            where it is complex.
        owners: name of the whole parameter to which each number belongs.
        shares: of each number, whether it is one under a `Simplex`.
        eps: of the coarsest precision among them.

    Raises:
        ProblemError: there is no such parameter.

    Example:
        >>> import torch
        >>> flat = FlatParameters(torch.nn.Linear(2, 1))
        >>> flat.names, len(flat.raw())
        (['weight[0, 0]', 'weight[0, 1]', 'bias'], 3)
    """

    holder: Holder
    parameters: dict[str, nn.Parameter]
    sizes: list[int]
    eps: float

    def __init__(self, module: nn.Module):
        self.holder = Holder(module)
        self.parameters = trained(module)
        self.sizes = [p.numel() * (2 if p.is_complex() else 1) for p in self.parameters.values()]
        self.eps = max(torch.finfo(p.dtype).eps for p in self.parameters.values())
        self.parametrisations: list[Parametrisation | None] = []
        self.names: list[str] = []
        self.owners: list[str] = []
        self.shares: list[bool] = []
        for (name, p), size in zip(self.parameters.items(), self.sizes, strict=True):
            path, _, own = name.rpartition(".")
            parent, known = module.get_submodule(path), own.removeprefix("raw_")
            under = parent.parametrisations.get(known) if isinstance(parent, Parametrised) and known != own else None
            whole = name if under is None else f"{path}.{known}".removeprefix(".")
            self.parametrisations.append(under)
            self.owners += [whole] * size
            self.shares += [isinstance(under, Simplex)] * size
            places = itertools.product(*map(range, p.shape))
            numbers = [whole] if p.numel() == 1 else [f"{whole}{list(place)}" for place in places]
            parts = (".real", ".imag") if p.is_complex() else ("",)
            self.names += [number + part for number in numbers for part in parts]

    def raw(self) -> torch.Tensor:
        """The raw values that the module has, float64 on the CPU, shape (parameter,)."""
        parts = (torch.view_as_real(p) if p.is_complex() else p for p in self.parameters.values())
        return torch.cat([part.detach().flatten().to("cpu", torch.float64) for part in parts])

    def _tensors(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """The vector as tensors like the parameters, by name."""
        tensors = {}
        for (name, p), part in zip(self.parameters.items(), x.split(self.sizes), strict=True):
            if p.is_complex():
                part = torch.complex(*part.view(*p.shape, 2).unbind(-1))
            tensors[name] = part.view(p.shape).to(p.device, p.dtype)
        return tensors

    def call(self, function: Callable[[nn.Module], Any], x: torch.Tensor) -> Any:
        """A function of the module with other raw values, which the module itself never sees."""
        tensors = {f"module.{name}": value for name, value in self._tensors(x).items()}
        return torch.func.functional_call(self.holder, tensors, (function,))

    def store(self, x: np.ndarray) -> None:
        """Put raw values into the module."""
        with torch.no_grad():
            for name, value in self._tensors(torch.as_tensor(x)).items():
                self.parameters[name].copy_(value)

    def physical(self, x: torch.Tensor) -> torch.Tensor:
        """The physical values of raw ones, both of shape (parameter,)."""
        parts = []
        kinds = zip(self.parameters.values(), self.parametrisations, x.split(self.sizes), strict=True)
        for p, parametrisation, part in kinds:
            parts.append(part if parametrisation is None else parametrisation.physical(part.view(p.shape)).flatten())
        return torch.cat(parts)

    def slopes(self, x: torch.Tensor) -> torch.Tensor:
        """The derivative of the physical values by the raw ones, shape (parameter, parameter)."""
        return torch.func.jacfwd(self.physical)(x)
