"""Sums over the counts of a log, by topic, segment, place and plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from mqstore.jobs.expiry.counts import Count

_SUMS: Final = {
    "messages": "sum",
    "bytes": "sum",
    "first_offset": "min",
    "oldest_ms": "min",
    "newest_ms": "max",
}
_GOING: Final = pa.schema(
    {"plan": pa.int32(), "segment": pa.string(), "horizon": pa.int32(), "goes_ms": pa.int64()}
)


class Going(NamedTuple):
    """A segment that goes within a horizon, by one of the plans."""

    plan: int
    segment: str
    horizon: int
    """The number of the first horizon that it goes within."""
    goes_ms: int


class LogCounts:
    """Sums over the table of ``counting.counted``. Immutable."""

    def __init__(self, counted: pa.Table) -> None:
        self._counted = counted

    def by_topic(self) -> list[Count]:
        """Sums by topic and age."""
        return _summed(self._counted, "topic", "age")

    def by_segment(self) -> list[Count]:
        """Sums by segment."""
        return _summed(self._counted, "segment")

    def by_place(self) -> list[Count]:
        """Sums by topic, queue and number of marks (``past``)."""
        return _summed(self._counted, "topic", "queue_id", "past")

    def going_by_topic(self, going: Sequence[Going]) -> list[Count]:
        """Sums over expiring segments, by plan, horizon and topic."""
        return _summed(self._going(going), "plan", "horizon", "topic")

    def going_by_place(self, going: Sequence[Going]) -> list[Count]:
        """Sums over expiring segments, by plan, horizon, topic, queue and ``past``."""
        return _summed(self._going(going), "plan", "horizon", "topic", "queue_id", "past")

    def _going(self, going: Sequence[Going]) -> pa.Table:
        found = pa.Table.from_pylist([each._asdict() for each in going], _GOING)
        return self._counted.join(found, "segment", join_type="inner")


def _summed(counted: pa.Table, *keys: str) -> list[Count]:
    how = dict(_SUMS)
    if "goes_ms" in counted.column_names:
        how |= {"goes_ms": "min", "segment": "count_distinct"}
    sums = counted.group_by(list(keys)).aggregate(list(how.items()))
    names = {f"{column}_{of}": column for column, of in how.items()}
    names["segment_count_distinct"] = "segments"
    named = sums.rename_columns([names.get(name, name) for name in sums.column_names])
    return [Count(**row) for row in named.to_pylist()]
