"""Store a pulse in moving atoms, with velocities stated level by level: `python examples/doppler_memory.py`.

Probe and control run in the same direction and have nearly the same wavelength. An atom that moves then shifts the
excited level with respect to both, and the spin level not at all: `level_doppler_slopes` (0, 1, 0). The spin wave,
which holds the pulse while the control is off, does not dephase. The second run states a two-photon slope of 1 instead,
as in a ladder: the spin wave dephases within one inverse thermal width. The optimiser finds pulses that seem to bring
it back, because eleven classes rephase where a gas does not; a `WindowWarning` says so, and the finer run shows it.
"""

import argparse
import math

import torch
from scipy.special import erfcx

from torch_clerq import Driven, Problem, Resolution, TorchPropagator, fit
from torch_clerq.controls import Bounded, Fields, Gated, GaussianBasis, UnitEnergy, gate
from torch_clerq.objectives import log_retrieval_efficiency

WIDTH, DEPTH = 0.5, 25.0  # 1/e half-width of the Doppler shifts, and optical depth, in units of the natural linewidth
STRENGTH = DEPTH / (2 * math.sqrt(math.pi) / WIDTH * erfcx(0.5 / WIDTH))


def memory(slopes: list[float], t_steps: int = 280, classes: int = 11) -> TorchPropagator:
    """The medium as a layer."""
    problem = Problem.from_dict({
        "system": {
            "num_states": 3,
            "decays": [{"rate": 1.0, "channels": [[0, 1], [2, 1]], "factors": [math.sqrt(0.5)] * 2}],
            "fields": [{"label": "probe", "coupled_levels": [[0, 1]]},
                       {"label": "control", "coupled_levels": [[2, 1]]}],
            "level_doppler_slopes": slopes,
        },
        "velocity_classes": {"thermal_width": WIDTH, "thermal_delta_min": -3 * WIDTH, "thermal_delta_max": 3 * WIDTH,
                             "thermal_delta_steps": classes - 1},
        "interaction_strengths": [STRENGTH] * 2,
        "t_min": 0.0, "t_max": 14.0, "t_steps": t_steps, "z_steps": 1,
    })  # fmt: skip
    return TorchPropagator(problem, dtype=torch.float64, resolution=Resolution(16, 2), tol=1e-3)


def pulses(time: torch.Tensor) -> Fields:
    """A weak probe that ends at 6, and a control from 1 on that is off from 6 to 7.5."""
    start = torch.full((16,), 0.5, dtype=torch.float64)
    probe = GaussianBasis(time, 16, (1.5, 6.0), 0.4, coefficients=start)
    control = GaussianBasis(time, 28, (1.0, 13.0), 0.5)
    return Fields({
        "probe": UnitEnergy(Gated(probe, gate(time, off=6.0, rise=0.3)), time, 1e-6),
        "control": Gated(Bounded(control, 0.0, 3.0), gate(time, on=(1.0, 7.5), off=(6.0, 13.0), rise=0.3)),
    })  # fmt: skip


def loss(model: Driven) -> torch.Tensor:
    """Minus the logarithm of what leaves after 6.95, per energy of the probe."""
    return -log_retrieval_efficiency(model(), model.propagator.time, after=6.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few steps, to see that it runs")
    steps = 4 if parser.parse_args().smoke else 40
    for slopes in ([0.0, 1.0, 0.0], [0.0, 1.0, 1.0]):
        layer = memory(slopes)
        model = Driven(pulses(layer.time), layer)
        found = fit(model, loss, steps=steps, optimizer="lbfgs", verify=False, progress=False)
        assert found.value < found.history.values[0], "the training does not descend"

        finer = memory(slopes, t_steps=560, classes=31)  # what is called a result is computed again on finer grids
        finer.resolution = layer.resolution.doubled()
        again = Driven(pulses(finer.time), finer)
        again.load_state_dict(model.state_dict())
        with torch.no_grad():
            verified = loss(again).neg().exp()
        start, best = math.exp(-found.history.values[0]), math.exp(-found.value)
        print(f"two-photon slope {slopes[2]:g}: retrieved {start:.4f} at the start, {best:.4f} after {steps} steps, "
              f"{verified:.4f} with everything finer")  # fmt: skip


if __name__ == "__main__":
    main()
