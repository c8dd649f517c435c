"""Panels of a new figure, or those that were given, and what several figures draw in one."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_kernel.parameters import fail

from .style import BLUE, DPI, MAP, STYLE, VERMILION, short_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LOCK = threading.RLock()
"""Held while matplotlib's settings, which all threads share, are those of `STYLE`."""


@contextmanager
def styled() -> Iterator[None]:
    """The look of `STYLE`, without a trace in matplotlib's own settings.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        text = f"Figures need {error.name}, which is not installed: pip install 'torch_clerq[plot]'."
        raise ModuleNotFoundError(text, name=error.name) from error
    with LOCK, matplotlib.rc_context(STYLE):
        yield


def make(
    axes: Any, rows: int, columns: int = 1, *, height: float, sharex: Any = True, **options: Any
) -> tuple["Figure", list["Axes"]]:
    """The panels to draw into, row by row: those of a new figure, each so many inches high, or the given ones.

    Raises:
        ProblemError: what was given are not as many Axes.
    """
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    if axes is None:
        figure = Figure(figsize=(6.4, 0.7 + height * rows), dpi=DPI, layout="constrained")
        return figure, list(figure.subplots(rows, columns, sharex=sharex, squeeze=False, **options).flat)
    count = rows * columns
    flat = list(np.asarray(axes, dtype=object).flat)
    if not flat or not all(isinstance(one, Axes) for one in flat):
        fail("axes", f"be {count} Axes of matplotlib", f"is {axes!r}")
    if len(flat) != count:
        fail("axes", f"hold an Axes for each of the {count} panels", f"holds {len(flat)}")
    return flat[0].figure, flat


def draw_map(panel: "Axes", time: np.ndarray, z: np.ndarray, values: np.ndarray, quantity: str, kind: str) -> None:
    """Values over time and position, from 0 to their peak, with a bar of colours.

    Args:
        panel: where.
        time: shape (time,).
        z: shape (z,).
        values: not negative, shape (z, time).
        quantity: stands at the bar.
        kind: stands behind it in brackets: the unit, or "".
    """
    unit, power = short_numbers(values.max())
    top = values.max() / unit or 1.0  # a dark field has a scale, too
    image = panel.pcolormesh(time, z, values / unit, cmap=MAP, vmin=0.0, vmax=top, shading="gouraud", rasterized=True)
    panel.set_ylabel("position $z$")
    panel.spines[["top", "right"]].set_visible(True)
    bar = panel.figure.colorbar(image, ax=panel, pad=0.01, aspect=12)
    bar.set_label(in_brackets(quantity, power, kind))


def in_brackets(quantity: str, power: str, kind: str) -> str:
    """A label: the quantity, and in brackets its power of ten and unit."""
    inside = f"{power}{kind}".strip()
    return f"{quantity} ({inside})" if inside else quantity


def draw_in_and_out(panel: "Axes", x: np.ndarray, entering: np.ndarray, leaving: np.ndarray) -> None:
    """What enters and what leaves, over time or frequency, with a legend above."""
    for values, colour, dash, name in ((entering, BLUE, "-", "input"), (leaving, VERMILION, "--", "output")):
        panel.plot(x, values, dash, color=colour, label=name)
        panel.fill_between(x, values, color=colour, alpha=0.2, linewidth=0)
    panel.set_ylim(0, 1.25 * max(entering.max(), leaving.max()) or 1.0)
    panel.legend(frameon=False, loc="upper right", ncols=2, borderpad=0.1)


def name_lines(panel: "Axes", beside: bool) -> None:
    """A legend to the right of a panel, where it hides no line; or in it, where there may be no room."""
    place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if beside else {"loc": "best"}
    panel.legend(frameon=False, **place)


def label_last(panels: Sequence["Axes"], text: str, columns: int = 1) -> None:
    """Name the x axis below the last row."""
    for panel in panels[-columns:]:
        panel.set_xlabel(text)
