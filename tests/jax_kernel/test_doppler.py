"""Velocity classes and weights: closed forms, gradients, and the same numbers as clerq."""

import itertools
import json
import math
import random
import warnings
from pathlib import Path

import numpy as np
import pytest

from jax_kernel import conventions, doppler, parameters, stiffness
from jax_kernel.errors import ProblemError, WindowWarning
from jax_kernel.options import Options
from jax_kernel.problem import Problem, VelocityClasses

SHARED = Path(__file__).parents[2].parent / "shared" / "problems"
FILES = [path for path in sorted(SHARED.rglob("*.json")) if "velocity_classes" in path.read_text()]


def make_content(velocity_classes, *, fields=None, decays=(), levels=3, duration=8.0):
    fields = fields or [{"coupled_levels": [[0, 1]]}]
    return {
        "system": {"num_states": levels, "fields": fields, "decays": list(decays)},
        "t_max": duration,
        "t_steps": 10,
        "z_steps": 2,
        "interaction_strengths": [1.0] * len(fields),
        "velocity_classes": velocity_classes,
    }


def assert_equals_clerq(content):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clerq = pytest.importorskip("clerq")
        solver = clerq.PropagationSolver(**json.loads(json.dumps(content)))
    problem = Problem.from_dict(content)
    width = problem.thermal_width
    np.testing.assert_allclose(
        problem.doppler_shifts, solver.thermal_delta_list / (2 * math.pi), rtol=1e-13, atol=1e-14 * width
    )
    np.testing.assert_allclose(doppler.level_doppler_slopes(problem), solver.system.level_doppler_slopes(), atol=1e-15)
    np.testing.assert_allclose(doppler.level_damping_rates(problem), solver.system.level_decay_rates(), rtol=1e-13)
    tolerance = problem.velocity_classes.thermal_delta_echo_tolerance if problem.velocity_classes else 1e-6
    spacing = doppler.auto_spacing(problem, tolerance=tolerance, thermal_width=width)
    assert spacing == pytest.approx(solver.thermal_delta_auto_spacing(tolerance), rel=1e-12)
    unnormalised = solver.thermal_quadrature_weights
    if unnormalised.sum() > 1e-100:  # clerq's weights underflow on a grid far outside the distribution
        expected = unnormalised / unnormalised.sum()
        np.testing.assert_allclose(problem.doppler_weights, expected, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [0]),
        (
            {"thermal_delta_min": -1.5, "thermal_delta_max": 1.5, "thermal_delta_steps": 5},
            [-1.5, -0.9, -0.3, 0, 0.3, 0.9, 1.5],
        ),
        ({"thermal_delta_min": 1, "thermal_delta_max": 2, "thermal_delta_steps": 2}, [0, 1, 1.5, 2]),
        ({"thermal_delta_min": 1.5, "thermal_delta_max": -1.5, "thermal_delta_steps": 1}, [-1.5, 0, 1.5]),
        ({"thermal_delta_min": 1, "thermal_delta_max": 2, "thermal_delta_spacing": 0.4}, [1, 4 / 3, 5 / 3, 2]),
        ({"thermal_delta_min": -1, "thermal_delta_max": 1, "thermal_delta_spacing": 5.0}, [-1, 1]),
        (
            {"thermal_delta_inner_min": 0.3, "thermal_delta_inner_max": 0.5, "thermal_delta_inner_steps": 2},
            [0, 0.3, 0.4, 0.5],
        ),
    ],
)
def test_shifts(keys, expected):
    np.testing.assert_allclose(doppler.shifts(VelocityClasses(**keys)), expected, atol=1e-15)


def test_spacing_that_divides_the_range_gains_no_class():
    for spacing, steps in itertools.product((0.1, 0.2, 0.3, 0.6, 0.7, 0.9), (3, 7, 21, 30)):
        grid = VelocityClasses(thermal_delta_max=spacing * steps, thermal_delta_spacing=spacing)
        assert len(doppler.shifts(grid)) == steps + 1


def test_auto_spacing_needs_the_problem():
    with pytest.raises(ProblemError, match=r'`problem` must be given for the `thermal_delta_spacing` "auto", but'):
        doppler.shifts(VelocityClasses(thermal_delta_max=1.0, thermal_delta_spacing="auto"))


def test_quadrature_weights():
    assert doppler.quadrature_weights(np.zeros(1)).tolist() == [1.0]
    assert doppler.quadrature_weights(np.array([0.0, 2.0])).tolist() == [2.0, 2.0]
    assert doppler.quadrature_weights(np.array([0.0, 1.0, 4.0, 5.0])).tolist() == [1.0, 2.0, 2.0, 1.0]


