"""One index file against a plain model, and what damage and kills leave."""

from __future__ import annotations

import struct
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage._kernel import index_find
from mqstore.storage.index import file as index_file
from mqstore.storage.index.file import IndexFile, file_size
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.system.threads import production_seams
from tests.long_runs import examples

SLOTS, ITEMS = 5, 12
END = 2**63 - 1
BEGIN_MS = 1_700_000_000_000


def new_file(root: Path, *, carry: tuple[int, int] | None = None) -> IndexFile:
    mapped = MappedFile.create(
        production_seams().files,
        root / "20240101000000000",
        file_size(SLOTS, ITEMS),
        staged=root / "staged",
        reserve=60,
    )
    file = IndexFile(mapped, SLOTS, ITEMS)
    if carry is not None:
        file.carry(*carry)
    return file


class Model:
    """An index file in plain Python, after IndexFile.putKey."""

    def __init__(self, carry: tuple[int, int] = (0, 0)) -> None:
        offset, time = carry
        self.begin, self.end, self.first, self.last = time, time, offset, offset
        self.slots = [0] * SLOTS
        self.items = [(0, 0, 0, 0)]

    def put(self, key_hash: int, offset: int, time: int) -> bool:
        if len(self.items) >= ITEMS:
            return False
        seconds = min(max((time - self.begin) // 1000, 0), 2**31 - 1) if self.begin > 0 else 0
        slot = key_hash % SLOTS
        number = len(self.items)
        self.items.append((key_hash, offset, seconds, self.slots[slot]))
        self.slots[slot] = number
        if number == 1:
            self.begin, self.first = time, offset
        self.end, self.last = time, offset
        return True

    def bytes(self) -> bytes:
        used = sum(1 for slot in self.slots if slot)
        count = len(self.items) if len(self.items) > 1 else 0
        head = struct.pack(">4q2i", self.begin, self.end, self.first, self.last, used, count)
        items = b"".join(struct.pack(">iqii", *item) for item in self.items)
        return (head + struct.pack(f">{SLOTS}i", *self.slots) + items).ljust(
            file_size(SLOTS, ITEMS), b"\0"
        )


puts = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**40), st.integers(-5_000, 10**7)),
    max_size=16,
)


@settings(max_examples=examples(80), deadline=None)
@given(puts, st.sampled_from([None, (123, BEGIN_MS - 58_000), (5, BEGIN_MS + 10**9)]))
def test_bytes_are_those_of_the_model(
    entries: list[tuple[int, int, int]], carry: tuple[int, int] | None
) -> None:
    model = Model(carry or (0, 0))
    with tempfile.TemporaryDirectory() as directory:
        file = new_file(Path(directory), carry=carry)
        for key_hash, offset, time in entries:
            done = file.put(key_hash, offset, BEGIN_MS + time)
            assert done == model.put(key_hash, offset, BEGIN_MS + time)
        assert bytes(file.view) == model.bytes()
        assert file.is_full == (len(model.items) == ITEMS)


def test_a_hash_is_found_newest_first_with_its_whole_second(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    for number, delay in enumerate((0, 1_700, 1_999, 9_000)):
        file.put(42, number, BEGIN_MS + delay)
        file.put(47, 100 + number, BEGIN_MS + delay)

    assert list(file.find(42, 0, 2**63 - 1)) == [3, 2, 1, 0]
    assert list(file.find(42, BEGIN_MS + 1_999, BEGIN_MS + 8_999)) == [2, 1, 0]
    assert list(file.find(43, 0, 2**63 - 1)) == []


def test_the_first_item_is_found_although_its_time_is_counted_from_the_file_before(
    tmp_path: Path,
) -> None:
    file = new_file(tmp_path, carry=(7, BEGIN_MS))
    file.put(1, 700, BEGIN_MS + 58_000)
    assert file.item(1).seconds == 58

    assert list(file.find(1, BEGIN_MS + 58_000, BEGIN_MS + 58_000)) == [700]


def chain_of(root: Path, count: int) -> IndexFile:
    """A file of one slot with so many entries of the hash 9; each has its number as offset."""
    size = file_size(1, count + 1)
    staged = root / "staged"
    mapped = MappedFile.create(production_seams().files, root / "1", size, staged=staged)
    file = IndexFile(mapped, 1, count + 1)
    for number in range(count):
        assert file.put(9, number, BEGIN_MS)
    return file


def test_a_long_chain_is_walked_in_pieces(tmp_path: Path) -> None:
    file = chain_of(tmp_path, 4_999)
    assert list(file.find(9, 0, END)) == list(range(4_998, -1, -1))


def test_pages_of_a_chain_read_each_entry_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page began at the newest entry: pages of a long chain read its square."""
    count, page = 4_999, 100
    file = chain_of(tmp_path, count)
    read = 0

    def counted(*given: Any) -> tuple[list[int], int]:
        nonlocal read
        found = index_find(*given)
        read += len(found[0])
        return found

    monkeypatch.setattr(index_file, "index_find", counted)
    monkeypatch.setattr(index_file, "FIND_AT_ONCE", page, raising=False)
    offsets: list[int] = []
    below = END
    while found := list(islice((o for o in file.find(9, 0, END, below) if o < below), page)):
        offsets += found
        below = found[-1]
    assert offsets == list(range(count - 1, -1, -1))
    assert read <= 2 * count + page


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 6]), st.integers(0, 2)), max_size=ITEMS - 1),
    st.integers(0, 30),
)
def test_a_walk_below_an_offset_finds_all_that_is_below(
    entries: list[tuple[int, int]], below: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file, offset = new_file(Path(directory)), 0
        for key_hash, step in entries:
            offset += step
            file.put(key_hash, offset, BEGIN_MS)
        for key_hash in (1, 2, 6):
            whole = [each for each in file.find(key_hash, 0, END) if each < below]
            assert [each for each in file.find(key_hash, 0, END, below) if each < below] == whole


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        (5, ITEMS + 1, "index count"),
        (5, -1, "index count"),
        (4, 4, "slots in use"),
        (4, -1, "slots in use"),
        (0, -1, "negative"),
        (2, 10**6, "after its end"),
    ],
)
def test_an_impossible_header_is_named(tmp_path: Path, field: int, value: int, why: str) -> None:
    file = new_file(tmp_path)
    file.put(1, 10, BEGIN_MS)
    file.put(2, 20, BEGIN_MS)
    assert file.damage() is None

    header = list(file.header)
    header[field] = value
    struct.pack_into(">4q2i", file.view, 0, *header)

    assert why in (file.damage() or "")


@pytest.mark.parametrize("uncounted", [1, 2, 3])
def test_items_that_a_killed_writer_did_not_count_leave_their_chains(
    tmp_path: Path, uncounted: int
) -> None:
    file = new_file(tmp_path)
    for number in range(4):
        file.put(number % 2, number * 100, BEGIN_MS)
    header, before = bytes(file.view[:40]), bytes(file.view)
    for number in range(uncounted):
        file.put(number % 2, 5_000, BEGIN_MS)
    file.view[:40] = header

    assert file.repair_tail() == uncounted

    assert bytes(file.view) == before
    assert list(file.find(0, 0, 2**63 - 1)) == [200, 0]


def test_trailing_items_are_counted_per_record(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    assert file.trailing_items_of(0) == (0, True)
    file.put(1, 0, BEGIN_MS)
    assert file.trailing_items_of(0) == (1, True)
    for _ in range(3):
        file.put(1, 100, BEGIN_MS)
    assert file.trailing_items_of(100) == (3, False)
    assert file.trailing_items_of(0) == (0, False)
