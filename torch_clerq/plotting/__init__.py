"""Figures, returned and never shown. matplotlib is an optional extra: `pip install 'torch_clerq[plot]'`.

Every function takes `axes=`, a matplotlib Axes or an array of them to draw into, one a panel, and returns their figure.
Numbers may be tensors (of any device, with gradients) or arrays. Axes are labelled in the problem's own units.
"""

from .design import design_figure
from .fields import envelopes, pulse_area, zt_map
from .fits import measured, training_history
from .frequencies import spectra
from .precision import work_precision
from .states import coherences, populations

__all__ = [
    "coherences",
    "design_figure",
    "envelopes",
    "measured",
    "populations",
    "pulse_area",
    "spectra",
    "training_history",
    "work_precision",
    "zt_map",
]
