"""Block checksums follow what was synced, and catch up with what was there before."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest

from mqstore.storage._kernel import check_block
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.log import block_cover
from mqstore.storage.log.block_cover import BlockCover
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.metadata.block_files import BlockFiles, blocks_of
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams

SEGMENT = 2 * BLOCK_SIZE + 5_000
STORE = "ab" * 16


class Log:
    """Segments that are written byte by byte, and their side files."""

    def __init__(self, root: Path, *, blocks_at: str = "blocks") -> None:
        seams = production_seams()
        self.files = MappedFileQueue(root / "log", SEGMENT, seams, staging=root / "staging")
        (root / "blocks").mkdir(exist_ok=True)
        self.blocks = BlockFiles(PosixFileSystem(), root / blocks_at, SEGMENT, STORE)

    def write(self, count: int) -> None:
        last = self.files.last
        while count:
            if last is None or last.is_full:
                last = self.files.add(self.files.max_offset)
            size = min(count, last.size - last.wrote_position)
            start = last.wrote_position
            last.view[start : start + size] = bytes((start + i) % 251 for i in range(size))
            last.wrote_position += size
            count -= size

    def covered(self) -> list[int]:
        """How much of each block; all that is covered must be as it is in the log."""
        found = []
        for file in self.files.files:
            entries, base = self.blocks.entries(file.base_offset), file.base_offset
            for number in range(blocks_of(SEGMENT)):
                known = 0
                if entries is not None:
                    known = check_block(file.view, entries, base, number, 0)
                found.append(known)
        return found


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def run(cover: BlockCover) -> int:
    """Steps until it is done."""
    for count in range(1, 1_000):
        if cover.step(0.0) == math.inf:
            return count
    raise AssertionError("the service never ends")


def test_what_was_synced_is_covered_and_no_more(log: Log) -> None:
    cover = BlockCover(log.files, log.blocks)
    log.write(1_000)
    cover.cover_synced(700)
    assert log.covered() == [700, 0, 0]
    log.write(BLOCK_SIZE)
    cover.cover_synced(BLOCK_SIZE + 300)
    assert log.covered() == [BLOCK_SIZE, 300, 0]


def test_a_roll_is_followed_into_the_next_segment(log: Log) -> None:
    cover = BlockCover(log.files, log.blocks)
    log.write(SEGMENT + 40)
    cover.cover_synced(SEGMENT + 40)
    assert log.covered() == [BLOCK_SIZE, BLOCK_SIZE, 5_000, 40, 0, 0]
    cover.close()


def test_a_sync_that_moved_nothing_makes_no_file(log: Log) -> None:
    cover = BlockCover(log.files, log.blocks)
    cover.cover_synced(0)
    assert log.blocks.bases() == []


def test_what_was_there_is_covered_in_the_background(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_cover, "CHUNK", BLOCK_SIZE)
    log.write(3 * SEGMENT + BLOCK_SIZE + 9)
    log.files.flush()
    cover = BlockCover(log.files, log.blocks)
    assert log.covered() == [0] * 12
    run(cover)
    assert log.covered() == [BLOCK_SIZE, BLOCK_SIZE, 5_000] * 3 + [BLOCK_SIZE, 0, 0]
    cover.cover_synced(log.files.max_offset)
    assert log.covered()[-3:] == [BLOCK_SIZE, 9, 0]


def test_the_service_rests_only_after_it_has_read_something(log: Log) -> None:
    log.write(2 * SEGMENT + BLOCK_SIZE)
    log.files.flush()
    assert BlockCover(log.files, log.blocks).step(0.0) == block_cover.PAUSE_S
    cover = BlockCover(log.files, log.blocks)
    assert cover.step(0.0) == 0.0


def test_segments_that_expire_meanwhile_are_passed_over(log: Log) -> None:
    log.write(3 * SEGMENT + 10)
    log.files.flush()
    cover = BlockCover(log.files, log.blocks)
    log.files.remove_first(2)
    run(cover)
    assert log.blocks.bases() == [2 * SEGMENT]


def test_an_old_block_that_was_half_covered_is_carried_on(tmp_path: Path) -> None:
    """As when the process died between two syncs."""
    log = Log(tmp_path)
    log.write(10)
    cover = BlockCover(log.files, log.blocks)
    cover.cover_synced(10)
    log.write(BLOCK_SIZE)
    log.files.flush()
    again = BlockCover(log.files, log.blocks)
    run(again)
    assert log.covered() == [BLOCK_SIZE, 0, 0]


def test_a_side_file_that_cannot_be_made_costs_no_more_than_the_checksums(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(tmp_path, blocks_at="nowhere")
    log.write(SEGMENT)
    log.files.flush()
    cover = BlockCover(log.files, log.blocks)
    with caplog.at_level(logging.WARNING):
        run(cover)
        log.write(SEGMENT // 2)
        for _ in range(3):
            cover.cover_synced(log.files.max_offset)
            log.write(1)
    cover.close()
    gone = [line for line in caplog.messages if "gets no block checksums" in line]
    assert len(gone) == 3, "each segment is tried once by each, not at each sync"
