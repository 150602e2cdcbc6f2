from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.system.overlay_files import OverlayFileSystem
from mqstore.storage.system.posix_files import PosixFileSystem


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "old").write_bytes(b"0123456789")
    (tmp_path / "log" / "other").write_bytes(b"abc")
    return tmp_path


@pytest.fixture
def files() -> OverlayFileSystem:
    return OverlayFileSystem(PosixFileSystem())


def content_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_modification_is_dated_in_the_overlay_only(base: Path, files: OverlayFileSystem) -> None:
    path = base / "log" / "old"
    before = path.stat().st_mtime_ns
    files.set_modified(path, 1_700_000_000_123)
    found = files.stat(path)
    assert found is not None
    assert found.modified_ms == 1_700_000_000_123
    assert path.stat().st_mtime_ns == before


def test_nothing_is_ever_written(base: Path, files: OverlayFileSystem) -> None:
    before = content_of(base)
    log = base / "log"
    files.map(log / "old", writable=True).view[0:2] = b"xx"
    files.write(log / "other", b"changed")
    files.create(log / "new", 4096)
    files.copy(log / "old", base / "copy")
    files.extend(log / "old", 20)
    files.make_directories(base / "a" / "b")
    files.rename(log / "new", base / "a" / "b" / "moved")
    files.unlink(log / "old")
    files.lock(base / "lock").release()
    files.sync_directory(log)
    assert content_of(base) == before
    assert sorted(path.name for path in base.rglob("*")) == ["log", "old", "other"]


def test_memory_of_no_file_is_empty_and_writable(files: OverlayFileSystem) -> None:
    memory = files.map_memory(10)
    memory.view[3:5] = b"xy"
    assert bytes(memory.view) == b"\0\0\0xy\0\0\0\0\0"


def test_maps_of_one_path_share_what_is_written(base: Path, files: OverlayFileSystem) -> None:
    path = base / "log" / "old"
    reader = files.map(path, writable=False)
    writer = files.map(path, writable=True)
    again = files.map(path, writable=True)
    writer.view[3:5] = b"xy"
    writer.sync()
    writer.populate(0, 10)
    writer.write(6, memoryview(b"zz"))
    writer.lock()
    writer.unlock()
    writer.unmap()
    assert bytes(reader.view) == bytes(again.view) == files.read(path) == b"012xy5zz89"
    assert reader.view.readonly


def test_an_unmapped_view_is_refused(base: Path, files: OverlayFileSystem) -> None:
    mapping = files.map(base / "log" / "old", writable=True)
    mapping.unmap()
    with pytest.raises(ValueError, match="unmapped"):
        _ = mapping.view


def test_new_files_are_seen_and_zero_filled(base: Path, files: OverlayFileSystem) -> None:
    files.create(base / "log" / "new", 5000)
    found = files.stat(base / "log" / "new")
    assert found is not None
    assert found.size == 5000
    assert files.read(base / "log" / "new") == bytes(5000)
    assert files.list(base / "log") == ["new", "old", "other"]
    files.reserve(base / "log" / "new", 0, 5000)


def test_what_is_there_is_not_created_again(base: Path, files: OverlayFileSystem) -> None:
    with pytest.raises(FileExistsError):
        files.create(base / "log" / "old", 10)
    with pytest.raises(FileExistsError):
        files.copy(base / "log" / "other", base / "log" / "old")


def test_a_file_that_the_base_gets_after_a_listing_is_not_seen(
    base: Path, files: OverlayFileSystem
) -> None:
    log = base / "log"
    assert files.list(log) == ["old", "other"]
    (log / "later").write_bytes(b"made ahead by a living store")
    assert files.list(log) == ["old", "other"]
    assert files.stat(log / "later") is None
    files.create(log / "later", 4)
    assert files.list(log) == ["later", "old", "other"]
    assert files.read(log / "later") == bytes(4)


def test_a_file_that_the_base_loses_after_a_listing_can_be_removed_once(
    base: Path, files: OverlayFileSystem
) -> None:
    log = base / "log"
    files.list(log)
    (log / "old").unlink()
    files.unlink(log / "old")
    assert files.list(log) == ["other"]
    with pytest.raises(FileNotFoundError):
        files.unlink(log / "old")
    with pytest.raises(FileNotFoundError):
        files.unlink(log / "never")


def test_removed_files_are_gone_until_made_again(base: Path, files: OverlayFileSystem) -> None:
    path = base / "log" / "old"
    files.unlink(path)
    assert files.stat(path) is None
    assert files.list(base / "log") == ["other"]
    with pytest.raises(FileNotFoundError):
        files.read(path)
    with pytest.raises(FileNotFoundError):
        files.unlink(path)
    files.write(path, b"again")
    assert files.read(path) == b"again"
    assert files.list(base / "log") == ["old", "other"]


def test_rename_carries_changes_along(base: Path, files: OverlayFileSystem) -> None:
    files.map(base / "log" / "old", writable=True).view[0:1] = b"x"
    files.rename(base / "log" / "old", base / "log" / "other")
    assert files.read(base / "log" / "other") == b"x123456789"
    assert files.list(base / "log") == ["other"]


