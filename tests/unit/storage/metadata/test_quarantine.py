from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.system.clock import SystemClock
from mqstore.storage.system.posix_files import PosixFileSystem


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "commitlog" / "00000000000000000000"
    path.parent.mkdir()
    path.write_bytes(bytes(range(256)) * 16)
    return path


@pytest.fixture
def quarantine(tmp_path: Path) -> Quarantine:
    directory = tmp_path / "mqstore" / "quarantine"
    directory.mkdir(parents=True)
    return Quarantine(PosixFileSystem(), SystemClock(), directory, tmp_path)


def test_a_range_is_kept_with_where_it_came_from_and_why(
    quarantine: Quarantine, source: Path
) -> None:
    entry = quarantine.keep_range(source, 100, 50, "torn")
    assert quarantine.data(entry.name).read_bytes() == source.read_bytes()[100:150]
    assert (entry.source, entry.position, entry.length) == (
        "commitlog/00000000000000000000",
        100,
        50,
    )
    assert (entry.magic, entry.version, entry.reason) == ("mqstore-quarantine", 1, "torn")
    assert quarantine.entries() == [entry]


def test_the_same_bytes_are_kept_once(quarantine: Quarantine, source: Path) -> None:
    first = quarantine.keep_range(source, 0, 10, "torn")
    assert quarantine.keep_range(source, 0, 10, "again") == first
    assert len(quarantine.entries()) == 1


def test_other_bytes_of_the_same_place_are_kept_beside(
    quarantine: Quarantine, source: Path
) -> None:
    quarantine.keep_range(source, 0, 10, "torn")
    source.write_bytes(b"x" * 4096)
    quarantine.keep_range(source, 0, 10, "torn again")
    assert len(quarantine.entries()) == 2


def test_an_interrupted_attempt_is_no_entry_and_is_done_again(
    quarantine: Quarantine, source: Path
) -> None:
    entry = quarantine.keep_range(source, 0, 10, "torn")
    (quarantine.data(entry.name).parent / "entry.json").unlink()
    quarantine.data(entry.name).write_bytes(b"half")
    assert quarantine.entries() == []
    again = quarantine.keep_range(source, 0, 10, "torn")
    assert quarantine.data(again.name).read_bytes() == source.read_bytes()[:10]


def test_a_moved_file_is_gone_from_its_place(quarantine: Quarantine, source: Path) -> None:
    content = source.read_bytes()
    entry = quarantine.move_file(source, "not to be trusted")
    assert not source.exists()
    assert quarantine.data(entry.name).read_bytes() == content


def test_an_empty_file_can_be_kept(quarantine: Quarantine, source: Path) -> None:
    source.write_bytes(b"")
    entry = quarantine.keep_file(source, "empty")
    assert quarantine.data(entry.name).read_bytes() == b""


def test_a_released_entry_is_gone(quarantine: Quarantine, source: Path) -> None:
    entry = quarantine.keep_file(source, "made again since")
    quarantine.release(entry.name)
    assert quarantine.entries() == []
    assert not quarantine.data(entry.name).parent.exists()


def test_a_file_outside_of_the_store_is_kept_too(
    quarantine: Quarantine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("disk2") / "00000000000000004096"
    outside.write_bytes(b"abc")
    entry = quarantine.keep_file(outside, "short")
    assert entry.source == str(outside)
    assert quarantine.data(entry.name).read_bytes() == b"abc"
