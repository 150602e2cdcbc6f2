"""The quarantine of an open store."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mqstore.storage.errors import QuarantineEntryUnknown
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.metadata.quarantine_service import QuarantineService
from mqstore.storage.system.clock import SystemClock
from mqstore.storage.system.posix_files import PosixFileSystem


class Held:
    """A quarantine with one entry of the log and one index file; ``complete`` is the index."""

    def __init__(self, root: Path) -> None:
        directory = root / "mqstore" / "quarantine"
        directory.mkdir(parents=True)
        self.quarantine = Quarantine(PosixFileSystem(), SystemClock(), directory, root)
        for folder in ("commitlog", "index"):
            (root / folder).mkdir()
            (root / folder / "file").write_bytes(b"x" * 100)
        self.log = self.quarantine.keep_range(root / "commitlog" / "file", 0, 10, "torn")
        self.index = self.quarantine.move_file(root / "index" / "file", "not trusted")
        self.complete = False
        self.service = QuarantineService(self.quarantine, lambda: self.complete)


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


def test_an_index_file_is_removed_once_the_index_is_complete(held: Held) -> None:
    assert held.service.step(5.0) == 15.0
    assert held.service.entries() == [held.log, held.index]
    held.complete = True
    assert held.service.step(15.0) == math.inf
    assert held.service.entries() == [held.log]


def test_an_entry_is_removed_by_its_name_and_no_other(held: Held) -> None:
    held.service.remove(held.log.name)
    assert held.service.entries() == [held.index]
    for name in (held.log.name, "..", "no-such-entry"):
        with pytest.raises(QuarantineEntryUnknown, match="GET /v1/store/quarantine"):
            held.service.remove(name)
    assert held.service.entries() == [held.index]


def test_a_removal_that_is_cut_off_leaves_no_entry_that_lacks_its_bytes(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[Path] = []

    def cut_off(self: PosixFileSystem, path: Path) -> None:
        if removed:
            raise OSError("the process was killed")
        removed.append(path)
        path.unlink()

    monkeypatch.setattr(PosixFileSystem, "unlink", cut_off)
    with pytest.raises(OSError, match="killed"):
        held.service.remove(held.log.name)
    assert held.service.entries() == [held.index]
