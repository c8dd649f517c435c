"""Measured traces and spectra, read from CSV files, and the medium that is to explain them."""

import csv
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from jax_kernel import parameters
from jax_kernel.errors import ProblemError
from jax_kernel.problem import Problem

from . import spectra
from .analysis import interpolate
from .parametrisations import Positive
from .parametrised import Parametrised
from .propagator import TorchPropagator

TRACES = ("power", "amplitude", "real", "imag")
SPECTRA = ("transmission", "phase")

_POSITIVE = ("decay_rates", "decay_scale", "interaction_strengths", "thermal_width", "number_density")
"""Parameters that a fit keeps positive where they are at the start."""

FLOOR = 0.01
"""Part of the entering spectrum's peak below which no spectrum can be measured."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One column of measured values.

    Attributes:
        name: of the column.
        field: position of the field.
        quantity: one of `TRACES` or `SPECTRA`.
        at: times, or frequencies relative to the carrier, cyclic, shape (point,).
        values: shape (point,).
        sigma: standard deviations of the values, shape (point,), or None.
    """

    name: str
    field: int
    quantity: str
    at: torch.Tensor
    values: torch.Tensor
    sigma: torch.Tensor | None = None


def read_csv(path: str | os.PathLike[str], problem: Problem) -> list[Measured]:
    """Read a CSV file of traces over time or spectra.

    The first line has the names: `time` or `frequency`, then LABEL.QUANTITY, a field's label or position and one of
    power, amplitude, real, imag (over time), transmission or phase (over frequency); with `.sigma` behind it, the
    standard deviation of that column. With a single field the label may be left out. Empty cells are left out.

    Args:
        path: of the file.
        problem: has the fields.

    Returns:
        The columns.

    Raises:
        ProblemError: the file cannot be read or breaks a rule; one sentence says where.

    Example:
        >>> import tempfile
        >>> from torch_clerq import Problem
        >>> problem = Problem.from_dict({"system": {"num_states": 2, "fields": [{"coupled_levels": [[0, 1]]}]},
        ...                              "interaction_strengths": [1.0]})
        >>> file = Path(tempfile.mkdtemp(), "trace.csv")
        >>> _ = file.write_text("time,power\\n0.0,1.0\\n0.5,0.7\\n")
        >>> read_csv(file, problem)[0].values.tolist()
        [1.0, 0.7]
    """
    header, rows = _table(path)
    axis, *titles = header
    if axis not in ("time", "frequency") or not titles:
        _refuse(path, "begin with a line of names, `time` or `frequency` first", f"begins with {', '.join(header)!r}")
    repeated = {title for title in titles if titles.count(title) > 1}
    if repeated:
        _refuse(path, "name each column once", f"has {repeated.pop()!r} twice")
    allowed, columns = TRACES if axis == "time" else SPECTRA, dict(zip(titles, rows[:, 1:].T, strict=True))
    at, found = rows[:, 0], []
    if np.isnan(at).any():
        _refuse(path, f"have a {axis} in every row", "has a row without")
    if axis == "time" and len(at) and not (problem.t_min <= at.min() and at.max() <= problem.t_max):
        window = f"{problem.t_min:g} to {problem.t_max:g}"
        _refuse(path, f"have times within the problem's window ({window})", f"has {at.min():g} to {at.max():g}")
    for title, values in columns.items():
        name = title.removesuffix(".sigma")
        if name != title:
            if name not in columns:
                _refuse(path, f"have a column {name!r} beside {title!r}", "has none")
            continue
        label, _, quantity = name.rpartition(".")
        if quantity not in allowed or (not label and len(problem.fields) > 1):
            rule = f"name its columns LABEL.QUANTITY with a quantity among {', '.join(allowed)} over {axis}"
            _refuse(path, rule, f"has {title!r}")
        labels = [light.label for light in problem.fields]
        which: Any = int(label) if label.isdecimal() and label not in labels else label or 0
        try:
            field = problem.field_index(which)
        except ProblemError as error:
            raise ProblemError(
                f"{str(error).removesuffix('.')} (column {title!r} of file {os.fspath(path)})."
            ) from None
        sigma = columns.get(f"{name}.sigma")
        given = ~np.isnan(values)
        if sigma is not None and not (sigma[given] > 0).all():
            _refuse(path, "have a positive standard deviation beside each value", f"has another in {name}.sigma")
        if not given.any():
            _refuse(path, "have values in every column", f"has none in {title!r}")
        parts = [torch.as_tensor(part[given]) for part in (at, values, *(() if sigma is None else (sigma,)))]
        found.append(Measured(name, field, quantity, *parts))
    return found


