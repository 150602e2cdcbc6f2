"""The value of durable data that a store's directory lacks, as errors, plans and reports carry it.

``recovery/loss`` finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

LISTED_MAX: Final = 1_000
"""Queue ranges and segment names listed one by one; beyond it they are only counted."""
SHOWN_MAX: Final = 3
"""Queue ranges and segment names in the one-line reason."""


class ByteRange(BaseModel):
    """Physical offsets of the log from ``start`` to before ``stop``."""

    model_config = ConfigDict(frozen=True)

    start: int
    stop: int


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class LostEntries(_Value):
    """Queue offsets from ``first`` to before ``end`` whose messages are missing."""

    topic: str
    queue_id: int
    first: int
    end: int


class Loss(_Value):
    """Durable data that is missing."""

    watermark: int
    """Everything below this physical offset was on disk."""
    log_end: int
    """End of the present log; the watermark, if the log reaches it."""
    missing_bytes: int
    missing: tuple[ByteRange, ...]
    segments: tuple[str, ...]
    """Names of segments that are absent, the first ``LISTED_MAX``."""
    segment_count: int
    queues: tuple[LostEntries, ...]
    """The first ``LISTED_MAX`` ranges."""
    queue_count: int
    messages: int
    """Queue offsets in all ranges."""
    evidence: str = ""
    """The proof in files of a broker; empty where the watermark is the proof."""

    @property
    def confirmation(self) -> str:
        """The text by which an operator accepts exactly this loss."""
        known = f"{self.log_end}-{self.watermark}-{self.missing_bytes}"
        return known if self.missing_bytes else f"{known}-{self.messages}"

    @property
    def text(self) -> str:
        """One line: both offsets, the segments and the queue ranges."""
        if self.evidence:
            where = self.evidence
        elif self.log_end < self.watermark:
            where = f"the log ends at offset {self.log_end}, below its durable watermark "
            where += str(self.watermark)
        else:
            where = f"segments are missing below the durable watermark {self.watermark}"
        segments = _shown(self.segments, self.segment_count)
        queues = _shown([_text_of(each) for each in self.queues], self.queue_count)
        return (
            where
            + (f": {self.missing_bytes} durable bytes are missing" if self.missing_bytes else "")
            + (f" (segments {segments})" if segments else "")
            + (f", with them {queues}" if queues else "")
        )


def _shown(names: Sequence[str], count: int) -> str:
    more = f" and {count - SHOWN_MAX} more" if count > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more


def _text_of(lost: LostEntries) -> str:
    return f"{lost.topic} queue {lost.queue_id} offsets {lost.first} to {lost.end - 1}"
