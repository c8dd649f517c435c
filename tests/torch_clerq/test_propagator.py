"""TorchPropagator as a layer: parameters, state, training, outputs."""

import copy
import io
import logging
import pickle

import jax
import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import nn

from jax_kernel import ProblemError, Resolution, ResolutionWarning, pulses
from tests.conftest import lambda_system, two_level
from tests.torch_clerq.conftest import GRID, SMALL
from torch_clerq import Positive, TorchPropagator, functional, propagate

F32, F64, C64, C128 = torch.float32, torch.float64, torch.complex64, torch.complex128

PROBLEM = two_level(g=1.5, rabi_freq=0.7, rate=0.0, **GRID)
TRAINED = ("interaction_strengths", "decay_rates")


def layer(trainable=TRAINED, problem=PROBLEM, **options):
    return TorchPropagator(problem, trainable=trainable, **SMALL | {"dtype": F64} | options)


def energy_left(fields):
    return fields[..., 0, -1, :].abs().square().sum()


@pytest.fixture
def compilations(caplog):
    """A function that counts the programs compiled by a call."""

    def count(run):
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            run()
        return [r.getMessage() for r in caplog.records if "Compiling jit" in r.getMessage()]

    return count


# precision and devices


def test_precision_follows_torchs_default_and_the_modules_own(unwatched):
    assert TorchPropagator(PROBLEM, **SMALL).dtype == F32
    try:
        torch.set_default_dtype(F64)
        assert TorchPropagator(PROBLEM, **SMALL).dtype == F64
    finally:
        torch.set_default_dtype(F32)
    module = layer(dtype=F32)
    assert (module().dtype, module.interaction_strengths.dtype, module.time.dtype) == (C64, F32, F32)
    assert module.double() is module
    assert (module().dtype, module.interaction_strengths.dtype, module.z.dtype) == (C128, F64, F64)
    assert module.float()().dtype == C64


def test_a_complex_parameter_stays_complex():
    module = layer("rabi_freq", problem=two_level(rabi_freq=0.7 + 0.1j, **GRID))
    start = module.rabi_freq.detach().clone()
    for change, dtype in (
        (lambda m: m.float(), C64),
        (lambda m: m.double(), C128),
        (lambda m: m.to(F32), C64),
        (lambda m: m.to(F64), C128),
    ):
        assert change(module).rabi_freq.dtype == dtype
        torch.testing.assert_close(module.rabi_freq.detach().to(C128), start, rtol=1e-6, atol=0)
        assert isinstance(module.rabi_freq, nn.Parameter)


def test_a_wide_input_is_not_narrowed(unwatched):
    wave = torch.ones(1, 41, dtype=F64)
    assert TorchPropagator(PROBLEM, dtype=F32, **SMALL)(wave).dtype == C128
    assert TorchPropagator(PROBLEM, dtype=F64, **SMALL)(wave.float()).dtype == C128


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype):
    with pytest.raises(ProblemError, match=f"`dtype` must be torch.float32 or torch.float64, .* is {dtype}"):
        layer().to(dtype)(torch.zeros(1, 41, dtype=F64))


def test_grids_are_buffers():
    module = layer()
    assert {name for name, _ in module.named_buffers()} == {"time", "z"}
    np.testing.assert_array_equal(module.time, PROBLEM.time)
    np.testing.assert_array_equal(module.z, PROBLEM.z)
    assert set(module.state_dict()) == set(TRAINED)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scheme": "cros"}, ProblemError, "`scheme` must be one of"),
        ({"scheme": "march", "memory": "lean"}, ProblemError, "`memory` must be left out"),
        ({"step": "ab"}, ProblemError, '`step` must be left out unless scheme="march"'),
        ({"memory": 1}, ProblemError, "`memory` must be one of"),
        ({"tol": -1.0}, ProblemError, "`tol` must be positive"),
        ({"rtol": 0.0}, ProblemError, "`rtol` must be positive"),
        ({"resolution": 8}, ProblemError, "`resolution` must be a Resolution"),
        ({"resolution": np.ones(2)}, ProblemError, "`resolution` must be a Resolution"),
        ({"dtype": torch.int32}, ProblemError, "`dtype` must be torch.float32 or torch.float64"),
        ({"problem": {}}, ProblemError, "`problem` must be a Problem"),
    ],
)
def test_wrong_options_are_refused_at_once(options, error, message):
    with pytest.raises(error, match=message):
        layer(**options)


