"""Objectives of pulse design and of training, in logarithmic form where the quantity may be tiny."""

import torch

from .analysis import energy, integration_weights


def log_energy(field: torch.Tensor, time: torch.Tensor, *, after: float | None = None) -> torch.Tensor:
    """The natural logarithm of `energy`; its value and gradient are right where |Ω|² itself would underflow.

    Args:
        field: complex or real envelope, cyclic, shape (*batch, time).
        time: its time grid, shape (time,).
        after: start of the integral, by default that of the grid.

    Returns:
        The logarithm, shape (*batch,); of a dark field that of the smallest normal number, with gradient 0.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 1.0, 11)
        >>> round(log_energy(torch.full((11,), 1e-30), time).item(), 2)  # in float32, where (1e-30)² is 0
        -138.16
    """
    tiny = torch.finfo(field.dtype).tiny
    late = field if after is None else field * (integration_weights(time, after) > 0)
    scale = late.detach().abs().amax(-1, keepdim=True).clamp(min=tiny)
    return energy(field / scale, time, after=after).clamp(min=tiny).log() + 2 * scale[..., 0].log()


def retrieval_efficiency(
    fields: torch.Tensor, time: torch.Tensor, *, field: int = 0, after: float | None = None, backward: bool = False
) -> torch.Tensor:
    """Energy that leaves the medium from a time on, per energy that entered it at any time.

    Args:
        fields: what a `TorchPropagator` returns, cyclic, shape (*batch, field, z, time).
        time: its time grid, shape (time,).
        field: index of the stored field.
        after: when retrieval begins; None counts the whole output, which makes it the transmission.
        backward: whether the field enters at the last position, as a counter-propagating one does.

    Returns:
        The efficiency, shape (*batch,).

    Example:
        >>> import torch
        >>> fields = torch.ones(1, 2, 5)  # one field, entrance and exit, five times
        >>> retrieval_efficiency(fields, torch.linspace(0.0, 4.0, 5), after=3.0).item()
        0.25
    """
    return log_retrieval_efficiency(fields, time, field=field, after=after, backward=backward).exp()


def log_retrieval_efficiency(
    fields: torch.Tensor, time: torch.Tensor, *, field: int = 0, after: float | None = None, backward: bool = False
) -> torch.Tensor:
    """The natural logarithm of `retrieval_efficiency`, whose gradients are of order one however little is retrieved.

    A random start may retrieve 1e-9; the gradient of the efficiency itself is then as small.

    Args:
        fields: cyclic, shape (*batch, field, z, time).
        time: its time grid, shape (time,).
        field: index of the stored field.
        after: when retrieval begins.
        backward: whether the field enters at the last position.

    Returns:
        The logarithm, shape (*batch,).

    Example:
        >>> import torch
        >>> fields = torch.stack([torch.ones(5), torch.full((5,), 1e-20)])[None]
        >>> round(log_retrieval_efficiency(fields, torch.linspace(0.0, 4.0, 5), after=3.0).item(), 2)
        -93.49
    """
    light = fields[..., field, :, :]
    entrance, end = (-1, 0) if backward else (0, -1)
    return log_energy(light[..., end, :], time, after=after) - log_energy(light[..., entrance, :], time)
