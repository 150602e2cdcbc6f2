"""Checksums of the log's blocks.

``log`` is one segment that begins at physical offset ``base``, ``entries`` its whole side file
(``block_files``); positions are the segment's, blocks are counted from its begin.
"""

def cover_blocks(log: memoryview, entries: memoryview, base: int, start: int, end: int) -> int:
    """Have the entries of every block from that of ``start`` on cover the log up to ``end``.

    Only for bytes that were synced. An entry is carried on from what it says of the bytes before,
    so that a change of these is still found. Returns how many bytes were not covered before.
    Releases the GIL from 64 KiB on. ValueError when a view is too short.
    """

def check_block(log: memoryview, entries: memoryview, base: int, number: int, known: int) -> int:
    """How many bytes of a block its entry covers (0: there is none), or -1 when they are not those
    that it was made over. Not compared when at most ``known`` bytes are covered."""

def locate_damage(log: memoryview, entries: memoryview, base: int, number: int) -> tuple[int, int]:
    """Positions in ``log`` between which lies all that is not as covered: the changed bytes of one
    4-byte word when nothing else changed, else all that is covered; equal when nothing changed."""
