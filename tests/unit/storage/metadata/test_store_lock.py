from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from mqstore.storage.errors import DirectoryNotUsable, StoreLocked
from mqstore.storage.metadata import store_lock
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.posix_files import PosixFileSystem

FILES = PosixFileSystem()


def test_the_directory_is_made_with_create(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path / "a" / "store")
    store_lock.take(FILES, paths, create=True).release()
    assert paths.lock.read_bytes() == b"lock"


def test_a_missing_directory_is_not_made_without_create(tmp_path: Path) -> None:
    with pytest.raises(DirectoryNotUsable, match="does not exist"):
        store_lock.take(FILES, StorePaths(tmp_path / "store"), create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryNotUsable, match="no directory"):
        store_lock.take(FILES, StorePaths(tmp_path / "file"), create=True)


def test_one_at_a_time(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    held = store_lock.take(FILES, paths, create=True)
    with pytest.raises(StoreLocked, match="broker"):
        store_lock.take(FILES, paths, create=True)
    held.release()
    store_lock.take(FILES, paths, create=True).release()


def test_the_holder_is_named_where_it_is_known(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    paths.ours.mkdir()
    paths.format.write_text(json.dumps({"owner": {"pid": 4711, "host": "node-3"}}))
    held = store_lock.take(FILES, paths, create=True)
    with pytest.raises(StoreLocked, match="process 4711 on node-3"):
        store_lock.take(FILES, paths, create=True)
    held.release()


def test_the_lock_has_the_time_of_the_previous_write_to_its_file(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    first = store_lock.take(FILES, paths, create=True)
    assert first.modified_before_ms is None
    first.release()
    os.utime(paths.lock, ns=(time.time_ns(), 5_000_000_000))
    second = store_lock.take(FILES, paths, create=True)
    assert second.modified_before_ms == 5_000
    second.release()
