"""Values of parameters written back into the dict of a problem."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import parameters

_OF_FIELDS = {"rabi_freq": "rabi_freq", "detunings": "detuning"}
_OF_SYSTEM = ("energies", "initial_state", "level_detunings", "level_doppler_slopes")


def update(content: dict[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Put values of parameters into a problem's dict; factors come last, whatever the order.

    Args:
        content: what `Problem.to_dict` returns; changed in place.
        params: NumPy arrays by name, arranged and checked.

    Returns:
        The dict.

    Raises:
        ProblemError: a value is one that a problem has no place for: a batch, or one without a key.
    """
    for name in sorted(params, key=tuple(_SCALARS).__contains__):
        value = params[name]
        if name == "pulse_args":
            for light, args in zip(content["system"]["fields"], value, strict=True):
                light["rabi_freq_t_args"] |= {key: _listed(f"pulse_args.{key}", number) for key, number in args.items()}
            continue
        numbers = _listed(name, value, len(parameters.AXES.get(name, ())))
        if name in _OF_FIELDS:
            _spread(content["system"]["fields"], _OF_FIELDS[name], numbers)
        elif name == "decay_rates":
            _spread(content["system"]["decays"], "rate", numbers)
        elif name in _OF_SYSTEM:
            content["system"][name] = numbers
        elif name == "interaction_strengths":
            content[name] = numbers
        elif name in _SCALARS:
            _SCALARS[name](content, numbers)
        else:
            parameters.fail(name, "be left out of an updated problem, which has no place for it", "was given")
    return content


def _listed(name: str, value: Any, axes: int = 0) -> Any:
    """Numbers without batch axes, as nested lists."""
    array = np.asarray(value)
    if array.ndim != axes and not name.startswith("pulse_args."):
        rule = "have no batch axes in an updated problem" if axes else "be one number in an updated problem"
        parameters.fail(name, rule, f"has shape {array.shape}")
    return array.tolist()


def _spread(owners: list[dict[str, Any]], key: str, numbers: list[Any]) -> None:
    """One number for each field or decay."""
    for owner, number in zip(owners, numbers, strict=True):
        owner[key] = number


def _scale_decays(content: dict[str, Any], factor: float) -> None:
    for decay in content["system"]["decays"]:
        decay["rate"] *= factor


def _scale_density(content: dict[str, Any], factor: float) -> None:
    content["interaction_strengths"] = [factor * g for g in content["interaction_strengths"]]


def _set_magnitude(content: dict[str, Any], magnitude: float) -> None:
    content["system"]["b_field"]["magnitude"] = magnitude


def _set_width(content: dict[str, Any], width: float) -> None:
    content["velocity_classes"]["thermal_width"] = width


_SCALARS: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "decay_scale": _scale_decays,
    "number_density": _scale_density,
    "b_field": _set_magnitude,
    "thermal_width": _set_width,
}
