"""Reads problem files: every key checked, every refusal one sentence with the key, the rule, the value and the cure."""

from __future__ import annotations

import difflib
import itertools
import math
import numbers
import reprlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn, TypeGuard

import numpy as np

from .elements import Decay, Envelope, Field, MagneticField, VelocityClasses
from .errors import ProblemError

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
LARGEST = 1e100
"""Largest number."""

LONGEST = 10**7
"""Most intervals of a grid, and the longest list: more is a slip, and would fill the memory."""

MOST_CLASSES = 10**5
"""Most velocity classes."""

MOST_LEVELS = 1000
"""Most levels, fields and decays; a density matrix of so many levels has a million elements at each point."""

MOST_PAIRS = 10**5
"""Most pairs of a field, and most channels of a decay."""

_DEFAULT_ARGS = {"on": 0.0, "off": 1.0, "ampl": 1.0}
_IGNORED = ("method", "opts", "savefile")  # they steer clerq's machinery, not the physics
_TOP_KEYS = (
    "system", "atom", "t_min", "t_max", "t_steps", "z_min", "z_max", "z_steps", "z_steps_inner", "num_density_z_func",
    "num_density_z_args", "interaction_strengths", "velocity_classes", "real_drive", *_IGNORED,
)  # fmt: skip
_SYSTEM_KEYS = (
    "num_states", "energies", "initial_state", "decays", "fields", "b_field", "level_detunings", "level_doppler_slopes",
    "label",
)  # fmt: skip
_FIELD_KEYS = (
    "coupled_levels", "factors", "detuning", "detuning_positive", "counter_propagating", "factor_doppler_shift",
    "rabi_freq", "rabi_freq_t_func", "rabi_freq_t_args", "label", "index",
)  # fmt: skip
_DECAY_KEYS = ("rate", "channels", "factors", "operator")
_B_FIELD_KEYS = ("magnitude", "units", "g_F", "m_F")
_VELOCITY_KEYS = tuple(VelocityClasses.__dataclass_fields__)
_WRITTEN_BY_CLERQ = {"thermal_width"} | {
    f"thermal_delta_{part}{edge}" for part in ("", "inner_") for edge in ("min", "max", "steps")
}
"""What clerq writes of velocity classes, which for atoms at rest are all defaults."""


