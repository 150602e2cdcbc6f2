"""Results of look-ups by key and of scans."""

from collections.abc import Sequence

from mqstore.storage.codec.record import Record
from mqstore.storage.lookup.answers import Unreadable

class ScanRange:
    """The range that a key query has examined. Immutable."""

    def __init__(
        self, from_ms: int, to_ms: int, candidates: int, min_offset: int, max_offset: int
    ) -> None: ...
    @property
    def from_ms(self) -> int:
        """Start of the time range."""
    @property
    def to_ms(self) -> int:
        """End of the time range, included."""
    @property
    def candidates(self) -> int:
        """Number of index entries whose records were read."""
    @property
    def min_offset(self) -> int:
        """The first physical offset of the log at that time."""
    @property
    def max_offset(self) -> int:
        """Physical offset below which everything was searched."""

class KeyAnswer:
    """Records under a key, newest first."""

    cursor: str | None
    """The cursor of the next page, or None."""

    def __init__(
        self,
        records: list[Record],
        unreadable: Sequence[Unreadable],
        cursor: str | None,
        complete: bool,
        scanned: ScanRange,
    ) -> None: ...
    @property
    def records(self) -> list[Record]:
        """The matching records."""
    @property
    def unreadable(self) -> Sequence[Unreadable]:
        """Damaged records that match or may match."""
    @property
    def complete(self) -> bool:
        """Whether no record is missing: there is no next page, and the index covered the whole
        log."""
    @property
    def scanned(self) -> ScanRange:
        """The examined range."""
    @property
    def following(self) -> int:
        """The first candidate that ``LogWindow.find_by_key`` did not read; else -1."""
