"""Figures of the atoms: populations and coherences, over time or along the medium."""

from collections.abc import Sequence
from itertools import chain
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_kernel.parameters import fail
from jax_kernel.problem import Problem
from jax_kernel.solution import Solution

from .panels import draw_map, in_brackets, label_last, make, name_lines, styled
from .reading import ONE_OF_A_BATCH, complete, nearest, numbers, read_grids, read_names
from .style import LINES, TIME, short_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def populations(
    solution: Solution,
    labels: Sequence[str] = (),
    *,
    levels: Sequence[int | Sequence[int]] | None = None,
    z: float | Sequence[float] | None = None,
    axes: Any = None,
) -> "Figure":
    """Populations: z–t maps, one panel a level, or over time at some positions, one panel a position.

    Args:
        solution: of one problem, with outputs=("populations",) or ("density_matrix",).
        labels: a name per level or group drawn, by default "level 0", "levels 1, 2", ….
        levels: which ones, by index; several in brackets are drawn as one, their sum. By default each.
        z: positions at which to draw over time, each the nearest stored one; without, z–t maps.
        axes: one Axes a panel, by default those of a new figure.

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ProblemError: an argument breaks a rule, such as a solution without states.

    Example:
        >>> import torch
        >>> from torch_clerq import Solution
        >>> from torch_clerq.plotting import populations
        >>> z, time = torch.linspace(0, 1, 5), torch.arange(9.0)
        >>> solution = Solution(populations=torch.full((5, 9, 4), 0.25), z=z, time=time)
        >>> figure = populations(solution, ["ground", "excited"], levels=[0, [1, 2, 3]], z=[0.0, 1.0])
        >>> [(line.get_label(), float(line.get_ydata()[0])) for line in figure.axes[1].lines]
        [('ground', 0.25), ('excited', 0.75)]
    """
    grid, time = read_grids(solution)
    each = _populations(solution, len(grid), len(time))
    groups = _groups(levels, each.shape[-1])
    names = complete(labels, [f"level{'s' * (len(group) > 1)} {', '.join(map(str, group))}" for group in groups])
    values = [each[..., group].sum(-1) for group in groups]
    if z is None:
        return _maps(values, names, time, grid, "population", axes)
    if len(values) > len(LINES):
        fail("levels", f"be at most {len(LINES)} lines to be told apart", f"are {len(values)}: choose some, or groups")
    places = nearest(grid, z)
    with styled():
        figure, panels = make(axes, len(places), height=1.7, sharey=True)
        for panel, place in zip(panels, places, strict=True):
            for style, name, value in zip(LINES, names, values, strict=False):
                panel.plot(time, value[place], label=name, **style)
            panel.set_title(f"$z$ = {grid[place]:.4g}", loc="left")
            panel.set_ylabel("population")
            panel.set_xlim(time[0], time[-1])
        name_lines(panels[0], beside=axes is None)
        label_last(panels, TIME)
    return figure


