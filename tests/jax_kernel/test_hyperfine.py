"""The sublevels of a line: equal to clerq's with signs, right by the sum rules, and the shared 87Rb problems again."""

import itertools
import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import expm

import jax_kernel
from jax_kernel import conventions
from jax_kernel.angular_momentum import hyperfine_shift, lande_g_F, lande_g_J, wigner_3j, wigner_6j
from jax_kernel.atoms import caesium133, potassium39, rubidium85, rubidium87, sodium23
from jax_kernel.errors import ProblemError
from jax_kernel.hyperfine import FineLevel, HyperfineLine
from tests.physics import closed_forms, solving

LINES = {
    f"{atom.d1.name[:-3]}-{name}": getattr(atom, name)
    for atom in (rubidium85, rubidium87, caesium133, potassium39, sodium23)
    for name in ("d1", "d2")
}
RUBIDIUM = [name for name in LINES if "Rb" in name]


@pytest.fixture(params=LINES, ids=str)
def line(request):
    return LINES[request.param]


def clerq_atom(line):
    """The line in clerq, and clerq's indices of its lower and upper F levels."""
    hyperfine = pytest.importorskip("clerq.hyperfine")
    atom = hyperfine.Atom1e()
    for upper, level in ((False, line.lower), (True, line.upper)):
        for F in sorted({sub.F for sub in line.levels if sub.upper == upper}):
            energy = next(sub.energy for sub in line.levels if (sub.upper, sub.F) == (upper, F))
            atom.add_F_level(
                hyperfine.LevelF(line.nuclear_spin, level.J, F, energy=energy, g_J=level.g_J, g_I=line.g_I)
            )
    lower = [k for k, level in enumerate(atom.F_levels) if level.J == line.lower.J and k < 2]
    return atom, lower, list(range(2, len(atom.F_levels)))


def matrix(line, coupling):
    """The coupling as a matrix, lower by upper, of all levels."""
    dense = np.zeros((len(line.levels),) * 2)
    for (lower, upper), factor in zip(coupling["coupled_levels"], coupling["factors"], strict=True):
        dense[lower, upper] = factor
    return dense


def rotation(line, axis, angle):
    """exp(-i angle F_axis) on all levels."""
    blocks = np.zeros((len(line.levels),) * 2, dtype=complex)
    for upper, F in {(level.upper, level.F) for level in line.levels}:
        where = [k for k, level in enumerate(line.levels) if (level.upper, level.F) == (upper, F)]
        m = np.array([line.levels[k].m_F for k in where])
        raising = np.diag(np.sqrt(F * (F + 1) - m[:-1] * (m[:-1] + 1)), -1)
        component = {"y": (raising - raising.T) / 2j, "z": np.diag(m)}[axis]
        blocks[np.ix_(where, where)] = expm(-1j * angle * component)
    return blocks


