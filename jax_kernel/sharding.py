"""Several devices for one run: they share the batch and the velocity classes.

The program stays one and the same; XLA's partitioner divides it by the constraints that stand here, and puts a sum over
all devices wherever the classes are averaged, once a stage.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from .errors import ProblemError
from .reading import is_integer

BATCH, CLASSES = "batch", "classes"


@dataclass(frozen=True)
class Sharding:
    """How many devices share a run; `batch · classes` are used, the first ones of JAX's default backend.

    Sizes that do not divide are filled up with copies, which count for nothing. A run without a batch is done by all
    devices along `batch` alike.

    Attributes:
        batch: devices that share the batch.
        classes: devices that share the velocity classes.

    Example:
        >>> from jax_kernel import Sharding
        >>> Sharding(classes=2).devices
        2
    """

    batch: int = 1
    classes: int = 1

    def __post_init__(self) -> None:
        for name in (BATCH, CLASSES):
            value = getattr(self, name)
            if not (is_integer(value) and value >= 1):
                raise ProblemError(f"Argument `sharding.{name}` must be an integer of at least 1, but is {value!r}.")

    @property
    def devices(self) -> int:
        """How many devices are used."""
        return self.batch * self.classes


def mesh(sharding: Sharding) -> Mesh:
    """The devices of now, shape (batch, classes).

    Raises:
        ProblemError: there are fewer devices.
    """
    devices = jax.devices()
    if len(devices) < sharding.devices:
        cure = ""
        if devices[0].platform == "cpu":
            flag = f"XLA_FLAGS=--xla_force_host_platform_device_count={sharding.devices}"
            cure = f" (the CPU counts as several with {flag} in the environment before JAX starts)"
        raise ProblemError(
            f"Argument `sharding` must need no more devices than there are, but {sharding} needs {sharding.devices} "
            f"and JAX has {len(devices)}{cure}."
        )
    grid = np.asarray(devices[: sharding.devices]).reshape(sharding.batch, sharding.classes)
    return Mesh(grid, (BATCH, CLASSES), axis_types=(AxisType.Auto,) * 2)


def place(sharding: Sharding | None, tree: Any) -> Any:
    """Arrays on every device of a sharding, as a sharded program takes them; the same arrays without one."""
    if sharding is None:
        return tree
    everywhere = NamedSharding(mesh(sharding), PartitionSpec())
    return jax.tree.map(lambda x: jax.device_put(x, everywhere), tree)  # together all would have tangents if one has


def gather(sharding: Sharding | None, tree: Any) -> Any:
    """What a sharded program returned, on its first device; tracers stay, and all does without a sharding."""
    if sharding is None:
        return tree
    return jax.tree.map(lambda x: x if isinstance(x, jax.core.Tracer) else x.addressable_data(0), tree)


def constrain(sharding: Sharding | None, x: jax.Array, *axes: str | None) -> jax.Array:
    """An array divided along its axes as named: `BATCH`, `CLASSES` or None; axes that are not named stay whole."""
    if sharding is None:
        return x
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh(sharding), PartitionSpec(*axes)))


def fill(x: jax.Array, parts: int, axis: int = 0) -> jax.Array:
    """Copies of the last entry along an axis, at its end, until its length divides into so many parts."""
    missing = -x.shape[axis] % parts
    if not missing:
        return x
    last = jax.lax.slice_in_dim(x, x.shape[axis] - 1, x.shape[axis], axis=axis)
    return jnp.concatenate([x, jnp.repeat(last, missing, axis=axis)], axis)
