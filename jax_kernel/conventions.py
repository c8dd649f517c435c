"""Warns, once a problem, where the reading that is compatible with clerq is probably not what was meant.

By clerq's rule a detuning and a Doppler shift belong to the upper levels of their field, and neither adds up along a
ladder or a Λ. In the frame that rotates with the light each level's energy is that of the level it is coupled to, less
the detuning of the light between them; `accumulated` is that sum.
"""

import dataclasses
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from . import doppler, pulses
from .elements import VelocityClasses
from .errors import ConventionWarning, WindowWarning, warn
from .problem import Problem
from .reading import show

GRID_ECHO = 0.05
"""Error of a coherence above which a grid of velocity classes is warned of."""


@lru_cache(maxsize=256)
def warn_once(problem: Problem) -> None:
    """Warn of everything in a problem that probably means something else, with the remedy."""
    for text, category in doubts(problem):
        warn(text, category)


def doubts(problem: Problem) -> list[tuple[str, type[Warning]]]:
    """What probably means something else than was meant: one sentence with the remedy each, and its kind."""
    found: list[tuple[str, type[Warning]]] = [
        (text, ConventionWarning) for text in [*_reversed_pairs(problem), *_levels(problem)]
    ]
    found += [(text, ConventionWarning) for text in _negative_strengths(problem)]
    found += [(text, WindowWarning) for text in _dark_pulses(problem)]
    if problem.velocity_classes is not None and (text := _missing_classes(problem, problem.velocity_classes)):
        found.append((text, WindowWarning))
    return found


DEFAULT_PULSE = {"on": 0.0, "off": 1.0, "ampl": 1.0}


def _negative_strengths(problem: Problem) -> list[str]:
    return [
        f"Field {show(name)} has the interaction strength {strength:g}: a negative one amplifies what a positive one "
        "absorbs; is the sign meant?"
        for name, strength in zip(problem.field_names, problem.interaction_strengths, strict=True) if strength < 0
    ]  # fmt: skip


def _dark_pulses(problem: Problem) -> list[str]:
    """Pulses that are over before the window begins, or begin after its end."""
    texts = []
    for light, name in zip(problem.fields, problem.field_names, strict=True):
        args = dict(light.envelope.args)
        if args == DEFAULT_PULSE:  # which nobody wrote, and samples will replace
            continue
        if light.rabi_freq and (span := pulses.span(light.envelope.name, args)):
            begin, end = span
            if end < problem.t_min or begin > problem.t_max:
                named = ", ".join(f"{key} {args[key]:g}" for key in ("centre", "on", "off") if key in args)
                texts.append(
                    f"Field {show(name)} is dark in the time window, {problem.t_min:g} to {problem.t_max:g}: its "
                    f"{light.envelope.name} pulse has {named}; move it, or the window, and look at the unit of time."
                )
    return texts


def _missing_classes(problem: Problem, classes: VelocityClasses) -> str | None:
    """What to say of velocity classes that are not the thermal distribution for as long as the time window lasts."""
    width, count = classes.thermal_width, len(problem.doppler_shifts)
    grid = (f"`thermal_delta_min` {-3.5 * width:g}, `thermal_delta_max` {3.5 * width:g} and `thermal_delta_spacing` "
            '"auto"')  # fmt: skip
    if count == 1 and classes.quadrature is None:
        return f"A `thermal_width` without a grid is one velocity class at rest: give {grid}."
    error = doppler.echo(problem)
    if error <= (classes.thermal_delta_echo_tolerance if classes.quadrature else GRID_ECHO):
        return None
    cure = f"give {grid}"
    if classes.quadrature is not None:
        enough = next((n for n in (50, 100, 200, 300) if n > count and _echo_of(problem, n) < error / 1e3), None)
        cure = f"raise `nodes` to {enough}" if enough else f"in place of `quadrature` {cure}"
    return (
        f"The {count} velocity classes miss the thermal distribution or rephase within the time window (a coherence is "
        f"wrong by up to {error:.1e}): {cure}."
    )


def _echo_of(problem: Problem, nodes: int) -> float:
    assert problem.velocity_classes is not None
    classes = dataclasses.replace(problem.velocity_classes, nodes=nodes)
    return doppler.echo(dataclasses.replace(problem, velocity_classes=classes))


