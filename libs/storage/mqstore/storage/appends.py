"""Appends to an open store: one message, several, or a batch in RocketMQ's encoding.

Called from ``message_store`` (puts of clients), ``delay`` (delivered copies) and ``transactions``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from mqstore.storage._kernel import EncodedBatch
from mqstore.storage.codec.batch import decode_batch
from mqstore.storage.codec.record import Message
from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.delay.delayed_messages import DelayedMessages
from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.errors import FilePending, MessageInvalid
from mqstore.storage.layout import StoreFormat
from mqstore.storage.log.commit_log import CommitLog, Placement
from mqstore.storage.once.puts import NO_REPEATS, Keys, OncePuts, Originals, Put, refuse_reads
from mqstore.storage.options import Durability
from mqstore.storage.queues.files_ahead import FilesAhead


class Appends:
    """Any thread. ``delays`` and ``once`` are set before the first append."""

    delays: DelayedMessages

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        config: StoreConfig,
        store_format: StoreFormat,
        ahead: FilesAhead | None,
    ) -> None:
        """With ``ahead``, an append that needs a file which is not there raises FilePending."""
        self.once: OncePuts | None = None
        """Which unique keys are known; None when that is switched off, or nothing may be put."""
        self.wake_dispatch: Callable[[], None] = lambda: None
        """Called where the dispatch of a record is left to the background service."""
        is_sync = config.flush_disk_type is FlushDiskType.SYNC
        self._durability = Durability.SYNC if is_sync else Durability.ASYNC
        self._log = log
        self._put_plain = log.end.put
        self._commits = log.commits
        self._dispatcher = dispatcher
        self._format = store_format
        self._ahead = ahead

    @overload
    def append(self, batch: Message) -> Placement: ...
    @overload
    def append(
        self,
        batch: Sequence[Message] | EncodedBatch,
        idempotency: Keys | None = None,
        *,
        as_batch: bool = False,
        originals: Originals | None = None,
        reads_max: int | None = None,
    ) -> Put: ...
    def append(
        self,
        batch: Message | Sequence[Message] | EncodedBatch,
        idempotency: Keys | None = None,
        as_batch: bool = False,  # not keyword-only at run time: each of those costs 20 ns a call
        originals: Originals | None = None,
        reads_max: int | None = None,
    ) -> Placement | Put:
        """Append one message, or several: contiguous, in one segment, all or none.

        Never waits for a sync (see ``wait``). The messages are readable before it returns when
        dispatch is caught up, else soon after.

        A sequence may hold messages of any topics and queues. As in RocketMQ's put of one message,
        a message with a DELAY property is delivered when it is due; until then it stands where its
        placement says. With ``as_batch``, and for an EncodedBatch (``log.end.read_batch``),
        RocketMQ's rules of a batch apply: one topic and queue, no transaction types, at most
        maxMessageSize for all messages together; DELAY and further queues have no effect.

        With ``idempotency``, the unique keys that the client gave, a message that was stored before
        under its key is not stored again. Wait for ``end_of`` the result: a duplicate ends where
        the original ends. ``originals`` and ``reads_max`` as of ``OncePuts.append``.

        Raises PutRefused, StoreFailed; FilePending as ``StoreOptions.waits_for_files`` says; with
        ``idempotency`` UniqueKeyTaken and OriginalsUnread. Nothing is stored then.
        """
        if type(batch) is Message:
            placement = self._put_plain(batch)
            return self._append_closely(batch) if placement is None else placement
        if type(batch) is EncodedBatch:
            return self._append_encoded(batch, idempotency, reads_max)
        if idempotency is None or self.once is None:
            return self.append_all(batch, as_batch), NO_REPEATS
        return self.once.append(
            batch, idempotency, as_batch=as_batch, originals=originals, reads_max=reads_max
        )

    def wait(self, end: int, durability: Durability | None = None) -> None:
        """Wait until all below a physical offset is readable and as durable as requested; default
        durability follows flushDiskType.

        A caller with an event loop uses ``commits`` and ``flush.request(end)`` instead. Raises
        FlushTimeout (stored, not known to be on disk), StoreFailed.
        """
        if self._commits is not None:
            self._commits.wait(end)
            self.dispatch(end)
        if (durability or self._durability) is Durability.SYNC:
            self._log.flush.wait(self._log.flush.request(end))

    def append_all(self, messages: Sequence[Message], as_batch: bool) -> list[Placement]:
        """``append`` without idempotency."""
        if as_batch:
            return self._append_batch(messages)
        if len(messages) != 1:
            return self._append_run(messages)
        placement = self._put_plain(messages[0])
        return [self._append_closely(messages[0]) if placement is None else placement]

    def _append_encoded(
        self, batch: EncodedBatch, idempotency: Keys | None, reads_max: int | None
    ) -> Put:
        """In one call of the kernel, unless a message is a duplicate or a closer look is due."""
        if idempotency is None or self.once is None:
            placements = self._log.end.put_batch(batch)
        else:
            placements = self.once.append_encoded(batch)
        if placements is not None:
            return placements, NO_REPEATS
        refuse_reads(len(batch), reads_max)
        messages = decode_batch(batch.data, batch.message, store_format=self._format)
        return self.append(messages, idempotency, as_batch=True, reads_max=reads_max)

    def _append_closely(self, message: Message) -> Placement:
        """One that the kernel does not put alone."""
        return self._append_single(self.delays.delay(message) if message.has_delay else message)

    def _append_single(self, message: Message) -> Placement:
        if self._ahead is not None:
            self._ahead.require_all([message])
        return self._dispatched([self._log.append(message)])[0]

    def _append_batch(self, messages: Sequence[Message]) -> list[Placement]:
        if self._ahead is not None and messages:
            self._ahead.require(messages[0].topic, messages[0].queue_id, len(messages))
        return self._dispatched(self._log.append_batch(messages))

    def _append_run(self, messages: Sequence[Message]) -> list[Placement]:
        if not messages:
            raise MessageInvalid("batch is empty; send one message or more")
        put = [self.delays.delay(each) if each.has_delay else each for each in messages]
        if self._ahead is not None:
            self._ahead.require_all(put)
        return self._dispatched(self._log.append_run(put))

    def put_copy(self, message: Message) -> None:
        """One that was delayed before: whatever its DELAY says, it is due."""
        while True:
            try:
                placement = self._append_single(message)
            except FilePending as pending:
                pending.make()
            else:
                break
        self.wait(placement.end, Durability.ASYNC)

    def _dispatched(self, placements: list[Placement]) -> list[Placement]:
        end = placements[-1].end
        if self._commits is None or self._commits.committed_offset >= end:
            self.dispatch(end)
        return placements

    def dispatch(self, end: int) -> None:
        """Dispatch up to a physical offset, now or in the background."""
        if not self._dispatcher.run_inline(end):
            self.wake_dispatch()
