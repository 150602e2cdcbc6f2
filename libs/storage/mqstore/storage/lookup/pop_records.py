"""Records of RocketMQ's POP consumers: what a group has taken, and what it acknowledged.

A broker stores a checkpoint for each batch that a POP consumer takes, and an acknowledgement for
each message, as messages with a time for the topic ``rmq_sys_REVIVE_LOG_CLUSTER``. They arrive
there once the time for an acknowledgement is over. Source: PopCheckPoint, AckMsg, BatchAckMsg,
KeyBuilder and PopReviveService of 5.4.0; 4.9.7 has no POP.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from mqstore.storage.codec.record import Record
from mqstore.storage.layout import PROPERTY_REAL_TOPIC, PROPERTY_TAGS, TIMER_TOPIC
from mqstore.storage.topic_names import RETRY_PREFIX

REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""The group whose offset in a revive queue is that of the last checkpoint that was settled."""
_CHECKPOINT: Final = "ck"
_ACKNOWLEDGEMENTS: Final = ("ack", "bAck")
_BITS: Final = 32
"""Messages of one checkpoint at most: the bits of its bit map."""
_SEPARATORS: Final = "+_"
"""Between group and topic in the name of a POP retry topic: of enableRetryTopicV2, and without."""

Batch = tuple[str, str, int, int, int]
"""Topic, group, queue id, first offset and time of taking: the identity of a batch."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A batch that a POP consumer took."""

    batch: Batch
    offsets: tuple[int, ...]
    """Queue offsets of the messages that were not acknowledged when it was stored."""
    due_ms: int
    """When messages without an acknowledgement are delivered again."""

    @property
    def topic(self) -> str:
        """The topic that the messages were taken from; a retry topic too."""
        return self.batch[0]

    @property
    def group(self) -> str:
        """The group that took them."""
        return self.batch[1]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Messages of a batch that the group acknowledged."""

    batch: Batch
    offsets: tuple[int, ...]


def decode(found: Record) -> Checkpoint | Acknowledgement | None:
    """Read a record of a revive topic, or one that waits for it; None for any other."""
    properties = found.properties or {}
    topic = found.topic
    if topic == TIMER_TOPIC:
        topic = properties.get(PROPERTY_REAL_TOPIC, "")
    tag = properties.get(PROPERTY_TAGS)
    if not topic.startswith(REVIVE_PREFIX) or tag not in (_CHECKPOINT, *_ACKNOWLEDGEMENTS):
        return None
    try:
        content = json.loads(found.body)
        return _checkpoint(content) if tag == _CHECKPOINT else _acknowledgement(content)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def retry_topics(group: str, topic: str) -> tuple[str, ...]:
    """The possible POP retry topics of a group and a topic."""
    return tuple(f"{RETRY_PREFIX}{group}{separator}{topic}" for separator in _SEPARATORS)


def source_of(retry_topic: str, group: str) -> str | None:
    """The topic of a group's POP retry topic; None for the name of another topic."""
    head = RETRY_PREFIX + group
    rest = retry_topic.removeprefix(head) if retry_topic.startswith(head) else ""
    return rest[1:] or None if rest[:1] and rest[0] in _SEPARATORS else None


def _checkpoint(content: Any) -> Checkpoint:
    first, count = int(content["so"]), min(int(content["n"]), _BITS)
    steps = content.get("d") or range(count)
    acknowledged = int(content.get("bm", 0))
    offsets = tuple(
        first + int(step)
        for number, step in enumerate(steps[:count])
        if not acknowledged >> number & 1
    )
    return Checkpoint(_batch(content), offsets, int(content["pt"]) + int(content["it"]))


def _acknowledgement(content: Any) -> Acknowledgement:
    offsets = content["aol"] if "aol" in content else [content["ao"]]
    return Acknowledgement(_batch(content), tuple(int(offset) for offset in offsets))


def _batch(content: Any) -> Batch:
    topic, group = str(content["t"]), str(content["c"])
    return topic, group, int(content["q"]), int(content["so"]), int(content["pt"])
