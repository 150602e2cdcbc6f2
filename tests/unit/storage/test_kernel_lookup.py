"""Reads of the kernel: plain records as the model reads them, no others."""

from __future__ import annotations

import struct
from array import array
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage import _kernel
from mqstore.storage._kernel import (
    Defect,
    LogWindow,
    Segment,
    StoredRecord,
    Tags,
    Word,
    in_memory,
)
from mqstore.storage.codec import message_id
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.properties import tags_code
from mqstore.storage.codec.record import Message
from mqstore.storage.layout import (
    BLOCK_SIZE,
    TOMBSTONE_MARK,
)
from tests.unit.storage import kernel_model as model
from tests.unit.storage.log_windows import bounds, entries_of, window_over
from tests.unit.storage.record_examples import INT64, log_of, messages

HOST = Host.parse("127.0.0.1", 10911)


def message(body: bytes = b"body", properties: bytes = b"", queue_id: int = 0) -> Message:
    return Message("T", queue_id, body, properties, HOST, HOST, 0)


def run_of(*bodies: bytes, queue_id: int = 0) -> tuple[bytearray, list[int], memoryview]:
    """A log of one queue, where its records stand, and its entries."""
    log = bytearray(log_of(*((message(body, b"", queue_id), n) for n, body in enumerate(bodies))))
    starts, packed, at = [], b"", 0
    while at < len(log):
        size = int.from_bytes(log[at : at + 4])
        starts.append(at)
        packed += struct.pack(">qiq", at, size, 0)
        at += size
    return log, starts, memoryview(packed)


# what is in memory ------------------------------------------------------------------------