def _refuse(path: str | os.PathLike[str], rule: str, actual: str) -> None:
    raise ProblemError(f"File {os.fspath(path)} must {rule}, but {actual}.")


def _table(path: str | os.PathLike[str]) -> tuple[list[str], np.ndarray]:
    """The names of the columns, and the numbers, shape (row, column), NaN in empty cells."""
    try:
        lines = list(csv.reader(Path(path).read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, ValueError, csv.Error) as error:
        raise ProblemError(f"File {os.fspath(path)} must be a readable CSV file, but: {error}.") from error
    lines = [[cell.strip() for cell in line] for line in lines if any(cell.strip() for cell in line)]
    if len(lines) < 2:
        _refuse(path, "have a line of names and lines of numbers", f"has {len(lines)} line{'s'[: len(lines) != 1]}")
    header, rows = lines[0], np.full((len(lines) - 1, len(lines[0])), math.nan)
    for k, line in enumerate(lines[1:]):
        if len(line) != len(header):
            _refuse(path, f"have {len(header)} cells in each line", f"has {len(line)} in its row {k + 1}")
        for j, cell in enumerate(line):
            try:
                rows[k, j] = float(cell) if cell else math.nan
                finite = not cell or math.isfinite(rows[k, j])
            except ValueError:
                finite = False
            if not finite:
                _refuse(path, "have finite numbers", f"has {cell!r} in row {k + 1} of column {header[j]!r}")
    return header, rows


class Medium(Parametrised):
    """A problem some of whose numbers are to explain measured values.

    Args:
        problem: its numbers are the guesses.
        free: names of what is inferred: a parameter, or in brackets one of its numbers by position or, of fields, by
            label, such as "decay_rates[0]", "detunings[probe]" or "pulse_args[probe][centre]". Rates, widths and
            strengths that are positive stay so.
        data: what was measured.
        scale: whether a factor of each column is inferred, too.
        tol: error of the fields aimed at, relative to each field's peak.

    Attributes:
        names: of the numbers that are inferred.

    Raises:
        ProblemError: a name is none, or a spectrum reaches to where no light enters.

    Example:
        >>> from torch_clerq import Problem, infer
        >>> problem = Problem.from_dict({
        ...     "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}], "fields": [
        ...         {"label": "probe", "coupled_levels": [[0, 1]], "rabi_freq": 1e-3, "rabi_freq_t_func": "gaussian",
        ...          "rabi_freq_t_args": {"ampl": 1.0, "centre": 1.0, "fwhm": 0.3}}]},
        ...     "t_max": 4.0, "t_steps": 80, "z_steps": 1, "interaction_strengths": [1.0]})
        >>> layer = TorchPropagator(problem, dtype=torch.float64, tol=1e-4)
        >>> trace = layer(interaction_strengths=[0.7])[0, -1].detach().abs()
        >>> data = [Measured("probe.amplitude", 0, "amplitude", layer.time, trace)]
        >>> medium = Medium(problem, ["interaction_strengths[probe]"], data)
        >>> found = infer(medium, Medium.residuals, sigma=1e-6)
        >>> print(f"{found.parameters['interaction_strengths[probe]']:.4f}")
        0.7000
    """

    def __init__(
        self, problem: Problem, free: Sequence[str], data: Sequence[Measured], *, scale: bool = False, tol: float = 1e-4
    ):
        super().__init__()
        self.data, self.scaled = tuple(data), scale
        self.layer = TorchPropagator(problem, dtype=torch.float64, tol=tol)
        self.places: dict[str, tuple[Any, ...]] = {}
        values = parameters.defaults(problem)
        for asked in free:
            for name, place in _places(problem, values, asked):
                value = _value(values, place)
                positive = place[0] in _POSITIVE and value > 0
                self._add(name, np.asarray(float(value)), Positive() if positive else None, torch.float64)
                self.places[name] = place
        self.names = list(self.places)
        if scale:
            for column in self.data:
                name = f"scale[{column.name.replace('.', ' ')}]"
                self._add(name, np.asarray(1.0), Positive(), torch.float64)
        self.models()  # whose spectra are to have light

    def sigma(self, default: float | None) -> list[torch.Tensor | float] | None:
        """The standard deviations for `infer`, one entry a column; None where none is known."""
        if default is not None and not 0 < default < math.inf:
            parameters.fail("sigma", "be positive", f"is {default!r}")
        missing = [column.name for column in self.data if column.sigma is None]
        if default is None and len(missing) == len(self.data):
            return None
        if default is None and missing:
            parameters.fail("sigma", f"be given for {', '.join(missing)}, where other columns have one", "is not")
        return [default if column.sigma is None else column.sigma for column in self.data]  # type: ignore[misc]

    def params(self) -> dict[str, Any]:
        """The parameters of the layer that differ from the problem's, in physical units."""
        values: dict[str, Any] = parameters.defaults(self.layer.problem)
        changed: dict[str, Any] = {}
        pulses = [dict(args) for args in values["pulse_args"]]
        for name, (base, *place) in self.places.items():
            number = getattr(self, name)
            if base == "pulse_args":
                pulses[place[0]][place[1]] = number
                changed[base] = pulses
                continue
            whole: Any = changed.get(base, torch.as_tensor(values[base]))
            if place:
                chosen = torch.arange(len(whole)) == place[0]
                changed[base] = torch.where(chosen, number, whole)
            else:
                changed[base] = number
        return changed

    def problem(self) -> Problem:
        """The problem with the present values."""
        params = {name: value for name, value in self.params().items() if name != "pulse_args"}
        params = {name: value.detach().numpy() for name, value in params.items()}
        pulses = [(p, self.places[name]) for name, p in self.physical_parameters().items() if name in self.places]
        moved: dict[int, dict[str, float]] = {}
        for value, place in pulses:
            if place[0] == "pulse_args":
                moved.setdefault(place[1], {})[place[2]] = value.item()
        return self.layer.problem.updated(**params, **({"pulse_args": moved} if moved else {}))

    def residuals(self) -> list[torch.Tensor]:
        """`models` less what was measured, one tensor a column, shape (point,)."""
        return [model - column.values for model, column in zip(self.models(), self.data, strict=True)]

    def models(self) -> list[torch.Tensor]:
        """What should have been measured, one tensor a column, shape (point,)."""
        fields = self.layer(**self.params())
        found = []
        for column in self.data:
            turned = self.layer.problem.fields[column.field].counter_propagating
            light = fields[column.field].flip(0) if turned else fields[column.field]
            model = self._model(column, light)
            found.append(model * getattr(self, f"scale[{column.name.replace('.', ' ')}]") if self.scaled else model)
        return found

    def _model(self, column: Measured, light: torch.Tensor) -> torch.Tensor:
        """One column from the light of its field, shape (z, time), the first position the entrance."""
        if column.quantity in SPECTRA:
            return self._spectrum(column, light)
        pulse = interpolate(self.layer.time, torch.view_as_real(light[-1]).T, column.at)
        real, imag = pulse
        if column.quantity == "real":
            return real
        if column.quantity == "imag":
            return imag
        power = real**2 + imag**2
        if column.quantity == "amplitude":
            return (power + torch.finfo(power.dtype).tiny).sqrt()
        peak = light[0].detach().abs().amax() ** 2
        if not peak:
            parameters.fail("data", "have a power of fields that are lit at the entrance", f"has {column.name}")
        return power / peak

    def _spectrum(self, column: Measured, light: torch.Tensor) -> torch.Tensor:
        frequency = spectra.freq_list(self.layer.time)
        lit = frequency[spectra.in_band(light, floor=FLOOR)]
        low, high = (lit.min().item(), lit.max().item()) if len(lit) else (math.inf, -math.inf)
        if not (low <= column.at.min() and column.at.max() <= high):
            where = f"from {low:.3g} to {high:.3g}" if len(lit) else "nowhere"
            parameters.fail("data", f"have frequencies where light enters, which for {column.name} is {where}",
                            f"reach from {column.at.min():.3g} to {column.at.max():.3g}")  # fmt: skip
        floor = FLOOR / 10  # so that the spline has neighbours
        if column.quantity == "phase":
            return interpolate(frequency, spectra.dispersion(light, floor=floor), column.at)
        return torch.exp(-2 * interpolate(frequency, spectra.absorption(light, floor=floor), column.at))


def _places(problem: Problem, values: dict[str, Any], asked: str) -> list[tuple[str, tuple[Any, ...]]]:
    """The names and places (parameter, …) of the numbers that a name stands for."""
    match = re.fullmatch(r"(\w+)((?:\[[^\[\]]+\])*)", asked)
    known = [name for name in parameters.PARAMETERS if name in values and name not in ("initial_state",)]
    if not match or match[1] not in known:
        near = parameters.suggestion(asked, known)
        parameters.fail("free", f"have names among {', '.join(known)}, with [position or label] behind",
                        f"has {asked!r}{near}")  # fmt: skip
    base, keys = match[1], re.findall(r"\[([^\[\]]+)\]", match[2])
    if base == "pulse_args":
        return [_pulse_place(problem, values, asked, keys)]
    if np.iscomplexobj(values[base]):
        parameters.fail("free", "have real parameters", f"has {asked!r}, which is complex")
    count = values[base].shape
    if not keys:
        return [(base, (base,))] if not count else [
            (base if count == (1,) else f"{base}[{k}]", (base, k)) for k in range(count[0])
        ]  # fmt: skip
    axis = parameters.AXES.get(base, ())
    key = keys[0]
    if axis == ("field",):
        place = problem.field_index(_key(problem, key))
    elif len(keys) == 1 and count and key.isdecimal() and int(key) < count[0]:
        place = int(key)
    else:
        place = -1
    if place < 0 or len(keys) > 1:
        rule = f"have positions from 0 to {count[0] - 1} in {base}" if count else f"name {base} without a position"
        parameters.fail("free", rule, f"has {asked!r}")
    return [(asked, (base, place))]


def _key(problem: Problem, key: str) -> str | int:
    labels = [light.label for light in problem.fields]
    return int(key) if key.isdecimal() and key not in labels else key


def _pulse_place(
    problem: Problem, values: dict[str, Any], asked: str, keys: list[str]
) -> tuple[str, tuple[str, int, str]]:
    if len(keys) != 2:
        parameters.fail("free", "name one argument of one pulse, as in pulse_args[probe][centre]", f"has {asked!r}")
    k = problem.field_index(_key(problem, keys[0]))
    args = [key for key, value in values["pulse_args"][k].items() if not np.ndim(value)]
    if keys[1] not in args:
        parameters.fail("free", f"name one of {', '.join(args)} of field {keys[0]}", f"has {asked!r}")
    return asked, ("pulse_args", k, keys[1])


def _value(values: dict[str, Any], place: tuple[Any, ...]) -> Any:
    value = values[place[0]]
    for key in place[1:]:
        value = value[key]
    return value
