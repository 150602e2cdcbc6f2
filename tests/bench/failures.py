"""The error of a row that could not be measured."""

from __future__ import annotations


class SideError(Exception):
    """One side of a row failed; the message says how."""
