"""Results of look-ups by key and of scans."""

from collections.abc import Sequence

from mqstore.storage.codec.record import Record
from mqstore.storage.lookup.answers import Unreadable

class Scanned:
    """What a key query looked at. Immutable."""

    def __init__(
        self, from_ms: int, to_ms: int, candidates: int, min_offset: int, max_offset: int
    ) -> None: ...
    @property
    def from_ms(self) -> int: ...
    @property
    def to_ms(self) -> int: ...
    @property
    def candidates(self) -> int:
        """Index entries whose records were read."""
    @property
    def min_offset(self) -> int:
        """First physical offset of the log as it was."""
    @property
    def max_offset(self) -> int:
        """Everything below it was looked for."""

class KeyAnswer:
    """Records under a key, newest first."""

    cursor: str | None
    """Where to go on."""

    def __init__(
        self,
        records: list[Record],
        unreadable: Sequence[Unreadable],
        cursor: str | None,
        complete: bool,
        scanned: Scanned,
    ) -> None: ...
    @property
    def records(self) -> list[Record]: ...
    @property
    def unreadable(self) -> Sequence[Unreadable]:
        """Records under that key, or maybe under it, that are damaged."""
    @property
    def complete(self) -> bool:
        """No record is missing: there is nothing to go on with, and the index covered the whole log
        all along."""
    @property
    def scanned(self) -> Scanned: ...
    @property
    def following(self) -> int:
        """The first candidate that ``LogWindow.keyed`` did not read; else -1."""
