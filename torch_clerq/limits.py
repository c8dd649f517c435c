"""The optical depth of a medium, and the efficiency of light storage that physics allows at it.

Source: Gorshkov, André, Lukin and Sørensen, Phys. Rev. A 76, 033805 (2007).
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import ive

from jax_kernel.doppler import level_damping_rates
from jax_kernel.errors import ProblemError
from jax_kernel.medium import optical_path
from jax_kernel.problem import Problem

from .checks import check_count, check_number

DEEPEST = 1e6
"""Optical depth up to which the limit is computed; beyond it is above 0.9999."""

RETRIEVALS = ("forward", "backward", "none")


def optical_depth(problem: Problem, field: int | str = 0) -> float | None:
    """Optical depth (of intensity) of a field at rest and on resonance: 4gNLf²/γ.

    γ is the sum of rate times factor² over the channels that leave either level of its pair.

    Args:
        problem: the medium.
        field: index or label of a field on one pair of levels.

    Returns:
        The optical depth, or None where the formula does not apply: several pairs, moving atoms, no decay, or a decay
        operator of several elements.

    Raises:
        ProblemError: there is no such field.

    Example:
        >>> from torch_clerq import Problem
        >>> optical_depth(Problem.from_dict({
        ...     "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
        ...                "fields": [{"coupled_levels": [[0, 1]]}]}, "interaction_strengths": [2.5]}))
        10.0
    """
    k = problem.field_index(field)
    light = problem.fields[k]
    together = any(decay.operator is not None and np.count_nonzero(decay.operator) > 1 for decay in problem.decays)
    if len(light.coupled_levels) != 1 or any(problem.doppler_shifts) or together:
        return None
    rate = sum(_rate(problem, level) for level in light.coupled_levels[0])
    path = float(optical_path(problem)[-1])
    return 4 * problem.interaction_strengths[k] * path * light.factors[0] ** 2 / rate if rate else None


def _rate(problem: Problem, level: int) -> float:
    """Rate at which a level loses its coherence, dephasing included, cyclic."""
    return float(level_damping_rates(problem)[level]) / np.pi


def storage_limit(problem: Problem, field: int | str = 0) -> float | None:
    """The largest efficiency of storing a weak field and retrieving it forward in a problem, whatever the pulses.

    Args:
        problem: a Λ memory.
        field: index or label of the stored field.

    Returns:
        `memory_limit` at the problem's optical depth, or None where that limit is not the problem's: fewer than three
        levels, moving atoms, several pairs, a spin that decays, or atoms that are not all in its lower level.

    Example:
        >>> from torch_clerq import Problem
        >>> memory = Problem.from_dict({
        ...     "system": {"num_states": 3, "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
        ...                "fields": [{"coupled_levels": [[0, 1]]}, {"coupled_levels": [[2, 1]]}]},
        ...     "interaction_strengths": [6.25, 6.25]})
        >>> round(storage_limit(memory), 5)
        0.56898
    """
    k = problem.field_index(field)
    depth = optical_depth(problem, k)
    upper = {b for light in problem.fields for _, b in light.coupled_levels}
    ground = [level for level in range(problem.num_states) if level not in upper]
    lossless = not any(_rate(problem, level) for level in ground)
    is_memory = len(upper) == 1 and len(ground) > 1 and len(problem.fields) > 1
    prepared = problem.initial_state[problem.fields[k].coupled_levels[0][0]] == 1
    return memory_limit(depth) if depth and 0 < depth <= DEEPEST and is_memory and prepared and lossless else None


def memory_limit(optical_depth: float, retrieval: str = "forward", nodes: int = 96) -> float:
    """The largest efficiency of a Λ memory without Doppler broadening or spin decay, for any weak probe and control.

    With d half the optical depth, k(z, z') = (d/2) exp(−d(z + z')/2) I₀(d√(zz')) on [0, 1]² and P the reflection of z,
    storage alone cannot exceed the largest eigenvalue λ of k, storage with backward retrieval λ², with forward
    retrieval the largest eigenvalue of k^½ P k P k^½.

    Args:
        optical_depth: of intensity, up to 10⁶.
        retrieval: "forward", "backward" or "none" (storage alone).
        nodes: least number of Gauss–Legendre nodes of the quadrature, which converges exponentially in them.

    Returns:
        The limit.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> [round(memory_limit(25.0, way), 5) for way in ("none", "backward", "forward")]
        [0.84358, 0.71163, 0.56898]
    """
    rule = f"be positive, and at most {DEEPEST:g}"
    depth = check_number("optical_depth", optical_depth, rule, lambda number: 0 < number <= DEEPEST)
    nodes = max(check_count("nodes", nodes), math.ceil(1.5 * math.sqrt(depth)))  # the kernel is as narrow as 1/√d
    if retrieval not in RETRIEVALS:
        raise ProblemError(f"Argument `retrieval` must be one of {', '.join(RETRIEVALS)}, but is {retrieval!r}.")
    return _memory_limit(depth, retrieval, nodes)


@lru_cache(maxsize=64)
def _memory_limit(optical_depth: float, retrieval: str, nodes: int) -> float:
    x, weights = np.polynomial.legendre.leggauss(nodes)
    root = np.sqrt((x + 1) / 2)
    d = optical_depth / 2
    kernel = d / 2 * np.exp(-d * (root[:, None] - root) ** 2 / 2) * ive(0, d * root[:, None] * root)
    scale = np.sqrt(weights / 2)
    values, vectors = np.linalg.eigh(scale[:, None] * kernel * scale)
    if retrieval != "forward":
        return float(values[-1] ** (1 if retrieval == "none" else 2))
    half = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    overlap = half @ half[::-1]  # k^½ P k^½, since the nodes are symmetric
    return float(np.linalg.eigvalsh(overlap @ overlap.T)[-1])
