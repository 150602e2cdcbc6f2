"""The ``Idempotency-Key`` header: a request's key, from which messages' unique keys are derived.

A single message is stored under the key itself, message N (from 0) of several under ``KEY~N``. So a
retry has the unique keys of the first attempt, and the store finds the duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

NAME: Final = "Idempotency-Key"
LENGTH_MAX: Final = 255
"""Maximum length of a key: that of a transaction's unique key."""
SEPARATOR: Final = "~"
"""Between a key and the number of a message; no key contains it, and no URL needs to escape it."""
_CHARACTERS: Final = r"[!#-.0-\[\]-}]"
"""Visible ASCII without quote, backslash, slash (unique keys are parts of paths) and separator."""
PATTERN: Final = f"{_CHARACTERS}{{1,{LENGTH_MAX}}}"


def unique_keys(key: str, count: int) -> list[str]:
    """Return the unique keys of a request's ``count`` messages, in order."""
    return [key] if count == 1 else [f"{key}{SEPARATOR}{number}" for number in range(count)]


def other_keys(key: str, own: Sequence[str]) -> list[str]:
    """Return unique keys that a request with this key and another number of messages would have.

    If the store knows one of them, the key was used for such a request. ``own`` are the unique keys
    of this request.
    """
    count = len(own)
    others = [f"{key}{SEPARATOR}0"] if count == 1 else [key, f"{key}{SEPARATOR}{count}"]
    return [each for each in others if each not in own]


def parameter(text: str) -> dict[str, Any]:
    """Return the header for an OpenAPI operation; ``text`` describes the reply to a retry."""
    return {
        "name": NAME,
        "in": "header",
        "schema": {"type": "string", "pattern": f'^({PATTERN}|"{PATTERN}")$'},
        "example": '"8e03978e-40d5-43dd-bc93-6894a57f9324"',
        "description": f"Makes a retry safe without a `uniqKey` in the body. {text} One message "
        f"has the key as its `uniqKey`; message N of several, from 0, has `KEY{SEPARATOR}N`. A "
        "`uniqKey` in the body takes precedence over the header.",
    }
