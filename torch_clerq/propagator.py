"""TorchPropagator: light through a medium as a layer of a PyTorch model."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from jax_kernel import parameters, pulses
from jax_kernel.doppler import level_doppler_slopes
from jax_kernel.prepare import upper_levels
from jax_kernel.problem import Problem
from jax_kernel.propagate import STATE_OUTPUTS, requested
from jax_kernel.resolution import MarchResolution, Resolution
from jax_kernel.sharding import Sharding
from jax_kernel.solution import Solution

from . import bridge
from .functional import (
    Request,
    Watch,
    check_device,
    resolve_dtype,
    to_solution,
    worst,
)
from .parametrisations import Parametrisation
from .parametrised import Parametrised

STATES = frozenset(STATE_OUTPUTS)


class TorchPropagator(bridge.InGraph, Parametrised):
    """Propagation of light through a medium of driven, decaying quantum systems, as an ordinary layer.

    The equations and the parameters are those of `jax_kernel.propagate`. A trainable parameter is an `nn.Parameter` in
    physical units under its own name, `pulse_args_<field>_<argument>` for those of pulses; under a parametrisation
    the `nn.Parameter` is `raw_<name>`, and `<name>` reads and sets the physical value.

    Args:
        problem: what is solved; its numbers are the defaults and the start of training.
        trainable: names of parameters, or a dict {name: parametrisation or None}. "pulse_args" stands for all
            arguments of all pulses that have a gradient, "pulse_args.probe.centre" or "pulse_args.0.centre" for one;
            "level_detunings" and "level_doppler_slopes" start from clerq's rule where the problem does not state them.
        dtype: torch.float32 or torch.float64, by default torch's own; `.float()` and `.double()` change it later. What
            comes in float64 is computed in float64 by any module.
        resolution: a `Resolution`, or "auto": the first call searches one that meets `tol`, and it is kept.
        tol: error above which a call warns, once; relative to each field's peak; 1e-6 or, in float32, 1e-4; in a march,
            1e-2.
        scheme: "cross", or "march" for that of clerq, where the problem's `z_steps_inner` stands for `resolution`.
        memory: "auto", "fast" or "lean": whether a gradient stores every stage or computes it again.
        solver: "auto", "runge-kutta", "exponential" or a diffrax solver, see `jax_kernel.propagate`.
        rtol: relative tolerance of `solver`.
        atol: absolute tolerance of `solver`.
        max_steps: most steps of `solver`.
        step: of a march only, as all that follow: "ab" or "euler".
        strategy: "s2", "s3" or "s4": what its gradient stores.
        checkpoints: states of a slice that the gradient keeps, for strategy "s4".
        n_steps: constant steps of each slice in place of adaptive ones.
        sharding: a `Sharding` where several JAX devices are to share the batch and the velocity classes.

    Raises:
        ProblemError: an argument breaks a rule.
        NotYetError: the request is meaningful but not there yet.

    Example:
        >>> import torch
        >>> from torch_clerq import Problem, Resolution, TorchPropagator
        >>> problem = Problem.from_dict({
        ...     "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}], "fields": [
        ...         {"coupled_levels": [[0, 1]], "rabi_freq": 1e-3, "rabi_freq_t_func": "gaussian",
        ...          "rabi_freq_t_args": {"ampl": 1.0, "centre": 1.0, "fwhm": 0.5}}]},
        ...     "t_max": 3.0, "interaction_strengths": [1.0]})
        >>> layer = TorchPropagator(problem, trainable=("interaction_strengths",), resolution=Resolution(8, 2))
        >>> fields = layer()
        >>> fields.shape
        torch.Size([1, 11, 101])
        >>> fields[0, -1].abs().square().sum().backward()
        >>> bool(layer.interaction_strengths.grad < 0)
        True
    """

    options: dict[str, Any]
    watch: Watch
    search_on: bool

    def __init__(
        self,
        problem: Problem,
        *,
        trainable: Iterable[str] | Mapping[str, Parametrisation | None] = (),
        dtype: torch.dtype | None = None,
        resolution: Resolution | str = "auto",
        tol: float | None = None,
        scheme: str = "cross",
        memory: str = "auto",
        solver: Any = "auto",
        rtol: float | None = None,
        atol: float | None = None,
        max_steps: int | None = None,
        step: str | None = None,
        strategy: str | None = None,
        checkpoints: int | None = None,
        n_steps: int | None = None,
        sharding: Sharding | None = None,
    ):
        super().__init__()
        dtype = resolve_dtype(dtype, [])
        self.problem = problem
        options: dict[str, Any] = dict(tol=tol, scheme=scheme, memory=memory, rtol=rtol, atol=atol, max_steps=max_steps)
        options |= dict(step=step, strategy=strategy, checkpoints=checkpoints, n_steps=n_steps, sharding=sharding)
        first = Request(problem, None, {}, dtype=dtype, solver=solver, **options)  # refuses a wrong option now
        self.options = options | {"solver": solver if isinstance(solver, str) else first.options.solver}
        auto = isinstance(resolution, str) and resolution == "auto"
        self.resolution = None if auto else first.resolve(resolution)
        self.resolved: frozenset[str] | None = frozenset() if auto and scheme == "cross" else None
        self.watch, self.search_on = Watch(), False
        self.register_buffer("time", torch.as_tensor(problem.time, dtype=dtype), persistent=False)
        self.register_buffer("z", torch.as_tensor(problem.z, dtype=dtype), persistent=False)
        if isinstance(trainable, str):
            trainable = (trainable,)
        if not isinstance(trainable, Iterable):
            parameters.fail("trainable", "be names, or a dict of parametrisations by name", f"is {trainable!r}")
        chosen = trainable if isinstance(trainable, Mapping) else dict.fromkeys(trainable)
        parameters.check_alternatives(problem, chosen)
        for asked, parametrisation in chosen.items():
            for name, value in self._named(asked):
                self._add(name, value, parametrisation, dtype)

    def _named(self, request: str) -> list[tuple[str, np.ndarray]]:
        """The attribute names and start values that a name in `trainable` stands for."""
        values = parameters.defaults(self.problem)
        if request == "level_detunings":
            values.setdefault(request, values["detunings"] @ upper_levels(self.problem))
        elif request == "level_doppler_slopes":
            values.setdefault(request, level_doppler_slopes(self.problem))
        elif request == "initial_density_matrix":
            rule = "leave out `initial_density_matrix`, which a problem has no start value of: pass it to the call"
            parameters.fail("trainable", rule, "names it")
        if request in values and request != "pulse_args":
            return [(request, values[request])]
        family, _, path = str(request).partition(".")
        label, _, key = path.rpartition(".")
        if request != "pulse_args" and not (family == "pulse_args" and label):
            known = [name for name in parameters.PARAMETERS if name in values]
            parameters.fail(
                "trainable",
                f"have names among {', '.join(known)}, pulse_args.<field>.<argument>",
                f"has {request!r}{parameters.suggestion(request, known)}",
            )
        allowed_keys = [
            [key for key in args if key not in pulses.EDGES.get(field.envelope.name, ())]
            for field, args in zip(self.problem.fields, values["pulse_args"], strict=True)
        ]
        if not path:
            chosen = [(k, key) for k, keys in enumerate(allowed_keys) for key in keys]
        else:
            k = self.problem.field_index(label)
            if key not in allowed_keys[k]:
                parameters.fail(
                    "trainable",
                    f"name one of {allowed_keys[k]} for field {label}, the arguments of its "
                    f"`{self.problem.fields[k].envelope.name}` pulse that have a gradient (for edges that have one, "
                    "take the ramp pulses)",
                    f"has {request!r}",
                )
            chosen = [(k, key)]
        return [(f"pulse_args_{k}_{key}", values["pulse_args"][k][key]) for k, key in chosen]

    @property
    def dtype(self) -> torch.dtype:
        """torch.float32 or torch.float64: the precision it computes in."""
        return self.time.dtype

    def forward(self, input_fields: Any = None, **params: Any) -> torch.Tensor:
        """Propagate.

        Args:
            input_fields: sampled fields at the entrance, complex or real, cyclic, shape (*batch, field, time), or a
                dict {label or index: (*batch, time)} that replaces only some of them.
            **params: parameters by name that take the place of the problem's, see `jax_kernel.propagate`.

        Returns:
            Complex Rabi frequencies, cyclic, shape (*batch, field, z, time).
        """
        own = self.physical_parameters()
        if torch.compiler.is_compiling() and self.resolution is not None:
            return bridge.in_graph(self, own, input_fields, params)
        return self._eagerly(own, input_fields, params)

    @bridge.unseen
    def traced(self, own: dict[str, torch.Tensor], input_fields: Any, params: dict[str, Any]) -> torch.Tensor:
        request, at = self._request(own, input_fields, params)
        fields = request.run(at, frozenset({"fields"}))["fields"]
        self.watch(request, at, fields)
        return fields

    _eagerly = bridge.eager(traced)

    def search_again(self) -> None:
        """Let the next call search its resolution again, for values that have outgrown what was found.

        The search goes on from the present resolution, so that it never becomes coarser. A resolution that was given
        stays.
        """
        self.search_on = self.resolved is not None

    @bridge.eager
    def solve(self, input_fields: Any = None, *, outputs: tuple[str, ...] = (), **params: Any) -> Solution:
        """Propagate, and return the error estimates and, as asked for, the state of the medium.

        Args:
            input_fields: as in `forward`.
            outputs: names among "density_matrix", "populations", "coherences" and "final_state". A resolution that was
                searched for the fields is searched on for these.
            **params: as in `forward`.

        Returns:
            A `Solution` of tensors.
        """
        wanted = requested(outputs)
        request, at = self._request(self.physical_parameters(), input_fields, params, wanted & STATES)
        out = request.run(at, wanted)
        request.warn_window(out["fields"])
        self.watch.warn(*worst(out), request.tol, at)
        return to_solution(out, request, at)

    def _request(
        self,
        own: dict[str, torch.Tensor],
        input_fields: Any,
        params: dict[str, Any],
        states: frozenset[str] = frozenset(),
    ) -> tuple[Request, Resolution | MarchResolution]:
        """One checked call and its resolution, searched now if it has not been yet for the fields and these states."""
        check_device("The module", self.time.device)
        params = self._merged(own, params)
        if not params and input_fields is None and not self.time.is_cpu:  # a tensor that says where
            strengths = torch.as_tensor(self.problem.interaction_strengths, dtype=self.dtype, device=self.time.device)
            params = {"interaction_strengths": strengths}
        request = Request(
            self.problem, input_fields, params, dtype=None, least=self.dtype, at=self.resolution, **self.options
        )
        searches = self.resolved is not None and (self.search_on or not states <= self.resolved)
        if self.resolution is None or searches:
            self.search_on = False
            self.resolved = states | (self.resolved or frozenset())
            at = self.resolution if isinstance(self.resolution, Resolution) else None
            self.resolution = request.resolve("auto", self.resolved, at, join=True)
        return request, self.resolution

    def _merged(self, trained: Mapping[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        """The trainable parameters and those of this call."""
        own: dict[str, Any] = {}
        pulse_args: list[dict[str, Any]] = [{} for _ in self.problem.fields]
        for name, value in trained.items():
            if name.startswith("pulse_args_"):
                k, key = name.removeprefix("pulse_args_").split("_", 1)
                pulse_args[int(k)][key] = value
            else:
                own[name] = value
        for name in params:
            if name in own or (name == "pulse_args" and any(pulse_args)):
                parameters.fail(
                    name, "be left out of the call, where it is a trainable parameter of the module", "was given"
                )
        if any(pulse_args):
            own["pulse_args"] = pulse_args
        return own | params

    def to_problem(self) -> Problem:
        """The problem with the present values of the trainable parameters, to be saved, solved or given to clerq.

        Raises:
            ProblemError: a problem has no place for one, such as samples of the density.

        Example:
            >>> from torch_clerq import Problem, TorchPropagator
            >>> problem = Problem.from_dict({"system": {"num_states": 2, "fields": [{"coupled_levels": [[0, 1]]}]},
            ...                              "interaction_strengths": [1.0]})
            >>> layer = TorchPropagator(problem, trainable=("interaction_strengths",))
            >>> layer.interaction_strengths = 2.5
            >>> layer.to_problem().interaction_strengths
            (2.5,)
        """
        own = {name: value.detach().cpu().numpy() for name, value in self.physical_parameters().items()}
        return self.problem.updated(**self._merged(own, {}))

    def __prepare_scriptable__(self) -> None:
        bridge.refuse_script()

    def extra_repr(self) -> str:
        """The problem, what is trained, and how it is resolved."""
        resolution = "auto" if self.resolution is None else self.resolution
        return f"{self.problem!r}, trainable={list(self.parametrisations)}, resolution={resolution}, dtype={self.dtype}"


class Driven(nn.Module):
    """A layer together with the control pulses that drive it: a module without inputs, which `fit` can train.

    Args:
        controls: a module without inputs that returns `input_fields`, such as `torch_clerq.controls.Fields`.
        propagator: the layer.

    Example:
        >>> import torch
        >>> from torch_clerq import Driven, Problem, Resolution, TorchPropagator
        >>> from torch_clerq.controls import Fields, GaussianBasis
        >>> problem = Problem.from_dict({"system": {"num_states": 2, "fields": [{"coupled_levels": [[0, 1]]}]},
        ...                              "interaction_strengths": [1.0]})
        >>> layer = TorchPropagator(problem, resolution=Resolution(6, 1))
        >>> driven = Driven(Fields({0: GaussianBasis(layer.time, 3, (0.3, 0.7))}), layer)
        >>> driven().shape, [name for name, _ in driven.named_parameters()]
        (torch.Size([1, 11, 101]), ['controls.waveforms.0.coefficients'])
    """

    controls: nn.Module
    propagator: TorchPropagator

    def __init__(self, controls: nn.Module, propagator: TorchPropagator):
        super().__init__()
        if not isinstance(controls, nn.Module) or isinstance(controls, TorchPropagator):
            parameters.fail("controls", "be a module that returns pulses, such as `Fields`", f"is {controls!r}")
        if not isinstance(propagator, TorchPropagator):
            parameters.fail("propagator", "be a TorchPropagator", f"is {propagator!r}")
        self.controls, self.propagator = controls, propagator

    @property
    def time(self) -> torch.Tensor:
        """The time grid of the layer, shape (time,)."""
        return self.propagator.time

    def forward(self, **params: Any) -> torch.Tensor:
        """The fields of the layer, cyclic, shape (*batch, field, z, time); `params` as in `TorchPropagator.forward`."""
        return self.propagator(self.controls(), **params)
