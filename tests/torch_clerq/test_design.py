"""Design files, the training loop, figures."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline

from tests.conftest import ROOT, SHARED, two_level
from torch_clerq import Problem, ProblemError, Resolution, Solution, TorchPropagator
from torch_clerq.design import Design, Gate, read
from torch_clerq.limits import optical_depth, storage_limit
from torch_clerq.objectives import energy
from torch_clerq.plotting import design_figure, zt_map

MEMORY = ROOT / "examples" / "memory.json"


def memory_content():
    return json.loads(MEMORY.read_text(encoding="utf-8"))


def changed(**changes):
    """The memory's dict with values at dotted paths of its design block replaced; None removes."""
    content = memory_content()
    for path, value in changes.items():
        *parents, key = path.split("__")
        place = content["design"]
        for parent in parents:
            place = place[parent]
        place[key] = value
    return content


def small_design(**top):
    """A pulse through a thin absorber, shaped to pass: quick to compile."""
    content = {
        "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
                   "fields": [{"label": "probe", "coupled_levels": [[0, 1]], "rabi_freq": 1e-3}]},
        "t_max": 4.0, "t_steps": 40, "z_steps": 2, "interaction_strengths": [0.5],
        "design": {"fields": {"probe": {"basis": {"count": 5, "window": [1.0, 3.0]}, "energy": 1e-6}},
                   "objective": {"field": "probe"}, "tol": 1e-2},
    }  # fmt: skip
    return content | top


# Limits


def test_the_limit_is_given_only_where_it_holds():
    memory, _ = read(MEMORY)
    assert storage_limit(memory, "probe") == pytest.approx(0.568981, abs=1e-6)
    assert storage_limit(two_level()) is None
    assert storage_limit(replace(memory, initial_state=(0.5, 0.0, 0.5))) is None
    spin_decay = replace(memory.decays[0], channels=((0, 2),), factors=(1.0,))
    assert storage_limit(replace(memory, decays=(*memory.decays, spin_decay))) is None


def test_a_known_optimum_retrieves_what_it_is_known_to():
    path = SHARED / "data" / "memory_optimum_od25.csv"
    if not path.exists():
        pytest.skip("the shared data are not part of a user's clone")
    time, probe, control = np.loadtxt(path, delimiter=",").T
    design = Design.from_json(MEMORY)
    layer = TorchPropagator(
        replace(design.problem, z_steps=1), dtype=torch.float64, resolution=Resolution(12, 1), tol=1
    )
    pulses = {name: torch.from_numpy(CubicSpline(time, pulse)(design.problem.time))
              for name, pulse in (("probe", probe), ("control", control))}  # fmt: skip
    assert design.log_efficiency(layer(pulses), layer.time).exp().item() == pytest.approx(0.56874, abs=3e-5)


# Design files


def test_the_memory_is_what_it_says():
    design = Design.from_json(MEMORY)
    assert sum(free.count for free in design.free) == 44
    assert (design.label, design.after, design.steps) == ("probe", 6.95, 85)
    assert design.problem == read(MEMORY)[0]
    assert optical_depth(design.problem, "probe") == pytest.approx(25.0)
    assert design.free[1].gate == Gate(off=6.0, on=7.5, rise=0.3)
    probe, control = design.build(design.problem, seed=0)().values()
    time = torch.from_numpy(design.problem.time)
    assert energy(probe, time).item() == pytest.approx(1e-6)
    assert energy(probe, time, after=design.after).item() < 1e-6 * 1e-10  # no light enters once retrieval counts
    assert control[(time > 6.4) & (time < 7.1)].max() < 0.02 * control.max()


def test_starts_are_seeded():
    design = Design.from_dict(memory_content())
    starts = [torch.cat(tuple(design.build(design.problem, seed)().values())) for seed in (0, 0, 1)]
    assert torch.equal(starts[0], starts[1])
    assert not torch.allclose(starts[0], starts[2], rtol=0.1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"stepz": 3}, r'`design` must have known keys only, but has "stepz" \(did you mean "steps"\?\)'),
        ({"fields__probe__bases": {}}, r'`design.fields.probe` .* "bases" \(did you mean "basis"\?\)'),
        ({"fields__probe__basis__widht": 1}, r'`design.fields.probe.basis` .*\(did you mean "width"\?\)'),
        ({"fields__probe__gate__rize": 1}, r'`design.fields.probe.gate` .*\(did you mean "rise"\?\)'),
        ({"objective__afterr": 1}, r'`design.objective` .*\(did you mean "after"\?\)'),
        ({"optimiser__lr": 1}, r"`design.optimiser` must have known keys only, but has \"lr\"; known are"),
        ({"fields__prob": {}}, r'`design.fields` .* has "prob" \(did you mean "probe"\?\)'),
        ({"fields": {}}, r"`design.fields` must name at least one free field \(probe, control\), but is empty"),
        ({"objective__field": "pump"}, r'`design.objective.field` must be one of probe, control, but is "pump"'),
        ({"objective__name": "fidelity"}, r'`design.objective.name` must be "retrieval_efficiency", but is'),
        ({"optimiser__name": "sgd"}, r'`design.optimiser.name` must be "adam" or "lbfgs", but is'),
        ({"fields__probe__basis__name": "fourier"}, r'`design.fields.probe.basis.name` must be "gaussian"'),
        ({"objective__after": 14}, r"`design.objective.after` must lie from t_min to t_max \(0 to 14\), but is 14"),
        ({"optimiser__betas": [0.9]}, r"`design.optimiser.betas` must be two numbers from 0 to below 1"),
        ({"optimiser__learning_rate": 0}, r"`design.optimiser.learning_rate` must be positive, but is 0"),
        ({"steps": 0}, r"`design.steps` must be an integer of at least 1, but is 0"),
        ({"tol": -1}, r"`design.tol` must be positive, but is -1"),
        ({"fields__probe__basis__count": None}, r"`design.fields.probe.basis.count` must be an integer of at least 1"),
        ({"fields__probe__basis__window": [6, 1]}, r"`design.fields.probe.basis.window` must be two numbers"),
        ({"fields__probe__basis__width": 0}, r"`design.fields.probe.basis.width` must be positive"),
        ({"fields__control__energy": 1}, r"`design.fields.control.energy` must be absent where `bounds` are given"),
        ({"fields__control__bounds": [3, 0]}, r"`design.fields.control.bounds` must be two numbers, the lower one"),
        ({"fields__control__gate": {"rise": 1}}, r"`design.fields.control.gate` must have `off`, `on` or both"),
        ({"fields__control__gate__rise": None}, r"`design.fields.control.gate.rise` must be given, but is missing"),
    ],
)  # fmt: skip
def test_refusals(changes, text):
    with pytest.raises(ProblemError, match=text):
        Design.from_dict(changed(**changes))


