"""The ``Idempotency-Key`` header of hot routes; ``mqstore.wire.idempotency`` defines it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from mqstore.service import problems
from mqstore.service.http import HotRequest
from mqstore.service.problems import Problem
from mqstore.wire.idempotency import LENGTH_MAX, NAME, PATTERN, SEPARATOR, unique_keys

_KEY: Final = re.compile(PATTERN)
_HEADER: Final = NAME.lower().encode()


class NewMessage(Protocol):
    """A message of a request, whose unique key may be set."""

    uniq_key: str | None


def read(request: HotRequest) -> str | None:
    """Return the request's key; None without the header. Raises Problem (400)."""
    given: list[bytes] = [value for name, value in request.scope["headers"] if name == _HEADER]
    if not given:
        return None
    if len(given) > 1:
        raise Problem(problems.BAD_PARAMETER, f"{NAME} is given {len(given)} times; send it once")
    text = given[0].decode("latin-1").strip()
    key = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if _KEY.fullmatch(key) is None:
        raise Problem(
            problems.BAD_PARAMETER,
            f"{NAME} is 1 to {LENGTH_MAX} visible ASCII characters, in quotes or not, other than "
            f'" \\ / and {SEPARATOR}; this one has {len(key)}: {text[:100]!r}',
        )
    return key


def provide(key: str, messages: Sequence[NewMessage]) -> None:
    """Set the unique key of each message without one, derived from the request's key."""
    for message, unique_key in zip(messages, unique_keys(key, len(messages)), strict=True):
        if message.uniq_key is None:
            message.uniq_key = unique_key
