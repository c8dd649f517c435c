"""Compiled programs on disk, so that another process need not compile them again."""

import hashlib
import os
import platform
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jaxlib
from jax.experimental.compilation_cache import compilation_cache
from platformdirs import user_cache_path

from jax_kernel.errors import CacheError, warn

LARGEST = 2**30
"""Bytes that the programs of one processor and release may take; what was used least is deleted."""


def use_compilation_cache(folder: str | os.PathLike[str] | None = None) -> Path:
    """Keep the programs that JAX compiles in this process on disk, and take those that are there.

    It sets JAX's own options, for all of JAX in this process, and is for the start of a program. The folder is made for
    its owner alone, since what it holds is run: give no folder that others may write to. It keeps at most 1 GiB for
    each processor and release of JAX. Where JAX has a cache already (`JAX_COMPILATION_CACHE_DIR`), that one stays.
    A program that is damaged, as by a process that was killed while it wrote, is deleted with a warning: JAX would
    compile it anew in each process, and never write it again.

    Args:
        folder: where to keep them, by default a folder of torch_clerq's in the user's cache folder, such as
            `~/.cache/torch_clerq`. Programs of other processors or releases of JAX lie beside each other.

    Returns:
        The folder in use.

    Raises:
        CacheError: the folder belongs to another user, others may write to it, or JAX has another cache already.
        OSError: it cannot be made.

    Example:
        >>> from torch_clerq import use_compilation_cache
        >>> used = use_compilation_cache()  # as the first lines of a script
    """
    given = _jaxs_own()
    if given and folder is None:
        return Path(given)
    own = _own(user_cache_path("torch_clerq", appauthor=False).absolute() if folder is None else _absolute(folder))
    top = own.parent
    if given and Path(given).absolute() != own:
        raise CacheError(
            f"Argument `folder` must be left out where JAX has a cache already, but is {top}, and JAX has {given}: "
            "leave it out, or start without that one."
        )
    if not _is_unicode(own):
        raise CacheError(f"The cache folder must have a name in UTF-8, which JAX needs, but it is {str(top)!r}.")
    try:
        top.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError:
        raise CacheError(f"The cache folder must be a folder, but {top} is something else: give another.") from None
    _check_private(top)
    own.mkdir(exist_ok=True, mode=0o700)
    _check_private(own)
    _delete_damaged(own)
    jax.config.update("jax_compilation_cache_max_size", LARGEST)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_compilation_cache_dir", str(own))
    compilation_cache.reset_cache()  # JAX has decided by now that it has none, where it has compiled anything
    return own


def _delete_damaged(folder: Path) -> None:
    """Delete the programs, of those that came since the last look, that cannot be unpacked."""
    stamp, damaged = folder / ".looked", 0
    try:
        last = stamp.stat().st_mtime_ns if stamp.exists() else 0
        entries = [entry for entry in folder.glob("*-cache") if _is_new(entry, last)]
        stamp.touch()
        for entry in entries:
            if not _is_whole(entry.read_bytes()):
                entry.unlink(missing_ok=True)
                damaged += 1
    except OSError:  # another process deletes, too, or may write where this one may not
        return
    if damaged:
        kept = "program was" if damaged == 1 else "programs were"
        warn(f"In {folder} {damaged} compiled {kept} damaged and deleted, and will be compiled anew.", UserWarning)


def _is_new(entry: Path, since: int) -> bool:
    return entry.is_file() and entry.stat().st_mtime_ns >= since


def _is_whole(content: bytes) -> bool:
    """Whether JAX can unpack a program, which is packed by zlib or, where there is one, by zstandard."""
    if content.startswith(b"\x28\xb5\x2f\xfd"):
        try:
            import zstandard
        except ModuleNotFoundError:
            return True
        unpack, failures = zstandard.ZstdDecompressor().decompress, zstandard.ZstdError
    else:
        unpack, failures = zlib.decompress, zlib.error
    try:
        unpack(content)
    except failures:
        return False
    return True


@contextmanager
def no_compilation_cache() -> Iterator[None]:
    """Inside, JAX neither takes programs from a cache nor keeps them, whoever has named one."""
    before = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX has decided by now that it has one, where it has compiled anything
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


def cache_folder() -> Path:
    """Where `use_compilation_cache()` keeps programs, or would.

    Example:
        >>> cache_folder().is_absolute()
        True
    """
    return Path(_jaxs_own() or _own(user_cache_path("torch_clerq", appauthor=False).absolute())).absolute()


def _own(top: Path) -> Path:
    """The folder of this processor and release of JAX."""
    return top / f"{_processor()}-jaxlib-{jaxlib.__version__}"


def _jaxs_own() -> str | None:
    """The folder in which JAX keeps its programs already."""
    return jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]


def _absolute(folder: Any) -> Path:
    if isinstance(folder, (str, os.PathLike)) and str(folder) and "\0" not in str(folder):
        try:
            return Path(folder).expanduser().absolute()
        except RuntimeError:  # the home of nobody
            pass
    raise CacheError(f"Argument `folder` must be the path of a folder, but is {folder!r}.")


def _is_unicode(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_private(folder: Path) -> None:
    if os.name != "posix":
        return
    found = folder.stat()
    if found.st_uid != os.getuid():
        raise CacheError(
            f"The cache folder must belong to the user, for what it holds is run, but {folder} belongs to user number "
            f"{found.st_uid}: give another `folder`."
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheError(
            f"The cache folder must not be open to others, for what it holds is run, but others may write to {folder}: "
            "chmod 700 it, or give another `folder`."
        )


def _processor() -> str:
    """The kind of processor with what it can do, for which programs are compiled."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        flags = next(line for line in lines if line.lower().startswith(("flags", "features")))
    except (OSError, StopIteration):
        flags = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(flags.encode()).hexdigest()[:12]}"
