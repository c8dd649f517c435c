"""Draws the figure of docs/architecture.md.

Usage: python -m docs.architecture
"""

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

TARGET = Path(__file__).parent / "figures" / "architecture.png"
COLUMNS = {"PyTorch": ("#dbe9f6", 0.0), "bridge": ("#e8e8e8", 3.5), "JAX": ("#fbe5d0", 7.0)}
WIDTH, HEIGHT, DOWN = 2.9, 0.86, 1.15
BOXES = {  # column, row, what, where
    "layer": ("PyTorch", 0, "TorchPropagator", "torch_clerq/propagator.py"),
    "request": ("PyTorch", 1, "Request: checks, precision, resolution", "torch_clerq/functional.py"),
    "call": ("bridge", 2, "call → _Call (autograd.Function)", "torch_clerq/bridge/nodes.py"),
    "run": ("bridge", 3, "run → Executable (DLPack, jax.jit)", "torch_clerq/bridge/functions.py, exchange.py"),
    "prepare": ("JAX", 1, "prepare → Program, arrays", "jax_kernel/prepare.py, generator.py"),
    "program": ("JAX", 3, "run → coefficients_of", "jax_kernel/program.py"),
    "integrate": ("JAX", 4, "integrate: time loop, light along z", "jax_kernel/integrate.py, rhs.py, quadrature.py"),
    "adjoint": ("JAX", 5, "_integrate_bwd: the same loop backwards", "jax_kernel/integrate.py, rhs.py"),
    "vjp": ("bridge", 5, "vjp → Vjp, _Call.backward", "torch_clerq/bridge/functions.py, nodes.py"),
    "fields": ("PyTorch", 4, "fields (field, z, time)", "a tensor of the graph"),
    "grad": ("PyTorch", 5, "layer.interaction_strengths.grad", "a tensor"),
}
FORWARD = [("layer", "request"), ("request", "prepare"), ("request", "call"), ("call", "run"), ("run", "program"),
           ("program", "integrate"), ("integrate", "fields")]  # fmt: skip
BACKWARD = [("fields", "vjp"), ("vjp", "adjoint"), ("vjp", "grad")]


def corner(name: str) -> tuple[float, float]:
    column, row, *_ = BOXES[name]
    return COLUMNS[column][1], -row * DOWN


def arrow(axes, first: str, second: str, colour: str, style: str) -> None:
    (x, y), (u, v) = corner(first), corner(second)
    middle = HEIGHT / 2
    if x == u:
        start, end = (x + WIDTH / 2, y), (u + WIDTH / 2, v + HEIGHT)
    elif x < u:
        start, end = (x + WIDTH, y + middle), (u, v + middle)
    else:
        start, end = (x, y + middle), (u + WIDTH, v + middle)
    look = {"arrowstyle": style, "color": colour, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=look)


def draw() -> Figure:
    figure = Figure(figsize=(9.9, 6.4), layout="constrained")
    axes = figure.subplots()
    for title, (colour, x) in COLUMNS.items():
        axes.text(x + WIDTH / 2, 1.15, title, ha="center", fontsize=12, weight="bold")
        axes.axvspan(x - 0.12, x + WIDTH + 0.12, color=colour, alpha=0.35, lw=0)
    for column, row, what, where in BOXES.values():
        colour, x = COLUMNS[column]
        y = -row * DOWN
        look = {"boxstyle": "round,pad=0,rounding_size=0.08", "fc": colour, "ec": "0.3", "lw": 0.8}
        axes.add_patch(FancyBboxPatch((x, y), WIDTH, HEIGHT, **look))
        axes.text(x + WIDTH / 2, y + 0.56, what, ha="center", va="center", fontsize=8)
        axes.text(x + WIDTH / 2, y + 0.22, where, ha="center", va="center", fontsize=6.4, color="0.3")
    for pair in FORWARD:
        arrow(axes, *pair, "#0072b2", "-|>")
    for pair in BACKWARD:
        arrow(axes, *pair, "#d55e00", "<|-|>" if pair == ("vjp", "adjoint") else "-|>")
    axes.text(0, -5 * DOWN - 0.32, "blue: a call      orange: backward", fontsize=8)
    axes.set(xlim=(-0.15, 10.05), ylim=(-5 * DOWN - 0.5, 1.4))
    axes.axis("off")
    return figure


if __name__ == "__main__":
    draw().savefig(TARGET, dpi=150)
