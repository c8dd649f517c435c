"""Figures: what is drawn is the data, where and in what units; what cannot be drawn is refused in one sentence."""

import copy
import dataclasses
import io
import math
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tests.conftest import ROOT, lambda_system, two_level
from tests.test_import_isolation import python
from torch_clerq import Fit, ProblemError, Solution, analysis, plotting, spectra
from torch_clerq.loop import History
from torch_clerq.measured import Measured

matplotlib = pytest.importorskip("matplotlib")

from matplotlib.collections import QuadMesh  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from torch_clerq.plotting.style import LINES, MAP, MARKERS  # noqa: E402

Z, TIME = torch.linspace(0, 1, 4, dtype=torch.float64), torch.linspace(-3, 5, 33, dtype=torch.float64)
NOISE = np.random.default_rng(0)
PULSE = torch.exp(-(TIME**2))


def random(*shape):
    return torch.as_tensor(NOISE.normal(size=shape) + 1j * NOISE.normal(size=shape))


def damped(exponent=2.0):
    """Two fields that lose e^{-exponent z} of their amplitude and turn by half as many radians."""
    along = torch.exp(-(exponent + 0.5j * exponent) * Z)
    return torch.stack([along[:, None] * PULSE, 1e-3 * along[:, None] * PULSE])


def states(levels=3):
    matrix = random(len(Z), len(TIME), levels, levels)
    matrix = matrix @ matrix.mH
    return matrix / matrix.diagonal(dim1=-2, dim2=-1).sum(-1).real[..., None, None]


@pytest.fixture
def solution():
    matrix = states()
    return Solution(
        fields=damped(), z=Z, time=TIME, density_matrix=matrix, coherences=random(2, len(Z), len(TIME)),
        populations=matrix.diagonal(dim1=-2, dim2=-1).real,
    )  # fmt: skip


FIT = Fit(
    value=0.5, step=4, history=History(values=[30.0, 2.0, 3.0, 1.0], learning_rates=[0.1, 0.1, 0.05, 0.05]),
    evaluations=5, seconds=1.0, stopped="patience", verified=0.6, diverging=None,
)  # fmt: skip
RESULTS = {"Λ": {"ours": ([2e-3, 1e-3], [1e-6, 1e-4]), "peer": ([1.0], [1e-3])}, "two-level": {"peer": ([2.0], [0.1])}}
DRAW = {  # of each function a call, and how many panels it has
    "zt_map": (lambda s, **o: plotting.zt_map(s, **o), 2),
    "zt_map in the laboratory": (lambda s, **o: plotting.zt_map(s, frame="lab", speed_of_light=0.5, **o), 2),
    "envelopes": (lambda s, **o: plotting.envelopes(s, **o), 2),
    "pulse_area": (lambda s, **o: plotting.pulse_area(s, **o), 2),
    "spectra": (lambda s, **o: plotting.spectra(s, **o), 4),
    "maps of populations": (lambda s, **o: plotting.populations(s, **o), 3),
    "populations": (lambda s, **o: plotting.populations(s, z=[0.0, 1.0], **o), 2),
    "maps of coherences": (lambda s, **o: plotting.coherences(s, **o), 2),
    "coherences": (lambda s, **o: plotting.coherences(s, pairs=[(0, 2)], z=[0.0, 1.0], **o), 1),
    "training_history": (lambda s, **o: plotting.training_history(FIT, **o), 2),
    "work_precision": (lambda s, **o: plotting.work_precision(RESULTS, **o), 2),
    "design_figure": (
        lambda s, **o: plotting.design_figure(
            s.time,
            {"probe": s.fields[0, 0], "control": s.fields[1, 0]},
            s.fields[0, -1],
            stored="probe",
            after=1.0,
            **o,
        ),
        2,
    ),
}