def test_a_parametrised_parameter_reads_and_sets_its_physical_value():
    module = layer({"interaction_strengths": Positive(), "detunings": None})
    torch.testing.assert_close(module.interaction_strengths, torch.tensor([1.5], dtype=F64))
    raw = module.raw_interaction_strengths
    for value in (0.25, [0.25], torch.tensor([0.25]), nn.Parameter(torch.tensor([0.25]))):
        module.interaction_strengths = 7.0
        module.interaction_strengths = value
        torch.testing.assert_close(module.interaction_strengths.detach(), torch.tensor([0.25], dtype=F64))
    module.detunings = 0.5
    assert module.detunings.item() == 0.5
    assert module.raw_interaction_strengths is raw
    assert [name for name, _ in module.named_parameters()] == ["raw_interaction_strengths", "detunings"]
    assert isinstance(module.detunings, nn.Parameter)
    module.detunings = nn.Parameter(torch.ones(1, dtype=F64))  # as everywhere in torch
    assert module.detunings.item() == 1.0
    assert set(module.physical_parameters()) == {"interaction_strengths", "detunings"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("interaction_strengths", -1.0, "must start from positive values"),
        ("interaction_strengths", [1.0, 2.0], r"`interaction_strengths` must have shape \(1,\), but has shape \(2,\)"),
        ("interaction_strengths", "strong", "`interaction_strengths` must be a tensor or an array of numbers"),
        ("detunings", 1j, "`detunings` must be real"),
    ],
)
def test_values_that_cannot_be_set(name, value, message):
    module = layer({"interaction_strengths": Positive(), "detunings": None})
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(ProblemError, match=message):
        setattr(module, name, value)
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())


def test_a_trainable_parameter_is_not_given_twice():
    with pytest.raises(ProblemError, match="`decay_rates` must be left out of the call, where it is a trainable"):
        layer()(decay_rates=[1.0])
    with pytest.raises(ProblemError, match="`pulse_args` must be left out of the call"):
        layer("pulse_args")(pulse_args=[{}])


# the layer in a model


def test_forward_is_propagate_at_the_modules_values(unwatched):
    module = layer()
    module.interaction_strengths = 0.8
    module.decay_rates = 0.3
    given = {"interaction_strengths": module.interaction_strengths, "decay_rates": module.decay_rates}
    assert torch.equal(module(), propagate(PROBLEM, **given, **SMALL))
    with torch.no_grad():
        assert not module().requires_grad


def test_gradients_reach_the_raw_parameter(unwatched):
    plain, raw = layer(), layer({"interaction_strengths": Positive(), "decay_rates": None})
    for module in (plain, raw):
        energy_left(module()).backward()
    chain = torch.sigmoid(raw.raw_interaction_strengths.detach())
    torch.testing.assert_close(raw.raw_interaction_strengths.grad, plain.interaction_strengths.grad * chain)
    torch.testing.assert_close(raw.decay_rates.grad, plain.decay_rates.grad)


class Control(nn.Module):
    """A trainable Gaussian."""

    def __init__(self):
        super().__init__()
        self.width = nn.Parameter(torch.tensor(0.7, dtype=F64))
        self.register_buffer("time", torch.as_tensor(PROBLEM.time))

    def forward(self, scale):
        return scale * torch.exp(-((self.time / self.width) ** 2))[None]


