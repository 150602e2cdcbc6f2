"""``Hold``: a range of the log that is still needed, by a pin, group, delay level or the
archive."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mqstore.storage.retention.value import Value


class Hold(Value):
    """Keeps every segment with a byte of its range, up to keepDiskCeilingRatio."""

    kind: Annotated[
        Literal["pin", "group", "delay", "archive"],
        Field(
            description="A lease, keepForGroups, a level's undelivered messages, or what is not "
            "archived."
        ),
    ]
    name: str
    from_offset: Annotated[int, Field(description="Physical offset of the first byte needed.")]
    to_offset: Annotated[int | None, Field(description="Behind the last one; null: to the end.")]
    until_ms: Annotated[int | None, Field(description="When it ends by itself, if it does.")]

    def covers(self, start: int, end: int) -> bool:
        """Whether a byte from ``start`` to before ``end`` is needed."""
        return end > self.from_offset and (self.to_offset is None or start < self.to_offset)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
