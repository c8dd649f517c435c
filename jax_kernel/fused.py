"""Loops as one kernel of the processor, and the sums that may stand in them.

XLA runs a loop on the CPU as a list of kernels for every turn, which costs more than the arithmetic of a small problem.
It compiles a call that is marked as small, with the loops in it, to one function without a dispatch
(xla/backends/cpu/codegen/computation_kernel_emitter.cc). In such a call there may be loops and elementwise operations;
sums and products of matrices may become calls of a library, which it refuses, so they are written as loops here.
Elsewhere the mark has no meaning, and the call runs as any other.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
from jax import lax
from jax.custom_batching import sequential_vmap
from jax.experimental.xla_metadata import set_xla_metadata

from .generator import Structure

TRIED = ("0.10.2",)
"""Releases of jaxlib with which the marked calls have been tried: XLA ends the process where it cannot compile one."""

SWITCH = "JAX_KERNEL_FUSED"
"""Environment variable that keeps the loops apart where it is 0."""

LIMIT = 150
"""Nonzeros of the generator up to which the loops are one kernel: above, it compiles for longer than it saves."""

PART = 8
"""Into how many parts a sum along z is reduced."""

CLASSES_AT_ONCE = 4
"""Velocity classes that one turn of a loop adds: few, lest what is summed is computed where it is read."""

MARK = {"xla_cpu_small_call": "true", "inlineable": "false"}
UNMARK = {"xla_cpu_small_call": "false", "inlineable": "true"}  # without which JAX marks all that is in the call, too


def single_kernel(function: Callable, fused: bool) -> Callable:
    """The function of arrays, to be compiled to one kernel if `fused`.

    A batch of it is one run of the kernel after another, whose arrays stay in the processor's cache.
    """
    if not fused:
        return function

    def marked(*arguments):
        leaves, tree = jax.tree.flatten(arguments)
        shapes = [jax.typeof(x) for x in leaves]

        def unmarked(*given):
            with set_xla_metadata(**UNMARK):
                rest = iter(given)
                full = [next(rest) if s.size else jnp.zeros(s.shape, s.dtype) for s in shapes]
                # no argument may end up without a use, which XLA does not expect
                keep_alive = sum(lax.slice(x.reshape(-1), (0,), (1,)).astype(float) for x in given)
                return function(*jax.tree.unflatten(tree, full)), keep_alive

        unmarked.__name__ = function.__name__
        called = jax.jit(unmarked)

        def plain(*given):
            return unmarked(*given)[0]

        @jax.custom_jvp
        @sequential_vmap
        def call(*given):
            given = lax.optimization_barrier(given)  # nor may the values of a constant move into the call
            with set_xla_metadata(**MARK):
                result = called(*given)
            return lax.optimization_barrier(result)[0]  # without which JAX would drop the uses again

        call.defjvp(lambda primals, tangents: jax.jvp(plain, primals, tangents))  # whose arguments may be without a use
        return call(*(x for x in leaves if x.size))

    return marked


def is_available(structure: Structure) -> bool:
    """Whether arrays go to a CPU and the loops of a structure to a compiler known to make one kernel of them.

    Several JAX devices may share a batch, which one kernel after another would not.
    """
    if os.environ.get(SWITCH) == "0" or jaxlib.__version__ not in TRIED:
        return False
    small = structure.unrolled and structure.num_terms <= LIMIT
    return small and jax.default_backend() == "cpu" and jax.device_count() == 1


def _sum(count: int, chunk: int, terms: Callable, zero):
    """Σ_k terms(k, n), each the sum of the terms k … k + n − 1, in chunks."""
    turns = count // chunk
    if turns > 1:
        total = lax.fori_loop(0, turns, lambda k, total: total + terms(k * chunk, chunk), zero)
        done = turns * chunk
        return total + terms(done, count - done) if done < count else total
    return zero + terms(0, count)


def product(vectors: Any, matrix: Any, start: Any) -> Any:
    """start + Σ_k vectors[…, k] matrix[k, :] for start and vectors (…, z) and a matrix (z, z), shape (…, z)."""

    def terms(start, count):
        rows = lax.dynamic_slice_in_dim(matrix, start, count, axis=0)
        weights = lax.dynamic_slice_in_dim(vectors, start, count, axis=-1)
        return sum(weights[..., k : k + 1] * rows[k] for k in range(count))

    count = len(matrix)
    return _sum(count, 4 if 8 < count < 48 else 8, terms, start)  # the fastest; up to 8 without a loop


def partial_sum(x: Any) -> Any:
    """The sum of x (…, z) along z, as up to eight parts (…, part) that are yet to be added."""
    size = x.shape[-1]
    if size <= PART:
        return x
    ends = range(PART, size + 1, PART)
    total = sum(x[..., end - PART : end] for end in ends)
    rest = x[..., size // PART * PART :]
    return total + jnp.pad(rest, [(0, 0)] * (x.ndim - 1) + [(0, PART - rest.shape[-1])]) if size % PART else total


def class_sum(x: Any) -> Any:
    """Σ_v x[…, v, z], shape (…, z)."""
    classes = x.shape[-2]
    if classes == 1:
        return x[..., 0, :]

    def terms(start, count):
        chunk = lax.dynamic_slice_in_dim(x, start, count, axis=-2)
        return sum(chunk[..., k, :] for k in range(count))

    return _sum(classes, CLASSES_AT_ONCE, terms, jnp.zeros((*x.shape[:-2], x.shape[-1]), x.dtype))
