"""Parses JSON of users, with errors that name what is wrong."""

from __future__ import annotations

import json
from typing import Any, Final

_DIGITS_MAX: Final = 20
"""Digits of an integer of 64 bits, with its sign."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError in one line, also for numbers beyond 64 bits and for deep
    nesting."""
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise ValueError(f"it has an integer of {len(digits)} digits: write at most 64 bits")
    return int(digits)
