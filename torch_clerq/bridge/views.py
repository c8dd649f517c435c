"""What can be known of a tensor: its values under the wrappers of transforms, and whether it is differentiated."""

import numpy as np
import torch
from torch._C import _functorch
from torch.autograd import forward_ad

PLAIN = (torch.Tensor, torch.nn.Parameter)
HALF = {torch.float16, torch.bfloat16}


def has_values(tensor: torch.Tensor) -> bool:
    """Whether there are numbers under the wrappers of torch.func, and not only a shape, as where torch traces."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    if type(tensor) not in PLAIN or tensor.is_meta or torch._C._len_torch_dispatch_stack():
        return False
    return not _functorch.is_legacy_batchedtensor(tensor)


def value(tensor: torch.Tensor) -> np.ndarray | None:
    """The numbers of a tensor on the host, the batch axes of transforms in front; None where there are none."""
    if not has_values(tensor):
        return None
    if not _functorch.is_functorch_wrapped_tensor(tensor):
        with torch._C._DisableFuncTorch():  # under which a transform would wrap it now
            return tensor.numpy(force=True)
    batched = []
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if _functorch.is_batchedtensor(tensor):
            batched.append(_functorch.maybe_get_bdim(tensor))
        tensor = _functorch.get_unwrapped(tensor)
    axes = list(range(tensor.ndim))
    front = [axes.pop(axis) for axis in reversed(batched)]
    with torch._C._DisableFuncTorch():
        return tensor.permute(front + axes).numpy(force=True)


def is_differentiated(tensor: torch.Tensor) -> bool:
    """Whether a derivative with respect to the tensor may be asked for."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if _functorch.is_gradtrackingtensor(tensor):
            return True
        tensor = _functorch.get_unwrapped(tensor)
    if tensor.requires_grad and torch.is_grad_enabled():
        return True
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def autocast(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, in float32 where autocast has made it shorter, which it means for operators that it knows."""
    if tensor.dtype in HALF and torch.is_autocast_enabled(tensor.device.type):
        return tensor.float()
    return tensor
