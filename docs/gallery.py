"""Solves and draws the figures of docs/figures.md.

Usage: python -m docs.gallery [name …]
"""

import io
import math
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from matplotlib.figure import Figure
from PIL import Image

from jax_kernel.atoms import rubidium87
from torch_clerq import Driven, Fit, Problem, Solution, TorchPropagator, controls, fit, objectives, plotting, spectra
from torch_clerq.plotting.panels import styled
from torch_clerq.plotting.style import BLACK

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "figures" / "gallery"


def solve(problem: Problem, *outputs: str, fields=None, tol: float = 1e-4) -> Solution:
    layer = TorchPropagator(problem, dtype=torch.float64, tol=tol)
    with torch.no_grad():
        return layer.solve(fields, outputs=outputs)


def benchmark(name: str) -> Problem:
    return Problem.from_json(ROOT / "benchmarks" / "problems" / f"bench_{name}.json")


def stacked(*heights: float):
    """A figure of panels above one another, and its Axes."""
    with styled():
        figure = Figure(figsize=(6.4, 0.4 + sum(heights)), layout="constrained")
        return figure, figure.subplots(len(heights), 1, height_ratios=heights)


def two_level() -> Figure:
    """A 2π pulse in a two-level medium that decays slowly, and what enters and leaves."""
    solution = solve(benchmark("two_level"))
    figure, (top, bottom) = stacked(1.7, 1.7)
    plotting.zt_map(solution, ["2π pulse"], axes=top)
    plotting.envelopes(solution, ["at the two ends"], axes=bottom)
    top.set_xlabel("")
    return figure


def eit() -> Figure:
    """Slow light: the control opens a window of transparency, in which the probe is delayed."""
    return plotting.zt_map(solve(benchmark("lam")), ["probe", "control"])


def eit_spectra() -> Figure:
    """The same probe over frequency: the window of transparency and its steep dispersion."""
    solution = solve(benchmark("lam"))
    probe = Solution(fields=solution.fields[:1], z=solution.z, time=solution.time)
    return plotting.spectra(probe, ["probe"], floor=0.05)


def hyperfine() -> Figure:
    """A thermal Λ of the sublevels of 87Rb: what the probe leaves in the other ground level."""
    classes = {"thermal_width": 1.0, "thermal_delta_min": -3.5, "thermal_delta_max": 3.5,
               "thermal_delta_spacing": "auto"}  # fmt: skip
    content = benchmark("rb87").to_dict() | {"velocity_classes": classes}
    content["system"]["level_doppler_slopes"] = [0.0] * 8 + [-1.0] * 3
    problem = Problem.from_dict(content)
    solution = solve(problem, "populations")
    figure, panels = stacked(1.5, 1.5, 1.5, 1.5)
    plotting.zt_map(solution, ["probe, F = 1 to F' = 1", "control, F = 2 to F' = 1"], axes=panels[:2])
    groups = {"atoms in F = 2": [3, 4, 5, 6, 7], "atoms in F' = 1": [8, 9, 10]}
    plotting.populations(solution, list(groups), levels=list(groups.values()), axes=panels[2:])
    for panel in panels[:3]:
        panel.set_xlabel("")
    return figure


def soliton() -> Figure:
    """Self-induced transparency: the 2π pulse is slower than light, and keeps its shape and area."""
    width, delay = 0.25, 5.0
    pulse = {"rabi_freq": 1.0, "rabi_freq_t_func": "sech",
             "rabi_freq_t_args": {"n_pi": 2.0, "centre": 0.0, "width": width}}  # fmt: skip
    problem = Problem.from_dict({
        "system": {"num_states": 2, "fields": [{"label": "2π sech", "coupled_levels": [[0, 1]]} | pulse]},
        "interaction_strengths": [delay / (2 * math.pi * width)],
        "t_min": -3.0, "t_max": 4.0, "t_steps": 350, "z_steps": 60,
    })  # fmt: skip
    solution = solve(problem, "populations")
    figure, panels = stacked(1.4, 1.4, 1.3, 1.3)
    plotting.zt_map(solution, ["2π pulse"], axes=panels[0])
    plotting.zt_map(solution, ["the same in the laboratory"], frame="lab", speed_of_light=0.5, axes=panels[1])
    plotting.populations(solution, ["ground", "excited"], z=0.5, axes=panels[2])
    plotting.pulse_area(solution, ["its area"], axes=panels[3])
    return figure