def test_weights_are_a_normalised_gaussian():
    shifts = np.linspace(-4, 4, 81)
    weights = doppler.weights(shifts, doppler.quadrature_weights(shifts), 0.8)
    assert weights.sum() == pytest.approx(1.0, abs=1e-15)
    assert (weights * shifts**2).sum() == pytest.approx(0.8**2 / 2, rel=1e-9)
    # the response of a thermal medium to a short pulse dephases as exp(-(pi width t)^2)
    assert (weights * np.cos(2 * math.pi * shifts * 0.5)).sum() == pytest.approx(
        math.exp(-((math.pi * 0.4) ** 2)), rel=1e-6
    )


def test_weights_far_outside_the_distribution_do_not_vanish():
    shifts = np.array([100.0, 101.0])
    assert doppler.weights(shifts, doppler.quadrature_weights(shifts), 0.1).tolist() == [1.0, 0.0]


def test_weights_take_a_batch_of_widths():
    shifts = np.linspace(-1, 2, 7)
    intervals = doppler.quadrature_weights(shifts)
    batch = doppler.weights(shifts, intervals, np.array([[0.5], [2.0]]))
    np.testing.assert_array_equal(batch, [doppler.weights(shifts, intervals, width) for width in (0.5, 2.0)])


@pytest.mark.parametrize("width", [1e-3, 0.05, 0.5, 30.0])
def test_weights_gradient_in_float32(width):
    jax = pytest.importorskip("jax")
    shifts = np.linspace(-1.5, 1.7, 9)
    intervals = doppler.quadrature_weights(shifts)
    arguments = [jax.numpy.asarray(array, jax.numpy.float32) for array in (shifts, intervals, width)]
    weights = jax.jit(lambda *args: doppler.weights(*args, xp=jax.numpy))(*arguments)
    jacobian = jax.jacobian(lambda w: doppler.weights(*arguments[:2], w, xp=jax.numpy))(arguments[2])
    assert weights.dtype == jacobian.dtype == np.float32
    np.testing.assert_allclose(weights, doppler.weights(shifts, intervals, width), rtol=2e-3, atol=1e-6)
    exact = doppler.weights(shifts, intervals, width)
    exponent_slope = 2 * shifts**2 / width**3
    exact_slope = exact * (exponent_slope - (exact * exponent_slope).sum())
    np.testing.assert_allclose(jacobian, exact_slope, rtol=2e-3, atol=1e-5 * max(1.0, np.abs(exact_slope).max()))


@pytest.mark.parametrize(
    "fields",
    [
        [{"coupled_levels": [[0, 1]]}],
        [{"coupled_levels": [[0, 1]]}, {"coupled_levels": [[1, 2]]}],
        [{"coupled_levels": [[0, 1]]}, {"coupled_levels": [[1, 2]], "counter_propagating": True}],
        [{"coupled_levels": [[0, 1]]}, {"coupled_levels": [[2, 1]], "detuning_positive": False}],
        [{"coupled_levels": [[0, 1]]}, {"coupled_levels": [[0, 1]], "factor_doppler_shift": 0.37}],
        [{"coupled_levels": [[0, 2], [1, 2]]}],
    ],
)
@pytest.mark.parametrize("rate", [0.0, 1.0, 30.0])
def test_auto_spacing_equals_clerq(fields, rate):
    decays = [{"rate": rate, "channels": [[0, 1], [2, 2]], "factors": [0.6, 0.8]}]
    for width, tolerance in itertools.product((0.05, 1.0), (None, 0.01)):
        classes = {
            "thermal_width": width,
            "thermal_delta_min": -2 * width,
            "thermal_delta_max": 3 * width,
            "thermal_delta_spacing": "auto",
            "thermal_delta_echo_tolerance": tolerance,
        }
        assert_equals_clerq(make_content(classes, fields=fields, decays=decays))


def test_random_grids_equal_clerq():
    draw = random.Random(5)
    for _ in range(150):
        edge = draw.choice([0.1, 0.3, 0.7, 1.5, draw.random()])
        inner = draw.choice([0.0, 0.05, 0.1, edge])
        classes = {
            "thermal_width": draw.choice([0.1, 0.5, 2.0]),
            "thermal_delta_min": -edge,
            "thermal_delta_max": draw.choice([edge, 0.6]),
            "thermal_delta_steps": draw.randint(0, 30),
            "thermal_delta_inner_min": -inner,
            "thermal_delta_inner_max": draw.choice([inner, 0.2]),
            "thermal_delta_inner_steps": draw.randint(0, 12),
        }
        if draw.random() < 0.3:
            del classes["thermal_delta_steps"], classes["thermal_delta_inner_steps"]
            classes["thermal_delta_spacing"] = draw.uniform(0.02, 3)
        assert_equals_clerq(make_content(classes))


