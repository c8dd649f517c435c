"""What the three benchmark problems cost, counted in the compiled programs and not by a clock."""

import json
import logging
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_kernel import Problem, Resolution, fused, propagate
from jax_kernel.prepare import structure_of

FOLDER = Path(__file__).parents[2] / "benchmarks" / "problems"

CASES = {  # resolution; steps; of a gradient: XLA's kernels beside ours, operations in the loops of ours, kibibytes
    "bench_lam": (Resolution(12, 1), 200, 80, 3800, 1100),
    "bench_two_level": (Resolution(64, 1), 1000, 65, 900, 8800),
    "bench_rb87": (Resolution(8, 1), 200, 75, 6600, 1450),
}


def program(name, **options):
    """Value and gradient of the output energy in the Rabi frequencies, with the material as arguments."""
    problem = Problem.from_dict(json.loads((FOLDER / f"{name}.json").read_text()))
    if not fused.is_available(structure_of(problem, "")):
        pytest.skip("this jaxlib or device makes no single kernel of the loops")
    pulse = {"rabi_freq": jnp.asarray([field.rabi_freq for field in problem.fields])}
    material = {"interaction_strengths": jnp.asarray(problem.interaction_strengths)}

    def value(pulse, material):
        fields = propagate(problem, pulse | material, resolution=CASES[name][0], tol=1.0, **options).fields
        return jnp.sum(jnp.abs(fields[:, -1]) ** 2)

    return jax.jit(jax.value_and_grad(value)), (pulse, material)


def computations(text):
    """Lines of every computation of a compiled program."""
    found, name = {}, None
    for line in text.splitlines():
        head = re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if head:
            name = "ENTRY" if head[1] else head[2]
            found[name] = []
        elif line.startswith("}"):
            name = None
        elif name is not None:
            found[name].append(line)
    return found


def operations(lines):
    return [line for line in lines if not re.search(r" (parameter|constant|get-tuple-element|tuple|bitcast)\(", line)]


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_is_two_kernels_that_take_every_step_once_and_once_again(name, x64):
    _, steps, beside, within, kibibytes = CASES[name]
    run, arguments = program(name)
    compiled = run.lower(*arguments).compile()
    found = computations(compiled.as_text())
    entry = "\n".join(found["ENTRY"])
    assert len(re.findall(r" call\(.*inlineable=\"false\"", entry)) == 2
    assert len(operations(found["ENTRY"])) <= beside
    turns = [int(n) for line in found["ENTRY"] for n in re.findall(r" while\(.*known_trip_count\W+n\W+(\d+)", line)]
    assert all(n <= 64 for n in turns)  # the recurrence of the Legendre polynomials, in z

    # forward, forward again and back: three loops over the stages of a segment, in two over the segments
    loops = [int(n) for lines in found.values() for line in lines
             for n in re.findall(r" while\(.*known_trip_count\W+n\W+(\d+)", line)]  # fmt: skip
    per_segment = round(np.sqrt((steps + 1) / 5))
    segments = steps // per_segment + 1
    assert loops.count(5 * per_segment) == 3
    assert loops.count(segments) == 2
    bodies = [lines for lines in found.values() if sum(" fusion(" in line for line in lines) > 5]
    called = {m for lines in bodies for line in lines for m in re.findall(r"calls=%([\w.\-]+)", line)}
    assert sum(len(operations(found[m])) for m in called if m in found) <= within
    assert compiled.memory_analysis().temp_size_in_bytes <= kibibytes * 1024


def test_longer_steps_are_fewer(x64):
    problem = Problem.from_dict(json.loads((FOLDER / "bench_two_level.json").read_text()))

    def size(at):
        run = jax.jit(lambda r: propagate(problem, {"rabi_freq": r}, resolution=at, tol=1.0, memory="fast").fields)
        text = run.lower(jnp.ones(1)).compile().as_text()
        return max(int(n) for n in re.findall(r"known_trip_count\W+n\W+(\d+)", text))

    assert size(Resolution(32, 1)) == 5 * 1001
    assert size(Resolution(32, 1 / 8)) == 5 * 126


@pytest.mark.parametrize("name", ["bench_lam", "bench_rb87"])
def test_new_numbers_compile_nothing(name, x64, caplog):
    run, (pulse, material) = program(name)
    run(pulse, material)
    others = [jax.tree.map(lambda x: x * (1 - 0.01 * k), (pulse, material)) for k in range(5)]  # noqa: B023
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for other in others:
            run(*other)
    assert not [record for record in caplog.records if "Compiling" in record.getMessage()]


def test_a_lean_gradient_does_not_grow_with_the_positions_asked_for(x64):
    """13 and 18 MiB at 400 and 800 positions, 11 classes, are what the reference takes."""
    content = json.loads((FOLDER / "bench_rb87.json").read_text())
    for z_steps, mebibytes in ((400, 13), (800, 18)):
        problem = Problem.from_dict(content | {"z_steps": z_steps})

        def value(pulse, problem=problem):
            fields = propagate(
                problem, {"rabi_freq": pulse}, resolution=Resolution(8, 1), tol=1.0, memory="lean"
            ).fields
            return jnp.sum(jnp.abs(fields[:, -1]) ** 2)

        compiled = jax.jit(jax.value_and_grad(value)).lower(jnp.ones(2)).compile()
        assert compiled.memory_analysis().temp_size_in_bytes <= mebibytes * 2**20
