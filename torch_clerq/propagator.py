"""TorchPropagator: light through a medium as a layer of a PyTorch model."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from jax_kernel import parameters, pulses
from jax_kernel.problem import Problem
from jax_kernel.propagate import requested
from jax_kernel.resolution import Resolution, warn_above
from jax_kernel.solution import Solution

from .functional import COMPLEX, Request, Watch, check_resolution, resolve_dtype, to_solution
from .parametrisations import Parametrisation


class TorchPropagator(nn.Module):
    """Propagation of light through a medium of driven, decaying quantum systems, as an ordinary layer.

    The equations and the parameters are those of `jax_kernel.propagate`. A trainable parameter is an `nn.Parameter` in
    physical units under its own name, `pulse_args_<field>_<argument>` for those of pulses; under a parametrisation
    the `nn.Parameter` is `raw_<name>`, and `<name>` reads and sets the physical value.

    Args:
        problem: what is solved; its numbers are the defaults and the start of training.
        trainable: names of parameters, or a dict {name: parametrisation or None}. "pulse_args" stands for all
            arguments of all pulses that have a gradient, "pulse_args.probe.centre" or "pulse_args.0.centre" for one.
        dtype: torch.float32 or torch.float64, by default torch's own; `.float()` and `.double()` change it later.
        resolution: a `Resolution`, or "auto": the first call searches one that meets `tol`, and it is kept.
        tol: error above which a call warns, once; relative to each field's peak; 1e-6 or, in float32, 1e-4.
        scheme: "cross".
        memory: "auto", "fast" or "lean": whether a gradient stores every stage or computes it again.
        solver: a diffrax solver with adaptive steps in place of the fixed grid.
        rtol: relative tolerance of `solver`.
        atol: absolute tolerance of `solver`.

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
        solver: Any = None,
        rtol: float | None = None,
        atol: float | None = None,
    ):
        super().__init__()
        dtype = resolve_dtype(dtype, [])
        self.problem = problem
        self.options = dict(tol=tol, scheme=scheme, memory=memory, solver=solver, rtol=rtol, atol=atol)
        Request(problem, None, {}, self.options | {"dtype": dtype})  # refuses a wrong option now, not at the first call
        self.resolution = None if resolution == "auto" else check_resolution(resolution)
        self.parametrisations: dict[str, Parametrisation | None] = {}
        self.watch = Watch()
        self.register_buffer("time", torch.as_tensor(problem.time, dtype=dtype), persistent=False)
        self.register_buffer("z", torch.as_tensor(problem.z, dtype=dtype), persistent=False)
        if isinstance(trainable, str):
            trainable = (trainable,)
        chosen = trainable if isinstance(trainable, Mapping) else dict.fromkeys(trainable)
        for request, parametrisation in chosen.items():
            for name, value in self._named(request):
                self._add(name, value, parametrisation)

    def _named(self, request: str) -> list[tuple[str, np.ndarray]]:
        """The attribute names and start values that a name in `trainable` stands for."""
        values = parameters.defaults(self.problem)
        if request in values and request != "pulse_args":
            return [(request, values[request])]
        family, *path = str(request).split(".")
        if family != "pulse_args" or len(path) not in (0, 2):
            allowed = ", ".join(name for name in parameters.PARAMETERS if name in values)
            parameters.fail(
                "trainable", f"have names among {allowed}, pulse_args.<field>.<argument>", f"has {request!r}"
            )
        if not path:
            return [
                (f"pulse_args_{k}_{key}", value)
                for k, field in enumerate(self.problem.fields)
                for key, value in values["pulse_args"][k].items()
                if key not in pulses.EDGES.get(field.envelope.name, ())
            ]
        k = self.problem.field_index(int(path[0]) if path[0].isdigit() else path[0])
        name, key = self.problem.fields[k].envelope.name, path[1]
        own = [a for a in values["pulse_args"][k] if a not in pulses.EDGES.get(name, ())]
        if key not in own:
            parameters.fail("trainable", f"name one of {own} for field {path[0]}, the arguments of its `{name}` pulse that have "
                            "a gradient (for edges that have one, take the ramp pulses)", f"has {request!r}")  # fmt: skip
        return [(f"pulse_args_{k}_{key}", values["pulse_args"][k][key])]

    def _add(self, name: str, value: np.ndarray, parametrisation: Parametrisation | None) -> None:
        if name in self.parametrisations:
            parameters.fail("trainable", "name each parameter once", f"names `{name}` twice")
        if parametrisation is not None and not isinstance(parametrisation, Parametrisation):
            parameters.fail("trainable", "have a Parametrisation or None for each name", f"has {parametrisation!r}")
        dtype = self.dtype
        start = torch.as_tensor(value, dtype=COMPLEX[dtype] if np.iscomplexobj(value) else dtype)
        self.parametrisations[name] = parametrisation
        if parametrisation is None:
            self.register_parameter(name, nn.Parameter(start.clone()))
        else:
            self.register_parameter(f"raw_{name}", nn.Parameter(parametrisation.raw(start)))

    @property
    def dtype(self) -> torch.dtype:
        """torch.float32 or torch.float64: the precision it computes in."""
        return self.time.dtype

    def __getattr__(self, name: str) -> Any:
        parametrisation = self.__dict__.get("parametrisations", {}).get(name)
        if parametrisation is not None:
            return parametrisation.physical(super().__getattr__(f"raw_{name}"))
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        known = self.__dict__.get("parametrisations", {})
        if name in known and not isinstance(value, nn.Parameter):
            parametrisation = known[name]
            target = self._parameters[name if parametrisation is None else f"raw_{name}"]
            with torch.no_grad():
                value = torch.as_tensor(value, dtype=target.dtype).expand_as(target)
                target.copy_(value if parametrisation is None else parametrisation.raw(value))
        else:
            super().__setattr__(name, value)

    def physical_parameters(self) -> dict[str, torch.Tensor]:
        """The trainable parameters by name, in physical units."""
        return {name: getattr(self, name) for name in self.parametrisations}

    def forward(self, input_fields: Any = None, **params: Any) -> torch.Tensor:
        """Propagate.

        Args:
            input_fields: sampled fields at the entrance, complex or real, cyclic, shape (*batch, field, time), or a
                dict {label or index: (*batch, time)} that replaces only some of them.
            **params: parameters by name that take the place of the problem's, see `jax_kernel.propagate`.

        Returns:
            Complex Rabi frequencies, cyclic, shape (*batch, field, z, time).
        """
        request, at = self._request(input_fields, params)
        fields = request.run(at, frozenset({"fields"}))["fields"]
        self.watch(request, at)
        return fields

    def solve(self, input_fields: Any = None, *, outputs: tuple[str, ...] = (), **params: Any) -> Solution:
        """Propagate, and return the error estimates and, as asked for, the state of the medium.

        Args:
            input_fields: as in `forward`.
            outputs: names among "density_matrix", "populations" and "coherences".
            **params: as in `forward`.

        Returns:
            A `Solution` of tensors.
        """
        request, at = self._request(input_fields, params)
        out = request.run(at, requested(outputs))
        if not self.watch.warned:
            time_error = out["time_error"].max() if "time_error" in out else 0.0
            self.watch.warned = warn_above(float(out["z_error"].max()), float(time_error), request.tol, at)
        return to_solution(out, request, at)

    def _request(self, input_fields: Any, params: dict[str, Any]) -> tuple[Request, Resolution]:
        """One checked call and its resolution, which is searched now if it has not been yet."""
        options = self.options | {"dtype": resolve_dtype(self.dtype, [])}
        request = Request(self.problem, input_fields, self._merged(params), options)
        if self.resolution is None:
            self.resolution = request.search()
        return request, self.resolution

    def _merged(self, params: dict[str, Any]) -> dict[str, Any]:
        """The trainable parameters and those of this call."""
        own: dict[str, Any] = {}
        pulse_args: list[dict[str, Any]] = [{} for _ in self.problem.fields]
        for name, value in self.physical_parameters().items():
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

    def extra_repr(self) -> str:
        """The problem, what is trained, and how it is resolved."""
        resolution = "auto" if self.resolution is None else self.resolution
        return f"{self.problem!r}, trainable={list(self.parametrisations)}, resolution={resolution}, dtype={self.dtype}"
