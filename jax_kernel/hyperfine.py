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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np

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

    def __post_init__(self) -> None:
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


class _Light(NamedTuple):
    """A field as a problem has it; `step` is what energy, detuning and slope gain on its pairs, but for the own one."""

    entry: dict[str, Any]
    F: float
    step: np.ndarray


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

    def __post_init__(self) -> None:
        _check_spin("nuclear_spin", self.nuclear_spin)
        J, upper_J = self.lower.J, self.upper.J
        if abs(J - upper_J) not in (0, 1) or J + upper_J < 1:
            fail("upper.J", f"be coupled to lower.J = {Fraction(J)} by a dipole", f"is {Fraction(upper_J)}")
        if not (math.isfinite(self.linewidth) and self.linewidth >= 0):
            fail("linewidth", "be finite and at least 0", f"is {self.linewidth}")
        for name, level in (("lower.F", self.lower), ("upper.F", self.upper)):
            possible = self._possible(level)
            if level.F is not None and (not level.F or any(F not in possible for F in level.F)):
                fail(name, f"be some of {_list(possible)}", f"is {show(list(level.F))}")

    def _possible(self, level: FineLevel) -> list[float]:
        lowest = abs(self.nuclear_spin - level.J)
        return [lowest + k for k in range(round(self.nuclear_spin + level.J - lowest) + 1)]

    def _kept(self, upper: bool) -> tuple[float, ...]:
        level = self.upper if upper else self.lower
        return tuple(F for F in self._possible(level) if level.F is None or F in level.F)

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

        The frame rotates with the fields. `energies` are those at zero detuning: lower levels count from the first
        field's F, upper ones from its F'. Detunings and Doppler factors add up along the couplings. With D1, D2 and n1,
        n2 those of the first field and of one from another F, `level_detunings` has 0 for the first F, D1 for upper
        levels and D1 - D2 for the other F, and `level_doppler_slopes` has 0, -n1 and n2 - n1. Fields that drive
        different sublevels of one F may make these differ.

        Args:
            fields: At least one field, the probe first.
            initial_state: Populations, shape (level,), see `populations`; None spreads them over all lower sublevels.
            b_field: Magnetic field along the quantisation axis, in gauss (energies in MHz), or None.
            label: Name of the system.

        Returns:
            A problem's `system`, of new lists and dicts.

        Raises:
            ProblemError: A field's transition or polarisation is none, or two ways from one sublevel to another differ
                in frequency or Doppler factor, as two fields on one pair may: no frame stands still.

        Example:
            >>> from jax_kernel.atoms import rubidium87
            >>> probe = {"transition": (1, 1), "polarisation": "sigma+", "detuning": -10.0, "rabi_freq": 1e-3}
            >>> control = {"transition": (2, 1), "polarisation": "pi", "counter_propagating": True, "rabi_freq": 5.0}
            >>> system = rubidium87.d1.select(upper_F=[1]).system([probe, control])
            >>> [(system["level_detunings"][k], system["level_doppler_slopes"][k]) for k in (0, 3, 8)]  # 1, 2, 1'
            [(0.0, 0.0), (-10.0, -2.0), (-10.0, -1.0)]
        """
        if isinstance(fields, (str, Mapping)) or not fields:
            fail("fields", "be a list of at least one field", f"is {show(fields)}")
        lights = [self._read_field(f"fields[{k}]", field) for k, field in enumerate(fields)]
        energies, detunings, slopes = self._frame(lights)
        system: dict[str, Any] = {
            "num_states": len(self.levels),
            "energies": energies,
            "level_detunings": detunings,
            "level_doppler_slopes": slopes,
            "initial_state": list(self.populations() if initial_state is None else initial_state),
            "decays": [self.decay()],
            "fields": [light.entry for light in lights],
        }
        if b_field is not None:
            system["b_field"] = self.b_field(b_field)
        if label is not None:
            system["label"] = label
        return system

    def _frame(self, lights: Sequence[_Light]) -> list[list[float]]:
        """Energy, detuning and Doppler slope of each level in the frame of the fields."""
        own = np.array([[level.energy, 0.0, 0.0] for level in self.levels])
        first = lights[0]
        ground = {light.F: first.step - light.step for light in reversed(lights)}
        origin = own[self.index(first.F, first.F)]
        frame = np.array([
            mine + first.step if level.upper else ground.get(level.F, mine - origin)
            for mine, level in zip(own, self.levels, strict=True)
        ])  # fmt: skip
        scale = np.max(np.abs([light.step for light in lights]), initial=1e-300)
        joined = np.arange(len(self.levels))  # levels that couplings connect have one number
        for k, light in enumerate(lights):
            for a, b in light.entry["coupled_levels"]:
                gap = frame[a] + light.step + own[b] - frame[b]
                frequency, doppler = gap[0] - gap[1], gap[2]
                miss = max(abs(frequency) / scale, abs(doppler))
                if joined[a] != joined[b] and miss > 1e-12:
                    frame[joined == joined[b]] += gap
                elif miss > 1e-6:
                    way = f"{self.levels[a].label} to {self.levels[b].label}"
                    fail(f"fields[{k}]", f"agree with the fields that lead from {way} in one frame (give them other "
                         "pairs, by polarisation or F, or one frequency and direction)",
                         f"its detuning differs by {frequency:.9g}, its Doppler factor by {doppler + 0:g}")  # fmt: skip
                joined[joined == joined[b]] = joined[a]
        return (frame + 0.0).T.tolist()

    def _read_field(self, name: str, field: Mapping[str, Any]) -> _Light:
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
        numbers = {"detuning": 0.0, "factor_doppler_shift": -1.0 if content.get("counter_propagating") else 1.0}
        numbers |= {key: content[key] for key in numbers if content.get(key) is not None}
        content.pop("detuning", None)  # the factor stays: a march tells by it what runs backwards
        for key, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                fail(f"{name}.{key}", "be a finite real number", f"is {show(value)}")
        pairs, factors = self._pairs(_amplitudes(f"{name}.polarisation", amplitudes), [F], None, zeros=False)
        if not pairs:
            fail(f"{name}.polarisation", f"drive some sublevel of F = {Fraction(F)}", f"is {show(amplitudes)}")
        energy = self.levels[self.index(upper_F, upper_F, upper=True)].energy
        step = (-energy, numbers["detuning"], -numbers["factor_doppler_shift"])
        return _Light({"coupled_levels": pairs, "factors": factors} | content, F, np.array(step))


def _amplitudes(name: str, polarisation: Any) -> Mapping[int, float]:
    """Amplitude by q of a polarisation."""
    if isinstance(polarisation, str) and polarisation in POLARISATIONS:
        return POLARISATIONS[polarisation]
    if is_integer(polarisation) and polarisation in (-1, 0, 1):
        return {int(polarisation): 1.0}
    if isinstance(polarisation, Mapping):
        real = all(isinstance(value, Real) for value in polarisation.values())
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
