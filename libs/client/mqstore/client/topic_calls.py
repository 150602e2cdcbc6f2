"""Requests about topics, as values that both clients send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from mqstore.client import contract
from mqstore.client.methods import sends
from mqstore.client.requests import Call, call, document, given

if TYPE_CHECKING:
    from mqstore.wire.topics import ChangedTopic, Topic, TopicDeletion, Topics


def create_topic(topic: str, *, queues: int = 4, perm: int = 6) -> Call[ChangedTopic]:
    """Create a topic, or change its queues."""
    body = document(contract.topics.PUT_TOPIC, queues=queues, perm=perm)
    return call(contract.topics.PUT_TOPIC, at={"topic": topic}, json=body)


def change_topic(
    topic: str,
    *,
    queues: int | None = None,
    read_queues: int | None = None,
    write_queues: int | None = None,
    perm: Literal[2, 4, 6] | None = None,
    order: bool | None = None,
    filter_type: Literal["SINGLE_TAG", "MULTI_TAG"] | None = None,
    attributes: Mapping[str, str] | None = None,
    allow_unread: bool | None = None,
    dry_run: bool | None = None,
) -> Call[ChangedTopic]:
    """Create a topic, or change the given settings of one.

    ``queues`` sets the queues to read and to write; ``perm`` is 2 (write), 4 (read) or 6 (both).
    Queues that groups have not consumed are taken away only with ``allow_unread``. ``dry_run``
    returns what a change would hide, and changes nothing.
    """
    fields = document(
        contract.topics.PUT_TOPIC,
        queues=queues,
        read_queues=read_queues,
        write_queues=write_queues,
        perm=perm,
        order=order,
        filter_type=filter_type,
        attributes=attributes,
        allow_unread=allow_unread,
        dry_run=dry_run,
    )
    return call(contract.topics.PUT_TOPIC, at={"topic": topic}, json=fields)


def delete_topic(topic: str, *, dry_run: bool = False) -> Call[TopicDeletion]:
    """Delete a topic with its queues; its messages stay in the log until they expire."""
    params = {"dryRun": dry_run}
    return call(contract.topics.DELETE_TOPIC, at={"topic": topic}, params=params)


def topic(name: str) -> Call[Topic]:
    """Return the settings of a topic."""
    return call(contract.topics.TOPIC, at={"topic": name})


def topics(*, limit: int | None = None, cursor: str | None = None) -> Call[Topics]:
    """List topics, by name, up to 1,000 at once; ``mqstore.client.every_page`` lists all."""
    return call(contract.topics.TOPICS, params=given(limit=limit, cursor=cursor))


class TopicCalls:
    """Methods of both clients."""

    create_topic = sends(create_topic)
    topic = sends(topic)
    topics = sends(topics)
    change_topic = sends(change_topic)
    delete_topic = sends(delete_topic)
