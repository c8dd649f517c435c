"""Velocity classes: their Doppler shifts, the detuning interval each stands for, and their thermal weights.

Detunings here are cyclic, like every frequency a user meets. The density is exp(-(shift / thermal_width)^2), so
`thermal_width` is the 1/e half-width of the Maxwell-Boltzmann distribution of Doppler shifts.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from jax_kernel import stable
from jax_kernel.errors import ProblemError
from jax_kernel.reading import MOST_CLASSES

if TYPE_CHECKING:
    from jax_kernel.problem import Problem, VelocityClasses

ECHO_MARGIN = 0.75  # spacing times slope times window, at most: the echo comes after 1 / 0.75 windows


def upper_levels(problem: Problem) -> np.ndarray:
    """The sign s of each field's detuning on its upper levels, 0 on the others, shape (field, level)."""
    signs = np.zeros((len(problem.fields), problem.num_states))
    for k, field in enumerate(problem.fields):
        signs[k, sorted({b for _, b in field.coupled_levels})] = 1.0 if field.detuning_positive else -1.0
    return signs


def level_doppler_slopes(problem: Problem) -> np.ndarray:
    """How each level's energy in the rotating frame moves with the Doppler shift.

    Args:
        problem: The problem whose fields carry the Doppler factors.

    Returns:
        The problem's own `level_doppler_slopes`, or by the rule of clerq minus the sum of sign * factor_doppler_shift
        over the fields that have the level as an upper level; shape (level,), dimensionless.
    """
    if problem.level_doppler_slopes is not None:
        return np.asarray(problem.level_doppler_slopes)
    return 0.0 - np.asarray([field.factor_doppler_shift for field in problem.fields]) @ upper_levels(problem)


def level_damping_rates(problem: Problem) -> np.ndarray:
    """How fast each level damps its coherences: half the diagonal of the sum of c^dagger c.

    Args:
        problem: The problem whose decays are summed.

    Returns:
        Angular rates, shape (level,), in radians per unit time; the coherence of two levels decays at their sum where
        no dense operator decays several at once.
    """
    return np.asarray([decay.rate for decay in problem.decays]) @ damping_per_rate(problem)


def coherence_damping_rates(problem: Problem) -> np.ndarray:
    """How fast the coherence of two levels decays at least.

    Channels damp it at the sum of the levels' rates. A dense operator may leave a superposition dark, or two levels in
    phase: of all elements of the density matrix that it mixes with the coherence, the slowest counts.

    Args:
        problem: The problem whose decays are summed.

    Returns:
        Angular rates, symmetric, shape (level, level).
    """
    levels = problem.num_states
    rates = np.zeros((levels, levels))
    for decay, own in zip(problem.decays, damping_per_rate(problem), strict=True):
        if decay.operator is None:
            rates += decay.rate * np.add.outer(own, own)
            continue
        operator = np.asarray(decay.operator)
        both, unit = operator.conj().T @ operator, np.eye(levels)
        dissipator = np.kron(operator, operator.conj()) - (np.kron(both, unit) + np.kron(unit, both.T)) / 2
        from scipy.sparse.csgraph import connected_components  # late, for a tenth of a second

        count, block = connected_components(dissipator != 0, directed=False)
        slowest = np.empty(count)
        for k in range(count):
            inside = dissipator[np.ix_(block == k, block == k)]
            slowest[k] = max(0.0, -np.linalg.eigvalsh((inside + inside.conj().T) / 2)[-1])
        rates += 2 * math.pi * decay.rate * slowest[block].reshape(levels, levels)
    return rates


def damping_per_rate(problem: Problem) -> np.ndarray:
    """Half the diagonal of the sum of c^dagger c of each decay per cyclic rate, angular, shape (decay, level)."""
    rates = np.zeros((len(problem.decays), problem.num_states))
    for own, decay in zip(rates, problem.decays, strict=True):
        for (_, origin), factor in zip(decay.channels, decay.factors, strict=True):
            own[origin] += math.pi * factor**2
        if decay.operator is not None:
            own += math.pi * np.sum(np.abs(np.asarray(decay.operator)) ** 2, axis=0)
    return rates