def coherences(
    solution: Solution,
    labels: Sequence[str] = (),
    *,
    problem: Problem | None = None,
    pairs: Sequence[tuple[int, int]] | None = None,
    z: float | Sequence[float] | None = None,
    axes: Any = None,
) -> "Figure":
    """The modulus of coherences, one panel each: z–t maps, or over time at some positions.

    By default those that are the source of each field, Σ f ρ_ab; with `pairs`, single ones such as the spin wave of a
    memory.

    Args:
        solution: of one problem, with outputs=("coherences",), or ("density_matrix",) for `pairs`.
        labels: a name per panel, by default those of the problem's fields, "field 0", …, or "levels 0, 2", ….
        problem: what was solved, for the labels.
        pairs: levels (a, b) of each coherence ρ_ab.
        z: positions at which to draw over time, each the nearest stored one; without, z–t maps.
        axes: one Axes a panel, by default those of a new figure.

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ProblemError: an argument breaks a rule, such as a solution without states.

    Example:
        >>> import torch
        >>> from torch_clerq import Solution
        >>> from torch_clerq.plotting import coherences
        >>> matrix = torch.tensor([[0.5, 0.3j], [-0.3j, 0.5]]).expand(5, 9, 2, 2)
        >>> solution = Solution(density_matrix=matrix, z=torch.linspace(0, 1, 5), time=torch.arange(9.0))
        >>> figure = coherences(solution, ["spin wave"], pairs=[(0, 1)], z=[0.5])
        >>> figure.axes[0].get_title(loc="left"), round(float(figure.axes[0].lines[0].get_ydata()[0]), 4)
        ('spin wave', 0.3)
    """
    grid, time = read_grids(solution)
    if pairs is None:
        if solution.coherences is None:
            fail("solution", "have coherences", 'has none: ask for outputs=("coherences",), or name `pairs` of levels')
        shape = ("field", len(grid), len(time))
        cure = ONE_OF_A_BATCH.format(part="coherences")
        values = list(np.abs(numbers("solution.coherences", solution.coherences, shape, cure=cure)))
        names, _ = read_names(labels, problem, len(values))
        quantity = r"$|\sum f \rho_{ab}|$"
    else:
        if solution.density_matrix is None:
            fail("solution", "have a density matrix for `pairs`", 'has none: ask for outputs=("density_matrix",)')
        matrix = _density_matrix(solution, len(grid), len(time))
        chosen = _pairs(pairs, matrix.shape[-1])
        values = [np.abs(matrix[..., a, b]) for a, b in chosen]
        names = complete(labels, [f"levels {a}, {b}" for a, b in chosen])
        quantity = r"$|\rho_{ab}|$"
    if z is None:
        return _maps(values, names, time, grid, quantity, axes)
    places = nearest(grid, z)
    if len(places) > len(LINES):
        fail("z", f"be at most {len(LINES)} positions to be told apart", f"are {len(places)}")
    with styled():
        figure, panels = make(axes, len(values), height=1.7)
        for panel, name, value in zip(panels, names, values, strict=True):
            unit, power = short_numbers(value[places].max())
            for style, place in zip(LINES, places, strict=False):
                panel.plot(time, value[place] / unit, label=f"$z$ = {grid[place]:.4g}", **style)
            panel.set_title(name, loc="left")
            panel.set_ylabel(in_brackets(quantity, power, ""))
            panel.set_xlim(time[0], time[-1])
            panel.set_ylim(bottom=0)
        name_lines(panels[0], beside=axes is None)
        label_last(panels, TIME)
    return figure


def _maps(
    values: list[np.ndarray], names: list[str], time: np.ndarray, z: np.ndarray, quantity: str, axes: Any
) -> "Figure":
    with styled():
        figure, panels = make(axes, len(values), height=1.5)
        for panel, value, name in zip(panels, values, names, strict=True):
            draw_map(panel, time, z, value, quantity, "")
            panel.set_title(name, loc="left")
        label_last(panels, TIME)
    return figure


def _populations(solution: Solution, positions: int, times: int) -> np.ndarray:
    """Populations of a solution, or those that stand in its density matrix, shape (z, time, level)."""
    if solution.populations is not None:
        cure = ONE_OF_A_BATCH.format(part="populations")
        each = numbers("solution.populations", solution.populations, (positions, times, "level"), cure=cure)
    elif solution.density_matrix is not None:
        each = np.diagonal(_density_matrix(solution, positions, times), axis1=-2, axis2=-1)
    else:
        fail("solution", "have populations", 'has none: ask for outputs=("populations",)')
    return each.real


def _density_matrix(solution: Solution, positions: int, times: int) -> np.ndarray:
    cure = ONE_OF_A_BATCH.format(part="density_matrix")
    shape = (positions, times, "level", "level")
    return numbers("solution.density_matrix", solution.density_matrix, shape, cure=cure)


def _groups(levels: Any, count: int) -> list[list[int]]:
    """Levels that are drawn together, by index."""
    try:
        groups = [
            [index(level) for level in np.atleast_1d(one)] for one in (range(count) if levels is None else levels)
        ]
    except (TypeError, ValueError):
        groups = []
    if not groups or not all(groups):
        fail("levels", "be a list of levels, or of lists of levels, by index", f"is {levels!r}")
    for level in chain(*groups):
        _check_level("levels", level, count)
    return groups


def _pairs(pairs: Any, count: int) -> list[tuple[int, int]]:
    try:
        chosen = [(index(a), index(b)) for a, b in pairs]
    except (TypeError, ValueError):
        chosen = []
    if not chosen:
        fail("pairs", "be a list of pairs of levels, by index", f"is {pairs!r}")
    for level in chain(*chosen):
        _check_level("pairs", level, count)
    return chosen


def _check_level(name: str, level: int, count: int) -> None:
    if not 0 <= level < count:
        fail(name, f"have levels from 0 to {count - 1}", f"has {level}")
