"""Are fields and gradients right? Against converged runs, clerq's solve(), central differences, and one another.

Usage: python -m benchmarks.accuracy [--quick | --solve]

solve() and clerq.autodiff have tight tolerances and the problem's own z steps, and the kernel's march has the same, so
that the three agree. Of solve(), every fourth point in z and t is stored in problems/ (--solve runs it again); on Rb87
it did not end within six minutes and is left out. The default scheme is held against its converged run, and that
against an adaptive integrator (Tsit5, rtol 1e-10) at the same z-nodes. Gradients are of the output energy in pulse and
material, each element per relative change of its parameter; central differences are taken at the best of a ladder of
steps. Deviations are of the peak.
"""

import sys
from pathlib import Path

import diffrax
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from jax_kernel import propagate

from . import cases, measure
from .tables import markdown

STEPS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6)
SOLVED = Path(__file__).parent / "problems" / "clerq_solve.npz"
TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def scales(params):
    """Size of each parameter, 1 where it is zero."""
    return jax.tree.map(lambda p: jnp.where(p == 0, 1.0, jnp.abs(p)), params)


def differences(function, params, step: float):
    """Central differences (four points, fourth order) in every parameter, per relative change, as a flat array."""
    flat, rebuild = jax.flatten_util.ravel_pytree(params)
    scale = jax.flatten_util.ravel_pytree(scales(params))[0]
    slopes = []
    for k in range(len(flat)):
        moved = [float(function(rebuild(flat.at[k].add(sign * step * scale[k])))) for sign in (2, 1, -1, -2)]
        slopes.append((8 * (moved[1] - moved[2]) - (moved[0] - moved[3])) / (12 * step))
    return np.asarray(slopes)


def smooth(params) -> dict:
    """All parameters but the edges of ramps.

    A ramp's second derivative jumps there, so that the objective on a grid has a kink where an edge is a grid time.
    """
    pulses = [{name: x for name, x in args.items() if name not in ("on", "off")} for args in params["pulse_args"]]
    return params | {"pulse_args": pulses}


def gradients(case) -> dict:
    """Reverse mode against central differences at the best step, and against forward mode; of the largest element."""
    params = smooth(case.params)

    def loss(mode):
        return lambda p: cases.energy(
            propagate(case.problem, p, resolution=case.at, tol=1.0, mode=mode, solver="runge-kutta").fields
        )

    def scaled(gradient) -> np.ndarray:
        return np.asarray(jax.flatten_util.ravel_pytree(jax.tree.map(jnp.multiply, gradient, scales(params)))[0])

    value = jax.jit(loss("reverse"))
    reverse = scaled(jax.jit(jax.grad(loss("reverse")))(params))
    forward = scaled(jax.jit(jax.jacfwd(loss("forward")))(params))
    largest = np.max(np.abs(reverse))
    found = {step: np.max(np.abs(differences(value, params, step) - reverse)) / largest for step in STEPS}
    best = min(found, key=found.get)
    return {
        "parameters": len(reverse),
        "against differences": float(found[best]),
        "best step": best,
        "reverse against forward": float(np.max(np.abs(forward - reverse)) / largest),
    }


def store_solve() -> None:
    """Run clerq's solve() with tight tolerances and store some of its points."""
    fields = {}
    for case in (cases.CASES["Λ"], cases.CASES["two-level"]):
        solver = cases.clerq_solver(case, opts={**TIGHT, "nsteps": 100_000})
        took = measure.seconds(lambda solver=solver: solver.solve(progress=False, check_stability=False))
        fields[case.file] = every(np.asarray(solver.rabi_freqs_zt))
        print(f"{case.title}: {took:.0f} s", flush=True)
        np.savez_compressed(SOLVED, **fields)


def every(fields) -> np.ndarray:
    """The points that are stored: every fourth position and time."""
    return np.asarray(fields)[:, ::4, ::4]


def measured(case) -> dict:
    """All deviations of one problem."""
    at, reference = case.at, case.reference
    fixed = np.asarray(cases.forward(case)(case.params))
    adaptive = np.asarray(propagate(case.problem, resolution=at, tol=1.0, solver=diffrax.Tsit5(), **TIGHT).fields)
    march = np.asarray(propagate(case.problem, scheme="march", tol=1.0, **TIGHT).fields)
    autodiff = np.asarray(cases.clerq_solver(case).to_autodiff(**TIGHT).propagate(case.params))
    stored = np.load(SOLVED)
    solve = stored.get(case.file)
    return {
        "title": case.title,
        "resolution": cases.label(at),
        "converged at": cases.label(case.converged),
        "fields": measure.error(fixed, reference),
        "fields at the converged nodes, adaptive": measure.error(
            propagate(case.problem, resolution=case.converged, tol=1.0, solver=diffrax.Tsit5(), **TIGHT).fields,
            reference,
        ),
        "adaptive against fixed": measure.error(adaptive, fixed),
        "clerq": measure.error(autodiff, reference),
        "march against autodiff": measure.error(march, autodiff),
        "march against solve": None if solve is None else measure.error(every(march), solve),
        "gradient": gradients(case),
    }


def table(results: dict) -> str:
    """Deviations by problem."""
    head = ["deviation of the fields", "default, of converged", "converged, of Tsit5", "Tsit5, of default at its nodes"]
    head += ["clerq.autodiff, of converged", "march, of clerq.autodiff", "march, of solve()"]
    keys = (
        "fields",
        "fields at the converged nodes, adaptive",
        "adaptive against fixed",
        "clerq",
        "march against autodiff",
        "march against solve",
    )
    rows = [
        [f"{of['title']}, {of['resolution']}", *("–" if of[key] is None else measure.number(of[key]) for key in keys)]
        for of in results.values()
    ]
    fields, rows = markdown(head, rows), []
    for of in results.values():
        gradient = of["gradient"]
        differences = f"{gradient['against differences']:.1e} (step {gradient['best step']:g})"
        rows.append(
            [of["title"], str(gradient["parameters"]), differences, f"{gradient['reverse against forward']:.1e}"]
        )
    head = ["deviation of the gradient", "parameters", "reverse, of differences", "reverse, of forward mode"]
    return fields + "\n\n" + markdown(head, rows)


def main() -> None:
    again = "--solve" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--solve"]
    quick = measure.begin(__doc__)
    if again:
        store_solve()
    results = {case.name: measured(case) for case in cases.chosen(quick)}
    print(table(results))
    measure.write("accuracy", results, quick)


if __name__ == "__main__":
    main()
