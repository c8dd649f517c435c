"""Parameters from measured data by least squares, with uncertainties from the exact Jacobian."""

import math
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.linalg import qr
from scipy.optimize import least_squares
from scipy.special import chdtrc, expit, logit, ndtri, stdtrit
from torch import nn

from jax_kernel.errors import InferenceWarning, ResolutionWarning, warn
from jax_kernel.parameters import fail, suggestion

from .checks import check_count, check_number
from .flat import FlatParameters
from .layers import refining, search_on, trained
from .residuals import System, flattened

COLLINEAR = 1e3
"""Condition number of JᵀJ above which two parameters are named that are hard to tell apart: an index of 30 of D. A.
Belsley, E. Kuh and R. E. Welsch, Regression Diagnostics (Wiley, 1980), section 3.2."""

UNCONVERGED = 0.1
"""Distance from the minimum of the linearised problem, in standard errors, above which a solution is warned of."""

REFINEMENTS = 3
"""Solutions at most, each from the last one, while layers that search their own resolution have outgrown it."""

IMPROBABLE = 1e-6
"""Probability of χ² below which a fit is warned of."""

SHIFTED = 0.1
"""What twice the resolution may move a parameter by, in standard errors, without a warning."""


@dataclass(frozen=True, eq=False)
class _Raw:
    """The solution in the raw values that the solver moves.

    Attributes:
        value: shape (parameter,).
        root: times its transpose it is the covariance, shape (parameter, direction).
        open: an orthonormal basis of the directions that the data leave open, in units of `scale`, shape (parameter,
            direction).
        scale: the changes of the raw values that move the residuals equally, shape (parameter,).
        slopes: of the physical values by the raw ones, shape (parameter, parameter).
        flat: the parameters.
        rounding: part of a gradient along open directions below which it is taken for rounding.
    """

    value: np.ndarray
    root: np.ndarray
    open: np.ndarray
    scale: np.ndarray
    slopes: np.ndarray
    flat: FlatParameters
    rounding: float

    def errors(self, gradients: np.ndarray) -> np.ndarray:
        """Standard errors of quantities with these gradients, shape (quantity, parameter), infinite for open ones."""
        scaled = gradients * self.scale
        left_open = np.linalg.norm(scaled @ self.open, axis=1) > self.rounding * np.linalg.norm(scaled, axis=1)
        return np.where(left_open, math.inf, np.linalg.norm(gradients @ self.root, axis=1))

    def interval(self, k: int, value: float, reach: float) -> tuple[float, float]:
        """So many standard errors on either side of a physical value, on a scale that keeps it allowed."""
        if np.count_nonzero(self.slopes[k]) <= 1:  # a function of its own raw value
            ends = []
            for sign in (-1, 1):
                moved = self.value.copy()
                moved[k] += sign * reach * self.errors(np.eye(len(moved))[k : k + 1])[0]
                ends.append(float(self.flat.physical(torch.as_tensor(moved))[k]))
            return min(ends), max(ends)
        half = reach * float(self.errors(self.slopes[k : k + 1])[0])
        if not self.flat.shares[k]:
            return value - half, value + half
        half /= value * (1 - value)
        return float(expit(logit(value) - half)), float(expit(logit(value) + half))


