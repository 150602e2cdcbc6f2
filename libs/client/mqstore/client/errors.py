"""What can go wrong when a service is called.

::

    ClientError
    ├── Unreachable     no answer: refused, timed out, broken off; the request may have been done
    ├── EventUnknown    an event of a stream that this client cannot read
    └── ProblemError    the service answered an error (RFC 9457)
"""

from __future__ import annotations

from typing import Any

_PREFIX = "urn:mqstore:problem:"


class ClientError(Exception):
    """Base of all errors of this client."""


class Unreachable(ClientError):
    """No whole answer came. A produce may have been stored all the same, if it ``was_sent``."""

    def __init__(self, text: str, *, was_sent: bool = True) -> None:
        super().__init__(text)
        self.was_sent = was_sent
        """False where no connection was made."""


class EventUnknown(ClientError):
    """An event that this client cannot read; whoever asks for what came ``after`` it goes on."""

    def __init__(self, reason: str, after: str) -> None:
        """``after`` is its id, empty where it has none."""
        super().__init__(reason)
        self.after = after


class ProblemError(ClientError):
    """A service's problem details."""

    def __init__(
        self, status: int, problem: dict[str, Any], *, retry_after_s: float | None = None
    ) -> None:
        """``retry_after_s``: when the service takes the same request again, where it says so."""
        self.status = status
        self.retry_after_s = retry_after_s
        self.problem = problem
        self.type = str(problem.get("type", "about:blank")).removeprefix(_PREFIX)
        self.detail = str(problem.get("detail", ""))
        super().__init__(f"{self.type} ({status}): {self.detail}")
