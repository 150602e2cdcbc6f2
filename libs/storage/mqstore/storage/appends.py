"""Appends to an open store's log, the dispatch of what was appended, and the wait for a sync.

Called from ``message_store`` (puts of clients), ``dedup`` (messages that are not duplicates) and
``delay`` (delivered copies).
"""

from __future__ import annotations

from collections.abc import Callable

from mqstore.storage._kernel import EncodedBatch, Reason
from mqstore.storage.codec.properties import decode
from mqstore.storage.codec.record import Message
from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.delay.rewriting import delay_message
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.errors import FilePending
from mqstore.storage.layout import StoreFormat
from mqstore.storage.log.commit_log import CommitLog, Placement
from mqstore.storage.log.waiting import placement_in
from mqstore.storage.options import Durability
from mqstore.storage.queues.files_ahead import FilesAhead
from mqstore.storage.seams import Clock


class Appends:
    """Appends messages of any kind, whatever their unique keys. Any thread."""

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        config: StoreConfig,
        store_format: StoreFormat,
        levels: DelayLevels,
        ahead: FilesAhead | None,
        wake_dispatch: Callable[[], None],
        clock: Clock,
    ) -> None:
        """With ``ahead``, an append that needs a file which is not there raises FilePending.

        ``wake_dispatch`` is called where the dispatch of a record is left to the background.
        """
        is_sync = config.flush_disk_type is FlushDiskType.SYNC
        self._durability = Durability.SYNC if is_sync else Durability.ASYNC
        self._log = log
        self._end = log.end
        self._commits = log.commits
        self._dispatcher = dispatcher
        self._format = store_format
        self._levels = levels
        self._ahead = ahead
        self._wake_dispatch = wake_dispatch
        self._clock = clock

    def append(self, message: Message) -> Placement:
        """Append one message; one with a delay is appended to where it waits.

        Raises PutRefused, StoreFailed, FilePending.
        """
        return self.put(self._log.encode([message]))[0]

    def put(self, batch: EncodedBatch) -> list[Placement]:
        """Append encoded messages, contiguous and all or none, by the rules of
        ``MessageStore.append``.

        Raises PutRefused, StoreFailed, FilePending.
        """
        if not batch.is_changed:
            return self._put(batch)
        messages = batch.messages()
        put = [self._delayed(each) if each.has_delay else each for each in messages]
        if len(put) == 1:
            placements = [self._append_single(put[0])]
        else:
            placements = self._put(self._log.encode(put))
        return [self._placement(*each) for each in zip(placements, messages, put, strict=True)]

    def _put(self, batch: EncodedBatch) -> list[Placement]:
        """Append encoded messages as they are."""
        placements = self._end.put(batch)
        if not isinstance(placements, Reason):
            return placements
        if self._ahead is not None:
            self._ahead.require(batch.counts)
        return self._dispatched(self._log.put(batch))

    def put_copy(self, message: Message) -> None:
        """Append a delivered copy, which is due whatever its DELAY says, and wait for its dispatch.

        Raises PutRefused, StoreFailed.
        """
        while True:
            try:
                placement = self._append_single(message)
            except FilePending as pending:
                pending.make()
            else:
                break
        self.wait(placement.end, Durability.ASYNC)

    def wait(self, end: int, durability: Durability | None) -> None:
        """Wait for a physical offset as ``MessageStore.wait`` says."""
        if self._commits is not None:
            self._commits.wait(end)
            self.dispatch(end)
        if (durability or self._durability) is Durability.SYNC:
            self._log.flush.wait(self._log.flush.request(end))

    def dispatch(self, end: int) -> None:
        """Dispatch up to a physical offset, now or in the background."""
        if self._dispatcher.position < end and not self._dispatcher.run_inline(end):
            self._wake_dispatch()

    def _delayed(self, message: Message) -> Message:
        return delay_message(message, self._levels, self._format, self._clock.now_ms())

    def _placement(self, placement: Placement, message: Message, put: Message) -> Placement:
        """Return the placement of a message that was put as ``put``."""
        if put.topic == message.topic:
            return placement
        return placement_in(put.topic, placement, decode(put.properties), self._levels)

    def _append_single(self, message: Message) -> Placement:
        if not self._log.multi_dispatch.applies_to(message):
            return self._put(self._log.encode([message]))[0]
        if self._ahead is not None:
            self._ahead.require_all(message)
        return self._dispatched([self._log.append(message)])[0]

    def _dispatched(self, placements: list[Placement]) -> list[Placement]:
        end = placements[-1].end
        if self._commits is None or self._commits.committed_offset >= end:
            self.dispatch(end)
        return placements
