"""Makes the queue files that the next puts begin, and opens queues at rest, before the put.

Called from ``message_store`` when puts do not wait: making a file takes the time of the
disk, and a thread that serves many clients leaves that to another thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from mqstore.storage._kernel import QueueWindow
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import FilePending, SegmentCreationFailed
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, QUEUED_TYPES, TRANSACTION_MASK
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.log.multi_dispatch import Queue
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.put_refusal import file_failure
from mqstore.storage.queues.consume_queues import ConsumeQueues


class FilesAhead:
    """Makes queue files ahead, and opens queues at rest.

    Thread-safe. Files of units (ConsumeQueueExt) come with their entries.
    """

    def __init__(self, queues: ConsumeQueues, log: CommitLog) -> None:
        """While ``log`` rejects puts, no file is required."""
        self._queues = queues
        self._offsets = log.offsets
        self._further = log.multi_dispatch
        self._end = log.end
        self._shortage = log.shortage

    def require_all(self, message: Message) -> None:
        """``require`` for a message that is also an entry of the further queues that it names.

        Raises MessageInvalid and LmqQueuesExceeded as their put would.
        """
        if message.sys_flag & TRANSACTION_MASK in QUEUED_TYPES:
            own = message.topic, message.queue_id
            self.require(dict.fromkeys([own, *self._further.queues(message)], 1))

    def require(self, counts: Mapping[Queue, int]) -> None:
        """Check that the files for the next messages of queues, by their number, exist and are
        mapped.

        Raises FilePending, which makes or maps them, where one is not.
        """
        resting = [place for place in counts if self._queues.is_at_rest(*place)]
        if resting and not self._end.refused:
            raise FilePending(self._queues.path_of(*resting[0]), partial(self._open, resting))
        due = [
            (files, base) for place in counts for files, base in self._due(*place, counts[place])
        ]
        if due:
            files, base = due[0]
            raise FilePending(files.path_of(base), partial(self._make, due))

    def _open(self, resting: Sequence[Queue]) -> None:
        for place in resting:
            try:
                self._queues.get(*place)
            except OSError as error:
                path = str(self._queues.path_of(*place))
                raise file_failure(path, error) from error

    def _make(self, due: Sequence[tuple[MappedFileQueue, int]]) -> None:
        try:
            _make(due)
        except SegmentCreationFailed as error:
            self._shortage.begin(error, partial(_is_made, due))
            raise

    def _due(self, topic: str, queue_id: int, count: int) -> Iterator[tuple[MappedFileQueue, int]]:
        first = self._offsets.next(topic, queue_id)
        window = self._queues.windows_by_place.get((topic, queue_id))
        if self._end.refused or (window is not None and _reaches(window, first, first + count)):
            return
        queue = self._queues.get_or_prepare(topic, queue_id)
        if queue is not None:
            for base in _due(queue.files, first, count):
                yield queue.files, base


def _reaches(window: QueueWindow, first: int, end: int) -> bool:
    return window.first_index <= first and end <= window.first_index + window.entries


def _due(files: MappedFileQueue, first: int, count: int) -> list[int]:
    """The base offsets of missing files that ``count`` entries from ``first`` on need.

    A queue that begins within a file needs none: the entries before come with the file.
    """
    start, end = first * QUEUE_ENTRY_SIZE, (first + count) * QUEUE_ENTRY_SIZE
    before = start % files.file_size
    if before and not files.files:
        return []
    return [base for base in range(start - before, end, files.file_size) if not files.has(base)]


def _make(due: Sequence[tuple[MappedFileQueue, int]]) -> None:
    for files, base in due:
        try:
            files.make_ahead(base)
        except OSError as error:
            raise file_failure(str(files.path_of(base)), error, files.new_file_size) from error


def _is_made(due: Sequence[tuple[MappedFileQueue, int]]) -> bool:
    _make(due)
    return True
