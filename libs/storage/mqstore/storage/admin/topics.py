"""Creates, changes, lists and deletes topics with their queues.

Source: AdminBrokerProcessor, TopicConfigManager and DefaultMessageStore of 4.9.7 and 5.4.0. As in
5.4.0 a deletion removes the topic's config, its queues' files and the groups' offsets in it. Its
messages stay in the log until retention removes them, and are found by id and key.
``metadata.deleted_topics`` keeps the facts that RocketMQ has no file for.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final, NamedTuple

from mqstore.storage import topic_names
from mqstore.storage.admin.group_offsets import GroupOffsets
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import (
    ConfigTableError,
    LimitReached,
    QueuesIncomplete,
    TopicConfigError,
    TopicUnknown,
)
from mqstore.storage.layout import StoreFormat
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.metadata.deleted_topics import DeletedTopics
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.seams import Clock
from mqstore.storage.tables.config_tables import (
    PERM_INHERIT,
    PERM_READ_WRITE,
    TopicConfig,
    TopicTable,
)

QUEUES_MAX: Final = 65_536
"""Maximum number of queues of one topic."""
TEMPLATE_TOPIC: Final = "TBW102"
"""The topic after which a broker with autoCreateTopicEnable makes others."""
FILTER_TYPES: Final = frozenset({"SINGLE_TAG", "MULTI_TAG"})
_ATTRIBUTES: Final[Mapping[str, frozenset[str]]] = {
    "queue.type": frozenset({"SimpleCQ"}),
    "cleanup.policy": frozenset({"DELETE"}),
    "message.type": frozenset(
        {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY"}
    ),
}
"""TopicAttributes of 5.4.0, without the values that need another kind of queue than ours."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """The changes to a topic; None keeps a field, or takes RocketMQ's default."""

    read_queues: int | None = None
    write_queues: int | None = None
    perm: int | None = None
    order: bool | None = None
    filter_type: str | None = None
    attributes: Mapping[str, str] | None = None
    """5.x only."""

    def of(self, topic: TopicConfig) -> TopicConfig:
        """The topic's config with these changes."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return replace(topic, **{k: v for k, v in fields.items() if v is not None})


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """The parts of a store that a topic's deletion removes."""

    topic: str
    queues: int
    messages: int
    """Queue entries; the messages themselves stay in the log until retention removes them."""
    groups: tuple[str, ...]
    """Groups whose offsets in the topic are removed too."""


@dataclass(frozen=True, slots=True)
class QueueReduction:
    """The messages that no consumer can receive any more after a change of a topic's queues."""

    queues: int = 0
    """Number of queues that are taken away."""
    messages: int = 0
    """Messages in them."""
    unread: Mapping[str, int] = field(default_factory=dict)
    """Those that a group of the topic has not consumed, by group."""

    groups: int = 0
    """Number of groups that consume the topic."""

    @property
    def is_unread(self) -> bool:
        """Whether a group has not consumed all of them, or there is no group."""
        return self.messages > 0 and (bool(self.unread) or self.groups == 0)


class _Usage(NamedTuple):
    """The topics and queues that count, in one version of the table."""

    revision: int = -1
    topics: int = 0
    queues: int = 0


