"""Dense collapse operators against the dense master equation, whose solution is a matrix exponential."""

import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.linalg import expm, expm_frechet

from jax_kernel import Problem, ProblemError, Resolution, doppler, propagate
from jax_kernel.prepare import structure_of
from tests.jax_kernel.test_generator import dissipated
from torch_clerq import TorchPropagator
from torch_clerq.limits import optical_depth

AT = Resolution(6, 96)
RATES, SCALE, DETUNING = np.array([0.11, 0.07, 0.13]), 1.2, 0.3


def problem_of(levels, decays, *, pairs=((0, 1),), start=None, rabi=0.8, detuning=0.0, **top) -> Problem:
    """Atoms that do not change the light, which is constant."""
    fields = [
        {"coupled_levels": [list(pair)], "rabi_freq": rabi, "detuning": detuning, "rabi_freq_t_func": "square",
         "rabi_freq_t_args": {"ampl": 1.0, "on": -1.0, "off": 9.0}}
        for pair in pairs
    ]  # fmt: skip
    system = {"num_states": levels, "fields": fields, "decays": list(decays), "initial_state": start}
    return Problem.from_dict({"system": system, "t_max": 1.5, "t_steps": 15, "z_steps": 1} | top)


def random_matrix(rng, levels):
    return rng.normal(size=(levels, levels)) + 1j * rng.normal(size=(levels, levels))


def random_state(rng, levels):
    root = random_matrix(rng, levels)
    return root @ root.conj().T / np.trace(root @ root.conj().T).real


def as_matrix(change, levels):
    """The matrix of a linear map of density matrices."""
    return np.stack([change(unit.reshape(levels, levels)).ravel() for unit in np.eye(levels**2)], -1)


class Master(NamedTuple):
    """A dense master equation: dρ/dt = (commutator + Σ rate · dissipator) ρ, each a matrix on vec ρ."""

    commutator: np.ndarray
    dissipators: np.ndarray

    def generator(self, rates):
        return self.commutator + np.tensordot(rates, self.dissipators, 1)


def master_of(problem: Problem, rabi) -> Master:
    """From the written problem, by the equations in the docstring of `propagate`."""
    system, levels = problem.to_dict()["system"], problem.num_states
    hamiltonian = np.zeros((levels, levels), complex)
    for field, drive in zip(system["fields"], rabi, strict=True):
        ((a, b),) = field["coupled_levels"]
        hamiltonian[a, b] += np.pi * drive
        hamiltonian[b, a] += np.pi * np.conj(drive)
        hamiltonian[b, b] -= 2 * np.pi * field["detuning"]

    def jumps(decay):
        if "operator" in decay:
            return [np.sqrt(2 * np.pi) * np.array(decay["operator"])]
        units = np.eye(levels**2).reshape((levels,) * 4)
        return [
            np.sqrt(2 * np.pi) * factor * units[a, b]
            for (a, b), factor in zip(decay["channels"], decay["factors"], strict=True)
        ]

    dissipators = [
        as_matrix(lambda rho, decay=decay: sum(dissipated(jump, rho) for jump in jumps(decay)), levels)
        for decay in system["decays"]
    ]
    return Master(as_matrix(lambda rho: -1j * (hamiltonian @ rho - rho @ hamiltonian), levels), np.array(dissipators))


def density_matrices(problem, params, **options):
    """ρ at every time, at the entrance."""
    return propagate(problem, params, outputs=("density_matrix",), resolution=AT, **options).density_matrix[0]


