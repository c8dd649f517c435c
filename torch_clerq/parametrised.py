"""What modules with physical parameters share: precision that keeps complex numbers, raw parameters behind names."""

from typing import Any

import numpy as np
import torch
from torch import nn

from jax_kernel.parameters import fail

from .functional import COMPLEX, to_tensor
from .parametrisations import Parametrisation


class ComplexModule(nn.Module):
    """A module whose complex parameters and buffers survive a change of precision.

    Example:
        >>> import torch
        >>> module = ComplexModule()
        >>> module.coefficient = torch.nn.Parameter(torch.tensor(1 + 2j))
        >>> module.double().coefficient.item()
        (1+2j)
    """

    def _apply(self, fn, recurse=True):
        """Convert precision and device; a complex parameter stays complex, where `.to(torch.float32)` would cut it."""

        def convert(tensor):
            if not tensor.is_complex():
                return fn(tensor)
            parts = fn(torch.view_as_real(tensor))
            return fn(tensor) if parts.is_complex() else torch.view_as_complex(parts.contiguous())

        return super()._apply(convert, recurse)


class Parametrised(ComplexModule):
    """A module with parameters in physical units, some of them under a parametrisation.

    One without is an `nn.Parameter` under its own name; under a parametrisation the `nn.Parameter` is `raw_<name>`, and
    `<name>` reads and sets the physical value.

    Attributes:
        parametrisations: the parametrisation or None by name.
    """

    parametrisations: dict[str, Parametrisation | None]

    def __init__(self):
        super().__init__()
        self.parametrisations = {}

    def _add(
        self, name: str, value: np.ndarray | torch.Tensor, parametrisation: Parametrisation | None, dtype: torch.dtype
    ) -> None:
        """Register a trainable parameter at its physical start value, in a precision."""
        if name in self.parametrisations:
            fail("trainable", "name each parameter once", f"names `{name}` twice")
        if parametrisation is not None and not isinstance(parametrisation, Parametrisation):
            fail("trainable", "have a Parametrisation or None for each name", f"has {parametrisation!r}")
        start = torch.as_tensor(value)
        start = start.to(COMPLEX[dtype] if start.is_complex() else dtype)
        self.parametrisations[name] = parametrisation
        if parametrisation is None:
            self.register_parameter(name, nn.Parameter(start.clone()))
        else:
            self.register_parameter(f"raw_{name}", nn.Parameter(parametrisation.raw(start)))

    def __getattr__(self, name: str) -> Any:
        parametrisation = self.__dict__.get("parametrisations", {}).get(name)
        if parametrisation is not None:
            return parametrisation.physical(super().__getattr__(f"raw_{name}"))
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        known = self.__dict__.get("parametrisations", {})
        if name in known and (known[name] is not None or not isinstance(value, nn.Parameter)):
            parametrisation = known[name]
            target = self.get_parameter(name if parametrisation is None else f"raw_{name}")
            value = to_tensor(name, value)
            if value.shape not in ((), target.shape):
                fail(name, f"have shape {tuple(target.shape)}", f"has shape {tuple(value.shape)}")
            if value.is_complex() and not target.is_complex():
                fail(name, "be real, as it was at the start", f"has dtype {value.dtype}")
            with torch.no_grad():
                value = value.to(target.dtype)
                target.copy_(value if parametrisation is None else parametrisation.raw(value))
        else:
            super().__setattr__(name, value)

    def physical_parameters(self) -> dict[str, torch.Tensor]:
        """The trainable parameters by name, in physical units."""
        return {name: getattr(self, name) for name in self.parametrisations}