def auto_spacing(problem: Problem, *, tolerance: float = 1e-6, thermal_width: float = 1.0) -> float:
    """The largest spacing of classes without Doppler echoes that resolves the thermal distribution.

    Classes `h` apart rephase at time 1 / (b h), where b is the difference of two levels' Doppler slopes. For each
    pair of levels the echo is either behind the time window (h = 0.75 / (b T)) or damped below `tolerance` by the
    decay g of the coherence (h = g / (b ln(1 / tolerance))), whichever allows the wider spacing; the narrowest pair
    decides. Above pi thermal_width / sqrt(ln(1 / tolerance)) the sum of weights would miss the distribution itself.

    Args:
        problem: Gives the time window, the Doppler slopes and the decays.
        tolerance: Largest echo inside the window, as a part of the coherence, between 0 and 1.
        thermal_width: Cyclic frequency.

    Returns:
        The spacing, a cyclic frequency.
    """
    log_tolerance = -math.log(tolerance)
    slopes, rates = level_doppler_slopes(problem), coherence_damping_rates(problem)
    duration = problem.t_max - problem.t_min
    spacing = math.pi * thermal_width / math.sqrt(log_tolerance)
    first, second = np.triu_indices(problem.num_states, 1)
    difference = np.abs(slopes[first] - slopes[second])
    moving = difference > 0
    if not moving.any():
        return min(spacing, ECHO_MARGIN / duration)
    damping = rates[first, second][moving] / log_tolerance
    return min(spacing, float(np.min(np.maximum(ECHO_MARGIN / duration, damping) / difference[moving])))


def shifts(velocity_classes: VelocityClasses | None, problem: Problem | None = None) -> np.ndarray:
    """The Doppler shift of each velocity class.

    Without `thermal_delta_spacing` the classes are the union of the outer and the inner grid; the inner grid is the
    single point 0 unless it is given, so that a class at rest is then always among them.

    Args:
        velocity_classes: The grid, or None for one class at rest.
        problem: Needed only for `thermal_delta_spacing` "auto".

    Returns:
        Ascending cyclic frequencies, shape (class,).
    """
    if velocity_classes is None:
        return np.zeros(1)
    grid = velocity_classes
    if grid.quadrature is not None:
        return grid.thermal_width * gauss_hermite(grid.nodes).nodes
    low, high, spacing = grid.thermal_delta_min, grid.thermal_delta_max, grid.thermal_delta_spacing
    if spacing is not None:
        if isinstance(spacing, str):  # "auto"
            if problem is None:
                raise ProblemError(
                    'Argument `problem` must be given for the `thermal_delta_spacing` "auto", but is missing.'
                )
            spacing = auto_spacing(
                problem, tolerance=grid.thermal_delta_echo_tolerance, thermal_width=grid.thermal_width
            )
        # a spacing that divides the range must not gain a class by rounding
        intervals = (high - low) / spacing * (1 - 1e-12)
        if not intervals <= MOST_CLASSES:
            raise ProblemError(
                f"Argument `velocity_classes` must have at most {MOST_CLASSES} classes, but its "
                f"`thermal_delta_spacing` of {spacing:g} gives {intervals:.3g}: raise it, or bring "
                "`thermal_delta_min` and `thermal_delta_max` together."
            )
        return np.linspace(low, high, max(1, math.ceil(intervals)) + 1)
    # angular, as clerq has it: rounding decides whether a point that both grids share counts once or twice
    low, high, inner_low, inner_high = (
        2 * math.pi * edge for edge in (low, high, grid.thermal_delta_inner_min, grid.thermal_delta_inner_max)
    )
    outer = np.linspace(low, high, grid.thermal_delta_steps + 1)
    inner = np.linspace(inner_low, inner_high, grid.thermal_delta_inner_steps + 1)
    return np.unique(np.concatenate([outer, inner])) / (2 * math.pi)


@lru_cache(maxsize=256)
def class_shifts(problem: Problem) -> np.ndarray:
    """`shifts` of a problem, kept; not to be written to."""
    found = shifts(problem.velocity_classes, problem)
    found.setflags(write=False)
    return found