@pytest.mark.parametrize("levels", [2, 3, 4])
def test_random_operators(levels, x64):
    """A complex, a real and a sparse operator beside channels, and the gradient in rates, their scale and the drive."""
    rng = np.random.default_rng(levels)
    operators = [random_matrix(rng, levels) / levels, rng.normal(size=(levels, levels)) / levels]
    decays = [{"rate": 1.0, "operator": operator} for operator in operators]
    decays.append({"rate": 1.0, "channels": [[0, 1], [1, 1], [levels - 2, levels - 1]], "factors": [0.7, 0.4, 0.5]})
    pairs = [(0, 1), (0, 2), (2, 3)][: levels - 1]
    rabi = rng.normal(size=len(pairs)) + 1j * rng.normal(size=len(pairs))
    problem = problem_of(levels, decays, pairs=pairs, detuning=DETUNING)
    start = random_state(rng, levels)
    params = {
        "decay_rates": RATES,
        "decay_scale": SCALE,
        "rabi_freq": rabi,
        "initial_density_matrix": start[None, None],
    }
    found, transpose = jax.vjp(lambda p: density_matrices(problem, p), jax.tree.map(jnp.asarray, params))

    master = master_of(problem, rabi)
    generator = master.generator(SCALE * RATES)
    expected = [expm(generator * t) @ start.ravel() for t in problem.time]
    np.testing.assert_allclose(found.reshape(-1, levels**2), expected, rtol=0, atol=1e-9)

    weights = np.zeros(found.shape, complex)
    weights[-1] = random_matrix(rng, levels)
    bars = jax.tree.map(np.asarray, transpose(jnp.asarray(weights))[0])

    def slope(direction):
        moved = expm_frechet(1.5 * generator, 1.5 * direction, compute_expm=False) @ start.ravel()
        return (weights[-1].ravel() @ moved).real

    by_rate = np.array([slope(dissipator) for dissipator in master.dissipators])
    np.testing.assert_allclose(bars["decay_rates"], SCALE * by_rate, rtol=0, atol=1e-8)
    np.testing.assert_allclose(bars["decay_scale"], RATES @ by_rate, rtol=0, atol=1e-8)
    nothing = master_of(problem, 0 * rabi).commutator
    for k, unit in enumerate(np.eye(len(pairs))):
        parts = [slope(master_of(problem, phase * unit).commutator - nothing) for phase in (1, 1j)]
        np.testing.assert_allclose(bars["rabi_freq"][k], parts[0] - 1j * parts[1], rtol=0, atol=1e-8)


def element(levels, *places):
    operator = np.zeros((levels, levels), complex)
    for place, value in places:
        operator[place] = value
    return operator


def test_one_element_is_a_channel(x64):
    one = {"rate": 0.2, "channels": [[0, 1]], "factors": [0.6]}
    dephasing = {"rate": 0.3, "channels": [[2, 2]], "factors": [0.9]}
    same = [
        {"rate": 0.2, "operator": element(3, ((0, 1), 0.6j))},
        {"rate": 0.3, "operator": element(3, ((2, 2), -0.9))},
    ]
    classes = {"thermal_width": 0.1, "thermal_delta_min": -0.2, "thermal_delta_max": 0.2,
               "thermal_delta_spacing": "auto", "thermal_delta_echo_tolerance": 0.2}  # fmt: skip
    problems = [
        problem_of(3, decays, pairs=((0, 1), (2, 1)), t_max=30.0, velocity_classes=classes)
        for decays in ([one, dephasing], same)
    ]
    by_channel, by_operator = (structure_of(problem, "") for problem in problems)
    assert (by_channel.populations, by_channel.coherences) == (by_operator.populations, by_operator.coherences)
    np.testing.assert_allclose(*map(doppler.level_damping_rates, problems), rtol=1e-14)
    np.testing.assert_allclose(*(problem.doppler_shifts for problem in problems), rtol=1e-14)
    solutions = [
        density_matrices(problem_of(3, decays, pairs=((0, 1), (2, 1))), {}) for decays in ([one, dephasing], same)
    ]
    np.testing.assert_allclose(*solutions, rtol=0, atol=1e-13)
    assert np.abs(solutions[0][-1, 0, 2]) > 1e-3


def test_optical_depth_of_one_element_alone():
    def depth(*decays):
        return optical_depth(problem_of(2, decays, interaction_strengths=[0.7]))

    channel, element_ = {"rate": 0.2, "channels": [[0, 1]]}, {"rate": 0.2, "operator": element(2, ((0, 1), 1j))}
    assert depth(element_) == pytest.approx(depth(channel), rel=1e-14)
    assert depth(channel, {"rate": 0.1, "operator": np.diag([1.0, -1.0])}) is None


def trapped(time, rate):
    """ρ₁₁ and ρ₁₂ of a degenerate V whose levels 1 and 2 decay to 0 by one operator, from level 1.

    Half the population is in (|1> + |2>)/√2, which decays at twice the rate, half in (|1> − |2>)/√2, which is dark.
    """
    bright = np.exp(-2 * np.pi * rate * time)
    return (1 + bright) ** 2 / 4, (bright**2 - 1) / 4


