"""Work–precision figures: what an error costs in time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_kernel.parameters import fail

from .panels import make, styled
from .reading import numbers
from .style import LINES, MARKERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def work_precision(results: Mapping[str, Mapping[str, tuple[Any, Any]]], *, axes: Any = None) -> "Figure":
    """Error against time of several methods, one panel a problem, both axes logarithmic.

    Args:
        results: per problem and method two sequences: times in seconds, and errors relative to the peak.
        axes: one Axes a problem, by default those of a new figure.

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ProblemError: there is nothing to draw, a number is not positive, or there are more than six methods.

    Example:
        >>> from torch_clerq.plotting import work_precision
        >>> figure = work_precision({"two-level": {"ours": ([2e-3, 1e-3], [1e-6, 1e-4]), "peer": ([1.0], [1e-3])}})
        >>> [(line.get_label(), line.get_xdata().tolist()) for line in figure.axes[0].lines]
        [('ours', [0.001, 0.002]), ('peer', [1.0])]
    """
    if not isinstance(results, Mapping) or not results or not all(isinstance(of, Mapping) for of in results.values()):
        fail("results", "be a dict by problem of dicts by method of (times, errors)", f"is {results!r}")
    methods = list(dict.fromkeys(method for of in results.values() for method in of))
    if len(methods) > len(LINES):
        fail("results", f"have at most {len(LINES)} methods to be told apart", f"has {len(methods)}")
    series = {
        (problem, method): _series(f"results[{problem!r}][{method!r}]", points)
        for problem, of in results.items()
        for method, points in of.items()
    }
    with styled():
        figure, panels = make(axes, 1, len(results), height=2.7, sharex=False)
        for panel, problem in zip(panels, results, strict=True):
            for style, marker, method in zip(LINES, MARKERS, methods, strict=False):
                if (problem, method) in series:
                    panel.plot(*series[problem, method], label=method, marker=marker, markersize=5, **style)
            panel.set(title=problem, xlabel="time (s)", xscale="log", yscale="log")
            panel.grid(alpha=0.3)
            panel.margins(0.1)
        panels[0].set_ylabel("error / peak")
        entries = {
            label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        if axes is None:
            figure.legend(
                entries.values(), entries.keys(), loc="outside lower center", ncols=min(len(entries), 4), frameon=False
            )
        else:
            panels[0].legend(entries.values(), entries.keys(), frameon=False)
    return figure


def _series(name: str, points: Any) -> tuple[np.ndarray, np.ndarray]:
    """Times, ascending, and their errors."""
    try:
        times, errors = points
    except (TypeError, ValueError):
        fail(name, "be two sequences, (times, errors)", f"is {points!r}")
    times = numbers(f"{name}[0]", times, ("point",))
    errors = numbers(f"{name}[1]", errors, (len(times),))
    for values in (times, errors):
        if values.dtype.kind == "c" or not (values > 0).all():
            fail(name, "have positive numbers, since the axes are logarithmic", f"has {values.min()}")
    order = np.argsort(times)
    return times[order], errors[order]