def test_behind_a_control_in_a_sequential(unwatched):
    model = nn.Sequential(Control(), layer(()))
    scale = torch.tensor(0.5, dtype=F64, requires_grad=True)
    fields = model(scale)
    assert fields.shape == (1, 5, 41)
    torch.testing.assert_close(fields[:, 0], model[0](scale) + 0j)
    energy_left(fields).backward()
    assert scale.grad.abs() > 0
    assert model[0].width.grad.abs() > 0


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own look at it
def test_under_torch_compile(unwatched):
    model = nn.Sequential(Control(), layer(()))
    scale = torch.tensor(0.5, dtype=F64, requires_grad=True)
    (right,) = torch.autograd.grad(energy_left(model(scale)), scale)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]  # of all tests in this process
    compiled = torch.compile(lambda scale: energy_left(model(scale)), backend="aot_eager", fullgraph=True)
    for _ in range(2):
        (found,) = torch.autograd.grad(compiled(scale), scale)
        torch.testing.assert_close(found, right)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 1


def test_functional_call_swaps_every_parameter(unwatched):
    module = layer({"interaction_strengths": Positive(), "decay_rates": None})
    other = {"raw_interaction_strengths": torch.zeros(1, dtype=F64), "decay_rates": torch.ones(1, dtype=F64)}
    fields = torch.func.functional_call(module, other, ())
    given = {"interaction_strengths": torch.full((1,), np.log(2.0), dtype=F64), "decay_rates": other["decay_rates"]}
    torch.testing.assert_close(fields, propagate(PROBLEM, **given, **SMALL))
    loss = lambda values: energy_left(torch.func.functional_call(module, values, ()))  # noqa: E731
    found = torch.func.grad(loss)(other)
    leaves = {name: value.clone().requires_grad_() for name, value in other.items()}
    right = torch.autograd.grad(loss(leaves), list(leaves.values()))
    torch.testing.assert_close(list(found.values()), list(right))


def test_hooks(unwatched):
    module, seen = layer(()), []
    module.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    module.register_full_backward_hook(lambda module, *grads: seen.extend(grad[0].shape for grad in grads))
    energy_left(module(torch.ones(1, 41, dtype=F64, requires_grad=True))).backward()
    assert seen == [(1, 5, 41), (1, 41), (1, 5, 41)]


def test_repr_says_what_is_solved_trained_and_how():
    text = repr(layer(resolution="auto"))
    assert "2 levels" in text
    assert "trainable=['interaction_strengths', 'decay_rates'], resolution=auto, dtype=torch.float64" in text
    assert "resolution=Resolution(z_nodes=6, t_substeps=1)" in repr(layer())


# copies


def saved(module):
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def state_dict(module):
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    other = layer({"interaction_strengths": Positive(), "decay_rates": None})
    other.load_state_dict(torch.load(buffer, weights_only=True))
    return other


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "torch.save": saved,
    "state_dict": state_dict,
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_equal_independent_and_share_their_executables(name, compilations):
    module = layer({"interaction_strengths": Positive(), "decay_rates": None})
    module.interaction_strengths = 0.6
    fields = module()
    energy_left(fields).backward()
    other = COPIES[name](module)

    def run():
        found = other()
        assert torch.equal(found, fields)
        energy_left(found).backward()

    assert compilations(run) == []
    assert other.resolution == module.resolution
    other.interaction_strengths = 5.0
    assert module.interaction_strengths.item() == pytest.approx(0.6)


def test_other_numbers_run_the_same_executables(unwatched, compilations):
    other = two_level(g=0.9, rabi_freq=0.2, rate=1.3, detuning=0.4, **GRID | {"t_max": 5.0})
    energy_left(layer()()).backward()
    assert compilations(lambda: energy_left(layer(problem=other)()).backward()) == []
    assert len(compilations(lambda: layer(problem=other, resolution=Resolution(7, 1))())) == 1


# training


def test_training_a_rate_from_zero_keeps_shapes_and_executables(unwatched, compilations):
    module = layer()
    module.decay_rates = 0.5
    target = module().detach()
    module.decay_rates = 0.0
    optimiser = torch.optim.Adam([module.decay_rates], lr=0.1)
    losses = []

    def step():
        optimiser.zero_grad()
        fields = module()
        assert fields.shape == target.shape
        loss = (fields - target).abs().square().sum()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())

    step()
    assert compilations(lambda: [step() for _ in range(5)]) == []
    assert losses == sorted(losses, reverse=True)
    assert module.decay_rates.item() > 0.3


