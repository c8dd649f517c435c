"""The sublevels |F, m_F> of an alkali line: energies, dipole factors, decays and Zeeman shifts, ready for a problem.

`HyperfineLine.system` writes a problem's whole `system`; the other methods write its parts. Frequencies are cyclic and
in one unit, MHz for the lines of `jax_kernel.atoms`. The lower sublevels come first; F rises, and m_F within F.

The factor of a pair is <F m_F| d_q |F' m_F'> / <J||d||J'> with Steck's reduced element (D. A. Steck, Rubidium 87 D Line
Data, eqs. 35 and 36), as in `clerq.hyperfine` with signs. Two things are easily missed. The component q belongs to that
matrix element, so that m_F' = m_F - q: light that raises m_F (sigma+) has q = -1. And the squared factors with which an
excited sublevel decays sum to (2J + 1) / (2J' + 1), 1/2 on a D2 line: for the upper levels to decay with the linewidth,
`HyperfineLine.decay` has the rate linewidth * `dipole_strength`, and the laboratory functions take `dipole_strength` as
their `factor`.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

from .angular_momentum import dipole_factor, hyperfine_shift, lande_g_F, wigner_6j
from .parameters import fail
from .reading import is_integer, show, suggestion

Polarisation = int | str | Mapping[int, float]
"""A component q (-1, 0, 1), a name of `POLARISATIONS`, or real amplitudes by q whose squares sum to 1."""

POLARISATIONS: dict[str, dict[int, float]] = {
    "sigma+": {-1: 1.0},
    "sigma-": {1: 1.0},
    "pi": {0: 1.0},
    "x": {-1: math.sqrt(0.5), 1: -math.sqrt(0.5)},
    "y": {-1: math.sqrt(0.5), 1: math.sqrt(0.5)},
    "isotropic": {q: math.sqrt(1 / 3) for q in (-1, 0, 1)},
}
"""Amplitude by q. sigma+ drives m_F -> m_F + 1; x and y are linear and across the quantisation axis, pi is along it."""


def _check_spin(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0 or (2 * value) % 1:
        fail(name, "be a multiple of 1/2 of at least 0", f"is {show(value)}")


def _list(values: Sequence[float]) -> str:
    return ", ".join(str(Fraction(value)) for value in values)


@dataclass(frozen=True)
class FineLevel:
    """A fine-structure level and its hyperfine constants.

    Attributes:
        J: Angular momentum of the electrons.
        A: Magnetic dipole constant, cyclic.
        B: Electric quadrupole constant, cyclic.
        g_J: g-factor in units of the Bohr magneton (see `angular_momentum.lande_g_J`); None without magnetic fields.
        F: The hyperfine levels that are kept, None for all.
    """

    J: float
    A: float = 0.0
    B: float = 0.0
    g_J: float | None = None
    F: tuple[float, ...] | None = None

    def __post_init__(self):
        _check_spin("J", self.J)


@dataclass(frozen=True)
class Sublevel:
    """A state |F, m_F> of a line.

    Attributes:
        F: Total angular momentum.
        m_F: Its projection on the quantisation axis.
        upper: Whether it belongs to the line's upper level.
        energy: Hyperfine shift from its own fine-structure level, cyclic.
        g_F: g-factor in units of the Bohr magneton, None without g_J.
    """

    F: float
    m_F: float
    upper: bool
    energy: float
    g_F: float | None

    @property
    def label(self) -> str:
        """|F, m> for a lower level and |F', m'> for an upper one, with their numbers."""
        prime, m_F = "'" if self.upper else "", Fraction(self.m_F)
        return f"|F{prime}={Fraction(self.F)}, m{prime}={'+' if m_F > 0 else ''}{m_F}>"


@dataclass(frozen=True)
class HyperfineLine:
    """A line of an atom with one valence electron, with all its sublevels |F, m_F>.

    Spontaneous emission has one collapse operator for each pair of sublevels, as in clerq: populations are exact,
    coherences between excited sublevels are not passed on to the lower ones.

    Attributes:
        nuclear_spin: I.
        lower: The lower fine-structure level.
        upper: The upper one.
        linewidth: Natural linewidth, the total decay rate of every upper sublevel, cyclic.
        g_I: Nuclear g-factor in units of the Bohr magneton, of Steck's sign; 0 neglects a thousandth of g_F.

    Raises:
        ProblemError: A quantum number is none, no light couples the two levels, or `linewidth` is negative.

    Example:
        >>> line = HyperfineLine(nuclear_spin=1.5, lower=FineLevel(J=0.5), upper=FineLevel(J=0.5), linewidth=1.0)
        >>> len(line.levels), line.index(2, 1), line.levels[line.index(1, -1, upper=True)].label
        (16, 6, "|F'=1, m'=-1>")
        >>> line.select(lower_F=[1], upper_F=[1]).coupling("pi")["coupled_levels"]
        [[0, 3], [2, 5]]
    """

    nuclear_spin: float
    lower: FineLevel
    upper: FineLevel
    linewidth: float
    g_I: float = 0.0

    def __post_init__(self):
        _check_spin("nuclear_spin", self.nuclear_spin)
        J, upper_J = self.lower.J, self.upper.J
        if abs(J - upper_J) not in (0, 1) or J + upper_J < 1:
            fail("upper.J", f"be coupled to lower.J = {Fraction(J)} by a dipole", f"is {Fraction(upper_J)}")
        if not (math.isfinite(self.linewidth) and self.linewidth >= 0):
            fail("linewidth", "be finite and at least 0", f"is {self.linewidth}")
        for name, level in (("lower.F", self.lower), ("upper.F", self.upper)):
            lowest = abs(self.nuclear_spin - level.J)
            possible = [lowest + k for k in range(round(self.nuclear_spin + level.J - lowest) + 1)]
            kept = possible if level.F is None else level.F
            if not kept or any(F not in possible for F in kept):
                fail(name, f"be some of {_list(possible)}", f"is {show(list(kept))}")

    def _kept(self, upper: bool) -> tuple[float, ...]:
        level = self.upper if upper else self.lower
        lowest = abs(self.nuclear_spin - level.J)
        possible = (lowest + k for k in range(round(self.nuclear_spin + level.J - lowest) + 1))
        return tuple(F for F in possible if level.F is None or F in level.F)

    def select(self, lower_F: Sequence[float] | None = None, upper_F: Sequence[float] | None = None) -> Self:
        """The same line with some of its hyperfine levels only; emission into lower ones left out does not happen.

        Args:
            lower_F: The F that are kept, None for all.
            upper_F: The F' that are kept, None for all.

        Returns:
            A new line.

        Raises:
            ProblemError: The line has no such level.
        """
        lower = replace(self.lower, F=None if lower_F is None else tuple(lower_F))
        return replace(self, lower=lower, upper=replace(self.upper, F=None if upper_F is None else tuple(upper_F)))

    @cached_property
    def levels(self) -> tuple[Sublevel, ...]:
        """The sublevels in the order of a problem's levels: the lower ones first, F and then m_F rising."""
        sublevels = []
        for upper, level in ((False, self.lower), (True, self.upper)):
            for F in self._kept(upper):
                energy = hyperfine_shift(self.nuclear_spin, level.J, F, level.A, level.B)
                g_J = level.g_J
                g_F = None if g_J is None else lande_g_F(self.nuclear_spin, level.J, F, g_J, self.g_I)
                sublevels += [Sublevel(F, k - F, upper, energy, g_F) for k in range(round(2 * F) + 1)]
        return tuple(sublevels)

    @property
    def energies(self) -> list[float]:
        """The hyperfine shift of each sublevel from its own fine-structure level, cyclic; `system` moves them."""
        return [level.energy for level in self.levels]

    @property
    def dipole_strength(self) -> float:
        """(2J' + 1) / (2J + 1): the squared dipole of factor 1 over that of a two-level atom of the same linewidth.

        2 on a D2 line, 1 on a D1 line: the `factor` of `jax_kernel.laboratory`'s functions for this line.
        """
        return (2 * self.upper.J + 1) / (2 * self.lower.J + 1)

    def index(self, F: float, m_F: float, upper: bool = False) -> int:
        """The position of a sublevel among the problem's levels.

        Args:
            F: Total angular momentum, F' where `upper`.
            m_F: Its projection.
            upper: Whether an upper sublevel is meant.

        Returns:
            The position, from 0.

        Raises:
            ProblemError: The line has no such sublevel.
        """
        self._check_F("F", F, upper)
        for position, level in enumerate(self.levels):
            if (level.upper, level.F, level.m_F) == (upper, F, m_F):
                return position
        fail("m_F", f"be one of -F to F with F = {Fraction(F)}", f"is {show(m_F)}")

    def _check_F(self, name: str, F: Any, upper: bool) -> None:
        if F not in self._kept(upper):
            fail(name, f"be one of {_list(self._kept(upper))}", f"is {show(F)}")

    def strength(self, F: float, upper_F: float) -> float:
        """The part of F -> F' in the absorption from any sublevel of F (Steck, Rubidium 87 D Line Data, section 4.3).

        Args:
            F: Lower level.
            upper_F: Upper level.

        Returns:
            The sum of squared factors over q, of sum 1 over all F'.

        Example:
            >>> from jax_kernel.atoms import rubidium87
            >>> [round(rubidium87.d2.strength(2, upper_F), 12) for upper_F in (1, 2, 3)]
            [0.05, 0.25, 0.7]
        """
        self._check_F("F", F, upper=False)
        self._check_F("upper_F", upper_F, upper=True)
        symbol = wigner_6j(self.lower.J, self.upper.J, 1, upper_F, F, self.nuclear_spin)
        return (2 * upper_F + 1) * (2 * self.lower.J + 1) * symbol**2

    def _pairs(
        self, amplitudes: Mapping[int, float], lower_F: Any, upper_F: Any, zeros: bool
    ) -> tuple[list[list[int]], list[float]]:
        """Pairs [lower, upper] of the levels asked for, and the sum over q of amplitude and factor of each."""
        wanted: list[list[int]] = []
        for name, upper, chosen in (("lower_F", False, lower_F), ("upper_F", True, upper_F)):
            for F in chosen or ():
                self._check_F(name, F, upper)
            kept = [k for k, level in enumerate(self.levels) if level.upper == upper]
            wanted.append(kept if chosen is None else [k for k in kept if self.levels[k].F in chosen])
        pairs, factors = [], []
        for lower, upper_level in itertools.product(*wanted):
            a, b = self.levels[lower], self.levels[upper_level]
            q = round(a.m_F - b.m_F)
            factor = 0.0
            if amplitudes.get(q):
                factor = dipole_factor(
                    self.nuclear_spin, self.lower.J, a.F, a.m_F, self.upper.J, b.F, b.m_F, q
                ) * amplitudes[q]  # fmt: skip
            if factor or zeros:
                pairs.append([lower, upper_level])
                factors.append(factor)
        return pairs, factors

    def coupling(
        self,
        polarisation: Polarisation,
        *,
        lower_F: Sequence[float] | None = None,
        upper_F: Sequence[float] | None = None,
        zeros: bool = False,
    ) -> dict[str, Any]:
        """The pairs that light of one polarisation drives, with their factors.

        Args:
            polarisation: q of the dipole (-1, 0, 1), a name of `POLARISATIONS`, or real amplitudes by q.
            lower_F: The F it drives from, None for all.
            upper_F: The F' it drives to, None for all.
            zeros: Whether pairs with factor 0 are listed, as clerq lists them.

        Returns:
            A field's `coupled_levels`, [lower, upper], and `factors`, dimensionless and signed.

        Raises:
            ProblemError: The polarisation is none, or the line has no such level.

        Example:
            >>> from jax_kernel.atoms import rubidium87
            >>> coupling = rubidium87.d1.coupling("sigma-", lower_F=[1], upper_F=[1])
            >>> coupling["coupled_levels"], [round(factor, 6) for factor in coupling["factors"]]
            ([[1, 8], [2, 9]], [0.288675, 0.288675])
        """
        pairs, factors = self._pairs(_amplitudes("polarisation", polarisation), lower_F, upper_F, zeros)
        return {"coupled_levels": pairs, "factors": factors}

    def decay(self, *, zeros: bool = False) -> dict[str, Any]:
        """Spontaneous emission from every upper sublevel, at the linewidth in all.

        Args:
            zeros: Whether channels with factor 0 are listed, as clerq lists them.

        Returns:
            An entry of `decays`: `channels` [to, from], their `factors`, and the cyclic `rate`, which is
            linewidth * `dipole_strength` because the squared factors from one sublevel sum to 1 / `dipole_strength`.
        """
        channels, factors = self._pairs({q: 1.0 for q in (-1, 0, 1)}, None, None, zeros)
        return {"rate": self.linewidth * self.dipole_strength, "channels": channels, "factors": factors}

    def b_field(self, magnitude: float, units: str = "gauss") -> dict[str, Any]:
        """A magnetic field along the quantisation axis: linear Zeeman shifts, +g_F m_F mu_B B.

        Args:
            magnitude: In gauss (energies in MHz), or a cyclic frequency where `units` is "natural".
            units: "gauss" or "natural".

        Returns:
            A system's `b_field`.

        Raises:
            ProblemError: A level has no g_J.
        """
        for name, level in (("lower.g_J", self.lower), ("upper.g_J", self.upper)):
            if level.g_J is None:
                fail(name, "be given where a magnetic field is wanted", "is None: see `angular_momentum.lande_g_J`")
        return {
            "magnitude": magnitude,
            "units": units,
            "g_F": [level.g_F for level in self.levels],
            "m_F": [level.m_F for level in self.levels],
        }

    def populations(self, F: float | None = None, m_F: float | None = None) -> list[float]:
        """Atoms spread equally over lower sublevels.

        Args:
            F: Over those of one F; None for all, as in a vapour that no light has pumped.
            m_F: All in one sublevel of F.

        Returns:
            A system's `initial_state`.

        Raises:
            ProblemError: The line has no such sublevel, or `m_F` is given without `F`.

        Example:
            >>> from jax_kernel.atoms import rubidium87
            >>> rubidium87.d1.select(upper_F=[1]).populations(F=1)[:4]
            [0.3333333333333333, 0.3333333333333333, 0.3333333333333333, 0.0]
        """
        if F is None and m_F is not None:
            fail("F", "be given with m_F", "is missing")
        if F is not None:
            self._check_F("F", F, upper=False)
        chosen = [
            not level.upper and F in (None, level.F) and (m_F is None or level.m_F == m_F) for level in self.levels
        ]
        if not any(chosen):
            fail("m_F", f"be one of -F to F with F = {Fraction(F or 0)}", f"is {show(m_F)}")
        return [1 / sum(chosen) if member else 0.0 for member in chosen]

    def system(
        self,
        fields: Sequence[Mapping[str, Any]],
        *,
        initial_state: Sequence[float] | None = None,
        b_field: float | None = None,
        label: str | None = None,
    ) -> dict[str, Any]:
        """The `system` of a problem: this line in the light of some fields.

        A field is a problem's, with two keys in place of `coupled_levels` and `factors`: `transition` (F, F'), which is
        what its `detuning` counts from, and `polarisation`, as for `coupling`. It drives F to every F', and no other F.

        The energies are those in the frame of the fields. Lower levels count from the first field's F and upper levels
        from its F'; the first field's `detuning` is written as its own and moves all upper levels. A further field from
        another F sets that F's energy, so that its detuning is right in the problem's one frame; what is written as its
        own `detuning` is 0. Its Doppler shift is the first field's. A lower level without a field keeps its distance.

        Args:
            fields: At least one field, the probe first.
            initial_state: Populations, shape (level,), see `populations`; None spreads them over all lower sublevels.
            b_field: Magnetic field along the quantisation axis, in gauss (energies in MHz), or None.
            label: Name of the system.

        Returns:
            A problem's `system`, of new lists and dicts.

        Raises:
            ProblemError: A field's transition or polarisation is none, or two fields from one F differ in frequency.

        Example:
            >>> from jax_kernel.atoms import rubidium87
            >>> probe = {"transition": (2, 3), "polarisation": "sigma+", "detuning": -10.0, "rabi_freq": 1e-3}
            >>> system = rubidium87.d2.system([probe])
            >>> system["num_states"], len(system["fields"][0]["factors"]), system["fields"][0]["detuning"]
            (24, 12, -10.0)
        """
        if isinstance(fields, (str, Mapping)) or not fields:
            fail("fields", "be a list of at least one field", f"is {show(fields)}")
        read = [self._read_field(f"fields[{k}]", field, further=k > 0) for k, field in enumerate(fields)]
        written = [entry for entry, _, _ in read]
        if len(written) > 1:  # its projector on upper levels carries the detuning and the Doppler shift for all fields
            pairs, factors = written[0]["coupled_levels"], written[0]["factors"]
            start, covered = pairs[0][0], {upper for _, upper in pairs}
            missing = [k for k, level in enumerate(self.levels) if level.upper and k not in covered]
            pairs += [[start, k] for k in missing]
            factors += [0.0] * len(missing)
        system: dict[str, Any] = {
            "num_states": len(self.levels),
            "energies": self._frame([(transition, detuning) for _, transition, detuning in read]),
            "initial_state": list(self.populations() if initial_state is None else initial_state),
            "decays": [self.decay()],
            "fields": written,
        }
        if b_field is not None:
            system["b_field"] = self.b_field(b_field)
        if label is not None:
            system["label"] = label
        return system

    def _frame(self, fields: list[tuple[tuple[float, float], float]]) -> list[float]:
        """The energies in the rotating frame of fields with these transitions and detunings."""
        lower = {level.F: level.energy for level in self.levels if not level.upper}
        upper = {level.F: level.energy for level in self.levels if level.upper}
        (first, first_upper), first_detuning = fields[0]
        frame: dict[float, float] = {}
        for k, ((F, upper_F), detuning) in enumerate(fields):
            energy = upper[upper_F] - upper[first_upper] + detuning - first_detuning
            if abs(energy - frame.setdefault(F, energy)) > 1e-6 * max(map(abs, (*upper.values(), detuning))):
                other = frame[F] - (energy - detuning)
                same = f"be {other:.9g}, which makes its frequency that of the earlier field from F = {Fraction(F)}"
                fail(f"fields[{k}].detuning", same,
                     f"is {detuning:.9g}: a frame has one frequency from each F")  # fmt: skip
        return [
            level.energy - upper[first_upper] if level.upper else frame.get(level.F, level.energy - lower[first])
            for level in self.levels
        ]

    def _read_field(
        self, name: str, field: Mapping[str, Any], further: bool
    ) -> tuple[dict[str, Any], tuple[float, float], float]:
        """A field as a problem has it, its transition, and its detuning from it."""
        if not isinstance(field, Mapping):
            fail(name, "be an object (a dict)", f"is {show(field)}")
        content = dict(field)
        for key in ("coupled_levels", "factors", "detuning_positive"):
            if key in content:
                fail(f"{name}.{key}", "be absent beside `transition` and `polarisation`, which set it", "is there")
        for key in ("transition", "polarisation"):
            if content.get(key) is None:
                near = next((other for other in content if suggestion(other, (key,))), None)
                fail(f"{name}.{key}", "be given", f"is missing{f' (there is `{near}`)' if near else ''}")
        transition, amplitudes = content.pop("transition"), content.pop("polarisation")
        if not isinstance(transition, (list, tuple)) or len(transition) != 2:
            fail(f"{name}.transition", "be a pair (F, F')", f"is {show(transition)}")
        F, upper_F = transition
        self._check_F(f"{name}.transition[0]", F, upper=False)
        self._check_F(f"{name}.transition[1]", upper_F, upper=True)
        detuning = content.get("detuning")
        detuning = 0.0 if detuning is None else detuning
        if isinstance(detuning, bool) or not isinstance(detuning, numbers.Real) or not math.isfinite(detuning):
            fail(f"{name}.detuning", "be a finite real number", f"is {show(detuning)}")
        pairs, factors = self._pairs(_amplitudes(f"{name}.polarisation", amplitudes), [F], None, zeros=False)
        if not pairs:
            fail(f"{name}.polarisation", f"drive some sublevel of F = {Fraction(F)}", f"is {show(amplitudes)}")
        entry: dict[str, Any] = {"coupled_levels": pairs, "factors": factors} | content
        entry["detuning"] = 0.0 if further else float(detuning)
        if further:
            for key in ("factor_doppler_shift", "counter_propagating"):
                if content.get(key):
                    fail(f"{name}.{key}", "be absent from a field after the first, whose Doppler shift it has in the "
                         "problem's one frame", f"is {show(content[key])}")  # fmt: skip
            entry["factor_doppler_shift"] = 0.0
        return entry, (F, upper_F), float(detuning)


def _amplitudes(name: str, polarisation: Any) -> Mapping[int, float]:
    """Amplitude by q of a polarisation."""
    if isinstance(polarisation, str):
        if polarisation in POLARISATIONS:
            return POLARISATIONS[polarisation]
    elif is_integer(polarisation):
        if polarisation in (-1, 0, 1):
            return {int(polarisation): 1.0}
    elif isinstance(polarisation, Mapping):
        real = all(isinstance(value, numbers.Real) for value in polarisation.values())
        if not real or not all(is_integer(q) and q in (-1, 0, 1) for q in polarisation):
            fail(name, "have real amplitudes by q, -1, 0 or 1", f"is {show(dict(polarisation))}")
        total = math.fsum(value**2 for value in polarisation.values())
        if not abs(total - 1) <= 1e-6:
            fail(name, "have amplitudes whose squares sum to 1", f"they sum to {total:.9g}")
        return polarisation
    fail(
        name,
        f"be q (-1, 0 or 1), amplitudes by q or one of {', '.join(POLARISATIONS)}",
        f"is {show(polarisation)}{suggestion(polarisation, POLARISATIONS)}",
    )
