"""Between density matrices and the packed components of the integrators, on the way in and on the way out."""

from typing import Any

import interpax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float
from scipy.interpolate import make_interp_spline

from .generator import Structure
from .rhs import Coefficients


def start(
    structure: Structure, numbers: Any, params: Any, path: Any, nodes: Any
) -> Float[Array, "component class_or_1 z_or_1"]:
    """The state at t_min, from `initial_density_matrix`, where it is given, or the populations `initial_state`."""
    if "initial_density_matrix" in params:
        return _packed(structure, _at_nodes(params["initial_density_matrix"], numbers, params, path, nodes))
    populations = [params["initial_state"][level] for level in structure.populations]
    coherences = [jnp.zeros_like(params["initial_state"][0])] * (2 * len(structure.coherences))
    return jnp.stack(populations + coherences)[:, None, None]


def _at_nodes(given, numbers, params, path, nodes) -> Complex[Array, "z class level level"]:
    """A state given at the stored positions, at the z-nodes, by a spline in the optical path.

    Its degree is 7 for the problem's own profile, and 3, which JAX can trace, for samples of the density. Local
    polynomials would do with fewer derivatives, and their kinks would ask for many nodes.
    """
    if given.shape[0] == 1:
        return given
    parts = jnp.stack([jnp.real(given), jnp.imag(given)])
    if params["number_density"].size == 1:
        real, imaginary = jnp.einsum("nz,pzvij->pnvij", numbers["to_nodes"], parts)
    else:
        with jax.numpy_dtype_promotion("standard"):  # interpax mixes integers and floats
            pieces = interpax.CubicSpline(path, parts, axis=1, bc_type="not-a-knot", check=False)
            real, imaginary = pieces(jnp.asarray(nodes, path.dtype))
    return jax.lax.complex(real, imaginary)


def to_nodes(path: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The matrix of the spline of degree 7, shape (node, z), for positions of optical path `path`.

    Of positions closer together in it than half the widest gap, where there is little or no medium, one counts (the one
    next to the medium): knots that crowd would let the spline swing.
    """
    end = path[-1]
    if end <= 0:
        return np.ones((len(nodes), 1)) * (np.arange(len(path)) == 0)
    path = path / end
    gap, middle = np.max(np.diff(path)) / 2, int(np.searchsorted(path, 0.5))
    chosen = [min(middle, len(path) - 1)]
    for k in range(chosen[0] + 1, len(path)):  # outwards from the middle, so that what is passed over is at the ends
        if path[k] >= path[chosen[-1]] + gap:
            chosen.append(k)
    for k in range(chosen[0] - 1, -1, -1):
        if path[k] <= path[chosen[0]] - gap:
            chosen.insert(0, k)
    matrix = np.zeros((len(nodes), len(path)))
    degree = min(7, (len(chosen) - 2) // 2 * 2 + 1)
    matrix[:, chosen] = make_interp_spline(path[chosen], np.eye(len(chosen)), k=degree)(nodes)
    return matrix


def _packed(structure: Structure, given) -> Float[Array, "component class z"]:
    """Components of the Hermitian part of density matrices of shape (z, class, level, level)."""
    given = jnp.moveaxis(given, (2, 3, 1), (0, 1, 2))  # (level, level, class, z)
    levels = np.asarray(structure.populations, int)
    first, second = np.asarray(structure.coherences, int).reshape(-1, 2).T
    above, below = given[first, second], given[second, first]
    real, imaginary = (jnp.real(above) + jnp.real(below)) / 2, (jnp.imag(above) - jnp.imag(below)) / 2
    return jnp.concatenate([jnp.real(given[levels, levels]), real, imaginary])


def matrix(structure: Structure, components: Any) -> Complex[Array, "*axes level level"]:
    """Density matrices from their components, shape (component, *axes)."""
    levels = np.arange(structure.num_states)
    return jnp.moveaxis(_elements(structure, components, levels[:, None], levels), (0, 1), (-2, -1))


def averaged(structure: Structure, coefficients: Coefficients, average: Any) -> dict[str, Any]:
    """Density matrix, populations and coherences from the averaged components, shape (component, z, time)."""
    levels = np.arange(structure.num_states)
    fields, first, second = np.asarray(structure.pairs, int).reshape(-1, 3).T
    factors = jnp.zeros((structure.num_fields, len(fields)), average.dtype)
    factors = factors.at[fields, np.arange(len(fields))].set(coefficients.factors)
    pairs = _elements(structure, average, first, second)
    real, imaginary = (jnp.einsum("fp,pzt->fzt", factors, part) for part in (jnp.real(pairs), jnp.imag(pairs)))
    return {
        "density_matrix": matrix(structure, average),
        "populations": jnp.moveaxis(jnp.real(_elements(structure, average, levels, levels)), 0, -1),
        "coherences": jax.lax.complex(real, imaginary),
    }


def _elements(structure: Structure, components, i, j):
    """The elements ρ_ij of index arrays i and j, which stand in front of the other axes."""
    square = structure.square

    def part(component, weight):
        weight = jnp.asarray(weight[i, j], components.dtype)
        return weight.reshape(*weight.shape, *[1] * (components.ndim - 1)) * components[component[i, j]]

    return jax.lax.complex(part(square.real, square.kept), part(square.imaginary, square.sign))