def panels(figure):
    """The Axes of a figure without those of colour bars."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def maps(figure):
    """The values of each map, in the unit of its bar of colours."""
    meshes = [mesh for axes in panels(figure) for mesh in axes.collections if isinstance(mesh, QuadMesh)]
    return [np.asarray(mesh.get_array()) for mesh in meshes]


def lines(axes):
    return {line.get_label(): np.asarray(line.get_ydata()) for line in axes.lines}


def titles(figure):
    return [axes.get_title(loc="left") for axes in panels(figure)]


# All of them


@pytest.mark.parametrize("name", DRAW)
def test_it_is_a_figure_that_can_be_written_and_leaves_no_trace(name, solution, tmp_path):
    from matplotlib._pylab_helpers import Gcf

    before, managers = copy.deepcopy(dict(matplotlib.rcParams)), len(Gcf.get_all_fig_managers())
    draw, count = DRAW[name]
    figure = draw(solution)
    assert isinstance(figure, Figure)
    assert len(panels(figure)) == count
    figure.savefig(tmp_path / "figure.png")
    figure.savefig(tmp_path / "figure.pdf")
    assert dict(matplotlib.rcParams) == before
    assert len(Gcf.get_all_fig_managers()) == managers


@pytest.mark.parametrize("name", DRAW)
def test_given_axes_are_drawn_into(name, solution):
    draw, count = DRAW[name]
    figure = Figure(layout="constrained")
    given = figure.subplots(count, 1, squeeze=False)
    assert draw(solution, axes=given) is figure
    assert all(axes.has_data() for axes in given.flat)
    one_more = Figure().subplots(count + 1, 1)
    with pytest.raises(ProblemError, match=f"must hold an Axes for each of the {count} panels, but holds {count + 1}"):
        draw(solution, axes=one_more)
    with pytest.raises(ProblemError, match=r"Argument `axes` must be \d+ Axes of matplotlib, but is 'here'"):
        draw(solution, axes="here")


@pytest.mark.parametrize("name", DRAW)
def test_axes_say_what_they_are(name, solution):
    figure = DRAW[name][0](solution)
    assert all(axes.get_ylabel() for axes in panels(figure) if name != "work_precision")
    named = [axes.get_xlabel() for axes in panels(figure) if axes.get_xlabel()]
    units = r"\(problem's unit\)|\(s\)|\(cyclic\)|updates of the parameters"
    assert named
    assert all(re.search(units, label) for label in named)
    for axes in figure.axes:
        assert r"\Omega" not in axes.get_ylabel() or "cyclic" in axes.get_ylabel() or "input peak" in axes.get_ylabel()


@pytest.mark.parametrize("name", DRAW)
def test_lines_differ_without_colours(name, solution):
    for axes in DRAW[name][0](solution).axes:
        shown, labels = axes.get_legend_handles_labels()
        dashes = [(line.get_linestyle(), line.get_marker()) for line in shown if hasattr(line, "get_marker")]
        assert len(set(dashes)) == len(dashes), labels


def test_all_lines_and_the_map_read_in_grey():
    from matplotlib import colormaps, colors

    assert len({str(line["linestyle"]) for line in LINES}) == len({line["color"] for line in LINES}) == len(LINES)
    assert len(set(MARKERS)) == len(MARKERS) == len(LINES)
    weights = np.array([0.2126, 0.7152, 0.0722])
    for line in LINES:
        assert np.dot(np.array(colors.to_rgb(line["color"])) ** 2.2, weights) < 0.5  # against white paper
    luminance = (colormaps[MAP](np.linspace(0, 1, 64))[:, :3] ** 2.2) @ weights
    assert (np.diff(luminance) < 0).all()


KINDS = {
    "float32 numbers": lambda x: x.to(torch.complex64 if x.is_complex() else torch.float32),
    "arrays": lambda x: x.numpy(),
    "with gradients": lambda x: x.clone().requires_grad_(),
    "conjugate views": lambda x: x.conj().clone().conj() if x.is_complex() else x,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in DRAW if name not in ("training_history", "work_precision")])
def test_any_kind_of_numbers(name, kind, solution):
    arrays = {
        field.name: KINDS[kind](value)
        for field in dataclasses.fields(solution)
        if (value := getattr(solution, field.name)) is not None
    }
    drawn, expected = (DRAW[name][0](one) for one in (Solution(**arrays), solution))
    for one, other in zip(maps(drawn), maps(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
    for one, other in zip(panels(drawn), panels(expected), strict=True):
        for a, b in zip(one.lines, other.lines, strict=True):
            np.testing.assert_allclose(a.get_ydata(), b.get_ydata(), atol=2e-3)


def test_importing_and_drawing_without_matplotlib():
    code = """
import sys
sys.modules["matplotlib"] = None
from torch_clerq import plotting
try:
    plotting.work_precision({"": {"": ([1.0], [1.0])}})
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    expected = "matplotlib Figures need matplotlib, which is not installed: pip install 'torch_clerq[plot]'.\n"
    assert python(code) == expected


