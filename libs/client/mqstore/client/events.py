"""Events of a store, and the messages of a topic as they arrive: streams that clients follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import ConfigDict, TypeAdapter

from mqstore.client import contract
from mqstore.client.methods import follows
from mqstore.client.requests import given
from mqstore.client.streams import Stream

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent

    from mqstore.wire.messages import Message, UnreadableMessage

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


def store_events(
    *, after: str | None = None, seconds: float | None = None, patience_s: float = PATIENCE_S
) -> Stream[StoreEvent]:
    """Stream the events of the store, from the oldest that is kept or after the id ``after``.

    The stream ends after ``seconds``. Without ``seconds`` it has no end: the client reconnects, and
    raises Unreachable when the service was unavailable for ``patience_s``.
    """
    params = given(seconds=seconds)
    ends = seconds is not None
    events = contract.stores.EVENTS
    return Stream(events.targets[0], events.path, _store_event, params, after, patience_s, ends)


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
    events = contract.messages.TOPIC_EVENTS
    return Stream(
        events.targets[0], events.path_for(topic=topic), _topic_event, params, after, patience_s
    )


def _store_event(sent: ServerSentEvent) -> StoreEvent:
    data = _OBJECT.validate_json(sent.data)
    kind, at_ms = data.pop("kind"), data.pop("atMs")
    if not isinstance(kind, str) or not isinstance(at_ms, int):
        raise ValueError(f"kind {kind!r}, atMs {at_ms!r}")
    return StoreEvent(sent.id, kind, at_ms, data)


def _topic_event(sent: ServerSentEvent) -> TopicEvent | None:
    if sent.event == "message":
        return TopicEvent(sent.id, contract.messages.Message.model_validate_json(sent.data))
    if sent.event == "unreadable":
        damaged = contract.messages.UnreadableMessage.model_validate_json(sent.data)
        return TopicEvent(sent.id, None, damaged)
    return None


class EventCalls:
    """Methods of both clients."""

    events = follows(store_events)
    follow = follows(topic_events)
