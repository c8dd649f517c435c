"""Temporary memory of one compiled gradient against stored positions and velocity classes, for each memory setting.

Usage: python -m benchmarks.memory [--quick]

Bytes are XLA's own for the executable of value and gradient of the output energy in the pulse; they hold the stored
stages and not the fields that are returned. Times are of the fast and the lean setting in turn.
"""

from dataclasses import replace

from . import cases, measure
from .cases import MATERIAL, PULSE, Case
from .tables import markdown

CROSS = {"fast": {"memory": "fast"}, "lean": {"memory": "lean"}, "auto": {"memory": "auto"}}
MARCH = {
    "march s2": {"scheme": "march", "strategy": "s2"},
    "march s3": {"scheme": "march", "strategy": "s3"},
    "march s4, 32": {"scheme": "march", "strategy": "s4", "checkpoints": 32},
}
TARGETS = {"Rb87, 11 classes, 400 z": 13, "Rb87, 11 classes, 800 z": 18, "Rb87, 25 classes, 100 z": 19}


def rubidium(z: int, classes: int = 11) -> Case:
    """Rb87 with so many stored intervals and velocity classes."""
    title = f"Rb87, {classes} class{'' if classes == 1 else 'es'}, {z} z"
    case = cases.CASES["Rb87"]
    velocities = case.content["velocity_classes"] | {"thermal_delta_steps": classes - 1}
    if classes == 1:
        velocities = {
            "thermal_delta_min": 0.0,
            "thermal_delta_max": 0.0,
            "thermal_delta_steps": 0,
            "thermal_width": 1.0,
        }
    return replace(case.changed(title, z_steps=z, velocity_classes=velocities), title=title)


def grid(quick: bool) -> list[tuple[Case, tuple[str, ...]]]:
    """Which problems, and which settings of the march besides all of the default scheme."""
    march = tuple(MARCH)
    if quick:
        return [(rubidium(400), ()), (cases.CASES["Λ"].changed("Λ, 800 z", z_steps=800), march[1:2])]
    return [
        (rubidium(100), march),
        (rubidium(200), ()),
        (rubidium(400), march),
        (rubidium(800), march[1:]),
        (rubidium(100, 1), march),
        (rubidium(100, 25), march),
        (cases.CASES["Λ"].changed("Λ, 800 z", z_steps=800), march),
    ]


def measured(case: Case, march: tuple[str, ...], quick: bool) -> dict:
    """Bytes of every setting, and times of fast and lean."""
    result = {"bytes": {}, "compile": {}}
    calls, arguments = {}, (case.part(PULSE), case.part(MATERIAL))
    for name, options in (CROSS | {name: MARCH[name] for name in march}).items():
        run, facts = measure.compiled(cases.gradient(case, **options), *arguments)
        result["bytes"][name], result["compile"][name] = facts["temp_bytes"], facts["compile"]
        if name in ("fast", "lean"):
            calls[name] = lambda run=run: run(*arguments)
        print(f"{case.title}, {name}: {measure.mib(facts['temp_bytes'])} MiB", flush=True)
    times = measure.samples(calls, 1 if quick else 4)
    result["times"] = {name: measure.summary(t) for name, t in times.items()}
    result["lean over fast"] = measure.ratio(times["lean"], times["fast"])
    return result


def table(results: dict) -> str:
    """MiB by setting, and the time of the lean one."""
    names = [*CROSS, *MARCH]
    rows = []
    for title, of in results.items():
        goal = f"≤ {TARGETS[title]} MiB lean" if title in TARGETS else ""
        sizes = [measure.mib(of["bytes"][name]) if name in of["bytes"] else "" for name in names]
        rows.append([title, *sizes, measure.times(of["lean over fast"]), goal])
    rows.append(["**target**", *[""] * len(names), "≤ 1.4×", ""])
    return markdown(["MiB", *names, "time, lean / fast", "target"], rows)


def main() -> None:
    quick = measure.begin(__doc__)
    results = {case.title: measured(case, march, quick) for case, march in grid(quick)}
    print(table(results))
    measure.write("memory", results, quick)


if __name__ == "__main__":
    main()
