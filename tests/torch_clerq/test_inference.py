"""Inference: values, errors and intervals against closed forms, what is undetermined, and what is refused."""

import math
import re
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from tests.conftest import two_level
from torch_clerq import (
    InferenceWarning,
    Interval,
    Positive,
    ProblemError,
    Resolution,
    ResolutionError,
    ResolutionWarning,
    Simplex,
    TorchPropagator,
    infer,
)
from torch_clerq.flat import FlatParameters
from torch_clerq.parametrised import Parametrised
from torch_clerq.spectra import voigt_two_linear_known

AT = Resolution(12, 2)

# the noise of most of these is smaller than their σ, or larger
pytestmark = pytest.mark.filterwarnings("ignore:The model does not describe the data")


class Numbers(Parametrised):
    """Parameters by name, under parametrisations or none."""

    def __init__(self, start, under=None, dtype=torch.float64):
        super().__init__()
        for name, value in start.items():
            value = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)
            self._add(name, value, (under or {}).get(name), dtype)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def normal(seed, *shape):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


TIME = torch.linspace(0.0, 1.0, 25, dtype=torch.float64)
DESIGN = torch.stack([torch.ones_like(TIME), TIME], -1)
LINE = DESIGN @ tensor(1.0, 2.0) + 0.1 * normal(0, 25)


def exact_line(sigma):
    """The solution of the normal equations and its covariance."""
    weights = 1 / (sigma * torch.ones(25, dtype=torch.float64)).square()
    covariance = torch.linalg.inv(DESIGN.T @ (weights[:, None] * DESIGN))
    return covariance @ DESIGN.T @ (weights * LINE), covariance


@pytest.mark.parametrize("sigma", [0.1, torch.linspace(0.05, 0.2, 25, dtype=torch.float64)])
def test_a_line_has_the_covariance_of_the_normal_equations(sigma):
    model = Numbers({"ends": [0.0, 0.0]})
    found = infer(model, lambda model: DESIGN @ model.ends - LINE, sigma=sigma)
    values, covariance = exact_line(sigma)
    torch.testing.assert_close(tensor(*found.parameters.values()), values)
    torch.testing.assert_close(model.ends.detach(), values)  # where the module is left
    torch.testing.assert_close(found.covariance, covariance)
    torch.testing.assert_close(tensor(*found.standard_errors.values()), covariance.diagonal().sqrt())
    correlation = covariance[0, 1] / covariance.diagonal().prod().sqrt()
    assert found.correlation[0, 1].item() == pytest.approx(correlation.item())
    assert found.correlation.diagonal().tolist() == [1.0, 1.0]
    assert found.degrees_of_freedom == 23
    assert found.chi_square == pytest.approx((((DESIGN @ values - LINE) / sigma) ** 2).sum().item())
    assert found.interval("ends[1]")[1] == pytest.approx((values[1] + 1.959964 * covariance[1, 1].sqrt()).item())
    scaled = DESIGN / torch.as_tensor(sigma).expand(25)[:, None]
    assert found.condition_number == pytest.approx(torch.linalg.cond(scaled / scaled.norm(dim=0)).item() ** 2)
    assert 0.01 < found.probability < 1
    assert found.resolution_shift is None  # nothing in it has a resolution


def test_noise_of_unknown_size_is_estimated_and_its_intervals_are_those_of_student():
    line = lambda m: DESIGN @ m.ends - LINE  # noqa: E731
    known, unknown = (infer(Numbers({"ends": [0.0, 0.0]}), line, sigma=sigma) for sigma in (1.0, None))
    ratio = known.chi_square / 23
    assert unknown.reduced_chi_square == pytest.approx(ratio)
    torch.testing.assert_close(unknown.covariance, ratio * known.covariance)
    low, high = unknown.interval("ends[0]", level=0.9)
    assert (high - low) / 2 == pytest.approx(1.713872 * unknown.standard_errors["ends[0]"], rel=1e-6)  # t of 23 at 0.95
    assert math.isnan(unknown.probability)
    assert "σ estimated" in str(unknown)


