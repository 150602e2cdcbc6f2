"""A checksum of a table's values: the same for what was written and what is read back from it.

Arrow may hold the same values in different bytes (offsets that do not begin at 0, anything under a
null), so it is taken of what they mean: which are there, how long they are, and their bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from pyarrow import compute


def digest(table: pa.Table) -> int:
    """CRC-32C over the columns, in their order."""
    seed = 0
    for column in table.columns:
        array = column.combine_chunks()
        for part in array.chunks if isinstance(array, pa.ChunkedArray) else [array]:
            seed = _of(part, seed)
    return seed


def _of(array: pa.Array, seed: int) -> int:
    seed = _bytes(np.packbits(compute.is_valid(array).to_numpy(zero_copy_only=False)), seed)
    there = array.drop_null()
    if pa.types.is_map(array.type):
        ends = _ends(there)
        seed = _bytes(np.diff(ends), seed)
        first, size = int(ends[0]), int(ends[-1] - ends[0])
        return _of(there.items.slice(first, size), _of(there.keys.slice(first, size), seed))
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        ends = _ends(there)
        values = there.buffers()[2]
        seed = _bytes(np.diff(ends), seed)
        return seed if values is None else crc32c(values[int(ends[0]) : int(ends[-1])], seed)
    numbers = there.cast(pa.int64()) if pa.types.is_timestamp(array.type) else there
    return _bytes(numbers.to_numpy(zero_copy_only=False), seed)


def _bytes(values: np.ndarray[Any, Any], seed: int) -> int:
    return crc32c(np.ascontiguousarray(values).data, seed)


def _ends(array: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The byte offsets at which each value begins, and the end of the last one."""
    if len(array) == 0:
        return np.zeros(1, np.int32)
    found: np.ndarray[tuple[int], np.dtype[np.int32]] = np.frombuffer(array.buffers()[1], np.int32)
    return found[array.offset : array.offset + len(array) + 1]
