"""The pulses of problem files as waveforms with trainable arguments."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from jax_kernel import pulses
from jax_kernel.errors import ProblemError
from jax_kernel.parameters import fail
from jax_kernel.reading import Keys, read_envelope

from ..bridge import jax_function
from ..checks import check_time
from ..functional import COMPLEX, to_tensor
from ..parametrisations import Parametrisation, Positive
from ..parametrised import Parametrised
from .waveform import Waveform, least_squares

WIDTHS = ("fwhm", "width")
DEVIATION = {
    ("gaussian", "fwhm"): 4 * math.sqrt(math.log(2)),
    ("sech", "width"): math.sqrt(12) / math.pi,
    ("sech", "fwhm"): pulses.SECH_FWHM * math.sqrt(12) / math.pi,
}
"""Width of a pulse per standard deviation of |Ω|² in time."""

_evaluate = jax_function(pulses.evaluate, static_argnums=(0,))


class Pulse(Parametrised, Waveform):
    """An analytic pulse of a problem file, whose arguments may be trained.

    The formulas, and their gradients, are those of `jax_kernel.pulses`.

    Args:
        time: times at which the waveform is returned, shape (time,); they set dtype and device.
        envelope: "gaussian", "sech", "ramp_on", "ramp_off", "ramp_onoff", "ramp_offon" or "sinc".
        args: its arguments by name as in a problem file (`ampl` or `n_pi`, `centre`, `fwhm` or `width`, `on`, `off`),
            numbers or tensors of shape (*batch,) that broadcast to one another. `ampl` may be complex.
        trainable: names of arguments, or a dict {name: parametrisation or None}; by default all of them, widths under
            `Positive()`.

    Attributes:
        parametrisations: the parametrisation or None by name of a trainable argument, each an `nn.Parameter` under its
            name, or under `raw_<name>` with a property `<name>` in physical units.

    Raises:
        ProblemError: an argument breaks a rule. A square pulse is refused: its edges are jumps and have no gradient.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 4.0, 5)
        >>> pulse = Pulse(time, "gaussian", {"ampl": 1.0, "centre": 2.0, "fwhm": 2.0})
        >>> pulse().detach().numpy().round(4)
        array([0.0625, 0.5   , 1.    , 0.5   , 0.0625], dtype=float32)
        >>> [name for name, _ in pulse.named_parameters()]
        ['ampl', 'centre', 'raw_fwhm']
    """

    envelope: str
    names: tuple[str, ...]

    time: torch.Tensor

    def __init__(
        self,
        time: torch.Tensor,
        envelope: str,
        args: Mapping[str, Any],
        *,
        trainable: Iterable[str] | Mapping[str, Parametrisation | None] | None = None,
    ):
        super().__init__()
        check_time(time)
        if envelope in pulses.EDGES:
            cure = "which has no gradient in them: take `ramp_onoff`, `PiecewiseConstant` or `Sampled`"
            fail("envelope", "be a smooth pulse", f'is "{envelope}", {cure}')
        if not isinstance(args, Mapping):
            fail("args", "be a dict of arguments by name", f"is {args!r}")
        values = {name: to_tensor(f"args.{name}", value).detach() for name, value in args.items()}
        for name, value in values.items():
            if not value.numel() or not bool(value.isfinite().all()):
                fail(f"args.{name}", "be finite, one or more", f"is {value.tolist()}")
        lowest = {name: value.real.min().item() for name, value in values.items()}
        read_envelope(Keys({"envelope": envelope, "args": lowest}, "", ("envelope", "args")), "envelope", "args")
        for name, value in values.items():
            if value.is_complex() and name != "ampl":
                fail(f"args.{name}", "be real", f"has dtype {value.dtype}")
        if trainable is None:
            trainable = {name: Positive() if name in WIDTHS else None for name in values}
        trainable = (trainable,) if isinstance(trainable, str) else trainable
        chosen = trainable if isinstance(trainable, Mapping) else dict.fromkeys(trainable)
        for name in chosen:
            if name not in values:
                fail("trainable", f"have names among {', '.join(values)}", f"has {name!r}")
        try:
            shape = torch.broadcast_shapes(*(value.shape for value in values.values()))
        except RuntimeError:
            shapes = ", ".join(str(tuple(value.shape)) for value in values.values())
            fail("args", "have shapes that broadcast to one another", f"has {shapes}")
        self.envelope, self.names = envelope, tuple(values)
        self.register_buffer("time", time.detach(), persistent=False)
        for name, value in values.items():
            value = value.to(time.device).expand(shape).clone()
            if name in chosen:
                self._add(name, value, chosen[name], time.dtype)
            else:
                kind = COMPLEX[time.dtype] if value.is_complex() else time.dtype
                self.register_buffer(name, value.to(kind), persistent=False)

    @property
    def scale(self) -> str:
        """The argument that the pulse is proportional to."""
        return "n_pi" if "n_pi" in self.names else "ampl"

    def _shape(self) -> torch.Tensor:
        """The pulse of `scale` 1."""
        args = {name: getattr(self, name)[..., None] for name in self.names if name != self.scale}
        return _evaluate(self.envelope, args | {self.scale: self.time.new_ones(())}, self.time)

    def forward(self) -> torch.Tensor:
        """The waveform, in the unit of its `ampl`, shape (*batch, time)."""
        return getattr(self, self.scale)[..., None] * self._shape()

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        square = (target * target.conj()).real * (1 if weight is None else weight**2)
        share = square / square.sum(-1, keepdim=True).clamp(min=torch.finfo(square.dtype).tiny)
        centre = (share * self.time).sum(-1)
        deviation = (share * (self.time - centre[..., None]) ** 2).sum(-1).sqrt()
        for name in self.names:
            if name == "centre":
                self._try(name, centre)
            elif (self.envelope, name) in DEVIATION:
                self._try(name, deviation * DEVIATION[self.envelope, name])
        self._try(self.scale, least_squares(self._shape()[..., None, :], target, weight)[..., 0])
        return False

    def _try(self, name: str, value: torch.Tensor) -> None:
        """Set a trainable argument, unless its parametrisation does not allow the value."""
        if name not in self.parametrisations:
            return
        try:
            if self.parametrisations[name] is None and self.get_parameter(name).requires_grad:
                self.get_parameter(name).copy_(value)
            elif self.parametrisations[name] is not None and self.get_parameter(f"raw_{name}").requires_grad:
                setattr(self, name, value)
        except ProblemError:
            return

    def extra_repr(self) -> str:
        return f"{self.envelope}({', '.join(self.names)}), trainable={list(self.parametrisations)}"
