"""Which derivatives a program has: first and second ones of every parameter, of every solver, in every composition."""

import dataclasses

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import MarchResolution, NotYetError, ProblemError, Resolution, propagate, pulses
from jax_kernel.options import Options
from jax_kernel.parameters import PARAMETERS, arrange, defaults, edges, merge
from jax_kernel.prepare import prepare, start_parameter
from jax_kernel.program import run
from jax_kernel.propagate import STATE_OUTPUTS, cast
from tests.conftest import lambda_system, two_level
from tests.jax_kernel.test_pulses import CASES

USUAL = ("detunings", "initial_state")
AT = Resolution(4, 1)
INSTEAD = ("level_detunings", "level_doppler_slopes", "initial_density_matrix")

LAMBDA = lambda_system(
    probe={"rabi_freq": 0.8},
    control={"rabi_freq": 1.1, "rabi_freq_t_args": {"ampl": 1.0, "fwhm": 0.5, "on": -0.65, "off": 0.45}},
    system={"b_field": {"magnitude": 0.3, "g_F": [0.5, -0.3, 1.0], "m_F": [1, 0, -1]}},
    velocity_classes={"thermal_delta_min": -0.8, "thermal_delta_max": 0.8, "thermal_delta_steps": 2,
                      "thermal_width": 0.6},
    t_min=-1.0, t_max=1.0, t_steps=10, z_steps=2, rate=0.5,
)  # fmt: skip
TWO_LEVEL = two_level(rabi_freq=0.5, t_min=-1.0, t_max=1.0, t_steps=6, z_steps=1)
TWO_LEVEL_PARAMETERS = {
    "pulse_args": [{"fwhm": np.array(0.8)}],
    "rabi_freq": np.array([0.5 + 0.2j]),
    "interaction_strengths": np.array([1.3]),
    "detunings": np.array([0.3]),
    "decay_rates": np.array([0.7]),
    "initial_state": np.array([0.8, 0.2]),
}