@pytest.mark.parametrize("name", RUBIDIUM)
@pytest.mark.parametrize("q", [-1, 0, 1, "isotropic", "decay"])
def test_factors_and_pairs_are_clerqs(name, q):
    line = LINES[name]
    atom, lower, upper = clerq_atom(line)
    if q == "decay":
        ours, theirs = line.decay(zeros=True), atom.get_decay_factors(lower, upper)
        pairs = ours["channels"]
    else:
        ours = line.coupling(q, zeros=True)
        pairs = ours["coupled_levels"]
        get = atom.get_clebsch_hf_factors_iso if q == "isotropic" else atom.get_clebsch_hf_factors
        theirs = get(lower, upper) if q == "isotropic" else get(lower, upper, q)
    assert pairs == atom.get_coupled_levels(lower, upper)
    np.testing.assert_allclose(ours["factors"], theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", RUBIDIUM)
def test_factors_of_one_transition_are_clerqs(name):
    line = LINES[name]
    atom, lower, upper = clerq_atom(line)
    for (a, b), q in itertools.product(itertools.product(lower, upper), (-1, 0, 1)):
        F, upper_F = atom.F_levels[a].F, atom.F_levels[b].F
        ours = line.coupling(q, lower_F=[F], upper_F=[upper_F], zeros=True)
        assert ours["coupled_levels"] == atom.get_coupled_levels([a], [b])
        np.testing.assert_allclose(ours["factors"], atom.get_clebsch_hf_factors([a], [b], q), rtol=0, atol=1e-12)
        assert line.strength(F, upper_F) == pytest.approx(atom.get_strength_factor(a, b), abs=1e-12)


@pytest.mark.parametrize("name", RUBIDIUM)
def test_energies_and_zeeman_are_clerqs(name):
    line = LINES[name]
    atom, _, _ = clerq_atom(line)
    assert line.energies == atom.get_energies()
    theirs = atom.get_zeeman_levels()
    block = line.b_field(0.5)
    np.testing.assert_allclose(block["g_F"], theirs["g_F"], rtol=1e-12, atol=1e-15)
    assert block["m_F"] == theirs["m_F"]
    assert (block["magnitude"], block["units"]) == (0.5, "gauss")
    states = [(sub.F, sub.m_F) for sub in line.levels]
    assert states == [(state["F"], state["mF"]) for state in atom.get_mF_list()]


def test_wigner_symbols_and_g_factors_are_clerqs():
    angmom, hyperfine = pytest.importorskip("clerq.angmom"), pytest.importorskip("clerq.hyperfine")
    halves = [k / 2 for k in range(5)]
    for j1, j3 in itertools.product(halves, halves):
        for m1, m2, m3 in itertools.product((-j1, 0, j1), (-1, 0, 1), (-j3, j3)):
            expected = angmom.wigner_3j(j1, 1, j3, m1, m2, m3) if (j1 - m1) % 1 == 0 else 0
            assert wigner_3j(j1, 1, j3, m1, m2, m3) == pytest.approx(expected, abs=1e-14)
        for a, b, c in itertools.product(halves, halves, halves):
            assert wigner_6j(j1, j3, 1, a, b, c) == pytest.approx(angmom.wigner_6j(j1, j3, 1, a, b, c), abs=1e-14)
    for L, J in ((0, 0.5), (1, 0.5), (1, 1.5), (2, 2.5), (0, 0)):
        assert lande_g_J(L, J) == pytest.approx(hyperfine.lande_g_J(L, J), rel=1e-14)
        for F in (0, 1, 2, 3):
            expected = hyperfine.lande_g_F(1.5, J, F, 1.3, -0.001)
            assert lande_g_F(1.5, J, F, 1.3, -0.001) == pytest.approx(expected, rel=1e-14)


def test_every_upper_sublevel_decays_with_the_linewidth(line):
    decay = line.decay()
    total = np.zeros(len(line.levels))
    for (_, upper), factor in zip(decay["channels"], decay["factors"], strict=True):
        total[upper] += decay["rate"] * factor**2
    expected = [line.linewidth if level.upper else 0.0 for level in line.levels]
    np.testing.assert_allclose(total, expected, rtol=1e-12)


def test_absorption_is_the_same_from_every_sublevel(line):
    squares = sum(matrix(line, line.coupling(q)) ** 2 for q in (-1, 0, 1))
    lower = sum(not level.upper for level in line.levels)
    np.testing.assert_allclose(squares.sum(1)[:lower], 1, rtol=1e-12)  # over all q and F'
    np.testing.assert_allclose((matrix(line, line.coupling("isotropic")) ** 2).sum(1)[:lower], 1 / 3, rtol=1e-12)
    for F, upper_F in itertools.product(
        {s.F for s in line.levels if not s.upper}, {s.F for s in line.levels if s.upper}
    ):
        rows = [k for k, level in enumerate(line.levels) if not level.upper and level.F == F]
        columns = [k for k, level in enumerate(line.levels) if level.upper and upper_F == level.F]
        np.testing.assert_allclose(squares[np.ix_(rows, columns)].sum(1), line.strength(F, upper_F), atol=1e-12)


def test_stretched_states_cycle(line):
    """From m_F = F = I + 1/2, sigma+ light drives one upper sublevel, and that one falls back there only, on D2."""
    F = line.nuclear_spin + 0.5
    start = line.index(F, F)
    coupling = line.coupling("sigma+")
    targets = [pair[1] for pair in coupling["coupled_levels"] if pair[0] == start]
    if line.upper.J == 0.5:
        assert targets == []
        return
    assert targets == [line.index(F + 1, F + 1, upper=True)]
    decay = line.decay()
    assert [to for to, origin in decay["channels"] if origin == targets[0]] == [start]
    factor = coupling["factors"][coupling["coupled_levels"].index([start, targets[0]])]
    assert factor**2 * line.dipole_strength == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(("polarisation", "change"), [("sigma+", 1), ("pi", 0), ("sigma-", -1)])
def test_polarisations_change_m_F_as_they_should(line, polarisation, change):
    for lower, upper in line.coupling(polarisation)["coupled_levels"]:
        assert line.levels[upper].m_F - line.levels[lower].m_F == change


@pytest.mark.parametrize("name", ["87Rb-d1", "85Rb-d2"])
def test_linear_polarisations_are_rotations_of_pi(name):
    """Turning z to x about y, and x to y about z, turns the couplings into one another, up to a field's phase."""
    line = LINES[name]
    along_z, along_x, along_y = (matrix(line, line.coupling(p)) for p in ("pi", "x", "y"))
    about_y, about_z = rotation(line, "y", math.pi / 2), rotation(line, "z", math.pi / 2)
    turned = about_y @ along_z @ about_y.conj().T
    assert min(np.abs(turned - along_x).max(), np.abs(turned + along_x).max()) < 1e-12
    turned = about_z @ along_x @ about_z.conj().T
    assert min(np.abs(turned - phase * along_y).max() for phase in (1, -1, 1j, -1j)) < 1e-12


def test_amplitudes_by_q_are_a_polarisation():
    line = rubidium87.d2
    assert line.coupling({1: 1.0}) == line.coupling(1) == line.coupling("sigma-")
    mixed = matrix(line, line.coupling({-1: 0.6, 1: -0.8}))
    np.testing.assert_allclose(
        mixed, 0.6 * matrix(line, line.coupling(-1)) - 0.8 * matrix(line, line.coupling(1)), atol=1e-15
    )


def test_hyperfine_shifts_keep_the_centre_of_gravity(line):
    for upper in (False, True):
        energies = [level.energy for level in line.levels if level.upper == upper]
        assert math.fsum(energies) == pytest.approx(0, abs=1e-9)
    assert hyperfine_shift(1.5, 1.5, 3, A=84.7185, B=12.4965) == pytest.approx(193.7407, abs=1e-3)  # Steck's


def test_shared_files_are_reproduced(problem_file):
    line = rubidium87.d1.select(upper_F=[1])
    zeros = [0.0] * 11
    for name in ("mbs-Rb87_5s12_5p12_F11_q1-sech-2pi", "mbs-Rb87_5s12_5p12_F11_q1-weak-pulse-decay"):
        content = json.loads(problem_file(name).read_text())
        system = content.get("system") or content["atom"]
        assert system["num_states"] == len(line.levels)
        assert (
            system["energies"]
            == zeros
            == replace(line, lower=replace(line.lower, A=0.0), upper=replace(line.upper, A=0.0)).energies
        )
        decay = line.decay(zeros=True)
        assert system["decays"][0]["channels"] == decay["channels"]
        np.testing.assert_allclose(system["decays"][0]["factors"], decay["factors"], rtol=0, atol=1e-12)
        probe = line.coupling(1, lower_F=[1], zeros=True)
        assert system["fields"][0]["coupled_levels"] == probe["coupled_levels"]
        np.testing.assert_allclose(system["fields"][0]["factors"], probe["factors"], rtol=0, atol=1e-12)
    sech = json.loads(problem_file("mbs-Rb87_5s12_5p12_F11_q1-sech-2pi").read_text())["atom"]
    np.testing.assert_allclose(sech["initial_state"], line.populations(F=1), atol=1e-15)

    system = json.loads(problem_file("bench_rb87").read_text())["system"]
    decay = line.decay()
    assert system["decays"][0]["channels"] == decay["channels"]
    np.testing.assert_allclose(system["decays"][0]["factors"], decay["factors"], rtol=0, atol=1e-12)
    for field, F in zip(system["fields"], (1, 2), strict=True):
        coupling = line.coupling("sigma-", lower_F=[F])
        assert field["coupled_levels"] == coupling["coupled_levels"]
        np.testing.assert_allclose(field["factors"], coupling["factors"], rtol=0, atol=1e-12)


def problem(system, strength, **top):
    window = {"t_max": 1.0, "t_steps": 20, "z_steps": 4, "interaction_strengths": [strength] * len(system["fields"])}
    return jax_kernel.Problem.from_dict({"system": system} | window | top)


@pytest.mark.parametrize("polarisation", ["sigma+", "x"])
def test_systems_are_problems(line, polarisation):
    F = line.nuclear_spin + 0.5
    probe = {"label": "probe", "transition": (F, F), "polarisation": polarisation, "detuning": 3.0, "rabi_freq": 1e-3}
    read = problem(line.system([probe], b_field=0.1, label="vapour"), line.interaction_strength(1e10))
    assert read.num_states == len(line.levels)
    assert read.label == "vapour"
    (field,) = read.fields
    changes = {line.levels[upper].m_F - line.levels[lower].m_F for lower, upper in field.coupled_levels}
    assert changes == ({1.0} if polarisation == "sigma+" else {-1.0, 1.0})
    assert {line.levels[lower].F for lower, _ in field.coupled_levels} == {F}
    assert field.detuning == 0
    for level, detuning, slope in zip(line.levels, read.level_detunings, read.level_doppler_slopes, strict=True):
        assert (detuning, slope) == ((3.0, -1.0) if level.upper else (0.0, 0.0))
    assert read.energies[line.index(F, 0 if F % 1 == 0 else 0.5)] == 0
    assert read.energies[line.index(F, F, upper=True)] == 0
    assert len(read.decays[0].channels) == sum(factor != 0 for factor in line.decay(zeros=True)["factors"])
    assert read.b_field is not None


PLUS, MINUS = {"transition": (1, 2), "polarisation": "sigma+"}, {"transition": (1, 1), "polarisation": "sigma-"}
ACROSS = {"transition": (2, 1), "polarisation": "pi", "detuning": 25.0, "rabi_freq": 3.0}
BACK = {"counter_propagating": True}
LIGHT = {
    "one field": [PLUS | {"detuning": -40.0}],
    "one that runs backwards": [PLUS | {"detuning": -40.0} | BACK],
    "two ground levels": [PLUS | {"detuning": -40.0}, ACROSS],
    "opposite fields from two ground levels": [PLUS | {"detuning": -40.0}, ACROSS | BACK],
    "the upper ground level first": [ACROSS | BACK, MINUS | {"detuning": 7.0}],
    "a scaled Doppler shift": [PLUS, ACROSS | {"factor_doppler_shift": 0.9}],
    "linear polarisations": [MINUS | {"polarisation": "x"}, ACROSS | {"polarisation": "y", "detuning": -3.0}],
    "two frequencies from one level": [PLUS | {"detuning": -4.0}, MINUS | {"detuning": 3.0}],
    "opposite circular fields": [PLUS, MINUS | {"transition": (1, 2), "detuning": -3.0} | BACK],
    "three fields": [PLUS, MINUS | {"transition": (1, 2), "detuning": -3.0} | BACK, ACROSS],
}


@pytest.mark.parametrize("name", LIGHT)
@pytest.mark.parametrize("shift", [0.0, 7.3])
def test_every_pair_sees_its_fields_detuning(name, shift):
    """In any frame the diagonal falls along a pair by the light's frequency less the atom's, at every velocity."""
    line = rubidium87.d1
    energy = {(level.upper, level.F): level.energy for level in line.levels}
    read = problem(line.system(LIGHT[name]), 1.0)
    diagonal = np.array(read.energies) - read.level_detunings + shift * np.array(read.level_doppler_slopes)
    for field, light in zip(read.fields, LIGHT[name], strict=True):
        factor = light.get("factor_doppler_shift", -1.0 if field.counter_propagating else 1.0)
        for a, b in field.coupled_levels:
            offset = energy[True, line.levels[b].F] - energy[True, light["transition"][1]]
            seen = light.get("detuning", 0.0) + factor * shift - offset
            assert diagonal[a] - diagonal[b] == pytest.approx(seen, abs=1e-9)


def test_levels_of_one_F_have_one_detuning_and_one_slope():
    """What the docstring says of two fields, co- and counter-propagating, exactly, also where no light connects."""
    line = rubidium87.d1
    for keys, factor in (({}, 1.0), (BACK, -1.0)):
        system = line.system([PLUS | {"detuning": -40.0}, ACROSS | {"transition": (2, 2)} | keys])
        for key, values in (("level_detunings", (0.0, -65.0, -40.0)), ("level_doppler_slopes", (0, factor - 1, -1))):
            expected = [values[2] if level.upper else values[level.F == 2] for level in line.levels]
            assert system[key] == expected
        assert [system["energies"][k] for k in (0, 3, 15)] == [0.0, 0.0, 0.0]
        assert all("detuning" not in field for field in system["fields"])
        with warnings.catch_warnings():
            warnings.simplefilter("error", jax_kernel.ConventionWarning)
            conventions.warn_once.__wrapped__(problem(system, 1.0, velocity_classes=MOVING))


MOVING = {"thermal_width": 4.0, "thermal_delta_min": -6.0, "thermal_delta_max": 8.0, "thermal_delta_spacing": 2.0}
PULSE = {"rabi_freq_t_func": "gaussian", "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.5, "fwhm": 0.3}}


def by_clerqs_rule(line, fields):
    """The same system stated by fields alone: the first one's projector on all upper levels carries everything."""
    (F, upper_F), detuning = fields[0]["transition"], fields[0]["detuning"]
    energy = {(level.upper, level.F): level.energy for level in line.levels}
    frame = {(False, F): 0.0}
    for field in fields[1:]:
        frame[False, field["transition"][0]] = (
            energy[True, field["transition"][1]] - energy[True, upper_F] + field["detuning"] - detuning
        )
    written = []
    for k, field in enumerate(fields):
        light = {key: value for key, value in field.items() if key not in ("transition", "polarisation", "detuning")}
        light |= line.coupling(field["polarisation"], lower_F=[field["transition"][0]])
        written.append(light | {"detuning": 0.0 if k else detuning, "factor_doppler_shift": 0.0 if k else 1.0})
    lower, upper = line.index(F, F), [k for k, level in enumerate(line.levels) if level.upper]
    missing = [k for k in upper if k not in {pair[1] for pair in written[0]["coupled_levels"]}]
    written[0]["coupled_levels"] = written[0]["coupled_levels"] + [[lower, k] for k in missing]
    written[0]["factors"] = written[0]["factors"] + [0.0] * len(missing)
    return {
        "num_states": len(line.levels),
        "energies": [
            level.energy - energy[True, upper_F] if level.upper else frame[False, level.F] for level in line.levels
        ],
        "initial_state": line.populations(),
        "decays": [line.decay()],
        "fields": written,
    }


@pytest.mark.parametrize("further", [[], [ACROSS | PULSE | {"detuning": 2.0}]])
def test_propagation_is_that_of_clerqs_rule(x64, further):
    line = rubidium87.d1.select(lower_F=[1, 2] if further else [1], upper_F=[1, 2])
    line = replace(line, upper=replace(line.upper, A=3.0))  # both upper levels take part, with energies that differ
    fields = [PLUS | PULSE | {"detuning": -4.0, "rabi_freq": 2.0}, *further]
    seen = [
        np.asarray(jax_kernel.propagate(
            problem(system, 20.0, velocity_classes=MOVING), resolution=jax_kernel.Resolution(6, 2), tol=1e9,
        ).fields)
        for system in (line.system(fields), by_clerqs_rule(line, fields))
    ]  # fmt: skip
    assert np.abs(seen[0][:, -1] - seen[0][:, 0]).max() > 0.05
    np.testing.assert_allclose(*seen, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("fields", "detuning", "factor"),
    [
        ([PLUS, PLUS | {"transition": (1, 1)}], "814.48", "0"),
        ([PLUS, PLUS | {"detuning": 2.0}], "-2", "0"),
        ([PLUS, PLUS | BACK], "0", "2"),
        ([PLUS, MINUS | {"transition": (1, 2), "detuning": 3.0}, PLUS | {"polarisation": "pi"}], "3", "0"),  # a ring
    ],
)
def test_light_without_a_frame_is_refused(fields, detuning, factor):
    """Two ways of the light from one sublevel to another that differ: a beat note, or a grating."""
    line = rubidium87.d1
    last = len(fields) - 1
    with pytest.raises(
        ProblemError,
        match=rf"`fields\[{last}\]` must agree with the fields that lead from \|F=1, m=.*> to \|F'=[12], m'=.*> in one "
        rf"frame .*, but its detuning differs by {detuning}, its Doppler factor by {factor}\.",
    ):
        line.system(fields)
    split = line.levels[-1].energy - line.levels[line.index(1, 0, upper=True)].energy
    problem(line.system([PLUS, PLUS | {"transition": (1, 1), "detuning": split}]), 1.0)


def test_populations():
    line = rubidium85.d2
    assert sum(line.populations()) == pytest.approx(1, abs=1e-15)
    assert line.populations()[:13] == [1 / 12] * 12 + [0.0]
    assert line.populations(F=2) == [1 / 5] * 5 + [0.0] * (len(line.levels) - 5)
    one = line.populations(F=3, m_F=-3)
    assert (one[line.index(3, -3)], sum(one)) == (1.0, 1.0)


def test_labels_of_halves():
    line = HyperfineLine(nuclear_spin=1, lower=FineLevel(0.5), upper=FineLevel(1.5), linewidth=1.0)  # 6Li's spin
    assert line.levels[0].label == "|F=1/2, m=-1/2>"
    assert line.levels[-1].label == "|F'=5/2, m'=+5/2>"
    assert len(line.levels) == 6 + 12


BASE = {"transition": (2, 3), "polarisation": "sigma+"}


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda line: line.index(3, 0), r"`F` must be one of 1, 2, but is 3\."),
        (lambda line: line.index(2, 3), r"`m_F` must be one of -F to F with F = 2, but is 3\."),
        (lambda line: line.populations(m_F=1), r"`F` must be given with m_F"),
        (lambda line: line.populations(F=1, m_F=2), r"`m_F` must be one of -F to F with F = 1, but is 2"),
        (lambda line: line.strength(1, 4), r"`upper_F` must be one of 0, 1, 2, 3, but is 4"),
        (lambda line: line.select(upper_F=[4]), r"`upper.F` must be some of 0, 1, 2, 3, but is \[4\]"),
        (lambda line: line.select(lower_F=[]), r"`lower.F` must be some of 1, 2, but is \[\]"),
        (lambda line: line.coupling("sigma"), r"`polarisation` must be .* \(did you mean \"sigma[+-]\"\?\)"),
        (lambda line: line.coupling(2), r"`polarisation` must be q \(-1, 0 or 1\), .* but is 2"),
        (lambda line: line.coupling(True), r"`polarisation` must be .* but is true"),
        (lambda line: line.coupling({1: 1.0, 2: 0.0}), r"`polarisation` must have real amplitudes by q"),
        (lambda line: line.coupling({1: 1j}), r"`polarisation` must have real amplitudes by q"),
        (lambda line: line.coupling({1: 1.0, -1: 1.0}), r"`polarisation` must have amplitudes .* they sum to 2\."),
        (lambda line: line.coupling(0, lower_F=[0]), r"`lower_F` must be one of 1, 2, but is 0"),
        (lambda line: line.system([]), r"`fields` must be a list of at least one field, but is \[\]"),
        (lambda line: line.system(BASE), r"`fields` must be a list"),
        (lambda line: line.system([3]), r"`fields\[0\]` must be an object"),
        (lambda line: line.system([{"transition": (2, 3), "polarization": 1}]),
         r"`fields\[0\].polarisation` must be given, but is missing \(there is `polarization`\)\."),
        (lambda line: line.system([BASE | {"transition": 2}]), r"transition` must be a pair \(F, F'\), but is 2"),
        (lambda line: line.system([BASE | {"transition": (2, 5)}]), r"transition\[1\]` must be one of 0, 1, 2, 3, but"),
        (lambda line: line.system([BASE | {"detuning": math.nan}]), r"detuning` must be a finite real number"),
        (lambda line: line.system([BASE | {"factors": [1.0]}]), r"factors` must be absent beside `transition`"),
        (lambda line: line.system([BASE | {"factor_doppler_shift": "1"}]), r"factor_doppler_shift` must be a finite"),
        (lambda line: line.select(upper_F=[0]).system([{"transition": (2, 0), "polarisation": 0}]),
         r"`fields\[0\].polarisation` must drive some sublevel of F = 2"),
        (lambda line: replace(line, linewidth=-1.0), r"`linewidth` must be finite and at least 0, but is -1.0"),
        (lambda line: replace(line, nuclear_spin=0.7), r"`nuclear_spin` must be a multiple of 1/2"),
        (lambda line: replace(line, upper=FineLevel(2.5)), r"`upper.J` must be coupled to lower.J = 1/2 .* 5/2"),
        (lambda line: replace(line, lower=FineLevel(0.5)).b_field(1.0), r"`lower.g_J` must be given where"),
    ],
)  # fmt: skip
def test_refusals_say_what_and_why(act, message):
    with pytest.raises(ProblemError, match=message):
        act(rubidium87.d2)


