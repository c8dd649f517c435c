"""Values of parameters written back into the dict of a problem."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .errors import ProblemError

_OF_FIELDS = {"rabi_freq": "rabi_freq", "detunings": "detuning"}
_OF_SYSTEM = ("energies", "initial_state", "level_detunings", "level_doppler_slopes")


def update(content: dict[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Put values of parameters into a problem's dict.

    Args:
        content: what `Problem.to_dict` returns; changed in place.
        params: as in `Problem.updated`.

    Returns:
        The dict.
    """
    for name, value in params.items():
        if name == "pulse_args":
            _update_pulses(content["system"]["fields"], value)
            continue
        numbers = _numbers(name, value)
        if name in _OF_FIELDS:
            _spread(name, content["system"]["fields"], _OF_FIELDS[name], numbers)
        elif name == "decay_rates":
            _spread(name, content["system"]["decays"], "rate", numbers)
        elif name in _OF_SYSTEM:
            content["system"][name] = numbers.tolist()
        elif name == "interaction_strengths":
            content[name] = numbers.tolist()
        elif name not in _SCALARS:
            raise ProblemError(
                f"Argument `params` must have names among {', '.join([*_known(), 'pulse_args'])}, but has {name!r}, "
                "which a problem has no place for."
            )
        elif numbers.ndim:
            _refuse(name, "be one number here", f"has shape {numbers.shape}")
        else:
            _SCALARS[name](content, numbers.item())
    return content


def _known() -> list[str]:
    return [*_OF_FIELDS, "decay_rates", *_OF_SYSTEM, "interaction_strengths", *_SCALARS]


def _refuse(name: str, rule: str, actual: str) -> None:
    raise ProblemError(f"Argument `{name}` must {rule}, but {actual}.")


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        numbers = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        numbers = np.asarray(None)
    if numbers.dtype.kind not in "iufc":
        _refuse(name, "be numbers", f"is {value!r}")
    return numbers


def _spread(name: str, owners: list[dict[str, Any]], key: str, numbers: np.ndarray) -> None:
    """One number for each field or decay."""
    if numbers.shape != (len(owners),):
        _refuse(name, f"have shape ({len(owners)},)", f"has shape {numbers.shape}")
    for owner, number in zip(owners, numbers.tolist(), strict=True):
        owner[key] = number


def _update_pulses(fields: list[dict[str, Any]], value: Any) -> None:
    labelled = {light["label"]: k for k, light in enumerate(fields) if light["label"]}
    given = value.items() if isinstance(value, Mapping) else enumerate(value)
    for which, args in given:
        k = labelled.get(which, which)
        if not (isinstance(k, int) and 0 <= k < len(fields) and isinstance(args, Mapping)):
            _refuse("pulse_args", "have one dict for each field, or by label", f"has {which!r}: {args!r}")
        for key, number in args.items():
            fields[k]["rabi_freq_t_args"][key] = _numbers(f"pulse_args[{which}].{key}", number).tolist()


def _scale_decays(content: dict[str, Any], factor: float) -> None:
    for decay in content["system"]["decays"]:
        decay["rate"] *= factor


def _scale_density(content: dict[str, Any], factor: float) -> None:
    content["interaction_strengths"] = [factor * g for g in content["interaction_strengths"]]


def _set_magnitude(content: dict[str, Any], magnitude: float) -> None:
    if "b_field" not in content["system"]:
        _refuse("b_field", "be left out where the problem has none", f"is {magnitude!r}")
    content["system"]["b_field"]["magnitude"] = magnitude


def _set_width(content: dict[str, Any], width: float) -> None:
    if content["velocity_classes"] is None:
        _refuse("thermal_width", "be left out where the problem has no velocity classes", f"is {width!r}")
    content["velocity_classes"]["thermal_width"] = width


_SCALARS: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "decay_scale": _scale_decays,
    "number_density": _scale_density,
    "b_field": _set_magnitude,
    "thermal_width": _set_width,
}
