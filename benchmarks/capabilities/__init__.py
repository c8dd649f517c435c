"""What a bridge may be asked for, one small check each, with the truth from torch's own operations."""

from . import calls, compilers, derivatives, memory, numbers, processes, training  # noqa: F401
from .base import ALL, GROUPS, Capability, Silent, Wrong

__all__ = ["ALL", "GROUPS", "Capability", "Silent", "Wrong"]
