"""The equations of `propagate` in plain torch with dense density matrices, for torchdiffeq: a yardstick only."""

import math

import numpy as np
import torch

from jax_kernel import Problem
from jax_kernel.medium import optical_path
from jax_kernel.quadrature import gauss, read_out

PULSES = {
    "gaussian": lambda t, a: a["ampl"] * torch.exp(-4 * math.log(2) * ((t - a["centre"]) / a["fwhm"]) ** 2),
    "sech": lambda t, a: a["n_pi"] / (2 * math.pi * a["width"]) / torch.cosh((t - a["centre"]) / a["width"]),
}


def ramp_onoff(t, a):
    """clerq's ramp: a Gaussian flank of the given fwhm on either side of a flat top."""

    def flank(late):
        return torch.where(late > 0, torch.exp(-4 * math.log(2) * (late / a["fwhm"]) ** 2), torch.ones_like(late))

    return a["ampl"] * (flank(a["on"] - t) + flank(t - a["off"]) - 1)


PULSES["ramp_onoff"] = ramp_onoff


class System:
    """One problem without velocity classes, as an initial value problem of torch."""

    def __init__(self, problem: Problem, z_nodes: int):
        self.problem, levels = problem, problem.num_states
        path = optical_path(problem)
        self.rule = gauss(z_nodes)
        self.running = torch.as_tensor(self.rule.running.T, dtype=torch.complex128)
        self.read_out = torch.as_tensor(np.asarray(read_out(self.rule, path / path[-1])[0]).T, dtype=torch.complex128)
        self.coupling = [2j * g * path[-1] for g in problem.interaction_strengths]
        self.raising = torch.zeros(len(problem.fields), levels, levels, dtype=torch.complex128)
        for k, field in enumerate(problem.fields):
            for (a, b), factor in zip(field.coupled_levels, field.factors, strict=True):
                self.raising[k, a, b] = factor
        self.jumps = []
        for decay in problem.decays:
            for (a, b), factor in zip(decay.channels, decay.factors, strict=True):
                jump = torch.zeros(levels, levels, dtype=torch.complex128)
                jump[a, b] = factor * math.sqrt(2 * math.pi * decay.rate)
                self.jumps.append(jump)
        self.leaving = sum((jump.mH @ jump for jump in self.jumps), torch.zeros_like(self.raising[0]))
        start = torch.diag(torch.as_tensor(problem.initial_state, dtype=torch.complex128))
        self.start = start.expand(z_nodes, levels, levels).contiguous()
        self.time = torch.as_tensor(np.asarray(problem.time))

    def entrance(self, t):
        """Ω of every field at the entrance, shape (*t, field)."""
        pulses = [
            field.rabi_freq * PULSES[field.envelope.name](t, dict(field.envelope.args)) for field in self.problem.fields
        ]
        return torch.stack(pulses, -1).to(torch.complex128)

    def source(self, rho):
        """dΩ/dζ of every field, shape (*time, field, z)."""
        coherence = torch.einsum("kab,...zab->...kz", self.raising, rho)
        return torch.as_tensor(self.coupling)[:, None] * coherence

    def derivative(self, t, rho):
        """dρ/dt at every z-node."""
        rabi = self.entrance(t)[:, None] + self.source(rho) @ self.running
        half = math.pi * torch.einsum("kz,kab->zab", rabi, self.raising)
        generator = -1j * (half + half.mH) - self.leaving / 2
        change = generator @ rho
        change = change + change.mH
        for jump in self.jumps:
            change = change + jump @ rho @ jump.mH
        return change

    def solve(self, method: str, tol: float = 1e-7) -> np.ndarray:
        """Fields, shape (field, z, time)."""
        from torchdiffeq import odeint

        states = odeint(self.derivative, self.start, self.time, method=method, rtol=tol, atol=tol * 1e-2)
        inside = self.source(states) @ self.read_out
        return (self.entrance(self.time)[:, :, None] + inside).permute(1, 2, 0).numpy()
