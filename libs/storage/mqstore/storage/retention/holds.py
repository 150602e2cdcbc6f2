"""``Hold``: a range of the log that is still needed, by a pin, group, delay level or the
archive."""

from __future__ import annotations

from typing import Literal

from mqstore.storage.metadata.sealed_json import StrictValue


class Hold(StrictValue):
    """Keeps every segment with a byte of its range, up to keepDiskCeilingRatio."""

    kind: Literal["pin", "group", "delay", "archive"]
    """A lease, keepForGroups, a level's undelivered messages, or what is not archived."""
    name: str
    from_offset: int
    """Physical offset of the first byte needed."""
    to_offset: int | None
    """Physical offset behind the last byte; None: to the end of the log."""
    until_ms: int | None
    """Time when it ends by itself; None: it does not."""

    def covers(self, start: int, end: int) -> bool:
        """Whether a byte from ``start`` to before ``end`` is needed."""
        return end > self.from_offset and (self.to_offset is None or start < self.to_offset)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