class Topics:
    """Lists, changes and deletes topics. Thread-safe; a change is durable when its call returns."""

    def __init__(
        self,
        table: TopicTable,
        store_format: StoreFormat,
        log: CommitLog,
        queues: ConsumeQueues,
        deleted: DeletedTopics,
        clock: Clock,
        drop_queues: Callable[[str], None],
        config: StoreConfig,
        require_writable: Callable[[], None],
    ) -> None:
        """``drop_queues`` removes a topic's entries below its note while dispatch is paused;
        ``require_writable`` raises StoreNotWritable or StoreFailed where nothing may change."""
        self._require_writable = require_writable
        self._table = table
        self._format = store_format
        self._log = log
        self._queues = queues
        self._deleted = deleted
        self._clock = clock
        self._drop_queues = drop_queues
        self._topics_max, self._queues_max = config.max_topics, config.max_queues
        self._queues_new = config.default_topic_queue_nums
        self._lock = Lock()
        self._usage = _Usage()

    def all(self) -> list[TopicConfig]:
        """Every topic of topics.json, and topics that only have queues, by name."""
        known = {topic.name: topic for topic in self._table.all()}
        for name in self._queues.topics():
            if name not in known:
                known[name] = self._from_queues(name)
        return [topic for _, topic in sorted(known.items())]

    def page(self, after: str, limit: int) -> tuple[list[TopicConfig], bool]:
        """The topics behind a name, by name, and whether there are more."""
        names = (each for each in self._table.names().union(self._queues.topics()) if each > after)
        first = heapq.nsmallest(limit + 1, names)
        found = [self._table.get(name) or self._from_queues(name) for name in first[:limit]]
        return found, len(first) > limit

    def count(self) -> int:
        """The number of ``all``."""
        return len(self._table.names().union(self._queues.topics()))

    def get(self, name: str) -> TopicConfig:
        """The topic of this name. Raises TopicUnknown."""
        found = self._table.get(name)
        if found is not None:
            return found
        if self._queues.queue_ids(name):
            return self._from_queues(name)
        raise TopicUnknown(
            f"there is no topic {name}; GET /v1/topics lists the topics, and PUT /v1/topics/NAME "
            f"creates one (`mqstore topic ls`, `mqstore topic create {name}`)"
        )

    def plan_change(self, name: str, change: TopicChange, offsets: GroupOffsets) -> QueueReduction:
        """The messages that a change of a topic would hide: consumers receive from as many queues
        as the topic has to read or to write. Raises TopicNameError, TopicConfigError."""
        topic_names.check_new_topic(name, self._format)
        before = self._table.get(name)
        after = change.of(before or TopicConfig(name))
        self._check(after)
        if before is None or after.queues >= before.queues:
            return QueueReduction()
        gone = [
            queue
            for queue in self._queues.of_topic(name)
            if after.queues <= queue.queue_id < before.queues
        ]
        groups = [group for group, topics in offsets.groups().items() if name in topics]
        unread = {}
        for group in sorted(groups):
            lag = sum(offsets.stand(group, name, queue.queue_id).lag for queue in gone)
            if lag:
                unread[group] = lag
        return QueueReduction(
            before.queues - after.queues,
            sum(queue.max_index - queue.min_index for queue in gone),
            unread,
            len(groups),
        )

    def put(self, name: str, change: TopicChange) -> TopicConfig:
        """Create a topic, or change it.

        Raises TopicNameError, TopicConfigError, LimitReached, StoreNotWritable, StoreFailed,
        OSError.
        """
        self._require_writable()
        topic_names.check_new_topic(name, self._format)
        with self._lock:
            before = self._table.get(name)
            topic = change.of(before or TopicConfig(name))
            self._check(topic)
            usage = self._require_room(before, topic)
            self._table.put(topic)
            self._usage = usage._replace(revision=self._table.revision)
        self._table.save_changes()
        return topic

    def create_by_producer(self, name: str) -> TopicConfig:
        """Create a topic for its first message, as a broker does (createTopicInSendMessageMethod):
        after the topic TBW102, where the store has it.

        Raises TopicUnknown where TBW102 is not inherited, and as ``put``.
        """
        template = None if topic_names.returning_group(name) else self._table.get(TEMPLATE_TOPIC)
        if template is None:
            return self.put(name, TopicChange(self._queues_new, self._queues_new, PERM_READ_WRITE))
        if not template.is_inherited:
            raise TopicUnknown(
                f"there is no topic {name}, and producers create none: the perm {template.perm} of "
                f"{TEMPLATE_TOPIC} is without 1 (inherit); create it: mqstore topic create {name}"
            )
        queues = min(self._queues_new, template.write_queues)
        perm, kind = template.perm & ~PERM_INHERIT, template.filter_type
        return self.put(name, TopicChange(queues, queues, perm, filter_type=kind))

    def plan_delete(self, name: str, offsets: GroupOffsets) -> TopicDeletion:
        """The parts that a deletion would remove. Raises TopicNameError, TopicUnknown."""
        topic_names.check_new_topic(name, self._format)
        self.get(name)
        queues = self._queues.of_topic(name)
        groups = (group for group, topics in offsets.groups().items() if name in topics)
        messages = sum(queue.max_index - queue.min_index for queue in queues)
        return TopicDeletion(name, len(queues), messages, tuple(sorted(groups)))

    def delete(self, name: str, offsets: GroupOffsets) -> TopicDeletion:
        """Delete a topic. An interrupted deletion is completed by the next one, or by an opening.

        Raises TopicNameError, TopicUnknown, StoreNotWritable, FlushTimeout, StoreFailed, OSError.
        """
        self._require_writable()
        with self._lock:
            gone = self.plan_delete(name, offsets)
            end, following = self._log.queue_offsets_of(name)
            self._log.flush.wait(self._log.flush.request(end))
            now_ms, min_offset = self._clock.now_ms(), self._log.min_offset
            self._deleted.add(name, end, following, now_ms, min_offset)
            if self._table.get(name) is not None:
                self._table.remove(name)
                self._table.save_changes()
            offsets.forget_topic(name)
            self._drop_queues(name)
        _log.warning("topic %s was deleted: %d queues, up to offset %d", name, gone.queues, end)
        return gone

    def adopt_deletions(self, text: str) -> None:
        """Delete the queues of topics that the leader of this store has deleted. Their records that
        arrive later get no queue entry.

        Raises QueuesIncomplete where the leader lacks a deletion, ConfigTableError, OSError.
        """
        with self._lock:
            try:
                topics = self._deleted.adopt(text, self._log.min_offset, self._log.max_offset)
            except ValueError as error:
                raise ConfigTableError(f"these are no deleted topics ({error})") from error
            for topic in topics:
                self._drop_queues(topic)
            if self._deleted.queues_incomplete:
                raise QueuesIncomplete(
                    "the leader has topics that were deleted here: open the store again, which "
                    "makes their queues again"
                )

    def _require_room(self, before: TopicConfig | None, topic: TopicConfig) -> _Usage:
        """Return what there will be with a new or changed topic. Raises LimitReached."""
        usage = self._usage
        if usage.revision != self._table.revision:
            revision = self._table.revision
            counted = [each for each in self._table.all() if _is_counted(each.name)]
            usage = _Usage(revision, len(counted), sum(map(_queues_of, counted)))
        if not _is_counted(topic.name):
            return usage
        more_topics = int(before is None)
        more_queues = _queues_of(topic) - (0 if before is None else _queues_of(before))
        if more_topics and usage.topics >= self._topics_max:
            raise LimitReached(
                f"topic {topic.name} would be one more than {usage.topics}",
                "maxTopics",
                self._topics_max,
            )
        if more_queues > 0 and usage.queues + more_queues > self._queues_max:
            raise LimitReached(
                f"topic {topic.name} needs {more_queues} queues more than {usage.queues}",
                "maxQueues",
                self._queues_max,
            )
        return _Usage(usage.revision, usage.topics + more_topics, usage.queues + more_queues)

    def _check(self, topic: TopicConfig) -> None:
        for what, count in (("read", topic.read_queues), ("write", topic.write_queues)):
            if not 1 <= count <= QUEUES_MAX:
                raise TopicConfigError(
                    f"{count} {what} queues: a topic has between 1 and {QUEUES_MAX}"
                )
        if topic.perm not in range(8):
            raise TopicConfigError(f"perm {topic.perm}: 4 (read) + 2 (write) + 1 (inherit)")
        if topic.filter_type not in FILTER_TYPES:
            raise TopicConfigError(f"filter type {topic.filter_type}: SINGLE_TAG or MULTI_TAG")
        self._check_attributes(topic.attributes)

    def _check_attributes(self, attributes: Mapping[str, str]) -> None:
        if attributes and self._format is not StoreFormat.V5_X:
            raise TopicConfigError("a store of format 4.9 keeps no attributes; leave them out")
        for name, value in attributes.items():
            if name not in _ATTRIBUTES:
                known = ", ".join(sorted(_ATTRIBUTES))
                raise TopicConfigError(f"attribute {name!r} is none of {known}")
            if value not in _ATTRIBUTES[name]:
                offered = ", ".join(sorted(_ATTRIBUTES[name]))
                raise TopicConfigError(f"attribute {name} is {value!r}; it may be {offered}")

    def _from_queues(self, name: str) -> TopicConfig:
        queues = max(self._queues.queue_ids(name), default=0) + 1
        return TopicConfig(name, read_queues=queues, write_queues=queues)


def _is_counted(name: str) -> bool:
    """Whether a topic counts: not those of groups, of which each has two."""
    return topic_names.returning_group(name) is None


def _queues_of(topic: TopicConfig) -> int:
    return max(topic.read_queues, topic.write_queues)
