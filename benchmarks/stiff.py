"""When does the exponential solver pay? Time to a tolerance, forward and gradient, over the detuning of a control.

A weak probe on a ladder whose control is ever farther off resonance, and ever stronger, so that it shifts the probe's
line by the same half linewidth. Run it with nothing else beside it: python -m benchmarks.stiff
"""

import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jax_kernel import Problem, Resolution, ResolutionError, propagate, stiffness

TOLERANCE = 1e-5
REPEATS = 7


def ladder(detuning: float, shift: float = 0.5) -> Problem:
    """The probe on [0, 1], the control on [1, 2]; control² / 4 detuning is the light shift."""
    control = float(np.sqrt(4 * max(detuning, 1.0) * shift))
    long = {"ampl": 1.0, "fwhm": 1.0, "on": -1e8, "off": 1e8}
    return Problem.from_dict({
        "system": {"num_states": 3,
                   "fields": [{"coupled_levels": [[0, 1]], "rabi_freq": 1e-5, "rabi_freq_t_func": "gaussian",
                               "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 0.5}},
                              {"coupled_levels": [[1, 2]], "rabi_freq": control, "rabi_freq_t_func": "ramp_onoff",
                               "rabi_freq_t_args": long}],
                   "decays": [{"rate": 2.0, "channels": [[0, 1]]}, {"rate": 0.6, "channels": [[1, 2]]}],
                   "level_detunings": [0.0, 0.0, detuning]},
        "t_min": -1.8, "t_max": 5.2, "t_steps": 200, "z_steps": 10, "interaction_strengths": [2.0, 3.0],
    })  # fmt: skip


def median_time(run: Callable, *args) -> float:
    jax.block_until_ready(run(*args))
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(run(*args))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def cell(problem: Problem, solver: str) -> str:
    """Substeps, milliseconds forward and gradient of one solver at the tolerance."""
    try:
        at = propagate(problem, solver=solver, tol=TOLERANCE).resolution
    except ResolutionError:
        return f"{'out of reach':>28}"

    def loss(strengths):
        fields = propagate(
            problem, {"interaction_strengths": strengths}, solver=solver, resolution=Resolution(12, at.t_substeps)
        ).fields
        return jnp.sum(jnp.abs(fields[0, -1]) ** 2)

    strengths = jnp.asarray(problem.interaction_strengths)
    forward, gradient = median_time(jax.jit(loss), strengths), median_time(jax.jit(jax.grad(loss)), strengths)
    return f"{at.t_substeps:6d} {1e3 * forward:9.1f} {1e3 * gradient:9.1f} ms"


def main() -> None:
    print(f"{'detuning':>9} {'|λ|Δt':>8} {'runge-kutta: substeps, ms, ms':>30} {'exponential: same':>30}  auto")
    for detuning in (3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4, 1e5):
        problem = ladder(detuning)
        size = stiffness.fastest(problem, "", {}) * (problem.t_max - problem.t_min) / problem.t_steps
        cells = [cell(problem, solver) for solver in ("runge-kutta", "exponential")]
        chosen = "exponential" if size > stiffness.STIFF else "runge-kutta"
        print(f"{detuning:9g} {size:8.1f}  {cells[0]:>30} {cells[1]:>30}  {chosen}", flush=True)


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
