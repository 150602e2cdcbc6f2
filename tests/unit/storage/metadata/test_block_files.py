"""The side files of the log's block checksums."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage._kernel import check_block, cover_blocks
from mqstore.storage.layout import BLOCK_HEADER_SIZE, BLOCK_SIZE
from mqstore.storage.metadata.block_files import BlockFiles, blocks_of, damage_in
from mqstore.storage.system.posix_files import PosixFileSystem

SEGMENT = 3 * BLOCK_SIZE - 1_000
BLOCKS = 3
STORE = "ab" * 16
LOG = bytes(range(256)) * (SEGMENT // 256) + b"x" * (SEGMENT % 256)
WHOLE = [BLOCK_SIZE, BLOCK_SIZE, SEGMENT - 2 * BLOCK_SIZE]


@pytest.fixture
def blocks(tmp_path: Path) -> BlockFiles:
    return of(tmp_path)


def of(directory: Path, store_id: str = STORE, segment: int = SEGMENT) -> BlockFiles:
    return BlockFiles(PosixFileSystem(), directory, segment, store_id)


def cover(blocks: BlockFiles, base: int, end: int = SEGMENT) -> None:
    mapped = blocks.writable(base)
    cover_blocks(memoryview(LOG), mapped.view, base, 0, end)
    mapped.unmap()


def covered(blocks: BlockFiles, base: int) -> list[int]:
    """How much of each block."""
    entries = blocks.entries(base)
    if entries is None:
        return [0] * BLOCKS
    log = memoryview(LOG)
    return [check_block(log, entries, base, number, 0) for number in range(BLOCKS)]


def test_blocks_are_counted_from_their_segments_begin() -> None:
    assert blocks_of(SEGMENT) == BLOCKS
    assert [blocks_of(size) for size in (0, 1, BLOCK_SIZE, BLOCK_SIZE + 1)] == [0, 1, 1, 2]


def test_the_next_opening_finds_the_covered_blocks(tmp_path: Path) -> None:
    cover(of(tmp_path), SEGMENT)
    assert of(tmp_path).bases() == [SEGMENT]
    assert covered(of(tmp_path), SEGMENT) == WHOLE
    assert of(tmp_path).entries(0) is None


@pytest.mark.parametrize("other", [{"store_id": "cd" * 16}, {"segment": SEGMENT - 1}])
def test_files_of_another_store_or_layout_do_not_count(
    tmp_path: Path, other: dict[str, object]
) -> None:
    cover(of(tmp_path), 0)
    assert of(tmp_path, **other).entries(0) is None  # type: ignore[arg-type] # passed through


@pytest.mark.parametrize("at", [0, 9, 15, 20, 28, 47, 63])
def test_a_file_with_a_damaged_header_is_made_again(blocks: BlockFiles, at: int) -> None:
    cover(blocks, 0)
    path = blocks.path_of(0)
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert blocks.entries(0) is None
    cover(blocks, 0, end=5_000)
    assert covered(blocks, 0) == [5_000, 0, 0]


@pytest.mark.parametrize("size", [0, 10, BLOCK_HEADER_SIZE, BLOCK_HEADER_SIZE + 47])
def test_a_short_file_is_made_again(blocks: BlockFiles, size: int) -> None:
    cover(blocks, 0)
    path = blocks.path_of(0)
    path.write_bytes(path.read_bytes()[:size])
    assert blocks.entries(0) is None
    cover(blocks, 0)
    assert covered(blocks, 0) == WHOLE


@pytest.mark.parametrize(
    ("start", "stop", "left"),
    [
        (100, 101, [0, *WHOLE[1:]]),
        (BLOCK_SIZE - 1, BLOCK_SIZE + 1, [0, 0, WHOLE[2]]),
        (BLOCK_SIZE, 2 * BLOCK_SIZE, [WHOLE[0], 0, WHOLE[2]]),
        (2 * BLOCK_SIZE + 7, None, [*WHOLE[:2], 0]),
        (SEGMENT, None, WHOLE),
        (0, 1, [0, *WHOLE[1:]]),
    ],
)
def test_dropping_a_range_leaves_the_blocks_that_do_not_touch_it(
    blocks: BlockFiles, start: int, stop: int | None, left: list[int]
) -> None:
    base = 5 * SEGMENT
    cover(blocks, base)
    blocks.drop(base + start, None if stop is None else base + stop)
    assert covered(blocks, base) == left


def test_a_block_that_is_covered_up_to_the_dropped_range_keeps_its_entry(
    blocks: BlockFiles,
) -> None:
    cover(blocks, 0, end=5_000)
    blocks.drop(5_000)
    assert covered(blocks, 0) == [5_000, 0, 0]
    blocks.drop(4_999)
    assert covered(blocks, 0) == [0, 0, 0]


def test_files_of_whole_segments_in_the_range_are_removed(blocks: BlockFiles) -> None:
    for number in range(4):
        cover(blocks, number * SEGMENT)
    blocks.drop(0, 2 * SEGMENT)
    assert blocks.bases() == [2 * SEGMENT, 3 * SEGMENT]
    blocks.drop(3 * SEGMENT)
    assert blocks.bases() == [2 * SEGMENT]
    assert covered(blocks, 2 * SEGMENT) == WHOLE
    blocks.drop(0)
    assert blocks.bases() == []


def test_damage_is_found_in_the_requested_blocks(blocks: BlockFiles) -> None:
    cover(blocks, 0)
    entries = blocks.entries(0)
    assert entries is not None
    hurt = bytearray(LOG)
    hurt[BLOCK_SIZE + 5] ^= 1
    hurt[-1] ^= 1
    found = list(damage_in(memoryview(hurt), entries, 0, 0, SEGMENT))
    assert found == [(BLOCK_SIZE + 5, BLOCK_SIZE + 6), (SEGMENT - 1, SEGMENT)]
    assert list(damage_in(memoryview(hurt), entries, 0, 0, BLOCK_SIZE)) == []
    assert list(damage_in(memoryview(hurt), entries, 0, 2 * BLOCK_SIZE, SEGMENT)) == found[1:]
