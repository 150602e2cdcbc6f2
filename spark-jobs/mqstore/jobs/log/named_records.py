"""Records that a store's queue entries name: the boundaries that a store's path offers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from mqstore.jobs.log.source import LogSegment
from mqstore.storage.directory import (
    NamedRecord,
    NextNamed,
    QueueFiles,
    QueuePlace,
    queue_place,
)
from mqstore.storage.formats import Defect, check_record
from mqstore.storage.host import FileSystem

_TRIES: Final = 16
"""Entries of one queue that are looked at for one boundary; damage may spoil some."""
_Queue = tuple[bytes, int, QueueFiles]
"""Topic, queue id and files."""


class NamedRecords:
    """Looks in queue files as they are. Not for several threads at once; ``close`` unmaps."""

    def __init__(
        self,
        files: FileSystem,
        consume_queue: Path,
        file_size: int,
        read: Callable[[LogSegment, int, int], bytes],
    ) -> None:
        """``read`` gives so many bytes of a segment from a physical offset on."""
        self._files = files
        self._directory = consume_queue
        self._file_size = file_size
        self._read = read
        self._queues: list[_Queue] | None = None
        self._named: NextNamed[_Queue] | None = None

    def near(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        """One from ``offset`` to before ``stop``; of the queue that had one last, if it has."""
        queues = self._all()
        for number, queue in enumerate(queues):
            found = self._first_of(*queue, segment, offset, stop)
            if found is not None:
                queues.insert(0, queues.pop(number))
                return found
        return None

    def next(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        """The lowest of all queues from ``offset`` to before ``stop``. Cheap where the offsets of
        successive calls ascend."""
        if self._named is None or offset - 1 < self._named.start:
            self._named = NextNamed(self._all(), _first_from, offset - 1)
        passed = offset - 1
        while (found := self._named.above(passed)) is not None and found < stop:
            passed = found
            for queue in self._named.within(found, found + 1):
                if self._first_of(*queue, segment, found, found + 1) is not None:
                    return found
        return None

    def close(self) -> None:
        """Close the queue files."""
        for _, _, files in self._queues or ():
            files.close()
        self._queues = self._named = None

    def _all(self) -> list[_Queue]:
        if self._queues is None:
            self._queues = list(self._open())
        return self._queues

    def _open(self) -> Iterator[_Queue]:
        for topic in self._files.list(self._directory):
            for name in self._files.list(self._directory / topic):
                if name.isascii() and name.isdigit():
                    files = QueueFiles(self._files, self._directory / topic / name, self._file_size)
                    yield os.fsencode(topic), int(name), files

    def _first_of(
        self,
        topic: bytes,
        queue_id: int,
        files: QueueFiles,
        segment: LogSegment,
        offset: int,
        stop: int,
    ) -> int | None:
        try:
            for named in islice(files.named_within(offset, stop), _TRIES):
                place = QueuePlace(topic, queue_id, named.number)
                if self._is_named(segment, place, named):
                    return named.offset
        finally:
            files.close()
        return None

    def _is_named(self, segment: LogSegment, place: QueuePlace, named: NamedRecord) -> bool:
        """Whether a whole record stands there that says the same of itself."""
        if named.offset + named.size > segment.end:
            return False
        data = memoryview(self._read(segment, named.offset, named.size))
        defect, size = check_record(data, 0, len(data), named.offset, True)
        return defect is Defect.NONE and size == named.size and queue_place(data, 0) == place


def _first_from(queue: _Queue, offset: int) -> int | None:
    files = queue[2]
    try:
        return files.first_beyond(offset - 1)
    finally:
        files.close()