@pytest.mark.skipif(not FILES, reason="the shared problem files are absent")
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_shared_files_equal_clerq(path):
    assert_equals_clerq(json.loads(path.read_text()))


def gauss_hermite(nodes, width=0.3, **keys):
    return {"thermal_width": width, "quadrature": "gauss-hermite", "nodes": nodes} | keys


@pytest.mark.parametrize("nodes", [1, 2, 7, 40, 300])
def test_gauss_hermite_moments(nodes):
    """A rule of n nodes has the moments of the thermal distribution up to degree 2n − 1: σᵏ (k − 1)!! / 2^(k/2)."""
    problem = Problem.from_dict(make_content(gauss_hermite(nodes)))
    shifts, weights = problem.doppler_shifts, problem.doppler_weights
    assert len(shifts) == len(weights) == nodes
    assert np.all(np.diff(shifts) > 0)
    assert np.all(weights > 0)
    for degree in range(min(2 * nodes, 12)):
        double_factorial = math.prod(range(degree - 1, 0, -2))
        expected = 0 if degree % 2 else 0.3**degree * double_factorial / 2 ** (degree / 2)
        assert weights @ shifts**degree == pytest.approx(expected, rel=1e-12, abs=1e-15)
    wider = Problem.from_dict(make_content(gauss_hermite(nodes, 0.6)))
    np.testing.assert_allclose(wider.doppler_shifts, 2 * shifts, rtol=1e-15)
    np.testing.assert_array_equal(wider.doppler_weights, weights)


LADDER = [{"coupled_levels": [[0, 1]]}, {"coupled_levels": [[1, 2]], "factor_doppler_shift": 0.6}]
DAMPING = [{"rate": 0.1, "channels": [[0, 1], [1, 2]], "factors": [1.0, 0.5]}]


def brute_force_echo(problem):
    """The dephasing of each pair of levels at many times, class by class, against that of the whole distribution."""
    slopes = {0: 0.0, 1: -1.0, 2: -0.6}
    rates = {0: 0.0, 1: math.pi * 0.1, 2: math.pi * 0.1 * 0.25}
    worst = 0.0
    for first, second in ((0, 1), (0, 2), (1, 2)):
        slope = slopes[first] - slopes[second]
        for time in np.linspace(0, problem.t_max - problem.t_min, 2001):
            classes = zip(problem.doppler_weights, problem.doppler_shifts, strict=True)
            average = sum(weight * np.exp(2j * math.pi * slope * shift * time) for weight, shift in classes)
            error = abs(average - math.exp(-((math.pi * slope * problem.thermal_width * time) ** 2)))
            worst = max(worst, error * math.exp(-(rates[first] + rates[second]) * time))
    return worst


@pytest.mark.parametrize("classes", [
    gauss_hermite(5),
    gauss_hermite(12),
    {"thermal_width": 0.3, "thermal_delta_min": -1.0, "thermal_delta_max": 1.0, "thermal_delta_steps": 8},
])  # fmt: skip
def test_echo_is_the_largest_error_of_the_dephasing(classes):
    content = make_content(classes, fields=LADDER, decays=DAMPING, duration=8.0) | {"t_steps": 200}
    problem = Problem.from_dict(content)
    expected = brute_force_echo(problem)
    assert expected > 1e-3
    assert doppler.echo(problem) == pytest.approx(expected, rel=2e-3)


def test_nothing_rephases_without_motion():
    still = [{"coupled_levels": [[0, 1]], "factor_doppler_shift": 0.0}]
    assert doppler.echo(Problem.from_dict(make_content(gauss_hermite(3), fields=still))) == 0
    assert doppler.echo(Problem.from_dict(make_content(gauss_hermite(3), duration=1e-3))) < 1e-6


