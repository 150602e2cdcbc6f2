"""Streams of server-sent events (the HTML standard's ``text/event-stream``).

After a stream is lost, or ended by its service, it is requested again after the last event received
(``Last-Event-ID``). The pause is what the service sent as ``retry``, doubled after each failure.
Does no input or output.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from mqstore.client.errors import ClientError, EventUnknown, Unreachable
from mqstore.client.retries import is_transient, pause_s
from mqstore.wire.operation import Target

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent

Event = TypeVar("Event")

HEARTBEAT_S: Final = 15.0
"""Longest interval between bytes of a stream: services send a comment when it is idle."""
RETRY_S: Final = 1.0
"""Pause before a reconnection, unless the service has sent ``retry``."""


@dataclass(frozen=True, slots=True)
class Stream(Generic[Event]):
    """A request whose reply is a stream of events."""

    target: Target
    path: str
    read: Callable[[ServerSentEvent], Event | None]
    """Decodes an event; returns None for one that only updates the position in the stream."""
    params: Mapping[str, Any]
    after: str | None
    patience_s: float
    ends: bool = False
    """Whether the stream is complete when the service ends it; otherwise reconnect."""


class Place(Generic[Event]):
    """The position in a stream, and the time of its next attempt. Not thread-safe."""

    def __init__(self, stream: Stream[Event], clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = stream
        self._clock = clock
        self._last_id = stream.after
        self._retry_s = RETRY_S
        self._attempts = 0
        """Failed attempts since the last event."""
        self._has_begun = False
        self._unavailable_since: float | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers of the next request."""
        found = {"accept": "text/event-stream", "cache-control": "no-store"}
        return found if self._last_id is None else found | {"last-event-id": self._last_id}

    def take(self, sent: ServerSentEvent) -> Event | None:
        """Decode what the service sent; None if it is no event. Raises EventUnknown."""
        self._has_begun, self._attempts, self._unavailable_since = True, 0, None
        if sent.retry is not None:
            self._retry_s = sent.retry / 1000
        if not sent.data:
            return None
        try:
            event = self.stream.read(sent)
        except (ValueError, KeyError) as error:
            what = f"{self.stream.path}: this client cannot decode the event {sent.data[:100]}"
            raise EventUnknown(what, sent.id) from error
        self._last_id = sent.id or self._last_id
        return event

    def pause_s(self, failure: ClientError | None) -> float | None:
        """Return the seconds until the next attempt, or None if the stream is complete.

        ``failure`` is None if the service ended the connection. Raises ``failure``, or Unreachable,
        if there is no further attempt.
        """
        if self.stream.ends or not self._has_begun or not is_transient(failure):
            if failure is not None:
                raise failure
            if self.stream.ends:
                return None
        now = self._clock()
        if self._unavailable_since is None:
            self._unavailable_since = now
        if now - self._unavailable_since > self.stream.patience_s:
            raise failure or Unreachable(
                f"{self.stream.path}: the service ended each connection without an event"
            )
        self._attempts += 1
        return pause_s(self._attempts - 1, self._retry_s)
