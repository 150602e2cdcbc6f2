"""The ``Idempotency-Key`` header: a request's key, from which its messages' unique keys follow.

A request of one message stores it under the key itself; message N (from 0) of several is stored
under ``KEY~N``. A retry so meets the unique keys of the first attempt, which the store knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

NAME: Final = "Idempotency-Key"
LENGTH_MAX: Final = 255
"""Characters of a key: what a unique key of a transaction may have, and more than any UUID."""
SEPARATOR: Final = "~"
"""Between a key and the number of a message; no key contains it, and no URL needs to escape it."""
_CHARACTERS: Final = r"[!#-.0-\[\]-}]"
"""Visible ASCII without quote, backslash, slash (unique keys are parts of paths) and separator."""
PATTERN: Final = f"{_CHARACTERS}{{1,{LENGTH_MAX}}}"


def unique_keys(key: str, count: int) -> list[str]:
    """The unique keys of a request's ``count`` messages, in their order."""
    return [key] if count == 1 else [f"{key}{SEPARATOR}{number}" for number in range(count)]


def other_keys(key: str, own: Sequence[str]) -> list[str]:
    """Unique keys that are known only where a request of another number of messages had this key:
    one message instead of several, several instead of one, or more. ``own`` are those of this one.
    """
    count = len(own)
    others = [f"{key}{SEPARATOR}0"] if count == 1 else [key, f"{key}{SEPARATOR}{count}"]
    return [each for each in others if each not in own]


def parameter(text: str) -> dict[str, Any]:
    """The header in an OpenAPI operation; ``text`` says what a retry is answered."""
    return {
        "name": NAME,
        "in": "header",
        "schema": {"type": "string", "pattern": f'^({PATTERN}|"{PATTERN}")$'},
        "example": '"8e03978e-40d5-43dd-bc93-6894a57f9324"',
        "description": f"Makes a retry safe without a `uniqKey` in the body. {text} One message "
        f"has the key as its `uniqKey`; message N of several, from 0, has `KEY{SEPARATOR}N`. A "
        "`uniqKey` in the body takes precedence over the header.",
    }
