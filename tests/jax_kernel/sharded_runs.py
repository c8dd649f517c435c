"""Runs on four host devices against runs on one, for test_sharding.py, which starts this in a process of its own."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np

from jax_kernel import MarchResolution, ProblemError, Sharding, propagate
from jax_kernel.sharding import gather, place
from tests.conftest import two_level
from tests.jax_kernel.test_derivatives import AT, Solve, forward_over_reverse, gradient, inner

CLASSES = {"thermal_delta_min": -0.8, "thermal_delta_max": 0.8, "thermal_delta_steps": 4, "thermal_width": 0.6}
PROBLEM = two_level(rabi_freq=0.5, t_min=-1.0, t_max=1.0, t_steps=6, z_steps=2, velocity_classes=CLASSES)
BATCH = {"interaction_strengths": np.array([[0.5], [1.0], [2.0]])}
EVEN, UNEVEN = Sharding(classes=4), Sharding(batch=2, classes=2)


def difference(a, b):
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(jnp.max(jnp.abs(x - y))) for x, y in leaves)


def divided(solve, sharding):
    """The same run, divided."""
    other = Solve.__new__(Solve)
    other.program = dataclasses.replace(solve.program, sharding=sharding)
    other.numbers, other.point = place(sharding, (solve.numbers, solve.point))
    return other


def compiled(solve, function, sharding):
    """What function(solve)(parameters) gives where the run is divided, and the text of what was compiled."""
    shared = divided(solve, sharding)
    executable = jax.jit(function(shared)).lower(shared.point).compile()
    return gather(sharding, executable(shared.point)), executable.as_text()


def alone(solve, function):
    return jax.jit(function(solve))(solve.point)


def through_propagate():
    """Values and the gradient as a user takes them, not under jit."""

    def energy(g, sharding):
        s = propagate(PROBLEM, {"interaction_strengths": g}, outputs=("final_state",), resolution=AT, tol=1.0,
                      sharding=sharding)  # fmt: skip
        return jnp.sum(jnp.abs(s.fields) ** 2) + jnp.sum(jnp.real(s.final_state[..., 1, 1])), s

    g = jnp.asarray(BATCH["interaction_strengths"])
    (one, alone), first = jax.value_and_grad(energy, has_aux=True)(g, None)
    (two, shared), second = jax.value_and_grad(energy, has_aux=True)(g, UNEVEN)
    plain = propagate(PROBLEM, BATCH, resolution=AT, tol=1.0, sharding=UNEVEN)
    yield "values", difference((one, alone.fields, alone.final_state), (two, shared.fields, shared.final_state))
    yield "gradient", difference(first, second)
    yield "devices of the result", [device.id for device in plain.fields.devices()]


def loops(text):
    """What the loops of a compiled program hold: states of two classes or of all, and talk between devices."""
    inside = [line for line in text.splitlines() if "/while/body" in line]
    carried = [line for line in text.splitlines() if " while(" in line]
    found = {kind: any(re.search(rf" {kind}(-start)?\(", line) for line in inside)
             for kind in ("all-reduce", "all-gather", "all-to-all", "collective-permute")}  # fmt: skip
    sizes = {"divided": r"\b4,2,4\]", "whole": r"\b4,[58],4\]"}
    return found | {name: any(re.search(size, line) for line in carried) for name, size in sizes.items()}


def by_hand(solve):
    return gradient(solve, "reverse")


def results():
    yield from through_propagate()
    single = Solve(PROBLEM, {})
    expected = alone(single, by_hand)
    for name, unrolled in (("unrolled", True), ("blocks", False)):
        structure = dataclasses.replace(single.program.structure, unrolled=unrolled)
        single.program = dataclasses.replace(single.program, structure=structure)
        found, text = compiled(single, by_hand, EVEN)
        yield name, difference(found, expected)
        yield f"{name} loops", loops(text)
    along = single.direction()

    def second_order(solve):
        return forward_over_reverse(solve, along)

    yield "second order", difference(compiled(single, second_order, EVEN)[0], alone(single, second_order))
    march = Solve(PROBLEM, {}, scheme="march", at=MarchResolution(1), n_steps=7)
    along = march.direction()

    def forward(solve):  # which compiles in a fraction of the time
        return lambda p: jax.jvp(lambda p: solve.number(p, "forward"), (p,), (along,))[1]

    yield "march", difference(inner(compiled(march, by_hand, EVEN)[0], along), alone(march, forward))
    try:
        propagate(PROBLEM, resolution=AT, sharding=Sharding(batch=2, classes=3))
    except ProblemError as error:
        yield "too few", str(error)


if __name__ == "__main__":
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        print(json.dumps(dict(results())))