def test_a_rate_that_an_optimiser_makes_negative_raises(unwatched):
    module = layer()
    optimiser = torch.optim.SGD(module.parameters(), lr=1.0)
    (module.decay_rates.sum() * 0.1).backward()
    optimiser.step()
    with pytest.raises(ProblemError, match=r"`decay_rates` must be nonnegative, but has -0\.1"):
        module()


# the resolution


def test_auto_is_found_at_the_first_call_and_kept(monkeypatch):
    searched, resolve = [], functional.Request.resolve
    monkeypatch.setattr(
        functional.Request, "resolve", lambda self, *args, **kw: searched.append(self) or resolve(self, *args, **kw)
    )
    module = TorchPropagator(PROBLEM, dtype=F64, tol=1e-3)
    assert module.resolution is None
    fields = module()
    found = module.resolution
    assert type(found.z_nodes) is type(found.t_substeps) is int
    assert max(searched[0].errors(found)) < 1e-3
    other = pickle.loads(pickle.dumps(module))
    for again in (module, other):
        assert torch.equal(again(), fields)
        assert again.resolution == found
    assert len(searched) == 1


def test_a_poor_resolution_warns_once(fresh_watches):
    module = layer(tol=1e-9)
    with pytest.warns(ResolutionWarning, match=r"raise `z_nodes` above 6 .* and `t_substeps` above 1 "):
        module()
    module()
    module.solve()


def test_estimates_are_made_at_calls_that_double(monkeypatch):
    estimated, call = [], 0
    monkeypatch.setattr(functional.Request, "errors", lambda *_: estimated.append(call) or (0.0, 0.0))
    module = layer()
    for call in range(1, 18):  # noqa: B007
        module()
    assert estimated == [1, 2, 4, 8, 16]


# the state of the medium

SHIFTS = {"thermal_delta_min": -0.8, "thermal_delta_max": 0.8, "thermal_delta_steps": 2, "thermal_width": 0.6}
MEDIUM = lambda_system(
    probe={"rabi_freq": 0.4 + 0.2j, "detuning": 0.3, "factors": [0.9]},
    control={"rabi_freq": 0.7, "detuning": -0.2, "factors": [-0.8], "detuning_positive": False},
    system={"energies": [0.0, 0.2, 0.1], "initial_state": [0.6, 0.0, 0.4]},
    velocity_classes=SHIFTS,
    **GRID,
)
OUTPUTS = ("density_matrix", "populations", "coherences")


PARAMS = {"interaction_strengths": torch.tensor([1.5, 1.0], dtype=F64)}


def states(problem=MEDIUM, **params):
    module = TorchPropagator(problem, dtype=F64, resolution=Resolution(8, 4), tol=1.0)
    return module.solve(outputs=OUTPUTS, **params)


@pytest.fixture(scope="module")
def solution():
    return states(**PARAMS)


def test_shapes_and_laws_of_the_state(solution):
    rho = solution.density_matrix
    assert rho.shape == (5, 41, 3, 3)
    assert solution.populations.shape == (5, 41, 3)
    assert solution.coherences.shape == solution.fields.shape == (2, 5, 41)
    assert (solution.z.shape, solution.time.shape) == ((5,), (41,))
    assert solution.z_error.shape == solution.time_error.shape == ()
    torch.testing.assert_close(rho, rho.mH, rtol=0, atol=1e-15)
    torch.testing.assert_close(rho.diagonal(dim1=-2, dim2=-1).sum(-1), torch.ones(5, 41, dtype=C128))
    torch.testing.assert_close(rho.diagonal(dim1=-2, dim2=-1), solution.populations + 0j)
    torch.testing.assert_close(rho[:, 0], torch.diag(torch.tensor([0.6, 0, 0.4], dtype=C128)).expand(5, 3, 3))
    for field, (a, b, factor) in enumerate([(0, 1, 0.9), (2, 1, -0.8)]):
        torch.testing.assert_close(solution.coherences[field], factor * rho[..., a, b])
    assert (torch.linalg.eigvalsh(rho) > -1e-6).all()
    assert "density_matrix (5, 41, 3, 3) complex128, populations (5, 41, 3) float64" in repr(solution)


