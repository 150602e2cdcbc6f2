"""Finds the blocks of one segment that do not match their checksums.

Called from ``log_scan``. Blocks are compared when first needed: most scans end before they need
any.
"""

from __future__ import annotations

from typing import Final

from mqstore.storage._kernel import Defect, check_record
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.metadata.block_files import BlockFiles, damage_in
from mqstore.storage.metadata.changed_word import (
    WORD_SIZE,
    ChangedWord,
    find_changed_word,
    restore_words,
)
from mqstore.storage.metadata.finding import BLANK, explain
from mqstore.storage.recovery.view import Segment

_REACH: Final = 8 << 20
"""Size of the longest record that is tried with its changed words restored."""


class ChangedBlocks:
    """The changed blocks of one segment; used while ``view``, the whole segment, is mapped."""

    def __init__(self, blocks: BlockFiles | None, segment: Segment | None, view: memoryview):
        self._view = view
        self._base = 0 if segment is None else segment.base
        self._entries = None
        if blocks is not None and segment is not None:
            self._entries = blocks.entries(segment.base)
        self._words: list[ChangedWord] | None = None

    def ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """The damaged positions (from, to) of each block that holds positions from ``start`` to
        before ``end``."""
        if self._entries is None:
            return []
        return list(damage_in(self._view, self._entries, self._base, start, end))

    def words_of(self, view: memoryview, position: int) -> tuple[list[ChangedWord], int]:
        """The changed words whose restoration makes a whole record at ``position`` of ``view``, and
        its size; none and 0 without such a record."""
        words = [word for word in self._all_words() if word.position + WORD_SIZE > position]
        if not words or words[0].position >= position + _REACH:
            return [], 0
        stop = min(len(view), position + _REACH)
        copy = memoryview(restore_words(view, position, stop, words))
        defect, size = check_record(copy, 0, len(copy), self._base + position, True)
        if defect == Defect.BLANK and size != len(view) - position:
            return [], 0
        if defect not in (Defect.NONE, Defect.BLANK) or words[0].position >= position + size:
            return [], 0
        return [word for word in words if word.position < position + size], size

    def holder(self, position: int, end: int) -> tuple[ChangedWord, int] | None:
        """The changed word at a position, and the physical offset of the whole record that holds it
        once restored; ``end`` is the end of the used bytes.

        None where more than a word has changed, or no record is whole with it. In a segment's
        unused rest the offset is the word's own.
        """
        assert self._entries is not None
        number = position // BLOCK_SIZE
        word = find_changed_word(self._view, self._entries, self._base, number)
        if word is None:
            return None
        found = explain(self._view, end, self._entries, self._base, number, 0)
        if found.record_offset is not None:
            return word, found.record_offset
        is_unused = found.field == BLANK and not any(word.content)
        return (word, self._base + word.position) if is_unused else None

    def _all_words(self) -> list[ChangedWord]:
        if self._words is None:
            found = [
                find_changed_word(self._view, self._entries, self._base, low // BLOCK_SIZE)
                for low, _ in self.ranges(0, len(self._view))
                if self._entries is not None
            ]
            self._words = [word for word in found if word is not None]
        return self._words
