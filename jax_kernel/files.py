"""Files that are written whole or not at all, and JSON files that are read without believing them."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from .errors import ProblemError
from .reading import show

LARGEST = 2**28
"""Bytes of the largest JSON file that is read."""


def write(path: Path, fill: Callable[[IO[bytes]], Any]) -> None:
    """Write a file so that whoever opens it finds the old one or the whole new one, whenever the process ends.

    It is on the disk, not in a cache of the system, before it takes the old one's place; a disk that turns out to be
    full then costs the new file alone. A link is followed, and a device is written to as it is.

    Args:
        path: of the file; its folder must exist.
        fill: writes the content into the binary file it is given.

    Raises:
        OSError: the folder cannot be written, or the disk is full; the old file is untouched.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "note.txt")
        >>> write(path, lambda file: file.write(b"whole"))
        >>> path.read_text()
        'whole'
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            fill(device)
        return
    temporary = path.with_name(f".{path.name[:40]}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in a file, with finite numbers and distinct keys.

    Args:
        path: of the file.

    Raises:
        ProblemError: the file cannot be read, is too large, or is not one JSON object.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "problem.json")
        >>> write(path, lambda file: file.write(b'{"t_max": 1.0, "t_max": 2.0}'))
        >>> read_json(path)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        jax_kernel.errors.ProblemError: File ...problem.json must have each key once, but has "t_max" twice.
    """
    name = f"File {' '.join(os.fsdecode(path).split())}"

    def refuse(constant: str) -> None:
        raise ProblemError(f"{name} must have finite numbers only, but has {constant}.")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for k, key in enumerate(keys) if key in keys[:k])
            raise ProblemError(f"{name} must have each key once, but has {show(twice)} twice.")
        return content

    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise ProblemError(f"{name} must have at most {LARGEST >> 20} MiB, but has more.")
        content = json.loads(text.decode("utf-8-sig"), parse_constant=refuse, object_pairs_hook=once)
    except OSError as error:
        raise ProblemError(f"{name} must be readable, but: {error.strerror}.") from error
    except ProblemError:
        raise
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"{name} must be JSON, but is not: {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict):
        raise ProblemError(f"{name} must hold one JSON object, but holds {show(content)}.")
    return content