def lambda_parameters(left_out=()):
    """A value of every parameter of `LAMBDA` but those left out, away from special points."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3, 3, 3)) + 1j * rng.normal(size=(3, 3, 3, 3))
    square = root @ np.conj(np.swapaxes(root, -1, -2))
    values = {
        "pulse_args": [{}, {"fwhm": np.array(0.6), "on": np.array(-0.58)}],
        "rabi_freq": np.array([0.8 + 0.2j, 1.1 - 0.1j]),
        "interaction_strengths": np.array([1.4, 0.6]),
        "detunings": np.array([0.3, -0.2]),
        "decay_scale": np.array(0.9),
        "decay_rates": np.array([0.7]),
        "b_field": np.array(0.3),
        "energies": np.array([0.1, 0.3, -0.2]),
        "number_density": np.array([0.9, 1.2, 0.7]),
        "thermal_width": np.array(0.7),
        "initial_state": np.array([0.6, 0.1, 0.3]),
        "initial_density_matrix": square / np.trace(square, axis1=-2, axis2=-1)[..., None, None],
        "level_detunings": np.array([0.1, 0.3, -0.2]),
        "level_doppler_slopes": np.array([0.1, -1.0, 0.6]),
        "input_fields": {"probe": 0.5 * (rng.normal(size=11) + 1j * rng.normal(size=11))},
    }
    assert values.keys() == {*PARAMETERS, "input_fields"}
    return {name: value for name, value in values.items() if name not in left_out}


class Solve:
    """A prepared program as a function of its tree of parameters: all outputs, or a real number made of them.

    Calling it with `derivatives` is what the layer of another framework does with a program that was prepared once.
    """

    def __init__(self, problem, params, *, outputs=("fields",), at=AT, dtype="float64", **options):
        params = dict(params)
        given = arrange(problem, params, params.pop("input_fields", None))
        options = Options(dtype=dtype, **options)
        self.program, self.numbers = prepare(
            problem, at, options, frozenset(outputs), given.sampled, edges(problem, given), start_parameter(given)
        )
        own = defaults(problem) | ({"detunings": np.zeros(2)} if "level_detunings" in params else {})
        self.point = cast(merge(problem, given, own), dtype)

    def __call__(self, params, derivatives="any"):
        return run(dataclasses.replace(self.program, derivatives=derivatives), self.numbers, params)

    def number(self, params, derivatives="any"):
        """A random weighting of all outputs."""
        return inner(random_like(self.outputs, 3), self(params, derivatives))

    def direction(self):
        """A random direction; times of jumps stay."""
        along = random_like(self.point, 1)
        for name, args in zip(self.program.envelopes, along["pulse_args"], strict=True):
            args.update({key: jnp.zeros_like(args[key]) for key in pulses.EDGES.get(name, ()) if key in args})
        return along

    @property
    def outputs(self):
        return jax.eval_shape(self, self.point)


def random_like(tree, seed):
    """Normal random numbers in the shape of a tree, real or complex as it is."""
    rng = np.random.default_rng(seed)

    def one(x):
        value = rng.normal(size=x.shape) + (1j * rng.normal(size=x.shape) if np.dtype(x.dtype).kind == "c" else 0)
        return jnp.asarray(value, x.dtype)

    return jax.tree.map(one, tree)


def inner(a, b):
    """The real part of Σ a b, in which JAX's vjp is the transpose of its jvp."""
    return sum(jnp.sum(jnp.real(x * y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def close(a, b, rtol):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * max(float(jnp.max(jnp.abs(y))), 1e-3))


def gradient(solve, derivatives="any"):
    return jax.grad(lambda p: solve.number(p, derivatives))


def forward_over_reverse(solve, along):
    """The gradient and its derivative along a direction."""
    return lambda p: jax.jvp(gradient(solve), (p,), (along,))


def reverse_over_forward(solve, along):
    return jax.grad(lambda p: jax.jvp(solve.number, (p,), (along,))[1])


def reverse_over_reverse(solve, along):
    return jax.grad(lambda p: inner(gradient(solve)(p), along))


def forward_over_forward(solve, along):
    """The first and the second derivative along a direction."""

    def first(p):
        return jax.jvp(lambda p: solve.number(p, "forward"), (p,), (along,))[1]

    return lambda p: jax.jvp(first, (p,), (along,))


def differences(slope, point, along, h=1e-3):
    """The Hessian times a direction by central differences, of fourth order, of the gradient."""

    def at(s):
        return slope(jax.tree.map(lambda x, d: x + s * d, point, along))

    return jax.tree.map(lambda a, b, c, d: (8 * (a - b) - (c - d)) / (12 * h), at(h), at(-h), at(2 * h), at(-2 * h))


def check_second_order(solve, compositions, rtol=1e-6):
    """Every composition against the adjoint by hand and its differences; the Hessian times a direction."""
    along = solve.direction()
    slope = jax.jit(gradient(solve, "reverse"))
    by_hand = slope(solve.point)
    first, hessian = jax.jit(forward_over_reverse(solve, along))(solve.point)
    close(first, by_hand, 1e-10)
    close(hessian, differences(slope, solve.point, along), rtol)
    for composition in compositions:
        found = jax.jit(composition(solve, along))(solve.point)
        if composition is forward_over_forward:
            np.testing.assert_allclose(found[0], inner(by_hand, along), rtol=1e-9)
            np.testing.assert_allclose(found[1], inner(hessian, along), rtol=1e-9)
        else:
            close(found, hessian, 1e-9)
    return hessian


ALL = (reverse_over_forward, reverse_over_reverse, forward_over_forward)


@pytest.mark.parametrize(
    ("left_out", "compositions", "options"),
    [
        pytest.param(INSTEAD, ALL, {}, id="fields and populations"),
        pytest.param(USUAL, (), {"memory": "lean"}, id="levels and matrices"),
    ],
)
def test_every_parameter_to_second_order(left_out, compositions, options, x64):
    given = lambda_parameters(left_out)
    solve = Solve(LAMBDA, given, outputs=("fields", *STATE_OUTPUTS), **options)
    for name, value in check_second_order(solve, compositions).items():
        assert name not in given or max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(value)) > 1e-4, name


def test_exponential_steps(x64):
    check_second_order(Solve(TWO_LEVEL, TWO_LEVEL_PARAMETERS, solver="exponential"), ALL[:1])


def test_explicit_adaptive_steps(x64):
    """With a jump, at which they stop."""
    bounds = {"rtol": 1e-5, "atol": 1e-7, "max_steps": 200}
    jump = {"envelope": "square", "args": {"ampl": 1.0, "on": -0.47, "off": 0.5}}
    problem = two_level(**jump, rabi_freq=0.5, t_min=-1.0, t_max=1.0, t_steps=6, z_steps=1)
    given = TWO_LEVEL_PARAMETERS | {"pulse_args": [{"ampl": np.array(0.9)}]}
    solve = Solve(problem, given, solver=diffrax.Tsit5(), at=Resolution(3, 1), **bounds)
    check_second_order(solve, ALL[2:], rtol=1e-4)  # the steps are others at other values


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"solver": diffrax.Kvaerno5(), "rtol": 1e-5, "atol": 1e-7, "max_steps": 256}, id="implicit"),
        pytest.param({"scheme": "march", "at": MarchResolution(2), "n_steps": 13}, id="march"),
    ],
)
def test_one_executable_against_its_own_differences(options, x64):
    solve = Solve(TWO_LEVEL, TWO_LEVEL_PARAMETERS, **{"at": Resolution(2, 1)} | options)
    along, h = random_like(solve.point, 1), 1e-3

    @jax.jit
    def all_orders(p):
        return jax.jvp(jax.value_and_grad(solve.number), (p,), (along,))

    (_, slope), (directional, hessian) = all_orders(solve.point)
    up, down = (all_orders(jax.tree.map(lambda x, d, s=s: x + s * d, solve.point, along))[0] for s in (h, -h))
    np.testing.assert_allclose(directional, inner(slope, along), rtol=1e-10)
    np.testing.assert_allclose(directional, (up[0] - down[0]) / (2 * h), rtol=1e-4)
    close(hessian, jax.tree.map(lambda a, b: (a - b) / (2 * h), up[1], down[1]), 1e-3)  # the steps are others


