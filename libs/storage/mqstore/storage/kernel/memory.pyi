"""Whether bytes are in memory."""

from mqstore.storage.kernel.lookup import LogWindow

def in_memory(
    window: LogWindow, entries: memoryview, position: int, count: int, max_bytes: int
) -> int:
    """Count the entries at ``entries[position:]``, ``count`` at most, that can be read without
    waiting for the disk.

    They, the blocks of the log with their records, and the blocks' checksums are in the page cache.
    Of records with ``max_bytes`` at most, in known segments. Only for a process that may write the
    files: for others Linux reports all pages as present (mincore(2)). Pages may leave memory a
    moment later.
    """
