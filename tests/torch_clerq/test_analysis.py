"""Areas, photons, populations, spin waves and the lab frame: closed forms, clerq's own functions, gradients."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from jax_kernel.medium import optical_path
from tests.conftest import ROOT, lambda_system, two_level
from torch_clerq import ProblemError, Resolution, TorchPropagator, spectra
from torch_clerq.analysis import (
    coherences,
    interpolate,
    lab_fields,
    lab_time,
    medium_integral,
    photon_number,
    populations,
    pulse_area,
    spin_wave,
    stored_excitations,
)

Z = torch.linspace(0.0, 1.0, 4, dtype=torch.float64)
TIME = torch.linspace(0.0, 3.0, 13, dtype=torch.float64)


def random(*shape, dtype=torch.complex128, seed=0):
    values = torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    return values.requires_grad_()


def as_clerq(fields=None, *, density_matrix=None):
    """What clerq's functions read of a solver: angular fields, grids, states."""
    angular = None if fields is None else 2 * np.pi * fields.detach().numpy()
    grids = {"tlist": TIME.numpy(), "zlist": Z.numpy(), "z_max": float(Z[-1]), "t_max": float(TIME[-1])}
    states = None if density_matrix is None else density_matrix.detach().numpy()
    return SimpleNamespace(_Omegas_zt=angular, states_zt=states, **grids)


def clerq_solver():
    return pytest.importorskip("clerq").PropagationSolver


# Fields


@pytest.mark.parametrize("part", ["abs", "real"])
def test_area_of_a_sech_is_what_it_says(part):
    time = torch.linspace(-25.0, 25.0, 501, dtype=torch.float64)
    area = pulse_area(1.5 / (2 * math.pi * time.cosh()) * torch.ones(2, 1), time, part=part)
    assert torch.allclose(area, torch.tensor(1.5 * math.pi, dtype=torch.float64), rtol=1e-9)
    chirped = pulse_area(1j / time.cosh(), time, part=part)
    assert (chirped > 1) if part == "abs" else (chirped == 0)


def test_area_is_that_of_clerq():
    fields = random(2, 4, 13)
    expected = clerq_solver().fields_area(as_clerq(fields))
    assert np.allclose(pulse_area(fields, TIME, part="real").detach(), expected, rtol=1e-13)


def test_area_of_darkness_has_a_gradient():
    dark = torch.zeros(5, dtype=torch.complex64, requires_grad=True)
    pulse_area(dark, torch.linspace(0, 1, 5)).backward()
    assert torch.equal(dark.grad, torch.zeros_like(dark))


def test_refuses_what_it_cannot_mean():
    fields, states = torch.ones(1, 4, 13), torch.eye(3)
    with pytest.raises(ProblemError, match='Argument `part` must be "abs" or "real", but is \'imag\''):
        pulse_area(fields, TIME, part="imag")
    with pytest.raises(ProblemError, match="such a field exchanges no photons"):
        photon_number(fields, TIME, torch.tensor([0.0]))
    for level in (3, -1):
        with pytest.raises(ProblemError, match=f"`levels` must have levels from 0 to 2, but has {level}"):
            populations(states, [0, level])
    with pytest.raises(ProblemError, match="`coupled_levels` must have levels from 0 to 2, but has 5"):
        coherences(states, [(0, 1), (5, 1)])
    with pytest.raises(ProblemError, match=r"`at` must be in the window from 0 to 3, but is 3\.5"):
        spin_wave(torch.ones(4, 13, 2, 2), TIME, (0, 1), at=3.5)
    for speed in (0.0, -1.0, math.nan):
        with pytest.raises(ProblemError, match="`speed_of_light` must be positive"):
            lab_fields(fields, Z, TIME, speed)


# States


def test_states_are_those_of_clerq():
    states = random(4, 13, 3, 3)
    solver, theirs = clerq_solver(), as_clerq(density_matrix=states)
    assert np.array_equal(coherences(states, [(0, 1), (2, 1)]).detach(), solver.coherences(theirs, [[0, 1], [2, 1]]))
    physical = states @ states.mH
    theirs = as_clerq(density_matrix=physical)
    assert np.allclose(populations(physical, [1, 2]).detach(), solver.populations(theirs, [1, 2]), rtol=1e-14)


