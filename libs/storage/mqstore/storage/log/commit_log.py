"""The commit log: all records are appended to it in one order, across segments.

Called from ``message_store`` (append), ``dispatch``, ``lookups`` and ``recovery`` (reading). One
put lock orders appends. A record's bytes are complete before its end is published, so that no
reader in this process or another sees half of one. Positions follow RocketMQ's CommitLog.doAppend
of 4.9.7 and 5.4.0 exactly; unlike there, a message that cannot be stored is rejected before
anything is written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from mqstore.storage._kernel import EncodedBatch, LogEnd, Reason
from mqstore.storage._kernel import Placement as Placement
from mqstore.storage.codec.record import (
    Message,
    Record,
    decode,
    message_of,
    write_blank,
)
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import (
    DiskFull,
    MessageInvalid,
    OffsetOutOfRange,
    PageCacheBusy,
    RecordExpired,
    StoreFailed,
    StoreNotWritable,
)
from mqstore.storage.layout import (
    BLANK_RECORD_SIZE,
    QUEUED_TYPES,
    TRANSACTION_MASK,
    StoreFormat,
)
from mqstore.storage.log.clock_watch import ClockWatch, noted_time
from mqstore.storage.log.commit import CommitService
from mqstore.storage.log.flush import FlushService, Watermarks
from mqstore.storage.log.multi_dispatch import MultiDispatch
from mqstore.storage.log.next_segment import NextSegment, SegmentSource, segment_failure
from mqstore.storage.log.put_checks import (
    PutLimits,
    check_batch,
    check_batch_size,
    check_messages,
    check_size,
)
from mqstore.storage.log.put_lock import PutLock
from mqstore.storage.log.queue_offsets import QueueOffsets
from mqstore.storage.mapped.mapped_file import RESERVE_CHUNK_SIZE, MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.mapped.transient_store_pool import TransientStorePool
from mqstore.storage.metadata.clock_steps import StepsView
from mqstore.storage.put_refusal import FileShortage, PutRefusal
from mqstore.storage.seams import Seams

_UNENCODABLE: Final = (OverflowError, TypeError, ValueError)
_TRIES: Final = 100
"""Maximum number of things that one put may lack; more than three would be a mistake, or a clock
that is set all the time."""


class CommitLog:
    """Appends to, and reads from, a recovered run of segments. Thread-safe."""

    def __init__(
        self,
        files: MappedFileQueue,
        config: StoreConfig,
        store_format: StoreFormat,
        seams: Seams,
        watermarks: Watermarks,
        *,
        offsets: QueueOffsets | None = None,
        allocation: SegmentSource | None = None,
        pool: TransientStorePool | None = None,
        watch: ClockWatch | None = None,
        waits: bool = True,
        last_store_timestamp_ms: int = 0,
        on_flushed: Callable[[int], None] = lambda _: None,
        on_synced: Callable[[int], None] = lambda _: None,
        on_failure: Callable[[StoreFailed], None] = lambda _: None,
        on_lacking: Callable[[], None] = lambda: None,
    ) -> None:
        """``files`` are recovered: their wrote and flushed positions are right.

        ``last_store_timestamp_ms`` is the newest record's: no later one gets an earlier time,
        unless ``watch`` finds that the clock was set back by more than CLOCK_STEP_MS.
        ``on_flushed``, ``on_synced`` and ``on_failure`` are as in FlushService. Without
        ``allocation`` segments are made when needed, by the thread that puts. With ``pool``,
        records are readable only once ``commits`` has copied them into the page cache. Without
        ``waits`` a put that needs a missing segment raises FilePending.
        """
        self.files = files
        self.offsets = offsets if offsets is not None else QueueOffsets()
        self._config = config
        self._clock = seams.clock
        self._watch = watch
        self._watermarks = watermarks
        self._allocation = allocation
        self._limits = PutLimits.of(config, store_format)
        self.multi_dispatch = MultiDispatch(config, store_format, self.offsets)
        self.end = LogEnd(self.offsets.table, self._limits.body_size_max, seams.clock)
        """The position of the next record; it stores records, once it may publish without the put
        lock."""
        self._lock = PutLock(self.end, seams.clock)
        self._refusal: Callable[[], Exception] | None = None
        self._refused_for_good = False
        self._refusal_lock = threading.Lock()
        self.shortage = FileShortage(on_lacking)
        """The last failure of a put to get a file."""
        self.next_segment = NextSegment(
            files, config, seams.clock, allocation, self.shortage, waits=waits
        )
        self.end.last_store_timestamp_ms = last_store_timestamp_ms
        self.end.max_offset = files.max_offset
        self._segment: MappedFile | None = None
        self._view = memoryview(bytearray())
        if allocation is not None:
            self.end.on_populate = lambda: allocation.populate(files)
        self.commits = None if pool is None else self._commit_service(pool, seams)
        if files.last is not None:
            self._write_to(files.last)
        self._report_failure = on_failure
        self.flush = FlushService(
            files,
            config,
            seams,
            watermarks,
            last_store_timestamp=self._readable_store_timestamp,
            on_flushed=on_flushed,
            on_synced=on_synced,
            on_failure=self._fail,
        )

    def _commit_service(self, pool: TransientStorePool, seams: Seams) -> CommitService:
        return CommitService(
            self.files,
            pool,
            self._config,
            seams,
            self._watermarks,
            last_store_timestamp_ms=self.end.last_store_timestamp_ms,
            on_failure=self._fail,
        )

    # bounds

    @property
    def min_offset(self) -> int:
        """The first physical offset of the oldest segment."""
        return self.files.min_offset

    @property
    def max_offset(self) -> int:
        """The end of the last readable record (or blank record)."""
        return self.end.max_offset if self.commits is None else self.commits.committed_offset

    def sync(self) -> None:
        """Wait until all records readable at the call are on disk.

        Raises FlushTimeout, StoreFailed.
        """
        self.flush.wait(self.flush.request(self.max_offset))

    @property
    def flushed_offset(self) -> int:
        """The durable watermark."""
        return self.flush.flushed_offset

    @property
    def last_store_timestamp_ms(self) -> int:
        """STORETIMESTAMP of the newest record; 0 when there is none."""
        return self.end.last_store_timestamp_ms

    def check_clock(self) -> None:
        """Record a step of the clock, if there was one; each put that meets a step does so too."""
        with self._lock:
            self._check_clock()

    def noted_time(self) -> tuple[int, StepsView]:
        """The present time, and the steps of the clock to compare older times with it
        (``clock_watch.noted_time``). Any thread."""
        return noted_time(self._clock, self.end, self._watch, self.check_clock)

    def clock_was_set_back(self, now_ms: int) -> None:
        """Lower the newest committed store time to ``now_ms``. Called with the put lock held."""
        if self.commits is not None:
            newest_ms = self.commits.last_store_timestamp_ms
            self.commits.last_store_timestamp_ms = min(newest_ms, now_ms)

    # who may put

    @property
    def put_refusal(self) -> PutRefusal | None:
        """Why the next put, or the next one that needs a file, would be rejected; else None."""
        if (refusal := self._refusal) is not None:
            return PutRefusal.of(refusal())
        return self.shortage.refusal or self.next_segment.refusal

    def refuse_puts(self, reason: str, detail: str) -> None:
        """Reject puts from now on with StoreNotWritable (closing, read-only…), for good.

        Returns when no put is running any more.
        """
        self._refuse(lambda: StoreNotWritable(reason, detail))
        with self._lock:
            pass

    def fail(self, failure: StoreFailed) -> None:
        """Reject puts for good, and fail every wait for a sync: the store has failed."""
        self.refuse_puts("failed", f"the store failed: {failure}")
        self.flush.fail(failure)
        if self.commits is not None:
            self.commits.fail(failure)

    def pause_puts(self, refusal: DiskFull) -> None:
        """Reject puts with this error until ``resume_puts``; does not wait for a running put."""
        with self._refusal_lock:
            if not self._refused_for_good:
                self._refusal = lambda: DiskFull(str(refusal), refusal.numbers)
                self.end.refused = True

    def resume_puts(self) -> None:
        """Undo ``pause_puts``; ``refuse_puts`` stays in force."""
        with self._refusal_lock:
            if not self._refused_for_good:
                self._refusal = None
                self.end.refused = False

    def _refuse(self, refusal: Callable[[], Exception]) -> None:
        with self._refusal_lock:
            self._refused_for_good = True
            self._refusal = refusal
            self.end.refused = True

    # putting

    def encode(self, messages: Sequence[Message], *, as_batch: bool = False) -> EncodedBatch:
        """Check messages, and encode them for ``put``.

        With ``as_batch``, by RocketMQ's rules of a batch. Raises PutRefused; with the ``index`` of
        the refused message where there are several.
        """
        batch = self.end.encode(messages, as_batch)
        if isinstance(batch, EncodedBatch):
            return batch
        if not messages:
            raise MessageInvalid("batch is empty; send one message or more")
        if as_batch:
            check_batch(messages, self._limits)
        try:
            batch = self.end.encode(messages, False, check_messages(messages, self._limits))
        except _UNENCODABLE as error:
            raise MessageInvalid(f"a field cannot be stored: {error}; correct it") from error
        assert isinstance(batch, EncodedBatch), "there is a message, and all are checked"
        return batch

    def check(self, messages: Sequence[Message]) -> list[int]:
        """Check the sizes of the messages of a request and return their record versions. Raises
        PutRefused."""
        if len(messages) > 1:
            check_batch_size(messages, self._limits.body_size_max)
        return check_messages(messages, self._limits)

    def put(self, batch: EncodedBatch) -> list[Placement]:
        """Append records: contiguous, in one segment, all or none.

        They are readable at return (with ``commits``: once committed), not yet durable. As in
        RocketMQ, they share one store timestamp. ``end.put`` is tried before. Raises PutRefused
        (one class per reason; nothing was written) or StoreFailed.
        """
        with self._hold_turn():
            return self._put(batch)

    def append(self, message: Message) -> Placement:
        """Append one message, as ``put``; also one that is an entry of further queues
        (``multi_dispatch``).

        Its offsets in these are part of the record, so its size is known only here.
        """
        batch = self.encode([message])
        if not self.multi_dispatch.applies_to(message):
            return self.put(batch)[0]
        with self._hold_turn():
            wrapped, queues = self.multi_dispatch.wrap(message)
            (placement,) = self._put(self.encode([wrapped]))
            if message.sys_flag & TRANSACTION_MASK in QUEUED_TYPES:
                own = message.topic, message.queue_id
                self.multi_dispatch.advance([queue for queue in queues if queue != own])
            return placement

    def queue_offsets_of(self, topic: str) -> tuple[int, dict[int, int]]:
        """The log's end and the next queue offset of each of a topic's queues, read together."""
        with self._lock:
            known = self.offsets.table.items()
            return self.max_offset, {queue: n for (name, queue), n in known if name == topic}

    def close(self) -> None:
        """Unmap all segments. Stop ``commits`` and ``flush`` before."""
        self.end.attach(None, None)
        if self.commits is not None:
            self.commits.close()
        self.files.close()

    # retention

    def remove_first(self, count: int) -> int:
        """Unlink up to ``count`` segments from the front, never the last; returns their number.

        The new minimum is first made durable, so that the next opening does not miss the removed
        segments, and published, so that no reader trusts them. A segment in use stays for now, and
        may be tried again: once destroyMapedFileIntervalForcibly is over since the first attempt,
        it is removed all the same.
        """
        expired = self.files.files[:-1][:count]
        if not expired:
            return 0
        self._watermarks.note_expiry(expired[-1].end_offset)
        self._watermarks.set_min(expired[-1].end_offset)
        forced_after_s = self._config.destroy_maped_file_interval_forcibly / 1000
        return self.files.remove_first(len(expired), force_after_s=forced_after_s)

    # reading

    def select(self, offset: int, size: int) -> memoryview | None:
        """Read ``size`` bytes of log, which stay valid while the view is kept; None out of
        bounds."""
        segment = self.files.find(offset)
        if segment is None:
            return None
        return segment.slice(offset - segment.base_offset, size)

    def view_from(self, offset: int) -> tuple[memoryview, int, int] | None:
        """The segment that holds ``offset``: its bytes, the position in them, and the end of the
        written bytes. None outside the log."""
        segment = self.files.find(offset)
        if segment is None:
            return None
        return segment.view, offset - segment.base_offset, segment.wrote_position

    def record_at(self, offset: int, *, with_body: bool = True) -> Record:
        """Read the record that begins at a physical offset; without its body, that is not verified.

        Raises RecordExpired, OffsetOutOfRange, RecordError.
        """
        if offset < self.min_offset:
            raise RecordExpired(f"offset {offset} is below the log's minimum {self.min_offset}")
        log_end = self.max_offset
        place = self.view_from(offset) if offset < log_end else None
        if place is None:
            raise OffsetOutOfRange(f"offset {offset} is beyond the log's end {log_end}")
        view, position, end = place
        found = decode(
            *(view, position, end),
            physical_offset=offset,
            verify_body=with_body,
            with_body=with_body,
        )
        return message_of(found)

    # under the put lock

    @contextmanager
    def _hold_turn(self) -> Iterator[None]:
        """Hold the put lock for a put, unless puts are rejected."""
        if self.next_segment.is_awaited:
            self.next_segment.check_busy()
        with self._lock:
            if self._refusal is not None or self.next_segment.is_awaited:
                raise self._rejection()
            yield

    def _put(self, batch: EncodedBatch) -> list[Placement]:
        for _ in range(_TRIES):
            placements = self.end.put(batch, True)
            if not isinstance(placements, Reason):
                self._publish()
                return placements
            self._provide(placements, batch)
        raise StoreFailed("a put lacks what it was given; report this")

    def _provide(self, reason: Reason, batch: EncodedBatch) -> None:
        """Provide what a put lacks."""
        if reason is Reason.NEEDS_ROOM:
            self._make_room(batch.size)
        elif reason is Reason.NEEDS_CLOCK:
            self._check_clock()
        else:
            assert reason is Reason.NEEDS_QUEUE, reason
            self.offsets.load_missing((*queue, 0) for queue in batch.counts)

    def _check_clock(self) -> None:
        if self._watch is not None:
            self._watch.check(self.end, self.min_offset)

    def _publish(self) -> None:
        """Publish the log's end to other processes, or let the commit see it."""
        if self.commits is None:
            self._watermarks.set_max(self.end.max_offset)
        else:
            self.commits.publish(self.end.position, self.end.last_store_timestamp_ms)

    def _advance(self, position: int) -> None:
        """Let readers (or the commit) see bytes that no put wrote, then publish the end."""
        segment = self._segment
        assert segment is not None
        if self.commits is None:
            segment.wrote_position = position
        self.end.position = position
        self.end.max_offset = segment.base_offset + position
        self._publish()
        if self.commits is None and position > segment.populate_at and self._allocation is not None:
            self._allocation.populate(self.files)

    # room

    def _make_room(self, size: int) -> None:
        """Ensure that records fit between the position and the room's end, rolling if needed."""
        check_size(size, self._limits)
        needed = size + BLANK_RECORD_SIZE
        segment = self._segment
        if segment is None:
            segment = self._roll(None, 0)
        elif self.end.position + needed > segment.size:
            self._reserve(segment, BLANK_RECORD_SIZE)
            segment = self._roll(segment, segment.end_offset)
        self._reserve(segment, max(needed, RESERVE_CHUNK_SIZE))

    def _reserve(self, segment: MappedFile, size: int) -> None:
        """Reserve disk blocks: segments of ours are reserved whole; a real broker's are sparse."""
        end = min(self.end.position + size, segment.size)
        try:
            segment.ensure_reserved(end)
        except OSError as error:
            refused = segment_failure(segment.base_offset, error, size)
            retry = partial(self._is_reserved, segment, size)
            self.shortage.begin(refused, retry, segment.base_offset)
            raise refused from error
        self.shortage.end(segment.base_offset)
        self.end.room_end = max(end, segment.reserved) - BLANK_RECORD_SIZE

    def _is_reserved(self, segment: MappedFile, size: int) -> bool:
        """Retry a put's failed reservation, unless another put has rolled the segment since."""
        with self._lock:
            if segment is self._segment:
                self._reserve(segment, size)
        return True

    def _roll(self, full: MappedFile | None, offset: int) -> MappedFile:
        """Close one segment and begin the next, which is made first: if that fails, nothing was
        written.

        The new segment joins the log last, so that a flush never counts it before the old one.
        """
        if self.commits is not None:
            self.commits.check_buffers()
        segment = self.next_segment.get(offset)
        if full is not None and self.end.position < full.size:
            self._close_with_blank(full)
        if full is not None and self._allocation is not None:
            self._allocation.unlock(full)
        if self.commits is None:
            self.files.append(segment)
        else:
            self.commits.begin(segment)
        self._write_to(segment)
        return segment

    def _close_with_blank(self, segment: MappedFile) -> None:
        left = segment.size - self.end.position
        if self.commits is not None:
            self.commits.clear_from(self.end.position)
        if left >= BLANK_RECORD_SIZE:  # always, unless the last record is forged
            write_blank(self._view, self.end.position, left)
        self._advance(segment.size)

    def _write_to(self, segment: MappedFile) -> None:
        self._segment = segment
        self._view = segment.view if self.commits is None else self.commits.view
        self.end.position = segment.wrote_position
        self.end.room_end = 0
        self.end.max_offset = segment.base_offset + segment.wrote_position
        if not self._view.readonly:
            self.end.attach(segment, self._view, self.commits is not None)

    # rejections

    def _rejection(self) -> Exception:
        if self._refusal is not None:
            return self._refusal()
        # This thread holds the lock already: a service of the simulation that puts while it waits.
        return PageCacheBusy("a put of this thread is waiting for a segment; try later")

    def _readable_store_timestamp(self) -> int:
        if self.commits is None:
            return self.end.last_store_timestamp_ms
        return self.commits.last_store_timestamp_ms

    def _fail(self, failure: StoreFailed) -> None:
        self._refuse(lambda: StoreFailed(str(failure)))
        self._report_failure(failure)
