"""Every record of a range is read, however it is cut into pieces, and damage is stepped over."""

from __future__ import annotations

import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.jobs.log.at_path import PathReader
from mqstore.jobs.log.source import LogSegment
from mqstore.storage.directory import QueueFiles
from mqstore.storage.layout import TOMBSTONE_MARK
from tests.long_runs import examples
from tests.unit.jobs.written import (
    BODY_AT,
    forged_at,
    offsets_of,
    overwrite,
    put_body,
    put_forged,
    read_all,
    written,
)
from tests.unit.storage.stores import abandon, open_store, put_some


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=60),
    st.integers(500, 20_000),
    st.integers(100, 20_000),
)
def test_all_records_are_read_however_the_log_is_cut(
    sizes: list[int], partition: int, chunk: int
) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        with open_store(root) as store:
            put = [put_body(store, b"x" * size, topic=f"T{size % 3}") for size in sizes]
        found, corrupt = read_all(root, partition=partition, chunk=chunk)
    assert [offset for offset, _ in found] == put
    assert corrupt == []


@pytest.mark.parametrize("chunk", [100, 1_000, 1 << 20])
def test_a_record_longer_than_a_chunk_is_read_whole(tmp_path: Path, chunk: int) -> None:
    with open_store(tmp_path / "store") as store:
        put = [put_body(store, b"x" * size) for size in (10, 20_000, 10, 30_000)]
    found, corrupt = read_all(tmp_path / "store", chunk=chunk)
    assert [offset for offset, _ in found] == put
    assert corrupt == []


def test_only_records_that_begin_between_two_offsets_are_read(tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    starts = offsets_of(root)
    found, _ = read_all(root, partition=5_000, low=starts[400] - 1, high=starts[700] + 1)
    assert [offset for offset, _ in found] == starts[400:701]


def test_a_changed_body_costs_its_record_only(tmp_path: Path) -> None:
    root = written(tmp_path / "store", 100)
    starts = offsets_of(root)
    overwrite(root, starts[10] + BODY_AT, b"?")
    found, corrupt = read_all(root, partition=5_000)
    assert [offset for offset, _ in found] == starts[:10] + starts[11:]
    [stretch] = corrupt
    assert (stretch.physical_offset, stretch.size) == (starts[10], starts[11] - starts[10])
    assert stretch.defect == "body-corrupt"
    assert stretch.segment == f"{0:020d}"


def test_damage_after_damage_reads_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = written(tmp_path / "store", 300)
    starts = offsets_of(root)
    for start in starts[1:-1:2]:
        overwrite(root, start, bytes(8))
    chunks: list[int] = []
    searches: list[int] = []
    read, first_beyond = PathReader.read, QueueFiles.first_beyond

    def read_and_note(reader: PathReader, segment: LogSegment, offset: int, size: int) -> bytes:
        chunks.append(size)
        return read(reader, segment, offset, size)

    def search_and_note(files: QueueFiles, physical: int) -> int | None:
        searches.append(physical)
        return first_beyond(files, physical)

    monkeypatch.setattr(PathReader, "read", read_and_note)
    monkeypatch.setattr(QueueFiles, "first_beyond", search_and_note)
    found, corrupt = read_all(root)

    assert [offset for offset, _ in found] == [
        *starts[::2],
        *([] if len(starts) % 2 else starts[-1:]),
    ]
    assert len(corrupt) == len(starts[1:-1:2])
    log = len(list((root / "commitlog").iterdir())) * (64 << 10)
    named = len(corrupt) * 1_000
    assert sum(chunks) <= 2 * log + named, "the log, and the records that queues name behind damage"
    queues = len(list((root / "consumequeue").glob("*/*")))
    assert len(searches) <= queues + 2 * len(starts)


@pytest.mark.parametrize("head", [bytes(8), b"\x7f\xff\xff\xff", b"\0\0\0\x01", b"\xff" * 8])
@pytest.mark.parametrize("chunk", [1_000, 1 << 20])
def test_behind_lost_lengths_the_next_named_record_is_read(
    tmp_path: Path, head: bytes, chunk: int
) -> None:
    root = written(tmp_path / "store", 100)
    starts = offsets_of(root)
    overwrite(root, starts[10], head)
    found, [stretch] = read_all(root, chunk=chunk)
    assert [offset for offset, _ in found] == starts[:10] + starts[11:]
    assert (stretch.physical_offset, stretch.size) == (starts[10], starts[11] - starts[10])


def test_a_blank_record_before_others_hides_none_of_them(tmp_path: Path) -> None:
    root = written(tmp_path / "store", 100)
    starts = offsets_of(root)
    overwrite(root, starts[10] + 4, 0xCBD43194.to_bytes(4))
    found, corrupt = read_all(root, partition=5_000)
    assert [offset for offset, _ in found] == starts[:10] + starts[11:]
    assert [stretch.defect for stretch in corrupt] == ["blank"]


def test_a_forged_record_behind_damage_is_not_read(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_some(store, 3)
        outer = put_forged(store, 3) - BODY_AT
        put_some(store, 3, start=4)
    starts = offsets_of(tmp_path / "store")
    overwrite(tmp_path / "store", outer, bytes(8))
    found, [stretch] = read_all(tmp_path / "store")
    assert [offset for offset, _ in found] == [start for start in starts if start != outer]
    assert stretch.physical_offset == outer


def test_a_tombstone_is_reported_and_no_record(tmp_path: Path) -> None:
    root = written(tmp_path / "store", 20)
    starts = offsets_of(root)
    size = starts[6] - starts[5]
    lost = bytearray(forged_at(starts[5]))
    lost[BODY_AT - 12 : BODY_AT - 4] = TOMBSTONE_MARK.to_bytes(8)
    lost[BODY_AT - 4 : BODY_AT] = (size - len(lost) + 4).to_bytes(4)
    body = bytes(size - len(lost) + 4)
    lost[BODY_AT : BODY_AT + 4] = body
    lost[:4] = size.to_bytes(4)
    lost[8:12] = bytes(4)
    overwrite(root, starts[5], bytes(_with_crc(lost, body)))
    found, [stretch] = read_all(root)
    assert starts[5] not in [offset for offset, _ in found]
    assert (stretch.defect, stretch.size) == ("tombstone", size)


def _with_crc(record: bytearray, body: bytes) -> bytearray:
    record[8:12] = (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4)
    return record


def test_a_torn_tail_is_neither_record_nor_corrupt(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    put_some(store, 50)
    end = store.log.max_offset
    abandon(store)
    overwrite(tmp_path / "store", end, forged_at(end)[:50])
    found, corrupt = read_all(tmp_path / "store")
    assert len(found) == 50
    assert corrupt == []