def test_no_display_is_needed():
    code = """
import sys, torch
from torch_clerq import Solution, plotting
figure = plotting.zt_map(Solution(fields=torch.ones(1, 2, 3), z=torch.arange(2.0), time=torch.arange(3.0)))
figure.savefig(sys.stderr.buffer, format="svg")
print("matplotlib.pyplot" in sys.modules)
"""
    assert python(code) == "False\n"


# Light


def test_zt_map(solution):
    figure = plotting.zt_map(solution, ["probe"])
    probe, other = maps(figure)
    np.testing.assert_allclose(probe, solution.fields[0].abs())
    np.testing.assert_allclose(other, solution.fields[1].abs() / 1e-3)
    assert titles(figure) == ["probe", "field 1"]
    assert [axes.get_ylabel() for axes in figure.axes[2:]] == [r"$|\Omega|$ (cyclic)", r"$|\Omega|$ ($10^{-3}$ cyclic)"]
    mesh = next(mesh for mesh in figure.axes[0].collections if isinstance(mesh, QuadMesh))
    corners = mesh.get_coordinates().reshape(len(Z), len(TIME), 2)
    np.testing.assert_array_equal(corners[0, :, 0], TIME)
    np.testing.assert_array_equal(corners[:, 0, 1], Z)


def test_zt_map_of_the_laboratory(solution):
    figure = plotting.zt_map(solution, frame="lab", speed_of_light=0.5)
    expected = analysis.lab_fields(solution.fields, Z, TIME, 0.5).abs()
    np.testing.assert_allclose(maps(figure)[0], expected[0])
    assert figure.axes[1].get_xlabel().startswith("laboratory time")
    assert figure.axes[1].get_xlim() == (-3.0, 7.0)  # the window opens at t_min, and closes at t_max + L/c


def test_labels_and_directions_come_from_the_problem(solution):
    problem = lambda_system(control={"counter_propagating": True})
    for draw in (plotting.zt_map, plotting.envelopes, plotting.pulse_area, plotting.coherences):
        assert titles(draw(solution, problem=problem)) == ["probe", "control"]
        assert titles(draw(solution, ["a"], problem=problem)) == ["a", "field 1"]
    assert titles(plotting.spectra(solution, problem=problem))[::2] == ["probe", "control"]
    probe, control = (lines(axes) for axes in plotting.envelopes(solution, problem=problem).axes)
    np.testing.assert_allclose(probe["input"], solution.fields[0, 0].abs())
    np.testing.assert_allclose(probe["output"], solution.fields[0, -1].abs())
    np.testing.assert_allclose(control["input"], solution.fields[1, -1].abs() / 1e-3)
    np.testing.assert_allclose(control["output"], solution.fields[1, 0].abs() / 1e-3)
    with pytest.raises(ProblemError, match="co-propagating fields only"):
        plotting.zt_map(solution, problem=problem, frame="lab", speed_of_light=1.0)


def test_pulse_area():
    width = 0.5
    soliton = 1 / (math.pi * width * torch.cosh((torch.linspace(-9, 9, 721) - 2 * Z[:, None]) / width))
    fields = torch.stack([soliton, 1e-4 * soliton])
    figure = plotting.pulse_area(Solution(fields=fields, z=Z, time=torch.linspace(-9, 9, 721)))
    strong, weak = figure.axes
    np.testing.assert_allclose(strong.lines[0].get_ydata(), 2.0, rtol=1e-5)
    assert [line.get_ydata()[0] for line in strong.lines[1:]] == [1.0, 2.0]
    np.testing.assert_allclose(weak.lines[0].get_ydata(), 2.0, rtol=1e-5)
    assert len(weak.lines) == 1
    assert [axes.get_ylabel() for axes in figure.axes] == [r"pulse area ($\pi$)", r"pulse area ($10^{-4}$ $\pi$)"]


def test_spectra(solution):
    figure = plotting.spectra(solution, floor=1e-2)
    for left, right in (figure.axes[:2], figure.axes[2:]):
        entering = spectra.spectrum(PULSE).abs()
        np.testing.assert_allclose(lines(left)["input"], entering / entering.max())
        np.testing.assert_allclose(lines(left)["output"], math.exp(-2) * entering / entering.max())
        np.testing.assert_allclose(lines(right)["absorption"], 2.0)
        np.testing.assert_allclose(lines(right)["dispersion"], 1.0)
        band = spectra.in_band(solution.fields[0], floor=1e-2)
        np.testing.assert_allclose(right.lines[0].get_xdata(), spectra.freq_list(TIME)[band])


