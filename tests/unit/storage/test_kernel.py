"""The kernel and its slow model agree; what a model cannot say (threads, words) is tested here."""

from __future__ import annotations

import gc
import mmap
import subprocess
import sys
import threading
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage import _kernel
from mqstore.storage._kernel import Defect, IndexWindow, QueueWindow, StoredRecord
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from tests.unit.storage import kernel_model as model
from tests.unit.storage.record_examples import (
    INT64,
    TIME,
    damaged,
    encoded_records,
    log_of,
    messages,
    ordinary,
)

RECORD_FIELDS = (
    *("size", "version", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset"),
    *("sys_flag", "born_timestamp_ms", "born_host", "store_timestamp_ms", "store_host"),
    *("reconsume_times", "prepared_transaction_offset", "body"),
)


def values_of(record: StoredRecord) -> tuple[object, ...]:
    """In the model's order."""
    texts = record.utf8_topic(), record.raw_topic, record.raw_properties
    return (*(getattr(record, name) for name in RECORD_FIELDS), *texts)


# CRC and hashes


@pytest.mark.parametrize("crc", [_kernel.crc32, _kernel.crc32_by_table])
def test_crc_equals_zlib_at_every_short_length(crc: type) -> None:
    data = bytes(range(7, 256, 3)) * 5
    for length in range(300):
        assert crc(data[:length]) == zlib.crc32(data[:length])


@given(st.binary(max_size=2000), st.integers(0, 2**32 - 1))
def test_crc_equals_zlib_from_any_state(data: bytes, state: int) -> None:
    assert _kernel.crc32(data, state) == zlib.crc32(data, state)
    assert _kernel.crc32_by_table(data, state) == zlib.crc32(data, state)


@given(st.text())
def test_hash_of_utf8_is_javas_hash_of_the_text(text: str) -> None:
    assert _kernel.utf8_hash(text.encode()) == model.signed(model.java_hash(text))


@given(st.binary(max_size=12))
def test_hash_of_utf8_refuses_exactly_what_is_malformed(data: bytes) -> None:
    assert (_kernel.utf8_hash(data) is not None) == model.well_formed(data)


# Single records


@given(messages(), st.booleans(), INT64, INT64, INT64)
def test_encode_writes_the_models_bytes(
    message: Message, long_topic: bool, queue_offset: int, physical_offset: int, time: int
) -> None:
    version = 2 if long_topic else 1
    expected = model.encode(message, version, queue_offset, physical_offset, time)
    out = bytearray(b"\xaa" * (len(expected) + 20))
    size = _kernel.encode_record(out, 10, message, version, queue_offset, physical_offset, time)
    assert bytes(out) == b"\xaa" * 10 + expected + b"\xaa" * 10
    assert size == len(expected)


def test_a_large_body_is_encoded_alike() -> None:
    message = ordinary(body=bytes(range(256)) * 1024)
    expected = model.encode(message, 1, 0, 0, TIME)
    out = bytearray(len(expected))
    assert _kernel.encode_record(out, 0, message, 1, 0, 0, TIME) == len(expected)
    assert bytes(out) == expected


@pytest.mark.parametrize("room", [0, 1, 8, 90, 101])
def test_encode_writes_nothing_when_the_record_does_not_fit(room: int) -> None:
    out = bytearray(200)
    with pytest.raises(ValueError):
        _kernel.encode_record(memoryview(out)[: 50 + room], 50, ordinary(), 1, 0, 0, TIME)
    assert not any(out)


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": ""},
        {"topic": "t" * 128},
        {"topic": "\ud800"},
        {"properties": bytes(32768)},
        {"body": bytearray(b"no bytes")},
        {"body": "text"},
        {"flag": 2**31},
        {"sys_flag": -(2**31) - 1},
        {"reconsume_times": 2**40},
        {"prepared_transaction_offset": 2**63},
        {"born_host": Host(b"123", 1)},
        {"store_host": Host(b"1234", 65536)},
        {"born_host": (b"1234",)},
        {"store_host": None},
    ],
)
def test_encode_refuses_what_its_fields_cannot_hold(fields: dict[str, object]) -> None:
    message = ordinary()
    for name, value in fields.items():
        setattr(message, name, value)
    out = bytearray(40000)
    with pytest.raises((ValueError, TypeError, OverflowError)):
        _kernel.encode_record(out, 0, message, 1, 0, 0, TIME)
    assert bytes(out[:8]) == bytes(8), "no magic code, so nothing stands there"


