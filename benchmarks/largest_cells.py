"""The cells that the reference's own study left out: nine levels with 50 velocity classes, and 800 stored positions.

Each is a forward run and a gradient in pulse and material, with the temporary memory that XLA asks for:
python -m benchmarks.largest_cells
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

from jax_kernel import Problem, Resolution, propagate
from jax_kernel.atoms import rubidium87

PARAMETERS = ("rabi_freq", "interaction_strengths", "decay_rates", "thermal_width")
REPEATS = 5


def line(lower_F: list[int], upper_F: list[int], classes: int, z_steps: int) -> Problem:
    """A σ+ pulse of some linewidths on part of the 87Rb D2 line; times in µs, frequencies in MHz."""
    part = rubidium87.d2.select(lower_F=lower_F, upper_F=upper_F)
    width = 20.0
    highest = max(level.energy for level in part.levels if level.upper)
    energies = [level.energy - highest if level.upper else 0.0 for level in part.levels]
    coupled = part.coupling("sigma+", lower_F=lower_F)
    pulse = {"ampl": 1.0, "centre": 0.0, "fwhm": 0.02}
    light = coupled | {"rabi_freq": 20.0, "rabi_freq_t_func": "gaussian", "rabi_freq_t_args": pulse}
    return Problem.from_dict({
        "system": {"num_states": len(energies), "energies": energies, "fields": [light], "decays": [part.decay()],
                   "initial_state": part.populations()},
        "t_min": -0.05, "t_max": 0.15, "t_steps": 200, "z_min": 0.0, "z_max": 1.0, "z_steps": z_steps,
        "interaction_strengths": [200.0],
        "velocity_classes": {"thermal_width": width, "thermal_delta_min": -50.0, "thermal_delta_max": 50.0,
                             "thermal_delta_spacing": 100.0 / (classes - 1)},
    })  # fmt: skip


def measure(name: str, problem: Problem, at: Resolution, memory: str) -> None:
    """Print one row."""
    start = {
        "rabi_freq": np.asarray([field.rabi_freq for field in problem.fields]),
        "interaction_strengths": np.asarray(problem.interaction_strengths),
        "decay_rates": np.asarray([decay.rate for decay in problem.decays]),
        "thermal_width": np.asarray(problem.thermal_width),
    }
    start = jax.tree.map(jnp.asarray, start)

    def loss(params):
        return jnp.sum(jnp.abs(propagate(problem, params, resolution=at, memory=memory).fields[:, -1]) ** 2)

    cells = []
    for function in (jax.jit(loss), jax.jit(jax.value_and_grad(loss))):
        begin = time.perf_counter()
        compiled = function.lower(start).compile()
        compile_time = time.perf_counter() - begin
        jax.block_until_ready(compiled(start))
        times = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            jax.block_until_ready(compiled(start))
            times.append(time.perf_counter() - begin)
        temporary = compiled.memory_analysis().temp_size_in_bytes / 2**20
        cells.append(f"{compile_time:5.1f} s {1e3 * np.median(times):7.1f} ms {temporary:6.1f} MiB")
    solution = propagate(problem, resolution=at, memory=memory, tol=1.0)
    errors = f"{float(solution.z_error):.0e} {float(solution.time_error):.0e}"
    print(f"{name:38} {memory:5} | {cells[0]} | {cells[1]} | {errors}", flush=True)


def main() -> None:
    print(f"{'':44} | forward: compile, run, temporaries  | gradient: the same | z and time error")
    nine = line([1], [0, 2], 50, 50)
    eleven = line([1], [1, 2], 11, 800)
    assert (nine.num_states, len(nine.doppler_shifts)) == (9, 50)
    for memory in ("fast", "lean"):
        measure("9 levels, 50 classes, 50 positions", nine, Resolution(12, 2), memory)
        measure(f"{eleven.num_states} levels, 11 classes, 800 positions", eleven, Resolution(12, 2), memory)


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
