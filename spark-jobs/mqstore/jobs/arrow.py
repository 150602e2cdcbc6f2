"""Rows of the kernel and of the scan as Arrow's batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from mqstore.jobs.columns import SEGMENT
from mqstore.jobs.log.scan import CorruptStretch
from mqstore.storage.formats import RecordColumns

TYPES: Final[Mapping[str, pa.DataType]] = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
_ENDS: Final = pa.int32()


def message_batch(columns: Mapping[str, str], rows: RecordColumns, segment: str) -> pa.RecordBatch:
    """Take the rows out of ``rows`` as a batch.

    ``columns`` maps names to Spark's types, in the order that ``rows`` was made for.
    """
    count = rows.rows
    found = iter(rows.take())
    arrays = [
        pa.repeat(segment, count) if name == SEGMENT else _array(TYPES[of], next(found), count)
        for name, of in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def corrupt_batch(
    columns: Mapping[str, str], stretches: Sequence[CorruptStretch]
) -> pa.RecordBatch:
    """A batch with a row for each corrupt stretch."""
    arrays = [
        pa.array([getattr(each, name) for each in stretches], TYPES[of])
        for name, of in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def _array(of: pa.DataType, parts: tuple[bytes | None, ...], count: int) -> pa.Array:
    buffers = [None if part is None else pa.py_buffer(part) for part in parts]
    if not pa.types.is_map(of):
        return pa.Array.from_buffers(of, count, buffers)
    _, rows, name_ends, names, value_ends, values = buffers
    ends = pa.Array.from_buffers(_ENDS, count + 1, [None, rows])
    entries = ends[-1].as_py()
    return pa.MapArray.from_arrays(
        ends,
        pa.Array.from_buffers(of.key_type, entries, [None, name_ends, names]),
        pa.Array.from_buffers(of.item_type, entries, [None, value_ends, values]),
    )