def test_spectra_of_counter_propagating_and_of_no_light(solution):
    problem = two_level()
    problem = type(problem).from_dict(
        problem.to_dict() | {"system": problem.to_dict()["system"] | {"fields": [
            {"coupled_levels": [[0, 1]], "counter_propagating": True, "rabi_freq": 1.0}]}})  # fmt: skip
    turned = Solution(fields=solution.fields[:1].flip(1), z=Z, time=TIME)
    right = plotting.spectra(turned, problem=problem).axes[1]
    np.testing.assert_allclose(lines(right)["absorption"], 2.0)
    dark = plotting.spectra(Solution(fields=torch.zeros(1, 4, 33), z=Z, time=TIME))
    assert titles(dark) == ["field 0", "no light enters"]


# Atoms


def test_populations(solution):
    figure = plotting.populations(solution)
    for drawn, expected in zip(maps(figure), solution.populations.moveaxis(-1, 0), strict=True):
        scale = 10 ** round(math.log10((expected.max() / drawn.max()).item()))
        np.testing.assert_allclose(drawn * scale, expected)
    assert titles(figure) == ["level 0", "level 1", "level 2"]
    figure = plotting.populations(solution, ["ground"], levels=[[0, 2], 1], z=[0.0, 0.7])
    assert titles(figure) == ["$z$ = 0", "$z$ = 0.6667"]
    for axes, place in zip(figure.axes, (0, 2), strict=True):
        np.testing.assert_allclose(lines(axes)["ground"], solution.populations[place, :, [0, 2]].sum(-1))
        np.testing.assert_allclose(lines(axes)["level 1"], solution.populations[place, :, 1])
    matrix_alone = dataclasses.replace(solution, populations=None)
    np.testing.assert_allclose(maps(plotting.populations(matrix_alone)), maps(plotting.populations(solution)))


def test_coherences(solution):
    for drawn, expected in zip(maps(plotting.coherences(solution)), solution.coherences.abs(), strict=True):
        np.testing.assert_allclose(drawn, expected)
    figure = plotting.coherences(solution, pairs=[(0, 2), (1, 0)], z=[0.0, 1.0])
    assert titles(figure) == ["levels 0, 2", "levels 1, 0"]
    for axes, (a, b) in zip(figure.axes, [(0, 2), (1, 0)], strict=True):
        for line, place in zip(axes.lines, (0, -1), strict=True):
            np.testing.assert_allclose(line.get_ydata(), solution.density_matrix[place, :, a, b].abs())
        assert [line.get_label() for line in axes.lines] == ["$z$ = 0", "$z$ = 1"]


# Trainings and benchmarks


def test_training_history():
    top, below = plotting.training_history(FIT).axes
    drawn = lines(top)
    np.testing.assert_array_equal(drawn["value"], [30.0, 2.0, 3.0, 1.0])
    np.testing.assert_array_equal(drawn["best so far"], [30.0, 2.0, 2.0, 1.0])
    assert (drawn["best, 0.5"], drawn["at twice the resolution, 0.6"]) == ([0.5], [0.6])
    assert [line.get_xdata()[0] for line in top.lines[2:]] == [4, 4]
    assert top.get_title(loc="left") == "4 steps, stopped by patience"
    assert top.get_yscale() == "log"
    np.testing.assert_array_equal(below.lines[0].get_ydata(), [0.1, 0.1, 0.05, 0.05])
    one = Figure().subplots()
    assert plotting.training_history(FIT, axes=one).axes == [one]  # without the learning rate
    (alone,) = plotting.training_history(History(values=[1.0, -2.0], learning_rates=[0.1, 0.1])).axes
    assert (alone.get_yscale(), len(alone.lines)) == ("linear", 2)
    ran_away = dataclasses.replace(FIT, diverging="the value grew")
    assert plotting.training_history(ran_away).axes[0].get_title(loc="left") == "diverging: the value grew"


def test_work_precision():
    figure = plotting.work_precision(RESULTS)
    first, second = figure.axes
    assert (first.get_title(), second.get_title()) == ("Λ", "two-level")
    ours, peer = first.lines
    np.testing.assert_array_equal(ours.get_xdata(), [1e-3, 2e-3])
    np.testing.assert_array_equal(ours.get_ydata(), [1e-4, 1e-6])
    assert peer.get_color() == second.lines[0].get_color() != ours.get_color()
    assert {axes.get_xscale() + axes.get_yscale() for axes in figure.axes} == {"loglog"}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ours", "peer"]


