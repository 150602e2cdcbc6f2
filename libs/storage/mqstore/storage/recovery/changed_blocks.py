"""Finds the blocks of one segment that do not match their checksums.

Called from ``log_scan``. Blocks are compared when first needed: most scans end before they need
any.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from mqstore.storage._kernel import Defect, check_record
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.metadata.block_files import BlockFiles, damage_in
from mqstore.storage.metadata.changed_bytes import BLANK, REACHES, explain
from mqstore.storage.metadata.changed_word import (
    WORD_SIZE,
    ChangedWord,
    find_changed_word,
    restore_words,
)
from mqstore.storage.recovery.view import Segment

_REACH: Final = 8 << 20
"""Size of the longest record that is tried with its changed words restored."""
_HEAD: Final = 256
"""Bytes that hold a record's size and its first fields."""
_COPIES: Final = 4
"""Number of times that the bytes of a segment (of a small one, ``_REACH`` bytes) are copied at most
to try restored words. Words that are not restored stay damage."""


class ChangedBlocks:
    """The changed blocks of one segment; used while ``view``, the whole segment, is mapped."""

    def __init__(self, blocks: BlockFiles | None, segment: Segment | None, view: memoryview):
        self._view = view
        self._base = 0 if segment is None else segment.base
        self._entries = None
        if blocks is not None and segment is not None:
            self._entries = blocks.entries(segment.base)
        self._words: list[ChangedWord] | None = None
        self._left = _COPIES * max(len(view), _REACH)
        """Bytes that may still be copied."""

    def ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """The damaged positions (from, to) of each block that holds positions from ``start`` to
        before ``end``."""
        if self._entries is None:
            return []
        return list(damage_in(self._view, self._entries, self._base, start, end))

    def words_of(self, view: memoryview, position: int) -> tuple[list[ChangedWord], int]:
        """The changed words whose restoration makes a whole record at ``position`` of ``view``, and
        its size; none and 0 without such a record."""
        words = self._words_from(position - WORD_SIZE + 1)
        if not words or words[0].position >= position + _REACH:
            return [], 0
        stop = min(position + self._size_at(view, position, words), len(view))
        words = [word for word in words if word.position < stop]
        if not words or stop - position > self._left:
            return [], 0
        self._left -= stop - position
        copy = memoryview(restore_words(view, position, stop, words))
        defect, size = check_record(copy, 0, len(copy), self._base + position, True)
        if defect == Defect.BLANK and size != len(view) - position:
            return [], 0
        if defect not in (Defect.NONE, Defect.BLANK) or words[0].position >= position + size:
            return [], 0
        return [word for word in words if word.position < position + size], size

    def _size_at(self, view: memoryview, position: int, words: list[ChangedWord]) -> int:
        """The bytes that a record states with its changed words restored, at most ``_REACH``; those
        of its head where it states fewer."""
        head = restore_words(view, position, position + _HEAD, words)
        return max(_HEAD, min(int.from_bytes(head[:4]), _REACH))

    def _words_from(self, position: int) -> list[ChangedWord]:
        """The changed words from a position on, as far as one record reaches."""
        words = self._all_words()
        first = bisect_left(words, position, key=lambda word: word.position)
        end = bisect_left(words, position + _REACH + WORD_SIZE, key=lambda word: word.position)
        return words[first:end]

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
        found = explain(self._view, end, self._entries, self._base, number, 0, reaches=REACHES[:1])
        if found.record_offset is None and self._left > 0:
            self._left -= 2 * REACHES[-1]
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
