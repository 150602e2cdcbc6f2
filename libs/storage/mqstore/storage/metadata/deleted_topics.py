"""Notes of topics that were deleted while the log still holds their messages
(``deleted-topics.json``).

RocketMQ keeps no such notes: a recovery that reads the log again restores a deleted topic's queues,
and a topic that is created again begins at queue offset 0, as its old messages did. Here a record
below the note's offset gets no queue entry any more, and queue offsets continue, so that no two
records of the log ever share one. The log is on disk up to that offset before the note is: no
recovery cuts below it. A note is removed when retention has passed it.

A follower has the notes of its leader. A deletion that its leader lacks is withdrawn: the leader
before was lost before it reached all replicas in sync. The next opening of the follower makes the
queues again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.seams import FileSystem

_log = logging.getLogger(__name__)


class DeletedTopic(Value):
    """One note: no record of the topic below ``offset``, which is physical, is in a queue."""

    topic: str
    offset: int
    deleted_ms: int
    """Milliseconds since the epoch."""
    queues: Mapping[int, int]
    """The next queue offset of each queue id."""


class Deletions(Value):
    """The content of the file."""

    topics: tuple[DeletedTopic, ...] = ()
    expired: int = 0
    """Notes of lower physical offsets, or this one, may be removed: retention has passed them."""
    queues_incomplete: bool = False
    """Queues lack entries of topics whose deletion was withdrawn: the next opening makes them."""

    @property
    def notes(self) -> dict[str, DeletedTopic]:
        """The notes by topic."""
        return {note.topic: note for note in self.topics}


@dataclass(frozen=True, slots=True)
class Adoption:
    """The result of taking over a leader's notes."""

    deletions: Deletions
    dropped: tuple[str, ...]
    """Topics whose entries below their notes are to be removed."""


def adopted(own: Deletions, leader: Deletions, start: int, end: int) -> Adoption:
    """Return a follower's notes as they become those of its leader.

    The follower's log is from ``start`` to ``end``, and the leader's has all of it. A note that the
    leader removed after retention stays: the follower may have the records.
    """
    before = own.notes
    kept = {name: note for name, note in before.items() if note.offset <= leader.expired}
    after = kept | leader.notes
    dropped, is_incomplete = [], own.queues_incomplete
    for topic in sorted(before.keys() | after.keys()):
        former, present = (
            min(max(notes[topic].offset if topic in notes else 0, start), end)
            for notes in (before, after)
        )
        if former < present:
            dropped.append(topic)
        is_incomplete |= present < former
    deletions = Deletions(
        topics=tuple(note for _, note in sorted(after.items())),
        expired=leader.expired,
        queues_incomplete=is_incomplete,
    )
    return Adoption(deletions, tuple(dropped))


def _read(files: FileSystem, path: Path) -> Deletions:
    return sealed_json.read(files, path, Deletions) or Deletions()


class DeletedTopics:
    """The notes of one store. Any thread may read them, one at a time may change them."""

    def __init__(self, files: FileSystem, path: Path, found: Deletions | None = None) -> None:
        """``found`` is the content of the file; None without one."""
        self._files = files
        self._path = path
        self.on_change: Callable[[], None] = lambda: None
        """Called after a deletion was noted, before its queues are removed."""
        self._content = found or Deletions()
        self._notes = self._content.notes

    @classmethod
    def load(cls, files: FileSystem, path: Path) -> DeletedTopics:
        """Load the notes; none where they cannot be read: deleted messages may then reappear.

        Raises OSError.
        """
        try:
            return cls(files, path, _read(files, path))
        except ValueError as error:
            _log.error("deleted topics may come back, their notes cannot be read: %s", error)
            return cls(files, path)

    @property
    def queues_incomplete(self) -> bool:
        """Whether the queues are to be made again from the whole log."""
        return self._content.queues_incomplete

    def below(self, topic: str) -> int:
        """The physical offset below which a topic's records are deleted; 0 for none."""
        note = self._notes.get(topic)
        return 0 if note is None else note.offset

    def all(self) -> list[DeletedTopic]:
        """All notes, by topic."""
        return list(self._content.topics)

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
        left = tuple(each for _, each in sorted(notes.items()) if each.offset > min_offset)
        expired = max(self._content.expired, min_offset)
        self._save(self._content.model_copy(update={"topics": left, "expired": expired}))
        self.on_change()

    def text(self) -> str:
        """The notes in JSON, as ``adopt`` takes them."""
        return self._content.model_dump_json(by_alias=True, exclude={"queues_incomplete"})

    def adopt(self, text: str, start: int, end: int) -> tuple[str, ...]:
        """Take over the notes of this store's leader, durably; return the topics whose entries
        below their notes are to be removed. See ``adopted``. Raises ValueError, OSError."""
        found = adopted(self._content, Deletions.model_validate_json(text), start, end)
        if found.deletions != self._content:
            self._save(found.deletions)
        return found.dropped

    def end_at(self, end: int) -> None:
        """Lower the notes' offsets to the log's end, durably, before the first put.

        Records below the end belong to the deleted topic, later ones do not. A log ends earlier
        when it was copied before the notes, or lost its end. Raises OSError.
        """
        if any(note.offset > end for note in self._content.topics):
            lowered = tuple(
                note.model_copy(update={"offset": min(note.offset, end)})
                for note in self._content.topics
            )
            self._save(self._content.model_copy(update={"topics": lowered}))

    def note_queues_begun(self) -> None:
        """Note, durably, that nothing is known of the queues any more: each opening makes them
        again until they are complete. Raises OSError."""
        self._save(self._content.model_copy(update={"queues_incomplete": False}))

    def _save(self, content: Deletions) -> None:
        sealed_json.write(self._files, self._path, content)
        self._content, self._notes = content, content.notes
