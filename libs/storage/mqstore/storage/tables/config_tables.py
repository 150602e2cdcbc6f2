"""Topics, consumer offsets and delay offsets: ``topics.json``, ``consumerOffset.json``,
``delayOffset.json``.

Source: TopicConfigManager, ConsumerOffsetManager and ScheduleMessageService of 4.9.7 and 5.4.0.

Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from pathlib import Path
from typing import Any, Final, Self

from mqstore.storage.errors import TopicNotReadable, TopicNotWritable, TopicUnknown
from mqstore.storage.layout import LMQ_PREFIX, StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import Seams
from mqstore.storage.tables import offsets_file
from mqstore.storage.tables.journaled_table import JournaledTable
from mqstore.storage.tables.table import DATA_VERSION, Table, integer
from mqstore.storage.tables.table_text import JsonObject

TOPIC_GROUP_SEPARATOR: Final = "@"
PERM_READ_WRITE: Final = 6
PERM_INHERIT: Final = 1
QUEUES_DEFAULT: Final = 4
_QUEUES_UNNAMED: Final = 16
"""Queues of a topic whose entry does not say how many."""
LEVELS: Final = range(1, 19)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic of ``topics.json``."""

    name: str
    read_queues: int = QUEUES_DEFAULT
    write_queues: int = QUEUES_DEFAULT
    perm: int = PERM_READ_WRITE
    """4 readable + 2 writable (+ 1 inherited)."""
    sys_flag: int = 0
    filter_type: str = "SINGLE_TAG"
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    """5.x only."""

    @property
    def queues(self) -> int:
        """Number of queues that consumers receive from."""
        return max(self.read_queues, self.write_queues)

    @property
    def is_readable(self) -> bool:
        """Whether consumers may read the topic (PermName.isReadable)."""
        return bool(self.perm & 4)

    @property
    def is_writable(self) -> bool:
        """Whether producers may write to the topic (PermName.isWriteable)."""
        return bool(self.perm & 2) and self.write_queues > 0

    @property
    def is_inherited(self) -> bool:
        """Whether topics that producers create are made after this one (PermName.isInherited)."""
        return bool(self.perm & PERM_INHERIT)

    def require_readable(self) -> None:
        """Raise TopicNotReadable unless consumers may read the topic."""
        if not self.is_readable:
            raise TopicNotReadable(
                f"topic {self.name} may not be read: its perm is {self.perm}, and 4 (read) is not "
                "in it; set perm 6, or 4"
            )

    def require_writable(self) -> None:
        """Raise TopicNotWritable unless producers may write to the topic."""
        if not self.is_writable:
            raise TopicNotWritable(
                f"topic {self.name} takes no messages: its perm is {self.perm}, with "
                f"{self.write_queues} queues to write to; set perm 6, which has 2 (write)"
            )


class TopicTable(JournaledTable):
    """``topics.json``: TopicConfigs by name."""

    file_name = "topics.json"
    table_name = "topicConfigTable"

    def get(self, name: str) -> TopicConfig | None:
        """The topic of this name, or None."""
        with self._lock:
            return self._value(name, _topic_from)

    def all(self) -> list[TopicConfig]:
        """Every topic, by name."""
        with self._lock:
            return [
                _topic_from(str(name), found)
                for name, found in sorted(self.entries.items(), key=lambda entry: str(entry[0]))
                if isinstance(found, dict)
            ]

    def put(self, topic: TopicConfig) -> None:
        """Add or replace a topic; unknown fields of an existing one are kept."""
        with self._lock:
            known = self.entries.get(topic.name)
            merged = {**(known if isinstance(known, dict) else {}), **self._topic_to(topic)}
            self._put(topic.name, dict(sorted(merged.items())))
            self.touch()

    def remove(self, name: str) -> None:
        """Remove a topic. Raises TopicUnknown."""
        with self._lock:
            if not self._pop(name):
                raise TopicUnknown(f"there is no topic {name}")
            self.touch()

    def _topic_to(self, topic: TopicConfig) -> JsonObject:
        fields: JsonObject = {
            "order": topic.order,
            "perm": topic.perm,
            "readQueueNums": topic.read_queues,
            "topicFilterType": topic.filter_type,
            "topicName": topic.name,
            "topicSysFlag": topic.sys_flag,
            "writeQueueNums": topic.write_queues,
        }
        if self._format is StoreFormat.V5_X:
            fields["attributes"] = dict(topic.attributes)
        return fields


