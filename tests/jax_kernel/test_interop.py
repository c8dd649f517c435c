"""clerq's solvers, live and from their files: what is read, what is written, and that both compute the same."""

import copy
import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jax_kernel import Problem, ProblemError, Solution, WindowWarning, propagate
from tests.conftest import SHARED, lambda_system, two_level
from tests.jax_kernel.test_problem import changed, lambda_content
from torch_clerq import Resolution, TorchPropagator

NO_PROBLEMS = ("tests_json__field-square-0", "tests_json__field-square-1", "tests_json__ob_atom_02")
FILES = [path for path in sorted((SHARED / "problems").rglob("*.json")) if path.stem not in NO_PROBLEMS]
TIGHT = {"atol": 1e-14, "rtol": 1e-10, "nsteps": 100_000}
PRECISE = {"atol": 1e-14, "rtol": 1e-10}


@pytest.fixture
def clerq():
    return pytest.importorskip("clerq")


def classes(**keys):
    return {"velocity_classes": {"thermal_width": 0.4, "thermal_delta_min": -1.0, "thermal_delta_max": 1.0, **keys}}


def single_field(**keys):
    return changed(lambda_content(), "system.fields", [{"coupled_levels": [[0, 1]], **keys}]) | {
        "interaction_strengths": [1.0]
    }


