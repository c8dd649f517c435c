"""How to solve, apart from the physics."""

import dataclasses
import math
import numbers
from dataclasses import dataclass
from typing import Any

from . import march_options, parameters
from .adaptive import DERIVATIVES, SolverOptions, largest
from .reading import is_integer
from .sharding import Sharding

MEMORY = ("auto", "fast", "lean")
ON_GRID = ("auto", "runge-kutta", "exponential")
"""Solvers of the fixed grid; "auto" takes the exponential one where the problem is stiff."""


@dataclass(frozen=True)
class Options:
    """How to solve, apart from the physics; the keyword arguments of `propagate`.

    Attributes:
        dtype: "float32" or "float64".
        scheme: "cross" or "march".
        memory: "auto", "fast" (a gradient stores every stage) or "lean" (it stores one state per segment).
        solver: "runge-kutta", "exponential" or "auto", which chooses between the two, on the fixed grid, or a diffrax
            solver; in a march "auto" is Tsit5.
        rtol: relative tolerance of `solver`, by default by precision.
        atol: absolute tolerance of `solver`, by default by precision.
        max_steps: most steps of `solver`, by default 100 000.
        mode: "reverse" (the default), "forward" or "any": which derivatives there are, see `propagate`.
        sharding: the devices that share a run, or None for one.
        step: only of a march, as are the following: "ab" or "euler", by default "ab".
        strategy: "s2" (a gradient stores every slice), "s3" (it solves the slices again; the default) or "s4" (like
            "s3", with `checkpoints`).
        checkpoints: states that the gradient of one slice keeps, for "s4".
        n_steps: constant steps of a slice in place of adaptive ones.
    """

    dtype: str = "float64"
    scheme: str = "cross"
    memory: str = "auto"
    solver: Any = "auto"
    rtol: float | None = None
    atol: float | None = None
    max_steps: int | None = None
    step: str | None = None
    strategy: str | None = None
    checkpoints: int | None = None
    n_steps: int | None = None
    mode: str = "reverse"
    sharding: Sharding | None = None

    def __post_init__(self) -> None:
        def one_of(name, allowed):
            if getattr(self, name) not in allowed:
                parameters.fail(name, f"be one of {', '.join(map(repr, allowed))}", f"is {getattr(self, name)!r}")

        one_of("dtype", ("float32", "float64"))
        one_of("scheme", ("cross", "march"))
        one_of("memory", MEMORY)
        one_of("mode", DERIVATIVES)
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, numbers.Real) and 0 < float(value) < math.inf):
                parameters.fail(name, "be positive", f"is {value!r}")
        if not (self.sharding is None or isinstance(self.sharding, Sharding)):
            parameters.fail("sharding", "be a Sharding, such as Sharding(classes=2), or None", f"is {self.sharding!r}")
        if self.max_steps is not None and not (is_integer(self.max_steps) and self.max_steps >= 1):
            parameters.fail("max_steps", "be an integer of at least 1", f"is {self.max_steps!r}")
        if self.scheme == "march":
            march_options.check_options(self)
        else:
            march_options.refuse_options(self)
            bounds = {"rtol": self.rtol, "atol": self.atol, "max_steps": self.max_steps}
            parameters.check_solver(self.solver, ON_GRID, **bounds)
        object.__setattr__(self, "solver", self._portable_solver())

    @property
    def on_grid(self) -> bool:
        """Whether the steps are those of the fixed grid, whose time error is estimated."""
        return self.scheme == "cross" and isinstance(self.solver, str)

    def solver_options(self) -> SolverOptions | str:
        """What the adaptive path needs, or the name of the solver of the fixed grid."""
        if self.on_grid:
            return self.solver
        return SolverOptions(self.solver, *self.tolerances(), self.max_steps or march_options.MOST_STEPS)

    def tolerances(self) -> tuple[float, float]:
        """(rtol, atol) of a step, by default by precision."""
        rtol, atol = (1e-8, 1e-10) if self.dtype == "float64" else (1e-6, 1e-9)
        return self.rtol or rtol, self.atol or atol

    def _portable_solver(self) -> Any:
        """The solver with plain numbers where diffrax keeps a marker that means the tolerances of the steps.

        Copies and pickles of the marker are not recognised, so that a copied layer would fail.
        """
        finder = getattr(self.solver, "root_finder", None)
        if finder is None or isinstance(finder.rtol, (int, float)):
            return self.solver
        rtol, atol = self.tolerances()
        finder = dataclasses.replace(finder, rtol=rtol, atol=atol, norm=largest)
        return dataclasses.replace(self.solver, root_finder=finder)