def test_an_echo_is_warned_of_and_more_nodes_cure_it():
    conventions.warn_once.cache_clear()

    def use(nodes, **keys):
        problem = Problem.from_dict(make_content(gauss_hermite(nodes, **keys), duration=6.0))
        conventions.warn_once(problem)
        return doppler.echo(problem)

    with pytest.warns(WindowWarning) as caught:
        few = use(12)
    (warning,) = caught
    assert str(warning.message) == (
        "The 12 velocity classes miss the thermal distribution or rephase within the time window (a coherence is wrong "
        f"by up to {few:.1e}): raise `nodes` to 50."
    )
    assert use(12) == few  # a second warning would be an error
    assert use(12, thermal_delta_echo_tolerance=1.01 * few) == few
    with pytest.warns(WindowWarning):
        use(12, thermal_delta_echo_tolerance=0.99 * few)
    assert use(60) < 1e-6 < few


@pytest.mark.parametrize(
    ("classes", "duration", "message"),
    [
        (
            gauss_hermite(20),
            900.0,
            r'in place of `quadrature` give `thermal_delta_min` -.* `thermal_delta_spacing` "auto"',
        ),
        ({"thermal_width": 2.0}, 6.0, r"is one velocity class at rest: give `thermal_delta_min` -7, .* 7 and"),
        ({"thermal_delta_min": -0.3, "thermal_delta_max": 0.3, "thermal_delta_steps": 20}, 6.0, "miss the thermal"),
        ({"thermal_delta_min": -2, "thermal_delta_max": 2, "thermal_delta_steps": 4}, 6.0, "rephase within"),
    ],
)
def test_classes_that_are_not_the_distribution_are_warned_of(classes, duration, message):
    conventions.warn_once.cache_clear()
    with pytest.warns(WindowWarning, match=message):
        conventions.warn_once(Problem.from_dict(make_content(classes, duration=duration)))


def test_classes_that_are_the_distribution_are_not():
    grid = {"thermal_delta_min": -3.5, "thermal_delta_max": 3.5, "thermal_delta_spacing": "auto"}
    conventions.warn_once.__wrapped__(Problem.from_dict(make_content(grid, duration=6.0)))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"quadrature": "gauss"}, r'`velocity_classes\.quadrature` must be "gauss-hermite", but is "gauss"'),
        ({"quadrature": 5}, r"quadrature` must be a string, but is 5"),
        ({"nodes": None}, r"nodes` must be an integer of at least 1, the number of velocity classes, but is 0"),
        ({"nodes": 0}, r"nodes` must be an integer of at least 1, the number of velocity classes, but is 0"),
        ({"nodes": 5.0}, r"nodes` must be an integer of at least 1, .*is 5\.0"),
        ({"nodes": 301}, r"nodes` must be at most 300, where the outermost weights underflow, but is 301"),
        ({"quadrature": None}, r'nodes` must be absent unless `quadrature` is "gauss-hermite", but is 5'),
        ({"thermal_width": 0}, r"thermal_width` must be positive, but is 0"),
        ({"thermal_delta_steps": 4}, r"thermal_delta_steps` must be absent where `quadrature` chooses the classes"),
        ({"thermal_delta_spacing": "auto"}, r"thermal_delta_spacing` must be absent where `quadrature` chooses"),
        ({"thermal_delta_echo_tolerance": 1.0}, r"echo_tolerance` must be between 0 and 1, but is 1\.0"),
    ],
)
def test_gauss_hermite_refused(keys, message):
    with pytest.raises(ProblemError, match=message) as caught:
        Problem.from_dict(make_content(gauss_hermite(5) | keys))
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(("classes", "follows"), [(gauss_hermite(5), True), ({"thermal_delta_max": 0.5}, False)])
def test_whether_a_problem_is_stiff_follows_the_width_where_the_shifts_do(classes, follows):
    problem = Problem.from_dict(make_content(classes))
    slow = stiffness.fastest(problem, "", {})
    assert slow == pytest.approx(2 * math.pi * np.abs(problem.doppler_shifts).max())
    width = 7 * problem.thermal_width
    fast = stiffness.fastest(problem, "", {"thermal_width": np.array([width / 2, width])})
    assert fast == pytest.approx(7 * slow if follows else slow)
    given = parameters.arrange(problem, {"thermal_width": np.array(width)}, None)
    assert stiffness.resolved(Options(), problem, given, None).solver == ("exponential" if follows else "runge-kutta")


def test_gauss_hermite_round_trip():
    problem = Problem.from_dict(make_content(gauss_hermite(9, thermal_delta_echo_tolerance=1e-3)))
    written = problem.to_dict()
    assert written["velocity_classes"] == gauss_hermite(9, thermal_delta_echo_tolerance=1e-3)
    assert Problem.from_dict(json.loads(json.dumps(written))) == problem
