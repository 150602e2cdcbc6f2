"""Two views of a log whose readers see the confirmed part only: theirs, and the store's own.

Called from ``assembly``. ``StatePage.bound_reads`` says when readers are bounded.
"""

from __future__ import annotations

from mqstore.storage.lookup.views import BoundWords, LogView
from mqstore.storage.metadata.state_page import StatePage


class ReadableLog:
    """A log up to the end that the state page gives to readers (``views.LogView``)."""

    def __init__(self, log: LogView, page: StatePage) -> None:
        self._log = log
        self._page = page

    @property
    def min_offset(self) -> int:
        """The first physical offset."""
        return self._log.min_offset

    @property
    def max_offset(self) -> int:
        """The readable end, a physical offset."""
        return min(self._page.max_offset, self._log.max_offset)

    def view_from(self, offset: int) -> tuple[memoryview, int, int] | None:
        """As of ``LogView``."""
        left = self.max_offset - offset
        place = self._log.view_from(offset) if left > 0 else None
        if place is None:
            return None
        view, position, end = place
        return view, position, min(end, position + left)


class LogBounds:
    """The bounds of all that is stored (``views.Bounds``), for the store's own look-ups."""

    def __init__(self, page: StatePage) -> None:
        self._page = page
        self._end, self._dispatched = page.log_words

    @property
    def epoch(self) -> int:
        """See ``Bounds``."""
        return self._page.epoch

    @property
    def is_changing(self) -> bool:
        """See ``Bounds``."""
        return self._page.is_changing

    @property
    def dispatched_offset(self) -> int:
        """See ``Bounds``."""
        return self._dispatched.value

    @property
    def log_end(self) -> int:
        """See ``Bounds``."""
        return self._end.value

    @property
    def index_complete(self) -> bool:
        """See ``Bounds``."""
        return self._page.index_complete

    @property
    def bound_words(self) -> BoundWords:
        """See ``Bounds``."""
        epoch, minimum, _, _, complete, changing, _ = self._page.bound_words
        return epoch, minimum, self._end, self._dispatched, complete, changing, self._end
