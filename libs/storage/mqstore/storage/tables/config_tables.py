"""RocketMQ's ``config/*.json``: topics, groups, consumer offsets, delay offsets, filters.

Each file has a ``.bak`` with the previous content. As in RocketMQ, a file that cannot be read
(truncated, empty) is replaced by its ``.bak``; the table then reports it. Unknown fields are kept.
Source: ConfigManager and its subclasses of 4.9.7 and 5.4.0.

Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Lock, RLock
from typing import Any, ClassVar, Final, Self

from mqstore.storage.errors import ConfigTableError, TopicUnknown
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import Seams
from mqstore.storage.system.atomic_file import replace_file
from mqstore.storage.tables import java_json

TOPIC_GROUP_SEPARATOR: Final = "@"
PERM_READ_WRITE: Final = 6
QUEUES_DEFAULT: Final = 4
LEVELS: Final = range(1, 19)
_DATA_VERSION: Final = "dataVersion"

JsonObject = dict[str | int, Any]


class Source(StrEnum):
    """The file that a table was loaded from."""

    FILE = "file"
    BACKUP = "backup"
    NEW = "new"


class Table:
    """One file: its content as a tree, and how it is read and written.

    Methods that change the table change memory; ``save`` makes the change durable.
    """

    file_name: ClassVar[str]
    table_name: ClassVar[str]
    """The member of the file's object that holds the entries."""

    def __init__(self, path: Path, store_format: StoreFormat, seams: Seams) -> None:
        self.path = path
        self.source = Source.NEW
        self.problem: str | None = None
        """Why the file itself could not be read, when its ``.bak`` was loaded; else None."""
        self.data: JsonObject = {}
        self._format = store_format
        self._seams = seams
        self._lock = RLock()
        self._saving = Lock()
        self._saved: bytes | None = None
        """Content of the last successful load or save: the next ``.bak``."""

    @classmethod
    def load(cls, paths: StorePaths, store_format: StoreFormat, seams: Seams) -> Self:
        """Load the table; an empty one when there is neither file nor ``.bak``.

        Raises ConfigTableError when neither of the existing files can be read, OSError.
        """
        table = cls(paths.config / cls.file_name, store_format, seams)
        table._load()
        return table

    @property
    def backup_path(self) -> Path:
        """The path of the ``.bak``."""
        return self.path.with_name(self.path.name + ".bak")

    def text(self) -> str:
        """The text that ``save`` writes."""
        with self._lock:
            return java_json.dump(self._tree_to_save(), self._format)

    def save(self, await_log: Callable[[], object] = lambda: None) -> None:
        """Write the file atomically, after its previous content to ``.bak``.

        Changes made meanwhile do not wait, and belong to the next save. ``await_log`` is called
        once the content is fixed and before it is written: it returns when the part of the log that
        the content refers to is on disk. Raises its errors, and OSError.
        """
        with self._saving:
            content = self.text().encode()
            await_log()
            self._seams.files.make_directories(self.path.parent)
            if self._saved is not None:
                replace_file(self._seams.files, self.backup_path, self._saved)
            replace_file(self._seams.files, self.path, content)
            self._saved = content
            self.source = Source.FILE

    def save_with_backup(self) -> None:
        """Write the same content to the file and its ``.bak``, so that the previous content is
        gone."""
        self.save()
        self.save()

    def touch(self) -> None:
        """Count a change in dataVersion, where the format's file has one."""
        with self._lock:
            version = self.data.get(_DATA_VERSION)
            changed = dict(version) if isinstance(version, dict) else {}
            changed["counter"] = integer(changed.get("counter"), 0) + 1
            if self._format is StoreFormat.V5_X:
                changed.setdefault("stateVersion", 0)
            changed["timestamp"] = self._seams.clock.now_ms()
            self.data[_DATA_VERSION] = dict(sorted(changed.items()))

    @property
    def entries(self) -> JsonObject:
        """The entries themselves; created when missing."""
        entries = self.data.get(self.table_name)
        if not isinstance(entries, dict):
            entries = self.data[self.table_name] = {}
        return entries

    def _tree_to_save(self) -> JsonObject:
        """The tree to write: members in alphabetical order, as fastjson prints beans."""
        tree = {**self.data, self.table_name: self.entries}
        return dict(sorted(tree.items(), key=lambda member: str(member[0])))

    def _load(self) -> None:
        problems = []
        for path, source in ((self.path, Source.FILE), (self.backup_path, Source.BACKUP)):
            if self._seams.files.stat(path) is None:
                continue
            content = self._seams.files.read(path)
            try:
                self.data = java_json.parse(content.decode())
            except ValueError as error:
                problems.append(f"{path.name} cannot be read ({error})")
                continue
            self._saved, self.source = content, source
            self.problem = "; ".join(problems) or None
            return
        if problems:
            raise ConfigTableError(
                "; ".join(problems) + f": restore {self.path}, or remove it to begin anew"
            )


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
    def is_readable(self) -> bool:
        """Whether consumers may read the topic."""
        return bool(self.perm & 4)

    @property
    def is_writable(self) -> bool:
        """Whether producers may write to the topic."""
        return bool(self.perm & 2)


