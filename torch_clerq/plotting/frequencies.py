"""Figures over frequency: spectra at both ends, absorption and dispersion."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from jax_kernel.problem import Problem
from jax_kernel.solution import Solution

from ..checks import check_positive
from ..spectra import FLOOR, absorption, dispersion, freq_list, in_band, spectrum
from .panels import draw_in_and_out, label_last, make, styled
from .reading import read_light
from .style import GREY, LINES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LEAST = 0.01
"""Absorption and phase that the axis always reaches to."""


def spectra(
    solution: Solution,
    labels: Sequence[str] = (),
    *,
    problem: Problem | None = None,
    floor: float = FLOOR,
    axes: Any = None,
) -> "Figure":
    """The spectrum of each field as it enters and leaves, and beside it what the medium did: absorption, dispersion.

    Absorption is −ln|Ω_out/Ω_in|, of amplitude, and dispersion the phase gained in e^{−iωt}; see `torch_clerq.spectra`.
    Both are drawn where enough light enters to say something.

    Args:
        solution: of one problem: fields of shape (field, z, time), cyclic, on a uniform grid of time.
        labels: a name per field, by default those of the problem, or "field 0", "field 1", ….
        problem: what was solved, for the labels, and since counter-propagating fields enter at the last position.
        floor: part of the entering spectrum's peak below which too little light enters.
        axes: two Axes a field, one for the spectra and one for absorption and dispersion, by default a new figure's.

    Returns:
        A matplotlib Figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ProblemError: an argument breaks a rule, such as fields with batch axes.

    Example:
        >>> import torch
        >>> from torch_clerq import Solution
        >>> from torch_clerq.plotting import spectra
        >>> pulse = torch.exp(-(torch.linspace(-4.0, 4.0, 33) ** 2))
        >>> fields = torch.stack([pulse, pulse * torch.exp(torch.tensor(-2.0))])[None]
        >>> figure = spectra(Solution(fields=fields, z=torch.tensor([0.0, 1.0]), time=torch.linspace(-4.0, 4.0, 33)))
        >>> line = figure.axes[1].lines[0]
        >>> line.get_label(), float(line.get_ydata().mean().round(3))
        ('absorption', 2.0)
    """
    light = read_light(solution, labels, problem)
    floor = check_positive("floor", floor)
    frequency = freq_list(torch.as_tensor(light.time)).numpy()
    with styled():
        figure, panels = make(axes, len(light.fields), 2, height=2.1, sharex="row")
        for k, (field, name, (entrance, _)) in enumerate(zip(light.fields, light.names, light.ends, strict=True)):
            left, right = panels[2 * k : 2 * k + 2]
            along = torch.as_tensor(field if entrance == 0 else field[::-1].copy())
            band = in_band(along, floor=floor).numpy()
            shown = frequency[band] if band.any() else frequency
            entering, leaving = (spectrum(along[end]).abs().numpy() for end in (0, -1))
            peak = entering.max() or 1.0
            draw_in_and_out(left, frequency, entering / peak, leaving / peak)
            left.set_ylabel("spectrum / input peak")
            left.set_title(name, loc="left")
            if len(shown) > 1:
                left.set_xlim(shown[0], shown[-1])
            lines = {"absorption": absorption, "dispersion": dispersion}
            for style, (what, function) in zip(LINES, lines.items(), strict=False):
                right.plot(frequency[band], function(along, floor=floor).numpy()[band], label=what, **style)
            right.axhline(0, color=GREY, linewidth=0.8, zorder=0)
            low, high = right.get_ylim()
            right.set_ylim(min(low, -LEAST), max(high, LEAST))  # what is less is the error of a solution
            right.set_ylabel("absorption, dispersion (rad)")
            right.set_title("what the medium does" if band.any() else "no light enters", loc="left")
            right.legend(frameon=False, loc="best")
        label_last(panels, r"frequency $\nu$ from the carrier (cyclic)", 2)
    return figure
