"""Pulse design: which fields of a problem are free, and how an optimiser shapes them; read from a file.

A design file is a problem file with one more key, `design`:

    fields      by label or index, each free field's
                  basis   name "gaussian", count, window [first, last] of the centres, width (by default their distance)
                  bounds  [low, high] of the waveform, cyclic, kept smoothly; or
                  energy  ∫|Ω|² dt, cyclic squared times time, to which the waveform is scaled
                  gate    off and on, where it is half off and half on again, and rise, the time from 10 to 90 %
                  start   [low, high] between which its coefficients start at random
    objective   name "retrieval_efficiency", field, after
    optimiser   name "adam", learning_rate (falls to 0 along a cosine over the steps), betas; or name "lbfgs"
    steps       gradient steps
    tol         error of the fields, relative to their peaks, that the resolution of the training must meet
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from jax_kernel.errors import ProblemError
from jax_kernel.files import read_json
from jax_kernel.problem import Problem
from jax_kernel.reading import Keys, show
from jax_kernel.resolution import Resolution
from jax_kernel.solution import Solution

from .controls import Bounded, Fields, Gated, GaussianBasis, UnitEnergy, gate
from .functional import check_resolution
from .loop import Progress
from .objectives import log_retrieval_efficiency
from .propagator import Driven, TorchPropagator
from .training import fit

DTYPE = torch.float64


@dataclass(frozen=True)
class Gate:
    """When a waveform is switched off and on; see `torch_clerq.controls.gate`."""

    off: float | None
    on: float | None
    rise: float


@dataclass(frozen=True)
class FreeField:
    """A field whose pulse is free.

    Attributes:
        name: its label, or its index where it has none.
        count: coefficients.
        window: first and last centre of the Gaussians.
        width: their standard deviation, or None for the distance of the centres.
        bounds: of the waveform, cyclic, or None.
        energy: ∫|Ω|² dt of the waveform, or None.
        gate: a `Gate`, or None.
        start: lowest and highest start value of a coefficient.
    """

    name: str | int
    count: int
    window: tuple[float, float]
    width: float | None
    bounds: tuple[float, float] | None
    energy: float | None
    gate: Gate | None
    start: tuple[float, float]

    def build(self, time: torch.Tensor, generator: torch.Generator | None) -> nn.Module:
        """The waveform on a time grid of shape (time,), at a random start, or at coefficients 0 without a generator."""
        low, high = self.start
        uniform = torch.zeros(self.count) if generator is None else torch.rand(self.count, generator=generator)
        start = low + (high - low) * uniform.to(time)
        waveform: nn.Module = GaussianBasis(time, self.count, self.window, self.width, coefficients=start)
        if self.bounds is not None:
            waveform = Bounded(waveform, *self.bounds)
        if self.gate is not None:
            waveform = Gated(waveform, gate(time, off=self.gate.off, on=self.gate.on, rise=self.gate.rise))
        return waveform if self.energy is None else UnitEnergy(waveform, time, self.energy)


@dataclass(frozen=True)
class Trained:
    """What a training found.

    Attributes:
        fields: the best waveforms, on the problem's time grid.
        efficiency: theirs, at the resolution of the training.
        step: after how many steps they were found.
        history: efficiency at each gradient step.
        resolution: the resolution of the training.
        interrupted: whether it was stopped before its last step.
    """

    fields: Fields
    efficiency: float
    step: int
    history: tuple[float, ...]
    resolution: Resolution
    interrupted: bool


@dataclass(frozen=True)
class Verified:
    """A design evaluated anew on finer grids.

    Attributes:
        efficiency: at this resolution.
        solution: fields of shape (field, z, time), with their estimated errors.
        fields: the waveforms on the finer time grid.
    """

    efficiency: float
    solution: Solution
    fields: Fields


@dataclass(frozen=True)
class Design:
    """A problem, its free fields, and what is to be reached.

    Attributes:
        problem: what is solved; fields that are not free keep its pulses.
        free: the free fields.
        field: index of the field whose retrieval is the objective.
        after: when retrieval begins, or None for the whole output.
        learning_rate: of Adam, at the start.
        betas: of Adam; None stands for L-BFGS in its place.
        steps: gradient steps.
        tol: error of the fields that the resolution of the training must meet.

    Example:
        >>> from torch_clerq.design import Design
        >>> design = Design.from_dict({
        ...     "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
        ...                "fields": [{"label": "probe", "coupled_levels": [[0, 1]]}]},
        ...     "t_max": 4.0, "t_steps": 40, "z_steps": 2, "interaction_strengths": [0.5],
        ...     "design": {"fields": {"probe": {"basis": {"count": 4, "window": [1.0, 3.0]}, "energy": 1e-6}},
        ...                "objective": {"field": "probe"}, "steps": 3, "tol": 1e-2}})
        >>> trained = design.train(seed=0)
        >>> trained.history[0] < trained.history[-1] <= trained.efficiency < 1
        True
        >>> abs(design.verify(trained).efficiency - trained.efficiency) < 1e-3
        True
    """

    problem: Problem
    free: tuple[FreeField, ...]
    field: int
    after: float | None
    learning_rate: float
    betas: tuple[float, float] | None
    steps: int
    tol: float

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> "Design":
        """Read a design file.

        Raises:
            ProblemError: the file cannot be read, or breaks a rule of `from_dict`.
        """
        problem, block = read(path)
        if block is None:
            raise ProblemError(
                f"File {os.fspath(path)} must have a `design` block beside the problem, but has none: see "
                "examples/memory.json, or solve it as it is with `torch-clerq solve`."
            )
        return _naming(path, lambda: _read_design(problem, block))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Design":
        """Check and read a problem dict with a `design` block, as described at the head of this module.

        Raises:
            ProblemError: a key, a type or a value breaks a rule; one sentence says which.
        """
        problem = {key: value for key, value in content.items() if key != "design"}
        return _read_design(Problem.from_dict(problem), content.get("design"))

    @property
    def label(self) -> str | int:
        """Label of the objective's field, or its index where it has none."""
        return self.problem.fields[self.field].label or self.field

    def build(self, problem: Problem, seed: int | None = None) -> Fields:
        """The free waveforms on a problem's time grid, at a random start, or at coefficients 0 without a seed."""
        time = torch.as_tensor(problem.time, dtype=DTYPE)
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return Fields({free.name: free.build(time, generator) for free in self.free})

    def log_efficiency(self, fields: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """The logarithm of the objective for fields (*batch, field, z, time), shape (*batch,)."""
        backward = self.problem.fields[self.field].counter_propagating
        return log_retrieval_efficiency(fields, time, field=self.field, after=self.after, backward=backward)

    def train(
        self,
        *,
        seed: int = 0,
        steps: int | None = None,
        on_step: Callable[[int, float], bool | None] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Trained:
        """Shape the free fields by gradient steps from a random start, and keep the best of all steps.

        Args:
            seed: of the random start.
            steps: gradient steps, by default the design's.
            on_step: called after each with its number, from 1, and its efficiency; True ends the training.
            checkpoint: see `torch_clerq.fit`.

        Returns:
            The best waveforms and the course of the training.

        Raises:
            ProblemError: `steps` is below 1.
            ResolutionError: no resolution meets the design's `tol`.
        """
        steps = self.steps if steps is None else steps
        problem = replace(self.problem, z_steps=1)  # the objective needs the entrance and the exit only
        fields = self.build(problem, seed)
        driven = Driven(fields, TorchPropagator(problem, dtype=DTYPE, tol=self.tol))

        def loss(driven: Driven) -> torch.Tensor:
            return -self.log_efficiency(driven(), driven.propagator.time)

        def adam(parameters: Any) -> torch.optim.Optimizer:
            return torch.optim.Adam(parameters, lr=self.learning_rate, betas=self.betas or (0.9, 0.999))

        def call(at: Progress) -> bool:
            return on_step is not None and bool(on_step(at.step, math.exp(-at.value)))

        found = fit(
            driven, loss, steps=steps, optimizer=adam if self.betas else "lbfgs",
            scheduler="cosine" if self.betas else None, checkpoint=checkpoint, verify=False, progress=False,
            callbacks=(call,),
        )  # fmt: skip
        history = tuple(math.exp(-value) for value in found.history.values)
        at = check_resolution(driven.propagator.resolution)
        interrupted = found.stopped in ("callback", "interrupted")
        return Trained(fields, math.exp(-found.value), found.step, history, at, interrupted)

    def to_problem(self, verified: Verified) -> Problem:
        """The problem with the designed pulses in it, sampled (`intp`) on the finer time grid of the verification.

        Lines join these samples, and a cubic spline those of the verification, so that the efficiencies differ by what
        the time grid leaves open.

        Args:
            verified: what `verify` returned.

        Returns:
            A problem, which clerq can solve, too.
        """
        with torch.no_grad():
            waveforms = verified.fields()
        content = self.problem.to_dict() | {"t_steps": 2 * self.problem.t_steps}
        for name, waveform in waveforms.items():
            samples = {"tlist": verified.solution.time.tolist(), "ylist": waveform.tolist()}
            light = content["system"]["fields"][self.problem.field_index(name)]
            light |= {"rabi_freq": 1.0, "rabi_freq_t_func": "intp", "rabi_freq_t_args": samples}
        return Problem.from_dict(content)

    def verify(self, trained: Trained) -> Verified:
        """Evaluate a design anew, so that an error of the grid cannot pass for an efficiency.

        The nodes over z, the integrator's steps per interval and the intervals of the time grid, on which the
        waveforms are sampled and the energies integrated, are all doubled.

        Args:
            trained: what `train` returned.

        Returns:
            The efficiency and the fields on the finer grids.
        """
        finer = replace(self.problem, t_steps=2 * self.problem.t_steps)
        fields = self.build(finer)
        fields.load_state_dict(trained.fields.state_dict())
        layer = TorchPropagator(finer, dtype=DTYPE, resolution=trained.resolution.doubled(), tol=self.tol)
        with torch.no_grad():
            solution = layer.solve(fields())
            efficiency = self.log_efficiency(solution.fields, layer.time).exp().item()
        return Verified(efficiency, solution, fields)


def read(path: str | os.PathLike[str]) -> tuple[Problem, Any]:
    """The problem of a file, and its `design` block or None.

    Args:
        path: a problem file, with or without a `design` block.

    Raises:
        ProblemError: the file cannot be read, is not JSON, or its problem breaks a rule.
    """
    content = read_json(path)
    block = content.pop("design", None)
    return _naming(path, lambda: Problem.from_dict(content)), block


def _naming(path: str | os.PathLike[str], make: Callable[[], Any]) -> Any:
    """What `make` returns; its errors name the file."""
    try:
        return make()
    except ProblemError as error:
        raise ProblemError(f"{str(error).removesuffix('.')} (in file {os.fspath(path)}).") from error


def _read_design(problem: Problem, content: Any) -> Design:
    keys = Keys(content, "design", ("fields", "objective", "optimiser", "steps", "tol"))
    labels = tuple(light.label or str(k) for k, light in enumerate(problem.fields))
    light = keys.child("fields", labels)
    if not light.content:
        keys.fail("fields", f"name at least one free field ({', '.join(labels)})", "is empty")
    objective = keys.child("objective", ("name", "field", "after"))
    optimiser = keys.child("optimiser", ("name", "learning_rate", "betas"))
    _one_of(objective, "name", "retrieval_efficiency")
    name = _one_of(optimiser, "name", "adam", "lbfgs")
    stored = objective.get("field")
    if stored not in labels:
        objective.fail("field", f"be one of {', '.join(labels)}", f"is {show(stored)}")
    after = None if objective.get("after") is None else objective.number("after", None)
    if after is not None and not problem.t_min <= after < problem.t_max:
        objective.fail("after", f"lie from t_min to t_max ({problem.t_min:g} to {problem.t_max:g})", f"is {after:g}")
    betas = optimiser.numbers("betas") or (0.9, 0.99)
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        optimiser.fail("betas", "be two numbers from 0 to below 1", f"is {show(list(betas))}")
    return Design(
        problem=problem,
        free=tuple(_read_free(light, name, labels.index(name), problem) for name in light.content),
        field=labels.index(stored),
        after=after,
        learning_rate=optimiser.positive("learning_rate", 0.1),
        betas=betas if name == "adam" else None,
        steps=keys.integer("steps", 85, 1),
        tol=keys.positive("tol", 1e-4),
    )


def _read_free(parent: Keys, name: str, index: int, problem: Problem) -> FreeField:
    keys = parent.child(name, ("basis", "bounds", "energy", "gate", "start"))
    basis = keys.child("basis", ("name", "count", "window", "width"))
    _one_of(basis, "name", "gaussian")
    count = basis.integer("count", 0, 1)
    bounds, energy, switch = keys.get("bounds"), keys.get("energy"), None
    if bounds is not None and energy is not None:
        keys.fail("energy", "be absent where `bounds` are given", "is there: a scaled waveform does not keep bounds")
    if keys.get("gate") is not None:
        edges = keys.child("gate", ("off", "on", "rise"))
        off, on = (None if edges.get(key) is None else edges.number(key, None) for key in ("off", "on"))
        if off is None and on is None:
            keys.fail("gate", "have `off`, `on` or both", "has neither")
        switch = Gate(off, on, edges.positive("rise", None))
    return FreeField(
        name=problem.fields[index].label or index,
        count=count,
        window=_interval(basis, "window", (problem.t_min, problem.t_max), point=count == 1),
        width=None if basis.get("width") is None and count > 1 else basis.positive("width", None),
        bounds=None if bounds is None else _interval(keys, "bounds", (0.0, 1.0)),
        energy=None if energy is None else keys.positive("energy", None),
        gate=switch,
        start=_interval(keys, "start", (0.0, 1.0), point=True),
    )


def _one_of(keys: Keys, key: str, *names: str) -> str:
    """One of some names; absent means the first."""
    name = keys.text(key, names[0])
    if name not in names:
        keys.fail(key, f"be {' or '.join(map(show, names))}", f"is {show(name)}")
    return name


def _interval(keys: Keys, key: str, default: tuple[float, float], *, point: bool = False) -> tuple[float, float]:
    """Two numbers, the first below the second, or equal to it where a point will do."""
    values = keys.numbers(key) or default
    if len(values) != 2 or not (values[0] < values[1] or (point and values[0] == values[1])):
        keys.fail(key, "be two numbers, the lower one first", f"is {show(list(values))}")
    return float(values[0]), float(values[1])
