"""Mutated problem files: each is solved with finite numbers or refused in one sentence. `python -m tests.mutations`.

Valid files are broken at random: keys deleted, renamed, moved and written twice; values of a wrong type, of a wrong
sign, zero, huge, tiny or not finite; lists cut, lengthened, nested and swapped; text cut off, overwritten or no text at
all. Most change numbers alone, so that they share compiled programs.
"""

import argparse
import copy
import json
import random
import re
import signal
import tempfile
import time as clock
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_kernel import Problem, Resolution, propagate
from jax_kernel.errors import ProblemError, PropagationError
from jax_kernel.program import executable
from tests.conftest import ROOT, SHARED, lambda_system, two_level

SENTENCE = re.compile(r"(Argument `[^`]+`|File \S+|The [\w `]+) .*must .+, but.+\.")
SECONDS = (60, 600)
"""Of the processor and of the clock, after which a file counts as hanging."""

NUMBERS = (0, -1, 1, 0.5, -0.5, 1e308, -1e308, 1e-308, 1e30, 1e-30, 2**31, 2**63, 10**12, 10**400, True, False)
OTHERS = (None, "", "x", "1.0", "é\n\x00", "ramp_on", [], [[]], [1], [[0, 1]], {}, {"a": 1}, [None], "Ω" * 100)


def seeds(few: bool = False) -> list[dict[str, Any]]:
    """Valid problem files: the shared ones, those of the benchmarks and two of our own; on small grids.

    Args:
        few: whether only the last four, which need few programs.
    """
    files = [] if few else sorted((SHARED / "problems").rglob("*.json"))
    files += sorted((ROOT / "benchmarks" / "problems").glob("*.json"))
    found = [two_level().to_dict(), lambda_system().to_dict()]
    found[0]["velocity_classes"] = {"thermal_width": 0.1, "thermal_delta_min": -0.3, "thermal_delta_max": 0.3,
                                    "thermal_delta_steps": 4}  # fmt: skip
    for file in files:
        content = json.loads(file.read_text(encoding="utf-8"))
        system = content.get("system") or content.get("atom") or {}
        if system.get("num_states", 99) <= 3:
            found.append(content)
    kinds = {}
    for content in found:
        content |= {"t_steps": 40, "z_steps": 4, "z_steps_inner": 1}
        for key in ("thermal_delta_steps", "thermal_delta_inner_steps"):
            if (content.get("velocity_classes") or {}).get(key):
                content["velocity_classes"][key] = 4
        kinds.setdefault(_structure(content), content)
    return list(kinds.values())


def _structure(content: dict[str, Any]) -> str:
    """What a compiled program depends on: keys, words and levels; files that differ in other numbers share one."""
    levels = re.sub(r"-?\d+\.\d+(e-?\d+)?", "x", json.dumps(content, sort_keys=True))
    return re.sub(r'"(label|savefile)": "[^"]*"', "", levels)


