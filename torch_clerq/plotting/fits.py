"""Figures of a training, its value over the steps, and of a fit to measured values."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_kernel.parameters import fail

from ..loop import History
from ..measured import SPECTRA, Measured
from ..training import Fit
from .panels import label_last, make, styled
from .reading import numbers
from .style import BLACK, BLUE, GREEN, GREY, TIME, VERMILION

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def training_history(fit: Fit | History, *, axes: Any = None) -> "Figure":
    """The value of the objective over the steps of a fit, the best so far, and the learning rate where it changes.

    Of a `Fit` also its best value, that value at twice the resolution, and what the guard saw diverge. The scale is
    logarithmic where the values are positive and span a decade.

    Args:
        fit: what `torch_clerq.fit` returned, or its history.
        axes: an Axes for the value, and if the learning rate is to be drawn another one; by default a new figure's.

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ProblemError: there are no steps, or not what is needed to draw them.

    Example:
        >>> from torch_clerq.loop import History
        >>> from torch_clerq.plotting import training_history
        >>> figure = training_history(History(values=[3.0, 1.0, 2.0], learning_rates=[0.1, 0.1, 0.1]))
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['value', 'best so far']
        >>> figure.axes[0].lines[1].get_ydata().tolist()
        [3.0, 1.0, 1.0]
    """
    if not isinstance(fit, Fit | History):
        fail("fit", "be a Fit, as `torch_clerq.fit` returns one, or its history", f"is {type(fit).__name__}")
    history = fit if isinstance(fit, History) else fit.history
    values = numbers("history.values", history.values, ("step",))
    rates = numbers("history.learning_rates", history.learning_rates, (len(values),))
    if not len(values):
        fail("fit", "have a step", "has none")
    steps = np.arange(len(values))
    changes = bool(np.ptp(rates) > 0)
    with styled():
        from matplotlib.ticker import MaxNLocator

        rows = 2 if changes and (axes is None or np.size(np.asarray(axes, dtype=object)) > 1) else 1
        ratios = [2.5, 1.0][:rows]
        figure, panels = make(axes, rows, height=2.6 if rows == 1 else 1.8, height_ratios=ratios)
        top = panels[0]
        top.plot(steps, values, color=BLUE, linewidth=1.0, label="value")
        top.plot(
            steps, np.minimum.accumulate(values), "--", color=VERMILION, drawstyle="steps-post", label="best so far"
        )
        marked = [values.min()]
        if isinstance(fit, Fit):
            top.plot(fit.step, fit.value, "o", color=VERMILION, label=f"best, {fit.value:.4g}")
            marked.append(fit.value)
            if fit.verified is not None:
                label = f"at twice the resolution, {fit.verified:.4g}"
                top.plot(fit.step, fit.verified, "x", color=BLACK, markersize=8, label=label)
                marked.append(fit.verified)
            reason = "" if fit.stopped == "steps" else f", stopped by {fit.stopped}"
            title = f"{len(values)} steps{reason}" if fit.diverging is None else f"diverging: {fit.diverging}"
            top.set_title(title, loc="left", wrap=True)
        if min(marked) > 0 and values.max() > 10 * min(marked):
            top.set_yscale("log")
        top.set_ylabel("value of the objective")
        top.legend(frameon=False, loc="best")
        if rows == 2:
            panels[1].plot(steps, rates, color=GREEN, drawstyle="steps-post")
            panels[1].set_ylabel("learning rate")
            panels[1].set_ylim(bottom=0)
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        label_last(panels, "updates of the parameters")
    return figure


def measured(data: Sequence[Measured], models: Sequence[Any], *, axes: Any = None) -> "Figure":
    """Measured values with the model through them, and beside them what it leaves over, one row a column of data.

    Args:
        data: what was measured, as `torch_clerq.measured.read_csv` returns it.
        models: what should have been measured, as `Medium.models` returns it, each of shape (point,).
        axes: two Axes a column of data, by default those of a new figure.

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ProblemError: models and data do not belong together.

    Example:
        >>> import torch
        >>> from torch_clerq.measured import Measured
        >>> from torch_clerq.plotting import measured
        >>> time, trace = torch.linspace(0.0, 1.0, 5), torch.ones(5)
        >>> figure = measured([Measured("probe.power", 0, "power", time, trace)], [1.1 * trace])
        >>> figure.axes[1].lines[1].get_ydata().round(3)
        array([-0.1, -0.1, -0.1, -0.1, -0.1], dtype=float32)
    """
    if len(data) != len(models) or not data:
        fail("models", f"be one a column of data ({len(data)})", f"are {len(models)}")
    with styled():
        options = {"width_ratios": [2.0, 1.0]}
        figure, panels = make(axes, len(data), 2, height=1.7, sharex=False, **options)
        for column, model, left, right in zip(data, models, panels[::2], panels[1::2], strict=True):
            at, values = numbers("data.at", column.at), numbers("data.values", column.values)
            line = numbers("models", model, (len(values),))
            sigma = 1.0 if column.sigma is None else numbers("data.sigma", column.sigma, (len(values),))
            order = np.argsort(at)
            left.plot(at, values, "o", color=GREY, markersize=2.5, alpha=0.7, label="measured")
            left.plot(at[order], line[order], "-", color=VERMILION, label="model")
            left.set_ylabel(column.name)
            left.legend(frameon=False, loc="best")
            right.axhline(0.0, color=BLACK, linewidth=0.8)
            right.plot(at, (values - line) / sigma, "o", color=BLUE, markersize=2.0)
            right.set_ylabel("measured − model" if column.sigma is None else r"(measured − model) / $\sigma$")
            spectral = column.quantity in SPECTRA
            left.set_xlabel(r"frequency $\nu$ (cyclic)" if spectral else TIME)
            right.set_xlabel(r"$\nu$" if spectral else "$t$")
    return figure