@pytest.mark.parametrize("version", [0, 3])
def test_encode_knows_two_versions(version: int) -> None:
    with pytest.raises(ValueError):
        _kernel.encode_record(bytearray(500), 0, ordinary(), version, 0, 0, TIME)


def test_a_v2_record_holds_a_topic_of_255_bytes_and_no_more() -> None:
    out = bytearray(1000)
    _kernel.encode_record(out, 0, ordinary("t" * 255), 2, 0, 0, TIME)
    with pytest.raises(ValueError):
        _kernel.encode_record(out, 0, ordinary("t" * 256), 2, 0, 0, TIME)


def test_blank_record_bytes() -> None:
    out = bytearray(10)
    _kernel.write_blank(out, 1, 4096)
    assert bytes(out) == bytes.fromhex("00 00001000 cbd43194 00")
    for position, size in [(3, 8), (-1, 8), (0, 7), (0, 2**31)]:
        with pytest.raises(ValueError):
            _kernel.write_blank(out, position, size)


@given(damaged(encoded_records()), st.integers(-1, 3), st.booleans())
def test_check_and_decode_agree_with_the_model(data: bytes, offset: int, verify: bool) -> None:
    end = len(data)
    expected = model.check(data, 0, end, offset, verify)
    assert _kernel.check_record(data, 0, end, offset, verify) == expected
    for with_body in (True, False):
        decoded = _kernel.decode_record(StoredRecord, data, 0, end, offset, verify, with_body)
        found = values_of(decoded) if isinstance(decoded, StoredRecord) else decoded
        assert found == model.decode(data, 0, end, offset, verify, with_body)


@given(encoded_records(), st.data())
def test_a_record_whose_lengths_add_up_is_read_leniently(data: bytes, draw: st.DataObject) -> None:
    """A bad host, topic or properties change no length, so the parts are where they were."""
    bad = bytearray(data)
    bad[48 + (16 if data[39] & 0x10 else 4)] ^= 0x80  # the born host's port
    found = _kernel.decode_record(StoredRecord, bad, 0, len(bad), -1, False, False, True)
    whole = _kernel.decode_record(StoredRecord, data, 0, len(data), -1, False, False, True)
    assert isinstance(found, StoredRecord)
    assert isinstance(whole, StoredRecord)
    same = [name for name in RECORD_FIELDS if name != "born_host"]
    assert [getattr(found, name) for name in same] == [getattr(whole, name) for name in same]
    cut = draw.draw(st.integers(0, len(data) - 1))
    at_cut = _kernel.decode_record(StoredRecord, data, 0, cut, -1, False, False, True)
    assert at_cut == (Defect.TRUNCATED, 0)


@given(encoded_records(), st.data())
def test_a_record_cut_anywhere_is_truncated(data: bytes, draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(0, len(data) - 1))
    assert _kernel.check_record(data, 0, cut, 0, True) == (Defect.TRUNCATED, 0)


@given(st.binary(max_size=300))
def test_no_bytes_make_it_read_outside(data: bytes) -> None:
    assert _kernel.check_record(data, 0, len(data), -1, True) == model.check(
        data, 0, len(data), -1, True
    )


@pytest.mark.parametrize(("position", "end"), [(-1, 5), (3, 2), (0, 11), (11, 11), (-5, -1)])
def test_a_range_outside_the_view_is_refused(position: int, end: int) -> None:
    data = bytearray(10)
    with pytest.raises(ValueError):
        _kernel.check_record(data, position, end, 0, True)
    with pytest.raises(ValueError):
        _kernel.decode_record(StoredRecord, data, position, end, 0, True, True)
    with pytest.raises(ValueError):
        _kernel.check_run(data, position, end, 0, verify_body=True, max_records=1)
    with pytest.raises(ValueError):
        _kernel.find_record(data, position, end, 0, True)