def test_what_is_not_asked_for_is_not_there(unwatched):
    solution = layer().solve()
    assert solution.fields.shape == (1, 5, 41)
    assert solution.density_matrix is solution.populations is solution.coherences is None
    assert "states      not asked for" in repr(solution)
    for outputs, has in (("population", "'population'"), (["populations", 3], "3"), (5, "5")):
        with pytest.raises(ProblemError, match=f"`outputs` must have names among density_matrix, .*has {has}"):
            layer().solve(outputs=outputs)


def driven_system(shift):
    """The state of one atom under the entrance fields, from the equations of the documentation."""
    energies = np.array([0.0, 0.2, 0.1])
    probe, control = MEDIUM.fields
    energies[1] -= (probe.detuning + shift) - (control.detuning + shift)
    jumps = [0.7 * np.sqrt(2 * np.pi) * np.outer(np.eye(3)[to], np.eye(3)[1]) for to in (0, 2)]

    def slope(t, y):
        rho = y.reshape(3, 3)
        hamiltonian = 2 * np.pi * np.diag(energies).astype(complex)
        for field, (a, b) in ((probe, (0, 1)), (control, (2, 1))):
            args = {key: np.asarray(value) for key, value in field.envelope.args}
            with jax.enable_x64(True):
                rabi = field.rabi_freq * complex(pulses.evaluate(field.envelope.name, args, np.float64(t)))
            hamiltonian[a, b] += np.pi * field.factors[0] * rabi
            hamiltonian[b, a] += np.pi * field.factors[0] * np.conj(rabi)
        change = -1j * (hamiltonian @ rho - rho @ hamiltonian)
        for c in jumps:
            change += c @ rho @ c.T - (c.T @ c @ rho + rho @ c.T @ c) / 2
        return change.ravel()

    start = np.diag(np.array([0.6, 0.0, 0.4], complex)).ravel()
    run = solve_ivp(slope, (MEDIUM.t_min, MEDIUM.t_max), start, t_eval=MEDIUM.time, rtol=1e-7, atol=1e-9)
    return run.y.T.reshape(-1, 3, 3)


def test_the_first_state_is_that_of_a_single_driven_atom(solution):
    right = sum(w * driven_system(s) for w, s in zip(MEDIUM.doppler_weights, MEDIUM.doppler_shifts, strict=True))
    assert (solution.density_matrix[0] - torch.as_tensor(right)).abs().max() < 2e-6


DOPPLER = two_level(velocity_classes=SHIFTS, **GRID)


def test_gradients_through_the_state(unwatched):
    names = ("interaction_strengths", "rabi_freq", "detunings", "thermal_width")
    starts = (torch.tensor(values, dtype=F64, requires_grad=True) for values in ([1.5], [0.7], [0.3], 0.6))

    def seen(*tensors):
        solution = states(DOPPLER, **dict(zip(names, tensors, strict=True)))
        seen = (solution.density_matrix.flatten(2), solution.populations + 0j, solution.coherences.movedim(0, -1))
        return torch.cat(seen, -1)[1::3, 9::16]  # one output, so that there is one program

    assert torch.autograd.gradcheck(seen, tuple(starts), atol=1e-7, rtol=1e-5)


def test_states_of_a_batch():
    batch = states(DOPPLER, interaction_strengths=torch.tensor([[0.0], [1.5]], dtype=F64))
    assert batch.z_error.shape == batch.time_error.shape == (2,)
    assert batch.density_matrix.shape == (2, 5, 41, 2, 2)
    assert batch.populations.shape == (2, 5, 41, 2)
    assert batch.coherences.shape == (2, 1, 5, 41)
    unchanged, absorbed = batch.density_matrix
    torch.testing.assert_close(unchanged, unchanged[:1].expand(5, 41, 2, 2))
    torch.testing.assert_close(unchanged[0], absorbed[0])
    assert (unchanged[-1] - absorbed[-1]).abs().max() > 1e-6
