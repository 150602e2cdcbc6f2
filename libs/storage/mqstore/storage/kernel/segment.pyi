"""The mapped bytes of one file."""

class Segment:
    """One mapped segment of the log, and up to where its blocks are known to be as they were
    written. A block is compared with its checksum once and remembered; where it is not as covered,
    too. Keeps both buffers' memory."""

    def __init__(self, view: memoryview, base: int, entries: memoryview | None = None) -> None:
        """``view`` is the whole segment, ``base`` its first physical offset, ``entries`` its side
        file; ValueError when that is too short."""
    @property
    def view(self) -> memoryview:
        """Read-only."""
    @property
    def entries(self) -> memoryview | None: ...
    @property
    def base(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def lacks_checksums(self) -> bool:
        """True from time to time: it had none when it was made, and may have some by now."""
    def changed_block(self, position: int, size: int) -> int:
        """The first block of these bytes that is not as covered, by number; -1 for none."""
    def covered(self, position: int, size: int) -> int:
        """How many of these bytes are known to be as they were written."""
