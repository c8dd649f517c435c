"""How figures look: colours, dashes, letters, and short numbers at axes."""

from typing import Any

import numpy as np

BLUE, VERMILION, GREEN, PURPLE, ORANGE, BLACK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000"
"""Colours of Okabe and Ito, https://jfly.uni-koeln.de/color, which colour-blind readers tell apart."""

GREY = "#666666"
"""Of what is no data: lines to read by."""

LINES: tuple[dict[str, Any], ...] = (
    {"color": BLUE, "linestyle": "-"},
    {"color": VERMILION, "linestyle": "--"},
    {"color": GREEN, "linestyle": "-."},
    {"color": PURPLE, "linestyle": ":"},
    {"color": BLACK, "linestyle": (0, (5, 1, 1, 1, 1, 1))},
    {"color": ORANGE, "linestyle": (0, (1, 2))},
)
"""Of lines in one panel: told apart by colour or, in print, by dashes."""

MARKERS = ("o", "s", "^", "D", "v", "P")
"""Beside `LINES`, where there are few points."""

MAP = "magma_r"
"""A perceptually uniform colour map, and light where there is nothing."""

DPI = 150

STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "axes.titlesize": 9.0,
    "legend.fontsize": 8.0,
    "legend.handlelength": 2.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.6,
}

TIME = "retarded time $t$ (problem's unit)"
LABORATORY_TIME = "laboratory time $t + z/c$ (problem's unit)"
POSITION = "position $z$ (problem's unit)"


def short_numbers(peak: float) -> tuple[float, str]:
    """A power of ten that makes the numbers at an axis short, and how its label says so."""
    exponent = int(np.floor(np.log10(peak) + 1e-6)) if peak > 0 else 0  # 1e-3 in float32 is a little less
    return (1.0, "") if -2 < exponent < 3 else (10.0**exponent, rf"$10^{{{exponent}}}$ ")
