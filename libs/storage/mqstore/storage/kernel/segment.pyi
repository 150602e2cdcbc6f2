"""The mapped bytes of one file."""

class Segment:
    """One mapped segment of the log, with the verified part of each block.

    A block is compared with its checksum once, and the result is cached. Keeps both buffers'
    memory.
    """

    def __init__(self, view: memoryview, base: int, entries: memoryview | None = None) -> None:
        """``view`` is the whole segment, ``base`` its first physical offset, ``entries`` its side
        file. Raises ValueError when that is too short."""
    @property
    def view(self) -> memoryview:
        """The whole segment, read-only."""
    @property
    def entries(self) -> memoryview | None:
        """The side file, or None."""
    @property
    def base(self) -> int:
        """The first physical offset."""
    @property
    def size(self) -> int:
        """Bytes of the segment."""
    @property
    def lacks_checksums(self) -> bool:
        """Whether to look for checksums again: true from time to time when it had none."""
    def changed_block(self, position: int, size: int) -> int:
        """The number of the first block of these bytes that does not match its checksum; -1 for
        none."""
    def count_covered(self, position: int, size: int) -> int:
        """Count the bytes of this range that are verified as unchanged."""
