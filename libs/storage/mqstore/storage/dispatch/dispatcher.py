"""Dispatches the log into queues and index (RocketMQ's reput), up to the log's readable end.

Plain records go through the kernel's loop. Records at which it stops are handled here, one at a
time: new queues and files, holes, delayed and multi-dispatched records, damage. The dispatched
offset is published after the entries are written. Source: ReputMessageService and the dispatchers
of 4.9.7 and 5.4.0.

Called from the append's thread while caught up (``run_inline``) and from a background service when
behind (``step``); a lock lets one of them run at a time. While the lock is free and nothing is left
to do, ``end.is_idle`` lets the kernel dispatch a record as it puts it (``LogEnd.put``).
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from threading import Lock
from typing import Final, Protocol

from mqstore.storage._kernel import Defect, DispatchEnd, Stop, check_record, dispatch_run
from mqstore.storage.codec import record as records
from mqstore.storage.codec.record import Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.dispatch.counts import DispatchCounts
from mqstore.storage.dispatch.queue_entries import Bitmaps, QueueEntries
from mqstore.storage.errors import RecordError, StoreFailed
from mqstore.storage.index.catch_up import IndexCatchUp, IndexWatermark
from mqstore.storage.index.service import IndexService
from mqstore.storage.layout import StoreFormat
from mqstore.storage.log.defects import DamageSearch, Stretch, placeable_record, resume_after
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.seams import Clock

SLICE_RECORDS: Final = 20_000
"""Records handled before the lock is released and the dispatched offset published."""
INLINE_MAX: Final = 8 << 20
"""Lag in bytes above which an append leaves dispatching to the background service."""
RETRY_S: Final = 1.0
"""Pause after the disk rejected a new file."""
INDEX_PATIENCE_S: Final = 5.0
"""Longest time that a close spends on an index that is being rebuilt."""

_log = logging.getLogger(__name__)

Listener = Callable[[Set[bytes]], None]
"""Called with the ``queue_key``s that got entries, once those can be read."""


class LogView(Protocol):
    """The readable part of the commit log."""

    @property
    def min_offset(self) -> int:
        """The first physical offset."""

    @property
    def max_offset(self) -> int:
        """The readable end, a physical offset."""

    def view_from(self, offset: int) -> tuple[memoryview, int, int] | None:
        """The whole segment that holds an offset, the position in it, and its readable end."""


class Watermarks(IndexWatermark, Protocol):
    """Publishes the dispatched offset (the state page)."""

    def set_dispatched(self, offset: int) -> None:
        """Publish that all records below ``offset`` are dispatched."""


class Dispatcher:
    """A ``BackgroundService`` over one log, its queues and its index. See the module."""

    name = "dispatch"

    def __init__(
        self,
        log: LogView,
        queues: ConsumeQueues,
        index: IndexService | None,
        config: StoreConfig,
        watermarks: Watermarks,
        *,
        position: int,
        index_position: int | None = None,
        deleted_below: Callable[[str], int] = lambda _: 0,
        bitmaps: Bitmaps | None = None,
        store_format: StoreFormat = StoreFormat.V5_X,
    ) -> None:
        """Records below ``position`` are in the queues, below ``index_position`` in the index
        (default: the end of its last file; see ``IndexCatchUp``).

        Records of a topic below ``deleted_below`` get no queue entry. ``bitmaps`` gives the units
        of entries of topics that have subscriptions.
        """
        self.counts = DispatchCounts()
        self.end = DispatchEnd()
        self.end.position = position
        self.deleted_below = deleted_below
        """The physical offset below which a topic's records were deleted with it."""
        self._log = log
        self._queues = queues
        self._index = index
        self._watermarks = watermarks
        self._segment_size = config.mapped_file_size_commit_log
        self._entries = QueueEntries(
            queues, config, self.counts, deleted_below, bitmaps, store_format
        )
        self._listeners: list[Listener] = []
        self._lock = Lock()
        self._shown_end = sys.maxsize
        self._closed = False
        self._touched: set[bytes] = set()
        self._near = memoryview(b""), 0
        """The segment dispatched from last, and its first physical offset."""
        self._searches = DamageSearch()
        self.catch_up = IndexCatchUp(
            index,
            log,
            self.end,
            watermarks,
            self._hold_lock,
            position=index_position,
            size_max=config.index_catch_up_size,
        )
        self._refused_at: tuple[str, int] | None = None
        self.refusal: OSError | None = None
        """The last rejection by the disk."""
        """The run and position at which the disk last rejected a file of queues or index."""
        self.end.follow(
            queues.windows_by_place,
            None if index is None else index.window,
            index is not None and index.indexes_tags,
            self.catch_up.skip_below,
        )
        self.catch_up.join()
        self._allow_inline_puts()

    @property
    def position(self) -> int:
        """Physical offset up to which the queues are written and published."""
        return self.end.position

    @property
    def records(self) -> int:
        """Number of handled records, without the index's own run over older records."""
        return self.end.records

    @property
    def last_store_timestamp_ms(self) -> int:
        """STORETIMESTAMP of the newest handled record; 0 when there is none."""
        return self.end.last_store_timestamp_ms

    def add_listener(self, listener: Listener) -> None:
        """Add a listener; it runs in the dispatching thread, so it must be quick and not raise."""
        with self._hold_lock():
            self._listeners.append(listener)

    @property
    def behind(self) -> int:
        """Bytes of the log that are not dispatched yet."""
        return max(0, self._log.max_offset - self.position)

    def step(self, now: float) -> float:
        """Dispatch one slice. A rejection by the disk is logged and retried later.

        With nothing to do it takes no lock: an append would find it taken, and leave the dispatch
        of its record to the background.
        """
        if self.position == self._log.max_offset and self.catch_up.is_joined:
            return math.inf
        with self._hold_lock():
            try:
                more = self._advance(self._log.max_offset)
                if not more:
                    more = self._advance_index()
            except OSError as error:
                self.refusal = error
                self._log_refusal("queues" if self.behind else "index", error)
                return now + RETRY_S
            finally:
                self._publish()
        return now if more else math.inf

    def _log_refusal(self, what: str, error: OSError) -> None:
        """Log a rejection once for each position: every put wakes this service."""
        reached = self.position if what == "queues" else self.catch_up.position
        if self._refused_at != (what, reached):
            self._refused_at = what, reached
            _log.error("the %s cannot go on at offset %d, tried again: %s", what, reached, error)

    def run_inline(self, end: int) -> bool:
        """Dispatch up to ``end`` in the caller's thread; False when the service must be woken
        instead.

        It returns False when another thread dispatches, the lag is above INLINE_MAX, the disk is
        full, a queue file is gone, or the index runs by itself.
        """
        if end - self.position > INLINE_MAX or not self._lock.acquire(blocking=False):
            return False
        self.end.is_idle = False
        try:
            if not self._run_last_segment(end):
                while not self._closed and self._advance(end):
                    pass
        except (OSError, StoreFailed):  # the service meets it too
            return False
        finally:
            self._publish()
            self._allow_inline_puts()
            self._lock.release()
        return self.catch_up.is_joined

    def _run_last_segment(self, end: int) -> bool:
        """Run ``_advance`` in one call of the kernel for plain records of the last segment.

        Returns False, with nothing lost, when other work is left.
        """
        view, base = self._near
        start = self.position - base
        if (
            self._closed
            or self.catch_up.boundary is not None
            or not 0 <= start <= end - base <= len(view)
        ):
            return False
        index = self.catch_up.joined_index
        stop, position, handled, store_ms = dispatch_run(
            view,
            start,
            end - base,
            base,
            self._queues.windows,
            None if index is None else index.window,
            index is not None and index.indexes_tags,
            self.catch_up.skip_below,
            SLICE_RECORDS,
            self._touched if self._listeners else None,
        )
        if handled:
            self.end.position = base + position
            self.end.records += handled
            self.end.last_store_timestamp_ms = store_ms
        return stop is Stop.END

    def begin_at(self, offset: int) -> None:
        """Begin at the offset at which the first segment of an empty log is about to begin."""
        with self._hold_lock():
            self.end.position = offset
            self._publish()

    def show_up_to(self, offset: int) -> None:
        """Let readers see the queues up to a physical offset at most, from now on."""
        with self._hold_lock():
            self._shown_end = offset
            self._publish()

    def close(self) -> None:
        """Wait until no thread dispatches, and prevent further dispatch; files may then be closed.

        A put that was appended before may still try to dispatch its record; it then does nothing.
        """
        with self._hold_lock():
            self._closed = True

    def run_to_end(self, progress: Callable[[int, int], object] = lambda *_: None) -> None:
        """Dispatch everything, index included, in the caller's thread (recovery, a clean close).

        ``progress`` is called with the bytes of log in the index, and their total. Raises OSError
        when the disk rejects a write.
        """
        with self._hold_lock():
            more = True
            while more:
                try:
                    more = self._advance(self._log.max_offset) or self._advance_index()
                finally:
                    self._publish()
                log = self._log
                done = self.catch_up.position - log.min_offset
                progress(done, log.max_offset - log.min_offset)

    def finish(self, clock: Clock) -> None:
        """Dispatch the rest at a close, within INDEX_PATIENCE_S for an index that is being rebuilt.

        Less is done where the disk rejects a write.
        """
        patience_ends = clock.monotonic() + INDEX_PATIENCE_S
        while self.behind or (self.catch_up.behind and clock.monotonic() < patience_ends):
            before = self.behind, self.catch_up.behind
            self.step(clock.monotonic())
            if before == (self.behind, self.catch_up.behind):
                break
        if self.behind:
            _log.error("closing with %d bytes not dispatched", self.behind)
        if self.catch_up.behind:
            _log.warning("closing with %d bytes not in the index", self.catch_up.behind)

    def drop_queues(self, topic: str, below: int) -> None:
        """Remove a topic's entries of records below a physical offset, while dispatch is paused.

        Raises OSError.
        """
        with self._hold_lock():
            self._queues.remove_before(topic, below)

    def rest(self, queues: Iterable[ConsumeQueue]) -> None:
        """Let queues ``rest`` while dispatch is paused."""
        with self._hold_lock():
            for queue in queues:
                queue.rest()

    def subscribe(self, topic: str, change: Callable[[], None]) -> None:
        """Change a topic's subscriptions while dispatch is paused.

        All records that are dispatched after the return use the new subscriptions.
        """
        with self._hold_lock():
            change()
            self._queues.route(topic)

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the lock, and keep the kernel's puts from dispatching."""
        with self._lock:
            self.end.is_idle = False
            try:
                yield
            finally:
                self._allow_inline_puts()

    def _allow_inline_puts(self) -> None:
        """Let puts dispatch their own records when nothing else is left to dispatch."""
        settled = self.catch_up.is_joined and self.catch_up.boundary is None
        self._searches.forget()
        self.end.is_idle = settled and not self._closed and not self._listeners

    # the two runs -------------------------------------------------------------------------

    def _advance(self, end: int) -> bool:
        """Run one slice of the queues' run; returns whether more is left below ``end``."""
        left = SLICE_RECORDS
        end = min(end, self._log.max_offset)
        if self.position < self._log.min_offset:
            self.counts.note_lost(
                self.position, self._log.min_offset, "it expired before it was dispatched"
            )
            self.end.position = self._log.min_offset
        while self.position < end and left > 0:
            index = self.catch_up.joined_index
            offset, handled = self._slice(self.position, end, index, left, with_queues=True)
            if offset == self.position:
                return False
            self.end.position = offset
            self.end.records += handled
            left -= max(handled, 1)
        if self.position == end:
            self._entries.settle()
        return self.position < end

    def _advance_index(self) -> bool:
        """Run one slice of the index's own run; returns whether more is left."""
        return self.catch_up.advance(self._walk_index, SLICE_RECORDS)

    def _walk_index(self, offset: int, end: int, left: int) -> tuple[int, int]:
        reached, handled = self._slice(offset, end, self._index, left, with_queues=False)
        self.counts.indexed += handled
        return reached, handled

    def _slice(
        self, offset: int, end: int, index: IndexService | None, left: int, *, with_queues: bool
    ) -> tuple[int, int]:
        """Handle records of one segment; returns the offset reached and the number of records.

        The offset is ``offset`` when nothing can be read there yet.
        """
        stretch = self._stretch(offset, end)
        if stretch is not None:
            if with_queues:
                self._near = stretch.view, stretch.base
            return self._run(stretch, index, left, with_queues=with_queues)
        following = self._after_segment(offset)
        if with_queues and following > offset and self._log.view_from(offset) is None:
            self.counts.note_lost(offset, following, "their segment is not there")
        return following, 0

    def _run(
        self, stretch: Stretch, index: IndexService | None, left: int, *, with_queues: bool
    ) -> tuple[int, int]:
        """Handle records of a stretch; returns the offset reached and the number of records."""
        end = self._index_limit(stretch) if index is not None else stretch.end
        if end == stretch.position:
            return self._handle_one(stretch, index, with_queues)
        stop, position, handled, store_ms = dispatch_run(
            stretch.view,
            stretch.position,
            end,
            stretch.base,
            self._queues.windows if with_queues else None,
            index.window if index is not None else None,
            index_tags=index is not None and index.indexes_tags,
            skip_index_below=self.catch_up.skip_below,
            max_records=left,
            touched=self._touched,
        )
        if with_queues and handled:
            self.end.last_store_timestamp_ms = store_ms
        if stop is Stop.END or stop is Stop.LIMIT:
            return stretch.base + position, handled
        if stop is Stop.BLANK:
            return self._after_segment(stretch.base + position), handled
        if position > stretch.position:
            # Counted before the next record is tried: the disk may reject that one.
            return stretch.base + position, handled
        return self._handle_one(stretch, index, with_queues)

    def _handle_one(
        self, stretch: Stretch, index: IndexService | None, with_queues: bool
    ) -> tuple[int, int]:
        """Handle the one record at which the kernel stopped."""
        view, at, offset = stretch.view, stretch.position, stretch.offset
        found: Record | None
        try:
            found = records.decode(
                view, at, stretch.end, physical_offset=offset, verify_body=False, with_body=False
            )
        except RecordError as error:
            if check_record(view, at, stretch.end, offset, False)[0] == Defect.BLANK:
                return self._after_segment(offset), 0
            found = placeable_record(stretch)
            if with_queues:
                self.counts.add_defect(error, placed=found is not None)
            if found is None:
                return self._skip(stretch, with_queues), 0
        if with_queues:
            self.end.last_store_timestamp_ms = found.store_timestamp_ms
            self._entries.put(found, self._touched)
        if index is not None:
            self._put_in_index(index, found, leaves=with_queues)
        return offset + found.size, 1

    def _put_in_index(self, index: IndexService, found: Record, *, leaves: bool) -> None:
        """Put a record into the index.

        With ``leaves``, a rejection by the disk makes the index leave the queues' run; its own run
        retries. Without it, OSError is raised.
        """
        offset = found.physical_offset
        try:
            index.put(found)
        except OSError as error:
            if not leaves:
                raise
            self.catch_up.leave(offset)
            self._log_refusal("index", error)
        else:
            self.catch_up.note_put(offset)

    # the index ----------------------------------------------------------------------------

    def _index_limit(self, stretch: Stretch) -> int:
        """The position at which the kernel must stop, to handle the boundary message separately."""
        boundary = self.catch_up.boundary
        if boundary is None or not stretch.offset <= boundary < stretch.base + stretch.end:
            return stretch.end
        return boundary - stretch.base

    # publishing ---------------------------------------------------------------------------

    def _publish(self) -> None:
        """Publish the entries first, then the offset, then wake the waiting readers."""
        if self._closed:
            return
        self._watermarks.set_dispatched(min(self.position, self._shown_end))
        if self._touched:
            touched, self._touched = self._touched, set()
            self._queues.publish(touched)
            for listener in self._listeners:
                listener(touched)

    # places and damage --------------------------------------------------------------------

    def _stretch(self, offset: int, end: int) -> Stretch | None:
        """The readable part of a segment from ``offset`` to ``end``; None when there is none."""
        place = self._log.view_from(offset)
        if place is None:
            return None
        view, position, readable = place
        base = offset - position
        stop = min(readable, end - base)
        return Stretch(view, position, stop, base) if position < stop else None

    def _after_segment(self, offset: int) -> int:
        """The start of the next segment; ``offset`` itself while the log does not reach it."""
        following = (offset // self._segment_size + 1) * self._segment_size
        return following if following <= self._log.max_offset else offset

    def _skip(self, stretch: Stretch, count: bool) -> int:
        resume = resume_after(stretch, self._queues, self._searches)
        reached = stretch.base + resume.position
        if count:
            self.counts.note_lost(stretch.offset, reached, resume.why)
        return reached
