"""Look-ups raise an error at a damaged block."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage._kernel import LogWindow, Word, cover_blocks
from mqstore.storage.codec import record
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.errors import RecordBlockCorrupt
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.metadata import block_guard
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.metadata.block_guard import BlockGuard
from mqstore.storage.system.posix_files import PosixFileSystem

SEGMENT = 4 * BLOCK_SIZE
BASE = 2 * SEGMENT
SIZE = 10_000
HOST = Host.parse("127.0.0.1", 10911)


class Watched:
    """A segment of records of 10,000 bytes, covered, and who guards it."""

    def __init__(self, directory: Path, *, end: int = SEGMENT) -> None:
        self.log = bytearray(SEGMENT)
        self.records: list[Record] = []
        for position in range(0, SEGMENT - SIZE, SIZE):
            message = Message("T", 0, bytes(SIZE - 92), b"", HOST, HOST, 0)
            offset = BASE + position
            record.encode_into(
                self.log,
                position,
                message,
                version=1,
                queue_offset=0,
                physical_offset=offset,
                store_timestamp_ms=1,
            )
            found = record.decode(self.log, position, SEGMENT, physical_offset=offset)
            self.records.append(found)
        self.blocks = BlockFiles(PosixFileSystem(), directory, SEGMENT, "ab" * 16)
        self.cover(end)
        self.counts = True
        page = memoryview(bytearray(48))
        self.epoch = Word(page, 0)
        window = LogWindow(self.epoch, *(Word(page, at) for at in (8, 16, 24, 32, 40)))
        self.guard = BlockGuard(self.blocks, window, lambda: self.counts)

    def cover(self, end: int) -> None:
        mapped = self.blocks.writable(BASE)
        cover_blocks(memoryview(self.log), mapped.view, BASE, 0, end)

    def check(self, number: int) -> tuple[int, int] | None:
        found = self.records[number]
        position = found.physical_offset - BASE
        return self.guard.check(
            memoryview(self.log), position, found.physical_offset, found.size, self.epoch.value
        )

    def renew(self) -> None:
        self.epoch.value += 1
        self.guard.renew()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_changed_byte_costs_its_own_record_only(watched: Watched) -> None:
    watched.log[5 * SIZE + 20] ^= 1
    for number in (0, 4, 6, 13):
        watched.check(number)
    with pytest.raises(RecordBlockCorrupt, match="between offsets") as error:
        watched.check(5)
    place = BASE + 5 * SIZE + 20
    assert (error.value.start, error.value.stop) == (place, place + 1)
    assert error.value.offset == BASE + 5 * SIZE


def test_changes_all_over_a_block_leave_the_records_in_it_to_their_own_checks(
    watched: Watched,
) -> None:
    for at in range(BLOCK_SIZE + 100, 2 * BLOCK_SIZE, 1_000):
        watched.log[at] ^= 1
    assert watched.check(5) is None
    for number in (6, 9, 13):  # the first and the last of them lie in two blocks
        assert watched.check(number) == (BASE + BLOCK_SIZE, BASE + 2 * BLOCK_SIZE)
    assert watched.check(14) is None


def test_a_block_is_compared_once_in_an_epoch(watched: Watched) -> None:
    watched.check(2)
    watched.log[2 * SIZE] ^= 1
    watched.check(2)
    watched.renew()
    with pytest.raises(RecordBlockCorrupt):
        watched.check(2)


def test_more_of_a_block_is_compared_when_more_is_covered(tmp_path: Path) -> None:
    watched = Watched(tmp_path, end=3 * SIZE)
    watched.check(2)
    watched.check(3)
    watched.log[3 * SIZE + 50] ^= 1
    watched.check(3)
    watched.log[3 * SIZE + 50] ^= 1
    watched.cover(6 * SIZE)
    watched.log[3 * SIZE + 50] ^= 1
    with pytest.raises(RecordBlockCorrupt):
        watched.check(3)


def test_checksums_that_do_not_count_condemn_nothing(watched: Watched) -> None:
    watched.counts = False
    watched.log[0] ^= 1
    watched.check(0)


def test_side_files_that_come_later_are_noticed(watched: Watched) -> None:
    path = watched.blocks.path_of(BASE)
    path.rename(path.with_suffix(".away"))
    watched.log[0] ^= 1
    watched.check(0)
    path.with_suffix(".away").rename(path)
    with pytest.raises(RecordBlockCorrupt):
        for _ in range(1_000):
            watched.check(0)


def test_memory_is_bounded_and_what_was_forgotten_is_compared_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_guard, "SEGMENTS_MAX", 2)
    watched.check(0)
    for number in range(3, 5):
        watched.guard.segment(memoryview(bytes(SEGMENT)), number * SEGMENT, 0)
    assert watched.guard.window.find(BASE) is None
    watched.log[0] ^= 1
    with pytest.raises(RecordBlockCorrupt):
        watched.check(0)


def test_damage_is_found_by_the_first_check_and_remembered(watched: Watched) -> None:
    watched.log[5 * SIZE + 20] ^= 1
    for _ in range(2):
        watched.check(4)
        with pytest.raises(RecordBlockCorrupt):
            watched.check(5)
    watched.log[5 * SIZE + 20] ^= 1
    with pytest.raises(RecordBlockCorrupt):
        watched.check(5)
    watched.renew()
    watched.check(5)
