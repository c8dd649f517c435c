"""Warns, once a problem, where the reading that is compatible with clerq is probably not what was meant.

By clerq's rule a detuning and a Doppler shift belong to the upper levels of their field, and neither adds up along a
ladder or a Λ. In the frame that rotates with the light each level's energy is that of the level it is coupled to, less
the detuning of the light between them; `accumulated` is that sum.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from . import doppler
from .errors import ConventionWarning, ResolutionWarning, warn
from .problem import Problem
from .reading import show


@lru_cache(maxsize=256)
def warn_once(problem: Problem) -> None:
    """Warn of everything in a problem that probably means something else, with the remedy."""
    for text in [*_reversed_pairs(problem), *_levels(problem)]:
        warn(text, ConventionWarning)
    classes = problem.velocity_classes
    if classes is not None and classes.quadrature is not None:
        error = doppler.echo(problem)
        if error > classes.thermal_delta_echo_tolerance:
            warn(
                f"The {classes.nodes} velocity classes rephase within the time window (a wrong echo of {error:.1e} of "
                "the coherence): raise `velocity_classes.nodes`, or `thermal_delta_echo_tolerance` if that is enough.",
                ResolutionWarning,
            )


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
    signs = [1.0 if field.detuning_positive else -1.0 for field in problem.fields]
    uppers = [{b for _, b in field.coupled_levels} for field in problem.fields]
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
        rule = np.asarray([
            sum(s * x for s, x, upper in zip(signs, per_field, uppers, strict=True) if level in upper)
            for level in range(problem.num_states)
        ])  # fmt: skip
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
    """Pairs whose first level is another field's upper one, and whose second is another's lower one or populated."""
    texts = []
    for k, field in enumerate(problem.fields):
        others = [pair for j, other in enumerate(problem.fields) if j != k for pair in other.coupled_levels]
        uppers, lowers = {b for _, b in others}, {a for a, _ in others}
        for a, b in field.coupled_levels:
            if a in uppers and (b in lowers or problem.initial_state[b] > 0):
                texts.append(
                    f"Field {show(field.label or k)} couples [{a}, {b}] as [lower, upper], but {a} is an upper level "
                    f"of another field and {b} a lower or populated one. The order sets the sign of the source: this "
                    f"one amplifies what [{b}, {a}] absorbs; write [{b}, {a}] if {a} is the upper level."
                )
    return texts