@pytest.fixture(scope="module")
def stored():
    """A Λ memory that holds a pulse, with its density matrices."""
    problem = lambda_system(
        control={"rabi_freq_t_func": "ramp_off", "rabi_freq_t_args": {"ampl": 1.0, "fwhm": 0.4, "off": 0.5}},
        t_steps=80, t_max=3.0, z_steps=16, g=(4.0, 4.0),
    )  # fmt: skip
    layer = TorchPropagator(problem, dtype=torch.float64, resolution=Resolution(16, 6), tol=1e-2,
                            trainable=("interaction_strengths", "decay_rates"))  # fmt: skip
    return problem, layer, layer.solve(outputs=("density_matrix",))


def test_photons_are_balanced(stored):
    problem, layer, solution = stored
    path = torch.as_tensor(optical_path(problem))
    photons = photon_number(solution.fields, solution.time, layer.interaction_strengths).sum(0)
    excited = populations(solution.density_matrix, [1])
    rate = layer.decay_rates[0] * 2 * 0.7**2
    lost = torch.trapezoid(2 * math.pi * rate * excited, solution.time)
    held = medium_integral(excited[:, -1] - excited[:, 0] + lost, path)
    absorbed = photons[0] - photons[-1]
    entered = photon_number(solution.fields, solution.time, layer.interaction_strengths)[0, 0].detach()
    assert abs(absorbed - held) < 2e-3 * entered  # the trapezoidal rule on 16 intervals
    assert held > 0.1 * entered
    by_photons, by_atoms = (
        torch.autograd.grad(x, list(layer.parameters()), retain_graph=True) for x in (absorbed, held)
    )
    for one, other in zip(by_photons, by_atoms, strict=True):
        assert torch.allclose(one, other, atol=2e-3 * float(entered))


def test_spin_wave_holds_the_light(stored):
    problem, layer, solution = stored
    path = torch.as_tensor(optical_path(problem))
    wave = spin_wave(solution.density_matrix, solution.time, (0, 2), at=2.513)
    held = stored_excitations(wave, path)
    in_level = medium_integral(populations(solution.density_matrix, [2])[:, 73], path)
    assert 0.9 < held / in_level < 1  # some atoms have come by spontaneous emission
    photons = photon_number(solution.fields, solution.time, layer.interaction_strengths)[0]
    assert 0.1 < held / photons[0] < 1 - photons[-1] / photons[0]
    on_grid = spin_wave(solution.density_matrix, solution.time, (0, 2), at=solution.time[40])
    assert torch.allclose(on_grid, solution.density_matrix[:, 40, 0, 2], rtol=1e-12)
    (slope,) = torch.autograd.grad(held, layer.interaction_strengths)
    assert torch.isfinite(slope).all()
    assert slope[0] > 0


# The lab frame


def test_interpolation_is_the_not_a_knot_spline():
    scipy = pytest.importorskip("scipy.interpolate")
    grid = torch.tensor([0.0, 0.3, 1.0, 1.4, 2.0, 2.2], dtype=torch.float64)
    values, at = random(2, 3, 6), torch.linspace(-0.1, 2.3, 9, dtype=torch.float64)
    expected = scipy.CubicSpline(grid, values.detach(), axis=-1)(at)
    assert np.allclose(interpolate(grid, values, at).detach(), expected, atol=1e-13)


@pytest.mark.parametrize("part", ["real", "abs"])
def test_lab_frame_is_that_of_clerq(part):
    fixed = pytest.importorskip("clerq.fixed")
    fields, speed = random(2, 4, 13), 0.7
    fields = fields if part == "real" else fields.abs()  # clerq interpolates the modulus
    theirs, times = as_clerq(fields), lab_time(Z, TIME, speed)
    assert np.allclose(times, fixed.t_list(theirs, speed), rtol=1e-14)
    ours = 2 * np.pi * lab_fields(fields, Z, TIME, speed).detach()
    expected = fixed.rabi_freq(theirs, 1, speed, part=part, interp_kind="cubic")
    assert np.allclose(ours[1].real, expected, atol=2e-5 * float(ours.abs().max()))  # as its iterative solver converges


