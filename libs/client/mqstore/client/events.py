"""Streams of server-sent events (the HTML standard's ``text/event-stream``): events of a store, and
the messages of a topic as they arrive.

After a stream is lost, or ended by its service, it is requested again after the last event received
(``Last-Event-ID``). The pause is what the service sent as ``retry``, doubled after each failure.
Does no input or output.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from httpx_sse import ServerSentEvent
from pydantic import ConfigDict, TypeAdapter

from mqstore.client.errors import ClientError, EventUnknown, Unreachable
from mqstore.client.requests import given
from mqstore.client.retries import is_transient, pause_s
from mqstore.wire.messages import TOPIC_EVENTS, Message, UnreadableMessage
from mqstore.wire.operation import Target
from mqstore.wire.stores import EVENTS

Event = TypeVar("Event")

HEARTBEAT_S: Final = 15.0
"""Longest interval between bytes of a stream: services send a comment when it is idle."""
RETRY_S: Final = 1.0
"""Pause before a reconnection, unless the service has sent ``retry``."""
PATIENCE_S: Final = 60.0
_OBJECT: Final = TypeAdapter(dict[str, Any], config=ConfigDict(defer_build=True))


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """An event of a store. ``events(after=id)`` continues after it."""

    id: str
    kind: str
    at_ms: int
    data: dict[str, Any]
    """Fields that depend on the kind."""


@dataclass(frozen=True, slots=True)
class TopicEvent:
    """A message of a topic, or a damaged one. ``follow(after=id)`` continues after it."""

    id: str
    message: Message | None
    unreadable: UnreadableMessage | None = None


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


def store_events(
    *, after: str | None = None, seconds: float | None = None, patience_s: float = PATIENCE_S
) -> Stream[StoreEvent]:
    """Stream the events of the store, from the oldest that is kept or after the id ``after``.

    The stream ends after ``seconds``. Without ``seconds`` it has no end: the client reconnects, and
    raises Unreachable when the service was unavailable for ``patience_s``.
    """
    params = given(seconds=seconds)
    ends = seconds is not None
    return Stream(EVENTS.targets[0], EVENTS.path, _store_event, params, after, patience_s, ends)


def topic_events(
    topic: str,
    *,
    after: str | None = None,
    from_ms: int | None = None,
    tags: str | None = None,
    sql: str | None = None,
    inflate: bool | None = None,
    shard: int | None = None,
    patience_s: float = PATIENCE_S,
) -> Stream[TopicEvent]:
    """Stream each message of a topic once, in the order of the log, without end.

    It begins with the next message to arrive, with those stored at ``from_ms`` or later, or after
    the event ``after``. ``tags``, ``sql`` and ``shard`` are as in ``pull``. The client reconnects,
    and raises Unreachable when the service was unavailable for ``patience_s``.
    """
    params = given(tags=tags, sql=sql, inflate=inflate, shard=shard, **{"from": from_ms})
    path = TOPIC_EVENTS.path_for(topic=topic)
    return Stream(TOPIC_EVENTS.targets[0], path, _topic_event, params, after, patience_s)


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


def _store_event(sent: ServerSentEvent) -> StoreEvent:
    data = _OBJECT.validate_json(sent.data)
    kind, at_ms = data.pop("kind"), data.pop("atMs")
    if not isinstance(kind, str) or not isinstance(at_ms, int):
        raise ValueError(f"kind {kind!r}, atMs {at_ms!r}")
    return StoreEvent(sent.id, kind, at_ms, data)


def _topic_event(sent: ServerSentEvent) -> TopicEvent | None:
    if sent.event == "message":
        return TopicEvent(sent.id, Message.model_validate_json(sent.data))
    if sent.event == "unreadable":
        return TopicEvent(sent.id, None, UnreadableMessage.model_validate_json(sent.data))
    return None
