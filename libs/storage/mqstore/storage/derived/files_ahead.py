"""Queue files that puts are about to begin, made before anything is put.

Called from ``message_store`` where puts do not wait: making a file syncs directories, and whoever
serves many clients in one thread leaves that to another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from mqstore.storage._kernel import LogEnd, QueueWindow
from mqstore.storage.codec.record import Message
from mqstore.storage.derived.consume_queues import ConsumeQueues
from mqstore.storage.errors import FilePending, SegmentCreationFailed
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, QUEUED_TYPES, TRANSACTION_MASK
from mqstore.storage.log.queue_offsets import QueueOffsets
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue


class FilesAhead:
    """Any thread. Files of further queues (multi-dispatch) and of units come with their entries."""

    def __init__(self, queues: ConsumeQueues, offsets: QueueOffsets, end: LogEnd) -> None:
        """While ``end`` refuses puts, nothing is required."""
        self._queues = queues
        self._offsets = offsets
        self._end = end

    def require_all(self, messages: Sequence[Message]) -> None:
        """``require`` for messages of any queues."""
        places = Counter(
            (each.topic, each.queue_id)
            for each in messages
            if each.sys_flag & TRANSACTION_MASK in QUEUED_TYPES
        )
        for (topic, queue_id), count in places.items():
            self.require(topic, queue_id, count)

    def require(self, topic: str, queue_id: int, count: int) -> None:
        """Raises FilePending where the next messages of a queue begin a file that is not there."""
        first = self._offsets.next(topic, queue_id)
        window = self._queues.windows_by_place.get((topic, queue_id))
        if self._end.refused or (window is not None and _reaches(window, first, first + count)):
            return
        queue = self._queues.get_or_prepare(topic, queue_id)
        due = [] if queue is None else _due(queue.files, first, count)
        if queue is not None and due:
            raise FilePending(queue.files.path_of(due[0]), partial(_make, queue.files, due))


def _reaches(window: QueueWindow, first: int, end: int) -> bool:
    return window.first_index <= first and end <= window.first_index + window.entries


def _due(files: MappedFileQueue, first: int, count: int) -> list[int]:
    """Where files begin that ``count`` entries from ``first`` on need and that are not there.

    None for a queue that begins within a file: what precedes that entry comes with the file.
    """
    start, end = first * QUEUE_ENTRY_SIZE, (first + count) * QUEUE_ENTRY_SIZE
    before = start % files.file_size
    if before and not files.files:
        return []
    return [base for base in range(start - before, end, files.file_size) if not files.has(base)]


def _make(files: MappedFileQueue, due: Sequence[int]) -> None:
    for base in due:
        try:
            files.make_ahead(base)
        except OSError as error:
            raise SegmentCreationFailed(
                f"{files.path_of(base)} cannot be made ({error}); make room on its volume"
            ) from error
