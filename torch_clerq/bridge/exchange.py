"""Where memory changes hands: tensors as arrays and back through DLPack, on any device, without a copy."""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import torch
from torch.utils.dlpack import to_dlpack

from jax_kernel.errors import BridgeError

try:
    from jax._src.xla_bridge import backends_are_initialized as _jax_is_at_work
except ImportError:  # another JAX: better to refuse a fork that would have worked than to hang

    def _jax_is_at_work() -> bool:
        return True


logger: logging.Logger = logging.getLogger("torch_clerq")


class _DLPack(NamedTuple):
    """How the CPU's memory changes hands.

    Attributes:
        read: contiguous tensor -> array.
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
    except (ImportError, AttributeError, TypeError) as error:
        logger.debug("The public DLPack entries stand in: %s", error)
        return PUBLIC
    return _DLPack(read, write)


PUBLIC = _DLPack(lambda tensor: jnp.from_dlpack(tensor.detach()), torch.from_dlpack)


def to_jax(tensor: torch.Tensor) -> jax.Array:
    """The tensor's memory as an array; a copy only of what is not contiguous, conjugated, negated or misaligned."""
    try:
        if tensor.is_conj() or tensor.is_neg() or not tensor.is_contiguous():
            tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
        if tensor.numel() == 0:
            return jnp.zeros(tuple(tensor.shape), dtype_of(tensor))
        if tensor.is_cpu:
            return _dlpack().read(tensor)
        return jnp.from_dlpack(tensor.detach())  # the public entry hands the stream over
    except Exception as error:
        if tensor.layout is torch.strided and not tensor.is_quantized and hasattr(jnp, dtype_of(tensor)):
            raise
        kind = f"{tensor.layout}, {tensor.dtype}".replace("torch.", "")
        raise BridgeError(f"Tensors must be dense and of a dtype that JAX knows, but one is {kind}.") from error


def to_torch(array: jax.Array, device: torch.device | None = None) -> torch.Tensor:
    """The array's memory as a tensor; waits until it has been computed, or hands the stream over on a GPU."""
    if array.size == 0:
        return torch.empty(array.shape, dtype=getattr(torch, array.dtype.name), device=device)
    if device is None or device.type == "cpu":
        return _dlpack().write(array)
    return torch.from_dlpack(array)


def on_device(tensors: Sequence[torch.Tensor]) -> torch.device | None:
    """The one device that is not the CPU and that all tensors are on, or None where that is the CPU.

    Raises:
        BridgeError: they are on different devices, or on one that this JAX cannot use.
    """
    for tensor in tensors:
        if not tensor.is_cpu:
            return _other_device(tensors)
    return None


def _other_device(tensors: Sequence[torch.Tensor]) -> torch.device:
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise BridgeError(f"All tensors must be on one device, but are on {names}: move them with `.to()`.")
    device = devices.pop()
    if device.type != "cuda":
        raise BridgeError(f"Tensors must be on the CPU or on CUDA, but are on {device}, which JAX has no share in.")
    _check_cuda()
    return device


@lru_cache(maxsize=1)
def _check_cuda() -> None:
    try:
        jax.devices("cuda")
    except RuntimeError as error:
        raise BridgeError(
            "Tensors on CUDA need a JAX that knows CUDA, but this one does not: pip install 'torch_clerq[gpu]', "
            "or move them with `.cpu()`."
        ) from error
    if "XLA_PYTHON_CLIENT_PREALLOCATE" not in os.environ:
        logger.warning(
            "JAX takes 75 %% of the GPU's memory at its first operation, which PyTorch then lacks. Before either is "
            'imported: os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false".'
        )


@lru_cache(maxsize=1)
def _cpu_is_default() -> bool:
    return jax.default_backend() == "cpu"


def settings(x64: bool, device: torch.device | None) -> AbstractContextManager[Any]:
    """JAX in 64-bit mode or not, and making arrays that no input places beside the tensors."""
    precision = jax.enable_x64(x64)
    if device is None and _cpu_is_default():
        return precision
    both = ExitStack()
    both.enter_context(precision)
    both.enter_context(
        jax.default_device(
            jax.devices("cpu")[0] if device is None else jax.local_devices(backend="cuda")[device.index or 0]
        )
    )
    return both


class _Process:
    """Whether JAX was at work in the parent of this process, which fork does not survive."""

    forked = False


def _after_fork() -> None:
    _Process.forked = _Process.forked or _jax_is_at_work()


os.register_at_fork(after_in_child=_after_fork)


def check_process() -> None:
    """Raise in a process that was forked from one that used JAX, where any of JAX's work would hang."""
    if _Process.forked:
        raise BridgeError(
            "A process must not be forked from one that has used JAX, whose threads a fork does not carry over, but "
            'this one was: start workers by "spawn" or "forkserver" (DataLoader(multiprocessing_context="spawn")), or '
            "use none."
        )


def dtype_of(tensor: Any) -> str:
    """JAX's name of a tensor's dtype."""
    return str(tensor.dtype).removeprefix("torch.")
