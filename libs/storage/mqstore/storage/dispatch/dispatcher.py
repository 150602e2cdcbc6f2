"""From the log into queues and index (RocketMQ's reput), up to the log's readable end.

Ordinary records go through the kernel's loop; whatever it stops at is handled here, one record at
a time: new queues and files, holes, delayed and multi-dispatched records, damage. The dispatched
offset is published after the entries are written. Source: ReputMessageService and the dispatchers
of 4.9.7 and 5.4.0.

Called from the append's thread while caught up (``run_inline``) and from a background service when
behind (``step``); a lock lets one of them run at a time. While nobody does and nothing is left to
do, ``end.is_idle`` lets the kernel dispatch a record as it puts it (``LogEnd.put``).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from threading import Lock
from typing import Final, Protocol

from mqstore.storage._kernel import Defect, DispatchEnd, Stop, check_record, dispatch_run
from mqstore.storage.codec import record as records
from mqstore.storage.codec.record import Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.dispatch.counts import DispatchCounts
from mqstore.storage.dispatch.defects import Stretch, placeable_record, resume_after
from mqstore.storage.errors import RecordError
from mqstore.storage.index.catch_up import IndexCatchUp, IndexWatermark
from mqstore.storage.index.service import IndexService
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.queues.queue_entries import Bitmaps, QueueEntries
from mqstore.storage.seams import Clock

SLICE_RECORDS: Final = 20_000
"""Records handled before the lock is given back and the dispatched offset published."""
INLINE_MAX: Final = 8 << 20
"""Bytes behind from which an append leaves dispatching to the background."""
RETRY_S: Final = 1.0
"""Pause after the disk refused a new file."""
INDEX_PATIENCE_S: Final = 5.0
"""How long a close goes on with an index that is being made again."""

_log = logging.getLogger(__name__)

Listener = Callable[[Set[bytes]], None]
"""Told of ``queue_key``s that got entries, after those can be read."""


class LogView(Protocol):
    """The commit log as far as it may be read."""

    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    def view_from(self, offset: int) -> tuple[memoryview, int, int] | None:
        """The whole segment that holds an offset, the position in it, and its readable end."""


class Watermarks(IndexWatermark, Protocol):
    """Where the dispatched offset is published (the state page)."""

    def set_dispatched(self, offset: int) -> None: ...


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
    ) -> None:
        """Everything below ``position`` is in the queues, below ``index_position`` in the index
        (default: where its last file ends; see ``IndexCatchUp``). Records of a topic
        below ``deleted_below`` get no queue entry; queues that have none of theirs never get one.
        ``bitmaps``: of topics that have subscriptions, the queues' entries get units.
        """
        self.counts = DispatchCounts()
        self.end = DispatchEnd()
        self.end.position = position
        self._log = log
        self._queues = queues
        self._index = index
        self._watermarks = watermarks
        self._segment_size = config.mapped_file_size_commit_log
        self._entries = QueueEntries(queues, config, self.counts, deleted_below, bitmaps)
        self._listeners: list[Listener] = []
        self._lock = Lock()
        self._closed = False
        self._touched: set[bytes] = set()
        self._near = memoryview(b""), 0
        """The segment that was dispatched from last, and where it begins in the log."""
        self.catch_up = IndexCatchUp(
            index,
            log,
            self.end,
            watermarks,
            self._running,
            position=index_position,
            size_max=config.index_catch_up_size,
        )
        self._refused_at: tuple[str, int] | None = None
        """Where the disk refused a file of the queues or the index last."""
        self.end.follow(
            queues.windows_by_place,
            None if index is None else index.window,
            index is not None and index.indexes_tags,
            self.catch_up.skip_below,
        )
        self.catch_up.join()
        self._rest()

    @property
    def position(self) -> int:
        """Physical offset up to which the queues are written and published."""
        return self.end.position

    @property
    def records(self) -> int:
        """Handled, the index's own run over older records not included."""
        return self.end.records

    @property
    def last_store_timestamp_ms(self) -> int:
        """STORETIMESTAMP of the newest of them, 0 when there is none."""
        return self.end.last_store_timestamp_ms

    def add_listener(self, listener: Listener) -> None:
        """``listener`` runs in the dispatching thread: it must be quick and not raise."""
        with self._running():
            self._listeners.append(listener)

    @property
    def behind(self) -> int:
        """Bytes of the log that are not dispatched yet."""
        return max(0, self._log.max_offset - self.position)

    def step(self, now: float) -> float:
        """One slice of what is due. A full disk is logged and tried again later."""
        with self._running():
            try:
                more = self._advance(self._log.max_offset)
                if not more:
                    more = self._advance_index()
            except OSError as error:
                self._log_refusal("queues" if self.behind else "index", error)
                return now + RETRY_S
            finally:
                self._publish()
        return now if more else math.inf

    def _log_refusal(self, what: str, error: OSError) -> None:
        """Once for each place: every put wakes this service."""
        reached = self.position if what == "queues" else self.catch_up.position
        if self._refused_at != (what, reached):
            self._refused_at = what, reached
            _log.error("the %s cannot go on at offset %d, tried again: %s", what, reached, error)

    def run_inline(self, end: int) -> bool:
        """Dispatch up to ``end`` in the caller's thread, unless somebody else is at it, it is too
        far, or the disk is full; then False, and the service is to be woken."""
        if end - self.position > INLINE_MAX or not self._lock.acquire(blocking=False):
            return False
        self.end.is_idle = False
        try:
            if not self._run_near(end):
                while not self._closed and self._advance(end):
                    pass
        except OSError:
            return False
        finally:
            self._publish()
            self._rest()
            self._lock.release()
        return self.catch_up.is_joined

    def _run_near(self, end: int) -> bool:
        """``_advance`` for the usual case, in one call of the kernel: plain records, in the
        segment of the last one. False where there is more to it; nothing is lost then."""
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

    def close(self) -> None:
        """Return when nobody dispatches any more, nor ever will: files may be closed now.

        A put that was appended before may still come to dispatch its record; it finds this.
        """
        with self._running():
            self._closed = True

    def run_to_end(self, progress: Callable[[int], None] | None = None) -> None:
        """Dispatch everything, index included, in the caller's thread (recovery, a clean close).

        Raises OSError when the disk refuses. ``progress`` is told the position now and then.
        """
        with self._running():
            more = True
            while more:
                try:
                    more = self._advance(self._log.max_offset) or self._advance_index()
                finally:
                    self._publish()
                if progress is not None:
                    progress(self.position)

    def finish(self, clock: Clock) -> None:
        """What a close still does: all of the queues and, of an index that is being made again,
        what can be made in INDEX_PATIENCE_S; less where the disk refuses."""
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

    def drop_queues(self, topic: str) -> None:
        """Unlink a topic's queues; nothing is dispatched meanwhile. OSError."""
        with self._running():
            self._queues.destroy_topic(topic)

    def subscribe(self, topic: str, change: Callable[[], None]) -> None:
        """Run a change of a topic's subscriptions while nobody dispatches: all records that are
        dispatched after this returns go by it."""
        with self._running():
            change()
            self._queues.route(topic)

    @contextmanager
    def _running(self) -> Iterator[None]:
        """With the lock held, and the kernel's puts leaving their dispatch to us."""
        with self._lock:
            self.end.is_idle = False
            try:
                yield
            finally:
                self._rest()

    def _rest(self) -> None:
        """Let puts dispatch their own records where those are all that there is to do."""
        settled = self.catch_up.is_joined and self.catch_up.boundary is None
        self.end.is_idle = settled and not self._closed and not self._listeners

    # the two runs -------------------------------------------------------------------------

    def _advance(self, end: int) -> bool:
        """A slice of the queues' run; whether anything is left below ``end``."""
        left = SLICE_RECORDS
        end = min(end, self._log.max_offset)
        if self.position < self._log.min_offset:
            self.counts.lose(
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
        return self.position < end

    def _advance_index(self) -> bool:
        """A slice of the index's own run."""
        return self.catch_up.advance(self._walk_index, SLICE_RECORDS)

    def _walk_index(self, offset: int, end: int, left: int) -> tuple[int, int]:
        reached, handled = self._slice(offset, end, self._index, left, with_queues=False)
        self.counts.indexed += handled
        return reached, handled

    def _slice(
        self, offset: int, end: int, index: IndexService | None, left: int, *, with_queues: bool
    ) -> tuple[int, int]:
        """Handle records of one segment; the offset reached, ``offset`` when nothing can be read
        there yet, and how many they were."""
        stretch = self._stretch(offset, end)
        if stretch is not None:
            if with_queues:
                self._near = stretch.view, stretch.base
            return self._run(stretch, index, left, with_queues=with_queues)
        following = self._after_segment(offset)
        if with_queues and following > offset and self._log.view_from(offset) is None:
            self.counts.lose(offset, following, "their segment is not there")
        return following, 0

    def _run(
        self, stretch: Stretch, index: IndexService | None, left: int, *, with_queues: bool
    ) -> tuple[int, int]:
        """Handle records of a stretch; the offset reached, and how many they were."""
        end = self._index_limit(stretch) if index is not None else stretch.end
        if end == stretch.position:
            return self._one(stretch, index, with_queues)
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
            # Counted before the next record is tried: the disk may refuse that one.
            return stretch.base + position, handled
        return self._one(stretch, index, with_queues)

    def _one(
        self, stretch: Stretch, index: IndexService | None, with_queues: bool
    ) -> tuple[int, int]:
        """Handle the one record that the kernel left."""
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
        """Where the disk refuses a file of the index, the queues go on without it (``leaves``), and
        its own run tries again. OSError without ``leaves``."""
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
        """Where the kernel must stop, so that the boundary message is handled with care."""
        boundary = self.catch_up.boundary
        if boundary is None or not stretch.offset <= boundary < stretch.base + stretch.end:
            return stretch.end
        return boundary - stretch.base

    # publishing ---------------------------------------------------------------------------

    def _publish(self) -> None:
        """Entries first, then the offset, then whoever waits for them."""
        if self._closed:
            return
        self._watermarks.set_dispatched(self.position)
        if self._touched:
            touched, self._touched = self._touched, set()
            self._queues.publish(touched)
            for listener in self._listeners:
                listener(touched)

    # places and damage --------------------------------------------------------------------

    def _stretch(self, offset: int, end: int) -> Stretch | None:
        """The readable part of a segment from ``offset`` to ``end``; None where there is none."""
        place = self._log.view_from(offset)
        if place is None:
            return None
        view, position, readable = place
        base = offset - position
        stop = min(readable, end - base)
        return Stretch(view, position, stop, base) if position < stop else None

    def _after_segment(self, offset: int) -> int:
        """Where the next segment begins; ``offset`` itself while the log does not reach there."""
        following = (offset // self._segment_size + 1) * self._segment_size
        return following if following <= self._log.max_offset else offset

    def _skip(self, stretch: Stretch, count: bool) -> int:
        resume = resume_after(stretch, self._queues)
        reached = stretch.base + resume.position
        if count:
            self.counts.lose(stretch.offset, reached, resume.why)
        return reached
