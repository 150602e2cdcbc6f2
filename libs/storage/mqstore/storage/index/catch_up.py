"""Tracks how far the index is behind the queues, and runs its catch-up.

Used by ``dispatch``, which walks the records, and by ``rebuild``, whose files replace those that
the catch-up would write. While the index is joined, the queues' run puts each record into it.
Otherwise a run of its own catches up in the background, and the index does not count as complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from mqstore.storage._kernel import DispatchEnd
from mqstore.storage.index.service import IndexService

Walk = Callable[[int, int, int], tuple[int, int]]
"""Puts records into the index, from an offset up to an end, at most a number of them; returns the
offset reached and the number of records."""


class LogBounds(Protocol):
    """The bounds of the readable log."""

    @property
    def min_offset(self) -> int:
        """The first physical offset."""

    @property
    def max_offset(self) -> int:
        """The readable end, a physical offset."""


class IndexWatermark(Protocol):
    """Publishes whether the index is complete (the state page)."""

    def set_index_complete(self, complete: bool) -> None:
        """Publish whether the index is complete."""


class IndexCatchUp:
    """The progress of one store's index.

    Any thread reads the properties; methods without a lock of their own are called with the
    dispatcher's lock held.
    """

    def __init__(
        self,
        index: IndexService | None,
        log: LogBounds,
        end: DispatchEnd,
        watermark: IndexWatermark,
        running: Callable[[], AbstractContextManager[None]],
        *,
        position: int | None,
        size_max: int,
    ) -> None:
        """``end`` is the queues' position; ``running`` takes the dispatcher's lock.

        All records below ``position`` are in the index; default: the end of its last file. The
        index catches up by itself with at most ``size_max`` bytes of log.
        """
        self._index = index
        self._log = log
        self._end = end
        self._watermark = watermark
        self._running = running
        self._size_max = size_max
        self.boundary: int | None = None
        """Physical offset of the last message in the index, some of whose keys may be missing."""
        self.skip_below = 0
        """Records below this physical offset are in the index already."""
        if index is not None and not index.is_empty:
            self.boundary = index.end_physical
            self.skip_below = self.boundary + 1
        if position is None:
            position = log.min_offset if self.boundary is None else self.boundary
        self._position = position
        self._joined = False
        self.lost: tuple[str, ...] = ()
        """Index files that were removed or damaged while the store was open."""
        lacking = log.max_offset - max(position, log.min_offset)
        self._waits = index is not None and lacking > size_max
        """Whether the missing part of the index is left to a rebuild."""
        self._roll_due: tuple[int, int] | None = None
        """The offset at which the index begins a new file, and the number of names to leave
        free."""
        self._is_held = False
        """Whether the index's own run waits for a rebuild to end."""

    @property
    def complete(self) -> bool:
        """Whether the index covers all dispatched records; False without an index."""
        return self._joined and not self.lost

    @property
    def position(self) -> int:
        """Physical offset up to which the index is written."""
        return self._end.position if self._joined else self._position

    @property
    def behind(self) -> int:
        """Bytes of the log that are in the queues but not in the index; 0 without an index."""
        return 0 if self._index is None else self._end.position - self.position

    @property
    def has_work(self) -> bool:
        """Whether the index's own run has records to index, and may."""
        return self.behind > 0 and not self._waits

    @property
    def trouble(self) -> str | None:
        """Why keys may be missing until the index is rebuilt, or None."""
        if lost := self.lost:
            return f"{len(lost)} files of the index are gone or damaged, as {lost[0]}; rebuild it"
        if self._waits:
            return (
                f"the index lacks {self.behind} bytes of the log, more than"
                f" indexCatchUpSize {self._size_max}; rebuild it"
            )
        return None

    # for the dispatcher

    @property
    def is_joined(self) -> bool:
        """Whether the queues' run indexes all records; True without an index."""
        return self._index is None or self._joined

    @property
    def joined_index(self) -> IndexService | None:
        """The index when the queues' run puts each record into it; else None."""
        return self._index if self._joined else None

    def join(self) -> bool:
        """Join the index to the queues' run once it has caught up; returns whether it is joined."""
        if self._index is not None and not self._joined and not self._waits:
            self._joined = self._position >= self._end.position
            self._watermark.set_index_complete(self.complete)
        return self._joined

    def leave(self, offset: int) -> None:
        """Separate the index from the queues' run after the disk rejected a file.

        The index covers the records below ``offset``, and perhaps some keys of the message there.
        """
        self._joined, self._position, self.boundary = False, offset, offset
        self._watermark.set_index_complete(self.complete)

    def note_put(self, offset: int) -> None:
        """Note that all keys of the message at a physical offset are in the index."""
        if self.boundary == offset:
            self.boundary = None

    def advance(self, walk: Walk, records_max: int) -> bool:
        """Run a slice of the index's own run over dispatched records; returns whether more is left.

        Raises the errors of ``walk``, and OSError.
        """
        if self._index is None or self._joined or self._waits or self._is_held:
            return False
        self._position = max(self._position, self._log.min_offset)
        left = records_max
        while self._position < self._end.position and left > 0:
            stop, _ = self._roll_due or (self._end.position, 0)
            if self._position >= stop:
                self._roll()
                continue
            self._position, handled = walk(self._position, stop, left)
            left -= max(handled, 1)
        if self._position >= self._end.position:
            self._roll()
        return not self.join()

    # beside a rebuild; each takes the dispatcher's lock

    def begin_rebuild(self, start: int) -> int:
        """Begin a rebuild of all records from ``start`` to the returned offset.

        From that offset on, items go to a new file, now or when the index reaches it. Raises
        OSError.
        """
        index = self._required_index
        with self._running():
            index.rebuild_boundary = None
            self._roll_due = self._end.position, index.room_for(self._end.position - start)
            self._is_held = False
            if self._joined and self.boundary is None:
                self._roll()
            return self._end.position

    def hold(self) -> None:
        """Stop the index's own run below a rebuild's end until the rebuild has ended, which
        replaces its items."""
        with self._running():
            self._is_held = self._roll_due is not None

    def end_rebuild(self) -> None:
        """End a rebuild without its files: the index continues as before."""
        with self._running():
            self._roll_due, self._is_held = None, False
            self._required_index.rebuild_boundary = None

    @contextmanager
    def adopt_rebuild(self, end: int) -> Iterator[None]:
        """Make a rebuild's files the index of all records below ``end``."""
        with self._running():
            yield
            if self._roll_due is not None:
                self._position = max(self._position, end)
                self._roll_due, self.boundary = None, None
            self._is_held = self._waits = False
            self.lost = self._required_index.missing_at_swap()
            self.join()
            self._watermark.set_index_complete(self.complete)

    def note_lost(self, files: tuple[str, ...]) -> None:
        """Note lost files: until they are rebuilt the index does not count as complete."""
        with self._running():
            self.lost = files
            self._watermark.set_index_complete(self.complete)

    @property
    def _required_index(self) -> IndexService:
        if self._index is None:
            raise ValueError("without messageIndexEnable there is no index")
        return self._index

    def _roll(self) -> None:
        """Begin a new file at the end of a rebuild."""
        if self._roll_due is not None:
            _, room = self._roll_due
            self._required_index.roll(room)
            self._roll_due = None
