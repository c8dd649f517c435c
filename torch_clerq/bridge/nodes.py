"""JAX functions as torch functions: one recursive autograd.Function, whose derivatives and batches are calls again."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.autograd import forward_ad

from . import operators
from .compiled import refuse_script, unseen
from .functions import Function, batched, jvp, run, vjp
from .views import PLAIN


@unseen
def call(fn: Function, constants: Any, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Call a JAX function with tensors, at no more than the cost of what may be differentiated now.

    Args:
        fn: a hashable, jittable function (constants, *arrays) -> tuple of arrays.
        constants: pytree of JAX arrays that have no derivative.
        tensors: tensors on one device.

    Returns:
        Tensors; they carry derivatives where an input does.
    """
    if torch._C._is_tracing():
        refuse_script()
    if torch._C._are_functorch_transforms_active():
        return node(fn.name).apply(fn, constants, *tensors)
    # after torch.func.vjp its function still holds wrappers, which have nothing to say any more
    tensors = [torch._C._functorch.unwrap_if_dead(t) for t in tensors]
    if forward_ad._current_level >= 0 or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        # what apply() comes to, without its look at the signature, which takes longer than the rest
        return super(torch.autograd.Function, node(fn.name)).apply(fn, constants, *tensors)
    return _compute(fn, constants, *tensors)


@unseen
def _compute(fn: Function, constants: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The values: at once where there are some, or as an operator that torch may trace."""
    if torch._C._len_torch_dispatch_stack() == 0 and all(type(t) in PLAIN and not t.is_meta for t in tensors):
        if not any(map(torch._C._functorch.is_legacy_batchedtensor, tensors)):
            return run(fn, constants, tensors)
        level = torch._C._vmapmode_increment_nesting() - 1
        torch._C._vmapmode_decrement_nesting()
        if level == 1:
            return _legacy_batch(fn, constants, tensors, level)
    return operators.apply(fn, constants, tensors)


def _legacy_batch(fn, constants, tensors, level: int) -> tuple[torch.Tensor, ...]:
    """The values for what `is_grads_batched` and `vectorize` batch, a way older than torch.func.vmap, in one call."""
    axes = [0 if torch._C._functorch.is_legacy_batchedtensor(t) else None for t in tensors]
    plain = [
        t if axis is None else torch._remove_batch_dim(t, level, 0, 0) for t, axis in zip(tensors, axes, strict=True)
    ]
    out = _compute(batched(fn, axes, plain), constants, *plain)
    return tuple(torch._add_batch_dim(x, 0, level) for x in out)


class _Call(torch.autograd.Function):
    """A JAX function on tensors, with its derivatives."""

    forward = staticmethod(_compute)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.fn, ctx.constants, *tensors = inputs
        ctx.save_for_backward(*tensors)
        if forward_ad._current_level >= 0:  # for jvp, which runs at once
            ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)
        exact = [out for out in output if not (out.is_floating_point() or out.is_complex())]
        if exact:
            ctx.mark_non_differentiable(*exact)
        ctx.inexact = None if not exact else [out.is_floating_point() or out.is_complex() for out in output]

    @staticmethod
    def backward(ctx, *cotangents):
        needed = ctx.needs_input_grad[2:]
        there = tuple(c is not None for c in cotangents)
        if not any(there):
            return (None,) * (2 + len(needed))
        given = (*ctx.saved_tensors, *(c for c in cotangents if c is not None))
        grads = iter(call(vjp(ctx.fn, needed, there), ctx.constants, given))
        return (None, None, *(next(grads) if need else None for need in needed))

    @staticmethod
    def jvp(ctx, *tangents):
        tangents = tangents[2:]
        moving = tuple(t is not None for t in tangents)
        given = (*ctx.saved_tensors, *(t for t in tangents if t is not None))
        out = call(jvp(ctx.fn, moving), ctx.constants, given)
        if ctx.inexact is None:
            return out
        moving_out = iter(out)
        return tuple(next(moving_out) if moves else None for moves in ctx.inexact)

    @staticmethod
    def vmap(info, in_dims, fn, constants, *tensors):
        out = call(batched(fn, in_dims[2:], tensors), constants, tensors)
        return out, (0,) * len(out)


@lru_cache(maxsize=256)
def node(name: str) -> Any:
    """The autograd.Function under a name of its own, which graphs and anomaly mode show."""
    return type(name, (_Call,), {"__doc__": _Call.__doc__})
