"""Notes of topics that were deleted while the log still holds their messages
(``deleted-topics.json``).

RocketMQ keeps no such notes: a recovery that reads the log again restores a deleted topic's queues,
and a topic that is created again begins at queue offset 0, as its old messages did. Here a record
below the note's offset gets no queue entry any more, and queue offsets continue, so that no two
records of the log ever share one. The log is on disk up to that offset before the note is: no
recovery cuts below it. A note is removed when retention has passed it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from mqstore.storage.metadata import sealed_json
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.atomic_file import replace_file

_log = logging.getLogger(__name__)


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class DeletedTopic(_Value):
    """One note: no record of the topic below ``offset``, which is physical, is in a queue."""

    topic: str
    offset: int
    deleted_ms: int
    """Milliseconds since the epoch."""
    queues: Mapping[int, int]
    """The next queue offset of each queue id."""


class _File(_Value):
    topics: tuple[DeletedTopic, ...]


def read(files: FileSystem, path: Path) -> tuple[DeletedTopic, ...]:
    """Read the notes of a file; none without one. Raises ValueError, OSError."""
    if files.stat(path) is None:
        return ()
    return _File.model_validate_json(sealed_json.unseal(files.read(path))).topics


class DeletedTopics:
    """The notes of one store. Any thread may read them, one at a time may change them."""

    def __init__(self, files: FileSystem, path: Path, notes: tuple[DeletedTopic, ...] = ()) -> None:
        self._files = files
        self._path = path
        self.on_change: Callable[[], None] = lambda: None
        """Called after a deletion was noted, before its queues are removed."""
        self._notes = {note.topic: note for note in notes}

    @classmethod
    def load(cls, files: FileSystem, path: Path) -> DeletedTopics:
        """Load the notes; none where they cannot be read: deleted messages may then reappear.

        Raises OSError.
        """
        try:
            return cls(files, path, read(files, path))
        except ValueError as error:
            _log.error("deleted topics may come back, their notes cannot be read: %s", error)
            return cls(files, path)

    def below(self, topic: str) -> int:
        """The physical offset below which a topic's records are deleted; 0 for none."""
        note = self._notes.get(topic)
        return 0 if note is None else note.offset

    def all(self) -> list[DeletedTopic]:
        """All notes, by topic."""
        return [note for _, note in sorted(self._notes.items())]

    def next_offsets(self) -> Iterator[tuple[str, int, int]]:
        """Topic, queue id and next queue offset of each deleted queue."""
        for note in self.all():
            for queue_id, following in note.queues.items():
                yield note.topic, queue_id, following

    def add(
        self, topic: str, offset: int, queues: Mapping[int, int], now_ms: int, min_offset: int
    ) -> None:
        """Note a deletion, and remove notes whose records all lie below ``min_offset``.

        Durable at return; the log must be durable up to ``offset``. Raises OSError.
        """
        note = DeletedTopic(topic=topic, offset=offset, deleted_ms=now_ms, queues=dict(queues))
        notes = {**self._notes, topic: note}
        self._save({name: each for name, each in notes.items() if each.offset > min_offset})
        self.on_change()

    def text(self) -> str:
        """The notes in JSON, as ``adopt`` takes them."""
        return _File(topics=tuple(self.all())).model_dump_json(by_alias=True)

    def adopt(self, text: str) -> list[str]:
        """Take over the notes of another copy of the log, durably; return the topics that have a
        later one now. Notes that the other lacks stay. Raises ValueError, OSError."""
        found = _File.model_validate_json(text).topics
        new = {note.topic: note for note in found if note.offset > self.below(note.topic)}
        if new:
            self._save(self._notes | new)
        return sorted(new)

    def end_at(self, end: int) -> None:
        """Lower the notes' offsets to the log's end, durably, before the first put.

        Records below the end belong to the deleted topic, later ones do not. A log ends earlier
        when it was copied before the notes, or lost its end. Raises OSError.
        """
        if any(note.offset > end for note in self._notes.values()):
            self._save(
                {
                    name: note.model_copy(update={"offset": min(note.offset, end)})
                    for name, note in self._notes.items()
                }
            )

    def _save(self, left: dict[str, DeletedTopic]) -> None:
        content = _File(topics=tuple(each for _, each in sorted(left.items())))
        text = content.model_dump_json(by_alias=True)
        replace_file(self._files, self._path, sealed_json.seal(text))
        self._notes = left