def test_hessian_and_batches(x64):
    """vmap over points is a loop, with batch axes in the parameters, too; vmap over directions is the Hessian."""
    solve = Solve(TWO_LEVEL, TWO_LEVEL_PARAMETERS)

    def energy(x, derivatives="any"):
        given = solve.point | {"interaction_strengths": x[..., :1], "detunings": x[..., 1:]}
        return jnp.sum(jnp.abs(solve(given, derivatives)["fields"]) ** 2)

    points = jnp.asarray([[1.3, 0.3], [0.4, -0.5], [0.0, 0.0]])
    slope, curvature = jax.jit(jax.grad(energy)), jax.jit(jax.hessian(energy))
    close(jax.jit(jax.vmap(jax.grad(energy)))(points), jnp.stack([slope(x) for x in points]), 1e-12)
    close(jax.jit(jax.grad(energy))(points), jnp.stack([slope(x) for x in points]), 1e-12)
    hessians = jnp.stack([curvature(x) for x in points])
    close(hessians, jnp.swapaxes(hessians, -1, -2), 1e-10)
    h = 1e-4 * jnp.eye(2)
    expected = jnp.stack([jnp.stack([(slope(x + d) - slope(x - d)) / 2e-4 for d in h]) for x in points])
    close(hessians, expected, 1e-6)