@pytest.mark.parametrize("window", [(-2.0, 0.0), (-3.0, -1.0), (1.1, 4.0)])
def test_lab_frame_is_right_in_any_window(window):
    z, time = torch.linspace(-0.5, 1.5, 5, dtype=torch.float64), torch.linspace(*window, 41, dtype=torch.float64)
    speed = 3.0
    fields = torch.stack([(time + 2 * at).sin() for at in z])[None]
    times = lab_time(z, time, speed)
    assert torch.allclose(times[[0, -1]], torch.tensor([window[0] - 0.5 / 3, window[1] + 0.5]).double())
    lab = lab_fields(fields, z, time, speed)[0]
    for k, at in enumerate(z):
        retarded = times - at / speed
        inside = (retarded > window[0] - 1e-9) & (retarded < window[1] + 1e-9)
        assert torch.allclose(lab[k][inside], (retarded + 2 * at).sin()[inside], atol=1e-5)
        assert torch.all(lab[k][~inside] == 0)
    assert lab[0, 0] != 0
    assert lab[-1, -1] != 0


def test_lab_frame_keeps_precision_and_batches():
    fields = random(3, 2, 4, 13, dtype=torch.complex64)
    times = torch.linspace(0.5, 1.5, 6)
    lab = lab_fields(fields, Z.float(), TIME.float(), 2.0, at=times)
    assert lab.shape == (3, 2, 4, 6)
    assert lab.dtype == torch.complex64
    assert torch.equal(lab[1, 0], lab_fields(fields[1, :1], Z.float(), TIME.float(), 2.0, at=times)[0])


def test_lab_frame_refuses_counter_propagating_fields_by_name():
    problem = lambda_system(control={"counter_propagating": True, "factor_doppler_shift": -1.0})
    with pytest.raises(ProblemError, match="must have co-propagating fields only, but `control` runs against them"):
        lab_fields(torch.ones(2, 4, 13), Z, TIME, 1.0, problem=problem)
    assert lab_fields(torch.ones(1, 4, 13), Z.float(), TIME.float(), 1.0, problem=two_level()).shape == (1, 4, 13)


# Gradients

FIELDS = random(2, 3, 4)
SHORT = torch.linspace(0.0, 1.0, 4, dtype=torch.float64)
STATES = random(3, 4, 2, 2, seed=1)
SPEED = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
STRENGTHS = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
PATH = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64, requires_grad=True)
AT = torch.tensor([0.45], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda fields: pulse_area(fields, SHORT), (FIELDS,)),
        (lambda fields: pulse_area(fields, SHORT, part="real"), (FIELDS,)),
        (lambda fields, g: photon_number(fields, SHORT, g), (FIELDS, STRENGTHS)),
        (lambda states: populations(states, [0, 1]), (STATES,)),
        (lambda states: coherences(states, [(0, 1), (1, 0)]), (STATES,)),
        (lambda states, at: spin_wave(states, SHORT, (0, 1), at[0]), (STATES, AT)),
        (lambda states, path: stored_excitations(states[:, 0, 0, 1], path), (STATES, PATH)),
        (lambda fields, at: interpolate(SHORT, fields, at), (FIELDS, AT)),
        (lambda fields, c: lab_fields(fields, SHORT[:3], SHORT, c), (FIELDS, SPEED)),
    ],
)
def test_gradients(function, inputs):
    assert torch.autograd.gradcheck(function, inputs)


# The guide


def test_guide_prints_what_it_says(capsys):
    blocks = re.findall(r"```(python)?\n(.*?)```", (ROOT / "docs" / "analysis.md").read_text(), flags=re.S)
    namespace: dict = {}
    for (kind, text), following in zip(blocks, [*blocks[1:], ("python", "")], strict=True):
        if kind == "python":
            exec(compile(text, "analysis.md", "exec"), namespace)  # the guide is our own
            assert capsys.readouterr().out == ("" if following[0] == "python" else following[1])
    assert "layer" in namespace


def test_interpolation_and_widths_under_transforms():
    """Where a transform is at work, the grid and the samples that it does not touch have values, too."""
    grid = torch.linspace(0.0, 1.0, 6, dtype=torch.float64)
    at = torch.tensor([0.25, 0.5], dtype=torch.float64)
    slope = torch.func.jacfwd(lambda scale: interpolate(grid, scale * grid**3, at))(torch.tensor(2.0).double())
    torch.testing.assert_close(slope, at**3)
    x = torch.linspace(-3.0, 3.0, 31, dtype=torch.float64)

    def width(scale):
        return spectra.full_width_at_half_max(x, torch.exp(-((x / scale) ** 2)))

    one = torch.tensor(1.0, dtype=torch.float64)
    for transform in (torch.func.grad, torch.func.jacfwd):
        assert transform(width)(one).item() == pytest.approx(2 * math.sqrt(math.log(2)), rel=1e-3)
