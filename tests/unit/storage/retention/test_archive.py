"""Up to where the log is archived: kept, moved forward only, and waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.errors import ArchiveRefused
from mqstore.storage.paths import StorePaths
from mqstore.storage.retention.archive import Archive, read
from mqstore.storage.retention.plan import Why
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.stores import CONFIG, FILES, open_store, put_some

PLACE = "file:///archive"


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    found = StorePaths(tmp_path / "store")
    found.ours.mkdir(parents=True)
    return found


def archive_of(paths: StorePaths, max_offset: int = 1000) -> Archive:
    return Archive(paths, production_seams(), max_offset)


def test_a_mark_outlives_the_process_and_holds_the_log_behind_it(
    paths: StorePaths,
) -> None:
    assert archive_of(paths).mark is None
    first = archive_of(paths).advance(100, PLACE, max_offset=1000)
    second = archive_of(paths).advance(300, PLACE, max_offset=1000)
    assert (second.offset, second.since_ms) == (300, first.since_ms)
    assert archive_of(paths).mark == read(FILES, paths.archive) == second
    assert not second.hold.covers(0, 300)
    assert second.hold.covers(299, 301)


@pytest.mark.parametrize(
    ("offset", "place", "why"),
    [
        (99, PLACE, "everything below 100 is archived already"),
        (1001, PLACE, "the log is on disk up to 1000"),
        (200, "s3://other", "retention waits for the archive at file:///archive"),
    ],
)
def test_what_cannot_be_is_refused(paths: StorePaths, offset: int, place: str, why: str) -> None:
    archive = archive_of(paths)
    archive.advance(100, PLACE, max_offset=1000)
    with pytest.raises(ArchiveRefused, match=why):
        archive.advance(offset, place, max_offset=1000)
    assert archive.mark is not None
    assert archive.mark.offset == 100


def test_an_archive_that_was_ended_is_waited_for_no_more(paths: StorePaths) -> None:
    archive = archive_of(paths)
    archive.advance(100, PLACE, max_offset=1000)
    archive.end()
    archive.end()
    assert archive.mark is None
    assert archive_of(paths).mark is None
    assert archive.advance(5, "another place", max_offset=1000).offset == 5


def test_where_the_log_was_cut_what_comes_next_is_not_archived(paths: StorePaths) -> None:
    archive_of(paths).advance(900, PLACE, max_offset=1000)
    assert archive_of(paths, max_offset=500).mark is not None
    found = archive_of(paths).mark
    assert found is not None
    assert found.offset == 500


def test_a_mark_that_cannot_be_read_is_set_aside(paths: StorePaths) -> None:
    archive_of(paths).advance(100, PLACE, max_offset=1000)
    paths.archive.write_bytes(paths.archive.read_bytes().replace(b"100", b"900"))
    assert archive_of(paths).mark is None
    assert not paths.archive.exists()
    (entry,) = paths.quarantine.iterdir()
    assert b"900" in (entry / "data").read_bytes()


def test_retention_waits_for_the_archive_up_to_where_it_is(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"file_reserved_time": 0, "delete_when": "0;12"})
    with open_store(tmp_path / "store", config) as store:
        put_some(store, 1500)
        store.flush.flush_all()
        segments = store.retention.plan().segments
        assert len(segments) > 3
        end = segments[1].offset + segments[1].size
        store.retention.advance_archive(end, PLACE)
        whys = [each.why for each in store.retention.plan().segments]
        assert Why.HELD not in whys[:2]
        assert whys[2:-1] == [Why.HELD] * (len(segments) - 3)
        assert store.retention.plan().segments[2].held_by == (f"archive {PLACE}",)
        store.retention.end_archive()
        assert Why.HELD not in [each.why for each in store.retention.plan().segments]
