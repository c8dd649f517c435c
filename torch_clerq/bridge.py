"""The only place where tensors become arrays: JAX functions as torch functions, through DLPack, without a copy.

JAX's cotangent of a complex number is the conjugate of PyTorch's, so complex cotangents are conjugated on the way in
and complex gradients on the way out; both happen inside the compiled function.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache, wraps
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import jax
import jax.numpy as jnp
import torch
from torch.autograd import forward_ad
from torch.utils.dlpack import to_dlpack

from jax_kernel.errors import NotYetError
from jax_kernel.prepare import prepare
from jax_kernel.program import executable

_F = TypeVar("_F", bound=Callable)

VMAP = "torch.func.vmap of a propagation is not there yet: give the inputs leading batch axes instead."


class Function(Protocol):
    """A hashable, jittable function of arrays. Equal functions share their executables."""

    @property
    def x64(self) -> bool:
        """Whether it computes in 64 bit."""
        ...

    def __hash__(self) -> int: ...

    def __call__(self, constants: Any, *arrays: jax.Array) -> tuple[jax.Array, ...]: ...


class _DLPack(NamedTuple):
    """How memory changes hands.

    Attributes:
        read: contiguous CPU tensor -> array.
        write: array -> tensor; waits until it has been computed.
    """

    read: Callable[[torch.Tensor], jax.Array]
    write: Callable[[jax.Array], torch.Tensor]


@lru_cache(maxsize=1)
def _dlpack() -> _DLPack:
    """jaxlib's own entries, which take a tenth of the public ones' time; the latter where jaxlib has changed."""
    try:
        from jax._src.lib import _jax

        cpu = jax.devices("cpu")[0]

        def read(tensor: torch.Tensor) -> jax.Array:
            return _jax.dlpack_managed_tensor_to_buffer(to_dlpack(tensor), cpu, None, None)

        def write(array: jax.Array) -> torch.Tensor:
            return torch.from_dlpack(_jax.buffer_to_dlpack_managed_tensor(array, stream=None))

        write(read(torch.ones(1)))
    except Exception:
        return _DLPack(jnp.from_dlpack, torch.from_dlpack)
    return _DLPack(read, write)


def to_jax(tensor: torch.Tensor) -> jax.Array:
    """The CPU tensor's memory as an array; a copy only of what is not contiguous, conjugated, negated or misaligned."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.numel() == 0:
        return jnp.zeros(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
    return _dlpack().read(tensor)


def to_torch(array: jax.Array) -> torch.Tensor:
    """The array's memory as a tensor; waits until it has been computed."""
    if array.size == 0:
        return torch.empty(array.shape, dtype=getattr(torch, array.dtype.name))
    return _dlpack().write(array)


def _run(fn: Function, compiled: Callable, constants: Any, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    # JAX's 64-bit mode belongs to the thread, and backward may run on another: enter it for every run
    with jax.enable_x64(True) if fn.x64 else nullcontext():
        results = [to_torch(x) for x in compiled(constants, *map(to_jax, tensors))]
    taken = {t.data_ptr() for t in tensors}
    for i, result in enumerate(results):
        if result.data_ptr() in taken:
            results[i] = result.clone()
        taken.add(result.data_ptr())
    return tuple(results)


@lru_cache(maxsize=128)
def _forward(fn: Function) -> Callable:
    return jax.jit(fn)


@lru_cache(maxsize=128)
def _vjp(fn: Function, needed: tuple[bool, ...], there: tuple[bool, ...]) -> Callable:
    """The compiled gradient (constants, *arrays, *cotangents that are there) -> gradients of the needed arrays."""

    def conjugate(x):
        return jnp.conj(x) if jnp.iscomplexobj(x) else x

    def vjp(constants, *arrays):
        arrays, given = arrays[: len(needed)], iter(arrays[len(needed) :])

        def of_needed(*wanted):
            at_hand = iter(wanted)
            return fn(constants, *(next(at_hand) if need else x for x, need in zip(arrays, needed, strict=True)))

        outputs, transpose = jax.vjp(of_needed, *(x for x, need in zip(arrays, needed, strict=True) if need))
        bars = tuple(
            conjugate(next(given)) if present else jnp.zeros_like(out)
            for out, present in zip(outputs, there, strict=True)
        )
        return tuple(conjugate(x) for x in transpose(bars))

    return jax.jit(vjp)


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
        there = tuple(c is not None for c in cotangents)
        if not any(there):
            return (None,) * (2 + len(needed))
        tensors = (*ctx.saved_tensors, *(c for c in cotangents if c is not None))
        grads = iter(_differentiably(_Gradient, tensors, ctx.fn, ctx.constants, needed, there))
        return (None, None, *(next(grads) if need else None for need in needed))

    @staticmethod
    def jvp(ctx, *tangents):
        raise NotYetError("Forward-mode derivatives of a propagation are not there yet: use reverse mode.")

    @staticmethod
    def vmap(info, in_dims, *args):
        raise NotYetError(VMAP)


class _Gradient(torch.autograd.Function):
    """The reverse derivative, whose own derivatives are refused by name."""

    @staticmethod
    def forward(fn, constants, needed, there, *tensors):
        return _run(fn, _vjp(fn, needed, there), constants, tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *cotangents):
        raise NotYetError("Second derivatives of a propagation are not there yet: leave create_graph at False.")

    jvp = _Call.jvp
    vmap = _Call.vmap


def _differentiably(function: Any, tensors: Sequence[torch.Tensor], *static: Any) -> tuple[torch.Tensor, ...]:
    """Apply an autograd.Function, at no more than the cost of what may be differentiated now."""
    if torch._C._are_functorch_transforms_active():
        return function.apply(*static, *tensors)
    requires_grad = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    if requires_grad or any(forward_ad.unpack_dual(t).tangent is not None for t in tensors):
        # what function.apply comes to, without its look at the signature, which takes longer than the rest
        return super(torch.autograd.Function, function).apply(*static, *tensors)
    return function.forward(*static, *tensors)


def call(fn: Function, constants: Any, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Call a JAX function with tensors.

    Args:
        fn: a hashable, jittable function (constants, *arrays) -> tuple of arrays.
        constants: pytree of JAX arrays that have no gradient.
        tensors: CPU tensors, all of one precision.

    Returns:
        Tensors; they carry gradients where an input does.

    Raises:
        NotYetError: a derivative other than a first one in reverse mode is asked for.
    """
    return _differentiably(_Call, tensors, fn, constants)


def eager(function: _F) -> _F:
    """A function that torch.compile leaves to Python, around which it breaks the graph."""

    @wraps(function)
    def outer(*args, **kwargs):
        if torch.compiler.is_compiling():  # disable() imports the compiler, which takes seconds: not before it is used
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return cast(_F, outer)


def clear_cache() -> None:
    """Forget every compiled function and prepared problem of both packages."""
    for cached in (_forward, _vjp, executable, prepare):
        cached.cache_clear()
