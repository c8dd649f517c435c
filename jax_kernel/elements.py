"""The parts of a problem: fields, pulses, decays, a magnetic field and velocity classes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

MU_B_OVER_H = 1.399624493
"""The Bohr magneton over Planck's constant, MHz per gauss, to the digits that clerq has."""


@dataclass(frozen=True)
class Envelope:
    """An analytic pulse or density profile, without its Rabi frequency.

    Attributes:
        name: The function: square, gaussian, sech, ramp_on, ramp_off, ramp_onoff, ramp_offon, sinc or intp.
        args: Its arguments, sorted by name: floats, and for intp the tuples `tlist` and `ylist` (which may be complex).
    """

    name: str
    args: tuple[tuple[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """The arguments by name, sequences as lists."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in self.args}


@dataclass(frozen=True)
class Field:
    """A light field and the transitions it drives.

    Attributes:
        label: A name, "" for none.
        coupled_levels: Pairs (lower, upper).
        factors: Dipole factor of each pair, dimensionless, signed.
        detuning: Cyclic.
        detuning_positive: False when the second level of each pair lies below the first.
        counter_propagating: True for a field that enters at z_max.
        factor_doppler_shift: Its Doppler shift per shift of a velocity class, signed.
        rabi_freq: Factor of the envelope, cyclic, may be complex.
        envelope: The pulse at the field's entrance.
    """

    label: str
    coupled_levels: tuple[tuple[int, int], ...]
    factors: tuple[float, ...]
    detuning: float
    detuning_positive: bool
    counter_propagating: bool
    factor_doppler_shift: float
    rabi_freq: complex | float
    envelope: Envelope


@dataclass(frozen=True)
class Decay:
    """Collapse operators of one rate.

    Attributes:
        rate: Cyclic.
        channels: Pairs (to, from), each with a collapse operator factor sqrt(2 pi rate) |to><from| of its own; (i, i)
            is pure dephasing.
        factors: Factor of each channel.
        operator: In place of channels, a matrix M (to, from) of the collapse operator sqrt(2 pi rate) M, whose
            elements decay coherently; None for channels.
    """

    rate: float
    channels: tuple[tuple[int, int], ...]
    factors: tuple[float, ...]
    operator: tuple[tuple[complex | float, ...], ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The keys of a problem file."""
        if self.operator is not None:
            return {"rate": self.rate, "operator": [list(row) for row in self.operator]}
        channels = [list(pair) for pair in self.channels]
        return {"rate": self.rate, "channels": channels, "factors": list(self.factors)}


@dataclass(frozen=True)
class MagneticField:
    """Adds magnitude g_F m_F to each level's energy; `units` is "natural" (cyclic) or "gauss" (energies in MHz)."""

    magnitude: float
    units: str
    g_F: tuple[float, ...]
    m_F: tuple[float, ...]

    @property
    def shifts(self) -> tuple[float, ...]:
        """The energy of each level in a field of 1 in these units, cyclic."""
        unit = MU_B_OVER_H if self.units == "gauss" else 1.0
        return tuple(unit * g * m for g, m in zip(self.g_F, self.m_F, strict=True))


@dataclass(frozen=True)
class VelocityClasses:
    """The Doppler shifts and the 1/e half-width of their distribution, cyclic; see `jax_kernel.doppler`.

    `quadrature` "gauss-hermite" with its number of `nodes` takes the place of the grid of clerq's `thermal_delta` keys.
    """

    thermal_width: float = 1.0
    thermal_delta_min: float = 0.0
    thermal_delta_max: float = 0.0
    thermal_delta_steps: int = 0
    thermal_delta_inner_min: float = 0.0
    thermal_delta_inner_max: float = 0.0
    thermal_delta_inner_steps: int = 0
    thermal_delta_spacing: float | str | None = None
    thermal_delta_echo_tolerance: float = 1e-6
    quadrature: str | None = None
    nodes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The keys that are accepted together."""
        content = asdict(self)
        if self.quadrature is not None:
            return {
                key: content[key] for key in ("thermal_width", "quadrature", "nodes", "thermal_delta_echo_tolerance")
            }
        del content["quadrature"], content["nodes"]
        if self.thermal_delta_spacing is None:
            del content["thermal_delta_spacing"]
        if self.thermal_delta_spacing != "auto":
            del content["thermal_delta_echo_tolerance"]
        return {key: value for key, value in content.items() if key == "thermal_width" or value}
