from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import RecordSearch
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, decode, encode_into
from mqstore.storage.layout import SysFlag
from mqstore.storage.paths import segment_name
from mqstore.storage.recovery.log_scan import LogScan, SeenOffsets, queue_place
from mqstore.storage.recovery.view import QueueFiles
from mqstore.storage.system.sparse import find_whole, last_nonzero
from tests.unit.storage.recovery.log_builder import CONFIG, SEGMENT, LogBuilder, view_of

HOSTS = [Host.parse("10.0.0.1", 10911), Host.parse("::1", 10911)]


@given(
    topic=st.text(min_size=1, max_size=40).filter(lambda text: "\0" not in text),
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=st.integers(0, 2**62),
    body=st.one_of(st.none(), st.binary(max_size=50)),
    born=st.sampled_from(HOSTS),
    store=st.sampled_from(HOSTS),
    version=st.sampled_from([1, 2]),
    kind=st.sampled_from([0, 0x4, 0x8, 0xC]),
    position=st.integers(0, 20),
)
def test_a_records_place_is_what_the_codec_says(
    topic: str,
    queue_id: int,
    queue_offset: int,
    body: bytes | None,
    born: Host,
    store: Host,
    version: int,
    kind: int,
    position: int,
) -> None:
    if len(topic.encode("utf-8", "surrogatepass")) > 120 or not topic.isprintable():
        topic = "T"
    message = Message(topic, queue_id, body, b"A\x01b", born, store, 0, sys_flag=kind)
    buffer = bytearray(600)
    encode_into(
        buffer,
        position,
        message,
        version=version,
        queue_offset=queue_offset,
        physical_offset=position,
        store_timestamp_ms=1,
    )
    view = memoryview(buffer)
    record = decode(view, position, len(view), physical_offset=position)
    place = queue_place(view, position)
    if kind in (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK):
        assert place is None
    else:
        assert place == (record.raw_topic, record.queue_id, record.queue_offset)
    assert find_whole(RecordSearch(view, 0, True), view, 0) == position


@given(
    length=st.integers(0, 3 << 20),
    where=st.lists(st.floats(0, 1, exclude_max=True), max_size=3),
    start=st.floats(0, 1),
)
def test_the_last_byte_that_is_not_zero_is_found(
    length: int, where: list[float], start: float
) -> None:
    data = bytearray(length)
    places = [int(fraction * length) for fraction in where] if length else []
    for place in places:
        data[place] = 7
    begin = int(start * length)
    expected = max([begin, *(place + 1 for place in places if place >= begin)])
    assert last_nonzero(memoryview(data), begin) == expected


def test_zeros_hold_no_record() -> None:
    view = memoryview(bytes(3 << 20))
    assert find_whole(RecordSearch(view, 0, True), view, 0) == -1


def test_what_a_leap_leaves_out_stays_free() -> None:
    seen = SeenOffsets(5)
    for offset in (6, 1 << 40, 7, 9):
        seen.add(offset)

    assert [offset for offset in range(12) if seen.has(offset)] == [5, 6, 7, 9]
    assert seen.has(1 << 40)
    assert [seen.below(offset) for offset in (8, 10, 1 << 41)] == [8, 10, (1 << 40) + 1]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40))
def test_seen_offsets_are_a_set(offsets: list[int]) -> None:
    seen = SeenOffsets(offsets[0])
    for offset in offsets:
        seen.add(offset)

    assert {offset for offset in range(70) if seen.has(offset)} == set(offsets)


@pytest.mark.parametrize("bit", [0, 1, 10, 40, 62])
@pytest.mark.parametrize("number", [0, 7, 18])
def test_a_flipped_queue_offset_costs_no_record_behind_it(
    tmp_path: Path, bit: int, number: int
) -> None:
    log = LogBuilder().fill(20, queues=1)
    offset, _ = log.records[number]
    view = view_of(log.write(tmp_path))
    write_queue(tmp_path, 0, log.records)
    byte = offset + 27 - bit // 8
    log.poke(byte, bytes([log.byte(byte) ^ 1 << bit % 8]))
    log.write(tmp_path)

    assert LogScan(view, None).run(0).end == log.end


def write_queue(root: Path, queue_id: int, records: list[tuple[int, int]]) -> None:
    """The entries that were made before the damage, by offset and size."""
    directory = root / "consumequeue" / "T" / str(queue_id)
    directory.mkdir(parents=True)
    entries = b"".join(struct.pack(">qiq", offset, size, 0) for offset, size in records)
    (directory / segment_name(0)).write_bytes(entries.ljust(CONFIG.queue_file_size, b"\0"))


def test_the_progress_of_one_segment_is_reported_as_it_is_read(tmp_path: Path) -> None:
    log = LogBuilder().fill(15)
    log.flip(log.records[7][0] + 4)
    seen: list[tuple[int, int]] = []

    LogScan(view_of(log.write(tmp_path)), lambda *done: seen.append(done)).run(0)

    assert seen == sorted(seen)
    assert seen[0] == (0, SEGMENT)
    assert seen[-1] == (SEGMENT, SEGMENT)
    assert any(0 < done < SEGMENT for done, _ in seen)


def test_the_end_of_a_log_is_found_without_its_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogBuilder().fill(20, queues=4)
    for queue in range(4):
        write_queue(tmp_path, queue, log.records[queue::4])
    monkeypatch.setattr(QueueFiles, "first_beyond", None)

    assert LogScan(view_of(log.write(tmp_path)), None).run(0).end == log.end


def test_damage_after_damage_searches_a_queue_once_for_each_of_its_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues, searches = 20, 0
    first_beyond = QueueFiles.first_beyond

    def count(files: QueueFiles, physical: int) -> int | None:
        nonlocal searches
        searches += 1
        return first_beyond(files, physical)

    log = LogBuilder().fill(60, queues=queues)
    for queue in range(queues):
        write_queue(tmp_path, queue, log.records[queue::queues])
    for offset, _ in log.records[1:-1:2]:
        log.flip(offset + 4)
    monkeypatch.setattr(QueueFiles, "first_beyond", count)

    found = LogScan(view_of(log.write(tmp_path)), None).run(0)

    assert found.end == log.end
    assert found.damaged_count == 29
    assert searches <= queues + 2 * len(log.records)
