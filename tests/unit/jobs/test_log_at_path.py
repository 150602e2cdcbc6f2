"""A store by its path: as much as may be read, and a clear word where nothing can."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from mqstore.jobs.errors import NoStore, SegmentGone
from mqstore.jobs.log import at_path
from mqstore.storage.message_store import Durability
from mqstore.storage.metadata import sealed_json
from tests.unit.jobs.written import offsets_of, read_all, written
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import abandon, message, open_store, put_some


def test_no_directory_and_no_store_have_different_errors(tmp_path: Path) -> None:
    with pytest.raises(NoStore, match="is no directory"):
        at_path.look(tmp_path / "nowhere")
    with pytest.raises(NoStore, match="holds no store"):
        at_path.look(tmp_path)


def test_an_unreadable_store_is_refused_with_why(tmp_path: Path) -> None:
    root = written(tmp_path / "store", 1)
    format_file = root / "mqstore" / "format.json"
    content = json.loads(sealed_json.unseal(format_file.read_bytes()))
    format_file.write_bytes(sealed_json.seal(json.dumps(content | {"leastReader": 99})))
    with pytest.raises(NoStore, match=r"format\.json needs version 99"):
        at_path.look(root)


def test_a_store_without_messages_has_no_segments(tmp_path: Path) -> None:
    with open_store(tmp_path / "store"):
        pass
    assert at_path.look(tmp_path / "store").segments == ()
    assert read_all(tmp_path / "store") == ([], [])


def test_beside_a_writer_what_is_synced_is_read_and_its_lock_stays(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_some(store, 400)
        put_message(store, message(store, 400), Durability.SYNC)
        synced = store.log.max_offset
        put_some(store, 3, start=401)
        [*_, last] = at_path.look(tmp_path / "store").segments
        assert last.end == synced
        found, corrupt = read_all(tmp_path / "store", partition=10_000)
        assert len(found) == 401
        assert corrupt == []
        put_some(store, 3, start=404)
    assert len(offsets_of(tmp_path / "store")) == 407


def test_of_a_killed_writers_store_all_that_recovery_keeps_is_read(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    put_some(store, 400)
    abandon(store)
    before = sorted(p for p in (tmp_path / "store").rglob("*") if p.is_file())
    assert len(offsets_of(tmp_path / "store")) == 400
    assert sorted(p for p in (tmp_path / "store").rglob("*") if p.is_file()) == before


def test_without_queues_the_log_is_read_all_the_same(tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    starts = offsets_of(root)
    shutil.rmtree(root / "consumequeue")
    assert offsets_of(root) == starts


def test_a_segment_that_went_is_named(tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    seen = at_path.look(root)
    first = seen.segments[0]
    (root / "commitlog" / first.name).unlink()
    with seen.log.opened() as reader, pytest.raises(SegmentGone, match=f"{first.name} was deleted"):
        reader.read(first, first.base, 100)


def test_a_log_goes_to_tasks_by_value(tmp_path: Path) -> None:
    seen = at_path.look(written(tmp_path / "store", 10))
    log = pickle.loads(pickle.dumps(seen.log))
    with log.opened() as reader:
        assert reader.read(seen.segments[0], 0, 8)[4:] == b"\xda\xa3\x20\xa7"