def test_complex_residuals_count_by_real_and_imaginary_part():
    phases = torch.exp(3j * TIME)
    data = (2 - 1j) * phases + 0.1 * torch.complex(normal(1, 25), normal(2, 25))
    start = torch.zeros((), dtype=torch.complex128)
    found = infer(Numbers({"amplitude": start}), lambda m: m.amplitude * phases - data, sigma=0.1)
    mean = (phases.conj() * data).mean()
    assert found.parameters == pytest.approx({"amplitude.real": mean.real.item(), "amplitude.imag": mean.imag.item()})
    torch.testing.assert_close(found.covariance, 0.01 / 25 * torch.eye(2, dtype=torch.float64))
    assert found.degrees_of_freedom == 48


def test_a_sequence_of_residuals_with_a_sigma_for_each():
    first, second = normal(3, 2, 5), normal(4, 7)
    found = infer(Numbers({"x": 0.0}), lambda m: (m.x - first, m.x - second), sigma=(0.5, torch.full((7,), 2.0)))
    weight = 10 / 0.25 + 7 / 4
    mean = (first.sum() / 0.25 + second.sum() / 4) / weight
    assert found.parameters["x"] == pytest.approx(mean.item())
    assert found.standard_errors["x"] == pytest.approx(weight**-0.5)


# Parametrisations and priors


def test_intervals_stay_allowed_under_a_parametrisation():
    data = tensor(0.05, 0.12, -0.04, 0.1)
    plain = infer(Numbers({"rate": 0.5}), lambda m: m.rate - data, sigma=0.1)
    model = Numbers({"rate": 0.5, "share": 0.5}, {"rate": Positive(), "share": Interval(0.0, 1.0)})
    found = infer(model, lambda m: (m.rate - data, m.share - data), sigma=0.1)
    assert found.parameters["rate"] == pytest.approx(plain.parameters["rate"], rel=1e-6)
    assert found.standard_errors["rate"] == pytest.approx(0.05, rel=1e-6) == plain.standard_errors["rate"]
    assert plain.interval("rate")[0] < 0
    for name in ("rate", "share"):
        low, high = found.interval(name)
        assert 0 < low < found.parameters[name] < high < 1
    raw = model.raw_rate.item()
    reach = 1.959964 * 0.05 / torch.sigmoid(model.raw_rate).item()  # of the raw value, whose softplus has this slope
    ends = [math.log1p(math.exp(raw + sign * reach)) for sign in (-1, 1)]
    assert found.interval("rate") == pytest.approx(tuple(ends), rel=1e-6)
    assert found.interval("rate", 0.999999999999)[0] > 0


def test_shares_have_no_open_direction_though_their_raw_values_do():
    data = tensor(0.2, 0.3, 0.5) + 0.01 * normal(5, 20, 3)
    model = Numbers({"shares": [0.4, 0.3, 0.3]}, {"shares": Simplex()})
    found = infer(model, lambda m: m.shares - data, sigma=0.01)
    assert sum(found.parameters.values()) == pytest.approx(1.0)
    assert found.degrees_of_freedom == 58
    projector = torch.eye(3, dtype=torch.float64) - 1 / 3  # the sum is known
    torch.testing.assert_close(found.covariance, 1e-4 / 20 * projector, atol=1e-12, rtol=1e-6)
    assert found.undetermined == ()
    low, high = found.interval("shares[2]")
    assert low < found.parameters["shares[2]"] < high < 1
    assert high - low == pytest.approx(2 * 1.959964 * found.standard_errors["shares[2]"], rel=1e-3)


def test_a_prior_is_one_more_measurement():
    data = 1 + 0.1 * normal(6, 9)
    found = infer(Numbers({"x": 0.0}), lambda m: m.x - data, sigma=0.1, priors={"x": (0.0, 0.05)})
    weight = 9 / 0.01 + 1 / 0.05**2
    assert found.parameters["x"] == pytest.approx((data.sum() / 0.01 / weight).item())
    assert found.standard_errors["x"] == pytest.approx(weight**-0.5)
    assert found.degrees_of_freedom == 9


