"""A report as Parquet tables, one dataset each, partitioned by the day of the report (UTC)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Final

import pyarrow as pa
from pyarrow import parquet

from mqstore.jobs.expiry.report import ExpiryReport
from mqstore.storage.retention import Value

_TIME: Final = pa.timestamp("ms", "UTC")
_LONG, _INT, _TEXT, _BOOL = pa.int64(), pa.int32(), pa.string(), pa.bool_()
_PLAN: Final = {"reserved_hours": _INT, "horizon_hours": _INT}
_COUNTS: Final = {"messages": _LONG, "bytes": _LONG}

SCHEMAS: Final[Mapping[str, Mapping[str, pa.DataType]]] = {
    "expiring": {
        **_PLAN,
        "is_in_force": _BOOL,
        "end_offset": _LONG,
        "segments": _LONG,
        **_COUNTS,
        "lost": _LONG,
    },
    "risks": {
        **_PLAN,
        "is_in_force": _BOOL,
        "kind": _TEXT,
        "name": _TEXT,
        "topic": _TEXT,
        **_COUNTS,
        "oldest_ms": _TIME,
        "goes_ms": _TIME,
    },
    "topics": {
        "topic": _TEXT,
        "groups": _INT,
        **_COUNTS,
        "oldest_ms": _TIME,
        "newest_ms": _TIME,
    },
    "topics_expiring": {**_PLAN, "topic": _TEXT, "segments": _LONG, **_COUNTS},
    "ages": {"topic": _TEXT, "from_hours": _INT, "to_hours": _INT, **_COUNTS},
    "segments": {
        "name": _TEXT,
        "start": _LONG,
        "end": _LONG,
        **_COUNTS,
        "expires_ms": _TIME,
        "not_before_ms": _TIME,
        "why": _TEXT,
        "held_by": pa.list_(_TEXT),
    },
}
"""Columns of each table behind ``shard``; times lose their ``_ms`` for ``_time``."""


def tables(report: ExpiryReport) -> dict[str, pa.Table]:
    """The tables of a report, by name; ``SCHEMAS`` lists their columns."""
    rows: dict[str, Sequence[Value]] = {name: getattr(report, name) for name in SCHEMAS}
    return {name: _table(report.shard, SCHEMAS[name], rows[name]) for name in SCHEMAS}


def write(table: pa.Table, file: IO[bytes]) -> None:
    """Write a table to a file as Parquet."""
    parquet.write_table(table, file, compression="zstd")


def _table(shard: str, columns: Mapping[str, pa.DataType], rows: Sequence[Value]) -> pa.Table:
    arrays = {"shard": pa.array([shard] * len(rows), _TEXT)}
    for name, of in columns.items():
        values = [getattr(row, name) for row in rows]
        shown = name.removesuffix("_ms") + "_time" if name.endswith("_ms") else name
        if of == _TIME:
            values = [each if each is None or abs(each) < _TIME_MAX_MS else None for each in values]
        arrays[shown] = pa.array(values, of)
    return pa.table(arrays)


_TIME_MAX_MS: Final = 1 << 55
"""A time that a damaged file said may be anything."""