# Runs of records


@given(
    st.lists(encoded_records(), max_size=5), st.integers(0, 6), st.booleans(), st.integers(0, 50)
)
def test_check_run_agrees_with_the_model(
    records: list[bytes], limit: int, verify: bool, base: int
) -> None:
    data = b"".join(records)
    starts = array("q")
    result = _kernel.check_run(
        data, 0, len(data), base, verify_body=verify, max_records=limit, starts=starts
    )
    *expected, expected_starts = model.check_run(data, 0, len(data), base, verify, limit)
    assert result == tuple(expected)
    assert list(starts) == expected_starts


@given(st.lists(encoded_records(), max_size=5), st.booleans())
def test_count_topics_agrees_with_the_model(records: list[bytes], repeats: bool) -> None:
    data = b"".join(records * 2 if repeats else [each for each in records for _ in range(2)])
    counts: dict[bytes, list[int]] = {}
    _kernel.count_topics(data, 0, len(data), counts)
    assert counts == model.count_topics(data, 0, len(data))


def test_check_run_walks_a_long_log() -> None:
    data = log_of(*((ordinary(), number) for number in range(3000)))
    starts = array("q")
    result = _kernel.check_run(
        data, 0, len(data), 0, verify_body=True, max_records=10**9, starts=starts
    )
    assert result == (Defect.NONE, len(data), 3000, TIME + 2999 * 700)
    size = len(data) // 3000
    assert list(starts) == list(range(0, len(data), size))


@given(damaged(encoded_records()), st.binary(max_size=60), st.booleans())
def test_find_record_agrees_with_the_model(record: bytes, junk: bytes, verify: bool) -> None:
    data = junk + record
    end = len(data)
    base = 1000 - len(junk)
    expected = model.find_record(data, 0, end, base, verify)
    assert _kernel.find_record(data, 0, end, base, verify) == expected
    for stop in {0, 1, len(junk), len(junk) + 1, end, end + 1}:
        expected = model.find_record(data, 0, end, base, verify, stop)
        assert _kernel.find_record(data, 0, end, base, verify, stop) == expected


@given(st.integers(0, 200), st.binary(max_size=100))
def test_find_record_finds_a_whole_record_behind_junk(base: int, junk: bytes) -> None:
    data = junk + model.encode(ordinary(), 1, 0, base + len(junk), TIME)
    assert _kernel.find_record(data, 0, len(data), base, True) == len(junk)


# Index files


index_shapes = st.tuples(st.integers(1, 5), st.integers(1, 12))
index_entries = st.tuples(
    st.one_of(st.integers(0, 6), st.integers(0, 2**31 - 1)),
    st.integers(0, 10**6),
    st.one_of(st.integers(TIME, TIME + 10**5), INT64),
)


@given(index_shapes, st.lists(index_entries, max_size=15), st.binary(max_size=40))
def test_index_put_agrees_with_the_model(
    shape: tuple[int, int], entries: list[tuple[int, int, int]], header: bytes
) -> None:
    slots, index_num = shape
    blank = header + bytes(40 + 4 * slots + 20 * index_num - len(header))
    kernel_file = bytearray(blank)
    expected = model.IndexModel(bytearray(blank), slots, index_num)
    for entry in entries:
        assert _kernel.index_put(kernel_file, slots, index_num, *entry) == expected.put(*entry)
    assert kernel_file == expected.data


@given(
    index_shapes,
    st.lists(index_entries, max_size=15),
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), max_size=6),
    st.tuples(st.integers(TIME - 10**4, TIME + 10**5), st.integers(0, 10**5), st.integers(0, 8)),
)
def test_index_find_agrees_with_the_model_whatever_the_damage(
    shape: tuple[int, int],
    entries: list[tuple[int, int, int]],
    damage: list[tuple[int, int]],
    query: tuple[int, int, int],
) -> None:
    slots, index_num = shape
    expected = model.IndexModel(bytearray(40 + 4 * slots + 20 * index_num), slots, index_num)
    for entry in entries:
        expected.put(*entry)
    assert expected.data is not None
    for at, value in damage:
        expected.data[at % len(expected.data)] = value
    begin, span, limit = query
    for hashed in range(7):
        found, _ = _kernel.index_find(
            expected.data, slots, index_num, hashed, begin, begin + span, limit
        )
        assert found == expected.find(hashed, begin, begin + span, limit)


