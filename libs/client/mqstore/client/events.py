"""Streams of server-sent events (the HTML standard's ``text/event-stream``): what happens in a
store, and the messages of a topic as they arrive.

A stream that broke off, or that its service ended, is taken up again behind the last event that was
seen (``Last-Event-ID``): after the pause that the service asks for (``retry``), twice as long each
time that it is not there. Nothing here does input or output.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from httpx_sse import ServerSentEvent
from pydantic import TypeAdapter

from mqstore.client.errors import ClientError, EventUnknown, Unreachable
from mqstore.client.requests import given
from mqstore.client.retries import is_transient, pause_s
from mqstore.wire.messages import Message, UnreadableMessage
from mqstore.wire.operation import Target
from mqstore.wire.operations.lookups import TOPIC_EVENTS
from mqstore.wire.operations.stores import EVENTS

Event = TypeVar("Event")

HEARTBEAT_S: Final = 15.0
"""Something comes at least so often, if only to say that the connection lives."""
RETRY_S: Final = 1.0
"""Until the service has said how long to wait."""
PATIENCE_S: Final = 60.0
_OBJECT: Final = TypeAdapter(dict[str, Any])


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One thing that happened; ``id`` is what ``events(after=...)`` goes on behind."""

    id: str
    kind: str
    at_ms: int
    data: dict[str, Any]
    """What belongs to the kind."""


@dataclass(frozen=True, slots=True)
class TopicEvent:
    """A message of a topic, or a damaged one; ``follow(after=...)`` goes on behind its ``id``."""

    id: str
    message: Message | None
    unreadable: UnreadableMessage | None = None


@dataclass(frozen=True, slots=True)
class Stream(Generic[Event]):
    """One request whose answer is events."""

    target: Target
    path: str
    read: Callable[[ServerSentEvent], Event | None]
    """None for what only says where the stream is."""
    params: Mapping[str, Any]
    after: str | None
    patience_s: float
    ends: bool = False
    """The service's end of it is its end."""


def store_events(
    *, after: str | None = None, seconds: float | None = None, patience_s: float = PATIENCE_S
) -> Stream[StoreEvent]:
    """What happened in the store, from the oldest event that is kept or behind the one with the id
    ``after``, and what happens: for ``seconds``, or without end. Then a service that went away is
    waited for, Unreachable is raised once it was gone for ``patience_s``."""
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
    """Each message of a topic, without end, in the order of the log and each once: what arrives
    from now on, what was stored at ``from_ms`` or later, or what stands behind the event ``after``.
    ``tags``, ``sql`` and ``shard`` are as in ``pull``. A service that went away is waited for,
    Unreachable is raised once it was gone for ``patience_s``."""
    params = given(tags=tags, sql=sql, inflate=inflate, shard=shard, **{"from": from_ms})
    path = TOPIC_EVENTS.path_for(topic=topic)
    return Stream(TOPIC_EVENTS.targets[0], path, _topic_event, params, after, patience_s)


class Place(Generic[Event]):
    """Where a stream is, and when it is asked for again."""

    def __init__(self, stream: Stream[Event], clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = stream
        self._clock = clock
        self._last_id = stream.after
        self._retry_s = RETRY_S
        self._attempts = 0
        """Since something came."""
        self._has_begun = False
        self._gone_since: float | None = None

    def headers(self) -> dict[str, str]:
        found = {"accept": "text/event-stream", "cache-control": "no-store"}
        return found if self._last_id is None else found | {"last-event-id": self._last_id}

    def take(self, sent: ServerSentEvent) -> Event | None:
        """What was sent, if it is an event. Raises EventUnknown for what cannot be read."""
        self._has_begun, self._attempts, self._gone_since = True, 0, None
        if sent.retry is not None:
            self._retry_s = sent.retry / 1000
        if not sent.data:
            return None
        try:
            event = self.stream.read(sent)
        except (ValueError, KeyError) as error:
            what = f"{self.stream.path} sent what this client does not know: {sent.data[:100]}"
            raise EventUnknown(what, sent.id) from error
        self._last_id = sent.id or self._last_id
        return event

    def pause_s(self, failure: ClientError | None) -> float | None:
        """Until the next attempt, after the connection failed or (None) was ended by the service.

        None: the stream is over. Raises ``failure``, or Unreachable, where it is given up.
        """
        if self.stream.ends or not self._has_begun or not is_transient(failure):
            if failure is not None:
                raise failure
            if self.stream.ends:
                return None
        now = self._clock()
        self._gone_since = now if self._gone_since is None else self._gone_since
        if now - self._gone_since > self.stream.patience_s:
            raise failure or Unreachable(
                f"{self.stream.path}: the service ended it again and again"
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
