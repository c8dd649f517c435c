"""What a long run shows while it works, and how Ctrl-C ends it without loss."""

import os
import signal
import sys
import threading
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tqdm import tqdm


class Bar:
    """A bar with the time to come on a terminal, else a plain line every tenth step; both on stderr.

    The first step, which compiles, does not count for the estimate.

    Args:
        steps: how many there will be.
        describe: what to say of a value.
        quiet: whether to say nothing.
        done: steps that an earlier run has done.

    Example:
        >>> with Bar(3, quiet=True) as bar:
        ...     bar(1, 0.5)
    """

    steps: int
    describe: Callable[[float], str]
    first: int
    begin: float
    plain: bool
    bar: Any

    def __init__(
        self,
        steps: int,
        describe: Callable[[float], str] = "value {:.4g}".format,
        *,
        quiet: bool = False,
        done: int = 0,
    ):
        self.steps, self.describe, self.first, self.begin = steps, describe, done + 1, 0.0
        self.plain = not quiet and not sys.stderr.isatty()
        layout = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}, ETA {remaining}{postfix}]"
        self.bar = tqdm(
            total=steps, initial=done, disable=quiet or self.plain, bar_format=layout, smoothing=0, leave=False
        )
        self.bar.set_postfix_str("compiling")

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.close()

    def __call__(self, step: int, value: float) -> None:
        """Show that a step, counted from 1, has ended with a value."""
        if step == self.first:
            self.begin = clock.perf_counter()
            self.bar.initial, self.bar.start_t = step, clock.time()
        self.bar.set_postfix_str(self.describe(value), refresh=False)
        self.bar.update()
        if self.plain and (step == self.first or step % 10 == 0 or step == self.steps):
            spent = clock.perf_counter() - self.begin
            rest = spent / (step - self.first) * (self.steps - step) if step > self.first else None
            eta = "" if rest is None else f"  ETA {rest:.0f} s"
            print(f"step {step}/{self.steps}  {self.describe(value)}{eta}", file=sys.stderr, flush=True)


@contextmanager
def interruptible(promise: str, *, terminate: bool = False) -> Iterator[Callable[[], int]]:
    """Inside, the first Ctrl-C only sets what is yielded to true; the second one interrupts. An inner one joins in.

    What is yielded returns 0 or the number of the signal that came.

    Args:
        promise: what will be done at the first one, for the user to read.
        terminate: whether SIGTERM, by which a batch system ends a job, counts as well.

    Example:
        >>> with interruptible("the best so far will be kept") as interrupted:
        ...     interrupted()
        0
    """
    asked = 0
    signals = (signal.SIGINT, signal.SIGTERM) if terminate else (signal.SIGINT,)

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = number
        for each, one in before.items():
            signal.signal(each, one)
        os.write(2, f"\nstopping: {promise} (Ctrl-C again quits at once)\n".encode())

    if threading.current_thread() is not threading.main_thread():  # where Python gives no handlers
        yield lambda: 0
        return
    before: dict[int, Any] = {each: signal.getsignal(each) for each in signals}
    before = {each: one for each, one in before.items() if one not in (None, signal.SIG_IGN)}
    if not before:  # not Python's to restore, or ignored on purpose
        yield lambda: 0
        return
    outer = getattr(before.get(signal.SIGINT), "asked", None)
    if outer is not None:
        yield outer
        return
    handle.asked = lambda: asked  # type: ignore[attr-defined]
    for each in before:
        signal.signal(each, handle)
    try:
        yield lambda: asked
    finally:
        for each, one in before.items():
            signal.signal(each, one)
