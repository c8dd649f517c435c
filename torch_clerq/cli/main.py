"""Arguments, exit codes, signals: what all commands share."""

import argparse
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType

from jax_kernel.errors import PropagationError

from ..cache import no_compilation_cache, use_compilation_cache
from . import check, design, fit, info, solve
from .console import Console
from .results import version

EXIT_CODES = """\
exit codes: 0 done; 1 `check` has found something; 2 an error, one line on stderr; 130 after Ctrl-C, 143 after SIGTERM,
where `design` still verifies and writes the best so far"""


class _Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments, by default those of the process.

    Returns:
        The exit code: 0, 1 where `check` has found something, 2 after an error, which is one line on stderr, 130 after
        Ctrl-C or 143 after SIGTERM.
    """
    args = _parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # of characters that a terminal cannot show
    console = Console(quiet=args.quiet, as_json=args.json)
    with warnings.catch_warnings(), _terminable():
        warnings.showwarning = console.warn
        try:
            with _programs_kept() if args.cache else no_compilation_cache():
                return args.run(args, console)
        except BrokenPipeError:  # as of `| head`; what Python would still write goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 2
        except (PropagationError, OSError, MemoryError) as error:
            text = str(error) or "out of memory"
            console.complain(text)
            console.result({"error": " ".join(text.split())})
            return 2
        except KeyboardInterrupt as error:
            written = f"written so far: {', '.join(console.written)}" if console.written else "nothing written"
            stopped = isinstance(error, _Terminated)
            console.complain(f"{'terminated' if stopped else 'interrupted'}, {written}")
            return 143 if stopped else 130


@contextmanager
def _terminable() -> Iterator[None]:
    """Inside, SIGTERM ends the command like Ctrl-C, so that files under way are removed."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) in (
        None,
        signal.SIG_IGN,
    ):
        yield
        return
    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _programs_kept() -> Iterator[None]:
    """Inside, compiled programs are kept for the next run, where there is a folder for them."""
    try:
        use_compilation_cache()
    except OSError as error:
        warnings.warn(f"compiled programs are not kept (--no-cache is silent): {error}", UserWarning, stacklevel=2)
    yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torch-clerq", description="Light through driven, decaying quantum media, with exact gradients.",
        epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('torch_clerq')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, module: ModuleType, purpose: str, *, reads: str = "", writes: bool = False) -> None:
        one = commands.add_parser(name, help=purpose, description=purpose)
        if reads:
            one.add_argument("file", metavar="FILE", type=Path, help=reads)
        if writes:
            text = f"folder for the results, whose files are replaced (default: a new one, {name}/<name of FILE>)"
            one.add_argument("--output", metavar="DIR", type=Path, help=text)
        one.add_argument("--quiet", action="store_true", help="say errors and warnings only")
        one.add_argument("--json", action="store_true", help="print one JSON object in place of prose")
        one.add_argument("--no-cache", dest="cache", action="store_false",
                         help="neither take nor keep compiled programs, wherever their folder is")  # fmt: skip
        module.add_options(one)
        one.set_defaults(run=module.run)

    problem = "problem file (JSON, as clerq has them)"
    command("solve", solve, "Solve a problem: fields, populations and spectra, as arrays and figures.",
            reads=problem, writes=True)  # fmt: skip
    command("design", design, "Shape the free pulses of a design file by gradient steps; verify the result.",
            reads="design file: a problem file with a `design` block", writes=True)  # fmt: skip
    command("fit", fit, "Infer numbers of a problem from measured traces or spectra, with their errors.",
            reads=problem, writes=True)  # fmt: skip
    command("check", check, "Say on one page what could be wrong with a problem, before an hour is spent on it.",
            reads=problem)  # fmt: skip
    command("info", info, "Print versions, devices and where compiled programs are kept.")
    return parser