class TopicTable(Table):
    """``topics.json``: TopicConfigs by name."""

    file_name = "topics.json"
    table_name = "topicConfigTable"

    def get(self, name: str) -> TopicConfig | None:
        """The topic of this name, or None."""
        with self._lock:
            found = self.entries.get(name)
            return _topic_from(name, found) if isinstance(found, dict) else None

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
            self.entries[topic.name] = dict(sorted(merged.items()))
            self.touch()

    def remove(self, name: str) -> None:
        """Remove a topic. Raises TopicUnknown."""
        with self._lock:
            if self.entries.pop(name, None) is None:
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
    """``consumerOffset.json``: the next queue offset by topic@group and queue id."""

    file_name = "consumerOffset.json"
    table_name = "offsetTable"

    def __init__(self, path: Path, store_format: StoreFormat, seams: Seams) -> None:
        super().__init__(path, store_format, seams)
        self.is_changed = False
        """Whether memory has changes that the file has not."""

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
            return self.of(group, topic).get(queue_id)

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
            queues.pop(str(queue_id), None)
            queues[queue_id] = offset
            self._note_change()

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
                self._note_change()

    def _note_change(self) -> None:
        self.is_changed = True
        if self._format is StoreFormat.V5_X:
            self.touch()

    def groups(self) -> dict[str, list[str]]:
        """The topics in which each group has offsets."""
        found: dict[str, list[str]] = {}
        with self._lock:
            for key in self.entries:
                topic, group = _topic_and_group(key)
                if group and TOPIC_GROUP_SEPARATOR not in group:
                    found.setdefault(group, []).append(topic)
        return found

    def _tree_to_save(self) -> JsonObject:
        if self._format is StoreFormat.V5_X:
            self.data["groupTopicMap"] = self.groups()
            if _DATA_VERSION not in self.data:
                self.touch()
        return super()._tree_to_save()


class DelayOffsets(Table):
    """``delayOffset.json``: the next queue offset to deliver, by delay level (from 1)."""

    file_name = "delayOffset.json"
    table_name = "offsetTable"

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
            if self._format is StoreFormat.V5_X:
                self.touch()

    def _tree_to_save(self) -> JsonObject:
        if self._format is StoreFormat.V5_X:
            known = _integers(self.entries)
            levels: dict[str | int, int] = {level: known.pop(level, 0) for level in LEVELS}
            self.data[self.table_name] = {**levels, **known}
            if _DATA_VERSION not in self.data:
                self.touch()
        return super()._tree_to_save()


def _topic_and_group(key: str | int) -> tuple[str, str]:
    topic, _, group = str(key).partition(TOPIC_GROUP_SEPARATOR)
    return topic, group


def _topic_from(name: str, found: JsonObject) -> TopicConfig:
    attributes = found.get("attributes")
    return TopicConfig(
        name=name,
        read_queues=integer(found.get("readQueueNums"), QUEUES_DEFAULT),
        write_queues=integer(found.get("writeQueueNums"), QUEUES_DEFAULT),
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


def integer(value: Any, default: int) -> int:
    """Return ``value`` when it is an integer, else ``default``."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _integers(table: Any) -> dict[int, int]:
    """A map of integers, whether its keys are bare or quoted."""
    if not isinstance(table, dict):
        return {}
    return {
        int(key): value
        for key, value in table.items()
        if isinstance(value, int) and str(key).removeprefix("-").isdecimal()
    }
