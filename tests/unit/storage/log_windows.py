"""A kernel's window over one segment in memory."""

from __future__ import annotations

from mqstore.storage._kernel import LogWindow, MessageForm, Segment, Word, cover_blocks
from mqstore.storage.codec.record import Record
from mqstore.storage.layout import BLOCK_ENTRY_SIZE, BLOCK_HEADER_SIZE
from mqstore.storage.metadata.block_files import blocks_of


def bounds(minimum: int, maximum: int, dispatched: int | None = None) -> tuple[Word, ...]:
    """Epoch 0, minimum, maximum and dispatched offset, that the index is complete, and that nothing
    changes."""
    page = memoryview(bytearray(48))
    words = tuple(Word(page, at) for at in range(0, 48, 8))
    words[1].value, words[2].value = minimum, maximum
    words[3].value = maximum if dispatched is None else dispatched
    words[4].value = 1
    return words


def entries_of(log: bytes | bytearray | memoryview, base: int, end: int) -> memoryview:
    """A side file that covers a segment up to a position."""
    entries = memoryview(bytearray(BLOCK_HEADER_SIZE + BLOCK_ENTRY_SIZE * blocks_of(len(log))))
    cover_blocks(memoryview(log), entries, base, 0, end)
    return entries


def window_over(
    log: bytes | bytearray | memoryview, base: int = 0, *, covered: int | None = None
) -> LogWindow:
    """All of the log is dispatched; ``covered`` bytes of it have checksums (None: no side file)."""
    window = LogWindow(*bounds(base, base + len(log)))
    if len(log):
        entries = None if covered is None else entries_of(log, base, covered)
        window.add(Segment(memoryview(log), base, entries), 4, 0)
    return window


def plain_form(shard: int = 0) -> MessageForm:
    """The form of plain messages, with bodies and without names of flags."""
    return MessageForm(
        shard,
        Record,
        bodies=True,
        flag_names=lambda _: b"[]",
        host_text=str,
        encode_rest=lambda _: b"{}",
    )
