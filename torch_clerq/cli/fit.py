"""torch-clerq fit: numbers of a problem from measured traces or spectra in CSV files."""

import argparse
from pathlib import Path
from typing import Any

import torch

from .. import plotting
from ..design import read
from ..inference import Inference, infer
from ..measured import Measured, Medium, read_csv, with_sigma
from .console import Console
from .results import Results, versions

FORMAT = """\
The first column of a CSV file is `time` or `frequency`, in the units of the problem, relative to the field's carrier.
Each other column is named after a field and what was measured of it where it leaves the medium:

  LABEL.power         |Ω|² over the peak of |Ω|² at the entrance        (time)
  LABEL.amplitude     |Ω|, cyclic                                       (time)
  LABEL.real, .imag   real and imaginary part of Ω, cyclic              (time)
  LABEL.transmission  |Ω|² over that at the entrance                    (frequency)
  LABEL.phase         phase gained in the medium, radians               (frequency)

Fields turn as e^{+i2πνt}, with +ν blue: samples in the convention e^{−iωt} are the conjugate. A phase is that of the
convention e^{−iωt}, positive where the medium slows light down.

A column with `.sigma` behind such a name has its standard deviation. LABEL is the field's label or its number from 0;
empty cells are left out."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = FORMAT
    parser.add_argument("--data", metavar="CSV", type=Path, required=True, nargs="+", help="measured traces or spectra")
    parser.add_argument("--free", metavar="NAME", required=True, nargs="+",
                        help="what is to be inferred, such as decay_rates, interaction_strengths[probe], "
                             "pulse_args.probe.centre or thermal_width; the file has the guesses")  # fmt: skip
    parser.add_argument("--sigma", type=float, help="standard deviation of the noise in columns without one of their "
                                                    "own (default: estimated)")  # fmt: skip
    parser.add_argument("--scale", action="store_true", help="infer a factor for each column, too, as of a detector")
    parser.add_argument("--offset", action="store_true", help="infer a background of each column, too")
    parser.add_argument(
        "--tol", type=float, default=1e-4, help="error of the fields, relative to the peak (default 1e-4)"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    problem, _ = read(args.file)
    results = Results(console, "fit", args.file, args.output)
    data = [column for path in args.data for column in read_csv(path, problem)]
    data = with_sigma(data, args.sigma)
    medium = Medium(problem, args.free, data, scale=args.scale, offset=args.offset, tol=args.tol)
    console.status(f"{sum(len(column.values) for column in data)} values, {len(medium.names)} parameters; compiling")
    with console.reporting():
        found = infer(medium, Medium.residuals, sigma=medium.sigma)
    console.say(str(found))
    content = _content(found) | {"versions": versions(), "seconds": round(console.seconds, 2)}
    results.json("result.json", content)
    results.problem("fitted.json", medium.to_problem())
    results.figures({"figure.png": lambda: _figure(medium, data)})
    console.say(results.close())
    console.result(content | {"files": console.written})
    return 0


def _content(found: Inference) -> dict[str, Any]:
    def number(x: float) -> float | None:
        return x if abs(x) < float("inf") else None

    return {
        "parameters": found.parameters,
        "standard_errors": {name: number(error) for name, error in found.standard_errors.items()},
        "intervals": {name: [number(end) for end in found.interval(name)] for name in found.parameters},
        "covariance": found.covariance.tolist(),
        "chi_square": found.chi_square,
        "degrees_of_freedom": found.degrees_of_freedom,
        "probability": found.probability if found.sigma_known else None,
        "sigma_known": found.sigma_known,
        "condition_number": number(found.condition_number),
        "undetermined": list(found.undetermined),
        "resolution_shift": found.resolution_shift,
    }


def _figure(medium: Medium, data: list[Measured]) -> Any:
    with torch.no_grad():
        models = medium.models()
    return plotting.measured(data, models)