def test_light_from_the_other_end_jumps_and_single_precision(x64):
    """Special points on the way: a jump between grid times, a dark field, no light at all at the start."""
    control = {"counter_propagating": True, "rabi_freq_t_func": "square", "rabi_freq": 1.0,
               "rabi_freq_t_args": {"ampl": 1.0, "on": -0.47, "off": 0.5}}  # fmt: skip
    problem = lambda_system(control=control, probe={"rabi_freq": 0.0}, t_min=-1.0, t_max=1.0, t_steps=10, z_steps=2)
    found = {}
    for dtype in ("float32", "float64"):
        solve = Solve(problem, {}, dtype=dtype)
        along = jax.tree.map(jnp.ones_like, solve.point)
        found[dtype] = jax.jit(forward_over_reverse(solve, along))(solve.point)[1]
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(found[dtype]))
    close(found["float32"], found["float64"], 1e-4)


def test_whole_blocks_of_levels(x64):
    solve = Solve(TWO_LEVEL, TWO_LEVEL_PARAMETERS)
    along = random_like(solve.point, 1)
    hessians = []
    for unrolled in (True, False):
        structure = dataclasses.replace(solve.program.structure, unrolled=unrolled)
        solve.program = dataclasses.replace(solve.program, structure=structure)
        hessians.append(jax.jit(forward_over_reverse(solve, along))(solve.point))
    close(hessians[1], hessians[0], 1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "args"), CASES)
def test_second_derivatives_of_pulses(name, args, dtype, x64):
    """Finite at the centre, at edges, far out and where powers of the width overflow; right where they are smooth."""
    times = jnp.asarray([-1e6, -100.0, -1.0, 0.0, 0.3, 0.3 + 1e-7, 2.0, 4.5, 1e6], dtype)
    forward, reverse = (
        jax.jit(f(jax.jacrev(lambda a, t: pulses.evaluate(name, a, t)))) for f in (jax.jacfwd, jax.jacrev)
    )
    width = next((key for key in ("fwhm", "width") if key in args), None)
    for value in (1e-12 if "n_pi" in args else 1e-18, 1e-6, 0.025, 1.0, 1e6) if width else (None,):
        given = {k: jnp.asarray(value if k == width else v, dtype) for k, v in args.items()}
        one, other = forward(given, times), reverse(given, times)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            assert np.all(np.isfinite(a))
            assert np.all(np.isfinite(b))
            assert a.dtype == dtype
    if dtype == np.float64:
        given, h = jax.tree.map(jnp.asarray, args), 1e-4
        slope, times = jax.jacrev(lambda a, t: pulses.evaluate(name, a, t)), times[2:-1]
        hessian = jax.jacfwd(slope)(given, times)
        for key in {width, "centre", "ampl", "n_pi"} & given.keys():
            up, down = (slope(given | {key: given[key] + s}, times) for s in (h, -h))
            for row, value in hessian.items():
                np.testing.assert_allclose(value[key], (up[row] - down[row]) / (2 * h), rtol=1e-5, atol=1e-6)


def test_what_has_no_such_derivatives_says_so(x64):
    solve = Solve(TWO_LEVEL, {}, solver=diffrax.HalfSolver(diffrax.Tsit5()))
    with pytest.raises(NotYetError, match=r"`solver` must not be a HalfSolver .* take the method itself"):
        jax.grad(solve.number)(solve.point)
    with pytest.raises(ProblemError, match="`derivatives` must be one of 'reverse', 'forward', 'any', but is 'all'"):
        solve(solve.point, "all")
    with pytest.raises(ProblemError, match="`mode` must be one of"):
        propagate(TWO_LEVEL, mode="both")
    with pytest.raises(ProblemError, match=r"`strategy` must be \"s2\" or \"s3\" with mode=\"any\""):
        propagate(TWO_LEVEL, scheme="march", mode="any", strategy="s4", checkpoints=3)


def test_mode_of_propagate(x64):
    def energy(g, mode):
        s = propagate(TWO_LEVEL, {"interaction_strengths": g}, resolution=AT, tol=1.0, mode=mode)
        return jnp.sum(jnp.abs(s.fields) ** 2)

    one = jnp.ones(1)
    second = jax.jit(jax.hessian(lambda g: energy(g, "any")))(one)
    up, down = (jax.grad(energy)(one + s, "reverse") for s in (1e-4, -1e-4))
    np.testing.assert_allclose(second[0], (up - down) / 2e-4, rtol=1e-6)