def test_a_prior_is_of_the_physical_value_and_may_be_of_all_elements():
    model = Numbers({"rates": [1.0, 2.0], "x": 0.0}, {"rates": Positive()})
    found = infer(model, lambda m: m.x - tensor(1.0, 2.0), priors={"rates": (0.5, 0.1), "x": (1.5, 1.0)})
    assert found.parameters == pytest.approx({"rates[0]": 0.5, "rates[1]": 0.5, "x": 1.5})
    assert found.standard_errors["rates[1]"] == pytest.approx(0.1)


# What the data leave open


def absorber(*trainable, under=None, **options):
    """A short weak pulse in a two-level medium of optical depth 4 g N/γ."""
    problem = two_level(args={"ampl": 1.0, "centre": 0.0, "fwhm": 0.4}, t_min=-1.0, t_max=4.0, t_steps=60, z_steps=1)
    options = {"dtype": torch.float64, "resolution": AT, "tol": 1e-4} | options
    return TorchPropagator(problem, trainable=under or trainable, **options)


def test_strength_and_density_cannot_be_told_apart_but_their_product_is_known():
    layer = absorber("interaction_strengths", "number_density", "decay_rates")
    trace = 1e3 * layer()[0, -1].real.detach() + 0.01 * normal(7, 61)
    layer.interaction_strengths, layer.number_density = 1.5, 0.8
    with pytest.warns(InferenceWarning, match="The data leave open: .* Hold one of these parameters fixed"):
        found = infer(layer, lambda layer: 1e3 * layer()[0, -1].real - trace, sigma=0.01)
    (combination,) = found.undetermined
    names = set(re.fullmatch(r"(\w+) \+1 % with (\w+) -1 %", combination).groups())
    assert names == {"interaction_strengths", "number_density"}
    assert names == {name for name, error in found.standard_errors.items() if math.isinf(error)}
    assert found.interval("number_density") == (-math.inf, math.inf)
    assert math.isinf(found.condition_number)
    assert "undetermined" in str(found)
    value, error = found.of(lambda layer: layer.interaction_strengths * layer.number_density)
    alone = absorber("interaction_strengths", "decay_rates")
    expected = infer(alone, lambda layer: 1e3 * layer()[0, -1].real - trace, sigma=0.01)
    assert value == pytest.approx(expected.parameters["interaction_strengths"], rel=1e-6)
    assert error == pytest.approx(expected.standard_errors["interaction_strengths"], rel=1e-5)
    assert found.standard_errors["decay_rates"] == pytest.approx(expected.standard_errors["decay_rates"], rel=1e-5)
    assert math.isinf(found.of(lambda layer: layer.number_density)[1])
    with warnings.catch_warnings():  # which the prior decides
        warnings.simplefilter("error")
        prior = {"number_density": (1.0, 0.01)}
        found = infer(layer, lambda layer: 1e3 * layer()[0, -1].real - trace, sigma=0.01, priors=prior)
    assert found.standard_errors["number_density"] == pytest.approx(0.01, rel=1e-4)


def test_what_moves_nothing_is_open_and_allowed_intervals_are_all_that_is_allowed():
    model = Numbers({"x": 1.0, "idle": 1.0, "between": 0.5}, {"idle": Positive(), "between": Interval(0.0, 1.0)})
    with pytest.warns(InferenceWarning) as seen:
        found = infer(model, lambda m: m.x - tensor(1.0, 1.2))
    assert len(seen) == 1
    assert set(found.undetermined) == {"idle", "between"}
    assert found.interval("idle") == (0.0, math.inf)
    assert found.interval("between") == (0.0, 1.0)
    assert found.parameters["idle"] == pytest.approx(1.0)
    assert found.standard_errors["x"] == pytest.approx(0.5**0.5)


