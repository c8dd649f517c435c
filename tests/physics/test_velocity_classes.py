"""Row 3 on every kind of velocity classes, and how it moves with the thermal width."""

import pytest

from jax_kernel import Problem, Resolution
from tests.physics import solving, test_linear

pytestmark = pytest.mark.usefixtures("x64")

WIDTH = 0.5
CLASSES = {  # with what each leaves out, relative to the peak
    "few Gauss-Hermite nodes": ({"quadrature": "gauss-hermite", "nodes": 16}, 3e-7),
    "automatic spacing": (
        {"thermal_delta_min": -2.5, "thermal_delta_max": 2.5, "thermal_delta_spacing": "auto",
         "thermal_delta_echo_tolerance": 1e-8},
        1e-7,
    ),
    "outer and inner grid": (
        {"thermal_delta_min": -3.0, "thermal_delta_max": 3.0, "thermal_delta_steps": 12,
         "thermal_delta_inner_min": -2.5, "thermal_delta_inner_max": 2.5, "thermal_delta_inner_steps": 30},
        1e-7,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_voigt_line(name):
    """The fields, and their slopes in every number."""
    classes, neglect = CLASSES[name]
    row = test_linear.doppler_transfer()
    content = row.problem.to_dict() | {"velocity_classes": {"thermal_width": WIDTH} | classes, "t_steps": 240}
    numbers = row.numbers | {"thermal_width": WIDTH}
    row = row._replace(problem=Problem.from_dict(content), numbers=numbers, fine=Resolution(12, 5), neglect=neglect)
    solving.check_row(row, fields=1e-8, gradient=1e-7)
