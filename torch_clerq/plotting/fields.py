"""Figures of the light: z–t maps, envelopes at both ends, pulse areas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jax_kernel.parameters import fail
from jax_kernel.problem import Problem
from jax_kernel.solution import Solution

from .. import analysis
from ..checks import check_positive
from .panels import draw_in_and_out, draw_map, in_brackets, label_last, make, styled
from .reading import read_light
from .style import BLUE, GREY, LABORATORY_TIME, POSITION, TIME, short_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def zt_map(
    solution: Solution,
    labels: Sequence[str] = (),
    *,
    problem: Problem | None = None,
    frame: str = "retarded",
    speed_of_light: float | None = None,
    axes: Any = None,
) -> "Figure":
    """|Ω| over time and position, one panel a field.

    Args:
        solution: of one problem: fields of shape (field, z, time), cyclic.
        labels: a name per field, by default those of the problem, or "field 0", "field 1", ….
        problem: what was solved, for the labels, and to refuse counter-propagating fields in the laboratory frame.
        frame: "retarded", or "lab" for `torch_clerq.analysis.lab_fields`, in which light takes its time along z.
        speed_of_light: c of the laboratory frame, in the problem's units.
        axes: one Axes a field, by default those of a new figure.

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ProblemError: an argument breaks a rule, such as fields with batch axes.

    Example:
        >>> import torch
        >>> from torch_clerq import Solution
        >>> from torch_clerq.plotting import zt_map
        >>> figure = zt_map(Solution(fields=torch.rand(2, 5, 9), z=torch.linspace(0, 1, 5), time=torch.arange(9.0)))
        >>> [axes.get_title(loc="left") for axes in figure.axes[:2]]
        ['field 0', 'field 1']
    """
    light = read_light(solution, labels, problem)
    fields, time = light.fields, light.time
    if frame not in ("retarded", "lab"):
        fail("frame", 'be "retarded" or "lab"', f"is {frame!r}")
    if frame == "lab":
        if speed_of_light is None:
            fail("speed_of_light", "be given for the laboratory frame, in the problem's units", "is None")
        speed = check_positive("speed_of_light", speed_of_light)
        z, retarded = torch.as_tensor(light.z), torch.as_tensor(time)
        fields = analysis.lab_fields(torch.as_tensor(fields), z, retarded, speed, problem=problem).numpy()
        time = analysis.lab_time(z, retarded, speed).numpy()
    elif speed_of_light is not None:
        fail("speed_of_light", 'be left out but for frame="lab"', f"is {speed_of_light!r}")
    with styled():
        figure, panels = make(axes, len(fields), height=1.5)
        for panel, field, name in zip(panels, np.abs(fields), light.names, strict=True):
            draw_map(panel, time, light.z, field, r"$|\Omega|$", "cyclic")
            panel.set_title(name, loc="left")
        label_last(panels, TIME if frame == "retarded" else LABORATORY_TIME)
    return figure


def envelopes(
    solution: Solution, labels: Sequence[str] = (), *, problem: Problem | None = None, axes: Any = None
) -> "Figure":
    """|Ω| over retarded time where each field enters and where it leaves, one panel a field.

    Args:
        solution: of one problem: fields of shape (field, z, time), cyclic.
        labels: a name per field, by default those of the problem, or "field 0", "field 1", ….
        problem: what was solved, for the labels, and since counter-propagating fields enter at the last position.
        axes: one Axes a field, by default those of a new figure.

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ProblemError: an argument breaks a rule, such as fields with batch axes.

    Example:
        >>> import torch
        >>> from torch_clerq import Solution
        >>> from torch_clerq.plotting import envelopes
        >>> fields = torch.linspace(1.0, 0.5, 3)[:, None].expand(1, 3, 9)
        >>> figure = envelopes(Solution(fields=fields, z=torch.linspace(0, 1, 3), time=torch.arange(9.0)), ["probe"])
        >>> [(line.get_label(), float(line.get_ydata()[0])) for line in figure.axes[0].lines]
        [('input', 1.0), ('output', 0.5)]
    """
    light = read_light(solution, labels, problem)
    with styled():
        figure, panels = make(axes, len(light.fields), height=1.5)
        for panel, field, name, ends in zip(panels, np.abs(light.fields), light.names, light.ends, strict=True):
            unit, power = short_numbers(field[list(ends)].max())
            draw_in_and_out(panel, light.time, *(field[end] / unit for end in ends))
            panel.set_title(name, loc="left")
            panel.set_ylabel(in_brackets(r"$|\Omega|$", power, "cyclic"))
            panel.set_xlim(light.time[0], light.time[-1])
        label_last(panels, TIME)
    return figure


def pulse_area(
    solution: Solution,
    labels: Sequence[str] = (),
    *,
    problem: Problem | None = None,
    part: str = "abs",
    axes: Any = None,
) -> "Figure":
    """The pulse area along z in units of π, one panel a field, with lines at the multiples of π.

    Args:
        solution: of one problem: fields of shape (field, z, time), cyclic.
        labels: a name per field, by default those of the problem, or "field 0", "field 1", ….
        problem: what was solved, for the labels.
        part: "abs" or "real", see `torch_clerq.analysis.pulse_area`.
        axes: one Axes a field, by default those of a new figure.

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ProblemError: an argument breaks a rule, such as fields with batch axes.

    Example:
        >>> import torch
        >>> from torch_clerq import Solution
        >>> from torch_clerq.plotting import pulse_area
        >>> time = torch.linspace(-20.0, 20.0, 401)
        >>> soliton = (1 / (torch.pi * time.cosh())).expand(1, 3, 401)
        >>> figure = pulse_area(Solution(fields=soliton, z=torch.linspace(0, 1, 3), time=time))
        >>> figure.axes[0].lines[0].get_ydata().round(3).tolist()
        [2.0, 2.0, 2.0]
    """
    light = read_light(solution, labels, problem)
    areas = analysis.pulse_area(torch.as_tensor(light.fields), torch.as_tensor(light.time), part=part).numpy() / np.pi
    with styled():
        from matplotlib.ticker import MaxNLocator

        figure, panels = make(axes, len(areas), height=1.7)
        for panel, area, name in zip(panels, areas, light.names, strict=True):
            unit, power = short_numbers(np.abs(area).max())
            panel.plot(light.z, area / unit, color=BLUE)
            panel.set_title(name, loc="left")
            panel.set_ylabel(f"pulse area ({power}$\\pi$)")
            panel.set_xlim(light.z[0], light.z[-1])
            low, high = min(area.min() / unit, 0.0), max(area.max() / unit, 0.0) or 1.0
            panel.set_ylim(low * 1.15, high * 1.15)
            if unit == 1 and high - low >= 1:
                panel.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
            multiples = [n for n in panel.get_yticks() if n and n == round(n) and low * 1.15 <= n <= high * 1.15]
            for multiple in multiples if unit == 1 else []:
                panel.axhline(multiple, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
        label_last(panels, POSITION)
    return figure
