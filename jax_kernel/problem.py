"""What is solved: levels, fields, decays, medium, velocity classes and grids, read from and written as clerq JSON.

`Problem.from_json` and `Problem.from_dict` are the checked ways in. Every frequency is cyclic; times and lengths are in
any units consistent with it. The keys and their defaults are those of `clerq.PropagationSolver` 0.15.
"""

from __future__ import annotations

import difflib
import itertools
import json
import math
import numbers
import os
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from jax_kernel import doppler
from jax_kernel.errors import ProblemError

# name -> (arguments that must be there, groups of which exactly one must be there)
_ENVELOPES: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "square": (("ampl", "on", "off"), ()),
    "gaussian": (("centre", "fwhm"), (("ampl", "n_pi"),)),
    "sech": (("centre",), (("ampl", "n_pi"), ("width", "fwhm"))),
    "ramp_on": (("ampl", "fwhm", "on"), ()),
    "ramp_off": (("ampl", "fwhm", "off"), ()),
    "ramp_onoff": (("ampl", "fwhm", "on", "off"), ()),
    "ramp_offon": (("ampl", "fwhm", "on", "off"), ()),
    "sinc": (("ampl", "width"), ()),
    "intp": (("tlist", "ylist"), ()),
}
_DEFAULT_ARGS = {"on": 0.0, "off": 1.0, "ampl": 1.0}
_IGNORED = ("method", "opts", "savefile")  # they steer clerq's machinery, not the physics
_TOP_KEYS = (
    "system", "atom", "t_min", "t_max", "t_steps", "z_min", "z_max", "z_steps", "z_steps_inner", "num_density_z_func",
    "num_density_z_args", "interaction_strengths", "velocity_classes", "real_drive", *_IGNORED,
)  # fmt: skip
_SYSTEM_KEYS = ("num_states", "energies", "initial_state", "decays", "fields", "b_field", "label")
_FIELD_KEYS = (
    "coupled_levels", "factors", "detuning", "detuning_positive", "counter_propagating", "factor_doppler_shift",
    "rabi_freq", "rabi_freq_t_func", "rabi_freq_t_args", "label", "index",
)  # fmt: skip


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
    """Collapse operators factor sqrt(2 pi rate) |to><from| for channels (to, from); (i, i) is pure dephasing."""

    rate: float
    channels: tuple[tuple[int, int], ...]
    factors: tuple[float, ...]


@dataclass(frozen=True)
class MagneticField:
    """Adds magnitude g_F m_F to each level's energy; `units` is "natural" (cyclic) or "gauss" (energies in MHz)."""

    magnitude: float
    units: str
    g_F: tuple[float, ...]
    m_F: tuple[float, ...]


@dataclass(frozen=True)
class VelocityClasses:
    """The grid of Doppler shifts and the 1/e half-width of their distribution, cyclic; see `jax_kernel.doppler`."""

    thermal_width: float = 1.0
    thermal_delta_min: float = 0.0
    thermal_delta_max: float = 0.0
    thermal_delta_steps: int = 0
    thermal_delta_inner_min: float = 0.0
    thermal_delta_inner_max: float = 0.0
    thermal_delta_inner_steps: int = 0
    thermal_delta_spacing: float | str | None = None
    thermal_delta_echo_tolerance: float = 1e-6

    def to_dict(self) -> dict[str, Any]:
        """The keys that clerq accepts together."""
        content = asdict(self)
        if self.thermal_delta_spacing is None:
            del content["thermal_delta_spacing"]
        if self.thermal_delta_spacing != "auto":
            del content["thermal_delta_echo_tolerance"]
        return content