def test_extend_keeps_content_and_refuses_to_shorten(base: Path, files: OverlayFileSystem) -> None:
    path = base / "log" / "old"
    files.map(path, writable=True).view[9:10] = b"x"
    files.extend(path, 12)
    assert files.read(path) == b"012345678x\0\0"
    with pytest.raises(OSError, match="Invalid"):
        files.extend(path, 11)


def test_a_write_of_the_same_length_is_seen_by_maps(base: Path, files: OverlayFileSystem) -> None:
    mapping = files.map(base / "log" / "other", writable=False)
    files.write(base / "log" / "other", b"xyz")
    assert bytes(mapping.view) == b"xyz"


def test_directories_are_made_and_removed(base: Path, files: OverlayFileSystem) -> None:
    files.make_directories(base / "a" / "b")
    files.make_directories(base / "a" / "b")
    made = files.stat(base / "a" / "b")
    assert made is not None
    assert made.is_directory
    with pytest.raises(OSError, match="not empty"):
        files.remove_directory(base / "a")
    files.remove_directory(base / "a" / "b")
    assert files.list(base / "a") == []
    with pytest.raises(NotADirectoryError):
        files.make_directories(base / "log" / "old")
    with pytest.raises(IsADirectoryError):
        files.unlink(base / "log")


def test_a_removed_directory_of_the_base_comes_back_empty(
    base: Path, files: OverlayFileSystem
) -> None:
    for name in files.list(base / "log"):
        files.unlink(base / "log" / name)
    files.remove_directory(base / "log")
    assert files.stat(base / "log") is None
    with pytest.raises(FileNotFoundError):
        files.write(base / "log" / "old", b"")
    with pytest.raises(FileNotFoundError):
        files.sync_directory(base / "log")
    files.make_directories(base / "log")
    assert files.list(base / "log") == []
    assert files.stat(base / "log" / "old") is None


def test_copies_take_a_range_of_what_the_overlay_shows(
    base: Path, files: OverlayFileSystem
) -> None:
    files.map(base / "log" / "old", writable=True).view[4:5] = b"x"
    files.copy(base / "log" / "old", base / "part", 3, 3)
    assert files.read(base / "part") == b"3x5"


def test_a_held_lock_is_reported_and_does_not_prevent_an_opening(
    base: Path, files: OverlayFileSystem
) -> None:
    held = PosixFileSystem().lock(base / "lock")
    files.lock(base / "lock").release()
    assert files.is_locked(base / "lock")
    held.release()
    assert not files.is_locked(base / "lock")


def test_usage_is_the_bases(base: Path, files: OverlayFileSystem) -> None:
    assert files.usage(base).total == PosixFileSystem().usage(base).total


def test_a_read_only_directory_is_no_obstacle(base: Path, files: OverlayFileSystem) -> None:
    (base / "log" / "old").chmod(0o444)
    (base / "log").chmod(0o555)
    try:
        files.map(base / "log" / "old", writable=True).view[0:1] = b"x"
        files.create(base / "log" / "new", 10)
        assert files.read(base / "log" / "old") == b"x123456789"
    finally:
        (base / "log").chmod(0o755)


def test_large_new_files_take_no_memory_until_written(base: Path, files: OverlayFileSystem) -> None:
    before = resident_pages()
    files.create(base / "log" / "new", 1 << 30)
    files.copy(base / "log" / "new", base / "log" / "copy", 0, 64 << 20)
    files.map(base / "log" / "new", writable=True).view[1 << 29] = 1
    assert (resident_pages() - before) * os.sysconf("SC_PAGESIZE") < 96 << 20


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


@given(
    old=st.binary(min_size=1, max_size=20_000),
    grow=st.integers(0, 200_000),
    offset=st.integers(0, 30_000),
    length=st.none() | st.integers(0, 30_000),
)
def test_extend_and_copy_agree_with_bytes(
    tmp_path_factory: pytest.TempPathFactory, old: bytes, grow: int, offset: int, length: int | None
) -> None:
    root = tmp_path_factory.getbasetemp()
    (root / "source").write_bytes(old)
    files = OverlayFileSystem(PosixFileSystem())
    files.extend(root / "source", len(old) + grow)
    files.copy(root / "source", root / "target", offset, length)
    whole = old + bytes(grow)
    end = len(whole) if length is None else offset + length
    assert files.read(root / "source") == whole
    assert files.read(root / "target") == whole[offset:end]


def test_an_overlay_can_be_laid_over_another(base: Path, files: OverlayFileSystem) -> None:
    old, other = base / "log" / "old", base / "log" / "other"
    files.write(other, b"changed")
    above = OverlayFileSystem(files)
    above.map(old, writable=True).view[0:2] = b"xx"
    above.map(other, writable=True).view[0:2] = b"yy"

    assert (above.read(old), above.read(other)) == (b"xx23456789", b"yyanged")
    assert (files.read(old), files.read(other)) == (b"0123456789", b"changed")