def test_beer_lambert_on_the_cycling_transition(x64):
    """Atoms in one stretched state absorb with the two-level cross-section, through all of a line's factors."""
    line = rubidium87.d2.select(lower_F=[2], upper_F=[3])
    density, length = 2e9, 0.5
    probe = {"transition": (2, 3), "polarisation": "sigma+", "rabi_freq": 1e-4,
             "rabi_freq_t_func": "ramp_on", "rabi_freq_t_args": {"ampl": 1.0, "on": 0.1, "fwhm": 0.05}}  # fmt: skip
    system = line.system([probe], initial_state=line.populations(F=2, m_F=2))
    read = problem(system, line.interaction_strength(density), t_steps=100, z_max=length, t_max=1.0,
                   num_density_z_args={"on": 0.0, "off": length, "ampl": 1.0})  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fields = np.asarray(jax_kernel.propagate(read).fields)
    depth = -2 * math.log(abs(fields[0, -1, -1] / fields[0, 0, -1]))
    expected = jax_kernel.laboratory.resonant_optical_depth(density, length, line.wavelength)
    assert depth == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("control_detuning", "transparent"), [(5.0, True), (0.0, False)])
def test_transparency_is_at_two_photon_resonance(x64, control_detuning, transparent):
    """A control from F = 2 opens the medium for a probe from F = 1 where both have one detuning, and only there."""
    line = rubidium87.d1.select(upper_F=[1])
    probe = {"transition": (1, 1), "polarisation": "sigma-", "detuning": 5.0, "rabi_freq": 1e-4,
             "rabi_freq_t_func": "ramp_on", "rabi_freq_t_args": {"ampl": 1.0, "on": 0.1, "fwhm": 0.05}}  # fmt: skip
    control = {"transition": (2, 1), "polarisation": "sigma-", "detuning": control_detuning, "rabi_freq": 30.0,
               "rabi_freq_t_args": {"ampl": 1.0, "on": -1.0, "off": 10.0}}  # fmt: skip
    system = line.system([probe, control], initial_state=line.populations(F=1))
    read = problem(system, 200.0, t_steps=50)
    fields = np.asarray(jax_kernel.propagate(read, resolution=jax_kernel.Resolution(12, 12)).fields)
    transmission = abs(fields[0, -1, -1] / fields[0, 0, -1])
    assert transmission == pytest.approx(1.0, abs=0.01) if transparent else transmission < 0.6


