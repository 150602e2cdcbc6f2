"""Parses JSON of users, with errors that name what is wrong."""

from __future__ import annotations

import json
from typing import Any, Final

_DIGITS_MAX: Final = 20
"""Digits of an integer of 64 bits, with its sign."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError in one line, also for numbers beyond 64 bits, for deep nesting
    and for an object that has a name twice."""
    try:
        return json.loads(
            text, parse_int=_integer, parse_constant=_refuse, object_pairs_hook=_object
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it has {name[:80]!r} twice in one object: keep one")
        found[name] = value
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"it has {name}, which JSON has not: write a number, or null")


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise ValueError(f"it has an integer of {len(digits)} digits: write at most 64 bits")
    return int(digits)
