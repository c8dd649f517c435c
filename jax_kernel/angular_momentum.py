"""Angular momentum of one-electron atoms: Wigner symbols, g-factors, hyperfine shifts and dipole factors."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

G_S = 2.00231930436
"""The electron's spin g-factor (CODATA 2018)."""


def _rational(value: float) -> Any:
    from sympy import Rational  # half a second to import, so not before a symbol is asked for

    return Rational(round(2 * value), 2)


@cache
def wigner_3j(j1: float, j2: float, j3: float, m1: float, m2: float, m3: float) -> float:
    """The Wigner 3j symbol (j1 j2 j3; m1 m2 m3), from sympy's exact one; 0 where a rule of selection forbids it.

    Example:
        >>> round(wigner_3j(1, 1, 0, 1, -1, 0) ** 2, 12)
        0.333333333333
    """
    from sympy.physics import wigner

    if m1 + m2 + m3 or any(abs(m) > j or (j - m) % 1 for j, m in ((j1, m1), (j2, m2), (j3, m3))):
        return 0.0
    return float(wigner.wigner_3j(*map(_rational, (j1, j2, j3, m1, m2, m3))))


@cache
def wigner_6j(j1: float, j2: float, j3: float, j4: float, j5: float, j6: float) -> float:
    """The Wigner 6j symbol {j1 j2 j3; j4 j5 j6}, from sympy's exact one; 0 where a triad is not triangular.

    Example:
        >>> round(wigner_6j(0.5, 0.5, 1, 0.5, 0.5, 0), 12)
        0.5
    """
    from sympy.physics import wigner

    for a, b, c in ((j1, j2, j3), (j1, j5, j6), (j4, j2, j6), (j4, j5, j3)):
        if not abs(a - b) <= c <= a + b or (a + b + c) % 1:
            return 0.0
    return float(wigner.wigner_6j(*map(_rational, (j1, j2, j3, j4, j5, j6))))


def _sign(exponent: float) -> int:
    return -1 if round(exponent) % 2 else 1


def lande_g_J(L: float, J: float, S: float = 0.5, g_L: float = 1.0, g_S: float = G_S) -> float:
    """The g-factor of a fine-structure level (Landé; Steck, Rubidium 87 D Line Data, section 4.2).

    Args:
        L: Orbital angular momentum.
        J: Angular momentum of the electrons, L - S to L + S.
        S: Spin of the electrons.
        g_L: Orbital g-factor.
        g_S: Spin g-factor.

    Returns:
        g_J in units of the Bohr magneton, 0 for J = 0.

    Example:
        >>> round(lande_g_J(1, 1.5, g_S=2.0), 12)
        1.333333333333
    """
    if J == 0:
        return 0.0
    spin, orbital, total = S * (S + 1), L * (L + 1), J * (J + 1)
    return (g_L * (total - spin + orbital) + g_S * (total + spin - orbital)) / (2 * total)


def lande_g_F(I: float, J: float, F: float, g_J: float, g_I: float = 0.0) -> float:  # noqa: E741
    """The g-factor of a hyperfine level (Steck, Rubidium 87 D Line Data, section 4.2): it shifts by +g_F m_F mu_B B.

    Args:
        I: Nuclear spin.
        J: Angular momentum of the electrons.
        F: Total angular momentum.
        g_J: g-factor of the fine-structure level.
        g_I: Nuclear g-factor in units of the Bohr magneton, of Steck's sign.

    Returns:
        g_F in units of the Bohr magneton, 0 for F = 0.

    Example:
        >>> lande_g_F(1.5, 0.5, 2, g_J=2.0), lande_g_F(1.5, 0.5, 1, g_J=2.0)
        (0.5, -0.5)
    """
    if F == 0:
        return 0.0
    nucleus, electrons, total = I * (I + 1), J * (J + 1), F * (F + 1)
    return (g_J * (total - nucleus + electrons) + g_I * (total + nucleus - electrons)) / (2 * total)


def hyperfine_shift(I: float, J: float, F: float, A: float, B: float = 0.0) -> float:  # noqa: E741
    """The shift of a hyperfine level (Casimir's formula; Steck, Rubidium 87 D Line Data, section 4.1).

    Args:
        I: Nuclear spin.
        J: Angular momentum of the electrons.
        F: Total angular momentum.
        A: Magnetic dipole constant, cyclic.
        B: Electric quadrupole constant, cyclic; without effect for I or J below 1.

    Returns:
        Its energy from the fine-structure level, in the unit of `A` and `B`.

    Example:
        >>> hyperfine_shift(1.5, 0.5, 2, A=3417.341305452145) - hyperfine_shift(1.5, 0.5, 1, A=3417.341305452145)
        6834.68261090429
    """
    nucleus, electrons = I * (I + 1), J * (J + 1)
    K = F * (F + 1) - nucleus - electrons
    shift = A * K / 2
    if I >= 1 and J >= 1:
        shift += B * (1.5 * K * (K + 1) - 2 * nucleus * electrons) / (4 * I * (2 * I - 1) * J * (2 * J - 1))
    return shift


def dipole_factor(
    I: float,  # noqa: E741
    J: float,
    F: float,
    m_F: float,
    upper_J: float,
    upper_F: float,
    upper_m_F: float,
    q: int,
) -> float:
    """<F m_F| d_q |F' m_F'> in units of <J||d||J'>, signed (Steck, Rubidium 87 D Line Data, eqs. 35 and 36).

    Args:
        I: Nuclear spin.
        J: Angular momentum of the lower level's electrons.
        F: Total angular momentum of the lower level.
        m_F: Its projection.
        upper_J: J'.
        upper_F: F'.
        upper_m_F: m_F'.
        q: Spherical component of the dipole, m_F - m_F'.

    Returns:
        The factor, 0 unless q = m_F - m_F'.

    Example:
        >>> round(dipole_factor(1.5, 0.5, 2, 2, 1.5, 3, 3, q=-1) ** 2, 12)  # the cycling transition of a D2 line
        0.5
    """
    projection = _sign(upper_F - 1 + m_F) * math.sqrt(2 * F + 1) * wigner_3j(upper_F, 1, F, upper_m_F, q, -m_F)
    if not projection:
        return 0.0
    recoupling = _sign(upper_F + J + 1 + I) * math.sqrt((2 * upper_F + 1) * (2 * J + 1))
    return projection * recoupling * wigner_6j(J, upper_J, 1, upper_F, F, I)
