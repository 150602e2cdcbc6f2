"""Checksums of the log's blocks.

``log`` is one segment that begins at physical offset ``base``, ``entries`` its whole side file
(``block_files``); positions are the segment's, blocks are counted from its begin.
"""

def cover_blocks(log: memoryview, entries: memoryview, base: int, start: int, end: int) -> int:
    """Extend the entries of every block from that of ``start`` on to cover the log up to ``end``.

    Only for bytes that were synced. An entry is extended from its own values for the earlier bytes,
    so that it still shows a change of those. Returns the number of newly covered bytes. Releases
    the GIL from 64 KiB on. Raises ValueError when a view is too short.
    """

def check_block(log: memoryview, entries: memoryview, base: int, number: int, known: int) -> int:
    """The number of bytes of a block that its entry covers (0: there is none), or -1 when they do
    not match it.

    Not compared when at most ``known`` bytes are covered.
    """

def locate_damage(log: memoryview, entries: memoryview, base: int, number: int) -> tuple[int, int]:
    """The positions in ``log`` between which all changes lie: one 4-byte word when nothing else
    changed, else all covered bytes; equal when nothing changed."""