class ConsumerOffsets(Table):
    """``consumerOffset.json``: the next queue offset by topic@group and queue id.

    A broker with ``enableLmq`` has ``lmqConsumerOffset.json`` in its place (``offsets_file``).
    """

    file_name = offsets_file.NAME
    table_name = "offsetTable"

    def __init__(self, path: Path, store_format: StoreFormat, seams: Seams) -> None:
        super().__init__(path, store_format, seams)
        self.is_changed = False
        """Whether memory has changes that the file has not."""
        self.revision = 0
        """Number of changes in memory."""
        self.on_forced: Callable[[], None] = lambda: None
        """Called when an offset was lowered or removed: a copy of the table from before would skip
        messages; and after a reset. The caller holds a lock: return at once."""
        self._topics: dict[str, dict[str, None]] | None = None
        """The topics of each group; None until they are first requested."""

    @classmethod
    def empty(cls, paths: StorePaths, store_format: StoreFormat, seams: Seams) -> Self:
        """The table without entries, of the file that has the store's offsets."""
        return cls(offsets_file.find(seams.files, paths), store_format, seams)

    def save(self, await_log: Callable[[], object] = lambda: None) -> None:
        """Save the table, and clear ``is_changed``. Errors as ``Table.save``."""
        self.is_changed = False
        try:
            super().save(await_log)
        except BaseException:
            self.is_changed = True
            raise

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The group's offset in one queue, or None."""
        with self._lock:
            queues = self.entries.get(topic + TOPIC_GROUP_SEPARATOR + group)
            if not isinstance(queues, dict):
                return None
            found = queues.get(queue_id)
            if isinstance(found, int) and str(queue_id) not in queues:
                return found
            return _integers(queues).get(queue_id)  # a file may have quoted queue ids

    def of(self, group: str, topic: str) -> dict[int, int]:
        """A group's offsets in one topic, by queue id."""
        with self._lock:
            return _integers(self.entries.get(topic + TOPIC_GROUP_SEPARATOR + group))

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the group's offset in one queue."""
        with self._lock:
            key = topic + TOPIC_GROUP_SEPARATOR + group
            queues = self.entries.get(key)
            if not isinstance(queues, dict):
                queues = self.entries[key] = {}
                self._add_topic(self._topics_by_group(), key)
            before = integer(queues.pop(str(queue_id), queues.get(queue_id)), 0)
            queues[queue_id] = offset
            self._note_change(is_lowered=offset < before)

    def with_group(self, group: str, offsets: Iterable[tuple[str, int, int]]) -> ConsumerOffsets:
        """A copy in which a group has exactly these offsets: topic, queue id and offset of each."""
        copied = ConsumerOffsets(self.path, self._format, self._seams)
        with self._lock:
            copied.entries.update(
                (key, found)
                for key, found in self.entries.items()
                if _topic_and_group(key)[1] != group
            )
        for topic, queue_id, offset in offsets:
            copied.put(group, topic, queue_id, offset)
        copied.source = self.source
        return copied

    def with_all(self, offsets: Mapping[str, Mapping[int, int]]) -> ConsumerOffsets:
        """A table of the same file that has exactly these offsets, in the form of ``by_queue``."""
        table = ConsumerOffsets(self.path, self._format, self._seams)
        table.entries.update((key, dict(found)) for key, found in offsets.items())
        table.source = self.source
        return table

    def by_queue(self) -> dict[str, dict[int, int]]:
        """A copy of all offsets, by topic@group and queue id."""
        with self._lock:
            return {str(key): _integers(found) for key, found in self.entries.items()}

    def page(self, after: str, limit: int) -> tuple[dict[str, dict[int, int]], bool]:
        """A part of ``by_queue``, in the order of its keys, and whether there are more behind."""
        with self._lock:
            keys = nsmallest(limit + 1, (key for key in map(str, self.entries) if key > after))
            found = {key: _integers(self.entries[key]) for key in keys[:limit]}
        return found, len(keys) > limit

    def all(self) -> list[tuple[str, str, int, int]]:
        """Group, topic, queue id and offset of each entry."""
        return [
            (group, topic, queue_id, offset)
            for key, queues in self.by_queue().items()
            for topic, group in (_topic_and_group(key),)
            for queue_id, offset in queues.items()
        ]

    def remove_group(self, group: str) -> None:
        """Remove a group's offsets."""
        self._remove(lambda found: found[1] == group)

    def remove_topic(self, topic: str) -> None:
        """Remove all groups' offsets in a topic."""
        self._remove(lambda found: found[0] == topic)

    def _remove(self, is_meant: Callable[[tuple[str, str]], bool]) -> None:
        with self._lock:
            gone = [key for key in self.entries if is_meant(_topic_and_group(key))]
            for key in gone:
                del self.entries[key]
            if gone:
                self._topics = None
                self._note_change(is_lowered=True)

    def _load(self) -> None:
        super()._load()
        self._take_lmq_groups()

    def _forget_all(self) -> None:
        self._take_lmq_groups()
        self._topics = None
        self.is_changed = True
        self.revision += 1

    def _take_lmq_groups(self) -> None:
        """Treat offsets of ``%LMQ%`` groups as all others; ``_tree_to_save`` parts them again."""
        found = self.data.pop(offsets_file.LMQ_TABLE, None)
        for key, offset in found.items() if isinstance(found, dict) else ():
            if isinstance(offset, int):
                self.entries.setdefault(key, {})[0] = offset

    def _note_change(self, *, is_lowered: bool) -> None:
        self.is_changed = True
        self.revision += 1
        if self._format is StoreFormat.V5_X:
            self.touch()
        if is_lowered:
            self.on_forced()

    def groups(self) -> dict[str, list[str]]:
        """The topics in which each group has offsets."""
        with self._lock:
            return {group: list(topics) for group, topics in self._topics_by_group().items()}

    def has_group(self, group: str) -> bool:
        """Whether a group has an offset."""
        with self._lock:
            return group in self._topics_by_group()

    def group_names(self) -> set[str]:
        """The groups that have offsets."""
        with self._lock:
            return set(self._topics_by_group())

    def topics_of(self, group: str) -> list[str]:
        """The topics in which one group has offsets."""
        with self._lock:
            return list(self._topics_by_group().get(group, ()))

    def _topics_by_group(self) -> dict[str, dict[str, None]]:
        if self._topics is None:
            self._topics = {}
            for key in self.entries:
                self._add_topic(self._topics, key)
        return self._topics

    @staticmethod
    def _add_topic(topics: dict[str, dict[str, None]], key: str | int) -> None:
        topic, group = _topic_and_group(key)
        if group and TOPIC_GROUP_SEPARATOR not in group:
            topics.setdefault(group, {})[topic] = None

    def _tree_to_save(self) -> JsonObject:
        if self._format is StoreFormat.V5_X:
            self.data["groupTopicMap"] = self.groups()
            if DATA_VERSION not in self.data:
                self.touch()
        tree = super()._tree_to_save()
        if self.path.name == offsets_file.LMQ_NAME:
            known = self.by_queue()
            of_lmq = {key for key in known if _topic_and_group(key)[1].startswith(LMQ_PREFIX)}
            tree[self.table_name] = {key: each for key, each in known.items() if key not in of_lmq}
            tree[offsets_file.LMQ_TABLE] = {key: known[key].get(0, 0) for key in sorted(of_lmq)}
        return dict(sorted(tree.items(), key=lambda member: str(member[0])))