def test_design_figure():
    fields = damped()
    inputs = {"control": fields[1, 0], "probe": 2 * fields[0, 0]}
    figure = plotting.design_figure(TIME, inputs, fields[0, -1], stored="probe", after=1.5, title="56 %")
    top, below = figure.axes
    np.testing.assert_allclose(lines(top)["input"], PULSE**2)
    np.testing.assert_allclose(lines(top)["output"], PULSE**2 * math.exp(-4) / 4)
    np.testing.assert_allclose(below.lines[0].get_ydata(), 1e-3 * PULSE)
    assert top.lines[2].get_xdata() == [1.5, 1.5]
    assert top.get_title(loc="left") == "56 %"


# What cannot be drawn

BATCH = Solution(fields=random(5, 2, 4, 33), z=Z, time=TIME, populations=torch.ones(5, 4, 33, 2))
GOOD = Solution(fields=damped(), z=Z, time=TIME, populations=torch.full((4, 33, 3), 1 / 3))
NAN = dataclasses.replace(GOOD, fields=GOOD.fields * torch.where(TIME > 4.9, math.nan, 1.0))
REFUSED = {
    "batch": (lambda: plotting.zt_map(BATCH), r"shape \(field, 4, 33\), but has shape \(5, 2, 4, 33\): draw one of a"),
    "batch of states": (lambda: plotting.populations(BATCH), r"\[0\]"),
    "nan": (lambda: plotting.envelopes(NAN), r"must be finite, but has \(nan.*\) at index \(0, 0, 32\)"),
    "no solution": (lambda: plotting.zt_map({"fields": 0}), "be a Solution, as .* but is dict"),
    "not asked": (lambda: plotting.populations(dataclasses.replace(GOOD, populations=None)),
                  r'has none: ask for outputs=\("populations",\)'),
    "no coherences": (lambda: plotting.coherences(GOOD), r'ask for outputs=\("coherences",\)'),
    "no matrix": (lambda: plotting.coherences(GOOD, pairs=[(0, 1)]), r'ask for outputs=\("density_matrix",\)'),
    "no fields": (lambda: plotting.zt_map(Solution(z=Z, time=TIME)), "`solution.fields` must be a tensor or an array"),
    "a length": (lambda: plotting.zt_map(dataclasses.replace(GOOD, time=TIME[:-1])), r"\(field, 4, 32\)"),
    "one position": (lambda: plotting.zt_map(Solution(fields=random(1, 1, 33), z=Z[:1], time=TIME)), "at least two"),
    "letters": (lambda: plotting.zt_map(GOOD, "probe"), "`labels` must be a list of names, but is 'probe'"),
    "labels": (lambda: plotting.zt_map(GOOD, ["a", "b", "c"]), "at most 2, one for each that is drawn, but are 3"),
    "problem": (lambda: plotting.zt_map(GOOD, problem=two_level()), "have the 2 fields of the solution, but has 1"),
    "frame": (lambda: plotting.zt_map(GOOD, frame="moving"), "but is 'moving'"),
    "speed": (lambda: plotting.zt_map(GOOD, frame="lab"), "`speed_of_light` must be given"),
    "no frame": (lambda: plotting.zt_map(GOOD, speed_of_light=1.0), 'be left out but for frame="lab"'),
    "time": (lambda: plotting.spectra(dataclasses.replace(GOOD, time=(TIME + 4) ** 2)), "a uniform grid"),
    "level": (lambda: plotting.populations(GOOD, levels=[3]), "levels from 0 to 2, but has 3"),
    "levels": (lambda: plotting.populations(GOOD, levels="all"), "be a list of levels"),
    "too many": (lambda: plotting.populations(GOOD, levels=[0] * 7, z=0.0), "at most 6 lines to be told apart"),
    "position": (lambda: plotting.populations(GOOD, z=1.1), "positions from 0 to 1, but has 1.1"),
    "pairs": (lambda: plotting.coherences(dataclasses.replace(GOOD, density_matrix=states()), pairs=[0, 1]), "pairs"),
    "history": (lambda: plotting.training_history([1.0]), "be a Fit, .* but is list"),
    "no step": (lambda: plotting.training_history(History()), "have a step"),
    "error 0": (lambda: plotting.work_precision({"a": {"b": ([1.0], [0.0])}}), "positive numbers, since the axes"),
    "series": (lambda: plotting.work_precision({"a": {"b": ([1.0, 2.0], [0.1])}}), r"shape \(2,\), but has shape"),
    "results": (lambda: plotting.work_precision({}), "dict by problem"),
    "stored": (lambda: plotting.design_figure(TIME, {"probe": PULSE}, PULSE, stored="prob"), "did you mean `probe`"),
    "output": (lambda: plotting.design_figure(TIME, {"probe": PULSE}, PULSE[1:], stored="probe"), "`output` must have"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(name):
    call, match = REFUSED[name]
    with pytest.raises(ProblemError, match=match) as error:
        call()
    assert str(error.value).startswith("Argument `")
    assert str(error.value).endswith(".")


def test_a_dark_field_has_a_scale(tmp_path):
    dark = Solution(fields=torch.zeros(1, 4, 33), z=Z, time=TIME)
    for draw in (plotting.zt_map, plotting.envelopes, plotting.pulse_area, plotting.spectra):
        draw(dark).savefig(tmp_path / "dark.png")


def test_every_figure_of_the_gallery_is_shown_and_small():
    page, folder = (ROOT / "docs" / "figures.md").read_text(), ROOT / "docs" / "figures" / "gallery"
    shown = re.findall(r"\]\(figures/gallery/(\w+)\.png\)", page)
    assert sorted(shown) == sorted(path.stem for path in folder.iterdir())
    assert all(path.stat().st_size < 150_000 for path in folder.iterdir())
    for name in plotting.__all__:
        assert f"| `{name}` |" in page


def test_measured_draws_the_data_the_model_and_what_is_left():
    at = torch.tensor([0.0, 2.0, 1.0])
    data = [
        Measured("probe.power", 0, "power", at, torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0.5, 0.5, 0.25])),
        Measured("probe.phase", 0, "phase", at, torch.tensor([0.0, 0.0, 0.0])),
    ]
    figure = plotting.measured(data, [torch.tensor([1.0, 2.0, 2.5]), torch.zeros(3)])
    left, right, lower, _ = figure.axes
    np.testing.assert_allclose(left.lines[0].get_xydata(), [[0, 1], [2, 3], [1, 2]])
    np.testing.assert_allclose(left.lines[1].get_xydata(), [[0, 1], [1, 2.5], [2, 2]])
    np.testing.assert_allclose(right.lines[1].get_ydata(), [0.0, 2.0, -2.0])
    assert "time" in left.get_xlabel()
    assert lower.get_xlabel() == r"frequency $\nu$ (cyclic)"
    assert left.get_ylabel() == "probe.power"
    with pytest.raises(ProblemError, match=r"be one a column of data \(2\), but are 1"):
        plotting.measured(data, [torch.zeros(3)])


