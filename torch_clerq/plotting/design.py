"""The figure of a designed pulse: what goes in, what comes out, and what makes it so."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from jax_kernel.parameters import fail, suggestion

from ..checks import check_number
from .panels import draw_in_and_out, label_last, make, styled
from .reading import numbers
from .style import BLACK, GREY, TIME

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def design_figure(
    time: ArrayLike,
    inputs: Mapping[str, ArrayLike],
    output: ArrayLike,
    *,
    stored: str,
    after: float | None = None,
    title: str = "",
    axes: Any = None,
) -> "Figure":
    """Input and output of the stored field, and below them the other fields.

    Args:
        time: shape (time,).
        inputs: complex or real envelope at the entrance by label, cyclic, each of shape (time,).
        output: complex or real envelope of the stored field at the exit, cyclic, shape (time,).
        stored: label of the stored field.
        after: when retrieval begins.
        title: stands above.
        axes: one Axes a field, the stored one first, by default those of a new figure.

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ProblemError: an argument breaks a rule, such as pulses that are not on the grid.

    Example:
        >>> import numpy as np
        >>> from torch_clerq.plotting import design_figure
        >>> t = np.linspace(0.0, 3.0, 31)
        >>> figure = design_figure(t, {"probe": np.exp(-t), "control": t}, 0.5 * np.exp(-t), stored="probe", after=1.0)
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['probe $|\\\\Omega|^2$ / input peak', 'control $|\\\\Omega|$ (cyclic)']
    """
    time = numbers("time", time, ("time",))
    if stored not in inputs:
        fail("stored", f"be a label of the inputs, {list(inputs)}", f"is {stored!r}{suggestion(stored, list(inputs))}")
    if after is not None:
        after = check_number("after", after)
    light = {label: np.abs(numbers(f"inputs[{label!r}]", values, (len(time),))) for label, values in inputs.items()}
    entering, leaving = light.pop(stored) ** 2, np.abs(numbers("output", output, (len(time),))) ** 2
    peak = entering.max() or 1.0
    with styled():
        ratios = [2.0] + [1.2] * len(light)
        figure, panels = make(axes, 1 + len(light), height=sum(ratios) / len(ratios) + 0.15, height_ratios=ratios)
        top, *rest = panels
        draw_in_and_out(top, time, entering / peak, leaving / peak)
        top.set_ylabel(rf"{stored} $|\Omega|^2$ / input peak")
        top.set_title(title, loc="left", wrap=True)
        for panel, (label, values) in zip(rest, light.items(), strict=True):
            panel.plot(time, values, color=BLACK)
            panel.fill_between(time, values, color=BLACK, alpha=0.1, linewidth=0)
            panel.set_ylabel(rf"{label} $|\Omega|$ (cyclic)")
            panel.set_ylim(bottom=0)
        for panel in panels:
            panel.set_xlim(time[0], time[-1])
            if after is not None:
                panel.axvline(after, color=GREY, linewidth=0.8, linestyle=":", label="retrieval counted from here")
        top.legend(frameon=False, loc="upper right", ncols=3, borderpad=0.1)
        label_last(panels, TIME)
    return figure
