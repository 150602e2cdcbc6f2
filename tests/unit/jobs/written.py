"""Stores for the tests of jobs, and what is in them as the store itself says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mqstore.jobs.log import at_path
from mqstore.jobs.log.ranges import plan
from mqstore.jobs.log.scan import CorruptStretch, RangeScan
from mqstore.storage._kernel import RecordColumns
from mqstore.storage.message_store import Durability, MessageStore
from tests.unit.storage import kernel_model as model
from tests.unit.storage.puts import put_message
from tests.unit.storage.record_examples import ordinary
from tests.unit.storage.stores import message, open_store, put_some

BODY_AT = 88
"""Position of the body in a record with IPv4 hosts."""
HIGH = 1 << 62


def written(root: Path, count: int = 1000) -> Path:
    """A store of several segments of 64 KiB, at rest."""
    with open_store(root) as store:
        put_some(store, count)
    return root


def forged_at(offset: int, queue_offset: int = 0) -> bytes:
    """A whole record that says it stands at a physical offset."""
    return model.encode(ordinary(), 1, queue_offset, offset, 1)


def put_forged(store: MessageStore, number: int) -> int:
    """A message whose body is a record that claims its own place; the offset of that."""
    inner = store.log.max_offset + BODY_AT
    forged = message(store, number)
    forged.body = forged_at(inner) * 3
    put_message(store, forged, Durability.ASYNC)
    return inner


def put_body(store: MessageStore, body: bytes, *, topic: str = "T") -> int:
    new = message(store, 0, topic=topic)
    new.body = body
    return put_message(store, new, Durability.ASYNC).physical_offset


def overwrite(root: Path, offset: int, data: bytes, segment_size: int = 64 << 10) -> None:
    """Bytes of the log changed as a failing disk does."""
    base = offset - offset % segment_size
    with (root / "commitlog" / f"{base:020d}").open("r+b") as file:
        file.seek(offset - base)
        file.write(data)


def offsets_of(root: Path) -> list[int]:
    """The physical offsets of all records, as queues and log of the closed store say."""
    return [offset for offset, _ in read_all(root)[0]]


def read_all(
    root: Path,
    *,
    partition: int = HIGH,
    chunk: int = 8 << 20,
    low: int = 0,
    high: int = HIGH,
) -> tuple[list[tuple[int, int]], list[CorruptStretch]]:
    """(offset, size) of every record, and what is corrupt, as tasks read them one by one."""
    seen = at_path.look(root)
    found: list[tuple[int, int]] = []
    corrupt: list[CorruptStretch] = []
    with seen.log.opened() as reader:
        for part in plan(reader, seen.segments, partition, low, high):
            rows = RecordColumns(("physical_offset", "size"), lowest=low)
            scan = RangeScan(reader, part, rows, high=high, chunk_size=chunk)
            for stretches in scan.steps():
                corrupt += stretches
                found += numbers_of(rows)
    return found, corrupt


def numbers_of(rows: RecordColumns) -> Iterator[tuple[int, int]]:
    offsets, sizes = rows.take()
    assert offsets[1] is not None
    assert sizes[1] is not None
    return zip(memoryview(offsets[1]).cast("q"), memoryview(sizes[1]).cast("i"), strict=True)
