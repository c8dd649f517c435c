"""The limits of light storage, and the optical depth they are stated for."""

import pytest

from tests.conftest import two_level
from torch_clerq import ProblemError
from torch_clerq.limits import memory_limit, optical_depth


@pytest.mark.parametrize(
    ("depth", "storage", "backward", "forward"),
    [(10, 0.69681, 0.48554, 0.39025), (20, 0.81421, 0.66295, 0.52593), (25, 0.84358, 0.71163, 0.56898),
     (50, 0.91147, 0.83078, 0.69530), (100, 0.95185, 0.90603, 0.80084)],
)  # fmt: skip
def test_limits_of_light_storage(depth, storage, backward, forward):
    found = [memory_limit(depth, retrieval) for retrieval in ("none", "backward", "forward")]
    assert found == pytest.approx([storage, backward, forward], abs=6e-6)
    assert found == pytest.approx([memory_limit(depth, way, 64) for way in ("none", "backward", "forward")], abs=1e-12)


def test_limit_refuses_nonsense():
    with pytest.raises(ProblemError, match=r"`optical_depth` must be positive, and at most 1e\+06, but is 0"):
        memory_limit(0)
    with pytest.raises(ProblemError, match="`retrieval` must be one of forward, backward, none, but is 'up'"):
        memory_limit(1, "up")


def test_optical_depth_is_that_of_the_density():
    problem = two_level(g=2.0, rate=0.5, num_density_z_func="ramp_onoff",
                        num_density_z_args={"ampl": 1.0, "fwhm": 1e-3, "on": 0.2, "off": 0.7})  # fmt: skip
    expected = 4 * 2.0 * 0.5 / 0.5
    assert optical_depth(problem) == pytest.approx(expected, rel=5e-3)
    assert optical_depth(two_level(g=1.5, factors=[0.5])) == pytest.approx(4 * 1.5 * 0.25)
    assert optical_depth(two_level(rate=None)) is None
    moving = two_level(velocity_classes={"thermal_delta_min": -1, "thermal_delta_max": 1, "thermal_delta_steps": 2,
                                         "thermal_width": 0.5})  # fmt: skip
    assert optical_depth(moving) is None


def test_deep_media_take_more_nodes():
    assert memory_limit(1e5) == pytest.approx(0.9996133926, abs=1e-9)
    for depth in (float("nan"), float("inf"), "x", 1e7):
        with pytest.raises(ProblemError, match="`optical_depth` must be positive, and at most 1e"):
            memory_limit(depth)