class DelayOffsets(Table):
    """``delayOffset.json``: the next queue offset to deliver, by delay level (from 1)."""

    file_name = "delayOffset.json"
    table_name = "offsetTable"

    def __init__(self, path: Path, store_format: StoreFormat, seams: Seams) -> None:
        super().__init__(path, store_format, seams)
        self.revision = 0
        """Number of changes in memory."""

    def get(self, level: int) -> int:
        """The level's offset; 0 for a level that has delivered no message."""
        return self.all().get(level, 0)

    def all(self) -> dict[int, int]:
        """The offsets by level."""
        with self._lock:
            return _integers(self.entries)

    def put(self, level: int, offset: int) -> None:
        """Set the level's offset."""
        with self._lock:
            changed = {**_integers(self.entries), level: offset}
            self.data[self.table_name] = dict(sorted(changed.items()))
            self.revision += 1
            if self._format is StoreFormat.V5_X:
                self.touch()

    def _tree_to_save(self) -> JsonObject:
        if self._format is StoreFormat.V5_X:
            known = _integers(self.entries)
            levels: dict[str | int, int] = {level: known.pop(level, 0) for level in LEVELS}
            self.data[self.table_name] = {**levels, **known}
            if DATA_VERSION not in self.data:
                self.touch()
        return super()._tree_to_save()


def _topic_and_group(key: str | int) -> tuple[str, str]:
    topic, _, group = str(key).partition(TOPIC_GROUP_SEPARATOR)
    return topic, group


def _topic_from(name: str, found: JsonObject) -> TopicConfig:
    attributes = found.get("attributes")
    return TopicConfig(
        name=name,
        read_queues=integer(found.get("readQueueNums"), _QUEUES_UNNAMED),
        write_queues=integer(found.get("writeQueueNums"), _QUEUES_UNNAMED),
        perm=integer(found.get("perm"), PERM_READ_WRITE),
        sys_flag=integer(found.get("topicSysFlag"), 0),
        filter_type=str(found.get("topicFilterType", "SINGLE_TAG")),
        order=found.get("order") is True,
        attributes=(
            {str(key): str(value) for key, value in attributes.items()}
            if isinstance(attributes, dict)
            else {}
        ),
    )


def _integers(table: Any) -> dict[int, int]:
    """A map of integers, whether its keys are bare or quoted."""
    if not isinstance(table, dict):
        return {}
    return {
        int(key): value
        for key, value in table.items()
        if isinstance(value, int) and str(key).removeprefix("-").isdecimal()
    }
