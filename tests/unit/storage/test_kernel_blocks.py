"""Checksums of blocks: the kernel against its slow model."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage import _kernel
from mqstore.storage._kernel import check_block, cover_blocks, locate_damage
from mqstore.storage.layout import BLOCK_HEADER_SIZE, BLOCK_SIZE
from tests.unit.storage import block_model as model

BLOCKS = 3
LENGTH = (BLOCKS - 1) * BLOCK_SIZE + 5_001
LOG = random.Random(1).randbytes(LENGTH)
BASE = 7 * BLOCK_SIZE + 12
POSITIONS = st.integers(0, LENGTH)


def no_entries() -> bytearray:
    return bytearray(model.place(BLOCKS).start)


def covered(end: int, log: bytes = LOG) -> bytearray:
    entries = no_entries()
    cover_blocks(memoryview(log), memoryview(entries), BASE, 0, end)
    return entries


def check(log: bytes | bytearray, entries: bytearray, number: int, known: int = 0) -> int:
    return check_block(memoryview(log), memoryview(entries), BASE, number, known)


def locate(log: bytes | bytearray, entries: bytearray, number: int) -> tuple[int, int]:
    return locate_damage(memoryview(log), memoryview(entries), BASE, number)


@pytest.mark.parametrize("crc", [_kernel.crc32c, _kernel.crc32c_by_table])
def test_crc32c_is_that_of_the_package(crc: type) -> None:
    for length in [*range(300), 5_000, 70_001]:
        assert crc(LOG[:length]) == crc32c(LOG[:length])
        assert crc(LOG[:length], 17) == crc32c(LOG[:length], 17)


@given(st.lists(POSITIONS, max_size=5).map(sorted))
def test_entries_are_the_same_however_often_the_log_was_synced(ends: list[int]) -> None:
    entries, start = no_entries(), 0
    for end in [*ends, LENGTH]:
        added = cover_blocks(memoryview(LOG), memoryview(entries), BASE, start, end)
        assert added == end - start
        start = end
    for number in range(BLOCKS):
        expected = model.entry_of(model.block(LOG, number))
        assert bytes(entries[model.place(number)]) == model.pack(
            expected, BASE + number * BLOCK_SIZE
        )
    assert not any(entries[:BLOCK_HEADER_SIZE])


@given(end=POSITIONS, at=st.integers(0, BLOCKS * 16 - 1), flip=st.integers(0, 255))
def test_what_an_entry_says_is_what_the_model_says(end: int, at: int, flip: int) -> None:
    entries = covered(end)
    entries[BLOCK_HEADER_SIZE + at] ^= flip
    for number in range(BLOCKS):
        assert check(LOG, entries, number) == model.check(LOG, bytes(entries), BASE, number)


@given(end=st.integers(1, LENGTH), at=POSITIONS, flip=st.integers(1, 255))
def test_a_changed_byte_is_found_and_located(end: int, at: int, flip: int) -> None:
    at %= end
    entries, log = covered(end), bytearray(LOG)
    log[at] ^= flip
    for number in range(BLOCKS):
        expected = (
            -1 if number == at // BLOCK_SIZE else model.check(LOG, bytes(entries), BASE, number)
        )
        assert check(log, entries, number) == expected
    assert locate(log, entries, at // BLOCK_SIZE) == (at, at + 1)


def test_changes_of_more_than_one_word_are_located_no_closer_than_their_block() -> None:
    entries, log = covered(LENGTH), bytearray(LOG)
    log[BLOCK_SIZE + 9] ^= 1
    log[BLOCK_SIZE + 900] ^= 1
    assert locate(log, entries, 1) == (BLOCK_SIZE, 2 * BLOCK_SIZE)
    log[-1] ^= 1
    log[-9] ^= 1
    assert locate(log, entries, 2) == (2 * BLOCK_SIZE, LENGTH)


def test_nothing_is_located_where_nothing_changed() -> None:
    assert locate(LOG, covered(LENGTH), 1) == (BLOCK_SIZE, BLOCK_SIZE)
    assert locate(LOG, no_entries(), 1) == (BLOCK_SIZE, BLOCK_SIZE)


def test_a_damaged_block_stays_reported_when_more_is_written_to_it() -> None:
    """Else the next sync would make the damage look as if it had been written so."""
    entries, log = covered(1_000), bytearray(LOG)
    log[77] ^= 4
    cover_blocks(memoryview(log), memoryview(entries), BASE, 1_000, LENGTH)
    assert check(log, entries, 0) == -1
    assert locate(log, entries, 0) == (77, 78)


def test_what_is_known_already_is_not_compared_again() -> None:
    entries, log = covered(1_000), bytearray(LOG)
    log[0] ^= 1
    assert check(log, entries, 0, known=1_000) == 1_000
    assert check(log, entries, 0, known=999) == -1


def test_an_entry_counts_in_its_own_place_only() -> None:
    entries = covered(LENGTH, bytes(LENGTH))
    moved = bytearray(entries)
    moved[model.place(0)] = entries[model.place(1)]
    assert check(bytes(LENGTH), moved, 0) == 0
    assert check_block(memoryview(bytes(LENGTH)), memoryview(entries), BASE + 1, 0, 0) == 0


def test_views_that_are_too_short_are_refused() -> None:
    short = memoryview(no_entries())[:-1]
    with pytest.raises(ValueError, match="entries where"):
        cover_blocks(memoryview(LOG), short, BASE, 0, LENGTH)
    with pytest.raises(ValueError, match="outside a view"):
        cover_blocks(memoryview(LOG), memoryview(no_entries()), BASE, 0, LENGTH + 1)
    with pytest.raises(ValueError, match="outside a view"):
        check(LOG, no_entries(), BLOCKS)
    with pytest.raises(ValueError, match="outside a view"):
        check(LOG, no_entries(), -1)
