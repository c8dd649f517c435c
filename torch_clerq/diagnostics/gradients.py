"""Gradients held against everything that should give the same: the other mode, differences, precisions, no compiler."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from jax_kernel.parameters import fail

from ..checks import check_count, check_number, check_positive
from . import ladder, rounding
from .op_by_op import JitRow, compare_layers
from .report import GradientReport, GradientRow, Verdict
from .targets import Target, target_of

AMPLIFIED = 1e4
"""Amplification of relative errors above which a gradient counts as ill-conditioned: four digits are gone."""


@torch.inference_mode(False)
@torch.enable_grad()
def check_gradients(
    module_or_function: nn.Module | Callable[..., Any],
    objective: Any = None,
    *inputs: Any,
    scale: float = 1.0,
    rtol: float | None = None,
    jit: bool = True,
    compiler: Callable[[Callable], Callable] | None = None,
    seed: int = 0,
) -> GradientReport:
    """Check the gradient of a scalar in every parameter of a module, or in every tensor that a function takes.

    Reverse mode is held against forward mode, against central differences along the gradient's own and a random
    direction over a ladder of steps, and against the other precision; layers are run on a few intervals of their time
    grid without a compiler, too. Differences are judged by what rounding does to the values, which is measured, so that
    a gradient that is truly zero is none to worry about. Where something disagrees, each torch operation is looked at,
    and random rounding tells a formula that loses its digits from one that is wrong.

    Args:
        module_or_function: a module, whose parameters with `requires_grad` are checked, or a function of tensors.
        objective: of a module: objective(module, *inputs) -> scalar tensor. For a function: the first of its inputs, or
            a function of its result.
        *inputs: arguments of the function; float32 and float64 tensors among them are checked.
        scale: size of the objective that matters; what is far below counts as zero.
        rtol: relative difference above which two ways disagree; 1e-4 or, in float32, 1e-2.
        jit: whether layers are also run without a compiler, which takes some seconds a layer.
        compiler: for a function: what compiles it, such as torch.compile, to compare with.
        seed: of the random directions.

    Returns:
        A report: `.ok`, a row a parameter, and as text a table with the remedies.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> x = torch.tensor(1e-6, dtype=torch.float64)
        >>> report = check_gradients(lambda x: (1 - torch.cos(x)) / x**2, x)
        >>> report.ok, report.rows[0].verdict.name
        (False, 'CANCELLATION')
        >>> from torch_clerq import stable
        >>> check_gradients(stable.one_minus_cos_over_square, x).ok
        True
    """
    scale = check_number("scale", scale, "be a positive number", lambda number: 0 < number < math.inf)
    if rtol is not None:
        rtol = check_positive("rtol", rtol)
    check_count("seed", seed, 0)
    if compiler is not None and not callable(compiler):
        fail("compiler", "be a function of a function, such as torch.compile", f"is {compiler!r}")
    with target_of(module_or_function, objective, inputs) as target:
        check = _Check(target, scale, rtol, seed)
        layers: list[JitRow] = []
        remarks: list[str] = []
        if isinstance(module_or_function, nn.Module):
            if jit:
                layers, remarks = compare_layers(module_or_function, lambda: target.number(target.tensors), seed)
        elif compiler is not None:
            layers = [_compiled(target, compiler)]
        rows = [check.row(k, layers) for k in range(len(target.names))]
        return GradientReport(check.value, check.noise, tuple(rows), tuple(layers), tuple(remarks + check.remarks))


def _compiled(target: Target, compiler: Callable[[Callable], Callable]) -> JitRow:
    """A function against its compiled form."""
    other = Target(target.names, target.tensors, compiler(target.function))
    value, gradients = target.differentiate(target.tensors)
    compiled, others = other.differentiate(target.tensors)
    eps = torch.finfo(target.dtype).eps
    pairs = zip(target.names, gradients, others, target.tensors, strict=True)
    return JitRow.of("function", "all of it", {"value": (value, compiled, 1.0)} | {
        name: (a, b, abs(float(value)) / max(_size(t), 1.0)) for name, a, b, t in pairs
    }, 1e5 * eps)  # fmt: skip


def _size(tensor: torch.Tensor) -> float:
    """The largest modulus."""
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0


def _norm(tensor: torch.Tensor) -> float:
    """The Euclidean norm, also where squares underflow or overflow."""
    size = _size(tensor)
    if not 0 < size < math.inf:
        return size
    wide = tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)
    return size * float(torch.linalg.vector_norm(wide / size))


def _dot(a: torch.Tensor, b: torch.Tensor) -> float:
    """How much a value with gradient a changes along b."""
    return float((a.conj().to(torch.complex128) * b).real.sum())


class _Check:
    """All that is measured once, and then the rows."""

    def __init__(self, target: Target, scale: float, rtol: float | None, seed: int):
        self.target, self.scale, self.seed = target, scale, seed
        self.eps = torch.finfo(target.dtype).eps
        self.rtol = (1e-4 if self.eps < 1e-10 else 1e-2) if rtol is None else float(rtol)
        self.remarks: list[str] = []
        value, self.gradients = target.differentiate(target.tensors)
        self.value = float(value)
        self.finite = math.isfinite(self.value) and all(bool(torch.isfinite(g).all()) for g in self.gradients)
        self.size = max(
            abs(self.value), *(_norm(t) * _norm(g) for t, g in zip(target.tensors, self.gradients, strict=True))
        )
        self.spread = rounding.spread(lambda: target.differentiate(target.tensors), value, self.gradients, seed)
        self.noise = max(self._moved(), self.spread.value)
        self._witness: rounding.Witness | None = None
        self.other = self._other_precision()

    @property
    def witness(self) -> rounding.Witness:
        """What happened at every operation, looked at when something needs an explanation."""
        if self._witness is None:
            self._witness = rounding.Witness()
            with self._witness:
                self.target.differentiate(self.target.tensors)
        return self._witness

    def _moved(self) -> float:
        """How far the value moves when the tensors do by an ulp or two, apart from what the gradient says."""
        random = np.random.default_rng(self.seed)
        moved = []
        for _ in range(rounding.SAMPLES):
            shifts = [
                t * torch.as_tensor(self.eps * random.integers(-2, 3, t.shape)).to(t) for t in self.target.tensors
            ]
            value = self.target.number([t + s for t, s in zip(self.target.tensors, shifts, strict=True)])
            expected = sum(_dot(g, s) for g, s in zip(self.gradients, shifts, strict=True))
            moved.append(value - self.value - (expected if math.isfinite(expected) else 0.0))
        return rounding.rms(moved)

    def _other_precision(self) -> list[torch.Tensor] | None:
        """The gradients in the other precision, or None where the function has its own."""
        dtype = torch.float32 if self.target.dtype == torch.float64 else torch.float64
        try:
            value, gradients = self.target.differentiate(self.target.converted(dtype))
        except (ValueError, RuntimeError, TypeError) as error:
            self.remarks.append(f"Not compared with {dtype}: {str(error).splitlines()[0]}")
            return None
        if value.dtype != dtype:
            self.remarks.append(f"Not compared with {dtype}: the objective has {value.dtype} numbers of its own.")
            return None
        return gradients

    def row(self, k: int, layers: list[JitRow]) -> GradientRow:
        """One parameter."""
        target, g, x = self.target, self.gradients[k], self.target.tensors[k]
        name, norm, length = target.names[k], _norm(g), _norm(x)
        amplification = length * norm / max(abs(self.value), self.scale)
        jit = max((layer.gradients[name] for layer in layers if name in layer.gradients), default=math.nan)
        precision, absolute = self._precision(k)
        common: dict[str, Any] = dict(name=name, norm=norm, jit=jit, precision=precision, amplification=amplification)
        none: dict[str, Any] = dict(forward=math.nan, differences=math.nan, floor=math.nan, step=math.nan)
        if not self.finite:
            verdict, cause = self._not_finite()
            return GradientRow(verdict=verdict, cause=cause, **common, **none)
        looks = [self._look(k, u) for u in self._directions(g, x)]
        worst = max(looks, key=lambda look: look.severity)
        found: dict[str, Any] = dict(
            forward=worst.forward, differences=worst.differences, floor=worst.floor, step=worst.ladder.step
        )
        verdict, cause = self._judge(k, looks, amplification, absolute)
        return GradientRow(verdict=verdict, cause=cause, **common, **found)

    def _precision(self, k: int) -> tuple[float, bool]:
        """Relative difference of float32 and float64, and whether it is more than float32 may be off."""
        if self.other is None:
            return math.nan, False
        a, b = self.gradients[k].to(torch.complex128), self.other[k].to(torch.complex128)
        difference, size = _norm(a - b), max(_norm(a), _norm(b))
        if not math.isfinite(difference):
            return math.inf, True
        x = max(_size(self.target.tensors[k]), 1.0)
        allowed = 300 * torch.finfo(torch.float32).eps * (size + max(self.size, self.scale) / x)
        return (difference / size if size else 0.0), difference > allowed

    def _directions(self, g: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        """Unit vectors: along the gradient, and at random."""
        random = np.random.default_rng(self.seed + 1)
        numbers = random.normal(size=x.shape) + (1j * random.normal(size=x.shape) if x.is_complex() else 0)
        own = g / _norm(g) if _norm(g) > 0 else None
        if x.numel() == 1 and not x.is_complex():
            return [torch.ones_like(x)]
        by_chance = torch.as_tensor(numbers).to(x)
        return [u for u in (own, by_chance / _norm(by_chance)) if u is not None and bool(torch.isfinite(u).all())]

    def _look(self, k: int, u: torch.Tensor) -> "_Look":
        target, x = self.target, self.target.tensors[k]
        slope = _dot(self.gradients[k], u)
        try:
            forward = target.forward(k, u)
        except (NotImplementedError, RuntimeError, TypeError) as error:
            forward = math.nan
            text = f"No forward mode: {str(error).splitlines()[0]}"
            if text not in self.remarks:
                self.remarks.append(text)
        found = ladder.climb(
            lambda h: target.number(target.shifted(k, h * u)), self.value, slope, _size(x), self.noise, self.eps
        )
        per_unit = 1e3 * self.eps / max(_size(x), 1.0)
        return _Look(
            slope, forward, found, self.rtol, per_unit * abs(self.value), per_unit * max(abs(self.value), self.scale)
        )

    def _not_finite(self) -> tuple[Verdict, str]:
        seen = self.witness
        order = {kind: seen.first(kind) for kind in ("overflow", "underflow", "pole")}

        def at(kind: str) -> str:
            place = order[kind]
            return "" if place is None else f"{kind} in {seen.events[place].operation}."

        if order["overflow"] is not None:
            return Verdict.OVERFLOW, at("overflow")
        if order["pole"] is not None:
            before = order["underflow"]
            if before is not None and before < order["pole"]:
                return Verdict.UNDERFLOW, at("underflow")
            return Verdict.KINK, at("pole")
        return Verdict.UNDEFINED, ""

    def _judge(self, k: int, looks: list["_Look"], amplification: float, imprecise: bool) -> tuple[Verdict, str]:
        """The verdict, and what explains it."""
        jump = max(look.ladder.jump for look in looks)
        kink = max(look.ladder.kink for look in looks)
        noisy = self.noise > 1e3 * self.eps * self.size and self.noise > math.sqrt(self.eps) * max(
            abs(self.value), self.scale
        )
        disagreement = max(look.disagreement for look in looks)
        spread = self.spread.gradients[k]
        worst = self.witness.worst() if (noisy or disagreement or imprecise) else None
        lost = "" if worst is None else f"{worst.operation} loses {worst.digits:.0f} digits."
        dead = self.value == 0 and not any(bool(g.any()) for g in self.gradients)
        if dead and self.witness.first("underflow") is not None:
            return Verdict.UNDERFLOW, "the value and all gradients are 0."
        if jump > 0:
            return Verdict.DISCONTINUITY, f"the value jumps by {jump:.2g}."
        if kink > 1e-3 * max(look.scale for look in looks):
            return Verdict.KINK, f"the slope changes by {kink:.2g}."
        if disagreement > 0:
            if disagreement <= 100 * spread or (noisy and worst is not None):
                return Verdict.CANCELLATION, lost
            if self.gradients[k].abs().max() == 0 and self.witness.first("underflow") is not None:
                event = self.witness.events[self.witness.first("underflow") or 0]
                return Verdict.UNDERFLOW, f"underflow in {event.operation}."
            only = "reverse mode" if any(look.differences_refuted for look in looks) else "forward mode"
            return Verdict.WRONG, f"{only} is off by {max(look.off for look in looks):.2g} of the gradient."
        if noisy and (worst is not None or self.spread.value > 0.1 * self.noise):
            return Verdict.CANCELLATION, f"the value has a noise of {self.noise:.1g}. {lost}".strip()
        if imprecise and self.target.dtype == torch.float32 and amplification < AMPLIFIED:
            return Verdict.CANCELLATION, f"float64 has another gradient. {lost}".strip()
        if amplification >= AMPLIFIED:
            return Verdict.ILL_CONDITIONED, f"errors are amplified {amplification:.2g} times."
        if any(look.unknown for look in looks):
            return Verdict.NOISE_LIMITED, ""
        if imprecise:
            self.remarks.append(f"In float32 the gradient of {self.target.names[k]} is not what it is in float64.")
        return Verdict.FINE, ""


@dataclass(frozen=True)
class _Look:
    """A derivative along one direction, three ways.

    Attributes:
        absolute: what rounding may make of a derivative that is zero.
        irrelevant: below it, floors are of no account.
    """

    slope: float
    forward_slope: float
    ladder: ladder.Ladder
    rtol: float
    absolute: float
    irrelevant: float

    @property
    def scale(self) -> float:
        return max(abs(self.slope), abs(self.ladder.derivative) if math.isfinite(self.ladder.derivative) else 0.0)

    def _relative(self, difference: float) -> float:
        return difference / self.scale if self.scale > 0 else difference

    @property
    def forward(self) -> float:
        return self._relative(abs(self.forward_slope - self.slope))

    @property
    def differences(self) -> float:
        return self._relative(abs(self.ladder.derivative - self.slope))

    @property
    def floor(self) -> float:
        return self._relative(self.ladder.floor)

    @property
    def forward_refuted(self) -> bool:
        return abs(self.forward_slope - self.slope) > self.rtol * self.scale + self.absolute

    @property
    def differences_refuted(self) -> bool:
        return abs(self.ladder.derivative - self.slope) > self.rtol * self.scale + 3 * self.ladder.floor + self.absolute

    @property
    def disagreement(self) -> float:
        """By how much two ways differ, 0 where they agree."""
        found = 0.0
        if self.forward_refuted:
            found = abs(self.forward_slope - self.slope)
        if self.differences_refuted:
            found = max(found, abs(self.ladder.derivative - self.slope))
        return found

    @property
    def off(self) -> float:
        return self._relative(self.disagreement)

    @property
    def severity(self) -> float:
        return self.off if self.disagreement else -1 / (1 + self.scale)

    @property
    def unknown(self) -> bool:
        """Whether differences cannot tell the gradient to three digits, though it is not zero but for rounding."""
        return (
            not self.ladder.floor
            <= max(1e-3 if self.rtol < 1e-3 else 0.1, self.rtol) * self.scale + 10 * self.irrelevant
        )