@given(
    st.lists(st.tuples(INT64, st.integers(-(2**31), 2**31 - 1)), max_size=6),
    st.integers(-1, 130),
    st.integers(-1, 8),
    st.integers(0, 2_000),
    st.booleans(),
)
def test_a_read_from_memory_accepts_arbitrary_entries(
    said: list[tuple[int, int]], position: int, count: int, max_bytes: int, is_covered: bool
) -> None:
    log, _, entries = run_of(b"x" * 300, b"y")
    window = window_over(log, covered=len(log) if is_covered else None)
    odd = b"".join(struct.pack(">qiq", at, size, 0) for at, size in said)
    there = memoryview(bytes(entries) + odd)
    if not 0 <= position <= len(there):
        with pytest.raises(ValueError, match="range"):
            in_memory(window, there, position, count, max_bytes)
        return
    found = in_memory(window, there, position, count, max_bytes)
    assert 0 <= found <= max(0, min(count, (len(there) - position) // 20))
    if position == 0 and count >= 2 and max_bytes >= len(log):
        assert found >= 2


# entries ----------------------------------------------------------------------------------


@given(st.lists(messages(), min_size=1, max_size=5), st.integers(0, 9), st.booleans(), st.data())
def test_queue_entries_give_their_records_up_to_the_first_odd_one(
    put: list[Message], index: int, is_covered: bool, draw: st.DataObject
) -> None:
    first = put[0]
    for each in put:
        each.topic, each.queue_id = first.topic, first.queue_id
    log = bytearray(log_of(*((each, index + n) for n, each in enumerate(put))))
    entries, at = bytearray(), 0
    while at < len(log):
        size = model.take_apart(bytes(log[at:]), at)[1].size
        entries += struct.pack(">qiq", at, size, 7)
        at += size
    for bytes_ in draw.draw(st.lists(st.sampled_from([entries, log]), max_size=2)):
        bytes_[draw.draw(st.integers(0, len(bytes_) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    topic, most = first.topic.encode(), draw.draw(st.integers(0, len(log) + 1))
    expected = model.read_entries(bytes(entries), bytes(log), topic, first.queue_id, index, most)
    window = window_over(log)
    where = memoryview(entries), 0, topic, first.queue_id, index, 9, 0, most
    read, taken, _ = window.records(StoredRecord, *where)
    assert [each.raw for each in read] == expected
    assert taken == sum(map(len, expected))
    parts, count, taken, _ = window.slices(*where)
    assert (b"".join(parts), count) == (b"".join(expected), len(expected))
    assert taken == sum(map(len, expected))


@given(st.binary(max_size=200), st.binary(max_size=100), INT64, INT64)
def test_no_entries_make_it_read_outside(log: bytes, entries: bytes, base: int, index: int) -> None:
    window = window_over(log, max(0, min(base, 1 << 40)))
    where = b"T", 0, index, 100, 0, 1 << 30
    assert window.records(StoredRecord, memoryview(entries), 0, *where) == ([], 0, False)
    assert window.slices(memoryview(entries), 0, *where) == ([], 0, 0, False)
    for position in (-1, len(entries) + 1):
        with pytest.raises(ValueError):
            window.records(StoredRecord, memoryview(entries), position, *where)


def test_slices_are_the_bytes_of_the_records_in_one_piece() -> None:
    log, starts, entries = run_of(*(bytes(100 + n) for n in range(6)))
    window = window_over(log, covered=len(log))
    (part,), count, taken, is_full = window.slices(entries, 0, b"T", 0, 0, 6, 0, 1 << 20)
    assert (part, count, taken, is_full) == (bytes(log), 6, len(log), True)
    apart = memoryview(bytes(entries[:40]) + bytes(entries[60:80]))
    parts, count, *_ = window.slices(apart, 0, b"T", 0, 0, 6, 0, 1 << 20)
    assert (count, parts) == (2, [bytes(log[: starts[2]])]), "entry 2 names record 3, which says so"


def test_what_no_checksum_covers_is_judged_by_its_body() -> None:
    log, starts, entries = run_of(*(bytes(BLOCK_SIZE // 4) for _ in range(6)))
    window = window_over(log, covered=starts[3])
    parts, count, *_ = window.slices(entries, 0, b"T", 0, 0, 6, 0, 1 << 30)
    assert (b"".join(parts), count) == (bytes(log), 6)
    log[starts[4] + 200] ^= 1
    assert window.slices(entries, 0, b"T", 0, 0, 6, 0, 1 << 30)[1] == 4
    assert window.slice_at(starts[4]) is None
    log[starts[4] + 200] ^= 1
    for number in (1, 4):
        assert window.slice_at(starts[number]) == bytes(log[starts[number] : starts[number + 1]])


def test_an_answer_ends_full_at_its_count_and_at_its_bytes() -> None:
    log, starts, entries = run_of(b"a", b"b", b"c")
    window, where = window_over(log), (b"T", 0, 0)
    assert window.records(StoredRecord, entries, 0, *where, 2, 0, 1 << 20)[2]
    found, taken, is_full = window.records(StoredRecord, entries, 0, *where, 3, 0, starts[1] + 1)
    assert (len(found), taken, is_full) == (1, starts[1], True)
    assert not window.records(StoredRecord, entries, 0, *where, 4, 0, 1 << 20)[2]


# records with a tag ------------------------------------------------------------------------

TAGGED: Final = ("a", "Aa", "BB", "\u4e2d", "")
"""Two of one hash among them."""


def tagged_run(tags: list[str]) -> tuple[bytearray, memoryview]:
    """A log of one queue with these tags, and its entries."""
    raws = [f"TAGS\1{tag}\2".encode() if tag else b"" for tag in tags]
    log = bytearray(log_of(*((message(b"x", raw), n) for n, raw in enumerate(raws))))
    packed, at = b"", 0
    for tag in tags:
        size = int.from_bytes(log[at : at + 4])
        packed += struct.pack(">qiq", at, size, tags_code(tag))
        at += size
    return log, memoryview(packed)


def wanted_tags(tags: set[str]) -> Tags:
    return Tags(array("q", map(tags_code, tags)), [tag.encode() for tag in tags])


@given(
    st.lists(st.sampled_from(TAGGED), max_size=30),
    st.sets(st.sampled_from(TAGGED[:-1])),
    st.integers(0, 30),
    st.integers(-1, 31),
    st.integers(0, 31),
    st.integers(0, 4_000),
    st.integers(0, 8 * 600),
)
def test_records_with_a_tag_are_those_among_all_up_to_the_first_odd_one(
    tags: list[str], wanted: set[str], index: int, most: int, count: int, limit: int, bit: int
) -> None:
    log, entries = tagged_run(tags)
    said = bytearray(entries)
    if bit < 8 * len(said):
        said[bit // 8] ^= 1 << bit % 8
    window, index = window_over(log), min(index, len(tags))
    where = memoryview(said), 20 * index, b"T", 0, index
    found, passed, taken, is_full = window.read_tagged(
        StoredRecord, wanted_tags(wanted), *where, most, count, 0, limit
    )
    assert 0 <= passed <= max(0, min(most, len(tags) - index))
    named = [n for n in range(index, index + passed) if tags[n] in wanted]
    codes = {tags_code(tag) for tag in wanted}
    odd = bit // 160 if bit < 8 * len(said) else len(tags)
    if said[20 * odd :][:20] != entries[20 * odd :][:20] and index <= odd < index + passed:
        assert struct.unpack_from(">q", said, 20 * odd + 12)[0] not in codes, "passed over unread"
        named = [n for n in named if n != odd]
    assert [each.queue_offset for each in found] == named[: len(found)] == named
    assert taken == sum(each.size for each in found)
    assert len(found) <= max(count, 0)
    assert len(found) < 2 or taken <= limit
    if odd == len(tags) and not is_full and count:
        assert passed == max(0, min(most, len(tags) - index))


@given(st.binary(max_size=200), st.binary(max_size=100), INT64, INT64, INT64)
def test_no_entries_with_a_code_make_it_read_outside(
    log: bytes, entries: bytes, base: int, index: int, most: int
) -> None:
    window, tags = window_over(log, max(0, min(base, 1 << 40))), Tags(array("q", [0]), [b"a"])
    where = b"T", 0, index, most, 100, 0, 1 << 30
    found = window.read_tagged(StoredRecord, tags, memoryview(entries + bytes(20)), 0, *where)
    assert found[0] == []
    with pytest.raises(ValueError, match="range"):
        window.read_tagged(StoredRecord, tags, memoryview(entries), len(entries) + 1, *where)


def test_each_tag_has_a_code() -> None:
    with pytest.raises(ValueError, match="code"):
        Tags(array("q", [1]), [])


# entries that were believed before ---------------------------------------------------------


@given(st.integers(0, 40), st.integers(1, 40), st.lists(st.integers(0, 8 * 800 - 1), max_size=3))
def test_entries_that_change_after_they_were_believed_are_looked_at_again(
    first: int, count: int, bits: list[int]
) -> None:
    log, _, packed = run_of(*(bytes(n % 7) for n in range(40)))
    window, entries = window_over(log, covered=len(log)), bytearray(packed)
    everything = b"T", 0, 0, 40, 0, 1 << 20
    assert window.slices(memoryview(entries), 0, *everything)[1] == 40
    for bit in bits:
        entries[bit // 8] ^= 1 << bit % 8
    expected = model.read_entries(bytes(entries), bytes(log), b"T", 0, 0, 1 << 20)[first:]
    where = memoryview(entries), 20 * first, b"T", 0, first, count, 0, 1 << 20
    whole = model.read_entries(bytes(entries[20 * first :]), bytes(log), b"T", 0, first, 1 << 20)
    assert expected in ([], whole)
    parts, found, *_ = window.slices(*where)
    assert (b"".join(parts), found) == (b"".join(whole[:count]), len(whole[:count]))
    read = window.records(StoredRecord, *where)[0]
    assert [each.raw for each in read] == whole[:count]


def test_entries_are_believed_of_one_queue_place_and_epoch_only() -> None:
    log, starts, entries = run_of(*(b"body" for _ in range(32)))
    words = bounds(0, len(log))
    window = LogWindow(*words)
    window.add(Segment(memoryview(log), 0, entries_of(log, 0, len(log))), 4, 0)
    own = b"T", 0, 0
    assert window.slices(entries, 0, *own, 32, 0, 1 << 20)[1] == 32
    for another in ((b"U", 0, 0), (b"T", 1, 0), (b"T", 0, 16)):
        assert window.slices(entries, 0, *another, 32, 0, 1 << 20)[1] == 0
    words[0].value = 1
    window.renew()
    log[starts[1] + 20 + 7] ^= 1
    window.add(Segment(memoryview(log), 0, entries_of(log, 0, len(log))), 4, 1)
    assert window.slices(entries, 0, *own, 32, 0, 1 << 20)[1] == 1


def test_records_of_one_answer_have_their_own_bytes() -> None:
    log, starts, entries = run_of(*(bytes([n]) * n * 300 for n in range(40)))
    read, taken, _ = window_over(log).records(StoredRecord, entries, 0, b"T", 0, 0, 40, 0, 1 << 30)
    assert taken == len(log)
    assert [each.raw for each in read] == [
        bytes(log[start:end]) for start, end in zip(starts, [*starts[1:], len(log)], strict=True)
    ]
    assert [each.body for each in read] == [bytes([n]) * n * 300 for n in range(40)]


def test_threads_that_read_other_segments_get_the_bytes_of_their_own() -> None:
    size, bodies = 64 * BLOCK_SIZE, [bytes([1]) * 8_000, bytes([2]) * 8_000]
    segments, entries = [], []
    for number, body in enumerate(bodies):
        log, starts, _ = run_of(*([body] * 500), queue_id=number)
        for start in starts:  # a record names its physical offset
            log[start + 28 : start + 36] = (number * size + start).to_bytes(8)
        view = memoryview(log + bytes(size - len(log)))
        segments.append((view, number * size, entries_of(view, number * size, size)))
        named = [struct.pack(">qiq", number * size + start, starts[1], 0) for start in starts]
        entries.append(memoryview(b"".join(named)))

    def read_all(window: LogWindow, number: int) -> set[bytes]:
        seen = set()
        for index in range(500):
            where = entries[number], 20 * index, b"T", number, index, 1, 0, 1 << 20
            seen |= {bytes(part[90:8_000]) for part in window.slices(*where)[0]}
        return seen

    with ThreadPoolExecutor(2) as pool:
        for _ in range(10):
            window = LogWindow(*bounds(0, 2 * size))
            for segment in segments:
                window.add(Segment(*segment), 4, 0)
            seen = list(pool.map(read_all, [window] * 2, range(2)))
            assert seen == [{body[90:8_000]} for body in bodies]


# offsets ----------------------------------------------------------------------------------


@given(st.lists(messages(), min_size=1, max_size=3), st.data())
def test_an_offset_gives_the_record_that_begins_there(
    put: list[Message], draw: st.DataObject
) -> None:
    log = bytearray(log_of(*((each, n) for n, each in enumerate(put))))
    if draw.draw(st.booleans()):
        log[draw.draw(st.integers(0, len(log) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    window = window_over(log)
    offset = draw.draw(st.sampled_from([0, len(log)]) | st.integers(-1, len(log) + 1))
    defect, size = Defect.TRUNCATED, 0
    if 0 <= offset < len(log):
        defect, size = model.check(bytes(log), offset, len(log), offset, True)
    found = window.record_at(StoredRecord, offset)
    if defect is Defect.NONE and found is None:
        parts = model.take_apart(bytes(log[offset:]), offset)[1]
        assert parts.prepared_offset == model.signed(TOMBSTONE_MARK, 64)
    else:
        assert (found is not None) == (defect is Defect.NONE)
        assert found is None or found.raw == bytes(log[offset : offset + size])


@pytest.mark.parametrize("address", ["10.0.0.1", "fe80::1"])
def test_an_offset_message_id_gives_its_record_and_anything_else_nothing(address: str) -> None:
    host, other = Host.parse(address, 10911), Host.parse(address, 10912)
    first = Message("T", 0, b"a", b"", host, host, 0)
    log = log_of((first, 0), (Message("T", 0, b"b", b"", host, host, 0), 1))
    window, at = window_over(log), int.from_bytes(log[:4])
    own = message_id.encode(host, at)
    for text in (own, own.lower()):
        found = window.record_by_id(StoredRecord, text)
        assert found is not None
        assert found.body == b"b"
    wrong = [message_id.encode(other, at), message_id.encode(host, at + 1), "", own[:-1], own[2:]]
    wrong += [own + "00", own[:-1] + "g", own[:-1] + "\uff11", "F" * 16, "0" * 56, "0" * 32]
    assert [window.record_by_id(StoredRecord, each) for each in wrong] == [None] * len(wrong)


class Two(NamedTuple):
    """A window over two segments, and its bounds."""

    window: LogWindow
    epoch: Word
    minimum: Word
    maximum: Word


@pytest.fixture
def two() -> Two:
    window_of = bounds(0, 1_000)
    window = LogWindow(*window_of)
    for base in (0, 500):
        log = bytearray(500)
        message_at = base
        _kernel.encode_record(memoryview(log), 0, message(), 1, 0, message_at, 5)
        window.add(Segment(memoryview(log), base), 4, 0)
    return Two(window, *window_of[:3])


def read(window: LogWindow, *offsets: int) -> list[bool]:
    return [window.record_at(StoredRecord, each) is not None for each in offsets]


def test_nothing_is_read_below_the_minimum_or_above_the_maximum(two: Two) -> None:
    assert read(two.window, 0, 500) == [True, True]
    two.maximum.value = 500
    assert read(two.window, 0, 500) == [True, False]
    two.maximum.value, two.minimum.value = 1_000, 500
    assert read(two.window, 0, 500) == [False, False], "until it was renewed"
    two.window.renew()
    assert read(two.window, 0, 500) == [False, True]
    assert two.window.find(0) is None


def test_a_new_epoch_forgets_all_segments(two: Two) -> None:
    two.epoch.value = 1
    assert read(two.window, 0) == [False]
    assert two.window.renew() == 1
    assert two.window.find(0) is None


def test_a_segment_of_another_epoch_is_not_known(two: Two) -> None:
    two.epoch.value = 1
    two.window.renew()
    two.window.add(Segment(memoryview(bytes(500)), 0), 4, 0)
    assert two.window.find(0) is None
    two.window.add(Segment(memoryview(bytes(500)), 0), 4, two.window.epoch)
    assert two.window.find(0) is not None


def test_as_many_segments_as_are_allowed_are_known(two: Two) -> None:
    two.window.add(Segment(memoryview(bytes(500)), 500), 2, 0)
    assert two.window.find(0) is not None
    two.window.add(Segment(memoryview(bytes(500)), 1_000), 2, 0)
    assert two.window.find(0) is None
    assert two.window.find(1_499) is not None
    two.window.forget()
    assert two.window.find(1_499) is None


def test_a_segment_refuses_a_side_file_that_is_too_short() -> None:
    log = bytes(BLOCK_SIZE + 1)
    with pytest.raises(ValueError):
        Segment(memoryview(log), 0, entries_of(log, 0, 0)[:-1])
    segment = Segment(memoryview(log), 0, entries_of(log, 0, len(log)))
    for position, size in ((-1, 1), (0, len(log) + 1), (len(log), 1)):
        with pytest.raises(ValueError):
            segment.changed_block(position, size)


def test_records_are_of_the_requested_class() -> None:
    log, _, entries = run_of(b"a")
    window = window_over(log)
    for kind in (str, type):
        with pytest.raises(TypeError):
            window.record_at(kind, 0)  # type: ignore[type-var]
        with pytest.raises(TypeError):
            window.records(kind, entries, 0, b"T", 0, 0, 1, 0, 1)  # type: ignore[type-var]
