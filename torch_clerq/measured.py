"""Measured traces and spectra, read from CSV files, and the medium that is to explain them."""

import csv
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from jax_kernel import checks, parameters, pulses
from jax_kernel.errors import ProblemError
from jax_kernel.problem import Problem

from .analysis import interpolate
from .checks import check_positive
from .parametrisations import Positive
from .parametrised import Parametrised
from .propagator import TorchPropagator

TRACES = ("power", "amplitude", "real", "imag")
SPECTRA = ("transmission", "phase")

_POSITIVE = (
    "decay_rates", "decay_scale", "interaction_strengths", "thermal_width", "number_density", "fwhm",
)  # fmt: skip
"""Parameters and arguments of pulses that a fit keeps positive where they are at the start."""

FLOOR = 0.01
"""Part of the entering spectrum's peak below which no spectrum can be measured."""

LARGEST = 2**28
"""Characters of a file at most."""

POSITIONS = 64
"""Stored intervals of z along which a phase is followed."""

LARGEST_TURN = 0.8 * math.pi
"""Phase from one stored position to the next from which a turn might be missed."""


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
        example = "such as time,LABEL.power or frequency,LABEL.transmission"
        _refuse(path, f"begin with a line of names, `time` or `frequency` first, {example}",
                f"begins with {', '.join(header)!r}")  # fmt: skip
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
            rule = f"name its columns LABEL.QUANTITY, as {problem.field_names[0]}.{allowed[0]}, with a quantity among "
            rule += f"{', '.join(allowed)} over {axis}"
            _refuse(path, rule, f"has {title!r}")
        try:
            field = problem.field_index(label or 0)
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
        with Path(path).open(encoding="utf-8-sig") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            _refuse(path, f"have {LARGEST // 2**20} MiB at most", "has more")
        text = content.splitlines()
        first = text[0] if text else ""
        lines = list(csv.reader(text, delimiter=next((mark for mark in ",;\t" if mark in first), ",")))
    except (OSError, ValueError, csv.Error) as error:
        raise ProblemError(f"File {os.fspath(path)} must be a readable CSV file in UTF-8, but: {error}.") from error
    lines = [[cell.strip() for cell in line] for line in lines if any(cell.strip() for cell in line)]
    if len(lines) < 2:
        _refuse(path, "have a line of names and lines of numbers", f"has {len(lines)} line{'s'[: len(lines) != 1]}")
    header, rows = lines[0], np.full((len(lines) - 1, len(lines[0])), math.nan)
    for k, line in enumerate(lines[1:]):
        if len(line) != len(header):
            rule = f"have {len(header)} cells in each line, with decimal points and no comments"
            _refuse(path, rule, f"has {len(line)} in its row {k + 1}")
        for j, cell in enumerate(line):
            try:
                rows[k, j] = float(cell.replace("_", "x")) if cell else math.nan  # Python would read 1_0 as 10
                finite = not cell or math.isfinite(rows[k, j])
            except ValueError:
                finite = False
            if not finite:
                rule = "have finite numbers with decimal points"
                _refuse(path, rule, f"has {cell[:40]!r} in row {k + 1} of column {header[j]!r}")
    return header, rows


def with_sigma(data: Sequence[Measured], sigma: float | None) -> list[Measured]:
    """The columns with a standard deviation of the noise for those without one of their own.

    Args:
        data: what was measured.
        sigma: for columns without one, or None where none is known.

    Returns:
        The columns, all of them with standard deviations, or none.

    Raises:
        ProblemError: it is not positive, or only some columns have one.

    Example:
        >>> column = Measured("power", 0, "power", torch.zeros(2), torch.ones(2))
        >>> with_sigma([column], 0.1)[0].sigma
        tensor([0.1000, 0.1000])
    """
    if sigma is not None:
        check_positive("sigma", sigma)
    missing = [column.name for column in data if column.sigma is None]
    if sigma is None and 0 < len(missing) < len(data):
        parameters.fail("sigma", f"be given for {', '.join(missing)}, where other columns have one", "is not")
    if sigma is None:
        return list(data)
    return [
        column if column.sigma is not None else replace(column, sigma=torch.full_like(column.values, sigma))
        for column in data
    ]


