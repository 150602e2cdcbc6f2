from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage import sizes
from mqstore.storage.codec.record import write_blank
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StoreDamaged, StoreUnsupported
from mqstore.storage.metadata.format_file import Sizes
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.system.posix_files import PosixFileSystem

FILES = PosixFileSystem()


def segments(directory: Path, size: int, *lengths: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number, length in enumerate(lengths):
        with (directory / segment_name(number * size)).open("wb") as file:
            file.truncate(length)


@pytest.mark.parametrize(
    "lengths",
    [(8192,), (8192, 8192), (8192, 100), (8192, 0), (8192, 100, 8192), (8192, 8192, 9000)],
)
def test_the_segment_size_is_that_of_the_files(tmp_path: Path, lengths: tuple[int, ...]) -> None:
    paths = StorePaths(tmp_path)
    segments(paths.commit_log, 8192, *lengths)
    found = sizes.adopt(FILES, paths, StoreConfig(), None)
    assert found.mapped_file_size_commit_log == 8192


def cut_short(path: Path, length: int) -> None:
    """A segment's first part: records lead right up to where it ends."""
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\1" * length)


@pytest.mark.parametrize("length", [5_000, 8_100, 8_192])
def test_the_size_of_a_lone_segment_that_was_cut_short_is_a_power_of_two(
    tmp_path: Path, length: int
) -> None:
    paths = StorePaths(tmp_path)
    cut_short(paths.commit_log / segment_name(8192 * 3), length)
    found = sizes.adopt(FILES, paths, StoreConfig(), None)
    assert found.mapped_file_size_commit_log == 8192


def test_the_size_of_a_truncated_segment_follows_from_the_next_segments_name(
    tmp_path: Path,
) -> None:
    paths = StorePaths(tmp_path)
    cut_short(paths.commit_log / segment_name(0), 5_000)
    (paths.commit_log / segment_name(6_000)).touch()
    found = sizes.adopt(FILES, paths, StoreConfig(mapped_file_size_commit_log=1 << 20), None)
    assert found.mapped_file_size_commit_log == 6_000


def test_the_size_of_a_truncated_last_segment_is_that_of_the_setting(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    cut_short(paths.commit_log / segment_name(100_000), 20_000)
    found = sizes.adopt(FILES, paths, StoreConfig(mapped_file_size_commit_log=100_000), None)
    assert found.mapped_file_size_commit_log == 100_000


def test_a_store_of_unknown_segment_size_is_refused(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    cut_short(paths.commit_log / segment_name(100_000), 30_000)
    with pytest.raises(StoreUnsupported, match="set mappedFileSizeCommitLog"):
        sizes.adopt(FILES, paths, StoreConfig(), None)


@pytest.mark.parametrize("left", range(8, 17))
def test_a_blank_record_at_its_end_closes_a_segment(tmp_path: Path, left: int) -> None:
    paths = StorePaths(tmp_path)
    path = paths.commit_log / segment_name(0)
    cut_short(path, 5_000)
    blank = bytearray(left)
    write_blank(blank, 0, left)
    path.write_bytes(path.read_bytes()[:-left] + blank)
    found = sizes.adopt(FILES, paths, StoreConfig(), None)
    assert found.mapped_file_size_commit_log == 5_000


def test_the_queue_file_size_is_that_of_the_files(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    for queue_id in range(3):
        segments(paths.consume_queue / "T" / str(queue_id), 2000, 2000, 2000)
    segments(paths.consume_queue / "Short" / "0", 2000, 40)
    found = sizes.adopt(FILES, paths, StoreConfig(), None)
    assert found.queue_file_size == 2000


def test_an_empty_directory_takes_what_is_configured(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20)
    found = sizes.adopt(FILES, StorePaths(tmp_path), config, None)
    assert found.mapped_file_size_commit_log == 1 << 20
    assert found.queue_file_size == 6_000_000


def test_what_format_json_says_wins(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    segments(paths.commit_log, 8192, 8192)
    known = Sizes(
        mapped_file_size_commit_log=16384,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=7,
        max_index_num=9,
    )
    found = sizes.adopt(FILES, paths, StoreConfig(max_index_num=100), known)
    assert Sizes.of(found) == known
    found = sizes.adopt(FILES, paths, StoreConfig(max_index_num=100), known, keep_index_sizes=False)
    assert (found.max_hash_slot_num, found.max_index_num) == (7, 100)


def test_lengths_that_no_store_has_are_damage(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    segments(paths.commit_log, 100, 100, 100)
    with pytest.raises(StoreDamaged, match="lengths"):
        sizes.adopt(FILES, paths, StoreConfig(), None)
