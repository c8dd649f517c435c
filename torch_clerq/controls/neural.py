"""A waveform that a neural network draws."""

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from jax_kernel.parameters import fail

from ..checks import check_count, check_time, check_window
from .waveform import Waveform, least_squares


class Neural(Waveform):
    """A multilayer perceptron of time: Fourier features, hidden layers with tanh, a linear output.

    The features are cos(πkτ) and sin(πkτ) for k = 1 … frequencies, τ = (t − first)/(last − first), without which a
    network learns fast variation slowly: M. Tancik et al., NeurIPS 33, 7537 (2020). The network is smooth in time, so
    that it may be read on any grid.

    Args:
        time: times at which the waveform is returned, shape (time,); they set dtype and device.
        window: where τ is 0 and 1, in the unit of time.
        hidden: widths of the hidden layers.
        frequencies: number of Fourier frequencies; the highest is frequencies/2 per window.
        batch: shape of a batch of networks, each with its own parameters.
        complex: whether the waveform is complex, from two outputs.
        seed: of the start, by NumPy, so that it is the same on every processor: uniform weights of variance
            1/(inputs of the layer), biases 0.

    Raises:
        ProblemError: an argument breaks a rule.

    Example:
        >>> import torch
        >>> time = torch.linspace(0.0, 10.0, 101)
        >>> waveform = Neural(time, (0.0, 10.0), hidden=(8,), frequencies=4)
        >>> waveform().shape, sum(parameter.numel() for parameter in waveform.parameters())
        (torch.Size([101]), 81)
    """

    window: tuple[float, float]
    frequencies: int
    hidden: tuple[int, ...]
    weights: nn.ParameterList
    biases: nn.ParameterList

    features: torch.Tensor

    def __init__(
        self,
        time: torch.Tensor,
        window: tuple[float, float],
        *,
        hidden: tuple[int, ...] = (32, 32),
        frequencies: int = 8,
        batch: tuple[int, ...] = (),
        complex: bool = False,
        seed: int = 0,
    ):
        super().__init__()
        check_time(time)
        first, last = check_window(window)
        self.window, self.frequencies = (first, last), check_count("frequencies", frequencies)
        check_count("seed", seed, 0)
        if not isinstance(hidden, Iterable) or not isinstance(batch, Iterable):
            fail("hidden", "be widths, and `batch` a shape", f"they are {hidden!r} and {batch!r}")
        self.hidden = tuple(check_count("hidden", width) for width in hidden)
        batch = tuple(check_count("batch", size, 0) for size in batch)
        self.complex = complex
        phase = math.pi * (time.detach().double() - first) / (last - first)
        angles = phase[:, None] * torch.arange(1, frequencies + 1, dtype=torch.float64, device=time.device)
        self.register_buffer("features", torch.cat([angles.cos(), angles.sin()], -1).to(time), persistent=False)
        widths = (2 * frequencies, *self.hidden, 2 if complex else 1)
        generator = np.random.default_rng(seed)
        weights = [
            generator.uniform(-1, 1, (*batch, outputs, inputs)) * math.sqrt(3 / inputs)
            for inputs, outputs in pairwise(widths)
        ]
        self.weights = nn.ParameterList([nn.Parameter(torch.from_numpy(weight).to(time)) for weight in weights])
        self.biases = nn.ParameterList([nn.Parameter(time.new_zeros(weight.shape[:-1])) for weight in weights])

    def _hidden(self) -> torch.Tensor:
        """The activations of the last hidden layer, shape (*batch, time, width)."""
        x = self.features
        for k in range(len(self.hidden)):  # a slice would be a list of new parameters
            x = torch.tanh(x @ self.weights[k].mT + self.biases[k][..., None, :])
        return x

    def forward(self) -> torch.Tensor:
        """The waveform, shape (*batch, time)."""
        out = self._hidden() @ self.weights[-1].mT + self.biases[-1][..., None, :]
        return torch.complex(out[..., 0], out[..., 1]) if self.complex else out[..., 0]

    def _start(self, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
        if not (self.weights[-1].requires_grad and self.biases[-1].requires_grad):
            return False
        last = self._hidden()
        functions = torch.cat([last, torch.ones_like(last[..., :1])], -1).mT
        parts = (target.real, target.imag) if self.complex else (target,)
        solved = torch.stack([least_squares(functions, part, weight) for part in parts], -2)
        with torch.no_grad():
            self.weights[-1].copy_(solved[..., :-1])
            self.biases[-1].copy_(solved[..., -1])
        return False

    def extra_repr(self) -> str:
        window = f"({self.window[0]:g}, {self.window[1]:g})"
        return f"window={window}, hidden={self.hidden}, frequencies={self.frequencies}, complex={self.complex}"
