"""What a check of gradients comes to: verdicts with their remedies, a row a parameter, and the table."""

import math
from dataclasses import dataclass
from enum import Enum

from .op_by_op import JitRow


class Verdict(Enum):
    """What a check comes to; the value is the remedy."""

    FINE = "All ways agree."
    CANCELLATION = (
        "Catastrophic cancellation: nearly equal numbers are subtracted, and their rounding errors are what is left. "
        "Use the form without the subtraction (torch_clerq.stable, a series near the point), centre data first, or "
        "take float64."
    )
    OVERFLOW = (
        "Overflow: a finite number became inf on the way. Work with logarithms, and with the forms of "
        "torch_clerq.stable (logsumexp, softmax, softplus, sech)."
    )
    UNDERFLOW = (
        "Underflow: a number that is not 0 became 0 on the way, and its gradient with it. Work with logarithms: "
        "log_retrieval_efficiency and log_energy, sums of logarithms for products."
    )
    ILL_CONDITIONED = (
        "Ill-conditioned: the gradient is right, and errors of the input are amplified that much. Regularise, take a "
        "pseudo-inverse, or choose variables that the result depends on less steeply; more digits only postpone it."
    )
    DISCONTINUITY = (
        "Discontinuity: the function jumps here, which no gradient knows of. Smooth the edge (ramps for square pulses, "
        "sigmoids for switches), or do not train what moves it."
    )
    KINK = (
        "Kink or pole: the derivative has different values on both sides, or none. Take a smooth form "
        "(torch_clerq.stable.modulus, softplus, √(x² + ε²)), or start elsewhere."
    )
    NOISE_LIMITED = (
        "Noise-limited differences: the values are too noisy for differences to confirm the gradient, which is not "
        "refuted. Compare on fixed steps (a Resolution in place of an adaptive solver), or tighten its tolerance."
    )
    WRONG = (
        "Wrong gradient: what is differentiated is not what is computed. Look at custom backward functions, detach(), "
        "in-place changes and work outside of torch."
    )
    MISCOMPILED = (
        "Wrong program: compiled, it computes something else than op by op. Look for state that is read while it is "
        "traced, and for custom derivatives; report it if there is none."
    )
    UNDEFINED = "Not a number: the function has no value here. Look at its domain: bounds, signs, logarithms."


TRUSTED = frozenset({Verdict.FINE, Verdict.NOISE_LIMITED})


@dataclass(frozen=True)
class GradientRow:
    """What was found of one parameter. Differences are relative to the gradient along the direction looked at.

    Attributes:
        name: of the parameter.
        verdict: what it comes to.
        norm: Euclidean norm of the gradient.
        forward: difference of forward and reverse mode, nan where there is no forward mode.
        differences: difference of reverse mode and central differences, at the best step.
        floor: how well those are known.
        step: the best step, in the parameter's unit.
        jit: difference of the compiled layer and the one without a compiler on a short window, nan where not compared.
        precision: difference of the gradients in float32 and in float64, nan where not compared.
        amplification: |p||g| / max(|f|, scale): how much relative errors of the parameter are amplified.
        cause: the operation that is to blame, or what else explains the verdict; may be empty.
    """

    name: str
    verdict: Verdict
    norm: float
    forward: float
    differences: float
    floor: float
    step: float
    jit: float
    precision: float
    amplification: float
    cause: str = ""


@dataclass(frozen=True)
class GradientReport:
    """The outcome of `check_gradients`; as text a table that ends in the remedies.

    Attributes:
        value: of the objective.
        noise: how far it moves by rounding alone.
        rows: one a parameter.
        layers: compiled layers against the same without a compiler.
        remarks: what else there is to know.
    """

    value: float
    noise: float
    rows: tuple[GradientRow, ...]
    layers: tuple[JitRow, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against any gradient."""
        return all(row.verdict in TRUSTED for row in self.rows) and not any(layer.differs for layer in self.layers)

    def __getitem__(self, name: str) -> GradientRow:
        return {row.name: row for row in self.rows}[name]

    def __str__(self) -> str:
        titles = ("parameter", "|g|", "fwd−rev", "diff−rev", "floor", "step", "jit", "f32", "amplified", "verdict")
        table: list[tuple[str, ...]] = [titles]
        for row in self.rows:
            numbers = (row.norm, row.forward, row.differences, row.floor, row.step, row.jit, row.precision)
            name = row.name if len(row.name) <= 32 else f"{row.name[:22]}…{row.name[-9:]}"
            verdict = row.verdict.name.lower().replace("_", " ")
            table.append((name, *map(_number, numbers), _number(row.amplification), verdict))
        widths = [max(len(line[i]) for line in table) for i in range(len(titles))]
        lines = [f"objective {self.value:.9g}, rounding noise {_number(self.noise)}"]
        for cells in table:
            first, *middle = (
                c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))
            )
            lines.append("  ".join([first, *middle[:-1], cells[-1]]).rstrip())
        lines += [str(layer) for layer in self.layers]
        lines += [f"{row.name}: {row.cause}" for row in self.rows if row.cause]
        lines += self.remarks
        verdicts = [row.verdict for row in self.rows] + [Verdict.MISCOMPILED for layer in self.layers if layer.differs]
        lines += [verdict.value for verdict in Verdict if verdict in verdicts]
        return "\n".join(_wrapped(line) for line in lines)


def _number(x: float) -> str:
    return "–" if math.isnan(x) else "0" if x == 0 else f"{x:.1e}"


def _wrapped(line: str) -> str:
    """A line of words within 120 columns; tables are."""
    if len(line) <= 120:
        return line
    cut = line.rfind(" ", 0, 120)
    return f"{line[:cut]}\n{_wrapped('  ' + line[cut + 1 :])}"
