"""torch-clerq check: everything that could be wrong with a problem file, on one page."""

import argparse
import dataclasses

from ..design import read
from ..diagnostics import TOPICS, check_problem
from .console import Console


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tol", type=float, help="error of the fields aimed at, relative to the peak (default 1e-6)")


def run(args: argparse.Namespace, console: Console) -> int:
    problem, _ = read(args.file)
    topics: list[str] = []

    def on_topic(name: str) -> None:
        topics.append(name)
        console.status(f"{len(topics)}/{len(TOPICS)} {name}")

    report = check_problem(problem, tol=args.tol, on_topic=on_topic)
    console.say(str(report))
    if args.quiet:
        for found in report.findings:
            console.complain(str(found))
    if report.gradients is not None and not report.gradients.ok:
        console.say(f"\n{report.gradients}")
    console.result(
        {
            "ok": report.ok,
            "facts": report.facts,
            "findings": [dataclasses.asdict(found) for found in report.findings],
            "seconds": round(console.seconds, 2),
        }
    )
    return 0 if report.ok else 1