@cache
def memory() -> tuple[Driven, float, Fit]:
    """Pulses of a memory, trained as in docs/training.md but by Adam: the module, when retrieval begins, the fit."""
    problem = Problem.from_dict({
        "system": {"num_states": 3, "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
                   "fields": [{"label": "probe", "coupled_levels": [[0, 1]]},
                              {"label": "control", "coupled_levels": [[2, 1]]}]},
        "interaction_strengths": [6.0, 6.0], "t_min": -1.0, "t_max": 12.5, "t_steps": 270, "z_steps": 40,
    })  # fmt: skip
    layer = TorchPropagator(problem, dtype=torch.float64, tol=1e-3)
    time = layer.time
    probe = controls.GaussianBasis(time, 10, (1.0, 5.0), coefficients=torch.ones(10))
    control = controls.Bounded(controls.GaussianBasis(time, 16, (1.0, 11.0)), 0.0, 3.0)
    fields = controls.Fields({
        "probe": controls.UnitEnergy(controls.Gated(probe, controls.gate(time, off=5.5, rise=0.3)), time, 1e-6),
        "control": controls.Gated(control, controls.gate(time, on=(0.3, 6.5), off=(5.5, 11.0), rise=0.3)),
    })  # fmt: skip
    driven, after = Driven(fields, layer), 6.0

    def loss(driven):
        return -objectives.log_retrieval_efficiency(driven(), time, after=after)

    found = fit(driven, loss, steps=80, optimizer="adam", learning_rate=0.3, scheduler="cosine", progress=False)
    return driven, after, found


def storage() -> Figure:
    """A quantum memory: both fields, and the coherence of the two lower levels that stores the light meanwhile."""
    driven, _, _ = memory()
    layer = driven.propagator
    with torch.no_grad():
        solution = layer.solve(driven.controls(), outputs=("density_matrix",))
    figure, panels = stacked(1.5, 1.5, 1.5)
    plotting.zt_map(solution, problem=layer.problem, axes=panels[:2])
    plotting.coherences(solution, ["spin wave"], pairs=[(0, 2)], axes=panels[2])
    for panel in panels[:2]:
        panel.set_xlabel("")
    return figure


def design() -> Figure:
    """Its probe, before and after."""
    driven, after, found = memory()
    layer = driven.propagator
    with torch.no_grad():
        fields = driven()
    inputs = {field.label: fields[k, 0] for k, field in enumerate(layer.problem.fields)}
    title = f"{100 * math.exp(-found.value):.1f} % retrieved"
    return plotting.design_figure(layer.time, inputs, fields[0, -1], stored="probe", after=after, title=title)


def training() -> Figure:
    """How its pulses were found."""
    return plotting.training_history(memory()[2])


def rubidium() -> Figure:
    """A weak, short pulse in a thermal vapour on the D2 line of 87Rb, and the sum of three Voigt lines."""
    line = rubidium87.d2.select(lower_F=[2])
    width, strength = line.thermal_width(300.0), line.interaction_strength(3e10)
    probe = {"label": "probe", "transition": (2, 3), "polarisation": "sigma+", "detuning": 0.0, "rabi_freq": 1e-2,
             "rabi_freq_t_func": "gaussian",
             "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 6e-4}}  # fmt: skip
    system = line.system([probe], initial_state=line.populations(F=2))
    problem = Problem.from_dict({
        "system": system, "interaction_strengths": [strength],
        "velocity_classes": {"thermal_width": width, "thermal_delta_min": -3 * width, "thermal_delta_max": 3 * width,
                             "thermal_delta_steps": 60},
        "z_max": 2.0, "num_density_z_args": {"on": 0.0, "off": 2.0, "ampl": 1.0}, "z_steps": 20,
        "t_min": -2e-3, "t_max": 1.8e-2, "t_steps": 400,
    })  # fmt: skip
    solution = solve(problem)
    figure = plotting.spectra(solution, ["1 µW"], floor=1e-2)
    frequency = spectra.freq_list(solution.time)
    field, populations = problem.fields[0], problem.initial_state
    known = sum(
        populations[a] * f**2 * spectra.voigt_two_linear_known(frequency - problem.energies[b], line.linewidth, width)
        for (a, b), f in zip(field.coupled_levels, field.factors, strict=True)
    )
    known = strength * 2.0 * known
    left, right = figure.axes
    limits = right.get_xlim()
    with styled():
        for values, label in ((known.imag, "Voigt"), (known.real, None)):
            right.plot(frequency, values, "o", color=BLACK, markersize=3, fillstyle="none", markevery=2, label=label)
        right.set_xlim(limits)
        right.legend(frameon=False)
        left.set_title("weak pulse, 300 K", loc="left")
    for panel in (left, right):
        panel.set_xlabel("frequency from F = 2 to F' = 3 (MHz)")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    made.__name__: made
    for made in (two_level, eit, eit_spectra, hyperfine, soliton, storage, design, training, rubidium)
}


def main(names: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or FIGURES:
        page = io.BytesIO()
        FIGURES[name]().savefig(page, dpi=130)
        Image.open(page).convert("RGB").quantize(256).save(FOLDER / f"{name}.png", optimize=True)  # half the bytes


if __name__ == "__main__":
    main(sys.argv[1:])