def accumulated(problem: Problem, per_field: Sequence[float]) -> np.ndarray | None:
    """The sum along the couplings of a quantity of each field, up where the second level of a pair is the higher one.

    Args:
        problem: gives the couplings.
        per_field: detuning or Doppler factor of each field, shape (field,).

    Returns:
        Shape (level,), 0 for the lowest-numbered level of each set of coupled levels; None where two ways to a level
        disagree.
    """
    steps: dict[int, list[tuple[int, float]]] = {}
    for field, value in zip(problem.fields, per_field, strict=True):
        step = value if field.detuning_positive else -value
        for a, b in field.coupled_levels:
            steps.setdefault(a, []).append((b, step))
            steps.setdefault(b, []).append((a, -step))
    found: dict[int, float] = {}
    for root in range(problem.num_states):
        found.setdefault(root, 0.0)
        fresh = [root]
        while fresh:
            here = fresh.pop()
            for there, step in steps.get(here, ()):
                if there not in found:
                    found[there] = found[here] + step
                    fresh.append(there)
                elif abs(found[there] - found[here] - step) > 1e-12 * (1 + abs(step)):
                    return None
    return np.asarray([found[level] for level in range(problem.num_states)])


def _levels(problem: Problem) -> list[str]:
    """Level detunings and Doppler slopes that do not add up along the couplings."""
    texts = []
    detunings = [field.detuning for field in problem.fields]
    factors = [field.factor_doppler_shift for field in problem.fields]
    moving = len(problem.doppler_shifts) > 1
    for key, per_field, sign, what in (
        ("level_detunings", detunings, 1.0, "detunings"),
        ("level_doppler_slopes", factors if moving else (), -1.0, "Doppler shifts"),
    ):
        if getattr(problem, key) is not None or not any(per_field):
            continue
        meant = accumulated(problem, per_field)
        rule = np.asarray(per_field) @ doppler.upper_levels(problem)
        if meant is not None and not _same_differences(problem, meant, rule):
            texts.append(
                f"By clerq's rule the {what} of the fields belong to their upper levels and do not add up along the "
                f"couplings, so that the levels have `{key}` {_listed(sign * rule)} here; the sums along "
                f"the couplings are {_listed(sign * meant)}: write the one you mean as `system.{key}`."
            )
    return texts


def _listed(values: np.ndarray) -> str:
    return f"[{', '.join(f'{value + 0:g}' for value in values)}]"


def _same_differences(problem: Problem, first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two energies per level differ between coupled levels alike."""
    pairs = [pair for field in problem.fields for pair in field.coupled_levels]
    shared = {level for pair in pairs for level in pair}
    linked = _components(shared, pairs)
    return all(np.ptp((first - second)[sorted(levels)]) < 1e-9 * (1 + np.max(np.abs(first))) for levels in linked)


def _components(levels: set[int], pairs: Sequence[tuple[int, int]]) -> list[set[int]]:
    """The sets of levels that couplings connect."""
    sets = [{level} for level in levels]
    for a, b in pairs:
        joined = [s for s in sets if a in s or b in s]
        sets = [s for s in sets if s not in joined] + [set().union(*joined)]
    return sets


def _reversed_pairs(problem: Problem) -> list[str]:
    """Pairs whose first level is another field's upper one, and whose second is another's lower one or populated.

    Also those whose first level decays to the second, and not the other way.
    """
    texts = []
    down = {(start, to) for decay in problem.decays for to, start in decay.channels if decay.rate}
    for k, field in enumerate(problem.fields):
        others = [pair for j, other in enumerate(problem.fields) if j != k for pair in other.coupled_levels]
        uppers, lowers = {b for _, b in others}, {a for a, _ in others}
        for a, b in field.coupled_levels:
            decays = (a, b) in down and (b, a) not in down
            if (a in uppers and (b in lowers or problem.initial_state[b] > 0)) or decays:
                why = f"{a} decays to {b}" if decays else (
                    f"{a} is an upper level of another field and {b} a lower or populated one"
                )  # fmt: skip
                texts.append(
                    f"Field {show(field.label or k)} couples [{a}, {b}] as [lower, upper], but {why}. The order sets "
                    f"the sign of the source: this one amplifies what [{b}, {a}] absorbs; write [{b}, {a}] if {a} is "
                    "the upper level."
                )
    return texts