def _places(content: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path of every value below the top."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from _places(value, (*path, key))


def _at(content: Any, path: tuple) -> Any:
    for key in path:
        content = content[key]
    return content


class Mutations:
    """Random mutations of problem files, from one seed.

    Args:
        seed: of the random numbers.
        few: as of `seeds`.
    """

    def __init__(self, seed: int, few: bool = False):
        self.random = random.Random(int(np.random.default_rng(seed).integers(2**62)))
        self.seeds = seeds(few)
        self.kinds: dict[str, tuple[float, Callable]] = {
            "number scaled": (4, self.scale), "number replaced": (6, self.number),
            "value of another type": (4, self.other),
            "key deleted": (1, self.delete), "key renamed": (1, self.rename), "key moved": (0.5, self.move),
            "list cut": (1, self.cut), "list lengthened": (1, self.lengthen), "list nested": (0.5, self.nest),
            "list swapped": (1, self.swap), "pair reversed": (0.5, self.reverse),
        }  # fmt: skip

    def file(self) -> tuple[str, bytes]:
        """(kind, content) of one file."""
        content = copy.deepcopy(self.random.choice(self.seeds))
        if self.random.random() < 0.15:
            return self.text(json.dumps(content, ensure_ascii=False))
        names, weights = list(self.kinds), [weight for weight, _ in self.kinds.values()]
        kinds = self.random.choices(names, weights, k=self.random.choice((1, 1, 1, 2, 3)))
        for kind in kinds:
            self.kinds[kind][1](content)
        text = json.dumps(content, allow_nan=True)
        return kinds[0] if len(kinds) == 1 else "several at once", text.encode()

    def _place(self, content: Any, fits: Callable[[Any], bool]) -> tuple | None:
        places = [path for path in _places(content) if fits(_at(content, path))]
        return self.random.choice(places) if places else None

    def _set(self, content: Any, fits: Callable[[Any], bool], change: Callable[[Any], Any]) -> None:
        path = self._place(content, fits)
        if path is not None:
            _at(content, path[:-1])[path[-1]] = change(_at(content, path))

    def scale(self, content: Any) -> None:
        factor = self.random.choice((0.5, 2.0, -1.0, 1e-3, 1e3, 1e6, self.random.gauss(1, 0.3)))
        self._set(content, lambda x: isinstance(x, float), lambda x: x * factor)

    def number(self, content: Any) -> None:
        values = (*NUMBERS, float("nan"), float("inf"), -float("inf"))
        self._set(content, lambda x: isinstance(x, (int, float)), lambda _: self.random.choice(values))

    def other(self, content: Any) -> None:
        self._set(content, lambda _: True, lambda _: copy.deepcopy(self.random.choice(OTHERS)))

    def _key(self, content: Any) -> tuple | None:
        places = [path for path in _places(content) if isinstance(path[-1], str)]
        return self.random.choice(places) if places else None

    def delete(self, content: Any) -> None:
        if path := self._key(content):
            del _at(content, path[:-1])[path[-1]]

    def rename(self, content: Any) -> None:
        if path := self._key(content):
            home, key = _at(content, path[:-1]), path[-1]
            changed = self.random.choice((key.upper(), key[:-1], key + "s", key.replace("_", "-"), "é" + key, ""))
            home[changed] = home.pop(key)

    def move(self, content: Any) -> None:
        if path := self._key(content):
            value = _at(content, path[:-1]).pop(path[-1])
            homes = [path for path in [(), *_places(content)] if isinstance(_at(content, path), dict)]
            _at(content, self.random.choice(homes))[path[-1]] = value

    def cut(self, content: Any) -> None:
        self._set(content, lambda x: isinstance(x, list) and x != [], lambda x: x[: self.random.randrange(len(x))])

    def lengthen(self, content: Any) -> None:
        self._set(content, lambda x: isinstance(x, list) and x != [], lambda x: [*x, copy.deepcopy(x[-1])])

    def nest(self, content: Any) -> None:
        self._set(content, lambda _: True, lambda x: [x])

    def swap(self, content: Any) -> None:
        self._set(content, lambda x: isinstance(x, list) and len(x) > 1, lambda x: self.random.sample(x, len(x)))

    def reverse(self, content: Any) -> None:
        pair = lambda x: isinstance(x, list) and len(x) == 2 and all(isinstance(y, int) for y in x)  # noqa: E731
        self._set(content, pair, lambda x: x[::-1])

    def text(self, text: str) -> tuple[str, bytes]:
        at = self.random.randrange(len(text))
        kind = self.random.choice(("cut off", "overwritten", "key twice", "not finite", "no text", "deep", "no object"))
        if kind == "cut off":
            return kind, text[:at].encode()
        if kind == "overwritten":
            return kind, (text[:at] + self.random.choice('{}[],:"0-eé\x00 ') + text[at + 1 :]).encode()
        if kind == "key twice":
            key = self.random.choice([m.end() for m in re.finditer(r"\{(?=\")", text)])
            name = text[key : text.index(":", key)]
            return kind, (text[:key] + f"{name}: 1.5, " + text[key:]).encode()
        if kind == "not finite":
            numbers = list(re.finditer(r"-?\d+\.\d+(e-?\d+)?", text)) or [re.search("$", text)]
            found = self.random.choice(numbers)
            word = self.random.choice(("NaN", "Infinity", "-Infinity", "1e999", "nan"))
            return kind, (text[: found.start()] + word + text[found.end() :]).encode()
        if kind == "no text":
            return kind, self.random.choice((b"", b"\xff\xfe", bytes(range(256)), b"\x00" * 100, text.encode("utf-16")))
        if kind == "deep":
            return kind, self.random.choice((b"[" * 100_000, b'{"a":' * 100_000, text.encode() + b"[" * 10**5))
        return kind, self.random.choice((b"null", b"3", b'"text"', f"[{text}]".encode(), b"{}"))


def outcome(file: Path) -> str:
    """What becomes of a file: "solved", "refused …", or what must never happen."""

    def stop(number, frame):
        raise TimeoutError

    timers = ((signal.SIGPROF, signal.ITIMER_PROF), (signal.SIGALRM, signal.ITIMER_REAL))
    before = [signal.signal(number, stop) for number, _ in timers]
    for (_, timer), seconds in zip(timers, SECONDS, strict=True):
        signal.setitimer(timer, seconds)
    stage = "when read"
    try:
        problem = Problem.from_json(file)
        stage = "when solved"
        solution = propagate(problem, resolution=Resolution(4, 1), outputs=("populations",), tol=1.0)
        fields, populations = np.asarray(solution.fields), np.asarray(solution.populations)
        if not (np.isfinite(fields).all() and np.isfinite(populations).all()):
            return f"BAD: not finite ({np.isfinite(fields).all()}, {np.isfinite(populations).all()})"
        return "solved"
    except TimeoutError:
        return f"BAD: no end {stage}"
    except PropagationError as error:
        text = str(error)
        good = text.isprintable() and SENTENCE.fullmatch(text)
        kind = "ProblemError" if isinstance(error, ProblemError) else type(error).__name__
        return f"refused {stage} ({kind})" if good else f"BAD: no sentence: {text!r}"
    except Exception as error:
        return f"BAD: {stage}: {type(error).__name__}: {error}"
    finally:
        for (number, timer), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def main(count: int, seed: int, report: Callable[[str], Any] = print, *, few: bool = False) -> dict[str, Counter]:
    """Try so many files; counts of outcomes by kind of mutation."""
    mutations, counts = Mutations(seed, few), {}
    with tempfile.TemporaryDirectory() as folder, jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UserWarning)
        file = Path(folder, "problem.json")
        begin = clock.perf_counter()
        for k in range(count):
            kind, content = mutations.file()
            file.write_bytes(content)
            found = outcome(file)
            counts.setdefault(kind, Counter())[found.partition(":")[0]] += 1
            if found.startswith("BAD"):
                report(f"{k} {kind}: {found[:400]}\n    {content[:2000]!r}")
            if k % 250 == 249:
                executable.cache_clear()
                jax.clear_caches()  # programs are on the disk, too, and would fill the memory
                report(f"{k + 1} files after {clock.perf_counter() - begin:.0f} s")
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    total: Counter = Counter()
    for kind, found in sorted(main(args.count, args.seed).items()):
        print(f"{kind}: {dict(found)}")
        total += found
    print(dict(total))