class Medium(Parametrised):
    """A problem some of whose numbers are to explain measured values.

    Args:
        problem: its numbers are the guesses.
        free: names of what is inferred: a parameter; in brackets one of its numbers, by position or, of fields, by
            label, such as "decay_rates[0]" or "detunings[probe]"; "pulse_args.probe.centre" for one argument of a
            pulse. Rates, widths and strengths that are positive stay so.
        data: what was measured.
        scale: whether a factor of each column is inferred, too, but of phases.
        offset: whether a background of each column is inferred, too.
        tol: error of the fields aimed at, relative to each field's peak.

    Attributes:
        names: of the numbers of the problem that are inferred.
        sigma: of the data, for `infer`.

    Raises:
        ProblemError: a name is none or comes twice, or a spectrum reaches to where no light enters.

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
        >>> print(f"{medium.to_problem().interaction_strengths[0]:.4f}")
        0.7000
    """

    def __init__(
        self,
        problem: Problem,
        free: Sequence[str],
        data: Sequence[Measured],
        *,
        scale: bool = False,
        offset: bool = False,
        tol: float = 1e-4,
    ):
        super().__init__()
        self.problem, self.data = problem, tuple(data)
        self.sigma = None if any(column.sigma is None for column in data) else [column.sigma for column in data]
        followed = POSITIONS if any(column.quantity == "phase" for column in data) else 1
        self.layer = TorchPropagator(replace(problem, z_steps=followed), dtype=torch.float64, tol=tol)
        self.places: dict[str, tuple[Any, ...]] = {}
        values = parameters.defaults(problem)
        for asked in free:
            for name, place in _places(problem, values, asked):
                if place in self.places.values():
                    parameters.fail("free", "name each number once", f"names {asked} twice")
                value: Any = values
                for key in place:
                    value = value[key]
                positive = (place[0] in _POSITIVE or place[-1] in _POSITIVE) and value > 0
                self._add(name, np.asarray(float(value)), Positive() if positive else None, torch.float64)
                self.places[name] = place
        self.names = list(self.places)
        self.scales = self._of_columns("scale", scale)
        self.offsets = self._of_columns("offset", offset)
        self.matrices = [self._from_grid(column) for column in self.data]
        self.models()  # whose spectra are to have light

    def _of_columns(self, what: str, wanted: bool) -> list[str | None]:
        """The name of the factor or background of each column that has one."""
        found: list[str | None] = []
        taken: list[str] = []
        for column in self.data:
            if not wanted or (what == "scale" and column.quantity == "phase"):
                found.append(None)
                continue
            taken.append(column.name)
            again = f" {taken.count(column.name)}" if taken.count(column.name) > 1 else ""
            name = _without_dots(f"{what}[{column.name}{again}]")
            positive = what == "scale" and column.quantity not in ("real", "imag")
            self._add(name, np.asarray(float(what == "scale")), Positive() if positive else None, torch.float64)
            found.append(name)
        return found

    def _from_grid(self, column: Measured) -> torch.Tensor:
        """What takes samples on the time grid to where a column was measured, shape (time, point).

        Between times that is the spline of sampled fields, or lines where the edges of a pulse lie in the window.
        Between frequencies it is the Fourier transform at these.
        """
        time = self.layer.time
        if column.quantity in SPECTRA:
            return torch.exp(-2j * math.pi * (time - time[0])[:, None] * column.at.to(time))
        each = torch.eye(len(time), dtype=time.dtype)
        if not any(self.problem.t_min < t < self.problem.t_max for t in checks.jumps(self.problem)):
            return interpolate(time, each, column.at.to(time))
        return torch.as_tensor(np.stack([np.interp(column.at.numpy(), time.numpy(), row.numpy()) for row in each]))

    def params(self) -> dict[str, Any]:
        """The parameters of the layer that differ from the problem's, in physical units."""
        values: dict[str, Any] = parameters.defaults(self.problem)
        changed: dict[str, Any] = {}
        for name, (base, *place) in self.places.items():
            number = getattr(self, name)
            if base == "pulse_args":
                changed.setdefault(base, [{} for _ in self.problem.fields])[place[0]][place[1]] = number
            elif place:
                whole: Any = changed.get(base, torch.as_tensor(values[base]))
                changed[base] = torch.where(torch.arange(len(whole)) == place[0], number, whole)
            else:
                changed[base] = number
        return changed

    def to_problem(self) -> Problem:
        """The problem with the present values."""
        with torch.no_grad():
            params = self.params()
        args = [
            {key: number.numpy(force=True) for key, number in light.items()} for light in params.pop("pulse_args", ())
        ]
        whole = {name: value.numpy(force=True) for name, value in params.items()}
        return self.problem.updated(**whole, **({"pulse_args": args} if args else {}))

    def residuals(self) -> list[torch.Tensor]:
        """`models` less what was measured, one tensor a column, shape (point,)."""
        return [model - column.values for model, column in zip(self.models(), self.data, strict=True)]

    def models(self) -> list[torch.Tensor]:
        """What should have been measured, one tensor a column, shape (point,)."""
        fields = self.layer(**self.params())
        found = []
        for column, matrix, scale, offset in zip(self.data, self.matrices, self.scales, self.offsets, strict=True):
            turned = self.problem.fields[column.field].counter_propagating
            light = fields[column.field].flip(0) if turned else fields[column.field]
            model = _spectrum(column, light, matrix) if column.quantity in SPECTRA else _trace(column, light, matrix)
            model = model if scale is None else model * getattr(self, scale)
            found.append(model if offset is None else model + getattr(self, offset))
        return found


