"""Whether a gradient, a compiled program or a whole trajectory can be trusted, and what to do where it cannot.

`check_gradients` looks at one gradient, `compare_jit` at an optimisation, `Growth` at two runs that should be the same.
"""

from .gradients import check_gradients
from .growth import Growth
from .report import GradientReport, GradientRow, Verdict
from .trajectories import Outcome, TrajectoryReport, compare_jit

__all__ = [
    "GradientReport",
    "GradientRow",
    "Growth",
    "Outcome",
    "TrajectoryReport",
    "Verdict",
    "check_gradients",
    "compare_jit",
]