def test_coherent_decay_generates_coherence(x64):
    """Two elements in one operator leave half of the population, and a coherence, where two channels leave nothing."""
    operator = element(3, ((0, 1), 1), ((0, 2), 1))
    both = problem_of(3, [{"rate": 0.3, "operator": operator}], start=[0, 1, 0], rabi=0.0)
    found, transpose = jax.vjp(lambda rate: density_matrices(both, {"decay_rates": rate}), jnp.array([0.3]))
    population, coherence = trapped(both.time, 0.3)
    np.testing.assert_allclose(found[:, 1, 1], population, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found[:, 1, 2], coherence, rtol=0, atol=1e-10)
    assert coherence[-1] < -0.2
    weights = np.zeros(found.shape, complex)
    weights[-1, 1, 1], weights[-1, 1, 2] = 1, 2
    bright = np.exp(-2 * np.pi * 0.3 * 1.5)
    slope = -2 * np.pi * 1.5 * bright * ((1 + bright) / 2 + 2 * bright / 2)
    np.testing.assert_allclose(transpose(jnp.asarray(weights))[0], [slope], rtol=1e-8)

    apart = problem_of(3, [{"rate": 0.3, "channels": [[0, 1], [0, 2]]}], start=[0, 1, 0], rabi=0.0)
    found = density_matrices(apart, {})
    np.testing.assert_allclose(found[:, 1, 1], np.exp(-2 * np.pi * 0.3 * both.time), rtol=0, atol=1e-10)
    assert not np.any(found[:, 1, 2])


def test_a_rate_of_zero_is_no_decay_and_has_a_gradient(x64):
    rng = np.random.default_rng(3)
    decays = [{"rate": 0.0, "operator": random_matrix(rng, 2)}, {"rate": 0.2, "channels": [[0, 1]]}]
    problem = problem_of(2, decays, rabi=0.9)
    found, transpose = jax.vjp(lambda rates: density_matrices(problem, {"decay_rates": rates}), jnp.array([0.0, 0.2]))
    start = np.diag([1.0, 0.0]).astype(complex).ravel()
    master = master_of(problem, [0.9])
    without = master.generator([0.0, 0.2])
    np.testing.assert_allclose(found.reshape(-1, 4), [expm(without * t) @ start for t in problem.time], atol=1e-9)
    still = problem_of(2, decays[1:], rabi=0.9)
    np.testing.assert_array_equal(density_matrices(still, {}), found)

    weights = np.zeros(found.shape, complex)
    weights[-1] = random_matrix(rng, 2)
    slope = expm_frechet(1.5 * without, 1.5 * master.dissipators[0], compute_expm=False) @ start
    gradient = transpose(jnp.asarray(weights))[0]
    np.testing.assert_allclose(gradient[0], (weights[-1].ravel() @ slope).real, rtol=1e-7)


def test_exponential_steps(x64):
    """Coherent decay is not on the diagonal that these steps treat exactly."""
    rng = np.random.default_rng(3)
    problem = problem_of(2, [{"rate": 0.1, "operator": random_matrix(rng, 2)}], rabi=0.9, detuning=2.0)
    found = density_matrices(problem, {}, solver="exponential")
    generator = master_of(problem, [0.9]).generator([0.1])
    start = np.diag([1.0, 0.0]).ravel()
    np.testing.assert_allclose(found.reshape(-1, 4), [expm(generator * t) @ start for t in problem.time], atol=1e-9)


