"""Multi-dispatch: one record that is also an entry of further queues (light message queues).

A message whose INNER_MULTI_DISPATCH names queues gets INNER_MULTI_QUEUE_OFFSET, its offset in each
of them, before it is written. Called from ``commit_log`` under the put lock. Sources: MultiDispatch
of 4.9.7; LmqDispatch, MessageExtBrokerInner.needDispatchLMQ and MixAll.topicAllowsLMQ of 5.4.0.

Two cases that RocketMQ writes and cannot dispatch are rejected here: an empty or unsafe queue name,
and in 5.x a queue that is no ``%LMQ%`` queue (it gets an empty offset there, and none of the
record's queues an entry). A queue that is named twice advances once, as in 4.9.7 (5.4.0 leaves a
gap).
"""

from __future__ import annotations

import re
from typing import Final

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import LmqQueuesExceeded, MessageInvalid
from mqstore.storage.layout import (
    LMQ_PREFIX,
    MULTI_DISPATCH_SEPARATOR,
    NAME_VALUE_SEPARATOR,
    PROPERTY_MULTI_DISPATCH,
    PROPERTY_MULTI_QUEUE_OFFSET,
    PROPERTY_WAIT,
    SCHEDULE_TOPIC,
    StoreFormat,
)
from mqstore.storage.log.queue_offsets import QueueOffsets

Queue = tuple[str, int]
"""Topic and queue id."""

_NEEDLE: Final = (PROPERTY_MULTI_DISPATCH + NAME_VALUE_SEPARATOR).encode()
_QUEUE_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_LMQ_QUEUE_ID: Final = 0
QUEUES_MAX: Final = 1_000
"""Maximum number of further queues of one record that are used."""
_OFFSET_MAX: Final = 2**63 - 1
_OFFSET: Final = re.compile(r"[0-9]{1,19}")
_NO_LMQ_TOPICS: Final = ("%RETRY%", "rmq_sys_")


class MultiDispatch:
    """Numbers messages in their further queues.

    Call ``wrap`` and ``advance`` under the put lock.
    """

    def __init__(
        self, config: StoreConfig, store_format: StoreFormat, offsets: QueueOffsets
    ) -> None:
        self._offsets = offsets
        self._lmq = config.enable_lmq
        self._lmq_queues_max = config.max_lmq_consume_queue_num
        self._v5 = store_format is StoreFormat.V5_X
        self._trailing_separator = store_format.trailing_property_separator
        self._dropped: dict[str, None] = {} if self._v5 else {PROPERTY_WAIT: None}
        self._enabled = config.enable_lmq if self._v5 else config.enable_multi_dispatch

    def applies_to(self, message: Message) -> bool:
        """Whether ``wrap`` has work for this message; cheap when it has none."""
        if not self._enabled or _NEEDLE not in message.properties:
            return False
        named = properties.decode(message.properties).get(PROPERTY_MULTI_DISPATCH, "")
        return bool(named.strip()) and (not self._v5 or _has_light_queues(message.topic))

    def wrap(self, message: Message) -> tuple[Message, list[Queue]]:
        """Add the message's offset in each further queue; returns the message and those queues.

        4.9 also drops WAIT, which 5.x keeps. Raises MessageInvalid, LmqQueuesExceeded.
        """
        queues = self.queues(message)
        numbers = MULTI_DISPATCH_SEPARATOR.join(str(self._offsets.next(*q)) for q in queues)
        encoded = properties.replace(
            message.properties,
            {PROPERTY_MULTI_QUEUE_OFFSET: numbers, **self._dropped},
            trailing_separator=self._trailing_separator,
        )
        return message.replace(properties=encoded), queues

    def queues(self, message: Message) -> list[Queue]:
        """The further queues that a message names. Any thread. Raises as ``wrap``."""
        named = properties.decode(message.properties)[PROPERTY_MULTI_DISPATCH]
        return self._queues(named, message.queue_id)

    def advance(self, queues: list[Queue]) -> None:
        """Count a placed record in each of its further queues."""
        for queue in dict.fromkeys(queues):
            self._offsets.advance(*queue)

    def _queues(self, named: str, queue_id: int) -> list[Queue]:
        names = named.rstrip(MULTI_DISPATCH_SEPARATOR).split(MULTI_DISPATCH_SEPARATOR)
        queues = [self._queue(name, queue_id) for name in names]
        new = {q for q in queues if q[0].startswith(LMQ_PREFIX) and not self._offsets.knows(*q)}
        if new and self._offsets.lmq_queues + len(new) > self._lmq_queues_max:
            raise LmqQueuesExceeded(
                f"{len(new)} new light message queues beside {self._offsets.lmq_queues} are over "
                f"maxLmqConsumeQueueNum ({self._lmq_queues_max}); delete some, or raise it"
            )
        return queues

    def _queue(self, name: str, queue_id: int) -> Queue:
        if not _QUEUE_NAME.fullmatch(name):
            raise MessageInvalid(
                f"{PROPERTY_MULTI_DISPATCH} names the queue {name!r}; "
                "use letters, digits and any of % | _ -"
            )
        if self._lmq and name.startswith(LMQ_PREFIX):
            return name, _LMQ_QUEUE_ID
        if self._v5:
            raise MessageInvalid(
                f"{PROPERTY_MULTI_DISPATCH} names {name!r}, which is no {LMQ_PREFIX} queue; "
                "a 5.x store dispatches only to those"
            )
        return name, queue_id


def dispatched_queues(found: Record, store_format: StoreFormat) -> list[tuple[str, int]]:
    """The further queues in which a stored record has an entry, and its offset in each.

    In 5.x a copy that waits or is delivered again has none: it names those of its original.
    """
    if store_format is StoreFormat.V5_X and not _has_light_queues(found.topic):
        return []
    return further_queues(found)


def _has_light_queues(topic: str) -> bool:
    """Whether a broker of 5.x puts messages of a topic into light queues too."""
    return not topic.startswith(_NO_LMQ_TOPICS) and topic != SCHEDULE_TOPIC


def further_queues(found: Record) -> list[tuple[str, int]]:
    """The further queues that a stored record names, and its offset in each.

    Empty where the two properties do not match; a value that is no offset is left out.
    """
    table = found.properties or {}
    names = _split(table.get(PROPERTY_MULTI_DISPATCH, ""))
    offsets = _split(table.get(PROPERTY_MULTI_QUEUE_OFFSET, ""))
    if len(names) != len(offsets) or len(names) > QUEUES_MAX:
        return []
    return [
        (name, int(text))
        for name, text in zip(names, offsets, strict=True)
        if _OFFSET.fullmatch(text) and int(text) <= _OFFSET_MAX
    ]


def _split(text: str) -> list[str]:
    """Split as Java's String.split: no empty parts at the end."""
    stripped = text.rstrip(MULTI_DISPATCH_SEPARATOR)
    return stripped.split(MULTI_DISPATCH_SEPARATOR) if stripped.strip() else []
