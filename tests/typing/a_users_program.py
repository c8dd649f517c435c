"""What a user writes, for the type checker: `.ci/run` checks this file by its strictest rules; nothing runs it."""

from typing import Any

import jax
import numpy as np
import torch
from torch import nn

import jax_kernel
import torch_clerq
from torch_clerq import Fit, Inference, Problem, Resolution, Solution, TorchPropagator, controls, objectives

CONTENT: dict[str, Any] = {
    "system": {"num_states": 2, "fields": [{"label": "probe", "coupled_levels": [[0, 1]]}]},
    "interaction_strengths": [1.0],
}


def solved(problem: Problem) -> np.ndarray:
    solution: Solution = TorchPropagator(problem, dtype=torch.float64, resolution=Resolution(12, 1)).solve()
    return np.asarray(solution.numpy().fields)


def stateless(problem: Problem, strengths: torch.Tensor) -> torch.Tensor:
    fields: torch.Tensor = torch_clerq.propagate(problem, interaction_strengths=strengths)
    return fields.abs()


def in_jax(problem: Problem) -> jax.Array:
    def loss(strengths: jax.Array) -> jax.Array:
        fields: jax.Array = jax_kernel.propagate(
            problem, {"interaction_strengths": strengths}, resolution=Resolution(12, 1)
        ).fields
        return abs(fields).sum()

    gradient: jax.Array = jax.grad(loss)(jax.numpy.ones(1))
    return gradient


def trained(problem: Problem) -> float:
    layer = TorchPropagator(problem, trainable={"rabi_freq": torch_clerq.Positive(), "pulse_args": None})
    pulse = controls.Pulse(layer.time, "gaussian", {"ampl": 1.0, "centre": 0.5, "fwhm": 0.1})
    module: nn.Module = torch_clerq.Driven(controls.Fields({"probe": pulse}), layer)

    def objective(model: nn.Module) -> torch.Tensor:
        fields: torch.Tensor = model()
        return objectives.transmission(fields, layer.time)

    fit: Fit = torch_clerq.fit(module, objective, steps=10)
    return float(fit.value)


def inferred(layer: TorchPropagator, data: torch.Tensor) -> tuple[float, float]:
    def model(module: nn.Module) -> torch.Tensor:
        fields: torch.Tensor = module()
        return fields[0, -1].abs() - data

    result: Inference = torch_clerq.infer(layer, model)
    return result.interval("interaction_strengths")


def from_and_to_clerq(path: str) -> Problem:
    problem: Problem = Problem.from_json(path)
    return Problem.from_clerq(problem.to_clerq())


def why_not(content: dict[str, Any]) -> str:
    try:
        Problem.from_dict(content)
    except torch_clerq.ProblemError as error:
        return str(error)
    return ""