def test_a_near_degeneracy_is_named_in_the_table():
    steep = infer(Numbers({"a": 0.0, "b": 0.0}), lambda m: m.a + m.b * (10 + 0.1 * TIME) - 1, sigma=0.1)
    assert not steep.undetermined
    assert "a and b are hard to tell apart (correlation -1.000)" in str(steep)


# Through the propagator


def test_the_jacobian_is_that_of_differences():
    layer = absorber(under={"interaction_strengths": Positive(), "decay_rates": Positive(), "detunings": None})
    flat = FlatParameters(layer)

    def light(x):
        return torch.view_as_real(1e3 * flat.call(lambda layer: layer()[0, -1], x)).flatten()

    at = flat.raw()
    exact = torch.func.jacfwd(light)(at)
    steps = 1e-5 * torch.eye(3, dtype=torch.float64)
    differences = torch.stack([(light(at + step) - light(at - step)) / 2e-5 for step in steps], -1)
    torch.testing.assert_close(exact.detach(), differences.detach(), atol=1e-8, rtol=1e-6)


def test_the_optical_depth_of_a_steady_trace_has_the_error_of_the_formula():
    """Beer and Lambert: Ω = Ω₀ exp(−2gL/γ), so the error of g is σ/(|∂Ω/∂g| √n) = σ γ/(2L Ω √n)."""
    args = {"ampl": 1.0, "on": 1.0, "fwhm": 0.5}
    problem = two_level(envelope="ramp_on", args=args, rate=2.0, g=0.7, t_min=0.0, t_max=12.0, t_steps=120, z_steps=1)
    layer = TorchPropagator(problem, trainable=("interaction_strengths",), dtype=torch.float64, resolution=AT, tol=1e-4)
    steady = math.exp(-2 * 0.7 / 2.0)
    data = steady + 0.01 * normal(9, 11)
    mean = data.mean().item()
    found = infer(layer, lambda layer: 1e3 * layer()[0, -1, -11:].real - data, sigma=0.01)
    value = -math.log(mean)  # of gL for a rate of 2
    assert found.parameters["interaction_strengths"] == pytest.approx(value, rel=1e-5)
    assert found.standard_errors["interaction_strengths"] == pytest.approx(0.01 / (mean * 11**0.5), rel=1e-4)
    assert layer.interaction_strengths.item() == found.parameters["interaction_strengths"]
    assert found.resolution_shift < 0.01
    depth, error = found.of(lambda layer: 4 * layer.interaction_strengths / 2.0)
    assert (depth, error) == pytest.approx((2 * value, 2 * found.standard_errors["interaction_strengths"]))


def test_pulses_of_a_batch_and_layers_that_share_a_parameter_are_fitted_together():
    thin, thick = (absorber(under={"decay_rates": Positive(), "interaction_strengths": Positive()}) for _ in range(2))
    both = nn.ModuleList([thin, thick])
    thick.interaction_strengths = 2.0
    thick.raw_decay_rates = thin.raw_decay_rates
    widths = tensor(0.3, 0.5, 0.8)[:, None]
    pulses = 1e-3 * torch.exp(-((thin.time / widths) ** 2))[:, None]
    light = lambda both: [1e3 * layer(pulses)[:, 0, -1] for layer in both]  # noqa: E731
    noise = [0.02 * torch.complex(normal(10 + k, 3, 61), normal(20 + k, 3, 61)) for k in range(2)]
    seen = [one.detach() + more for one, more in zip(light(both), noise, strict=True)]
    thin.interaction_strengths, thick.interaction_strengths, thin.decay_rates = 0.7, 2.6, 1.4
    found = infer(both, lambda both: [model - data for model, data in zip(light(both), seen, strict=True)], sigma=0.02)
    truth = {"0.decay_rates": 1.0, "0.interaction_strengths": 1.0, "1.interaction_strengths": 2.0}
    assert set(found.parameters) == set(truth)
    for name, value in truth.items():
        assert abs(found.parameters[name] - value) < 4 * found.standard_errors[name] < 0.2
    assert found.degrees_of_freedom == 2 * 2 * 3 * 61 - 3
    assert found.probability > 0.001
    assert thick.decay_rates.item() == thin.decay_rates.item()


