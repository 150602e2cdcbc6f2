"""An index rebuild beside the writer, on real files."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import (
    IndexRebuildInvalid,
    IndexRebuildRefused,
    IndexRebuildRunning,
    IndexRebuildUnknown,
    StagingDamaged,
    StagingFull,
)
from mqstore.storage.index.publication import index_names
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.rebuild.index_rebuilds import PIN
from mqstore.storage.rebuild.values import PartSums
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from tests.simulation import SimulatedClock
from tests.unit.storage.gated_files import WAIT_S
from tests.unit.storage.rebuild_job import RebuildJob
from tests.unit.storage.stores import CONFIG, FILES, abandon, open_store, put_some

COUNT = 300
LIVE = CONFIG.model_copy(update={"disk_max_used_space_ratio": 99})


class Shard:
    def __init__(self, root: Path, config: StoreConfig = LIVE) -> None:
        self.clock = SimulatedClock(1_700_000_000_000)
        self.seams = replace(production_seams(), clock=self.clock)
        self.store = MessageStore.open(root, config, self.seams, StoreOptions())
        self.rebuilds = self.store.rebuilds
        put_some(self.store, COUNT)

    def begin(self, owner: str = "a test") -> RebuildJob:
        return RebuildJob(self.store, self.rebuilds.begin(owner, lease_s=60))

    def lapse(self) -> None:
        self.clock.advance(60)

    def staged(self) -> bool:
        return self.store.paths.index_staging.exists()

    def finds(self, count: int = COUNT) -> bool:
        found = [self.store.lookups.by_key("T", f"U{number:031d}") for number in range(count)]
        return all(len(each.records) == 1 and each.complete for each in found)


@pytest.fixture
def shard(root: Path) -> Iterator[Shard]:
    shard = Shard(root)
    yield shard
    shard.store.close()


def test_a_rebuild_takes_the_place_of_the_index_while_messages_are_put(
    root: Path, shard: Shard
) -> None:
    store = shard.store
    before = [file.path.name for file in store.index.files]
    job = shard.begin()
    put_some(store, 100, start=COUNT)
    job.fill()
    put_some(store, 100, start=COUNT + 100)
    with StoreReader.open(root, production_seams()) as reader:
        assert reader.lookups.by_key("T", f"U{0:031d}").records  # maps the old files
        published = job.publish()
        for number in range(COUNT + 200):
            answer = reader.lookups.by_key("T", f"U{number:031d}")
            assert (len(answer.records), answer.complete) == (1, True)
    assert list(published.replaced) == before
    names = [file.path.name for file in store.index.files]
    assert names == sorted(names) == index_names(FILES, store.paths)
    assert names[: len(published.published)] == list(published.published)
    assert shard.finds(COUNT + 200)
    assert job.publish() == published
    assert not shard.staged()
    assert store.retention.pins() == []


def test_the_files_are_those_of_a_sequential_build(tmp_path: Path) -> None:
    shard, other = Shard(tmp_path / "a"), open_store(tmp_path / "b")
    job = shard.begin()
    job.fill()
    names = job.publish().published
    new = [(shard.store.paths.index / name).read_bytes() for name in names]
    put_some(other, COUNT)
    due = [file.path.read_bytes() for file in other.index.files]
    # Store times differ: of each item only hash, offset and link are the same.
    assert [_without_times(each) for each in new] == [_without_times(each) for each in due]
    shard.store.close()
    other.close()


def _without_times(content: bytes) -> list[bytes]:
    items = content[40 + 4 * 100 :]
    return [content[16:440], *(items[at : at + 12] for at in range(0, len(items), 20))]


def test_one_rebuild_at_a_time(shard: Shard) -> None:
    job = shard.begin("the first")
    with pytest.raises(IndexRebuildRunning, match="by the first already") as running:
        shard.begin("the second")
    assert running.value.running["id"] == job.view.id
    shard.rebuilds.give_up(job.view.id)
    assert shard.begin("the second").view.owner == "the second"


def test_a_lapsed_lease_leaves_the_index_as_it_was(shard: Shard) -> None:
    job = shard.begin()
    job.plan()
    upload = shard.rebuilds.begin_part(job.view.id, 0)
    assert shard.store.retention.pin(PIN).to_offset == job.view.to_offset
    shard.lapse()
    shard.rebuilds.step(0.0)
    start, items = next(job.scan.part(0))
    with pytest.raises(IndexRebuildUnknown):
        upload.add(start, items)
    with pytest.raises(IndexRebuildUnknown):
        shard.rebuilds.heartbeat(job.view.id, 60)
    with pytest.raises(IndexRebuildUnknown):
        job.publish()
    assert not shard.staged()
    assert shard.store.retention.pins() == []
    assert shard.finds()
    assert shard.rebuilds.last is not None
    assert shard.rebuilds.last.outcome == "lapsed"


def test_a_heartbeat_goes_on_with_the_lease(shard: Shard) -> None:
    job = shard.begin()
    for _ in range(3):
        shard.clock.advance(59)
        assert shard.rebuilds.heartbeat(job.view.id, 60).id == job.view.id
        shard.rebuilds.step(0.0)
    assert shard.rebuilds.running is not None


def test_looking_at_a_rebuild_does_not_wait_for_the_disk_that_its_lease_waits_for(
    shard: Shard,
) -> None:
    job = shard.begin()
    with ThreadPoolExecutor(1) as other, shard.rebuilds._lock:  # as while its pin is written
        assert other.submit(lambda: shard.rebuilds.running).result(WAIT_S) == job.view


def test_sizes_and_formats_are_changed_at_rest_only(shard: Shard) -> None:
    for changed in (
        {"hash_slots": 101},
        {"index_num": 401},
        {"store_format": StoreFormat.V5_X},
    ):
        with pytest.raises(IndexRebuildRefused, match="at rest only"):
            shard.rebuilds.begin("a test", lease_s=60, **changed)
    assert shard.rebuilds.begin("a test", lease_s=60, hash_slots=100, index_num=400)


def test_nothing_is_published_before_all_is_there(shard: Shard) -> None:
    job = shard.begin()
    with pytest.raises(IndexRebuildRefused, match="no plan yet"):
        job.publish()
    with pytest.raises(IndexRebuildRefused, match="no plan yet"):
        job.send(0)
    job.plan()
    job.plan()  # the same again
    job.send(0)
    with pytest.raises(IndexRebuildRefused, match="1 of 2 parts are missing, the first is 1"):
        job.publish()
    other = RebuildJob(shard.store, job.view, parts=3)
    with pytest.raises(IndexRebuildRefused, match="another plan"):
        other.plan()
    job.send(1)
    job.send(0)  # once more
    assert job.publish().items == job.scan.plan.firsts[-1]
    assert shard.finds()


def test_a_part_that_is_sent_again_ends_the_one_before(shard: Shard) -> None:
    job = shard.begin()
    job.fill()
    earlier = shard.rebuilds.begin_part(job.view.id, 0)
    start, items = next(job.scan.part(0))
    earlier.add(start, items)
    job.send(0)
    with pytest.raises(IndexRebuildUnknown, match="once more"):
        earlier.add(start, items)
    assert job.publish()
    assert shard.finds()


def test_a_part_that_ends_while_it_is_sent_again_leaves_that_alone(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = shard.begin()
    job.plan()
    job.send(1)
    earlier, again = shard.rebuilds.begin_part(job.view.id, 0), []
    finish = earlier.finish

    def overtaken(items: int) -> PartSums:
        sums = finish(items)
        again.append(shard.rebuilds.begin_part(job.view.id, 0))
        return sums

    monkeypatch.setattr(earlier, "finish", overtaken)
    with pytest.raises(IndexRebuildUnknown, match="once more"):
        shard.rebuilds.finish_part(job.view.id, earlier, 0)
    for start, items in job.scan.part(0):
        again[0].add(start, items)
    shard.rebuilds.finish_part(job.view.id, again[0], job.scan.count(0))
    assert job.publish()
    assert shard.finds()


def test_items_of_another_part_are_refused_and_do_no_harm(shard: Shard) -> None:
    job = shard.begin()
    job.fill()
    upload = shard.rebuilds.begin_part(job.view.id, 0)
    start, items = next(job.scan.part(1))
    with pytest.raises(IndexRebuildInvalid, match=r"part 0: .*cannot stand here"):
        upload.add(start, items)
    with pytest.raises(IndexRebuildInvalid, match="no chunk of the plan"):
        upload.add(start + 1, items)
    with pytest.raises(IndexRebuildInvalid, match="0 items came, of 5"):
        shard.rebuilds.finish_part(job.view.id, upload, 5)
    job.send(0)
    assert job.publish()
    assert shard.finds()


def test_staging_stops_below_the_first_ratio_of_the_disk(shard: Shard) -> None:
    view = shard.rebuilds.begin("a test", lease_s=60, disk_ratio=1)
    with pytest.raises(StagingFull, match="above 1 %") as full:
        RebuildJob(shard.store, view).plan()
    assert full.value.numbers["refusedAbovePercent"] == 1
    assert not shard.staged()


def test_what_was_staged_and_changed_since_is_not_published(shard: Shard) -> None:
    job = shard.begin()
    job.fill()
    (shard.store.paths.index_staging / "000000").unlink()
    with pytest.raises((StagingDamaged, OSError)):
        job.publish()
    assert shard.rebuilds.last is not None
    assert shard.rebuilds.last.outcome == "failed"
    assert shard.finds()
    shard.begin().fill()


def test_what_a_killed_writer_staged_is_removed_by_the_next_opening(root: Path) -> None:
    shard = Shard(root)
    shard.begin().fill()
    assert shard.staged()
    abandon(shard.store)
    with open_store(root, LIVE) as store:
        store.wait_for_index()
        assert not store.paths.index_staging.exists()
        assert store.rebuilds.running is None
        assert store.lookups.by_key("T", f"U{0:031d}").complete


def test_a_publication_that_a_close_interrupts_is_finished_by_the_opening(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = Shard(root)
    job = shard.begin()
    job.fill()
    rename = PosixFileSystem.rename

    def refuse(files: PosixFileSystem, source: Path, target: Path) -> None:
        if target.parent.name == "index":
            raise OSError(errno.EIO, "the disk is gone")
        rename(files, source, target)

    with monkeypatch.context() as broken:
        broken.setattr(PosixFileSystem, "rename", refuse)
        with pytest.raises(OSError, match="the disk is gone"):
            job.publish()
        shard.store.close()
    with open_store(root, LIVE) as store:
        assert store.recovery.index_files_dropped == ()
        store.wait_for_index()
        assert len(store.lookups.by_key("T", f"U{0:031d}").records) == 1


def test_a_rebuild_closes_with_its_store(root: Path) -> None:
    shard = Shard(root)
    shard.begin().fill()
    shard.store.close()
    assert not shard.staged()
    with open_store(root, LIVE) as store:
        assert store.recovery.plan.scanned_bytes == 0
        assert store.lookups.by_key("T", f"U{COUNT - 1:031d}").records


def await_trouble(store: MessageStore, is_there: bool) -> None:
    while (store.index_trouble is not None) is not is_there:
        store.rebuilds.step(0.0)


@pytest.mark.parametrize("what", ["folder", "oldest", "header", "newest"])
def test_files_that_are_lost_under_a_writer_make_key_queries_incomplete(
    root: Path, shard: Shard, what: str
) -> None:
    files = sorted((root / "index").iterdir())
    if what == "header":
        with files[0].open("r+b") as damaged:
            damaged.write(b"\xff" * 40)
    else:
        for path in {"folder": files, "oldest": files[:1], "newest": files[-1:]}[what]:
            path.unlink()
    await_trouble(shard.store, True)
    with StoreReader.open(root, production_seams()) as reader:
        assert not reader.lookups.by_key("T", f"U{0:031d}").complete
        job = shard.begin()
        job.fill()
        put_some(shard.store, 10, start=COUNT)
        job.publish()
        for number in range(COUNT + 10):
            answer = reader.lookups.by_key("T", f"U{number:031d}")
            assert (len(answer.records), answer.complete) == (1, True), number
    assert shard.store.index_trouble is None
    assert not shard.store.paths.index_lost.exists()


def test_what_a_publication_is_replacing_is_not_missed(root: Path, shard: Shard) -> None:
    with shard.rebuilds._work:  # as while new files take the place of these
        min((root / "index").iterdir()).unlink()
        shard.rebuilds.step(0.0)
        assert shard.store.index_trouble is None
    await_trouble(shard.store, True)


def test_a_loss_is_remembered_over_a_kill_and_made_good_by_the_opening(root: Path) -> None:
    shard = Shard(root)
    sorted((root / "index").iterdir())[0].unlink()
    await_trouble(shard.store, True)
    abandon(shard.store)
    with open_store(root, LIVE) as store:
        store.wait_for_index()
        assert store.index_trouble is None
        for number in range(COUNT):
            answer = store.lookups.by_key("T", f"U{number:031d}")
            assert (len(answer.records), answer.complete) == (1, True), number


def test_files_that_are_lost_at_rest_are_noticed_by_the_opening(root: Path) -> None:
    Shard(root).store.close()
    sorted((root / "index").iterdir())[0].unlink()
    with open_store(root, LIVE) as store:
        store.wait_for_index()
        assert len(store.lookups.by_key("T", f"U{0:031d}").records) == 1


def test_an_index_that_lacks_too_much_waits_for_a_rebuild_and_then_goes_on(root: Path) -> None:
    Shard(root).store.close()
    for path in (root / "index").iterdir():
        path.unlink()
    with open_store(root, LIVE.model_copy(update={"index_catch_up_size": 1000})) as store:
        store.wait_for_index()
        assert "more than indexCatchUpSize 1000; rebuild it" in str(store.index_trouble)
        assert not store.lookups.by_key("T", f"U{0:031d}").complete
        job = RebuildJob(store, store.rebuilds.begin("a test", lease_s=600))
        job.fill()
        put_some(store, 100, start=COUNT)
        job.publish()
        store.wait_for_index()
        assert store.index_trouble is None
        for number in range(COUNT + 100):
            answer = store.lookups.by_key("T", f"U{number:031d}")
            assert (len(answer.records), answer.complete) == (1, True), number
