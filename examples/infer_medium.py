"""What is in the cell? Infer a hot vapour in a magnetic field from noisy measurements: `python
examples/infer_medium.py`.

Weak pulses went through a cell of unknown density, decay rate, detuning, temperature and magnetic field. Measured are
the transmission spectrum of a short pulse and the power over time of two longer, detuned ones, each with noise of 1 %.
All three pulses are one batch, and all parameters are inferred from all data at once. The "measurement" is made up here
from known values, so that the answer can be held against them.
"""

import argparse
import math

import numpy as np
import torch

from torch_clerq import Positive, Problem, Resolution, TorchPropagator, infer, spectra

TRUTH = {"interaction_strengths": [1.2], "decay_rates": [1.0], "detunings": [0.3], "b_field": 1.0, "thermal_width": 0.5}
NOISE = 0.01


def problem(classes: int) -> Problem:
    """A line J = 0 to J = 1, driven on both circular components; its numbers are our first guess."""
    return Problem.from_dict({
        "system": {
            "num_states": 3,
            "fields": [{"coupled_levels": [[0, 1], [0, 2]], "factors": [0.5**0.5, 0.5**0.5], "detuning": 0.0}],
            "decays": [{"rate": 1.5, "channels": [[0, 1], [0, 2]]}],
            "b_field": {"magnitude": 0.7, "units": "natural", "g_F": [0.0, 1.0, 1.0], "m_F": [0.0, -1.0, 1.0]},
        },
        "interaction_strengths": [2.0],
        "velocity_classes": {"quadrature": "gauss-hermite", "nodes": classes, "thermal_width": 0.4,
                             "thermal_delta_echo_tolerance": 1e-3},
        "t_min": -1.0, "t_max": 3.4, "t_steps": 55, "z_steps": 1,
    })  # fmt: skip


def pulses(time: torch.Tensor) -> torch.Tensor:
    """A short pulse and two detuned ones, of peak 1, shape (pulse, field, time)."""
    widths, offsets = torch.tensor([[0.15, 0.4, 0.4], [0.0, 0.8, -0.8]], dtype=time.dtype)[..., None]
    return torch.exp(-((time / widths) ** 2) + 2j * math.pi * offsets * time)[:, None]


def signals(layer: TorchPropagator, **params) -> tuple[torch.Tensor, torch.Tensor]:
    """What the detectors see: the transmission spectrum, shape (frequency,), and the power, shape (pulse, time)."""
    entering = pulses(layer.time)
    light = 1e3 * layer(1e-3 * entering, **params)[:, 0]
    transmission = torch.exp(-2 * spectra.absorption(light[0], floor=0.1))
    return transmission[spectra.in_band(entering[0], floor=0.1)], light[1:, -1].abs().square()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="coarser, and unverified: to see that it runs")
    smoke = parser.parse_args().smoke
    options = {"resolution": Resolution(8, 1), "tol": 1e-2} if smoke else {"resolution": "auto", "tol": 1e-4}
    options["dtype"] = torch.float64
    medium = problem(classes=12 if smoke else 18)

    with torch.no_grad():
        clean = signals(TorchPropagator(medium, **options), **TRUTH)
    noise = np.random.default_rng(1)
    measured = [signal + NOISE * torch.as_tensor(noise.normal(size=signal.shape)) for signal in clean]

    unknown = {name: None if name == "detunings" else Positive() for name in TRUTH}
    layer = TorchPropagator(medium, trainable=unknown, **options)

    def residuals(layer):
        return [model - data for model, data in zip(signals(layer), measured, strict=True)]

    found = infer(layer, residuals, sigma=NOISE, verify=not smoke)
    print(found)
    for name, truth in TRUTH.items():
        low, high = found.interval(name)
        print(f"{name}: {np.ravel(truth)[0]} is {'in' if low <= np.ravel(truth)[0] <= high else 'not in'} its interval")
    depth = found.of(lambda layer: 4 * layer.interaction_strengths / layer.decay_rates)
    print(f"optical depth on resonance, at rest and without the field: {depth[0]:.3f} ± {depth[1]:.3f}")


if __name__ == "__main__":
    main()
