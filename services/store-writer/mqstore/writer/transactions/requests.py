"""From a producer's request to a transaction to begin: checks, properties, queues."""

from __future__ import annotations

import time
from typing import Final

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.service.transaction_structs import NewHalf, TransactionSpec
from mqstore.storage import topic_names
from mqstore.storage.admin import TopicConfig
from mqstore.storage.formats import (
    KEY_SEPARATOR,
    PROPERTY_CHECK_IMMUNITY,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    StoreFormat,
)
from mqstore.storage.puts import QueueTurns, UniqueKeys
from mqstore.storage.transactions import Begin, NewRecord
from mqstore.wire.produce import body_bytes

PROPERTIES_SIZE_MAX: Final = 30 << 10
"""Bytes of a message's properties. Its half message has more of them, and the copy that a check
writes has more again; without room for these the transaction could not be checked."""


class BeginRequests:
    """Used on the event loop only."""

    def __init__(self, keys: UniqueKeys, turns: QueueTurns) -> None:
        """``turns`` chooses the queue of messages that name none."""
        self._keys = keys
        self._turns = turns

    def read(self, spec: TransactionSpec, topic: TopicConfig, born_host: str) -> Begin:
        """The transaction to begin; ``born_host`` is ``address:port`` of the producer.

        Raises Problem, GroupNameError, PropertyError.
        """
        topic_names.check_group(spec.producer_group)
        turn = self._turns.take(topic.write_queues)
        now_ms = time.time_ns() // 1_000_000
        messages = []
        for each in spec.messages:
            table = self._properties(each, spec.check_immunity_seconds)
            queue = turn if each.queue_id is None else each.queue_id
            if queue >= topic.write_queues:
                raise Problem(problems.MESSAGE_INVALID, f"topic {spec.topic} has no queue {queue}")
            messages.append(
                NewRecord(spec.topic, queue, _body(each), table, born_host, now_ms, each.flag)
            )
        given = [each.uniq_key for each in spec.messages if each.uniq_key is not None]
        if len(set(given)) < len(given):
            raise Problem(
                problems.BODY_INVALID, "two messages have one uniqKey; each needs its own"
            )
        return Begin(
            spec.producer_group, messages, may_repeat=spec.messages[0].uniq_key is not None
        )

    def _properties(self, message: NewHalf, immunity_s: int | None) -> dict[str, str]:
        table = dict(message.properties)
        for name, value in table.items():
            topic_names.check_user_property(name, value, StoreFormat.V5_X)
        if message.keys:
            for key in message.keys:
                topic_names.check_key(key)
            table[PROPERTY_KEYS] = KEY_SEPARATOR.join(message.keys)
        if message.uniq_key is not None:
            topic_names.check_key(message.uniq_key)
        table[PROPERTY_UNIQ_KEY] = message.uniq_key or self._keys.next()
        if message.tags:
            topic_names.check_tag(message.tags)
            table[PROPERTY_TAGS] = message.tags
        if immunity_s is not None:
            table[PROPERTY_CHECK_IMMUNITY] = str(immunity_s)
        size = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in table.items())
        if size > PROPERTIES_SIZE_MAX:
            raise Problem(
                problems.PROPERTY_INVALID,
                f"properties of {size} bytes are over {PROPERTIES_SIZE_MAX}, what a message of a "
                "transaction may have; send fewer or shorter ones",
            )
        return table


def _body(message: NewHalf) -> bytes:
    """The message's body, of one byte at least: RocketMQ's clients send no empty one, and a broker
    of 5.x that checks a half message without a body reads no half message behind it. Raises
    Problem."""
    try:
        body = body_bytes(message.body, message.body_base64)
    except ValueError as error:
        raise Problem(problems.BODY_INVALID, str(error)) from None
    if not body:
        raise Problem(
            problems.MESSAGE_INVALID, "a message has no body: a broker could not check it; give one"
        )
    return body