class GaussHermite(NamedTuple):
    """Gauss-Hermite quadrature of the thermal distribution; NumPy arrays of shape (class,).

    Attributes:
        nodes: Doppler shifts in units of the thermal width, ascending.
        weights: Their weights, with sum 1.
    """

    nodes: np.ndarray
    weights: np.ndarray


@lru_cache(maxsize=16)
def gauss_hermite(nodes: int) -> GaussHermite:
    """The rule with so many nodes (Abramowitz and Stegun 25.4.46)."""
    x, w = np.polynomial.hermite.hermgauss(nodes)
    return GaussHermite(x, w / w.sum())


def class_weights(problem: Problem) -> np.ndarray:
    """The weight of each velocity class, shape (class,), with sum 1."""
    classes = problem.velocity_classes
    if classes is not None and classes.quadrature is not None:
        return gauss_hermite(classes.nodes).weights
    shifts = problem.doppler_shifts
    return weights(shifts, quadrature_weights(shifts), problem.thermal_width)


def echo(problem: Problem) -> float:
    """The largest wrong revival of a coherence in the time window, as a part of the coherence.

    A coherence of two levels whose Doppler slopes differ by b dephases as the characteristic function of the
    distribution, exp(-(pi b w t)^2); a finite number of classes follows it until they rephase. The damping of the
    coherence counts in favour.

    Args:
        problem: Gives the classes, the Doppler slopes, the decays and the time window.

    Returns:
        The largest |sum_v w_v exp(-2 pi i b shift_v t) - exp(-(pi b w t)^2)| exp(-damping t), 0 without motion.
    """
    shifts, weights_ = problem.doppler_shifts, class_weights(problem)
    slopes, rates = level_doppler_slopes(problem), coherence_damping_rates(problem)
    time = np.linspace(0, problem.t_max - problem.t_min, 2 * problem.t_steps + 1)
    first, second = np.triu_indices(problem.num_states, 1)
    worst = 0.0
    for b, damping in {(abs(slopes[i] - slopes[j]), rates[i, j]) for i, j in zip(first, second, strict=True)}:
        if b > 0:
            parts = np.array_split(time, 1 + len(time) * len(shifts) // 10**6)  # all at once might fill the memory
            sums = np.concatenate([np.exp(-2j * np.pi * b * t[:, None] * shifts) @ weights_ for t in parts])
            wanted = np.exp(-((np.pi * b * problem.thermal_width * time) ** 2))
            worst = max(worst, float(np.max(np.abs(sums - wanted) * np.exp(-damping * time))))
    return worst


def quadrature_weights(shifts: np.ndarray) -> np.ndarray:
    """The detuning interval each class stands for.

    Args:
        shifts: Ascending Doppler shifts, shape (class,), cyclic.

    Returns:
        Half the distance between the neighbours for an interior class, the whole adjacent gap for an end class, 1 for
        a single class; shape (class,), cyclic.
    """
    if len(shifts) == 1:
        return np.ones(1)
    gaps = np.diff(shifts)
    return np.concatenate([gaps[:1], (gaps[:-1] + gaps[1:]) / 2, gaps[-1:]])


def weights(shifts: Any, intervals: Any, thermal_width: Any, *, xp: Any = np) -> Any:
    """The Maxwell-Boltzmann weight of each velocity class, normalised to 1.

    It is the softmax of the logarithms of density times interval, so that neither a narrow distribution nor a grid far
    from rest underflows, and the gradient stays finite in float32.

    Args:
        shifts: Doppler shifts, shape (class,), cyclic.
        intervals: `quadrature_weights(shifts)`, shape (class,).
        thermal_width: Cyclic, scalar or shape (*batch, 1).
        xp: The array module, `numpy` or `jax.numpy`.

    Returns:
        Weights with sum 1, shape (*batch, class).
    """
    ratio = shifts / thermal_width
    logarithms = xp.log(intervals) - ratio * ratio
    return special.softmax(logarithms, axis=-1) if xp is np else stable.softmax(logarithms)
