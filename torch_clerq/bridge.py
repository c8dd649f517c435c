"""The only place where tensors become arrays: JAX functions as torch functions, through DLPack, without a copy.

JAX's cotangent of a complex number is the conjugate of PyTorch's, so complex cotangents are conjugated on the way in
and complex gradients on the way out; both happen inside the compiled function.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import torch

from jax_kernel.errors import NotYetError


class Function(Protocol):
    """A hashable, jittable function of arrays. Equal functions share their executables."""

    @property
    def x64(self) -> bool:
        """Whether it computes in 64 bit."""
        ...

    def __call__(self, constants: Any, *arrays: jax.Array) -> tuple[jax.Array, ...]: ...


def _precision(fn: Function) -> Any:
    """JAX's 64-bit mode, for this thread and as long as needed, when and only when the function needs it."""
    return jax.enable_x64(True) if fn.x64 else nullcontext()


def to_jax(tensor: torch.Tensor) -> jax.Array:
    """The tensor's memory as an array; a copy only of what is not contiguous, conjugated, negated or misaligned."""
    if tensor.device.type != "cpu":
        raise NotYetError(
            f"Argument `input_fields` and every parameter must be on the CPU, but one is on {tensor.device}: other "
            "devices are not there yet."
        )
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.numel() == 0:
        return jnp.zeros(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
    return jnp.from_dlpack(tensor)


def to_torch(array: jax.Array) -> torch.Tensor:
    """The array's memory as a tensor; waits until it has been computed."""
    if array.size == 0:
        return torch.empty(array.shape, dtype=getattr(torch, array.dtype.name))
    return torch.from_dlpack(array)


@lru_cache(maxsize=128)
def _forward(fn: Function) -> Callable:
    return jax.jit(fn)


@lru_cache(maxsize=128)
def _vjp(fn: Function, needed: tuple[bool, ...], cotangents: tuple[bool, ...]) -> Callable:
    """The compiled gradient in the needed arrays for the given cotangents (absent ones are zero)."""

    def conjugate(x):
        return jnp.conj(x) if jnp.iscomplexobj(x) else x

    def vjp(constants, arrays, given):
        def of_needed(*wanted):
            wanted = iter(wanted)
            return fn(constants, *(next(wanted) if need else x for x, need in zip(arrays, needed, strict=True)))

        outputs, transpose = jax.vjp(of_needed, *(x for x, need in zip(arrays, needed, strict=True) if need))
        given = iter(given)
        bars = tuple(
            conjugate(next(given)) if there else jnp.zeros_like(out)
            for out, there in zip(outputs, cotangents, strict=True)
        )
        return tuple(conjugate(x) for x in transpose(bars))

    return jax.jit(vjp)


def _run(fn: Function, compiled: Callable, constants: Any, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    with _precision(fn):
        outputs = compiled(constants, *(to_jax(t) for t in tensors))
        results = [to_torch(x) for x in outputs]
    given = {t.data_ptr() for t in tensors}
    return tuple(r.clone() if r.data_ptr() in given else r for r in results)


class _Call(torch.autograd.Function):
    """A JAX function on tensors, with its reverse derivative."""

    @staticmethod
    def forward(fn: Function, constants: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return _run(fn, _forward(fn), constants, tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.fn, ctx.constants, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *cotangents):
        needed = tuple(ctx.needs_input_grad[2:])
        if all(c is None for c in cotangents):
            return (None,) * (2 + len(needed))
        there = tuple(c is not None for c in cotangents)
        given = [c for c in cotangents if c is not None]
        grads = iter(_Gradient.apply(ctx.fn, ctx.constants, needed, there, *ctx.saved_tensors, *given))
        return (None, None, *(next(grads) if need else None for need in needed))

    @staticmethod
    def jvp(ctx, *tangents):
        raise NotYetError("Forward-mode derivatives of a propagation are not there yet: use reverse mode.")

    @staticmethod
    def vmap(info, in_dims, *args):
        raise NotYetError(
            "torch.func.vmap of a propagation is not there yet: give the inputs leading batch axes instead."
        )


class _Gradient(torch.autograd.Function):
    """The reverse derivative, whose own derivatives are refused by name."""

    @staticmethod
    def forward(fn, constants, needed, there, *tensors):
        def compiled(constants, *arrays):
            count = len(needed)
            return _vjp(fn, needed, there)(constants, arrays[:count], arrays[count:])

        return _run(fn, compiled, constants, tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *cotangents):
        raise NotYetError("Second derivatives of a propagation are not there yet: leave create_graph at False.")

    jvp = _Call.jvp
    vmap = _Call.vmap


@torch.compiler.disable
def call(fn: Function, constants: Any, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Call a JAX function with tensors.

    Args:
        fn: a hashable, jittable function (constants, *arrays) -> tuple of arrays.
        constants: pytree of JAX arrays that have no gradient.
        tensors: CPU tensors, all of one precision.

    Returns:
        Tensors; they carry gradients where an input does.

    Raises:
        NotYetError: a tensor is not on the CPU, or a derivative other than a first one in reverse mode is asked for.
    """
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return _Call.apply(fn, constants, *tensors)
    return _Call.forward(fn, constants, *tensors)


def clear_cache() -> None:
    """Forget every compiled function of the bridge."""
    _forward.cache_clear()
    _vjp.cache_clear()