def test_the_stated_intervals_hold_the_truth_as_often_as_they_say():
    """A thin absorber, in the closed form of weak light: 200 draws of noise that is known, and 200 that is not."""
    frequency = torch.linspace(-3.0, 3.0, 41, dtype=torch.float64)

    def transmission(medium):
        return torch.exp(-medium.depth / (1 + (2 * frequency / medium.rate) ** 2))

    medium = Numbers({"depth": 0.4, "rate": 1.5}, {"depth": Positive(), "rate": Positive()})
    clean = transmission(medium).detach()
    held = {(name, known): 0 for name in ("depth", "rate") for known in (True, False)}
    for draw in range(200):
        data = clean + 0.02 * normal(1000 + draw, 41)
        medium.depth, medium.rate = 0.5, 1.2
        for known in (True, False):  # the second from where the first has arrived
            sigma = 0.02 if known else None
            found = infer(medium, lambda m, data=data: transmission(m) - data, sigma=sigma, tolerance=1e-6)
            for name, truth in (("depth", 0.4), ("rate", 1.5)):
                low, high = found.interval(name)
                held[name, known] += low <= truth <= high
    for count in held.values():
        assert 180 <= count <= 198


def test_single_precision():
    layer = absorber(under={"interaction_strengths": Positive()}, dtype=torch.float32, tol=1e-3)
    trace = 1e3 * layer()[0, -1].real.detach()
    layer.interaction_strengths = 1.3
    found = infer(layer, lambda layer: 1e3 * layer()[0, -1].real - trace, sigma=0.01)
    assert found.parameters["interaction_strengths"] == pytest.approx(1.0, abs=1e-4)
    assert layer.interaction_strengths.dtype == torch.float32


# Steps that fail, and what is refused


def test_a_trial_step_that_cannot_be_solved_is_a_bad_step():
    failed = []

    def residuals(m):
        if float(m.x.detach()) > 2.1:
            failed.append(float(m.x))
            raise ResolutionError("too far")
        return torch.exp(m.x) - tensor(7.0, 7.4)

    found = infer(Numbers({"x": 1.3}), residuals)
    assert failed
    assert found.parameters["x"] == pytest.approx(math.log(7.2))


def test_a_wall_before_the_minimum_is_said():
    def residuals(m):
        if float(m.x.detach()) < 0:
            raise ProblemError("Argument `x` must be nonnegative, but is negative.")
        return m.x - tensor(-1.0, -1.2)

    with pytest.warns(InferenceWarning, match=r"standard errors before its minimum.*must be nonnegative"):
        found = infer(Numbers({"x": 0.5}), residuals, sigma=0.1)
    assert 0 <= found.parameters["x"] < 0.1


def test_too_few_evaluations_are_said():
    model = Numbers({"x": -1.2, "y": 1.0})
    with pytest.warns(InferenceWarning, match="not converged in 3 evaluations: raise `max_evaluations`"):
        infer(model, lambda m: torch.stack([1 - m.x, 10 * (m.y - m.x**2)]), max_evaluations=3)
    found = infer(model, lambda m: torch.stack([1 - m.x, 10 * (m.y - m.x**2)]))
    assert found.parameters == pytest.approx({"x": 1.0, "y": 1.0})
    assert math.isnan(found.probability)  # as many residuals as parameters
    assert "nan" not in str(found)
    assert found.standard_errors["x"] == pytest.approx(1.0)