def test_transparency_of_moving_atoms(x64):
    """A control that runs with the probe keeps moving atoms transparent; one against it smears by twice the shift."""
    line = rubidium87.d1.select(upper_F=[1])
    fields = [
        {"transition": (1, 1), "polarisation": "sigma-", "rabi_freq": 1e-5} | solving.gaussian_pulse(0.3),
        {"transition": (2, 1), "polarisation": "sigma-", "rabi_freq": 20.0} | solving.constant_control(),
    ]
    factors = [
        dict(zip(map(tuple, coupling["coupled_levels"]), coupling["factors"], strict=True))[pair]
        for F, pair in ((1, (1, 8)), (2, (5, 8)))  # m_F = 0 -> m_F' = -1
        for coupling in [line.coupling("sigma-", lower_F=[F])]
    ]
    classes = {"thermal_width": 2.0, "thermal_delta_min": -7.0, "thermal_delta_max": 7.0,
               "thermal_delta_spacing": 0.14}  # fmt: skip
    transmitted = []
    for keys, slope in (({}, 0.0), (BACK, -2.0)):
        system = line.system([fields[0], fields[1] | keys], initial_state=line.populations(F=1, m_F=0))
        read = problem(system, 100.0, t_min=-0.6, t_max=2.4, t_steps=240, velocity_classes=classes)
        found = np.asarray(jax_kernel.propagate(read, resolution=jax_kernel.Resolution(12, 12)).fields)
        transmitted.append(np.abs(found[0, -1].sum() / found[0, 0].sum()) ** 2)
        for wrong in (0.0, 1.0):
            exponent = closed_forms.doppler_eit_exponent(
                closed_forms.frequencies(read.time), g=100.0 * factors[0] ** 2, rate=line.linewidth,
                control=20.0 * factors[1], ground_rate=0.0, thermal_width=2.0, slopes=(-1.0, slope + wrong),
            )  # fmt: skip
            closed = closed_forms.transmitted(read.time, 1e-5 * closed_forms.gaussian(read.time, 0.3), exponent, read.z)
            deviation = solving.deviation(found, closed)
            assert deviation > 0.1 if wrong else deviation < 1e-5
    assert transmitted[0] > 0.999
    assert transmitted[1] < 0.1
