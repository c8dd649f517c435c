"""Does any program call back to the host? The fixed grid's must not, as on a plugin backend that cannot.

Usage: python -m benchmarks.no_callbacks [--quick]

Forward and gradient are lowered, not run, with every solver of the fixed grid and an adaptive one; what counts are the
custom calls of the program whose target is a host callback, and infeeds and outfeeds.
"""

import re
import sys

import diffrax

from jax_kernel import Resolution

from . import cases, measure
from .tables import markdown

SOLVERS = {"runge-kutta": "runge-kutta", "exponential": "exponential", "Tsit5": diffrax.Tsit5()}
CALLBACK = re.compile(
    r"custom_call @\w*callback\w*|call_target_name = \"\w*callback\w*\"|stablehlo\.(?:infeed|outfeed)"
)


def callbacks(text: str) -> int:
    """Host callbacks in the text of a lowered program."""
    return len(CALLBACK.findall(text))


def measured(case) -> dict:
    """Number of host callbacks by solver, of forward and gradient."""
    counts = {}
    for name, solver in SOLVERS.items():
        pulse, material = case.part(cases.PULSE), case.part(cases.MATERIAL)
        at = Resolution(case.at.z_nodes, 1)
        counts[name] = {
            "forward": callbacks(cases.forward(case, at, solver=solver).lower(case.params).as_text()),
            "gradient": callbacks(cases.gradient(case, at, solver=solver).lower(pulse, material).as_text()),
        }
    return {"title": case.title, "callbacks": counts}


def table(results: dict) -> str:
    """Callbacks of forward and gradient by solver."""
    rows = [
        [of["title"], *(f"{count['forward']} / {count['gradient']}" for count in of["callbacks"].values())]
        for of in results.values()
    ]
    return markdown(["host callbacks, forward / gradient", *SOLVERS], rows)


def main() -> None:
    quick = measure.begin(__doc__)
    results = {case.name: measured(case) for case in cases.chosen(quick)}
    print(table(results))
    measure.write("no_callbacks", results, quick)
    for of in results.values():
        for name in ("runge-kutta", "exponential"):
            if any(of["callbacks"][name].values()):
                sys.exit(f"{of['title']}: {name} calls back to the host.")


if __name__ == "__main__":
    main()
