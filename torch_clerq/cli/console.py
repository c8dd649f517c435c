"""What a command says: prose or JSON on stdout, progress and complaints on stderr."""

import json
import logging
import re
import shutil
import sys
import time as clock
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CACHE_TROUBLE = re.compile(r"Error (?P<verb>reading|writing) persistent compilation cache entry .*?: (?P<reason>.*)")
"""What JAX says of each program of a cache that is damaged, full or closed."""

VERBS = {"reading": "read", "writing": "kept"}


class Console:
    """Where a command speaks.

    Args:
        quiet: whether only errors and warnings are said.
        as_json: whether stdout holds one JSON object in place of prose.

    Attributes:
        written: the files that the command has written so far.

    Example:
        >>> console = Console(as_json=True)
        >>> console.say("prose")
        >>> console.result({"efficiency": 0.5})
        {"efficiency": 0.5, "warnings": []}
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False):
        self.quiet, self.as_json = quiet, as_json
        self.written: list[str] = []
        self.warnings: list[str] = []
        self.begin = clock.perf_counter()
        self.live = False

    @property
    def seconds(self) -> float:
        """Since the command began."""
        return clock.perf_counter() - self.begin

    def say(self, text: str) -> None:
        """A line of prose."""
        self._clear()
        if not (self.quiet or self.as_json):
            print(text)

    def result(self, content: dict[str, Any]) -> None:
        """What the command found, for programs."""
        self._clear()
        if self.as_json:
            print(json.dumps(content | {"warnings": self.warnings}))

    def status(self, text: str) -> None:
        """What is being done: one line that is overwritten on a terminal, a plain line elsewhere."""
        if self.quiet:
            return
        self._clear()
        self.live = sys.stderr.isatty()
        line = f"{text}  ({self.seconds:.1f} s)"
        if self.live:  # only one line can be overwritten
            line = line[: shutil.get_terminal_size().columns - 1]
        print(line, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def complain(self, text: str) -> None:
        """An error or a warning in one line."""
        self._clear()
        print(f"torch-clerq: {' '.join(text.split())}", file=sys.stderr, flush=True)

    def warn(self, message: Warning | str, *where: Any, **also: Any) -> None:
        """In place of `warnings.showwarning`."""
        text = " ".join(str(message).split())
        found = CACHE_TROUBLE.match(text)
        if found:  # of each program one, where one for all is enough
            reason = found["reason"].rstrip(".")
            text = f"compiled programs cannot be {VERBS[found['verb']]}, and the run goes on without ({reason})."
            if any(said.startswith(text.partition(",")[0]) for said in self.warnings):
                return
        self.warnings.append(text)
        self.complain(f"warning: {text}")

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Inside, what the packages log, such as each resolution that a search tries, is shown as the status."""
        handler = _Reports(self)
        loggers = [logging.getLogger(name) for name in ("jax_kernel", "torch_clerq")]
        before = [logger.level for logger in loggers]
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.removeHandler(handler)
                logger.setLevel(level)

    def _clear(self) -> None:
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.live = False


class _Reports(logging.Handler):
    def __init__(self, console: Console):
        super().__init__(logging.INFO)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        self.console.status(record.getMessage())
