"""Control pulses as modules: waveforms on a time grid whose parameters an optimiser trains.

A waveform is a module without inputs; it returns a tensor of shape (*batch, time), real or complex. Bases (`Fourier`,
`GaussianBasis`, …), `Pulse` and `Neural` make one, wrappers (`Bounded`, `Gated`, `UnitEnergy`, …) take one or more and
are one. `Concat` and `Fields` collect one per light field for a `TorchPropagator`.
"""

from .bases import BSpline, Fourier, GaussianBasis, LinearBasis, PiecewiseConstant, Sampled, Sinc
from .compositions import Concat, Fields, Polar, Quadratures, Sum
from .neural import Neural
from .pulse import Pulse
from .waveform import Waveform
from .wrappers import BandLimited, Bounded, Gated, TimeSymmetric, UnitEnergy, gate

__all__ = [
    "BSpline",
    "BandLimited",
    "Bounded",
    "Concat",
    "Fields",
    "Fourier",
    "Gated",
    "GaussianBasis",
    "LinearBasis",
    "Neural",
    "PiecewiseConstant",
    "Polar",
    "Pulse",
    "Quadratures",
    "Sampled",
    "Sinc",
    "Sum",
    "TimeSymmetric",
    "UnitEnergy",
    "Waveform",
    "gate",
]
