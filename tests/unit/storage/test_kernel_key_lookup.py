"""Look-ups by key in the kernel: plain records as the model finds them, no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage import _kernel
from mqstore.storage._kernel import (
    KeyAnswer,
    LogWindow,
    ScanRange,
    Segment,
)
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.java_text import index_hash
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.layout import (
    INDEX_HEADER_SIZE,
    INDEX_ITEM_SIZE,
    INDEX_SLOT_SIZE,
)
from tests.unit.storage.log_windows import bounds, window_over

HOST = Host.parse("127.0.0.1", 10911)
SLOTS, ITEMS = 8, 1_000


class MemoryIndex(NamedTuple):
    view: memoryview
    slots: int = SLOTS
    index_num: int = ITEMS

    def put(self, key: str, offset: int, stored_ms: int) -> None:
        hashed = index_hash(f"T#{key}")
        assert _kernel.index_put(self.view, SLOTS, ITEMS, hashed, offset, stored_ms)


def new_index() -> MemoryIndex:
    size = INDEX_HEADER_SIZE + SLOTS * INDEX_SLOT_SIZE + ITEMS * INDEX_ITEM_SIZE
    return MemoryIndex(memoryview(bytearray(size)))


def keyed_log(count: int) -> tuple[bytearray, list[int], MemoryIndex]:
    """Records by turns under the keys k0, k1 and k2, stored a second apart."""
    log, starts, index = bytearray(), [], new_index()
    for number in range(count):
        properties = f"UNIQ_KEY\x01U{number}\x02KEYS\x01a k{number % 3} z".encode()
        room = bytearray(300)
        stored_ms = 1_000_000 + number * 1_000
        size = _kernel.encode_record(
            *(room, 0, Message("T", 0, b"b", properties, HOST, HOST, 0)),
            *(1, number, len(log), stored_ms),
        )
        for key in (f"U{number}", f"k{number % 3}"):
            index.put(key, len(log), stored_ms)
        starts.append(len(log))
        log += room[:size]
    return log, starts, index


@dataclass
class MemoryFiles:
    """An index; ``meanwhile`` is called when its files were listed."""

    files_now: tuple[MemoryIndex, ...]
    meanwhile: Callable[[], object] = object

    @property
    def files(self) -> tuple[MemoryIndex, ...]:
        listed = self.files_now
        self.meanwhile()
        return listed


def keyed(
    window: LogWindow,
    *files: MemoryIndex,
    key: str,
    topic: str = "T",
    times: tuple[int, int] = (0, 1 << 62),
    only: bool = False,
    below: int = 1 << 62,
    limit: int = 9,
) -> KeyAnswer | None:
    return window.find_by_key(Record, MemoryFiles(files), topic, key, *times, only, below, limit)


@given(st.integers(0, 40), st.integers(0, 39), st.integers(0, 39), st.integers(1, 15), st.data())
def test_a_key_gives_its_records_newest_first(
    count: int, first: int, last: int, limit: int, draw: st.DataObject
) -> None:
    log, starts, index = keyed_log(count)
    window = window_over(log)
    key = draw.draw(st.sampled_from(["k0", "k2", "U7", "U8", "a", "k"]))
    times = 1_000_000 + first * 1_000, 1_000_000 + last * 1_000
    below = draw.draw(st.sampled_from([1 << 62, *starts]))
    found = keyed(window, index, key=key, times=times, below=below, limit=limit)
    wanted = [
        start
        for number, start in enumerate(starts)
        if first <= number <= last
        and start < below
        and (key == f"U{number}" or key == f"k{number % 3}")
    ][::-1]
    assert found is not None
    assert [each.physical_offset for each in found.records] == wanted[:limit]
    scanned = ScanRange(*times, found.scanned.candidates, 0, len(log))
    assert found == KeyAnswer(found.records, (), None, found.following < 0, scanned)
    assert scanned.candidates >= len(found.records)
    if len(wanted) > limit:
        assert wanted[limit] <= found.following < wanted[limit - 1]


def test_a_unique_key_is_not_one_of_keys() -> None:
    log, starts, index = keyed_log(6)
    index.put("z", starts[-1], 2_000_000)
    window = window_over(log)
    for only, count in ((False, 1), (True, 0)):
        found = keyed(window, index, key="z", only=only)
        assert found is not None
        assert len(found.records) == count
    found = keyed(window, index, key="U3", only=True)
    assert found is not None
    assert [each.physical_offset for each in found.records] == [starts[3]]


def test_an_unusual_query_by_key_is_left_to_the_general_way() -> None:
    log, starts, index = keyed_log(6)
    window = window_over(log)

    def is_found(key: str, topic: str = "T") -> bool:
        return keyed(window, index, key=key, topic=topic) is not None

    assert is_found("k0")
    assert not is_found("\udc80")
    assert not is_found("k\ufffd")
    assert not is_found("k0", "\udc80")
    log[starts[3] + 4] ^= 1
    assert not is_found("k0"), "a damaged candidate"
    assert is_found("k1")
    for _ in range(300):
        index.put("many", starts[0], 2_000_000)
    assert not is_found("many")


def test_what_dispatch_has_not_reached_is_left_to_others() -> None:
    log, _, index = keyed_log(6)
    window = LogWindow(*bounds(0, len(log), len(log) - 1))
    window.add(Segment(memoryview(log), 0), 4, 0)
    assert keyed(window, index, key="k0") is None


def test_newer_files_of_an_index_are_looked_at_first() -> None:
    log, starts, _ = keyed_log(4)
    files = [new_index() for _ in starts]
    for number, (start, file) in enumerate(zip(starts, files, strict=True)):
        file.put("a", start, 1_000_000 + number * 1_000)
    found = keyed(window_over(log), *files, key="a", limit=3)
    assert found is not None
    assert [each.physical_offset for each in found.records] == starts[:0:-1]
    assert (found.following, found.complete) == (starts[0], False)


def test_what_comes_while_the_files_are_listed_is_not_said_to_have_been_looked_for() -> None:
    log, starts, index = keyed_log(6)
    words = bounds(0, starts[3])
    window = LogWindow(*words)
    window.add(Segment(memoryview(log), 0), 4, 0)

    def put_more() -> None:
        for word in words[2:4]:
            word.value = len(log)

    files = MemoryFiles((index,), put_more)
    found = window.find_by_key(Record, files, "T", "k0", 0, 1 << 62, False, 1 << 62, 9)
    assert found is not None
    assert [each.physical_offset for each in found.records] == [starts[0]]
    assert found.scanned.max_offset == starts[3]


@pytest.mark.parametrize("before", [0, 1])
def test_an_index_that_was_not_complete_all_along_makes_no_complete_answer(before: int) -> None:
    log, _, index = keyed_log(6)
    words = bounds(0, len(log))
    window = LogWindow(*words)
    window.add(Segment(memoryview(log), 0), 4, 0)
    words[4].value = before

    def change() -> None:
        words[4].value = 1 - before

    files = MemoryFiles((index,), change)
    found = window.find_by_key(Record, files, "T", "k0", 0, 1 << 62, False, 1 << 62, 9)
    assert found is not None
    assert not found.complete
