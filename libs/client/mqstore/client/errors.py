"""The errors of the client.

::

    ClientError
    ├── Unreachable     no complete reply; the request may have taken effect
    ├── BufferFull      a producer has no room for a message
    ├── EventUnknown    an event of a stream that this client cannot decode
    └── ProblemError    an error reply of the service (RFC 9457)
"""

from __future__ import annotations

from typing import Any

_PREFIX = "urn:mqstore:problem:"


class ClientError(Exception):
    """Base of all errors of this client."""


class Unreachable(ClientError):
    """No complete reply was received. If ``was_sent``, the request may have taken effect."""

    def __init__(self, text: str, *, was_sent: bool = True) -> None:
        super().__init__(text)
        self.was_sent = was_sent
        """False if no connection was made."""


class BufferFull(ClientError):
    """A producer holds as many messages as it may; the message was not accepted."""


class EventUnknown(ClientError):
    """An event that this client cannot decode. To continue, request the events ``after`` it."""

    def __init__(self, reason: str, after: str) -> None:
        """``after`` is the id of the event; empty if it has none."""
        super().__init__(reason)
        self.after = after


class ProblemError(ClientError):
    """An error reply of a service, with its problem details."""

    def __init__(
        self, status: int, problem: dict[str, Any], *, retry_after_s: float | None = None
    ) -> None:
        """``retry_after_s`` is the service's Retry-After, or None."""
        self.status = status
        self.retry_after_s = retry_after_s
        self.problem = problem
        self.type = str(problem.get("type", "about:blank")).removeprefix(_PREFIX)
        self.detail = str(problem.get("detail", ""))
        super().__init__(f"{self.type} ({status}): {self.detail}")
