"""Blanks entries of ConsumeQueues, so that the next opening makes them again.

An opening keeps every entry that it finds, since the log itself may be wrong. Blanked are those
that, as ``verify`` has shown, name no record of their place, and on request all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from mqstore.storage.layout import PRE_BLANK_SIZE, QUEUE_ENTRY_SIZE
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.paths import StorePaths, segment_offset
from mqstore.storage.queues.queue_entry import ENTRY
from mqstore.storage.seams import FileSystem
from mqstore.storage.store_repair.changes import Action, Change, ChangeList
from mqstore.storage.system.open_map import open_map

_BLANK = bytes(QUEUE_ENTRY_SIZE)
_BLOCK = 1_024 * QUEUE_ENTRY_SIZE
_WRONG = "entries that name no record of their place"
_OLD = "entries before a rebuild of the queues"


class QueueRemedies:
    """Changes the queue files of one store whose lock is held. Every method raises OSError."""

    def __init__(
        self,
        files: FileSystem,
        paths: StorePaths,
        file_size: int,
        quarantine: Quarantine,
        changes: ChangeList,
    ) -> None:
        self._files = files
        self._paths = paths
        self._file_size = file_size
        self._quarantine = quarantine
        self._changes = changes

    def blank(self, topic: str, queue_id: int, numbers: Iterable[int], beyond: int | None) -> None:
        """Blank the entries of these numbers, those of records at or above physical offset
        ``beyond``, and the fillers that repeat one of them."""
        wrong, count = sorted(set(numbers)), 0
        repeated: tuple[int, int] | None = None
        for path, base in self._files_of(topic, queue_id):
            first = base // QUEUE_ENTRY_SIZE
            stop = first + self._file_size // QUEUE_ENTRY_SIZE
            here = wrong[bisect_left(wrong, first) : bisect_left(wrong, stop)]
            places = {number - first for number in here}
            if beyond is not None:
                places |= set(self._places_beyond(path, beyond))
            for place, offset, size in self._entries(path):
                if place in places:
                    repeated = offset, size
                elif repeated == (offset, size):
                    places.add(place)
                else:
                    repeated = None
            if places:
                self._blank_places(path, places, _WRONG)
                count += len(places)
        if count:
            what = f"{count} entries name no record of their place"
            self._note(Action.BLANK_ENTRIES, topic, queue_id, what)

    def blank_all(
        self, topic: str, queue_id: int, is_in_log: Callable[[int], bool], *, keeps: bool
    ) -> None:
        """Blank every entry whose physical offset is in the log, but the queue's last one, which
        shows the queue offsets that were given out. With ``keeps``, only note the change."""
        count, is_last = 0, True
        for path, _ in reversed(list(self._files_of(topic, queue_id))):
            found = [(place, offset) for place, offset, _ in self._entries(path)]
            if found and is_last:
                found.pop()
                is_last = False
            places = {place for place, offset in found if is_in_log(offset)}
            if places and not keeps:
                self._blank_places(path, places, _OLD)
            count += len(places)
        if count:
            what = f"{count} entries are made again from the log"
            self._note(Action.BLANK_ENTRIES, topic, queue_id, what)

    def set_aside_if_empty(self, topic: str, queue_id: int) -> None:
        """Set the files of a queue aside of which no entry names a record."""
        found = list(self._files_of(topic, queue_id))
        if any(self._names_a_record(path) for path, _ in found):
            return
        for path, _ in found:
            self._quarantine.move_file(path, "no entry of the queue names a record")
        self._note(Action.SET_ASIDE, topic, queue_id, "no entry of the queue names a record")

    def _files_of(self, topic: str, queue_id: int) -> Iterator[tuple[Path, int]]:
        directory = self._paths.consume_queue / topic / str(queue_id)
        for name in self._files.list(directory):
            base, stat = segment_offset(name), self._files.stat(directory / name)
            if base is not None and stat is not None and stat.size == self._file_size:
                yield directory / name, base

    def _entries(self, path: Path) -> Iterator[tuple[int, int, int]]:
        """The place in the file, physical offset and size of each entry that names a record."""
        with open_map(self._files, path, sparse=True) as mapped:
            position = self._files.next_data(path, 0)
            while position is not None and position < self._file_size:
                start = position - position % _BLOCK
                block = bytes(mapped.view[start : start + _BLOCK])
                for place, (offset, size, _) in enumerate(
                    ENTRY.iter_unpack(block), start // QUEUE_ENTRY_SIZE
                ):
                    if size > 0 and (size != PRE_BLANK_SIZE or offset):
                        yield place, offset, size
                position = self._files.next_data(path, start + _BLOCK)

    def _places_beyond(self, path: Path, end: int) -> Iterator[int]:
        return (place for place, offset, _ in self._entries(path) if offset >= end)

    def _names_a_record(self, path: Path) -> bool:
        return next(self._entries(path), None) is not None

    def _blank_places(self, path: Path, places: set[int], reason: str) -> None:
        start, stop = min(places) * QUEUE_ENTRY_SIZE, (max(places) + 1) * QUEUE_ENTRY_SIZE
        self._quarantine.keep_range(path, start, stop - start, reason)
        self._files.reserve(path, start, stop - start)
        with open_map(self._files, path, writable=True) as mapped:
            for place in places:
                at = place * QUEUE_ENTRY_SIZE
                mapped.view[at : at + QUEUE_ENTRY_SIZE] = _BLANK
            mapped.sync()

    def _note(self, action: Action, topic: str, queue_id: int, what: str) -> None:
        self._changes.add(Change(action=action, what=what, topic=topic, queue_id=queue_id))