def index_with_links(links: dict[int, int]) -> bytearray:
    """An index file of one slot whose entries have these links."""
    file = model.IndexModel(bytearray(40 + 4 + 20 * 10), 1, 10)
    for number in range(1, 9):
        file.put(0, number * 100, TIME)
    for number, previous in links.items():
        file.set(file.item_at(number) + 16, 4, previous)
    assert file.data is not None
    return file.data


@pytest.mark.parametrize(
    ("links", "found"),
    [
        ({}, [800, 700, 600, 500, 400, 300, 200, 100]),
        ({6: 8}, [800, 700, 600]),
        ({6: 6}, [800, 700, 600]),
        ({6: 2**31 - 1}, [800, 700, 600]),
        ({6: -1}, [800, 700, 600]),
        ({8: 2}, [800, 200, 100]),
    ],
)
def test_a_chain_ends_where_a_link_does_not_lead_back(
    links: dict[int, int], found: list[int]
) -> None:
    file = index_with_links(links)
    assert _kernel.index_find(file, 1, 10, 0, 0, 2 * TIME, 100) == (found, 0)


def test_a_long_chain_is_found_whole() -> None:
    file = bytearray(40 + 4 + 20 * 1000)
    for number in range(1, 1000):
        assert _kernel.index_put(file, 1, 1000, 7, number, TIME)
    assert not _kernel.index_put(file, 1, 1000, 7, 1000, TIME)
    whole = list(range(999, 0, -1))
    assert _kernel.index_find(file, 1, 1000, 7, 0, 2 * TIME, 10**6) == (whole, 0)
    assert _kernel.index_find(file, 1, 1000, 7, 0, 2 * TIME, 300) == (whole[:300], 699)
    assert _kernel.index_find(file, 1, 1000, 7, 0, 2 * TIME, 1000, 699) == (whole[300:], 0)
    for beyond in (1000, 2**40):
        assert _kernel.index_find(file, 1, 1000, 7, 0, 2 * TIME, 1, beyond) == ([999], 998)
    assert _kernel.index_find(file, 1, 1000, 7, 0, 2 * TIME, 1, 0) == ([], 0)


@pytest.mark.parametrize(
    ("slots", "index_num"), [(0, 5), (5, 0), (-1, 5), (3, 5), (2, 6), (2**40, 1), (2**31, 2**31)]
)
def test_index_files_of_the_wrong_size_are_refused(slots: int, index_num: int) -> None:
    file = bytearray(40 + 4 * 2 + 20 * 5)
    with pytest.raises(ValueError):
        _kernel.index_put(file, slots, index_num, 0, 0, 0)
    with pytest.raises(ValueError):
        _kernel.index_find(file, slots, index_num, 0, 0, 0, 1)
    with pytest.raises(ValueError):
        IndexWindow().attach(memoryview(file), slots, index_num)


@pytest.mark.parametrize("hashed", [-1, 2**31])
def test_what_is_no_index_hash_is_refused(hashed: int) -> None:
    file = bytearray(40 + 4 + 20 * 2)
    with pytest.raises(ValueError):
        _kernel.index_put(file, 1, 2, hashed, 0, 0)
    with pytest.raises(ValueError):
        _kernel.index_find(file, 1, 2, hashed, 0, 0, 1)


# Words shared between processes


def test_words_are_stored_and_loaded_in_the_machines_order() -> None:
    page = memoryview(bytearray(64))
    _kernel.store_u64(page, 8, 2**64 - 2)
    assert _kernel.load_u64(page, 8) == 2**64 - 2
    assert page[8:16] == (2**64 - 2).to_bytes(8, sys.byteorder)
    assert _kernel.add_u32(page, 20, 3) == 3
    assert _kernel.add_u32(page, 20, 2**32 - 1) == 2
    assert _kernel.load_u32(page, 20) == 2


