"""Files that are there whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def write(path: Path, fill: Callable[[IO[bytes]], Any]) -> None:
    """Write a file so that whoever opens it finds the old one or the whole new one, whenever the process ends.

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
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            fill(file)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
