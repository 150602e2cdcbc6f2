"""Whether bytes are in memory."""

from mqstore.storage.kernel.lookup import LogWindow

def in_memory(
    window: LogWindow, entries: memoryview, position: int, count: int, max_bytes: int
) -> int:
    """How many of the entries at ``entries[position:]``, ``count`` at most, can be read without
    waiting for the disk: they, the blocks of the log that their records lie in, and the blocks'
    checksums are in the page cache. Of records with ``max_bytes`` at most, in known segments.

    Only for who may write the files: to others Linux says of everything that it is there
    (mincore(2)). It may be gone a moment later.
    """
