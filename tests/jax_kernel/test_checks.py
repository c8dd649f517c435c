"""The measures of the time grid and the window: against SciPy's spline, clerq's own estimates and its flags."""

import warnings

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from jax_kernel import Problem, Resolution, WindowWarning, checks, propagate
from tests.conftest import two_level

TIME = np.linspace(-3.0, 3.0, 61)
GAUSSIAN = (np.exp(-4 * np.log(2) * TIME**2) * np.exp(2j * TIME))[None, None]


@pytest.fixture
def fresh_warnings():
    """No problem has been warned of before."""
    checks._seen.cache_clear()


@pytest.mark.parametrize("times", [7, 8, 9, 10, 61])
def test_grid_error_is_that_of_scipys_spline(times):
    fields = np.random.default_rng(0).normal(size=(3, 2, 1, times, 2)) @ [1, 1j]
    knots = np.arange(0, times, 2)
    missed = CubicSpline(knots, fields[..., ::2], axis=-1)(knots[:-1] + 1) - fields[..., 1 : knots[-1] : 2]
    expected = np.max(np.abs(missed) / np.abs(fields).max((-2, -1), keepdims=True))
    assert checks.time_grid_error(fields) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("times", [1, 2, 6])
def test_few_times_tell_nothing(times):
    assert checks.time_grid_error(np.random.default_rng(0).normal(size=(1, 3, times))) == 0.0


def test_grid_error_is_of_fourth_order_and_so_is_the_suggestion():
    errors = [checks.time_grid_error(GAUSSIAN[..., ::stride]) for stride in (1, 2)]
    assert 12 < errors[1] / errors[0] < 64
    coarse = GAUSSIAN[..., ::4]
    assert checks.time_grid_error(coarse) > checks.GRID_LIMIT
    fine = np.linspace(-3.0, 3.0, checks.suggested_t_steps(coarse) + 1)
    assert checks.time_grid_error(np.exp(-4 * np.log(2) * fine**2 + 2j * fine)[None, None]) < checks.GRID_LIMIT


def test_what_the_medium_adds_counts_where_it_matters():
    wiggle = np.where(np.arange(61) % 2, 1.0, -1.0)
    along = np.arange(5)[:, None]
    strong, weak = 1 + 1e-2 * along * wiggle, 1 + 1e-5 * along * wiggle
    assert checks.time_grid_error(strong[None]) > 1
    assert checks.time_grid_error(weak[None]) < 0.01
    assert checks.time_grid_error(np.stack([weak, strong])) == checks.time_grid_error(strong[None])


@pytest.mark.parametrize("measure", [checks.time_grid_error, checks.window_edge_change])
def test_batches_precision_and_dark_fields(measure):
    cut = np.broadcast_to(GAUSSIAN[..., 5:36:2], (1, 4, 16)) * np.linspace(1, 0.5, 4)[:, None]
    value = measure(cut)
    assert measure(np.stack([cut, 3j * cut.conj()])) == pytest.approx(value, rel=1e-12)
    assert measure(cut.astype(np.complex64)) == pytest.approx(value, rel=1e-4)
    assert measure(cut.real) > 0
    noise = 1e-12 * np.random.default_rng(0).normal(size=cut.shape)
    assert measure(np.concatenate([cut, 0 * cut, noise])) == pytest.approx(value, rel=1e-12)
    assert measure(0 * cut) == 0.0
    assert isinstance(value, float)


def test_agrees_with_clerqs_estimates_on_its_own_fields():
    clerq = pytest.importorskip("clerq")
    problem = two_level(t_min=-1.0, t_max=1.5, t_steps=14, z_min=0.0, z_max=1.0, z_steps=4, g=0.5, rabi_freq=1e-2)
    solver = clerq.PropagationSolver(**problem.to_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solver.solve(progress=False)
    fields = solver.rabi_freqs_zt
    assert checks.window_edge_change(fields) == pytest.approx(solver.window_edge_estimate, rel=1e-12)
    assert checks.time_grid_error(fields) == pytest.approx(solver.t_step_error_estimate, rel=0.1)


FLAGS = {  # of clerq's own solve, as the shared index of the problem files has them: (T, E), with a resolution of ours
    "mbs-lambda-adiabatons__mbs-lambda-adiabatons-intuitive": (True, False, Resolution(48, 16)),
    "mbs-vee-simultons__mbs-vee-sech-sqrt8pi-sqrt8pi": (True, True, Resolution(128, 48)),
    "mbs-two-weak-pulse-more-atoms": (False, True, Resolution(48, 12)),
    "mbs-linear-absorption__mbs-linear-absorption-ng01-decay": (False, False, Resolution(12, 2)),
}


@pytest.mark.parametrize("stem", FLAGS)
def test_flags_are_those_of_clerq(stem, problem_file, x64):
    coarse, cut, at = FLAGS[stem]
    fields = np.asarray(propagate(Problem.from_json(problem_file(stem)), resolution=at).fields)
    assert (checks.time_grid_error(fields) > checks.GRID_LIMIT) is coarse
    assert (checks.window_edge_change(fields) > checks.EDGE_LIMIT) is cut


def test_warns_once_a_kind_and_names_the_cure(fresh_warnings):
    problem = two_level(t_min=-1.0, t_max=0.5, t_steps=14)
    spike = np.zeros((1, 2, 15))
    spike[..., 7] = 1
    with pytest.warns(WindowWarning, match=r"raise `t_steps` from 14 to about \d\d\.$") as caught:
        checks.warn_window(problem, spike)
    assert len(caught) == 1
    slope = np.linspace(0, 1, 15) ** 9 * np.ones((1, 2, 1))
    end = r"at the end \(\d\d % of a field's peak\).*raise `t_max` above 0.5"
    with pytest.warns(WindowWarning, match=end) as caught:
        checks.warn_window(problem, slope)
    assert "t_min" not in str(caught[0].message)
    checks.warn_window(problem, spike)
    checks.warn_window(problem, slope)
    with pytest.warns(WindowWarning, match="lower `t_min` below -1 and raise `t_max` above 0.5"):
        checks.warn_window(two_level(t_min=-1.0, t_max=0.5, t_steps=15), slope + slope[..., ::-1])


def test_resolved_light_is_not_warned_of(fresh_warnings):
    checks.warn_window(two_level(t_steps=60), GAUSSIAN)


def test_a_short_pulse_near_the_edge_is_not_cut_off():
    """What counts is the light at the edge itself, not that a pulse is within 5 % of a long window."""
    time = np.linspace(-0.01, 0.2, 201)
    problem = two_level(t_steps=200)
    whole, cut = (np.exp(-4 * np.log(2) * ((time - centre) / 0.005) ** 2)[None, None] for centre in (0.0, -0.0085))
    assert checks.window_edge_change(whole) > checks.EDGE_LIMIT
    assert checks.cut_off(problem, whole) is None
    assert "at the start" in checks.cut_off(problem, cut)