@dataclass(frozen=True, repr=False)
class Problem:
    """A medium of driven, decaying quantum systems and the light that enters it.

    Attributes:
        num_states: Number of levels.
        energies: Cyclic, shape (level,).
        initial_state: Populations before the light comes, shape (level,).
        decays: Decays, each with its channels.
        fields: Light fields.
        b_field: Magnetic field or None.
        t_min: Start of the window in retarded time.
        t_max: End of the window.
        t_steps: Intervals of the time grid, at least 3.
        z_min: Where the forward fields enter.
        z_max: Where they leave.
        z_steps: Intervals between the stored positions.
        z_steps_inner: Steps of the z-march per stored interval, or "auto".
        number_density: Profile over z, a factor of the interaction strengths.
        interaction_strengths: Cyclic frequency per unit length, shape (field,).
        velocity_classes: Doppler broadening, or None for atoms at rest.
        label: Name of the system.
    """

    num_states: int
    energies: tuple[float, ...]
    initial_state: tuple[float, ...]
    decays: tuple[Decay, ...]
    fields: tuple[Field, ...]
    b_field: MagneticField | None
    t_min: float
    t_max: float
    t_steps: int
    z_min: float
    z_max: float
    z_steps: int
    z_steps_inner: int | str
    number_density: Envelope
    interaction_strengths: tuple[float, ...]
    velocity_classes: VelocityClasses | None = None
    label: str | None = None

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Problem:
        """Read a problem file.

        Args:
            path: A file with one JSON object, see `from_dict`.

        Returns:
            The problem.

        Raises:
            ProblemError: The file cannot be read, is not JSON, or breaks a rule of `from_dict`.
        """

        def refuse(constant: str) -> None:
            raise ProblemError(f"File {os.fspath(path)} must have finite numbers only, but has {constant}.")

        try:
            content = json.loads(Path(path).read_text(encoding="utf-8-sig"), parse_constant=refuse)
        except OSError as error:
            raise ProblemError(f"File {os.fspath(path)} must be readable, but: {error.strerror}.") from error
        except ProblemError:
            raise
        except (ValueError, RecursionError) as error:
            raise ProblemError(f"File {os.fspath(path)} must be JSON, but is not: {error}.") from error
        if not isinstance(content, dict):
            raise ProblemError(f"File {os.fspath(path)} must hold one JSON object, but holds {_show(content)}.")
        try:
            return cls.from_dict(content)
        except ProblemError as error:
            raise ProblemError(f"{str(error).removesuffix('.')} (in file {os.fspath(path)}).") from error

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Problem:
        """Check and read the constructor arguments of `clerq.PropagationSolver`.

        `atom` is an alias of `system`; None stands for the default; `method`, `opts`, `savefile` and a field's `index`
        are ignored.

        Args:
            content: The arguments, never changed.

        Returns:
            The problem.

        Raises:
            ProblemError: A key, a type, a length or a value breaks a rule; one sentence says which.
        """
        if isinstance(content, Mapping) and not ("system" in content or "atom" in content):
            for kind, keys, home in (
                ("field", _FIELD_KEYS[:-2], "system.fields"),
                ("system", _SYSTEM_KEYS[:-1], "system"),
            ):
                found = next((key for key in keys if key in content), None)
                if found is not None:
                    raise ProblemError(
                        f"Argument `problem` must define a problem, but defines a {kind} (it has the key `{found}`): "
                        f"put it under `{home}` of a problem."
                    )
        top = _Keys(content, "", _TOP_KEYS)
        if top.get("system") is not None and top.get("atom") is not None:
            top.fail("atom", "be absent where `system` is given", "is there: it is the old name of `system`")
        if top.flag("real_drive", False):
            top.fail("real_drive", "be false", "is true: a field drives with both quadratures")
        system = top.child("atom" if top.get("atom") is not None else "system", _SYSTEM_KEYS)
        levels = system.integer("num_states", 1, 1)
        light = tuple(_read_field(item, levels) for item in system.children("fields", _FIELD_KEYS))
        labels = [field.label for field in light if field.label]
        for label in labels:
            if labels.count(label) > 1:
                system.fail("fields", "have distinct labels", f"has {_show(label)} {labels.count(label)} times")
        strengths = top.numbers("interaction_strengths")
        if not strengths and light:
            cure = ": a driven system without a medium is not a propagation problem"
            top.fail("interaction_strengths", f"have one strength per field ({len(light)})", f"is missing{cure}")
        if not light:
            system.fail("fields", "have at least one field", "is empty: without light nothing propagates")
        if len(strengths) != len(light):
            top.fail("interaction_strengths", f"have one strength per field ({len(light)})", f"has {len(strengths)}")
        (t_min, t_max), (z_min, z_max) = top.window("t"), top.window("z")
        inner = top.get("z_steps_inner")
        if not (isinstance(inner, str) and inner == "auto"):
            inner = top.integer("z_steps_inner", 2, 1, ' or "auto"')
        return cls(
            num_states=levels,
            energies=system.numbers("energies", levels, "level") or (0.0,) * levels,
            initial_state=_read_initial_state(system, levels),
            decays=tuple(_read_decay(item, levels) for item in system.children("decays", _DECAY_KEYS)),
            fields=light,
            b_field=_read_b_field(system, levels),
            t_min=t_min,
            t_max=t_max,
            t_steps=top.integer("t_steps", 100, 3, " (the sampled drive needs four time points)"),
            z_min=z_min,
            z_max=z_max,
            z_steps=top.integer("z_steps", 10, 1),
            z_steps_inner=inner,
            number_density=_read_density(top, z_min, z_max),
            interaction_strengths=strengths,
            velocity_classes=_read_velocity_classes(top),
            label=system.text("label", None),
        )

    def to_dict(self) -> dict[str, Any]:
        """The constructor arguments of `clerq.PropagationSolver`, which `from_dict` reads back to an equal problem.

        Returns:
            Nested dicts and lists, shared with nothing; complex values stay complex.
        """
        system = {
            "label": self.label,
            "num_states": self.num_states,
            "energies": list(self.energies),
            "initial_state": list(self.initial_state),
            "decays": [
                {
                    "rate": decay.rate,
                    "channels": [list(pair) for pair in decay.channels],
                    "factors": list(decay.factors),
                }
                for decay in self.decays
            ],
            "fields": [_write_field(field) for field in self.fields],
        }
        if self.b_field is not None:
            b_field = self.b_field
            system["b_field"] = {**asdict(b_field), "g_F": list(b_field.g_F), "m_F": list(b_field.m_F)}
        content = {key: getattr(self, key) for key in ("t_min", "t_max", "t_steps", "z_min", "z_max", "z_steps")}
        return {
            "system": system,
            **content,
            "z_steps_inner": self.z_steps_inner,
            "num_density_z_func": self.number_density.name,
            "num_density_z_args": self.number_density.to_dict(),
            "interaction_strengths": list(self.interaction_strengths),
            "velocity_classes": None if self.velocity_classes is None else self.velocity_classes.to_dict(),
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write a problem file; a reader sees the old file or the whole new one.

        Args:
            path: Where to.

        Raises:
            ProblemError: A Rabi frequency or an interpolated pulse is complex, for which the format has no form.
        """
        for index, field in enumerate(self.fields):
            samples = dict(field.envelope.args).get("ylist", ())
            for name, values in (("rabi_freq", (field.rabi_freq,)), ("rabi_freq_t_args.ylist", samples)):
                if any(isinstance(value, complex) for value in values):
                    raise ProblemError(
                        f"Argument `system.fields[{index}].{name}` must be real in a file, but is complex: "
                        "keep it in Python with `to_dict`."
                    )
        target = Path(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    @property
    def time(self) -> np.ndarray:
        """The grid of retarded time, shape (time,) = (t_steps + 1,)."""
        return np.linspace(self.t_min, self.t_max, self.t_steps + 1)

    @property
    def z(self) -> np.ndarray:
        """The stored positions, shape (z,) = (z_steps + 1,)."""
        return np.linspace(self.z_min, self.z_max, self.z_steps + 1)

    @property
    def thermal_width(self) -> float:
        """The 1/e half-width of the distribution of Doppler shifts, cyclic; 1 without velocity classes."""
        return 1.0 if self.velocity_classes is None else self.velocity_classes.thermal_width

    @property
    def doppler_shifts(self) -> np.ndarray:
        """The Doppler shift of each velocity class, shape (class,), cyclic."""
        return doppler.shifts(self.velocity_classes, self)

    @property
    def doppler_intervals(self) -> np.ndarray:
        """The detuning interval of each velocity class, shape (class,), cyclic; 1 for a single class."""
        return doppler.quadrature_weights(self.doppler_shifts)

    @property
    def doppler_weights(self) -> np.ndarray:
        """The weight of each velocity class in the Doppler average, shape (class,), with sum 1."""
        shifts = self.doppler_shifts
        return doppler.weights(shifts, doppler.quadrature_weights(shifts), self.thermal_width)

    def field_index(self, field: str | int) -> int:
        """The position of a field.

        Args:
            field: Its label or its position.

        Returns:
            The position, from 0.

        Raises:
            ProblemError: No field has this label or position.
        """
        labels = [item.label for item in self.fields]
        if isinstance(field, str) and field and field in labels:
            return labels.index(field)
        if _is_integer(field) and 0 <= field < len(labels):
            return int(field)
        named = ", ".join(_show(label) for label in labels if label) or "none is labelled"
        raise ProblemError(
            f"Argument `field` must be a label ({named}) or an index from 0 to {len(labels) - 1}, "
            f"but is {_show(field)}{_suggestion(field, labels)}."
        )

    def __repr__(self) -> str:
        light = ", ".join(field.label or f"field {index}" for index, field in enumerate(self.fields))
        classes = len(self.doppler_shifts)
        name = "" if self.label is None else f"{self.label!r}: "
        return (
            f"Problem({name}{self.num_states} levels; {light}; {classes} velocity class{'es' if classes > 1 else ''}; "
            f"t {self.t_min:g} to {self.t_max:g} in {self.t_steps} steps; "
            f"z {self.z_min:g} to {self.z_max:g} in {self.z_steps} steps)"
        )


_DECAY_KEYS = ("rate", "channels", "factors")
_B_FIELD_KEYS = ("magnitude", "units", "g_F", "m_F")
_VELOCITY_KEYS = tuple(VelocityClasses.__dataclass_fields__)


def _show(value: Any) -> str:
    """A value as a short text for an error."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'"{value}"' if len(value) < 60 else f'"{value[:57]}..."'
    if isinstance(value, np.generic):
        value = value.item()
    return reprlib.repr(value.tolist() if isinstance(value, np.ndarray) else value)


def _suggestion(key: Any, known: Any) -> str:
    """The nearest known word as a question in brackets, or nothing."""
    near = difflib.get_close_matches(key, [word for word in known if word], 1) if isinstance(key, str) else []
    return f" (did you mean {_show(near[0])}?)" if near else ""


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


class _Keys:
    """One object of the input: its values by key, each checked and named by its dotted path in an error."""

    def __init__(self, content: Any, path: str, allowed: tuple[str, ...]):
        self.content, self.path = content, path
        name = path or "problem"
        if not isinstance(content, Mapping):
            raise ProblemError(f"Argument `{name}` must be an object (a dict), but is {_show(content)}.")
        for key in content:
            if key not in allowed:
                cure = _suggestion(key, allowed) or f"; known are {', '.join(k for k in allowed if k != 'atom')}"
                raise ProblemError(f"Argument `{name}` must have known keys only, but has {_show(key)}{cure}.")

    def fail(self, key: str, rule: str, actual: str) -> NoReturn:
        name = f"{self.path}.{key}" if self.path else key
        raise ProblemError(f"Argument `{name}` must {rule}, but {actual}.")

    def get(self, key: str) -> Any:
        return self.content.get(key)

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        if value is not None and not isinstance(value, (bool, np.bool_)):
            self.fail(key, "be true or false", f"is {_show(value)}")
        return default if value is None else bool(value)

    def text(self, key: str, default: str | None) -> str | None:
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            self.fail(key, "be a string", f"is {_show(value)}")
        return default if value is None else value

    def integer(self, key: str, default: int, least: int, note: str = "") -> int:
        value = default if self.get(key) is None else self.get(key)
        if not _is_integer(value) or value < least:
            self.fail(key, f"be an integer of at least {least}{note}", f"is {_show(value)}")
        return int(value)

    def number(self, key: str, default: float | None, *, may_be_complex: bool = False) -> Any:
        value = default if self.get(key) is None else self.get(key)
        if value is None:
            self.fail(key, "be given", "is missing")
        return self._check(value, key, may_be_complex)

    def positive(self, key: str, default: float | None) -> float:
        value = self.number(key, default)
        if value <= 0:
            self.fail(key, "be positive", f"is {_show(value)}")
        return value

    def _check(self, value: Any, key: str, may_be_complex: bool = False) -> Any:
        kind = numbers.Complex if may_be_complex else numbers.Real
        if isinstance(value, bool) or not isinstance(value, kind):
            self.fail(key, f"be a {'' if may_be_complex else 'real '}number", f"is {_show(value)}")
        try:
            number = complex(value)
        except OverflowError:
            number = complex(math.inf)
        if not (math.isfinite(number.real) and math.isfinite(number.imag)):
            self.fail(key, "be finite", f"is {_show(value)}")
        return number if number.imag else number.real

    def sequence(self, key: str) -> list[Any]:
        value = () if self.get(key) is None else self.get(key)
        if not isinstance(value, (list, tuple, np.ndarray)):
            self.fail(key, "be a list", f"is {_show(value)}")
        return list(value)

    def numbers(self, key: str, length: int = 0, each: str = "", *, may_be_complex: bool = False) -> tuple[Any, ...]:
        """A list of numbers; where `each` says what it counts, it may be empty or has the given length."""
        items = self.sequence(key)
        values = tuple(self._check(item, f"{key}[{i}]", may_be_complex) for i, item in enumerate(items))
        if each and items and len(items) != length:
            self.fail(key, f"have one number per {each} ({length})", f"has {len(items)}")
        return values

    def pairs(self, key: str, levels: int, what: str) -> tuple[tuple[int, int], ...]:
        items = self.sequence(key)
        if not items:
            self.fail(key, f"have at least one pair {what}", "is empty")
        for i, item in enumerate(items):
            if not isinstance(item, (list, tuple, np.ndarray)) or len(item) != 2 or not all(map(_is_integer, item)):
                self.fail(f"{key}[{i}]", f"be a pair of levels {what}", f"is {_show(item)}")
            if not all(0 <= level < levels for level in item):
                self.fail(f"{key}[{i}]", f"have levels from 0 to {levels - 1}", f"is {_show(item)}")
        return tuple((int(first), int(second)) for first, second in items)

    def factors(self, pairs: tuple[tuple[int, int], ...], empty_is_default: bool) -> tuple[float, ...]:
        values = self.numbers("factors")
        if self.get("factors") is None or (empty_is_default and not values):
            return (1.0,) * len(pairs)
        if len(values) != len(pairs):
            self.fail("factors", f"have one factor per pair ({len(pairs)})", f"has {len(values)}")
        return values

    def window(self, axis: str) -> tuple[float, float]:
        low, high = self.number(f"{axis}_min", 0.0), self.number(f"{axis}_max", 1.0)
        if high <= low:
            self.fail(f"{axis}_max", f"be above {axis}_min ({low})", f"is {high}")
        return low, high

    def child(self, key: str, allowed: tuple[str, ...]) -> _Keys:
        content = {} if self.get(key) is None else self.get(key)
        return _Keys(content, f"{self.path}.{key}" if self.path else key, allowed)

    def children(self, key: str, allowed: tuple[str, ...]) -> list[_Keys]:
        return [_Keys(item, f"{self.path}.{key}[{i}]", allowed) for i, item in enumerate(self.sequence(key))]


def _read_envelope(keys: _Keys, name_key: str, args_key: str) -> Envelope:
    name = keys.text(name_key, "square")
    if name not in _ENVELOPES:
        keys.fail(name_key, f"be one of {', '.join(_ENVELOPES)}", f"is {_show(name)}{_suggestion(name, _ENVELOPES)}")
    required, alternatives = _ENVELOPES[name]
    args = keys.child(args_key, (*required, *(word for group in alternatives for word in group)))
    if name == "square" and not args.content:
        return Envelope(name, tuple(sorted(_DEFAULT_ARGS.items())))
    for group in alternatives:
        given = [word for word in group if args.get(word) is not None]
        if len(given) != 1:
            both = "both" if given else "neither"
            keys.fail(args_key, f"have one of `{group[0]}` and `{group[1]}`", f"has {both} for {name}")
        required = (*required, *given)
    for word in required:
        if args.get(word) is None:
            keys.fail(args_key, f"have {', '.join(f'`{known}`' for known in required)}", f"lacks `{word}` for {name}")
    if name == "intp":
        times, values = args.numbers("tlist"), args.numbers("ylist", may_be_complex=True)
        if len(times) < 2 or any(later <= earlier for earlier, later in itertools.pairwise(times)):
            args.fail("tlist", "have at least two times, each above the last", f"is {_show(list(times))}")
        if len(values) != len(times):
            args.fail("ylist", f"have one value per time ({len(times)})", f"has {len(values)}")
        return Envelope(name, (("tlist", times), ("ylist", values)))
    read = {
        word: args.positive(word, None) if word in ("fwhm", "width") else args.number(word, None) for word in required
    }
    if name == "square" and read["on"] > read["off"]:
        args.fail("on", f"be at most `off` ({read['off']})", f"is {read['on']}: the square would never be on")
    return Envelope(name, tuple(sorted(read.items())))


def _read_density(keys: _Keys, z_min: float, z_max: float) -> Envelope:
    envelope = _read_envelope(keys, "num_density_z_func", "num_density_z_args")
    args = dict(envelope.args)
    path = "num_density_z_args"
    for word in ("ampl", "n_pi"):
        if args.get(word, 0.0) < 0:
            keys.fail(f"{path}.{word}", "be at least 0, as a number density is", f"is {args[word]}")
    for i, value in enumerate(args.get("ylist", ())):
        if isinstance(value, complex) or value < 0:
            keys.fail(f"{path}.ylist[{i}]", "be real and at least 0, as a number density is", f"is {_show(value)}")
    if envelope.name == "ramp_onoff" and args["on"] > args["off"]:
        keys.fail(f"{path}.on", f"be at most `off` ({args['off']})", f"is {args['on']}: the density would be negative")
    if envelope.name == "sinc" and args["width"] * max(abs(z_min), abs(z_max)) > 1:
        keys.fail(
            f"{path}.width", "keep sinc above 0 from z_min to z_max", f"is {args['width']}: the density is negative"
        )
    return envelope


def _read_field(keys: _Keys, levels: int) -> Field:
    pairs = keys.pairs("coupled_levels", levels, "[lower, upper]")
    for i, (lower, upper) in enumerate(pairs):
        if lower == upper:
            keys.fail(f"coupled_levels[{i}]", "couple two different levels", f"is [{lower}, {upper}]")
    counter = keys.flag("counter_propagating", False)
    doppler_factor = keys.number("factor_doppler_shift", -1.0 if counter else 1.0)
    if counter and doppler_factor != -1:
        cure = "leave it out, or set it without `counter_propagating`"
        keys.fail("factor_doppler_shift", "be -1 where `counter_propagating` is true", f"is {doppler_factor}: {cure}")
    return Field(
        label=keys.text("label", ""),
        coupled_levels=pairs,
        factors=keys.factors(pairs, empty_is_default=True),
        detuning=keys.number("detuning", 0.0),
        detuning_positive=keys.flag("detuning_positive", True),
        counter_propagating=counter,
        factor_doppler_shift=doppler_factor,
        rabi_freq=keys.number("rabi_freq", 1.0, may_be_complex=True),
        envelope=_read_envelope(keys, "rabi_freq_t_func", "rabi_freq_t_args"),
    )


def _write_field(field: Field) -> dict[str, Any]:
    content = {key: getattr(field, key) for key in ("label", "detuning", "detuning_positive", "counter_propagating")}
    return {
        **content,
        "coupled_levels": [list(pair) for pair in field.coupled_levels],
        "factors": list(field.factors),
        "factor_doppler_shift": field.factor_doppler_shift,
        "rabi_freq": field.rabi_freq,
        "rabi_freq_t_func": field.envelope.name,
        "rabi_freq_t_args": field.envelope.to_dict(),
    }


def _read_decay(keys: _Keys, levels: int) -> Decay:
    rate = keys.number("rate", None)
    if rate < 0:
        keys.fail("rate", "be at least 0", f"is {rate}")
    channels = keys.pairs("channels", levels, "[to, from]")
    return Decay(rate, channels, keys.factors(channels, empty_is_default=False))


def _read_initial_state(system: _Keys, levels: int) -> tuple[float, ...]:
    populations = system.numbers("initial_state", levels, "level")
    if not populations:
        return (1.0,) + (0.0,) * (levels - 1)
    for i, population in enumerate(populations):
        if not 0 <= population <= 1:
            system.fail(f"initial_state[{i}]", "be a population from 0 to 1", f"is {population}")
    if abs(math.fsum(populations) - 1) > 1e-6:
        system.fail("initial_state", "sum to 1", f"sums to {math.fsum(populations):.9g}")
    return populations


def _read_b_field(system: _Keys, levels: int) -> MagneticField | None:
    if system.get("b_field") is None:
        return None
    keys = system.child("b_field", _B_FIELD_KEYS)
    units = keys.text("units", "natural")
    if units not in ("natural", "gauss"):
        keys.fail("units", 'be "natural" or "gauss"', f"is {_show(units)}")
    for name in ("g_F", "m_F"):
        if not keys.sequence(name):
            keys.fail(name, f"have one number per level ({levels})", "is missing")
    g_factors, projections = (keys.numbers(name, levels, "level") for name in ("g_F", "m_F"))
    return MagneticField(keys.number("magnitude", 0.0), units, g_factors, projections)


def _read_velocity_classes(top: _Keys) -> VelocityClasses | None:
    if top.get("velocity_classes") is None:
        return None
    keys = top.child("velocity_classes", _VELOCITY_KEYS)
    read: dict[str, Any] = {"thermal_width": keys.positive("thermal_width", 1.0)}
    for part in ("thermal_delta", "thermal_delta_inner"):
        for edge in ("min", "max"):
            read[f"{part}_{edge}"] = keys.number(f"{part}_{edge}", 0.0)
        read[f"{part}_steps"] = keys.integer(f"{part}_steps", 0, 0)
    spacing = keys.get("thermal_delta_spacing")
    if spacing is not None:
        if not (isinstance(spacing, str) and spacing == "auto"):
            if isinstance(spacing, str):
                keys.fail("thermal_delta_spacing", 'be a positive number or "auto"', f"is {_show(spacing)}")
            spacing = keys.positive("thermal_delta_spacing", None)
        for name in ("thermal_delta_steps", "thermal_delta_inner_steps"):
            if read[name]:
                keys.fail(name, "be absent where `thermal_delta_spacing` is given", f"is {read[name]}")
        low, high = read["thermal_delta_min"], read["thermal_delta_max"]
        if high <= low:
            rule = f"be above `thermal_delta_min` ({low}) where `thermal_delta_spacing` is given"
            keys.fail("thermal_delta_max", rule, f"is {high}")
    if keys.get("thermal_delta_echo_tolerance") is not None:
        name = "thermal_delta_echo_tolerance"
        if spacing != "auto":
            keys.fail(name, 'be absent unless `thermal_delta_spacing` is "auto"', f"is {_show(keys.get(name))}")
        read[name] = keys.number(name, None)
        if not 0 < read[name] < 1:
            keys.fail(name, "be between 0 and 1", f"is {read[name]}")
    return VelocityClasses(**read, thermal_delta_spacing=spacing)