def show(value: Any) -> str:
    """A value as a short text for an error."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in value[:60])  # one line, whatever it is
        return f'"{text}"' if len(value) < 60 else f'"{text[:57]}..."'
    if isinstance(value, np.generic):
        value = value.item()
    if is_integer(value) and abs(value) >= 10**40:
        return f"an integer of {value.bit_length()} bits"  # which Python may refuse to write in decimal
    return reprlib.repr(value.tolist() if isinstance(value, np.ndarray) else value)


def suggestion(key: Any, known: Any) -> str:
    """The nearest known word as a question in brackets, or nothing."""
    near = difflib.get_close_matches(key, [word for word in known if word], 1) if isinstance(key, str) else []
    return f" (did you mean {show(near[0])}?)" if near else ""


def is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


class Keys:
    """One object of the input: its values by key, each checked and named by its dotted path in an error."""

    content: Any
    path: str

    def __init__(self, content: Any, path: str, allowed: tuple[str, ...]):
        self.content, self.path = content, path
        name = path or "problem"
        if not isinstance(content, Mapping):
            raise ProblemError(f"Argument `{name}` must be an object (a dict), but is {show(content)}.")
        for key in content:
            if key not in allowed:
                cure = suggestion(key, allowed) or f"; known are {', '.join(k for k in allowed if k != 'atom')}"
                raise ProblemError(f"Argument `{name}` must have known keys only, but has {show(key)}{cure}.")

    def fail(self, key: str, rule: str, actual: str) -> NoReturn:
        name = f"{self.path}.{key}" if self.path else key
        raise ProblemError(f"Argument `{name}` must {rule}, but {actual}.")

    def get(self, key: str) -> Any:
        return self.content.get(key)

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        if value is not None and not isinstance(value, (bool, np.bool_)):
            self.fail(key, "be true or false", f"is {show(value)}")
        return default if value is None else bool(value)

    def text(self, key: str, default: str | None) -> str | None:
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            self.fail(key, "be a string", f"is {show(value)}")
        return default if value is None else value

    def integer(self, key: str, default: int, least: int, note: str = "", most: int = LONGEST) -> int:
        value = default if self.get(key) is None else self.get(key)
        if not is_integer(value) or value < least:
            self.fail(key, f"be an integer of at least {least}{note}", f"is {show(value)}")
        if value > most:
            self.fail(key, f"be at most {most}", f"is {show(value)}")
        return int(value)

    def number(self, key: str, default: float | None, *, may_be_complex: bool = False) -> Any:
        value = default if self.get(key) is None else self.get(key)
        if value is None:
            self.fail(key, "be given", "is missing")
        return self._check(value, key, may_be_complex)

    def positive(self, key: str, default: float | None) -> float:
        value = self.number(key, default)
        if value <= 0:
            self.fail(key, "be positive", f"is {show(value)}")
        if value < 1 / LARGEST:
            self.fail(key, f"be at least {1 / LARGEST:g}, for its inverse must be finite, too", f"is {show(value)}")
        return value

    def _check(self, value: Any, key: str, may_be_complex: bool = False) -> Any:
        kind = numbers.Complex if may_be_complex else numbers.Real
        if isinstance(value, bool) or not isinstance(value, kind):
            self.fail(key, f"be a {'' if may_be_complex else 'real '}number", f"is {show(value)}")
        try:
            number = complex(value)
        except OverflowError:
            number = complex(math.inf)
        if not (math.isfinite(number.real) and math.isfinite(number.imag)):
            self.fail(key, "be finite", f"is {show(value)}")
        if max(abs(number.real), abs(number.imag)) > LARGEST:
            self.fail(key, f"be at most {LARGEST:g} in size, for its square must be finite, too", f"is {show(value)}")
        return number if number.imag else number.real

    def sequence(self, key: str, most: int = LONGEST) -> list[Any]:
        value: Any = () if self.get(key) is None else self.get(key)
        if hasattr(value, "tolist"):  # an array or a tensor
            value = value.tolist()
        if not isinstance(value, (list, tuple)):
            self.fail(key, "be a list", f"is {show(value)}")
        if len(value) > most:
            self.fail(key, f"have at most {most} items", f"has {len(value)}")
        return list(value)

    def numbers(self, key: str, length: int = 0, each: str = "", *, may_be_complex: bool = False) -> tuple[Any, ...]:
        """A list of numbers; where `each` says what it counts, it may be empty or has the given length."""
        items = self.sequence(key)
        values = tuple(self._check(item, f"{key}[{i}]", may_be_complex) for i, item in enumerate(items))
        if each and items and len(items) != length:
            self.fail(key, f"have one number per {each} ({length})", f"has {len(items)}")
        return values

    def pairs(self, key: str, levels: int, what: str) -> tuple[tuple[int, int], ...]:
        items = self.sequence(key, MOST_PAIRS)
        if not items:
            self.fail(key, f"have at least one pair {what}", "is empty")
        for i, item in enumerate(items):
            if not isinstance(item, (list, tuple, np.ndarray)) or len(item) != 2 or not all(map(is_integer, item)):
                self.fail(f"{key}[{i}]", f"be a pair of levels {what}", f"is {show(item)}")
            if not all(0 <= level < levels for level in item):
                self.fail(f"{key}[{i}]", f"have levels from 0 to {levels - 1}", f"is {show(item)}")
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

    def child(self, key: str, allowed: tuple[str, ...]) -> Keys:
        content = {} if self.get(key) is None else self.get(key)
        return Keys(content, f"{self.path}.{key}" if self.path else key, allowed)

    def children(self, key: str, allowed: tuple[str, ...]) -> list[Keys]:
        return [
            Keys(item, f"{self.path}.{key}[{i}]", allowed) for i, item in enumerate(self.sequence(key, MOST_LEVELS))
        ]


def read_envelope(keys: Keys, name_key: str, args_key: str) -> Envelope:
    """The envelope whose name and arguments stand under two keys."""
    name = keys.text(name_key, "square")
    if name not in _ENVELOPES:
        keys.fail(name_key, f"be one of {', '.join(_ENVELOPES)}", f"is {show(name)}{suggestion(name, _ENVELOPES)}")
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
            args.fail("tlist", "have at least two times, each above the last", f"is {show(list(times))}")
        if len(values) != len(times):
            args.fail("ylist", f"have one value per time ({len(times)})", f"has {len(values)}")
        return Envelope(name, (("tlist", times), ("ylist", values)))
    read = {
        word: args.positive(word, None) if word in ("fwhm", "width") else args.number(word, None) for word in required
    }
    if name == "square" and read["on"] > read["off"]:
        args.fail("on", f"be at most `off` ({read['off']})", f"is {read['on']}: the square would never be on")
    return Envelope(name, tuple(sorted(read.items())))


def _read_density(keys: Keys, z_min: float, z_max: float) -> Envelope:
    envelope = read_envelope(keys, "num_density_z_func", "num_density_z_args")
    args = dict(envelope.args)
    path = "num_density_z_args"
    for word in ("ampl", "n_pi"):
        if args.get(word, 0.0) < 0:
            keys.fail(f"{path}.{word}", "be at least 0, as a number density is", f"is {args[word]}")
    for i, value in enumerate(args.get("ylist", ())):
        if isinstance(value, complex) or value < 0:
            keys.fail(f"{path}.ylist[{i}]", "be real and at least 0, as a number density is", f"is {show(value)}")
    if envelope.name == "ramp_onoff" and args["on"] > args["off"]:
        keys.fail(f"{path}.on", f"be at most `off` ({args['off']})", f"is {args['on']}: the density would be negative")
    if envelope.name == "sinc" and args["width"] * max(abs(z_min), abs(z_max)) > 1:
        keys.fail(
            f"{path}.width", "keep sinc above 0 from z_min to z_max", f"is {args['width']}: the density is negative"
        )
    return envelope


def _read_field(keys: Keys, levels: int) -> Field:
    pairs = keys.pairs("coupled_levels", levels, "[lower, upper]")
    for i, (lower, upper) in enumerate(pairs):
        if lower == upper:
            keys.fail(f"coupled_levels[{i}]", "couple two different levels", f"is [{lower}, {upper}]")
    counter = keys.flag("counter_propagating", False)
    doppler_factor = keys.number("factor_doppler_shift", -1.0 if counter else 1.0)
    if counter and doppler_factor >= 0:
        cure = f"write {-doppler_factor:g} for this ratio of wave numbers" if doppler_factor else "leave it out for -1"
        keys.fail("factor_doppler_shift", "be negative where `counter_propagating` is true",
                  f"is {doppler_factor}: {cure}")  # fmt: skip
    return Field(
        label=keys.text("label", "") or "",
        coupled_levels=pairs,
        factors=keys.factors(pairs, empty_is_default=True),
        detuning=keys.number("detuning", 0.0),
        detuning_positive=keys.flag("detuning_positive", True),
        counter_propagating=counter,
        factor_doppler_shift=doppler_factor,
        rabi_freq=keys.number("rabi_freq", 1.0, may_be_complex=True),
        envelope=read_envelope(keys, "rabi_freq_t_func", "rabi_freq_t_args"),
    )


def _refuse_gratings(system: Keys, light: tuple[Field, ...]) -> None:
    """Raise where two opposite fields drive one pair: their standing wave writes a grating, which has no envelope."""
    forward = {frozenset(pair) for field in light if not field.counter_propagating for pair in field.coupled_levels}
    for i, field in enumerate(light):
        shared = [pair for pair in field.coupled_levels if field.counter_propagating and frozenset(pair) in forward]
        if shared:
            system.fail(f"fields[{i}].counter_propagating", "be false where a forward field couples the same pair "
                        "(the standing wave of the two writes a grating, which no envelope describes)",
                        f"is true for {list(shared[0])}")  # fmt: skip


def _read_decay(keys: Keys, levels: int) -> Decay:
    rate = keys.number("rate", None)
    if rate < 0:
        keys.fail("rate", "be at least 0", f"is {rate}")
    if keys.get("operator") is not None:
        for name in ("channels", "factors"):
            if keys.get(name) is not None:
                keys.fail(name, "be absent where `operator` is given", f"is {show(keys.get(name))}")
        return Decay(rate, (), (), _read_operator(keys, levels))
    channels = keys.pairs("channels", levels, "[to, from]")
    return Decay(rate, channels, keys.factors(channels, empty_is_default=False))


def _read_operator(keys: Keys, levels: int) -> tuple[tuple[Any, ...], ...]:
    rows = keys.sequence("operator")
    if len(rows) != levels or any(not isinstance(row, (list, tuple, np.ndarray)) or len(row) != levels for row in rows):
        keys.fail("operator", f"be a matrix of {levels} rows of {levels} numbers", f"is {show(rows)}")
    values = tuple(
        tuple(keys._check(value, f"operator[{i}][{j}]", may_be_complex=True) for j, value in enumerate(row))
        for i, row in enumerate(rows)
    )
    if not any(value for row in values for value in row):
        keys.fail("operator", "have an element that is not 0", "is 0")
    return values


def _read_initial_state(system: Keys, levels: int) -> tuple[float, ...]:
    populations = system.numbers("initial_state", levels, "level")
    if not populations:
        return (1.0,) + (0.0,) * (levels - 1)
    for i, population in enumerate(populations):
        if not 0 <= population <= 1:
            system.fail(f"initial_state[{i}]", "be a population from 0 to 1", f"is {population}")
    if abs(math.fsum(populations) - 1) > 1e-6:
        system.fail("initial_state", "sum to 1", f"sums to {math.fsum(populations):.9g}")
    return populations


def _read_per_level(system: Keys, key: str, levels: int) -> tuple[float, ...] | None:
    return None if system.get(key) is None else system.numbers(key, levels, "level") or None


def _read_b_field(system: Keys, levels: int) -> MagneticField | None:
    if system.get("b_field") is None:
        return None
    keys = system.child("b_field", _B_FIELD_KEYS)
    units = keys.text("units", "natural")
    if units not in ("natural", "gauss"):
        keys.fail("units", 'be "natural" or "gauss"', f"is {show(units)}")
    for name in ("g_F", "m_F"):
        if not keys.sequence(name):
            keys.fail(name, f"have one number per level ({levels})", "is missing")
    g_factors, projections = (keys.numbers(name, levels, "level") for name in ("g_F", "m_F"))
    return MagneticField(keys.number("magnitude", 0.0), units, g_factors, projections)


def _read_velocity_classes(top: Keys) -> VelocityClasses | None:
    if top.get("velocity_classes") is None:
        return None
    keys = top.child("velocity_classes", _VELOCITY_KEYS)
    read: dict[str, Any] = {"thermal_width": keys.positive("thermal_width", 1.0)}
    for part in ("thermal_delta", "thermal_delta_inner"):
        for edge in ("min", "max"):
            read[f"{part}_{edge}"] = keys.number(f"{part}_{edge}", 0.0)
        read[f"{part}_steps"] = keys.integer(f"{part}_steps", 0, 0, most=MOST_CLASSES)
    if keys.get("quadrature") is not None:
        return _read_quadrature(keys)
    if keys.get("nodes") is not None:
        keys.fail("nodes", 'be absent unless `quadrature` is "gauss-hermite"', f"is {show(keys.get('nodes'))}")
    spacing = keys.get("thermal_delta_spacing")
    if spacing is not None:
        if not (isinstance(spacing, str) and spacing == "auto"):
            if isinstance(spacing, str):
                keys.fail("thermal_delta_spacing", 'be a positive number or "auto"', f"is {show(spacing)}")
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
            keys.fail(name, 'be absent unless `thermal_delta_spacing` is "auto"', f"is {show(keys.get(name))}")
        read[name] = _read_echo_tolerance(keys)
    classes = VelocityClasses(**read, thermal_delta_spacing=spacing)
    at_rest = classes == VelocityClasses() and (not keys.content or set(keys.content) >= _WRITTEN_BY_CLERQ)
    return None if at_rest else classes


def _read_echo_tolerance(keys: Keys) -> float:
    tolerance = keys.number("thermal_delta_echo_tolerance", 1e-6)
    if not 0 < tolerance < 1:
        keys.fail("thermal_delta_echo_tolerance", "be between 0 and 1", f"is {tolerance}")
    return tolerance


def _read_quadrature(keys: Keys) -> VelocityClasses:
    name = keys.text("quadrature", None)
    if name != "gauss-hermite":
        keys.fail("quadrature", 'be "gauss-hermite"', f"is {show(name)}")
    allowed = ("thermal_width", "quadrature", "nodes", "thermal_delta_echo_tolerance")
    for key in keys.content:
        if key not in allowed and keys.get(key) is not None:
            keys.fail(key, "be absent where `quadrature` chooses the classes", f"is {show(keys.get(key))}")
    nodes = keys.integer("nodes", 0, 1, ", the number of velocity classes")
    if nodes > 300:
        keys.fail("nodes", "be at most 300, where the outermost weights underflow", f"is {nodes}")
    return VelocityClasses(
        thermal_width=keys.positive("thermal_width", 1.0),
        thermal_delta_echo_tolerance=_read_echo_tolerance(keys),
        quadrature=name,
        nodes=nodes,
    )


def read_problem(content: Mapping[str, Any]) -> dict[str, Any]:
    """Check the constructor arguments of `clerq.PropagationSolver`, and read them as those of `Problem`.

    Args:
        content: The arguments, never changed.

    Returns:
        The attributes of a `Problem` by name.

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
    top = Keys(content, "", _TOP_KEYS)
    if top.get("system") is not None and top.get("atom") is not None:
        top.fail("atom", "be absent where `system` is given", "is there: it is the old name of `system`")
    if top.flag("real_drive", False):
        top.fail("real_drive", "be false", "is true: a field drives with both quadratures")
    system = top.child("atom" if top.get("atom") is not None else "system", _SYSTEM_KEYS)
    levels = system.integer("num_states", 1, 1, most=MOST_LEVELS)
    light = tuple(_read_field(item, levels) for item in system.children("fields", _FIELD_KEYS))
    _refuse_gratings(system, light)
    for label, times in Counter(field.label for field in light if field.label).items():
        if times > 1:
            system.fail("fields", "have distinct labels", f"has {show(label)} {times} times")
    strengths = top.numbers("interaction_strengths")
    if not light:
        system.fail("fields", "have at least one field", "is empty: without light nothing propagates")
    strengths = strengths or (0.0,) * len(light)  # a single driven system, which leaves the light as it is
    if len(strengths) != len(light):
        top.fail("interaction_strengths", f"have one strength per field ({len(light)})", f"has {len(strengths)}")
    (t_min, t_max), (z_min, z_max) = top.window("t"), top.window("z")
    inner = top.get("z_steps_inner")
    if not (isinstance(inner, str) and inner == "auto"):
        inner = top.integer("z_steps_inner", 2, 1, ' or "auto"')
    return dict(
        num_states=levels,
        energies=system.numbers("energies", levels, "level") or (0.0,) * levels,
        initial_state=_read_initial_state(system, levels),
        decays=tuple(_read_decay(item, levels) for item in system.children("decays", _DECAY_KEYS)),
        fields=light,
        b_field=_read_b_field(system, levels),
        level_detunings=_read_per_level(system, "level_detunings", levels),
        level_doppler_slopes=_read_per_level(system, "level_doppler_slopes", levels),
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
