"""A log that lies apart from its root has one owner: copies of the root are refused by name."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from mqstore.storage import adoption
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import (
    DataMissing,
    DirectoryNotUsable,
    StoreDamaged,
    StoreLocked,
    StoreOfAnother,
    StoreUnsupported,
)
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import log_owner, sealed_json
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Verification
from tests.store_copies import copy_store
from tests.unit.storage.stores import FILES, abandon, all_bodies, bodies, open_store, put_some
from tests.unit.untouched import entries_of


class Place:
    """A store whose log is on another disk, and the directories that tests copy it to."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "disk1" / "store"
        self.log = directory / "disk2" / "log"
        self.copy = directory / "disk1" / "copy"
        self.log_copy = directory / "disk3" / "log"

    def open(self, root: Path | None = None, **options: Any) -> MessageStore:
        if root is None:
            options = {"store_path_commit_log": str(self.log), **options}
        return open_store(root or self.root, **options)

    def copy_root(self) -> Path:
        return copy_store(self.root, self.copy)

    def copy_log(self) -> Path:
        return copy_store(self.log, self.log_copy)

    def content(self) -> dict[Path, bytes]:
        """Content of every file of the log and beside it."""
        parts = self.log.parent.rglob("*")
        return {path: path.read_bytes() for path in parts if path.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A store with 30 messages, closed."""
    found = Place(tmp_path)
    with found.open() as store:
        put_some(store, 30)
    return found


def refusal(root: Path, **options: Any) -> str:
    with pytest.raises(StoreOfAnother) as caught:
        open_store(root, **options)
    return str(caught.value)


def format_of(root: Path) -> dict[str, Any]:
    return dict(json.loads(sealed_json.unseal(StorePaths(root).format.read_bytes())))


def as_of_an_earlier_release(place: Place) -> None:
    """Nothing says whose the log is."""
    path = StorePaths(place.root).format
    content = {k: v for k, v in format_of(place.root).items() if k != "commitLogIsMarked"}
    path.write_text(json.dumps(content))
    shutil.rmtree(StorePaths(place.root, place.log).log_identity)


def test_a_copy_of_a_root_is_refused_while_the_writer_runs(place: Place) -> None:
    with place.open() as store:
        put_some(store, 30, start=30)
        place.copy_root()
        before = place.content()

        why = refusal(place.copy)

        assert place.content() == before
        put_some(store, 30, start=60)
        for named in (place.root, place.copy, place.log, store.store_id, "mqstore store adopt"):
            assert str(named) in why
    with place.open() as store:
        assert bodies(store) == all_bodies(90)


def test_a_copy_of_a_root_is_refused_when_the_store_is_closed_or_was_killed(place: Place) -> None:
    place.copy_root()
    assert str(place.root) in refusal(place.copy)
    store = place.open()
    put_some(store, 10, start=30)
    abandon(store)
    assert str(place.root) in refusal(place.copy)


def test_another_root_that_names_the_log_is_refused(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert "no store of mqstore yet" in refusal(other, store_path_commit_log=str(place.log))
    with open_store(other) as store:
        put_some(store, 3)
        store_id = store.store_id
    why = refusal(other, store_path_commit_log=str(place.log))
    assert store_id in why
    assert str(place.root) in why


def test_another_root_that_names_the_log_inside_a_store_is_refused(tmp_path: Path) -> None:
    owner, other = tmp_path / "store", tmp_path / "other"
    with open_store(owner) as store:
        put_some(store, 3)
        why = refusal(other, store_path_commit_log=str(owner / "commitlog"))
        assert store.store_id in why
        assert str(owner) in why


def test_another_root_that_names_the_log_of_a_broker_is_refused(tmp_path: Path) -> None:
    broker = tmp_path / "store"
    with open_store(broker) as store:
        put_some(store, 3)
    shutil.rmtree(broker / "mqstore")
    why = refusal(tmp_path / "other", store_path_commit_log=str(broker / "commitlog"))
    assert "RocketMQ broker" in why


def test_whatever_looks_at_a_copy_refuses_the_log_of_the_original(place: Place) -> None:
    place.copy_root()
    seams = production_seams()
    with pytest.raises(StoreOfAnother, match=re.escape(str(place.root))):
        Verification(place.copy, StoreConfig(), seams)
    with pytest.raises(StoreOfAnother, match=re.escape(str(place.root))):
        StoreReader.open(place.copy, seams)
    refusal(place.copy, in_place=False, services=False, create=False)
    assert list(Verification(place.root, StoreConfig(), seams).findings()) == []
    with StoreReader.open(place.root, seams) as reader:
        assert reader.snapshot().max_offset > 0


def test_the_log_has_a_lock_of_its_own(place: Place) -> None:
    with place.open():
        held = StorePaths(place.root, place.log).log_lock
        assert FILES.is_locked(held)
        with pytest.raises(StoreLocked):
            FILES.lock(held)
    assert not FILES.is_locked(held)


def test_nothing_but_segments_lies_in_the_log_directory(place: Place) -> None:
    with place.open() as store:
        put_some(store, 500, start=30)
    assert all(path.name.isdigit() for path in place.log.iterdir())


def test_a_copy_adopts_a_copy_of_the_log_and_both_stores_go_on_apart(place: Place) -> None:
    place.copy_root()
    place.copy_log()
    seams = production_seams()

    planned = adoption.plan(FILES, place.copy, place.log_copy)
    assert planned.is_needed
    assert not StorePaths(place.copy, place.log_copy).log_identity.exists()
    refusal(place.copy)
    adoption.adopt(seams, place.copy, place.log_copy)

    assert not adoption.plan(FILES, place.copy, None).is_needed
    with place.open() as original, place.open(place.copy) as copied:
        put_some(original, 10, start=30)
        put_some(copied, 20, start=30)
        assert bodies(original) == all_bodies(40)
        assert bodies(copied) == all_bodies(50)
        assert copied.paths.commit_log == place.log_copy


def test_a_copy_cannot_adopt_the_log_while_the_original_is_there(place: Place) -> None:
    place.copy_root()
    with pytest.raises(StoreOfAnother, match="copy the log"):
        adoption.adopt(production_seams(), place.copy, None)
    with place.open() as store:
        assert bodies(store) == all_bodies(30)


def test_a_log_that_only_the_store_names_is_not_written_beside(place: Place) -> None:
    """A hostile format.json may name any directory."""
    place.root.rename(place.copy)
    before = entries_of(place.log.parent)
    with pytest.raises(DirectoryNotUsable, match="outside of it"):
        adoption.adopt(production_seams(), place.copy, None)
    assert entries_of(place.log.parent) == before


def test_a_moved_root_goes_on_with_its_log_once_it_adopted_it(place: Place) -> None:
    place.root.rename(place.copy)
    assert str(place.root) in refusal(place.copy)

    with pytest.raises(DirectoryNotUsable, match=f"--commit-log {place.log}"):
        adoption.adopt(production_seams(), place.copy, None)
    found = adoption.adopt(production_seams(), place.copy, place.log)

    assert found.former_root == place.root
    with place.open(place.copy) as store:
        assert bodies(store) == all_bodies(30)


def test_a_log_is_not_adopted_while_it_is_written(place: Place) -> None:
    with place.open():
        place.root.rename(place.copy)
        with pytest.raises(StoreLocked):
            adoption.adopt(production_seams(), place.copy, place.log)
        shutil.copytree(place.copy, place.copy.with_name("again"))
        with pytest.raises(StoreLocked, match="commit log"):
            adoption.adopt(production_seams(), place.copy.with_name("again"), place.log)
        place.copy.rename(place.root)


def test_a_new_root_adopts_the_log_of_one_that_was_lost(place: Place, tmp_path: Path) -> None:
    store_id = format_of(place.root)["storeId"]
    shutil.rmtree(place.root)
    other = tmp_path / "other"
    other.mkdir()

    adoption.adopt(production_seams(), other, place.log)

    with open_store(other, store_path_commit_log=str(place.log)) as store:
        assert store.store_id == store_id
        assert bodies(store) == all_bodies(30)


def test_a_root_of_another_store_adopts_nothing(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    open_store(other).close()
    with pytest.raises(StoreOfAnother, match="empty directory"):
        adoption.adopt(production_seams(), other, place.log)


@pytest.mark.parametrize("missing", ["root", "store", "segments"])
def test_what_cannot_be_adopted_is_refused_by_name(place: Place, missing: str) -> None:
    empty = place.root.with_name("empty")
    root = {"root": place.root / "none", "store": empty, "segments": place.root}[missing]
    log = empty if missing == "segments" else None
    empty.mkdir()
    with pytest.raises(DirectoryNotUsable):
        adoption.adopt(production_seams(), root, log)


def test_an_older_copy_in_the_place_of_the_root_is_refused(place: Place) -> None:
    place.copy_root()
    with place.open() as store:
        put_some(store, 10, start=30)
    shutil.rmtree(place.root)
    place.copy.rename(place.root)

    assert "older copy" in refusal(place.root)

    adoption.adopt(production_seams(), place.root, place.log)
    with place.open() as store:
        assert bodies(store) == all_bodies(40)


def test_a_log_volume_that_is_not_mounted_is_refused_and_nothing_is_written(place: Place) -> None:
    away = place.log.parent.with_name("away")
    place.log.parent.rename(away)
    place.log.parent.mkdir()
    for log in ("absent", "empty"):
        with pytest.raises(DataMissing, match="mounted"):
            place.open()
        assert all(path == place.log for path in place.log.parent.iterdir()), log
        place.log.mkdir(exist_ok=True)
    shutil.rmtree(place.log.parent)
    away.rename(place.log.parent)
    with place.open() as store:
        assert bodies(store) == all_bodies(30)


def test_a_store_of_an_earlier_release_owns_its_log_from_its_next_opening(place: Place) -> None:
    as_of_an_earlier_release(place)
    with place.open() as store:
        assert bodies(store) == all_bodies(30)
    place.copy_root()
    assert str(place.root) in refusal(place.copy)


def test_a_copy_of_a_store_of_an_earlier_release_is_refused_though_it_is_opened_first(
    place: Place,
) -> None:
    as_of_an_earlier_release(place)
    place.copy_root()
    assert str(place.root) in refusal(place.copy)
    assert not StorePaths(place.root, place.log).log_identity.exists()
    other = place.root.with_name("other")
    assert "mqstore wrote it" in refusal(other, store_path_commit_log=str(place.log))
    with place.open() as store:
        assert bodies(store) == all_bodies(30)


def test_a_log_of_a_broker_is_owned_by_the_root_that_is_opened(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_some(store, 30)
    shutil.rmtree(tmp_path / "store" / "mqstore")
    log = (tmp_path / "store" / "commitlog").rename(tmp_path / "log")
    with open_store(tmp_path / "store", store_path_commit_log=str(log)) as store:
        assert bodies(store) == all_bodies(30)
    assert "no store" in refusal(tmp_path / "other", store_path_commit_log=str(log))


def test_the_owner_is_found_through_a_link_that_the_operator_made(
    place: Place, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(place.log)
    (tmp_path / "root").symlink_to(place.root)
    with open_store(tmp_path / "root", store_path_commit_log=str(tmp_path / "link")) as store:
        assert bodies(store) == all_bodies(30)
    other = tmp_path / "other"
    assert str(place.root) in refusal(other, store_path_commit_log=str(tmp_path / "link"))


def test_an_opening_that_ended_before_format_json_was_written_is_repeated(tmp_path: Path) -> None:
    place = Place(tmp_path)
    paths = StorePaths(place.root, place.log)
    log_owner.save(FILES, paths, "0" * 32, epoch=0)
    with place.open() as store:
        assert store.store_id == "0" * 32
        put_some(store, 3)
    with place.open() as store:
        assert store.epoch == 2


def test_a_lost_format_json_is_made_again_for_the_owner(place: Place) -> None:
    before = format_of(place.root)
    StorePaths(place.root).format.unlink()
    with place.open() as store:
        assert store.store_id == before["storeId"]
        assert store.epoch > before["epoch"]
        assert bodies(store) == all_bodies(30)
    with place.open() as store:
        assert bodies(store) == all_bodies(30)


def test_an_owner_file_that_cannot_be_read_is_refused_by_name(place: Place) -> None:
    paths = StorePaths(place.root, place.log)
    paths.log_owner.write_text("{")
    with pytest.raises(StoreDamaged, match=r"owner\.json .*mqstore store adopt"):
        place.open()
    paths.log_owner.unlink()
    adoption.adopt(production_seams(), place.root, place.log)
    with place.open() as store:
        assert bodies(store) == all_bodies(30)


def test_a_mount_point_is_no_log_directory(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PosixFileSystem, "is_mount_point", lambda self, path: True)
    with pytest.raises(StoreUnsupported, match="directory inside it"):
        place.open()
    with open_store(tmp_path / "inside") as store:
        put_some(store, 3)


def test_a_log_that_was_moved_inside_its_root_is_adopted_there(place: Place) -> None:
    place.log.rename(place.root / "commitlog")
    adoption.adopt(production_seams(), place.root, place.root / "commitlog")
    with open_store(place.root) as store:
        assert bodies(store) == all_bodies(30)
    assert (place.root / "commitlog" / segment_name(0)).exists()
