"""What is solved: levels, fields, decays, medium, velocity classes and grids, read from and written as clerq JSON.

`Problem.from_json` and `Problem.from_dict` are the checked ways in. Every frequency is cyclic; times and lengths are in
any units consistent with it. The keys and their defaults are those of `clerq.PropagationSolver` 0.15.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from . import doppler
from .elements import Decay, Envelope, Field, MagneticField, VelocityClasses
from .errors import ProblemError
from .files import read_json, write
from .reading import is_integer, read_problem, show, suggestion


@dataclass(frozen=True, repr=False)
class Problem:
    """A medium of driven, decaying quantum systems and the light that enters it.

    Attributes:
        num_states: Number of levels.
        energies: Cyclic, shape (level,).
        initial_state: Populations before the light comes, shape (level,).
        decays: Decays, each with its channels.
        fields: Light fields.
        b_field: Magnetic field or None.
        level_detunings: Detuning of each level, cyclic, which lowers its energy; None for the rule of clerq, by which
            it is the sum of the detunings of the fields that have the level as an upper level.
        level_doppler_slopes: Change of each level's energy per Doppler shift; None for the same rule.
        t_min: Start of the window in retarded time.
        t_max: End of the window.
        t_steps: Intervals of the time grid, at least 3.
        z_min: Where the forward fields enter.
        z_max: Where they leave.
        z_steps: Intervals between the stored positions.
        z_steps_inner: Steps of the z-march per stored interval, or "auto".
        number_density: Profile over z, a factor of the interaction strengths.
        interaction_strengths: Cyclic frequency per unit length, shape (field,).
        velocity_classes: Doppler broadening, or None for atoms at rest.
        label: Name of the system.
    """

    num_states: int
    energies: tuple[float, ...]
    initial_state: tuple[float, ...]
    decays: tuple[Decay, ...]
    fields: tuple[Field, ...]
    b_field: MagneticField | None
    t_min: float
    t_max: float
    t_steps: int
    z_min: float
    z_max: float
    z_steps: int
    z_steps_inner: int | str
    number_density: Envelope
    interaction_strengths: tuple[float, ...]
    velocity_classes: VelocityClasses | None = None
    level_detunings: tuple[float, ...] | None = None
    level_doppler_slopes: tuple[float, ...] | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        for name, value in read_problem(self.to_dict()).items():
            object.__setattr__(self, name, value)  # checked, and in the hashable form
        if self.velocity_classes is not None and isinstance(self.velocity_classes.thermal_delta_spacing, float):
            doppler.shifts(self.velocity_classes)  # refuses what are too many
        object.__setattr__(self, "_content_hash", hash(tuple(getattr(self, field.name) for field in fields(self))))

    def __hash__(self) -> int:
        return self.__dict__["_content_hash"]

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_content_hash"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # hashes of strings differ between processes

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Problem:
        """Read a problem file.

        Args:
            path: A file with one JSON object, see `from_dict`.

        Returns:
            The problem.

        Raises:
            ProblemError: The file cannot be read, is not JSON, or breaks a rule of `from_dict`.
        """

        content = read_json(path)
        try:
            return cls.from_dict(content)
        except ProblemError as error:
            raise ProblemError(f"{str(error).removesuffix('.')} (in file {os.fspath(path)}).") from error

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Problem:
        """Check and read the constructor arguments of `clerq.PropagationSolver`.

        `atom` is an alias of `system`; None stands for the default; `method`, `opts`, `savefile` and a field's `index`
        are ignored.

        Args:
            content: The arguments, never changed.

        Returns:
            The problem.

        Raises:
            ProblemError: A key, a type, a length or a value breaks a rule; one sentence says which.
        """
        return cls(**read_problem(content))

    def to_dict(self) -> dict[str, Any]:
        """The constructor arguments of `clerq.PropagationSolver`, which `from_dict` reads back to an equal problem.

        Returns:
            Nested dicts and lists, shared with nothing; complex values stay complex.
        """
        system: dict[str, Any] = {
            "label": self.label,
            "num_states": self.num_states,
            "energies": list(self.energies),
            "initial_state": list(self.initial_state),
            "decays": [decay.to_dict() for decay in self.decays],
            "fields": [_write_field(field) for field in self.fields],
        }
        if self.b_field is not None:
            b_field = self.b_field
            system["b_field"] = {**asdict(b_field), "g_F": list(b_field.g_F), "m_F": list(b_field.m_F)}
        for key in ("level_detunings", "level_doppler_slopes"):
            if getattr(self, key) is not None:
                system[key] = list(getattr(self, key))
        content = {key: getattr(self, key) for key in ("t_min", "t_max", "t_steps", "z_min", "z_max", "z_steps")}
        return {
            "system": system,
            **content,
            "z_steps_inner": self.z_steps_inner,
            "num_density_z_func": self.number_density.name,
            "num_density_z_args": self.number_density.to_dict(),
            "interaction_strengths": list(self.interaction_strengths),
            "velocity_classes": None if self.velocity_classes is None else self.velocity_classes.to_dict(),
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write a problem file; a reader sees the old file or the whole new one.

        Args:
            path: Where to.

        Raises:
            ProblemError: A Rabi frequency, a pulse or a collapse operator is complex, for which the format has no form.
            OSError: The file cannot be written; an old one is untouched.
        """
        for name in complex_values(self):
            cure = "keep it in Python with `to_dict`"
            raise ProblemError(f"Argument `{name}` must be real in a file, but is complex: {cure}.")
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        write(Path(path), lambda file: file.write(text.encode()))

    @classmethod
    def from_clerq(cls, solver: Any) -> Problem:
        """Read a live clerq solver, as it stands: edits of its attributes count, whether it was solved does not.

        A function of the user's own in place of one of `clerq.t_funcs` is kept as samples on the solver's grid, joined
        by straight lines; where these miss the function, a `WindowWarning` says by how much.

        Args:
            solver: A `clerq.PropagationSolver`, or a `clerq.LindbladSolver`, which becomes a single driven system
                (its interaction strengths are 0).

        Returns:
            The problem. What steers clerq's machinery (`method`, `opts`, `savefile`) is no part of it.

        Raises:
            ProblemError: It is no such solver, or breaks a rule of `from_dict`.

        Example:
            >>> import clerq  # doctest: +SKIP
            >>> solver = clerq.PropagationSolver.from_json("problem.json")  # doctest: +SKIP
            >>> Problem.from_clerq(solver) == Problem.from_json("problem.json")  # doctest: +SKIP
            True
        """
        from .interop import read_solver

        return read_solver(solver)

    def to_clerq(self) -> Any:
        """A `clerq.PropagationSolver` of this problem, from which `from_clerq` reads an equal one.

        Returns:
            The solver, not solved yet, with clerq's default `opts`.

        Raises:
            ProblemError: The problem has what clerq cannot express (complex values, `operator`, `level_detunings`,
                `level_doppler_slopes`, `quadrature`); the text names each.
            ImportError: clerq is not installed.

        Example:
            >>> solver = problem.to_clerq()  # doctest: +SKIP
            >>> solver.solve(progress=False)  # doctest: +SKIP
        """
        from .interop import write_solver

        return write_solver(self)

    @property
    def time(self) -> np.ndarray:
        """The grid of retarded time, shape (time,) = (t_steps + 1,)."""
        return np.linspace(self.t_min, self.t_max, self.t_steps + 1)

    @property
    def z(self) -> np.ndarray:
        """The stored positions, shape (z,) = (z_steps + 1,)."""
        return np.linspace(self.z_min, self.z_max, self.z_steps + 1)

    @property
    def thermal_width(self) -> float:
        """The 1/e half-width of the distribution of Doppler shifts, cyclic; 1 without velocity classes."""
        return 1.0 if self.velocity_classes is None else self.velocity_classes.thermal_width

    @property
    def doppler_shifts(self) -> np.ndarray:
        """The Doppler shift of each velocity class, shape (class,), cyclic."""
        return doppler.class_shifts(self)

    @property
    def doppler_weights(self) -> np.ndarray:
        """The weight of each velocity class in the Doppler average, shape (class,), with sum 1."""
        return doppler.class_weights(self)

    def field_index(self, field: str | int) -> int:
        """The position of a field.

        Args:
            field: Its label or its position, which may be text.

        Returns:
            The position, from 0.

        Raises:
            ProblemError: No field has this label or position.
        """
        labels = [item.label for item in self.fields]
        if isinstance(field, str) and field and field in labels:
            return labels.index(field)
        if isinstance(field, str) and field.isascii() and field.isdecimal() and len(field) < 10:
            field = int(field)
        if is_integer(field) and 0 <= field < len(labels):
            return int(field)
        named = ", ".join(show(label) for label in labels if label) or "none is labelled"
        raise ProblemError(
            f"Argument `field` must be a label ({named}) or an index from 0 to {len(labels) - 1}, "
            f"but is {show(field)}{suggestion(field, labels)}."
        )

    @property
    def field_names(self) -> list[str]:
        """The label of each field, or "field 0", "field 1", … where it has none; no two are the same."""
        labels = {light.label for light in self.fields}
        numbered = [f"field {k}" for k in range(len(self.fields))]
        return [
            light.label or (name if name not in labels else f"{name} (without a label)")
            for name, light in zip(numbered, self.fields, strict=True)
        ]

    def ends(self, field: str | int) -> tuple[int, int]:
        """The indices into z, from either end, of where a field enters and where it leaves.

        Args:
            field: Its label or its position.

        Returns:
            (0, -1), or (-1, 0) of a counter-propagating field.

        Raises:
            ProblemError: No field has this label or position.

        Example:
            >>> problem = Problem.from_dict({"interaction_strengths": [1.0], "system": {
            ...     "num_states": 2, "fields": [{"coupled_levels": [[0, 1]], "counter_propagating": True}]}})
            >>> problem.ends(0), problem.field_names
            ((-1, 0), ['field 0'])
        """
        return (-1, 0) if self.fields[self.field_index(field)].counter_propagating else (0, -1)

    def updated(self, **params: Any) -> Problem:
        """The same problem with other values of its parameters, those that `propagate` takes.

        Args:
            **params: By name, without batch axes, such as `decay_rates` of shape (decay,); `pulse_args` as one dict a
                field. `decay_scale` multiplies the decay rates, a scalar `number_density` the interaction strengths.

        Returns:
            The problem.

        Raises:
            ProblemError: A value breaks a rule, or is one that a problem has no place for, such as samples of the
                density or a density matrix.

        Example:
            >>> problem = Problem.from_dict({"system": {"num_states": 2, "fields": [{"coupled_levels": [[0, 1]]}]},
            ...                              "interaction_strengths": [1.0]})
            >>> problem.updated(interaction_strengths=[2.5]).interaction_strengths
            (2.5,)
        """
        from . import parameters, updating  # which know problems

        given = parameters.arrange(self, params, None).map(lambda name, value: np.asarray(value))
        parameters.check(self, given)
        return Problem.from_dict(updating.update(self.to_dict(), given.params))

    def __repr__(self) -> str:
        light = ", ".join(self.field_names)
        classes = len(self.doppler_shifts)
        name = "" if self.label is None else f"{self.label!r}: "
        return (
            f"Problem({name}{self.num_states} levels; {light}; {classes} velocity class{'es' if classes > 1 else ''}; "
            f"t {self.t_min:g} to {self.t_max:g} in {self.t_steps} steps; "
            f"z {self.z_min:g} to {self.z_max:g} in {self.z_steps} steps)"
        )


def complex_values(problem: Problem) -> list[str]:
    """Names of the arguments of a problem that are complex."""
    named: list[tuple[str, tuple[Any, ...]]] = []
    for k, field in enumerate(problem.fields):
        samples = dict(field.envelope.args).get("ylist", ())
        named += [(f"fields[{k}].rabi_freq", (field.rabi_freq,)), (f"fields[{k}].rabi_freq_t_args.ylist", samples)]
    for d, decay in enumerate(problem.decays):
        named.append((f"decays[{d}].operator", tuple(itertools.chain(*(decay.operator or ())))))
    return [f"system.{name}" for name, values in named if any(isinstance(value, complex) for value in values)]


def _write_field(field: Field) -> dict[str, Any]:
    content = {key: getattr(field, key) for key in ("label", "detuning", "detuning_positive", "counter_propagating")}
    return {
        **content,
        "coupled_levels": [list(pair) for pair in field.coupled_levels],
        "factors": list(field.factors),
        "factor_doppler_shift": field.factor_doppler_shift,
        "rabi_freq": field.rabi_freq,
        "rabi_freq_t_func": field.envelope.name,
        "rabi_freq_t_args": field.envelope.to_dict(),
    }
