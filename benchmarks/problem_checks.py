"""What does `torch-clerq check` say of a folder of problem files? `python -m benchmarks.problem_checks FOLDER`.

The folder holds problem files and an INDEX.md, a table of the traps that are known of each; printed is, file by file,
what clerq's own run doubts there (Z: its step in z, T: the time grid, E: the window's edges) beside what is found, and
how long that took. Nothing is stored.
"""

import argparse
import re
import time
from pathlib import Path

from jax_kernel.errors import PropagationError
from torch_clerq import Problem, use_compilation_cache
from torch_clerq.diagnostics import check_problem


def flags(index: Path) -> dict[str, str]:
    """The letters that clerq's own run raises, by name of the file; empty without an index."""
    found = {}
    for line in index.read_text(encoding="utf-8").splitlines() if index.exists() else ():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        letters = [cell for cell in cells[1:] if re.fullmatch("Z?T?E?", cell)]
        found[cells[0]] = max(letters, key=len, default="")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="of the files, by default all")
    args = parser.parse_args()
    use_compilation_cache()
    known = flags(args.folder / "INDEX.md")
    files = sorted(path for path in args.folder.rglob("*.json") if not args.names or path.stem in args.names)
    print("| file | clerq doubts | found | seconds |\n|---|---|---|---|")
    for path in files:
        begin = time.perf_counter()
        try:
            found = [f"{one.topic}: {one.text}" for one in check_problem(Problem.from_json(path)).findings]
        except PropagationError as error:
            found = [f"refused: {error}"]
        seconds = time.perf_counter() - begin
        print(f"| {path.stem} | {known.get(path.stem, '')} | {' ◆ '.join(found)} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
