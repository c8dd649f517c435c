"""The numbers of the D lines agree with one another and with measurements that they were not taken from."""

import itertools
import math
import re
from pathlib import Path

import pytest
from scipy import constants

from jax_kernel import laboratory
from jax_kernel.angular_momentum import lande_g_J
from jax_kernel.atoms import caesium133, potassium39, rubidium85, rubidium87, sodium23

ATOMS = {"85Rb": rubidium85, "87Rb": rubidium87, "133Cs": caesium133, "39K": potassium39, "23Na": sodium23}
LINES = [line for atom in ATOMS.values() for line in (atom.d1, atom.d2)]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_wavelength_times_frequency_is_c(line):
    assert line.wavelength * line.frequency * 1e3 == pytest.approx(constants.c, rel=2e-10)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_lifetime_is_that_of_the_linewidth(line):
    assert 2 * math.pi * line.linewidth * line.lifetime * 1e-3 == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "splitting"),
    [("87Rb", 6834.682610904), ("85Rb", 3035.732439), ("133Cs", 9192.631770), ("23Na", 1771.6261288),
     ("39K", 461.7197202)],
)  # fmt: skip
def test_ground_state_splitting(name, splitting):
    atom = ATOMS[name]
    assert atom.ground_splitting == pytest.approx(splitting, rel=1e-12)
    assert atom.ground_splitting == pytest.approx(atom.d1.lower.A * (atom.nuclear_spin + 0.5), rel=1e-14)


@pytest.mark.parametrize("name", ATOMS)
def test_both_lines_are_of_one_atom(name):
    atom = ATOMS[name]
    for attribute in ("nuclear_spin", "mass", "g_I", "lower", "source"):
        assert getattr(atom.d1, attribute) == getattr(atom.d2, attribute)
    assert (atom.d1.upper.J, atom.d2.upper.J) == (0.5, 1.5)
    assert atom.mass == pytest.approx(int("".join(c for c in name if c.isdigit())), rel=2e-3)
    assert atom.nuclear_spin % 1 == 0.5


@pytest.mark.parametrize("name", ATOMS)
def test_linewidths_go_with_the_cube_of_the_frequency(name):
    """One radial integral belongs to both lines, to 1 % in relativity's share."""
    d1, d2 = ATOMS[name].d1, ATOMS[name].d2
    assert d2.linewidth / d1.linewidth == pytest.approx((d2.frequency / d1.frequency) ** 3, rel=0.012)


@pytest.mark.parametrize(
    ("name", "fine_structure"),  # of nP in 1/cm, NIST Atomic Spectra Database
    [("23Na", 17.1963), ("39K", 57.7103), ("85Rb", 237.595), ("87Rb", 237.595), ("133Cs", 554.039)],
)
def test_fine_structure_is_nists(name, fine_structure):
    d1, d2 = ATOMS[name].d1, ATOMS[name].d2
    assert (d2.frequency - d1.frequency) * 1e12 / (100 * constants.c) == pytest.approx(fine_structure, rel=1e-4)


def test_isotopes_share_electrons():
    """A goes with g_I up to the hyperfine anomaly, B with the quadrupole moments; isotope shifts are small."""
    for line in ("d1", "d2"):
        a, b = getattr(rubidium85, line), getattr(rubidium87, line)
        assert pytest.approx(b.g_I / a.g_I, rel=4e-3) == b.lower.A / a.lower.A
        assert pytest.approx(b.g_I / a.g_I, rel=1e-2) == b.upper.A / a.upper.A
        assert b.frequency - a.frequency == pytest.approx(77.9e-6, abs=0.3e-6)
    assert pytest.approx(0.277 / 0.134, rel=0.02) == rubidium85.d2.upper.B / rubidium87.d2.upper.B


@pytest.mark.parametrize("name", ATOMS)
def test_g_factors_are_near_landes(name):
    atom = ATOMS[name]
    assert atom.d1.lower.g_J == pytest.approx(lande_g_J(0, 0.5), rel=2e-4)
    assert atom.d1.upper.g_J == pytest.approx(lande_g_J(1, 0.5), rel=2e-3)
    assert atom.d2.upper.g_J == pytest.approx(lande_g_J(1, 1.5), rel=2e-3)


@pytest.mark.parametrize(
    ("line", "intervals"),  # between neighbouring F', MHz; Steck's and Tiecke's level diagrams
    [
        (rubidium87.d2, (72.218, 156.947, 266.650)),
        (rubidium87.d1, (814.5,)),
        (rubidium85.d2, (29.372, 63.401, 120.640)),
        (rubidium85.d1, (361.58,)),
        (caesium133.d2, (151.2247, 201.2871, 251.0916)),
        (caesium133.d1, (1167.680,)),
        (sodium23.d2, (15.809, 34.344, 58.326)),
        (sodium23.d1, (188.88,)),
        (potassium39.d2, (3.3, 9.4, 21.1)),
        (potassium39.d1, (55.55,)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_upper_intervals(line, intervals):
    energies = list({level.F: level.energy for level in line.levels if level.upper}.values())
    assert [b - a for a, b in itertools.pairwise(energies)] == pytest.approx(intervals, rel=1e-3, abs=0.06)


def test_known_lines():
    d2 = rubidium87.d2
    assert d2.transition_frequency(2, 3) == pytest.approx(384.228115203, abs=1e-9)
    crossover = (d2.transition_frequency(2, 2) + d2.transition_frequency(2, 3)) / 2
    assert crossover == pytest.approx(384.2279819, abs=1e-7)  # BIPM's recommended radiation
    assert d2.saturation_intensity == pytest.approx(1.66933, abs=5e-5)
    assert sodium23.d2.saturation_intensity == pytest.approx(6.2600, abs=1e-3)


def test_laboratory_units_of_a_line_include_its_dipole_strength():
    for line, strength in ((rubidium87.d1, 1), (rubidium87.d2, 2)):
        args = line.linewidth, line.wavelength
        assert line.interaction_strength(1e10) == laboratory.interaction_strength(*args, strength, number_density=1e10)
        assert line.rabi_freq(0.3) == laboratory.intensity_to_rabi_freq(0.3, *args, strength)
        assert line.intensity(line.rabi_freq(0.3)) == pytest.approx(0.3, rel=1e-14)
        assert line.thermal_width(300) == laboratory.thermal_width(300, line.mass, line.wavelength)


def test_steck_reduced_dipoles():
    """<J||er||J'> in e a0: 87Rb D1 2.9931, D2 4.22752; 133Cs D2 4.4837; 23Na D2 3.5246."""
    for line, expected in (
        (rubidium87.d1, 2.9931),
        (rubidium87.d2, 4.22752),
        (caesium133.d2, 4.4837),
        (sodium23.d2, 3.5246),
    ):
        found = laboratory.dipole_moment(line.linewidth, line.wavelength, line.dipole_strength)
        assert found == pytest.approx(expected, rel=2e-4)


def test_documentation_prints_what_is_written(capsys):
    text = (Path(__file__).parents[2] / "docs" / "atoms.md").read_text()
    blocks = re.findall(r"```(?:python)?\n(.*?)```", text, flags=re.S)
    namespace: dict = {}
    assert len(blocks) >= 8
    for code, printed in zip(blocks[::2], blocks[1::2], strict=True):
        exec(compile(code, "atoms.md", "exec"), namespace)  # the documentation is our own
        assert capsys.readouterr().out == printed