def _trace(column: Measured, light: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """A column over time from the light of its field, shape (z, time), the first position the entrance."""
    real, imag = torch.view_as_real(light[-1]).T @ matrix
    if column.quantity in ("real", "imag"):
        return real if column.quantity == "real" else imag
    power = real**2 + imag**2
    if column.quantity == "amplitude":
        return (power + torch.finfo(power.dtype).tiny).sqrt()
    peak = light[0].abs().amax() ** 2
    if not peak.detach() > 0:
        parameters.fail("data", "have a power of fields that are lit at the entrance", f"has {column.name}")
    return power / peak


def _spectrum(column: Measured, light: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Likewise a column over frequency."""
    brightest = torch.fft.fft(light[0].detach()).abs().amax()
    spectra = light @ matrix
    dark = spectra[0].detach().abs() <= FLOOR * brightest
    if bool(dark.any()):
        rule = f"have frequencies where light enters: above {FLOOR:g} of the peak of its spectrum"
        parameters.fail("data", rule, f"{column.name} has {column.at[dark][0]:.6g}")
    if column.quantity == "transmission":
        return (spectra[-1].abs() / spectra[0].abs()) ** 2
    turns = (spectra[:-1] * (spectra[1:] / spectra[0].abs() ** 2).conj()).angle()
    if bool((turns.detach().abs() > LARGEST_TURN).any()):
        rule = f"have phases that turn by less than {LARGEST_TURN:.2f} in 1/{POSITIONS} of the medium"
        parameters.fail("data", rule, f"{column.name} turns by {turns.detach().abs().amax():.2f}")
    return turns.sum(0)


def _without_dots(name: str) -> str:
    """A name that torch accepts for a parameter."""
    return name.replace(".", " ")


def _places(problem: Problem, values: dict[str, Any], asked: str) -> list[tuple[str, tuple[Any, ...]]]:
    """The names and places (parameter, …) of the numbers that a name stands for."""
    known = [name for name in parameters.PARAMETERS if name in values and name != "initial_state"]
    if str(asked).partition(".")[0] == "pulse_args":
        return [_pulse_place(problem, values, asked)]
    match = re.fullmatch(r"(\w+)(?:\[(.*)\])?", str(asked))
    if not match or match[1] not in known or match[1] == "pulse_args":
        near = parameters.suggestion(asked, known)
        rule = f"have names among {', '.join(known)}, with [position or label] behind, or pulse_args.FIELD.ARGUMENT"
        parameters.fail("free", rule, f"has {asked!r}{near}")
    base, key = match[1], match[2]
    if np.iscomplexobj(values[base]):
        parameters.fail("free", "have real parameters", f"has {asked!r}, which is complex")
    shape = values[base].shape
    if key is None and not shape:
        return [(base, (base,))]
    if key is None:
        return [(base if shape == (1,) else f"{base}[{k}]", (base, k)) for k in range(shape[0])]
    if parameters.AXES.get(base) == ("field",):
        return [(_without_dots(asked), (base, problem.field_index(key)))]
    if not shape or not key.isdecimal() or len(key) > 9 or int(key) >= shape[0]:
        rule = f"have positions from 0 to {shape[0] - 1} in {base}" if shape else f"name {base} without a position"
        parameters.fail("free", rule, f"has {asked!r}")
    return [(asked, (base, int(key)))]


def _pulse_place(problem: Problem, values: dict[str, Any], asked: str) -> tuple[str, tuple[str, int, str]]:
    """One argument of one pulse, by the name that it has in a layer."""
    label, _, key = asked.partition(".")[2].rpartition(".")
    if not label:
        parameters.fail("free", "name one argument of one pulse, as in pulse_args.probe.centre", f"has {asked!r}")
    k = problem.field_index(label)
    edges = pulses.EDGES.get(problem.fields[k].envelope.name, ())
    args = [name for name, value in values["pulse_args"][k].items() if not np.ndim(value) and name not in edges]
    if key not in args:
        parameters.fail("free", f"name one of {', '.join(args)} of field {label}", f"has {asked!r}")
    return f"pulse_args_{k}_{key}", ("pulse_args", k, key)