def test_refusals_of_files(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(changed(steps=0)))
    with pytest.raises(ProblemError, match=rf"but is 0 \(in file {path}\)\.$"):
        Design.from_json(path)
    path.write_text(json.dumps(memory_content() | {"t_stepz": 1}))
    with pytest.raises(ProblemError, match=rf'"t_steps"\?\) \(in file {path}\)\.$'):
        Design.from_json(path)
    path.write_text("{")
    with pytest.raises(ProblemError, match=rf"File {path} must be JSON"):
        Design.from_json(path)
    two_level().to_json(path)
    with pytest.raises(ProblemError, match=rf"File {path} must have a `design` block"):
        Design.from_json(path)
    with pytest.raises(ProblemError, match="must be readable"):
        read(Path(tmp_path / "absent.json"))


def test_a_field_without_a_label_goes_by_its_index():
    content = small_design()
    del content["system"]["fields"][0]["label"]
    content["design"] = json.loads(json.dumps(content["design"]).replace('"probe"', '"0"'))
    design = Design.from_dict(content)
    assert design.free[0].name == 0
    assert design.train(steps=1).efficiency > 0


# Training


def test_training_keeps_the_best_and_repeats():
    content = small_design()
    content["design"]["optimiser"] = {"learning_rate": 1.0}  # too high: the step after the second is worse
    design = Design.from_dict(content)
    trained = design.train(seed=1, steps=6)
    again = design.train(seed=1, steps=6)
    assert trained.history == again.history
    assert trained.efficiency >= max(trained.history) > trained.history[-1]
    assert design.verify(trained).efficiency == pytest.approx(trained.efficiency, abs=1e-3)
    assert not trained.interrupted


def test_training_can_be_stopped():
    seen = []
    trained = Design.from_dict(small_design()).train(
        on_step=lambda step, value: seen.append((step, value)) or step == 3
    )
    assert trained.interrupted
    assert tuple(value for _, value in seen) == trained.history
    assert [step for step, _ in seen] == [1, 2, 3]


def test_training_needs_a_step():
    with pytest.raises(ProblemError, match="`steps` must be an integer of at least 1, but is 0"):
        Design.from_dict(small_design()).train(steps=0)


def test_verification_is_finer_everywhere():
    design = Design.from_dict(small_design())
    trained = design.train(steps=1)
    solution = design.verify(trained).solution
    assert solution.resolution == trained.resolution.doubled()
    assert solution.fields.shape == (1, 3, 81)


# Figures


@pytest.fixture
def untouched_pyplot():
    """pyplot is neither opened nor styled."""
    matplotlib = pytest.importorskip("matplotlib")
    from matplotlib._pylab_helpers import Gcf

    before, managers = copy.deepcopy(dict(matplotlib.rcParams)), len(Gcf.get_all_fig_managers())
    yield
    assert dict(matplotlib.rcParams) == before
    assert len(Gcf.get_all_fig_managers()) == managers


@pytest.mark.usefixtures("untouched_pyplot")
def test_zt_map(tmp_path):
    from matplotlib.figure import Figure

    time, z = torch.linspace(0, 3, 31), torch.linspace(0, 1, 6)
    fields = torch.complex(torch.rand(3, 6, 31), torch.rand(3, 6, 31)) * torch.tensor([1e-3, 1.0, 0.0])[:, None, None]
    figure = zt_map(Solution(fields=fields, z=z, time=time), ["probe", "", "dark"])
    assert isinstance(figure, Figure)
    assert [panel.get_title(loc="left") for panel in figure.axes[:3]] == ["probe", "field 1", "dark"]
    assert "10^{-" in figure.axes[3].get_ylabel()
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.usefixtures("untouched_pyplot")
def test_design_figure(tmp_path):
    from matplotlib.figure import Figure

    time = np.linspace(0, 3, 31)
    inputs = {"probe": torch.zeros(31, dtype=torch.complex128), "control": torch.ones(31, requires_grad=True)}
    figure = design_figure(time, inputs, np.zeros(31), stored="probe", after=2.0, title="56.85 % retrieved")
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 2
    figure.savefig(tmp_path / "figure.png")
    assert len(design_figure(time, {"probe": time}, time, stored="probe").axes) == 1


def test_problem_files_solve_with_and_without_a_design_block(tmp_path):
    problem, block = read(MEMORY)
    assert set(block) == {"fields", "objective", "optimiser", "steps", "tol"}
    problem.to_json(tmp_path / "plain.json")
    assert read(tmp_path / "plain.json") == (problem, None)
    assert isinstance(problem, Problem)