SMALL = {
    "every key": lambda_content(),
    "spacing": lambda_content() | classes(thermal_delta_spacing=0.3),
    "auto": lambda_content()
    | classes(thermal_delta_spacing="auto", thermal_delta_echo_tolerance=0.01)
    | {"z_steps_inner": "auto"},
    "inner grid": lambda_content() | classes(thermal_delta_steps=4, thermal_delta_inner_max=0.1,
                                             thermal_delta_inner_steps=2),
    "no classes": lambda_content() | {"velocity_classes": {}},
    "single system": changed(lambda_content(), "system.label", None) | {"interaction_strengths": [0.0, 0.0]},
    "counter-propagating": changed(lambda_content(), "system.fields.1.counter_propagating", True),
    "wave numbers": changed(lambda_content(), "system.fields.1", lambda_content()["system"]["fields"][1]
                            | {"counter_propagating": True, "factor_doppler_shift": -1.625}),
    "Doppler factor": changed(lambda_content(), "system.fields.0.factor_doppler_shift", 0.3),
    "defaults": single_field(),
    "sech": single_field(rabi_freq_t_func="sech", rabi_freq_t_args={"n_pi": 2.0, "centre": 0.0, "width": 0.5}),
    "intp": single_field(rabi_freq_t_func="intp", rabi_freq_t_args={"tlist": [0.0, 1.0, 3.0], "ylist": [0, 1, 0]}),
    "density": lambda_content() | {"num_density_z_func": "ramp_onoff",
                                   "num_density_z_args": {"ampl": 1.0, "fwhm": 0.1, "on": 0.2, "off": 0.8}},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Counter")
@pytest.mark.parametrize("name", SMALL)
def test_there_and_back(name, clerq, tmp_path):
    problem = Problem.from_dict(SMALL[name])
    solver = problem.to_clerq()
    assert Problem.from_clerq(solver) == problem
    np.testing.assert_allclose(solver.thermal_delta_list / (2 * np.pi), problem.doppler_shifts, atol=1e-14)
    stated = changed(solver.get_json_dict(), "system.initial_state", list(problem.initial_state))  # clerq loses this
    assert Problem.from_dict(json.loads(json.dumps(stated))) == problem


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_that_clerq_writes_are_the_problem(path, clerq, tmp_path):
    problem = Problem.from_json(path)
    solver = clerq.PropagationSolver(**json.loads(path.read_text()))
    assert Problem.from_clerq(solver) == problem
    written = tmp_path / "problem.json"
    solver.to_json(written)
    for content in (json.loads(written.read_text()), json.loads(solver.to_json_str())):
        content["system"]["initial_state"] = list(problem.initial_state)  # which is all that clerq does not write
        assert Problem.from_dict(content) == problem


def test_a_file_that_clerq_wrote_runs(clerq, tmp_path, x64):
    problem = two_level(rate=None, rabi_freq=1.0, g=0.0)
    problem.to_clerq().to_json(tmp_path / "problem.json")
    solution = propagate(Problem.from_json(tmp_path / "problem.json"), outputs=("populations",))
    area = np.pi**1.5 / np.sqrt(np.log(2))  # 2π∫Ω dt of a Gaussian of width and height 1
    assert float(solution.populations[0, -1, 1]) == pytest.approx(np.sin(area / 2) ** 2, abs=1e-6)


def test_atoms_at_rest_are_atoms_at_rest(clerq):
    solver = two_level().to_clerq()
    assert solver.velocity_classes["thermal_width"] == 1.0  # so clerq writes None
    assert Problem.from_clerq(solver).velocity_classes is None


def fields_of_both(problem):
    """What clerq and the march make of one problem, each (field, z, time)."""
    solver = problem.to_clerq()
    solver.build_opts(TIGHT)
    solver.solve(progress=False, check_stability=False, check_counter_prop_depletion=False)
    assert Problem.from_clerq(solver) == problem  # solved or not
    return solver.rabi_freqs_zt, np.asarray(propagate(problem, scheme="march", tol=1.0, **PRECISE).fields)


COMPUTED = {
    "counter-propagating": {"control": {"counter_propagating": True},
                            **classes(thermal_delta_steps=2)},
    "populations": {"system": {"initial_state": [0.7, 0.0, 0.3]}, "g": (1.0, 0.5)},
    "classes": {"velocity_classes": {"thermal_width": 0.3, "thermal_delta_min": -0.6, "thermal_delta_max": 0.6,
                                     "thermal_delta_spacing": 0.4}},
    "detuned": {"probe": {"detuning": 0.4}, "control": {"detuning": -0.2, "detuning_positive": False}},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # clerq's own
@pytest.mark.parametrize("name", COMPUTED)
def test_both_solvers_give_the_same_fields(name, clerq, x64):
    problem = lambda_system(**{"t_steps": 60, "z_steps": 3} | COMPUTED[name])
    theirs, ours = fields_of_both(problem)
    assert np.max(np.abs(theirs[0, -1])) < 0.9 * np.max(np.abs(theirs[0, 0]))  # something happens
    for k in range(2):
        assert np.max(np.abs(ours[k] - theirs[k])) < 1e-8 * np.max(np.abs(theirs[k]))


@pytest.mark.filterwarnings("ignore")
def test_both_solvers_give_the_same_fields_for_eleven_levels(clerq, problem_file, x64):
    content = json.loads(problem_file("mbs-Rb87_5s12_5p12_F11_q1-weak-pulse-decay").read_text())
    problem = Problem.from_dict(content | {"t_steps": 40, "z_steps": 2, "z_steps_inner": 2,
                                           "interaction_strengths": [10.0]})  # fmt: skip
    assert problem.initial_state[0] != 1
    theirs, ours = fields_of_both(problem)
    assert np.max(np.abs(ours - theirs)) < 1e-8 * np.max(np.abs(theirs))


def test_a_single_system(clerq):
    content = {key: SMALL["every key"][key] for key in ("system", "t_min", "t_max", "t_steps")}
    problem = Problem.from_clerq(clerq.LindbladSolver(**copy.deepcopy(content)))
    assert problem == Problem.from_dict(content)
    assert problem.interaction_strengths == (0.0, 0.0)


def test_edits_of_a_live_solver_count(clerq):
    solver = two_level().to_clerq()
    solver.set_field_rabi_freq_t_func(0, clerq.t_funcs.ramp_onoff(5))
    solver.set_field_rabi_freq_t_args(0, {"ampl_5": 1.0, "fwhm_5": 0.2, "on_5": 0.0, "off_5": 2.0})
    solver.system.fields[0].detuning = 0.25
    args = {"ampl": 1.0, "fwhm": 0.2, "on": 0.0, "off": 2.0}
    assert Problem.from_clerq(solver) == two_level(envelope="ramp_onoff", args=args, detuning=0.25)


def test_a_custom_function_is_kept_as_samples(clerq):
    solver = two_level(t_steps=20).to_clerq()
    solver.set_field_rabi_freq_t_func(0, lambda t, args: args["height"] * max(0.0, 1 - abs(t - 1.0)))
    solver.set_field_rabi_freq_t_args(0, {"height": 2.0})
    envelope = Problem.from_clerq(solver).fields[0].envelope  # its kinks lie on the grid: nothing is lost, no warning
    assert envelope.name == "intp"
    assert dict(envelope.args)["tlist"] == tuple(solver.tlist)
    assert dict(envelope.args)["ylist"][6:11] == (0.0, 1.0, 2.0, 1.0, 0.0)


def test_a_custom_function_between_the_samples_warns(clerq):
    solver = two_level().to_clerq()  # ten steps per width
    solver.set_field_rabi_freq_t_func(0, lambda t, args: np.exp(-4 * np.log(2) * t**2))
    with pytest.warns(WindowWarning, match=r"`system\.fields\[0\]\.rabi_freq_t_func` .* by 0\.007 .*`input_fields`"):
        Problem.from_clerq(solver)
    solver = two_level().to_clerq()
    solver.num_density_z_func = lambda z, args: 1 + z**2
    with pytest.warns(WindowWarning, match=r"`num_density_z_func` .*`number_density`"):
        assert Problem.from_clerq(solver).number_density.name == "intp"


def test_what_cannot_be_read_is_refused(clerq):
    with pytest.raises(ProblemError, match=r"`solver` must be a `clerq\.PropagationSolver` .*, but is dict\."):
        Problem.from_clerq({})
    solver = two_level().to_clerq()
    solver.set_field_rabi_freq_t_func(0, lambda t, args: args["missing"])
    with pytest.raises(ProblemError, match=r"fields\[0\]\.rabi_freq_t_func` must .*, which raised KeyError: 'missing'"):
        Problem.from_clerq(solver)
    solver = two_level().to_clerq()
    solver.system.initial_state = solver.system.sigma(0, 0) + 0.1 * (solver.system.sigma(0, 1))
    with pytest.raises(ProblemError, match=r"must be populations, but has coherences: .*`initial_density_matrix`"):
        Problem.from_clerq(solver)
    with pytest.warns(DeprecationWarning, match="real_drive"):
        solver = clerq.PropagationSolver(**two_level().to_dict(), real_drive=True)
    with pytest.raises(ProblemError, match=r"`real_drive` must be false"):
        Problem.from_clerq(solver)


def test_what_clerq_cannot_express_is_refused_by_name(clerq):
    content = lambda_content() | {"velocity_classes": {"quadrature": "gauss-hermite", "nodes": 5}}
    content["system"] |= {
        "decays": [{"rate": 1.0, "operator": np.diag([1, 1j, 0])}],
        "level_detunings": [0.0, 1.0, 0.0],
        "level_doppler_slopes": [0.0, 1.0, 0.0],
    }
    content["system"]["fields"][0]["rabi_freq"] = 1j
    with pytest.raises(ProblemError) as caught:
        Problem.from_dict(content).to_clerq()
    for name in ("fields[0].rabi_freq", "decays[0].operator", "level_detunings", "level_doppler_slopes"):
        assert f"`system.{name}`" in str(caught.value)
    assert "`velocity_classes.quadrature`" in str(caught.value)


def test_without_clerq(monkeypatch):
    monkeypatch.setitem(sys.modules, "clerq", None)
    with pytest.raises(ImportError, match="needs clerq: pip install 'clerq'"):
        two_level().to_clerq()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numpy_views_share_the_memory(dtype):
    layer = TorchPropagator(two_level(), trainable=["rabi_freq"], resolution=Resolution(4, 1), tol=1.0, dtype=dtype)
    solution = layer.solve(outputs=("populations",))
    assert solution.fields.requires_grad
    seen = solution.numpy()
    assert isinstance(seen, Solution)
    assert seen.resolution == solution.resolution
    assert seen.density_matrix is None
    for name in ("fields", "z", "time", "populations", "z_error"):
        tensor, array = getattr(solution, name), getattr(seen, name)
        assert type(array) is np.ndarray
        assert array.dtype == str(tensor.dtype).removeprefix("torch.")
        assert array.ctypes.data == tensor.data_ptr()
        np.testing.assert_array_equal(array, tensor.detach())
    assert "Solution" in repr(seen)


def test_numpy_of_views_that_numpy_lacks():
    fields = torch.randn(1, 2, 3, dtype=torch.complex128, requires_grad=True)
    negative = fields.conj().imag  # a view with the sign still to be taken
    assert negative.is_neg()
    seen = Solution(fields=fields.conj(), z=negative).numpy()
    np.testing.assert_array_equal(seen.fields, fields.detach().numpy().conj())
    np.testing.assert_array_equal(seen.z, -fields.detach().numpy().imag)


def test_numpy_of_a_solution_of_jax_arrays():
    solution = Solution(fields=jnp.ones((1, 2, 3)), z=jnp.arange(2.0), time=jnp.arange(3.0))
    seen = solution.numpy()
    assert type(seen.fields) is np.ndarray
    assert seen.fields.ctypes.data == solution.fields.unsafe_buffer_pointer()
    assert not seen.fields.flags.writeable
