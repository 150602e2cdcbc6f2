from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.errors import StoreLocked
from mqstore.storage.system import posix_files
from mqstore.storage.system.posix_files import PosixFileSystem
from tests.unit.storage.memory import locked_kib
from tests.unit.storage.small_disk import small_disk

FILES = PosixFileSystem()

# Java's FileLock is a POSIX record lock, which is what lockf takes.
HOLD_AS_JAVA_DOES = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 256 << 10) as disk:
        yield disk


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no Path objects to be counted


def mapped_regions(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def test_stat_returns_size_time_and_kind(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    found = FILES.stat(path)
    assert found is not None
    assert (found.size, found.modified_ms, found.is_directory) == (5, 1_700_000_000_123, False)
    directory = FILES.stat(tmp_path)
    assert directory is not None
    assert directory.is_directory


def test_a_modification_can_be_dated_and_content_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    FILES.set_modified(path, 1_700_000_000_123)
    found = FILES.stat(path)
    assert found is not None
    assert found.modified_ms == 1_700_000_000_123
    assert path.read_bytes() == b"12345"


def test_a_path_that_has_another_file_is_not_the_same_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    found, directory = FILES.stat(path), FILES.stat(tmp_path)
    assert found is not None
    assert directory is not None
    are_same = FILES.watch_places({path: found.place, tmp_path: directory.place})
    assert are_same()
    path.rename(tmp_path / "moved")
    assert not are_same()
    path.write_bytes(b"")
    assert not are_same()
    path.unlink()
    (tmp_path / "moved").rename(path)
    assert are_same()


def test_stat_of_nothing_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert FILES.stat(tmp_path / "absent") is None
    assert FILES.stat(tmp_path / "file" / "below") is None


def test_list_is_sorted_and_empty_without_a_directory(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).touch()
    assert FILES.list(tmp_path) == ["a", "b", "c"]
    assert FILES.list(tmp_path / "absent") == []


def test_make_directories_makes_parents_and_accepts_existing(tmp_path: Path) -> None:
    FILES.make_directories(tmp_path / "a" / "b" / "c")
    FILES.make_directories(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_make_directories_refuses_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        FILES.make_directories(tmp_path / "file" / "below")


def test_write_replaces_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FILES.write(path, b"a longer text")
    FILES.write(path, b"short")
    assert FILES.read(path) == b"short"


def test_create_makes_zeros_with_all_their_blocks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FILES.create(path, 100_001)
    assert path.read_bytes() == bytes(100_001)
    assert path.stat().st_blocks * 512 >= 100_001


def test_create_may_reserve_only_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FILES.create(path, 1 << 20, reserve=8192)
    assert path.stat().st_size == 1 << 20
    assert path.stat().st_blocks * 512 < 1 << 20


def test_create_refuses_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        FILES.create(path, 4096)
    assert path.read_bytes() == b"precious"


def test_create_on_a_full_disk_says_so_and_leaves_nothing(full_disk: Path) -> None:
    with pytest.raises(OSError, match="cannot be reserved") as failure:
        FILES.create(full_disk / "file", 1 << 20)
    assert failure.value.errno == errno.ENOSPC
    assert list(full_disk.iterdir()) == []


def test_copy_on_a_full_disk_leaves_nothing(full_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x" * (1 << 20))
    with pytest.raises(OSError, match="No space left"):
        FILES.copy(tmp_path / "source", full_disk / "target")
    assert list(full_disk.iterdir()) == []


def test_reserve_gives_blocks_and_keeps_the_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FILES.create(path, 100_000, reserve=0)
    FILES.reserve(path, 65_536, 1 << 20)
    assert path.stat().st_size == 100_000
    assert path.stat().st_blocks > 0


def test_reserve_on_a_full_disk_fails_and_changes_nothing(full_disk: Path) -> None:
    path = full_disk / "file"
    FILES.create(path, 1 << 20, reserve=4096)
    with pytest.raises(OSError, match="cannot be reserved"):
        FILES.reserve(path, 4096, (1 << 20) - 4096)
    assert path.stat().st_size == 1 << 20


def test_populating_a_hole_of_a_full_disk_is_survived(full_disk: Path) -> None:
    path = full_disk / "file"
    FILES.create(path, 1 << 20, reserve=4096)
    mapping = FILES.map(path, writable=True)
    mapping.populate(0, 1 << 20)
    mapping.unmap()


def test_extend_adds_zeros_and_never_shortens(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    FILES.extend(path, 10)
    assert path.read_bytes() == b"abc" + bytes(7)
    with pytest.raises(OSError, match="longer than 9 bytes already"):
        FILES.extend(path, 9)


@pytest.mark.parametrize(
    ("offset", "length", "copied"),
    [(0, None, b"0123456789"), (3, None, b"3456789"), (3, 4, b"3456"), (8, 9, b"89"), (20, 5, b"")],
)
def test_copy_takes_a_range(tmp_path: Path, offset: int, length: int | None, copied: bytes) -> None:
    (tmp_path / "source").write_bytes(b"0123456789")
    FILES.copy(tmp_path / "source", tmp_path / "target", offset, length)
    assert (tmp_path / "target").read_bytes() == copied


def test_copy_refuses_an_existing_target(tmp_path: Path) -> None:
    (tmp_path / "source").touch()
    (tmp_path / "target").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        FILES.copy(tmp_path / "source", tmp_path / "target")


def test_rename_replaces_and_unlink_removes(tmp_path: Path) -> None:
    FILES.write(tmp_path / "a", b"new")
    FILES.write(tmp_path / "b", b"old")
    FILES.rename(tmp_path / "a", tmp_path / "b")
    FILES.sync_directory(tmp_path)
    assert FILES.read(tmp_path / "b") == b"new"
    FILES.unlink(tmp_path / "b")
    assert FILES.list(tmp_path) == []


def test_remove_directory_takes_only_empty_ones(tmp_path: Path) -> None:
    FILES.make_directories(tmp_path / "a" / "b")
    with pytest.raises(OSError, match="not empty"):
        FILES.remove_directory(tmp_path / "a")
    FILES.remove_directory(tmp_path / "a" / "b")
    assert FILES.list(tmp_path / "a") == []


def test_maps_of_one_file_see_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FILES.create(path, 8192)
    writer = FILES.map(path, writable=True)
    reader = FILES.map(path, writable=False)
    writer.view[4000:4003] = b"abc"
    writer.sync()
    assert bytes(reader.view[4000:4003]) == b"abc"
    assert reader.view.readonly
    assert path.read_bytes()[4000:4003] == b"abc"


def test_an_empty_file_maps_to_an_empty_view(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert len(FILES.map(tmp_path / "file", writable=True).view) == 0


def test_memory_lives_as_long_as_the_last_slice(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    mapping = FILES.map(path, writable=True)
    part = mapping.view[2:4]
    mapping.unmap()
    mapping.unmap()
    FILES.unlink(path)
    assert bytes(part) == b"23"
    assert mapped_regions(path) == 1
    del part
    gc.collect(1)
    assert mapped_regions(path) == 0
    with pytest.raises(ValueError, match="unmapped"):
        _ = mapping.view


def test_only_writable_maps_keep_a_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FILES.create(path, 4096)
    before = open_descriptors()
    reader = FILES.map(path, writable=False)
    assert open_descriptors() == before
    writer = FILES.map(path, writable=True)
    assert open_descriptors() == before + 1
    writer.unmap()
    writer.sync()
    assert open_descriptors() == before
    reader.unmap()


def test_private_maps_write_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    view = FILES.map_private(path)
    view[0:1] = b"x"
    assert bytes(view) == b"x123456789"
    assert path.read_bytes() == b"0123456789"


def test_lock_holds_rocketmqs_content_and_refuses_a_second(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = FILES.lock(path)
    assert path.read_bytes() == b"lock"
    assert FILES.is_locked(path)
    with pytest.raises(StoreLocked, match="held by another process"):
        FILES.lock(path)
    held.release()
    held.release()
    assert not FILES.is_locked(path)
    FILES.lock(path).release()


def test_lock_outlives_other_opens_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = FILES.lock(path)
    path.read_bytes()
    FILES.is_locked(path)
    assert FILES.is_locked(path)
    held.release()


def test_lock_and_javas_lock_refuse_each_other(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    command = [sys.executable, "-c", HOLD_AS_JAVA_DOES, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert FILES.is_locked(path)
        with pytest.raises(StoreLocked):
            FILES.lock(path)
    held = FILES.lock(path)
    refused = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert b"BlockingIOError" in refused.stderr
    held.release()


def test_a_missing_lock_file_means_no_holder(tmp_path: Path) -> None:
    assert not FILES.is_locked(tmp_path / "lock")
    assert FILES.list(tmp_path) == []


def test_usage_is_of_the_volume_also_before_the_directory_is_made(full_disk: Path) -> None:
    usage = FILES.usage(full_disk / "not" / "yet")
    assert usage.total == usage.used + usage.free == 256 << 10
    FILES.create(full_disk / "file", 64 << 10)
    assert FILES.usage(full_disk).free == usage.free - (64 << 10)


def test_what_is_written_through_the_page_cache_is_seen_by_every_map(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FILES.create(path, 8192)
    writer, reader = (FILES.map(path, writable=writable) for writable in (True, False))
    writer.write(4094, memoryview(b"over"))
    assert bytes(writer.view[4094:4098]) == bytes(reader.view[4094:4098]) == b"over"
    with pytest.raises(ValueError, match="not mapped for writing"):
        reader.write(0, memoryview(b"x"))
    writer.unmap()
    with pytest.raises(ValueError, match="not mapped for writing"):
        writer.write(0, memoryview(b"x"))


def test_a_locked_mapping_is_in_memory_until_it_is_unlocked(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FILES.create(path, 16384)
    before = locked_kib()
    for mapping in (FILES.map(path, writable=True), FILES.map_memory(16384)):
        mapping.lock()
        assert locked_kib() == before + 16
        mapping.unlock()
        assert locked_kib() == before
        mapping.unmap()
        mapping.unlock()
        with pytest.raises(ValueError, match="unmapped"):
            mapping.lock()


def test_a_lock_detects_that_its_file_was_deleted_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FILES.lock(path)
    assert lock.is_in_place()
    path.unlink()
    assert not lock.is_in_place()
    path.write_bytes(b"lock")
    assert not lock.is_in_place()
    other = FILES.lock(path)
    assert other.is_in_place()
    other.release()
    assert not other.is_in_place()


def test_mount_points_are_known_also_through_links_and_odd_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("/proc")
    assert FILES.is_mount_point(Path("/proc"))
    assert FILES.is_mount_point(tmp_path / "link")
    assert not FILES.is_mount_point(tmp_path)
    odd = tmp_path / "a b"
    odd.mkdir()
    escaped = str(odd).replace(" ", "\\040")
    (tmp_path / "mounts").write_text(f"29 1 8:1 / {escaped} rw,relatime - ext4 /dev/sda rw\n")
    monkeypatch.setattr(posix_files, "_MOUNTS", tmp_path / "mounts")
    assert FILES.is_mount_point(odd)
