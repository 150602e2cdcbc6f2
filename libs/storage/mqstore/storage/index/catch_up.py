"""How far the index has come beside the queues, and its own run where it is behind them.

Used by ``dispatch``, which walks the records, and by ``rebuild``, whose files replace what the run
would write. While the index is joined, the queues' run gives it each record; while it is not, a run
of its own catches up in the background and the index does not count as complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from mqstore.storage._kernel import DispatchEnd
from mqstore.storage.index.service import IndexService

Walk = Callable[[int, int, int], tuple[int, int]]
"""Puts records into the index: from an offset, up to an end, at most so many; returns the offset
reached and how many records were handled."""


class LogBounds(Protocol):
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...


class IndexWatermark(Protocol):
    """Where readers see whether the index is complete (the state page)."""

    def set_index_complete(self, complete: bool) -> None: ...


class IndexCatchUp:
    """State of one store's index. Any thread reads the properties; methods without a lock of their
    own are called with the dispatcher's lock held."""

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
        """``end`` is the queues' position, ``running`` takes the dispatcher's lock.

        Everything below ``position`` is in the index; default: where its last file ends. The index
        catches up by itself with at most ``size_max`` bytes of log.
        """
        self._index = index
        self._log = log
        self._end = end
        self._watermark = watermark
        self._running = running
        self._size_max = size_max
        self.boundary: int | None = None
        """Physical offset of the last message in the index: maybe not all of its keys are in it."""
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
        """Files of the index that were removed or damaged under the writer."""
        lacking = log.max_offset - max(position, log.min_offset)
        self._waits = index is not None and lacking > size_max
        """Whether all that the index lacks is left to a rebuild."""
        self._roll_due: tuple[int, int] | None = None
        """Where the index begins a new file, and how many names that leaves free."""
        self._stands = False
        """Whether the index's own run waits for a rebuild to end."""

    @property
    def complete(self) -> bool:
        """Whether the index covers all that is dispatched; False without an index."""
        return self._joined and not self.lost

    @property
    def position(self) -> int:
        """Physical offset up to which the index is written."""
        return self._end.position if self._joined else self._position

    @property
    def behind(self) -> int:
        """Bytes of the log that are in the queues and not in the index; 0 without an index."""
        return 0 if self._index is None else self._end.position - self.position

    @property
    def runs(self) -> bool:
        """Whether the index's own run has anything to write, and may."""
        return self.behind > 0 and not self._waits

    @property
    def trouble(self) -> str | None:
        """Why keys may be missed until the index is rebuilt, or None."""
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
        """Whether the queues' run is all that there is; True without an index."""
        return self._index is None or self._joined

    @property
    def joined_index(self) -> IndexService | None:
        """The index, where the queues' run gives it each record."""
        return self._index if self._joined else None

    def join(self) -> bool:
        """Have the index go with the queues once it has caught up; whether it does."""
        if self._index is not None and not self._joined and not self._waits:
            self._joined = self._position >= self._end.position
            self._watermark.set_index_complete(self.complete)
        return self._joined

    def leave(self, offset: int) -> None:
        """The disk refused a file: the index covers what lies below a physical offset, and maybe
        some keys of the message there."""
        self._joined, self._position, self.boundary = False, offset, offset
        self._watermark.set_index_complete(self.complete)

    def note_put(self, offset: int) -> None:
        """All keys of the message at a physical offset are in the index."""
        if self.boundary == offset:
            self.boundary = None

    def advance(self, walk: Walk, records_max: int) -> bool:
        """A slice of the index's own run over records that the queues have already; whether more is
        left. Raises what ``walk`` raises, and OSError."""
        if self._index is None or self._joined or self._waits or self._stands:
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
        """Of all from ``start`` up to the offset that is returned: from there on the index's items
        go to a new file, or will where the index is behind it yet. OSError."""
        index = self._required_index
        with self._running():
            index.rolled = None
            self._roll_due = self._end.position, index.room_for(self._end.position - start)
            self._stands = False
            if self._joined and self.boundary is None:
                self._roll()
            return self._end.position

    def hold(self) -> None:
        """The index's own run, where it is below a rebuild's end, stands still until the rebuild
        has ended: what it would write is replaced."""
        with self._running():
            self._stands = self._roll_due is not None

    def end_rebuild(self) -> None:
        """Without its files: the index goes on as if no rebuild had been."""
        with self._running():
            self._roll_due, self._stands = None, False
            self._required_index.rolled = None

    @contextmanager
    def adopting(self, end: int) -> Iterator[None]:
        """While a rebuild's files become the index of everything below ``end``."""
        with self._running():
            yield
            if self._roll_due is not None:
                self._position = max(self._position, end)
                self._roll_due, self.boundary = None, None
            self._stands = self._waits = False
            self.lost = self._required_index.lost_when_swapped()
            self.join()
            self._watermark.set_index_complete(self.complete)

    def lose(self, files: tuple[str, ...]) -> None:
        """These are gone: until they are made again the index does not count as complete."""
        with self._running():
            self.lost = files
            self._watermark.set_index_complete(self.complete)

    @property
    def _required_index(self) -> IndexService:
        if self._index is None:
            raise ValueError("without messageIndexEnable there is no index")
        return self._index

    def _roll(self) -> None:
        """Where a rebuild ends."""
        if self._roll_due is not None:
            _, room = self._roll_due
            self._required_index.roll(room)
            self._roll_due = None
