"""What a propagation returns."""

from typing import Any

import equinox as eqx
import jax
import numpy as np


class Solution(eqx.Module):
    """Light and matter over the medium. Axes (*batch, field, z, time); arrays not asked for are None.

    Attributes:
        fields: complex Rabi frequencies, cyclic, shape (*batch, field, z, time).
        z: positions, shape (z,).
        time: retarded times, shape (time,).
        z_error: estimated error of the fields from the z-nodes, or of a march from its steps in z, relative to each
            field's peak, shape (*batch,).
        time_error: likewise from the time steps; None with `solver=` and in a march, whose error rtol and atol bound.
            Both estimates are inf where the solution did not stay finite. Where states are asked for, they cover those,
            too, but not in a march.
        density_matrix: averaged over the velocity classes, shape (*batch, z, time, level, level).
        populations: its diagonal, shape (*batch, z, time, level).
        coherences: Σ f ρ_ab over the pairs (a, b) of each field, which is its source, shape (*batch, field, z, time).
        final_state: the density matrix of every velocity class at the end, shape (*batch, z, class, level, level).
        resolution: the `Resolution`, or of a march the `MarchResolution`, used.
    """

    fields: Any = None
    z: Any = None
    time: Any = None
    z_error: Any = None
    time_error: Any = None
    density_matrix: Any = None
    populations: Any = None
    coherences: Any = None
    final_state: Any = None
    resolution: Any = eqx.field(static=True, default=None)

    def numpy(self) -> "Solution":
        """The same solution with NumPy arrays in place of tensors or JAX arrays.

        Returns:
            Views, which share the memory of what lies on the CPU (of a conjugated or negated view of a tensor a copy),
            without gradients; arrays of JAX are read-only.

        Example:
            >>> import jax.numpy as jnp
            >>> solution = Solution(fields=jnp.ones((1, 2, 3), complex), z=jnp.arange(2.0), time=jnp.arange(3.0))
            >>> type(solution.numpy().fields).__name__
            'ndarray'
        """
        return jax.tree.map(_to_numpy, self)

    def __repr__(self) -> str:
        def shape(x):
            return f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}"

        named = {name: getattr(self, name) for name in ("density_matrix", "populations", "coherences", "final_state")}
        states = ", ".join(f"{name} {shape(x)}" for name, x in named.items() if x is not None)

        def worst(x):
            return "–" if x is None else f"{float(x.max()):.1e}"

        try:
            errors = f"z {worst(self.z_error)}, time {worst(self.time_error)} of the peak (estimated)"
        except Exception:  # a tracer has no value yet
            errors = "known when the computation has run"
        return (
            f"Solution\n  fields      {shape(self.fields)}\n  states      {states or 'not asked for'}\n"
            f"  resolution  {self.resolution}\n  error       {errors}"
        )


def _to_numpy(x: Any) -> np.ndarray:
    return x.numpy(force=True) if hasattr(x, "resolve_conj") else np.asarray(x)  # of a tensor, or of JAX