@dataclass(frozen=True, eq=False)
class Inference:
    """What data say about parameters; the module itself holds the best values.

    A parameter that is one number has its name in the module, such as "decay_rates" or "propagator.b_field"; of others
    the elements have names, such as "interaction_strengths[0]", complex ones with ".real" and ".imag" behind.

    Attributes:
        parameters: physical values by name.
        standard_errors: by name; infinite where the data leave the value open.
        covariance: of the physical values in the order of `parameters`, shape (parameter, parameter). What the data
            leave open has no part in it.
        chi_square: the sum of squares of the residuals in units of σ, those of the priors included.
        degrees_of_freedom: residuals and priors, less the combinations of parameters that they determine.
        sigma_known: whether σ was given; otherwise `covariance` is scaled by `reduced_chi_square`.
        condition_number: of JᵀJ with the columns of J scaled to one length, so that it has no units.
        undetermined: combinations of parameters that the data leave open, in words.
        resolution_shift: the most that twice the resolution would move a parameter by, in standard errors; None where
            there is nothing to double.
        evaluations: of the residuals.
        jacobians: evaluations of their Jacobian.
        seconds: in all.
        stopped: why, in the words of SciPy.
    """

    parameters: dict[str, float]
    standard_errors: dict[str, float]
    covariance: torch.Tensor
    chi_square: float
    degrees_of_freedom: int
    sigma_known: bool
    condition_number: float
    undetermined: tuple[str, ...]
    resolution_shift: float | None
    evaluations: int
    jacobians: int
    seconds: float
    stopped: str
    _raw: _Raw = field(repr=False)

    @property
    def reduced_chi_square(self) -> float:
        """`chi_square` per degree of freedom, an estimate of the variance of the residuals; NaN without any."""
        return self.chi_square / self.degrees_of_freedom if self.degrees_of_freedom else math.nan

    @property
    def probability(self) -> float:
        """Of so large a `chi_square` or a larger one, where model and σ are right; NaN where σ is not known."""
        known = self.sigma_known and self.degrees_of_freedom > 0
        return float(chdtrc(self.degrees_of_freedom, self.chi_square)) if known else math.nan

    @property
    def correlation(self) -> torch.Tensor:
        """Of the physical values in the order of `parameters`, shape (parameter, parameter)."""
        sizes = self.covariance.diagonal().sqrt()
        sizes = torch.where(sizes > 0, sizes, 1.0)
        return (self.covariance / (sizes[:, None] * sizes)).fill_diagonal_(1.0)

    def interval(self, name: str, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval of a parameter.

        The value and as many standard errors on either side as a normal distribution asks for or, where σ is estimated,
        Student's t with `degrees_of_freedom`. Under a parametrisation they are those of the raw value, and the ends are
        mapped to physical values, so that the interval stays allowed; for a population p of a `Simplex` they are those
        of ln(p/(1 − p)). Source: D. M. Bates and D. G. Watts, Nonlinear Regression Analysis (Wiley, 1988), section 2.3.

        Args:
            name: as in `parameters`.
            level: between 0 and 1.

        Returns:
            (low, high), in physical units.

        Raises:
            ProblemError: there is no such parameter, or the level is not between 0 and 1.
        """
        names = list(self.parameters)
        if name not in names:
            fail("name", f"be one of {', '.join(names)}", f"is {name!r}{suggestion(name, names)}")
        level = check_number("level", level, "be between 0 and 1", lambda number: 0 < number < 1)
        quantile = (1 + level) / 2
        reach = float(ndtri(quantile) if self.sigma_known else stdtrit(self.degrees_of_freedom, quantile))
        return self._raw.interval(names.index(name), self.parameters[name], reach)

    def of(self, quantity: Callable[[nn.Module], torch.Tensor]) -> tuple[float, float]:
        """A quantity that follows from the parameters, with its standard error to first order.

        Args:
            quantity: a function of the module that returns one real number, differentiable in forward mode.

        Returns:
            (value, standard error), the error infinite where the quantity depends on what the data leave open.

        Raises:
            ProblemError: the quantity is not one real number.
        """

        def number(x: torch.Tensor) -> torch.Tensor:
            return flattened(self._raw.flat.call(quantity, x), "quantity")

        if not callable(quantity):
            fail("quantity", "be a function of the module", f"is {quantity!r}")
        at = torch.as_tensor(self._raw.value)
        value = number(at).detach()
        if value.numel() != 1:
            fail("quantity", "return one real number", f"returned {value.numel()}")
        gradient = torch.func.jacfwd(number)(at).detach().numpy()
        if not np.isfinite(gradient).all():
            fail("quantity", "have finite derivatives", "has none (a square root or a modulus at 0?)")
        return value.item(), float(self._raw.errors(gradient)[0])

    def __str__(self) -> str:
        fits = ""
        if not self.sigma_known:
            fits = f" (σ estimated: {math.sqrt(self.reduced_chi_square):.3g})"
        elif self.degrees_of_freedom:
            fits = f" (probability {self.probability:.2g})"
        rows = [["parameter", "value", "standard error", "95 % interval"]]
        for name, value in self.parameters.items():
            error = self.standard_errors[name]
            digits = _decimals(error, value)
            low, high = (f"{end:.{digits}f}" for end in self.interval(name))
            shown = f"{error:.{digits}f}" if math.isfinite(error) else "undetermined"
            rows.append([name, f"{value:.{digits}f}", shown, f"{low} to {high}"])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        what = "χ²" if self.sigma_known else "sum of squares"
        lines = [f"{what} {self.chi_square:.4g} with {self.degrees_of_freedom} degrees of freedom{fits}"]
        for first, *others in rows:
            aligned = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
            lines.append("  ".join([first.ljust(widths[0]), *aligned]))
        if self.undetermined:
            return "\n".join([*lines, f"left open by the data: {'; '.join(self.undetermined)}"])
        return "\n".join([*lines, f"condition number of JᵀJ {self.condition_number:.2g}{self._nearest()}"])

    def _nearest(self) -> str:
        """The two parameters that are hardest to tell apart, where some are."""
        if self.condition_number < COLLINEAR:
            return ""
        others = self.correlation.fill_diagonal_(0.0)
        first, second = divmod(int(others.abs().argmax()), len(others))
        names = list(self.parameters)
        return f": {names[first]} and {names[second]} are hard to tell apart (correlation {others[first, second]:.3f})"


def _decimals(error: float, value: float) -> int:
    """How many show two digits of an error, or four of a value without one."""
    size, wanted = (error, 2) if 0 < error < math.inf else (abs(value), 4)
    return int(np.clip(wanted - 1 - math.floor(math.log10(size)), 0, 15)) if size > 0 else wanted


def infer(
    module: nn.Module,
    residuals: Callable[[Any], Any],
    *,
    sigma: Any = 1.0,
    priors: Mapping[str, tuple[float, float]] | None = None,
    tolerance: float = 1e-8,
    max_evaluations: int = 100,
    verify: bool = True,
) -> Inference:
    """Fit a module's trainable parameters to data by least squares; the module is left with the best values.

    Minimises χ² = Σ(residual/σ)² with the trust-region method of `scipy.optimize.least_squares` and the exact Jacobian
    J by forward mode, one batched run for all parameters. At the minimum the parameters have the covariance (JᵀJ)⁻¹
    (Gauss–Newton), times χ² per degree of freedom where σ is not known. Sources: P. R. Bevington and D. K. Robinson,
    Data Reduction and Error Analysis for the Physical Sciences (McGraw-Hill, 2003), sections 8.5 and 11.1; D. M. Bates
    and D. G. Watts, Nonlinear Regression Analysis (Wiley, 1988), sections 2.2 and 2.3.

    This holds for independent noise, and as far as the model is linear within a few standard errors. The minimum is
    that of the valley of the start: a small `probability` tells a wrong one.

    Args:
        module: what is inferred: a `TorchPropagator`, or any module with trainable parameters, such as several layers
            that share some. A parametrisation keeps values allowed.
        residuals: a function of the module that returns model − data, a tensor or a sequence of tensors of any shapes,
            differentiable in forward mode. Of complex ones, real and imaginary part count.
        sigma: standard deviation of the noise (of real and imaginary part each): a number, a tensor that broadcasts to
            the residuals, or a sequence of these, one for each tensor; the default is for residuals in units of it.
            None where it is not known: then the residuals are taken to have one variance, which is estimated.
        priors: what is known beforehand, {name: (mean, standard deviation)} in physical units, by the names of
            `Inference.parameters`, or by that of a parameter for all its elements.
        tolerance: relative change of χ² or of the parameters at which the fit ends.
        max_evaluations: of the residuals.
        verify: whether the residuals are computed again at twice the resolution of every layer in the module, with a
            `ResolutionWarning` where that would move a parameter by more than a tenth of its standard error.

    Returns:
        An `Inference`. What the data leave open, a singular direction of J, is named in an `InferenceWarning`; it stays
        as it was, the inverse is a pseudo-inverse, and the standard errors of what depends on it are infinite.

    Raises:
        ProblemError: an argument breaks a rule, or at the start a parameter does. In a trial step of the solver that
            counts as a bad step, as does a ResolutionError.
        ResolutionError: the start cannot be resolved.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from torch_clerq import Positive, Problem, Resolution, TorchPropagator, infer
        >>> problem = Problem.from_dict({
        ...     "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}], "fields": [
        ...         {"coupled_levels": [[0, 1]], "rabi_freq": 1e-3, "rabi_freq_t_func": "gaussian",
        ...          "rabi_freq_t_args": {"ampl": 1.0, "centre": 1.0, "fwhm": 0.3}}]},
        ...     "t_max": 4.0, "t_steps": 80, "z_steps": 1, "interaction_strengths": [1.0]})
        >>> names = {"interaction_strengths": Positive(), "decay_rates": Positive()}
        >>> medium = TorchPropagator(problem, trainable=names, dtype=torch.float64, resolution=Resolution(12, 2))
        >>> trace = 1e3 * medium()[0, -1].detach().real
        >>> trace += 0.01 * torch.as_tensor(np.random.default_rng(0).normal(size=81))
        >>> medium.interaction_strengths, medium.decay_rates = 0.5, 2.0  # a guess
        >>> found = infer(medium, lambda medium: 1e3 * medium()[0, -1].real - trace, sigma=0.01)
        >>> print(found)
        χ² 73.2 with 79 degrees of freedom (probability 0.66)
        parameter              value  standard error   95 % interval
        interaction_strengths  0.982           0.012  0.959 to 1.005
        decay_rates            0.978           0.019  0.941 to 1.017
        condition number of JᵀJ 4
    """
    begin = clock.perf_counter()
    _check(module, residuals, sigma, tolerance, max_evaluations)
    flat = FlatParameters(module)
    system = System(flat, residuals, sigma, _read_priors(flat, priors, sigma))
    try:
        start = flat.raw().numpy()
        for _ in range(REFINEMENTS):
            with refining(flat.holder):
                solved = least_squares(
                    system.values, start, jac=system.jacobian, x_scale="jac",
                    ftol=tolerance, xtol=tolerance, gtol=1e-15, max_nfev=max_evaluations,
                )  # fmt: skip
            start = solved.x
            if not search_on(flat.holder, partial(system.values, start)):
                break
    except BaseException as error:
        if system.best_x is not None:
            flat.store(system.best_x)
            error.add_note("The module holds the best parameters found before this error.")
        raise
    x, left_over, jacobian = solved.x, solved.fun, solved.jac
    lengths = np.linalg.norm(jacobian, axis=0)
    scale = 1 / np.where(lengths > 0, lengths, 1.0)
    left, sizes, right = np.linalg.svd(jacobian * scale, full_matrices=len(left_over) < len(x))
    smallest = math.sqrt(flat.eps)
    rank = int(np.count_nonzero(sizes > smallest * sizes[0]))
    if not rank:
        fail("residuals", "depend on the trainable parameters of the module", "depend on none of them")
    chi_square, freedom = float(left_over @ left_over), len(left_over) - rank
    if sigma is None and freedom < 1:
        fail("sigma", "be given where no more residuals are there than the parameters need",
             f"is None for {len(left_over)} residuals and {rank} parameters")  # fmt: skip
    variance = chi_square / freedom if sigma is None else 1.0
    inverse = scale[:, None] * right[:rank].T / sizes[:rank]
    slopes = flat.slopes(torch.as_tensor(x)).numpy()
    raw = _Raw(x, math.sqrt(variance) * inverse, right[rank:].T, scale, slopes, flat, math.sqrt(smallest))
    values = flat.physical(torch.as_tensor(x)).numpy()
    root, errors = slopes @ raw.root, raw.errors(slopes)
    flat.store(x)
    undetermined = _combinations(flat.names, values, slopes * scale, raw.open)
    decrement = float(np.linalg.norm(left[:, :rank].T @ left_over))
    probability = float(chdtrc(freedom, chi_square)) if sigma is not None and freedom else 1.0
    if probability < IMPROBABLE:
        text = (
            f"The model does not describe the data (χ² {chi_square:.4g} with {freedom} degrees of freedom, probability "
            f"{probability:.1g}), so that the errors mean nothing: look at the residuals, free more parameters (a "
            "detector's factor or background), raise `sigma`, or start elsewhere."
        )
        warn(text, InferenceWarning)
    if undetermined:
        text = (
            f"The data leave open: {'; '.join(undetermined)}. Hold one of these parameters fixed, give `priors`, or "
            "add data that tell them apart."
        )
        warn(text, InferenceWarning)
    if solved.status == 0:
        text = f"The fit has not converged in {solved.nfev} evaluations: raise `max_evaluations`, or start nearer."
        warn(text, InferenceWarning)
    elif decrement > max(UNCONVERGED * math.sqrt(variance), 1e-6 * system.initial):
        reason, distance = system.trouble or "the residuals are not smooth there.", decrement / math.sqrt(variance)
        text = f"The fit stopped {distance:.2g} standard errors before its minimum, for no step was better: {reason}"
        warn(text, InferenceWarning)
    shift = None
    if verify and (finer := system.at_twice_the_resolution(x)) is not None:
        moved = np.abs(slopes @ (inverse @ (left[:, :rank].T @ (finer - left_over))))
        shift = float(np.max(moved / np.maximum(errors, 1e-9 * np.abs(values) + np.finfo(float).tiny)))
        if shift > SHIFTED:
            text = (
                f"At twice the resolution a parameter would move by {shift:.2g} standard errors: infer again with a "
                "finer `resolution` or a smaller `tol`."
            )
            warn(text, ResolutionWarning)
    return Inference(
        parameters=dict(zip(flat.names, values.tolist(), strict=True)),
        standard_errors=dict(zip(flat.names, errors.tolist(), strict=True)),
        covariance=torch.as_tensor(root @ root.T),
        chi_square=chi_square,
        degrees_of_freedom=freedom,
        sigma_known=sigma is not None,
        condition_number=math.inf if undetermined else float((sizes[0] / sizes[rank - 1]) ** 2),
        undetermined=undetermined,
        resolution_shift=shift,
        evaluations=solved.nfev,
        jacobians=solved.njev,
        seconds=clock.perf_counter() - begin,
        stopped=solved.message,
        _raw=raw,
    )


def _check(module: Any, residuals: Any, sigma: Any, tolerance: Any, max_evaluations: Any) -> None:
    trained(module)
    if not callable(residuals):
        fail("residuals", "be a function of the module", f"is {residuals!r}")
    check_number("tolerance", tolerance, "be a number from 1e-15 to 1", lambda number: 1e-15 <= number < 1)
    check_count("max_evaluations", max_evaluations)
    if isinstance(sigma, Sequence) and any(one is None for one in sigma):
        fail("sigma", "be known for each tensor of residuals, or None for all", f"is {sigma!r}")


def _read_priors(flat: FlatParameters, priors: Mapping[str, tuple[float, float]] | None, sigma: Any) -> torch.Tensor:
    """Index, mean and standard deviation of each prior, shape (3, prior)."""
    if priors is not None and not isinstance(priors, Mapping):
        fail("priors", "be a dict {name: (mean, standard deviation)}", f"is {priors!r}")
    if priors and sigma is None:
        fail("priors", "come with `sigma`, for their weight beside the data depends on it", "came without")
    found: list[tuple[float, float, float]] = []
    for name, prior in (priors or {}).items():
        places = [k for k, own in enumerate(zip(flat.names, flat.owners, strict=True)) if name in own]
        if not places:
            known = list(dict.fromkeys(flat.names + flat.owners))
            fail("priors", f"have names among {', '.join(known)}", f"has {name!r}{suggestion(name, known)}")
        try:
            mean, deviation = (float(number) for number in prior)
        except (TypeError, ValueError):
            mean = deviation = math.nan
        if not (math.isfinite(mean) and 0 < deviation < math.inf):
            fail(f"priors[{name!r}]", "be (mean, positive standard deviation)", f"is {prior!r}")
        found += [(place, mean, deviation) for place in places]
    if len({place for place, _, _ in found}) < len(found):
        fail("priors", "name each parameter once", f"names one twice: {', '.join(priors or ())}")
    return torch.tensor(found, dtype=torch.float64).reshape(-1, 3).T


def _combinations(
    names: Sequence[str], values: np.ndarray, slopes: np.ndarray, directions: np.ndarray
) -> tuple[str, ...]:
    """Changes of the physical values along directions of scaled raw ones, in words, as few names in each as possible.

    Directions that move no physical value, as of all raw values of a `Simplex` together, are none.
    """
    size = np.where(values != 0, np.abs(values), 1.0)[:, None]
    relative = slopes @ directions / size
    left, moves, _ = np.linalg.svd(relative, full_matrices=False)
    basis = left[:, moves > 1e-8 * np.max(np.abs(slopes) / size, initial=0.0)]
    count = basis.shape[1]
    if not count:
        return ()
    pivots = qr(basis.T, pivoting=True, mode="economic")[2][:count]
    basis = basis @ np.linalg.inv(basis[pivots])
    found = []
    for column in basis.T:
        column = column / np.max(np.abs(column))
        named = sorted((k for k in range(len(names)) if abs(column[k]) > 1e-2), key=lambda k: -abs(column[k]))
        column = column * np.sign(column[named[0]])
        parts = [f"{names[k]} {column[k]:+.3g}{' %' if values[k] else ''}" for k in named]
        found.append(" with ".join(parts) if len(parts) > 1 else names[named[0]])
    return tuple(found)