@pytest.mark.parametrize("label", ["$_$", r"$\foo$", "\ud800", "x" * 5000, "5 $", r"$\Omega_p$"])
def test_any_label_is_drawn(label):
    solution = Solution(fields=np.ones((1, 3, 4)), z=np.arange(3.0), time=np.arange(4.0))
    figure = plotting.zt_map(solution, [label])
    figure.savefig(io.BytesIO(), format="png")
    shown = figure.axes[0].get_title(loc="left")
    assert len(shown) <= 61
    assert (shown == label) == (label == r"$\Omega_p$")


def test_any_layout_is_drawn():
    fields = np.exp(-(np.linspace(-2, 2, 9) ** 2)) * np.ones((1, 4, 1))
    z, time = np.linspace(0, 1, 4), np.linspace(-2.0, 2.0, 9)
    expected = plotting.pulse_area(Solution(fields=fields, z=z, time=time)).axes[0].lines[0].get_ydata()
    for other in (fields[..., ::-1], fields.astype(">c16"), fields.astype(np.longdouble), fields.astype(np.float16)):
        solution = Solution(fields=other, z=z.astype(">f8"), time=time)
        np.testing.assert_allclose(plotting.pulse_area(solution).axes[0].lines[0].get_ydata(), expected, rtol=1e-3)
        plotting.spectra(solution)


def test_threads_that_draw_leave_no_trace():
    before = dict(matplotlib.rcParams)
    solution = Solution(fields=np.ones((1, 3, 4)), z=np.arange(3.0), time=np.arange(4.0))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: plotting.envelopes(solution), range(16)))
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("labels", [None, 5, "probe", [3]])
def test_labels_that_are_no_names(labels):
    solution = Solution(fields=np.ones((1, 3, 4)), z=np.arange(3.0), time=np.arange(4.0))
    with pytest.raises(ProblemError, match="`labels` must be a list of names"):
        plotting.zt_map(solution, labels)
