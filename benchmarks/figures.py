"""The figures of benchmarks/README.md, from stored results."""

from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from torch_clerq import plotting
from torch_clerq.plotting.style import LINES, MARKERS

FOLDER = Path(__file__).parent / "figures"
STYLES = [line | {"marker": marker} for line, marker in zip(LINES, MARKERS, strict=True)]
LOOK = {
    "font.size": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 8,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.dpi": 200,
}


def panels(count: int, width: float = 2.5, height: float = 2.8, columns: int = 3):
    """Panels in rows, as wide together as a printed page."""
    rows, columns = -(-count // columns), min(count, columns)
    size = (max(width * columns, 4.5), height * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    return figure, axes.flat[:count]


def plain(x: float) -> str:
    """A number as one would write it."""
    return f"{x:,.0f}" if x >= 1 else f"{x:g}" if x > 0.005 else f"{x:.0e}".replace("e-0", "e-")


def plain_ticks(axis) -> None:
    """Numbers without exponents on a logarithmic axis: decades, or 1, 2, 5 where there are few of them."""
    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 1.4 else (1.0,)))
    axis.set_major_formatter(lambda x, _: plain(x))
    axis.set_minor_formatter(NullFormatter())


def labelled(axis, title: str, x: str, y: str) -> None:
    """Both axes logarithmic, with their names."""
    axis.set(title=title, xlabel=x, ylabel=y, xscale="log", yscale="log")
    axis.margins(0.08)
    axis.autoscale_view()
    plain_ticks(axis.xaxis)
    plain_ticks(axis.yaxis)


def legend_below(figure, axes, columns: int) -> None:
    """One legend for all panels, so that it hides no data."""
    entries = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False)


def work_precision(results: dict):
    """Error against time, one panel a problem."""

    def series(points):
        return [point["time"]["median"] for point in points], [point["error"] for point in points]

    return plotting.work_precision(
        {problem: {name: series(points) for name, points in of["series"].items()} for problem, of in results.items()}
    )


def gradient_cost(results: dict):
    """Time of a gradient against the number of parameters."""
    figure, axes = panels(len(results))
    for axis, (problem, of) in zip(axes, results.items(), strict=True):
        rows, peer = of["kernel"], {name: t["median"] for name, t in of["clerq"]["times"].items()}
        numbers = [row["N"] for row in rows]
        forward = [row["times"]["forward"]["median"] for row in rows]
        lines = {
            "reverse mode": [row["times"]["reverse"]["median"] for row in rows],
            "forward mode": [row["times"]["forward mode"]["median"] for row in rows],
            "central differences": [2 * n * t for n, t in zip(numbers, forward, strict=True)],
            "clerq.autodiff, reverse mode": [peer["reverse"]] * len(numbers),
            "clerq.autodiff, central differences": [2 * n * peer["forward"] for n in numbers],
            "clerq solve(), central differences": [2 * n * peer.get("solve", np.nan) for n in numbers],
        }
        for style, (name, times) in zip(STYLES, lines.items(), strict=True):
            axis.plot(numbers, times, label=name, **style)
        labelled(axis, problem, "parameters", "gradient (s)")
    legend_below(figure, axes, 2)
    return figure


def scaling(results: dict):
    """Time against each size, forward and gradient, with lines of exponent 1."""
    figure, axes = panels(len(results), height=2.5)
    for axis, (what, of) in zip(axes, results.items(), strict=True):
        sizes = [row["nonzeros" if what == "levels" else "size"] for row in of["rows"]]
        for style, name in zip(STYLES, ("forward", "gradient"), strict=False):
            times = [1e3 * row["times"][name]["median"] for row in of["rows"]]
            axis.plot(sizes, times, label=name, **style)
            if name == "gradient":
                line = [times[-1] * size / sizes[-1] for size in sizes]
                axis.plot(sizes, line, color="0.6", linewidth=1, label="linear", zorder=0)
        label = "nonzeros of the generator" if what == "levels" else what.replace("_", " ")
        exponents = of["exponents"]
        title = f"exponents {exponents['forward']:.2f}, {exponents['gradient']:.2f}"
        labelled(axis, title, label, "time (ms)")
    legend_below(figure, axes, 3)
    return figure


def memory(results: dict):
    """Temporary memory of a gradient by memory setting, one group a problem."""
    figure, (axis,) = panels(1, width=7.0, height=1.1 + 0.55 * len(results))
    names = list(dict.fromkeys(name for of in results.values() for name in of["bytes"]))
    shown = {name: STYLES[k] for k, name in enumerate(names)}
    for row, of in enumerate(results.values()):
        for k, name in enumerate(names):
            if name in of["bytes"]:
                style = {"marker": shown[name]["marker"], "color": shown[name]["color"], "linestyle": "none"}
                offset = (k - (len(names) - 1) / 2) * 0.12
                axis.plot(of["bytes"][name] / 2**20, row + offset, label=name, **style)
    axis.set(
        xscale="log", xlabel="temporary memory of a gradient (MiB)", yticks=range(len(results)), yticklabels=results
    )
    axis.set_ylim(len(results) - 0.4, -0.6)
    axis.margins(x=0.08)
    axis.autoscale_view(scaley=False)
    plain_ticks(axis.xaxis)
    entries = dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=len(entries), frameon=False)
    return figure


def equal_cost(results: dict):
    """What is missing to the limit against cost: the median of the seeds of each method, and between which all lie."""
    of = results["of"]
    figure, (axis,) = panels(1, width=6.4, height=3.4)
    budget = max(run["spent"] for runs in of["runs"].values() for run in runs)
    costs = np.geomspace(3, budget, 200)
    for style, (name, runs) in zip(STYLES, of["runs"].items(), strict=False):
        missing = []
        for run in runs:
            spent, best = np.array(run["curve"]).T
            at = np.searchsorted(spent, costs, side="right") - 1
            missing.append(np.where(at >= 0, 1 - best[at.clip(0)] / of["limit"], 1.0))
        axis.plot(costs, np.median(missing, axis=0), label=name, markevery=25, **style)
        axis.fill_between(costs, np.min(missing, axis=0), np.max(missing, axis=0), color=style["color"], alpha=0.15)
    labelled(axis, "", "cost (forward evaluations)", "missing to the physical limit")
    axis.set_xlim(3, budget)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


FIGURES: dict[str, tuple[Callable, str]] = {
    "equal_cost": (
        equal_cost,
        "What the best design lacks to the limit, against cost: median and range of three seeds.",
    ),
    "work_precision": (work_precision, "Error against time of a forward run."),
    "gradient_cost": (gradient_cost, "Time of a gradient against the number of parameters."),
    "scaling": (scaling, "Growth of the time; the grey line is linear, its position that of the largest gradient."),
    "memory": (memory, "Temporary memory of one compiled gradient."),
}


def draw(name: str, results: dict) -> str | None:
    """Draw the figure of a script, if it has one; Markdown that shows it."""
    if name not in FIGURES:
        return None
    make, caption = FIGURES[name]
    FOLDER.mkdir(exist_ok=True)
    with plt.rc_context(LOOK):
        figure = make(results)
        figure.savefig(FOLDER / f"{name}.png")
        plt.close(figure)
    return f"![{caption}](figures/{name}.png)\n\n*{caption}*"