def test_a_coarse_grid_is_noticed():
    layer = absorber("interaction_strengths", resolution=Resolution(2, 1), tol=1.0)
    trace = 1e3 * absorber()()[0, -1].real
    with pytest.warns(ResolutionWarning, match="At twice the resolution a parameter would move by"):
        found = infer(layer, lambda layer: 1e3 * layer()[0, -1].real - trace, sigma=1e-4)
    assert found.resolution_shift > 0.1
    finer = absorber("interaction_strengths", resolution=Resolution(4, 2), tol=1.0)
    better = infer(finer, lambda layer: 1e3 * layer()[0, -1].real - trace, sigma=1e-4, verify=False)
    moved = abs(better.parameters["interaction_strengths"] - found.parameters["interaction_strengths"])
    assert found.resolution_shift == pytest.approx(moved / found.standard_errors["interaction_strengths"], rel=0.05)
    assert layer.resolution == Resolution(2, 1)


def test_nothing_left_over():
    """Data without noise, from the truth: no division by zero, and no warning."""
    model = Numbers({"a": 1.0, "b": 1.0})
    found = infer(model, lambda m: DESIGN @ torch.stack([m.a, m.b]) - DESIGN.sum(-1), sigma=None)
    assert found.chi_square == 0
    assert found.interval("a") == (1.0, 1.0)
    assert str(found)