@pytest.mark.parametrize("offset", [-8, 1, 4, 57, 64, 2**62])
def test_words_that_are_outside_or_not_aligned_are_refused(offset: int) -> None:
    page = memoryview(bytearray(64))
    with pytest.raises(ValueError):
        _kernel.load_u64(page, offset)
    with pytest.raises(ValueError):
        _kernel.store_u64(page, offset, 1)
    with pytest.raises(ValueError):
        _kernel.futex_wake(page, offset + 3 if offset == 4 else offset | 1)


def test_a_futex_wait_ends_at_once_when_the_word_has_moved_on() -> None:
    page = memoryview(bytearray(8))
    assert _kernel.futex_wait(page, 0, 1, None)


def test_a_futex_wait_says_when_its_time_is_up() -> None:
    page = memoryview(bytearray(8))
    assert not _kernel.futex_wait(page, 0, 0, 0.001)
    assert not _kernel.futex_wait(page, 4, 0, -1.0)


def test_a_futex_wait_lets_other_threads_run_and_is_woken() -> None:
    page = memoryview(bytearray(8))
    woken = []

    def wait() -> None:
        while _kernel.load_u32(page, 0) == 0:
            woken.append(_kernel.futex_wait(page, 0, 0, 60.0))

    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive() and not _kernel.futex_wake(page, 0):
        thread.join(0.001)
    _kernel.add_u32(page, 0, 1)
    _kernel.futex_wake(page, 0)
    thread.join()
    assert all(woken)


def test_a_read_only_mapping_in_another_process_is_woken(tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_bytes(bytes(mmap.PAGESIZE))
    child = """
import mmap, sys
from mqstore.storage import _kernel
with open(sys.argv[1], "rb") as file:
    page = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
print("ready", flush=True)
while _kernel.load_u32(page, 64) == 0:
    assert _kernel.futex_wait(page, 64, 0, 60.0)
print("woken")
"""
    with path.open("r+b") as file:
        page = memoryview(mmap.mmap(file.fileno(), 0))
    process = subprocess.Popen(
        [sys.executable, "-c", child, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    while not _kernel.futex_wake(page, 64):
        assert process.poll() is None
    _kernel.add_u32(page, 64, 1)
    _kernel.futex_wake(page, 64)
    output, _ = process.communicate()
    assert (output, process.returncode) == ("woken\n", 0)


@given(
    st.lists(
        st.sampled_from([b"DELAY", b"TIMER_DELIVER_MS", b"\x01", b"\x02", b"3", b"X", b"DELA"]),
        max_size=8,
    )
)
def test_a_message_has_a_delay_where_a_property_has_that_name(parts: list[bytes]) -> None:
    encoded = b"".join(parts)
    expected = any(
        part.startswith((b"DELAY\x01", b"TIMER_DELIVER_MS\x01")) for part in encoded.split(b"\x02")
    )
    assert ordinary(properties=encoded).has_delay == expected


def test_a_message_whose_properties_are_no_bytes_has_no_delay() -> None:
    assert not ordinary(properties=None).has_delay


def word(view: memoryview) -> object:
    return _kernel.Word(view, 0)


def queue_window(view: memoryview) -> object:
    made = QueueWindow()
    made.attach(view, 0, 3)
    return made


def index_window(view: memoryview) -> object:
    made = IndexWindow()
    made.attach(view, 1, 1)
    return made


@pytest.mark.parametrize("hold", [word, queue_window, index_window])
def test_a_cycle_of_a_view_and_what_holds_its_bytes_can_be_collected(
    hold: Callable[[memoryview], object],
) -> None:
    view = memoryview(bytearray(64))
    cycle: list[object] = [view]
    cycle += [hold(view), cycle]
    del view, cycle
    gc.collect(1)


@given(st.integers(0, 70), st.integers(0, 69))
def test_one_byte_that_is_not_zero_is_seen(length: int, at: int) -> None:
    data = bytearray(length)
    assert _kernel.is_zero(data)
    if at < length:
        data[at] = 1
        assert not _kernel.is_zero(data)