LADDER = element(4, ((0, 1), 1), ((1, 2), 0.5j))
OPERATORS = {
    "coherent decay": element(3, ((0, 1), 1), ((0, 2), 1j)),
    "coherent dephasing": element(3, ((1, 1), 1), ((2, 2), 1)),
    "flip": element(2, ((0, 1), 1), ((1, 0), 1)),
    "ladder": LADDER,
    "ladder and dephasing": LADDER + element(4, ((3, 3), 0.7)),
    "dense": random_matrix(np.random.default_rng(5), 3),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_coherences_decay_at_least_as_fast_as_the_doppler_grid_takes_them_to(name):
    """Of each pair of levels, starting in its coherence alone; the sums of the levels' rates promise too much."""
    operator = OPERATORS[name]
    levels = len(operator)
    problem = problem_of(levels, [{"rate": 0.2, "operator": operator}])
    least = doppler.coherence_damping_rates(problem)
    (dissipator,) = master_of(problem, [0.0]).dissipators
    for time in (0.1, 1.0, 5.0):
        sizes = np.linalg.norm(expm(0.2 * dissipator * time), axis=0).reshape(levels, levels)
        assert np.all(sizes <= np.exp(-least * time) + 1e-12)
    sums = np.add.outer(*[doppler.level_damping_rates(problem)] * 2)
    assert np.all(least <= sums + 1e-12)
    assert np.all(least >= 0)


def test_what_stays_dark_narrows_the_doppler_grid():
    """By one operator the difference of levels 1 and 2 keeps its coherence with level 0, whose echo must come late."""
    window = {"t_max": 20.0, "t_steps": 80}
    coherent = {"rate": 1.0, "operator": OPERATORS["coherent decay"]}
    apart = {"rate": 1.0, "channels": [[0, 1], [0, 2]]}
    spacings = [
        doppler.auto_spacing(problem_of(3, decays, pairs=((0, 1), (0, 2)), **window), thermal_width=0.1)
        for decays in ([], [coherent], [apart])
    ]
    assert spacings[0] == spacings[1] < spacings[2]


def test_gradcheck_in_torch():
    rng = np.random.default_rng(4)
    decays = [{"rate": 0.2, "operator": random_matrix(rng, 3) / 2}, {"rate": 0.1, "operator": np.eye(3)[[1, 0, 2]]}]
    problem = problem_of(3, decays, pairs=((0, 1), (1, 2)), rabi=0.9, interaction_strengths=[0.4, 0.3])
    layer = TorchPropagator(
        problem, trainable=("decay_rates",), dtype=torch.float64, resolution=Resolution(4, 2), tol=1
    )

    def seen(rates):
        out = torch.func.functional_call(layer, {"decay_rates": rates})
        return out[:, 1, ::5]

    rates = layer.decay_rates.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(seen, rates, atol=1e-7, rtol=1e-5)
    assert seen(rates).abs().sum().backward() is None
    assert rates.grad.abs().min() > 1e-3


COHERENT = {"rate": 0.3, "operator": [[0, 0.5, 1j], [0, 0, 0], [0, 0, 0]]}


def test_round_trip():
    problem = problem_of(3, [COHERENT, {"rate": 0.1, "operator": np.eye(3)}])
    again = Problem.from_dict(problem.to_dict())
    assert again == problem
    assert again.decays[0].operator == ((0.0, 0.5, 1j), (0.0,) * 3, (0.0,) * 3)
    assert again.to_dict()["system"]["decays"][0] == COHERENT


def test_files_have_real_operators_only(tmp_path):
    path = tmp_path / "problem.json"
    with pytest.raises(ProblemError, match=r"`system\.decays\[0\]\.operator` must be real in a file, but is complex"):
        problem_of(3, [COHERENT]).to_json(path)
    assert not path.exists()
    real = problem_of(3, [COHERENT | {"operator": np.triu(np.ones((3, 3)), 1)}])
    real.to_json(path)
    assert json.loads(path.read_text())["system"]["decays"][0]["operator"] == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert Problem.from_json(path) == real


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"operator": [[0, 1]]}, r"decays\[0\]\.operator` must be a matrix of 2 rows of 2 numbers, but is \[\[0, 1\]\]"),
    ({"operator": [[0, 1], [0]]}, r"operator` must be a matrix of 2 rows of 2 numbers"),
    ({"operator": np.eye(3)}, r"operator` must be a matrix of 2 rows of 2 numbers"),
    ({"operator": [0, 1]}, r"operator` must be a matrix of 2 rows of 2 numbers, but is \[0, 1\]"),
    ({"operator": 5}, r"operator` must be a list, but is 5"),
    ({"operator": [[0, 0], [0, 0]]}, r"operator` must have an element that is not 0, but is 0"),
    ({"operator": [[0, float("nan")], [0, 0]]}, r"operator\[0\]\[1\]` must be finite, but is nan"),
    ({"operator": [[0, "1"], [0, 0]]}, r'operator\[0\]\[1\]` must be a number, but is "1"'),
    ({"operator": np.eye(2), "channels": [[0, 1]]}, r"channels` must be absent where `operator` is given, but is"),
    ({"operator": np.eye(2), "factors": [1.0]}, r"factors` must be absent where `operator` is given, but is \[1\.0\]"),
    ({"rate": -1.0, "operator": np.eye(2)}, r"rate` must be at least 0, but is -1"),
]  # fmt: skip


@pytest.mark.parametrize(("decay", "message"), REFUSALS)
def test_refused(decay, message):
    with pytest.raises(ProblemError, match=message) as caught:
        problem_of(2, [{"rate": 1.0} | decay])
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
