"""The memory that a run needs, estimated before anything is allocated, and the memory that is there."""

import math
import os
from functools import lru_cache
from pathlib import Path

import jax
import numpy as np

from . import exponential, integrate
from .errors import ProblemError
from .options import Options
from .prepare import structure_of
from .problem import Problem
from .resolution import MarchResolution, Resolution

SMALL = 64 * 2**20
"""Bytes below which nobody looks what is there."""

STAGES = 5
"""At how many times of each step the pulses are looked at, about."""

DENSITY = 64
"""Numbers per stored position while the optical path is integrated: eight points, each in several arrays."""

Parts = tuple[tuple[str, str, float], ...]
"""(what, cure, bytes) of each part of a run."""


def available() -> int | None:
    """Bytes that a process may still take before the system ends it; None where that cannot be told.

    Example:
        >>> available() is None or available() > 0
        True
    """
    found = [size for size in (_of_the_machine(), _of_the_group(), _of_the_process()) if size is not None]
    return min(found, default=None)


def _of_the_machine() -> int | None:
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _of_the_group() -> int | None:
    """What the control group (version 2) of a container leaves, of which the pages of files can be given back."""
    folder = Path("/sys/fs/cgroup")
    try:
        most, taken = (int((folder / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        return max(0, most - taken + int(statistics["inactive_file"]))
    except (OSError, ValueError, KeyError):  # no group, or one without a limit
        return None


def _of_the_process() -> int | None:
    """What a limit such as `ulimit -v` leaves."""
    try:
        import resource  # which only POSIX has

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return None if most == resource.RLIM_INFINITY else max(0, most - pages * resource.getpagesize())
    except (ImportError, OSError, ValueError):
        return None


def check(
    problem: Problem,
    at: Resolution | MarchResolution,
    options: Options,
    outputs: frozenset[str],
    start: str,
    batch_size: int,
    gradient: bool,
) -> None:
    """Refuse a run whose memory is not there. Memory of accelerators, which may be shared, is not looked at.

    Args:
        problem: what is solved.
        at: resolution.
        options: how to solve.
        outputs: attributes of `Solution` to return.
        start: as in `jax_kernel.prepare.prepare`.
        batch_size: number of problems in the batch.
        gradient: whether there will be a gradient.

    Raises:
        ProblemError: what the run would need, what is there, and what to lower.
    """
    parts = needed(problem, at, options, outputs, start, batch_size, gradient)
    total = math.fsum(size for *_, size in parts)
    if total < SMALL or jax.default_backend() != "cpu":
        return
    there = available()
    if there is None or total <= there:
        return
    what, cure, _ = max(parts, key=lambda part: part[-1])
    batch = f" in a batch of {batch_size}" if batch_size > 1 else ""
    raise ProblemError(
        f"Argument `problem` must fit into memory, but{batch} its run would need {_gibibytes(total)}, "
        f"most of it for {what}, and {_gibibytes(there)} are there: {cure}"
        f"{', or split the batch' if batch else ''}."
    )


def _gibibytes(size: float) -> str:
    return f"{size / 2**30:.3g} GiB"


@lru_cache(maxsize=256)
def needed(
    problem: Problem,
    at: Resolution | MarchResolution,
    options: Options,
    outputs: frozenset[str],
    start: str,
    batch_size: int,
    gradient: bool,
) -> Parts:
    """The parts of the memory that a run needs; arguments as in `check`.

    From below: arrays that are there at the same time, with the copies that were measured (docs/faults.md).
    """
    z, t, fields, levels = problem.z_steps + 1, problem.t_steps + 1, len(problem.fields), problem.num_states
    structure, classes = structure_of(problem, start), len(problem.doppler_shifts)
    components, number = structure.num_components, np.dtype(options.dtype).itemsize
    observes_states = bool(outputs & {"density_matrix", "populations", "coherences"})
    march = isinstance(at, MarchResolution)
    nodes, finer = (1, at.z_steps_inner) if march else (at.z_nodes, max(1, int(at.t_substeps)))  # type: ignore[union-attr]
    steps = problem.t_steps * (1 if march or not options.on_grid else float(at.t_substeps))  # type: ignore[union-attr]
    twice = "time_error" in outputs  # there is another run then, from which the error follows
    observed = 2 * fields * (3 if twice else 1) + components * observes_states * (2 if twice else 1)
    size = {
        "fields": 2 * 3 * fields * z * t * ("fields" in outputs),
        "states": 4 * levels**2 * z * t * ("density_matrix" in outputs)
        + levels * z * t * ("populations" in outputs) + 2 * fields * z * t * ("coherences" in outputs),
        "steps": observed * nodes * steps,
        "classes": components * classes * nodes * 2 + 4 * levels**2 * z * classes * ("final_state" in outputs),
    }  # fmt: skip
    once = {
        "march": 2.0 * z * finer * march,
        "drive": (3 + 2 * fields) * STAGES * steps,
        "z": z * (4 * nodes + DENSITY),
    }
    size |= {name: count / batch_size for name, count in once.items() if batch_size}
    if gradient:
        size["gradient"] = components * classes * nodes * _states_kept(problem, at, options, steps)
    grids = "lower `t_steps` or `z_steps` of the problem"
    finer_word = "`z_steps_inner`" if march else "`z_nodes` and `t_substeps` of the resolution"
    said = {
        "fields": ("the fields at all z and t", grids),
        "states": ("the states at all z and t", f"{grids}, or ask for fewer `outputs`"),
        "steps": ("what is kept of each step", f"lower `t_steps` of the problem, or {finer_word}"),
        "classes": ("the states of all velocity classes", "take fewer velocity classes"),
        "z": ("the stored positions", "lower `z_steps` of the problem"),
        "drive": ("the pulses at each step", "lower `t_steps` of the problem"),
        "march": ("the density of each step", f"lower `z_steps` of the problem, or {finer_word}"),
        "gradient": ("the states that a gradient keeps", _cure_of_a_gradient(at, options)),
    }
    return tuple((*said[name], float(number) * batch_size * count) for name, count in size.items())


def _states_kept(problem: Problem, at: Resolution | MarchResolution, options: Options, steps: float) -> float:
    """How many states a first gradient keeps at a time."""
    if isinstance(at, MarchResolution):
        return problem.z_steps * at.z_steps_inner if options.strategy == "s2" else 0
    if not options.on_grid:
        return 0
    stored = exponential.STORED if options.solver == "exponential" else integrate.STORED
    return stored * steps if options.memory == "fast" else math.sqrt(stored * steps)


def _cure_of_a_gradient(at: Resolution | MarchResolution, options: Options) -> str:
    if isinstance(at, MarchResolution):
        return 'take strategy="s3", or wrap the call in no_grad where no gradient is needed'
    if options.memory == "fast":
        return 'take memory="lean"'
    return "lower `t_steps` of the problem or take fewer velocity classes, or no gradient where none is needed"
