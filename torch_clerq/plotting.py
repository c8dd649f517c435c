"""Figures, returned and never shown. matplotlib is an optional extra: `pip install 'torch_clerq[plot]'`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jax.typing import ArrayLike

from jax_kernel.solution import Solution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#666666"
"""Colours of Okabe and Ito, which colour-blind readers tell apart."""

DPI = 150

STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "axes.titlesize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.6,
}


def _array(values: Any) -> np.ndarray:
    return values.detach().cpu().resolve_conj().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


def _unit(peak: float) -> tuple[float, str]:
    """A power of ten that makes the numbers at an axis short, and how its label says so."""
    exponent = int(np.floor(np.log10(peak))) if peak > 0 else 0
    return (1.0, "") if -2 < exponent < 3 else (10.0**exponent, rf"$10^{{{exponent}}}$ ")


def zt_map(solution: Solution, labels: Sequence[str] = ()) -> "Figure":
    """|Ω| over retarded time and position, one panel a field.

    Args:
        solution: of one problem: fields of shape (field, z, time), cyclic.
        labels: a name per field, by default "field 0", "field 1", ….

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.

    Example:
        >>> import torch
        >>> from torch_clerq import Solution
        >>> figure = zt_map(Solution(fields=torch.rand(2, 5, 9), z=torch.linspace(0, 1, 5), time=torch.arange(9.0)))
        >>> [axes.get_title(loc="left") for axes in figure.axes[:2]]
        ['field 0', 'field 1']
    """
    import matplotlib
    from matplotlib.figure import Figure

    fields = np.abs(_array(solution.fields))
    names = [label or f"field {k}" for k, label in enumerate([*labels, *[""] * len(fields)][: len(fields)])]
    time, z = _array(solution.time), _array(solution.z)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.7 + 1.5 * len(fields)), dpi=DPI, layout="constrained")
        panels = figure.subplots(len(fields), 1, sharex=True, squeeze=False)[:, 0]
        for panel, light, name in zip(panels, fields, names, strict=True):
            unit, power = _unit(light.max())
            top = light.max() / unit or 1.0  # a dark field has a scale, too
            image = panel.pcolormesh(
                time,
                z,
                light / unit,
                cmap="magma_r",
                vmin=0.0,
                vmax=top,
                shading="gouraud",
                rasterized=True,
            )
            panel.set_title(name, loc="left")
            panel.set_ylabel("position $z$")
            panel.spines[["top", "right"]].set_visible(True)
            bar = figure.colorbar(image, ax=panel, pad=0.01, aspect=12)
            bar.set_label(rf"$|\Omega|$ ({power}cyclic)")
        panels[-1].set_xlabel("retarded time $t$")
    return figure


def design_figure(
    time: ArrayLike,
    inputs: Mapping[str, ArrayLike],
    output: ArrayLike,
    *,
    stored: str,
    after: float | None = None,
    title: str = "",
) -> "Figure":
    """Input and output of the stored field, and below them the other fields.

    Args:
        time: shape (time,).
        inputs: complex or real envelope at the entrance by label, cyclic, each of shape (time,).
        output: complex or real envelope of the stored field at the exit, cyclic, shape (time,).
        stored: label of the stored field.
        after: when retrieval begins.
        title: stands above.

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.

    Example:
        >>> import numpy as np
        >>> t = np.linspace(0.0, 3.0, 31)
        >>> figure = design_figure(t, {"probe": np.exp(-t), "control": t}, 0.5 * np.exp(-t), stored="probe", after=1.0)
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['probe $|\\\\Omega|^2$ / input peak', 'control $|\\\\Omega|$ (cyclic)']
    """
    import matplotlib
    from matplotlib.figure import Figure

    time = _array(time)
    entering, leaving = np.abs(_array(inputs[stored])) ** 2, np.abs(_array(output)) ** 2
    peak = entering.max() or 1.0
    others = {label: np.abs(_array(light)) for label, light in inputs.items() if label != stored}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 2.3 + 1.3 * len(others)), dpi=DPI, layout="constrained")
        ratios = [2.0] + [1.2] * len(others)
        top, *rest = figure.subplots(1 + len(others), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
        for light, colour, style, name in ((entering, BLUE, "-", "input"), (leaving, VERMILION, "--", "output")):
            top.plot(time, light / peak, style, color=colour, label=name)
            top.fill_between(time, light / peak, color=colour, alpha=0.2, linewidth=0)
        top.set_ylabel(rf"{stored} $|\Omega|^2$ / input peak")
        top.set_title(title, loc="left", wrap=True)
        top.legend(frameon=False, loc="upper right")
        for panel, (label, light) in zip(rest, others.items(), strict=True):
            panel.plot(time, light, color="black")
            panel.fill_between(time, light, color="black", alpha=0.1, linewidth=0)
            panel.set_ylabel(rf"{label} $|\Omega|$ (cyclic)")
        for panel in (top, *rest):
            panel.set_ylim(bottom=0)
            if after is not None:
                panel.axvline(after, color=GREY, linewidth=0.8, linestyle=":")
        if after is not None:
            top.annotate("retrieval counted from here", (after, 1), (4, -2), xycoords=("data", "axes fraction"),
                         textcoords="offset points", va="top", fontsize=8, color=GREY)  # fmt: skip
        last = rest[-1] if rest else top
        last.set_xlabel("retarded time $t$")
        last.set_xlim(time[0], time[-1])
    return figure
