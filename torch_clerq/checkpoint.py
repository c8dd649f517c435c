"""What a fit needs to go on as if it had never stopped, in a file that is read without running code from it."""

import io
import os
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from jax_kernel.errors import ProblemError
from jax_kernel.files import write
from jax_kernel.resolution import MarchResolution, Resolution

from .layers import propagators

VERSION = 1


def save(path: Path, content: dict[str, Any], *, verify: bool = False) -> None:
    """Write a checkpoint whole, or leave the old one, also where `verify` finds that it could not be read again.

    Raises:
        ProblemError: it could not be read again.
        OSError: it cannot be written.
    """
    buffer = io.BytesIO()
    torch.save(content | {"version": VERSION}, buffer)
    if verify:
        buffer.seek(0)
        _read(buffer, path)
    write(path, lambda file: file.write(buffer.getbuffer()))


def load(path: Path) -> dict[str, Any] | None:
    """The content of a checkpoint, or None where there is no file.

    Raises:
        ProblemError: the file is not a checkpoint of this version.
    """
    return _read(path, path) if os.path.exists(path) else None


def _read(file: Path | io.BytesIO, path: Path) -> dict[str, Any]:
    try:
        content = torch.load(file, weights_only=True, map_location="cpu")
        known = content["version"] == VERSION
        if known and "kind" not in content:
            raise KeyError("kind")
    except Exception as error:  # whatever the unpickler meets
        raise ProblemError(
            f"Argument `checkpoint` must be a file that `fit` has written, but {path} cannot be read as one "
            f"({type(error).__name__}): move it away to start anew."
        ) from error
    if not known:
        raise ProblemError(
            f"Argument `checkpoint` must be of version {VERSION}, but {path} is of version {content['version']}."
        )
    return content


def random_states() -> dict[str, Any]:
    """The states of all global random numbers: of torch, NumPy, Python, and CUDA where it is in use."""
    version, numbers, spare = random.getstate()
    legacy: Any = np.random.get_state(legacy=False)
    states = {
        "torch": torch.get_rng_state(),
        "python": [version, list(numbers), spare],
        "numpy": [legacy["state"]["key"].tolist(), legacy["state"]["pos"], legacy["has_gauss"], legacy["gauss"]],
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_random_states(states: dict[str, Any]) -> None:
    """Go on with the random numbers where `random_states` was called."""
    torch.set_rng_state(states["torch"])
    version, numbers, spare = states["python"]
    random.setstate((version, tuple(numbers), spare))
    key, pos, has_gauss, gauss = states["numpy"]
    np.random.set_state(("MT19937", np.array(key, np.uint32), pos, has_gauss, gauss))
    if "cuda" in states:
        torch.cuda.set_rng_state_all(states["cuda"])


def resolutions(module: nn.Module) -> dict[str, list[Any]]:
    """What each layer has found, and when it looks again: a search from the values of a later step may differ."""
    found: dict[str, list[Any]] = {}
    for name, layer in propagators(module):
        at = layer.resolution
        if isinstance(at, Resolution):
            resolved = None if layer.resolved is None else sorted(layer.resolved)
            seen = [layer.watch.calls, layer.watch.outgrown, layer.search_on]
            found[name] = [at.z_nodes, str(at.t_substeps), at.solver, resolved, seen]
        elif at is not None:
            found[name] = [at.z_steps_inner]
    return found


def set_resolutions(module: nn.Module, found: dict[str, list[Any]]) -> None:
    """Give each layer the resolution it had."""
    for name, layer in propagators(module):
        if name in found and len(found[name]) == 1:
            layer.resolution = MarchResolution(found[name][0])
        elif name in found:
            nodes, substeps, solver, resolved, seen = found[name]
            layer.watch.calls, layer.watch.outgrown, layer.search_on = seen
            layer.resolution = Resolution(nodes, Fraction(substeps), solver)
            layer.resolved = None if resolved is None else frozenset(resolved)
