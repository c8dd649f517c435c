"""Whether a gradient, a compiled program or a whole trajectory can be trusted, and what to do where it cannot.

`check_problem` looks at a problem before anything is done with it, `check_gradients` at one gradient, `compare_jit` at
an optimisation, `Growth` at two runs that should be the same.
"""

from .gradients import check_gradients
from .growth import Growth
from .problem import TOPICS, Finding, ProblemReport, check_problem
from .report import GradientReport, GradientRow, Verdict
from .trajectories import Outcome, TrajectoryReport, compare_jit

__all__ = [
    "TOPICS",
    "Finding",
    "GradientReport",
    "GradientRow",
    "Growth",
    "Outcome",
    "ProblemReport",
    "TrajectoryReport",
    "Verdict",
    "check_gradients",
    "check_problem",
    "compare_jit",
]