BAD = {
    "module": (dict(module=3), r"`module` must be an nn.Module, but is 3"),
    "nothing to infer": (dict(module=nn.Identity()), "`module` must have a parameter that requires a gradient"),
    "residuals": (dict(residuals=3), "`residuals` must be a function of the module"),
    "no tensor": (dict(residuals=lambda m: 3.0),
        "`residuals` must return tensors of real or complex numbers, but returned a float"),
    "integers": (dict(residuals=lambda m: torch.ones(2, dtype=torch.int64)), "returned one of torch.int64"),
    "empty": (dict(residuals=lambda m: m.ends[:0]), "`residuals` must return at least one number"),
    "not finite": (dict(residuals=lambda m: m.ends / 0.0), "`residuals` must be finite at the start, but have nan"),
    "no slope": (dict(residuals=lambda m: m.ends[:1].sqrt() - 1),
        r"`residuals` must have finite derivatives, but have none by `ends\[0\]`"),
    "constant": (dict(residuals=lambda m: torch.ones(3)), "`residuals` must depend on the trainable parameters"),
    "negative sigma": (dict(sigma=-1.0), "`sigma` must be positive and finite, or None, but is -1"),
    "sigma's shape": (dict(sigma=torch.ones(3)),
        r"`sigma` must broadcast to the residuals, of shape \(25,\), but has shape \(3,\)"),
    "number of sigmas": (dict(sigma=(1.0, 2.0)),
        "`sigma` must have one entry for each of the 1 tensors of residuals, but has 2"),
    "some sigmas": (dict(sigma=(1.0, None)), "`sigma` must be known for each tensor of residuals, or None for all"),
    "too few residuals": (dict(residuals=lambda m: m.ends - 1, sigma=None),
        "`sigma` must be given where no more residuals"),
    "unknown prior": (dict(priors={"end": (0.0, 1.0)}),
        r"`priors` must have names among .*, but has 'end' \(did you mean `ends`"),
    "prior": (dict(priors={"ends": (0.0, 0.0)}), r"`priors\['ends'\]` must be \(mean, positive standard deviation\)"),
    "prior twice": (dict(priors={"ends": (0.0, 1.0), "ends[0]": (0.0, 1.0)}), "`priors` must name each parameter once"),
    "prior without sigma": (dict(priors={"ends": (0.0, 1.0)}, sigma=None), "`priors` must come with `sigma`"),
    "tolerance": (dict(tolerance=0), "`tolerance` must be a number from 1e-15 to 1"),
    "evaluations": (dict(max_evaluations=0), "`max_evaluations` must be an integer of at least 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_argument_is_refused_in_one_sentence(case):
    arguments, message = BAD[case]
    model = Numbers({"ends": [0.0, 0.0]})
    given = {"module": model, "residuals": lambda m: DESIGN @ m.ends - LINE} | arguments
    with pytest.raises(ProblemError, match=message):
        infer(given.pop("module"), given.pop("residuals"), **given)
    assert model.ends.tolist() == [0.0, 0.0]


def test_what_an_inference_is_asked_for_is_checked():
    found = infer(Numbers({"ends": [0.0, 0.0]}), lambda m: DESIGN @ m.ends - LINE)
    with pytest.raises(ProblemError, match=r"`name` must be one of ends\[0\], ends\[1\], but is 'ends'"):
        found.interval("ends")
    with pytest.raises(ProblemError, match="`level` must be between 0 and 1, but is 95"):
        found.interval("ends[0]", 95)
    with pytest.raises(ProblemError, match="`quantity` must return one real number, but returned 2"):
        found.of(lambda m: m.ends)


def test_a_voigt_profile_is_fitted_in_its_closed_form():
    frequency = torch.linspace(-3.0, 3.0, 61, dtype=torch.float64)
    names = {"depth": 1.5, "rate": 1.0, "width": 0.5, "centre": 0.2}

    def transmission(m):
        return torch.exp(-m.depth * voigt_two_linear_known(frequency - m.centre, m.rate, m.width).imag)

    line = Numbers(names, dict.fromkeys(("depth", "rate", "width"), Positive()))
    data = transmission(line).detach() + 0.002 * normal(11, 61)
    line.depth, line.rate, line.width, line.centre = 1.0, 1.5, 0.3, 0.0
    found = infer(line, lambda line: transmission(line) - data, sigma=0.002)
    for name, truth in names.items():
        assert abs(found.parameters[name] - truth) < 4 * found.standard_errors[name] < 0.2


@pytest.mark.parametrize(
    ("residuals", "options", "text"),
    [
        (lambda m: 1e200 * m.weight, {}, "`residuals` must be of a size whose squares are numbers"),
        (lambda m: 1e-200 * m.weight, {}, "`residuals` must be of a size whose squares are numbers"),
        (lambda m: m.weight, {"sigma": "x"}, "`sigma` must be positive"),
        (lambda m: m.weight, {"sigma": 1j}, "`sigma` must be positive"),
        (lambda m: m.weight, {"priors": 3}, "`priors` must be a dict"),
    ],
)
def test_residuals_and_options_that_are_none(residuals, options, text):
    with pytest.raises(ProblemError, match=text):
        infer(nn.Linear(1, 1, bias=False).double(), residuals, **options)


def test_random_residuals_are_the_same_at_each_call():
    module = nn.Linear(1, 1, bias=False).double()
    found = infer(module, lambda m: m.weight.expand(9, 1) - torch.randn(9, 1, dtype=torch.float64))
    assert found.standard_errors["weight"] == pytest.approx(1 / 3)


def test_an_error_on_the_way_leaves_the_best():
    module, calls = nn.Linear(1, 1, bias=False).double(), []

    def residuals(m):
        calls.append(None)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return m.weight**3 - 1

    nn.init.constant_(module.weight, 3.0)
    with pytest.raises(KeyboardInterrupt):
        infer(module, residuals)
    assert abs(module.weight.item()) < 3.0


def test_a_resolution_that_was_found_at_a_poor_guess_is_searched_on():
    pulse = {"ampl": 1.0, "centre": 0.0, "fwhm": 0.3}
    problem = two_level(args=pulse, g=4.0, t_steps=80)
    truth = TorchPropagator(problem, dtype=torch.float64)
    with torch.no_grad():
        seen = 1e3 * truth()[0, -1].real
    seen = seen + 0.005 * torch.tensor(np.random.default_rng(0).normal(size=seen.shape))
    names = {"interaction_strengths": Positive(), "decay_rates": Positive()}
    layer = TorchPropagator(problem, trainable=names, dtype=torch.float64)
    layer.interaction_strengths, layer.decay_rates = 0.2, 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResolutionWarning)
        found = infer(layer, lambda layer: 1e3 * layer()[0, -1].real - seen, sigma=0.005)
    for name, value in (("interaction_strengths", 4.0), ("decay_rates", 1.0)):
        assert abs(found.parameters[name] - value) < 4 * found.standard_errors[name]
    assert found.resolution_shift < 0.01
