"""The command line: torch-clerq solve | design | fit | check | info."""

from .main import main

__all__ = ["main"]
