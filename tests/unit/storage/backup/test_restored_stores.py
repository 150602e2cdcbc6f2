"""Stores restored from backups, whole and up to a place in their log."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.admin import Commit
from mqstore.storage.backup import (
    BackupDamaged,
    Creation,
    Cut,
    CutRefused,
    Repository,
    Restoration,
    TargetRefused,
)
from mqstore.storage.backup.objects import DirectoryObjects
from mqstore.storage.backup.record_ends import last_end
from mqstore.storage.backup.restoring import remove_tree
from mqstore.storage.errors import StoreLocked
from mqstore.storage.message_store import MessageStore
from mqstore.storage.paths import segment_name
from mqstore.storage.transactions import State
from tests.forked_processes import start_program
from tests.long_runs import sampled_step
from tests.simulation import SimulatedDisk
from tests.simulation.delayed_store import ROOT, DelayedStore
from tests.simulation.timed_store import TimedStore, small_wheel
from tests.unit.storage.backup.backups import (
    back_up,
    flaws,
    messages,
    put_back,
    repository,
    seams_with,
)
from tests.unit.storage.backup.test_repositories_over_kills import PROGRAM, killer
from tests.unit.storage.stores import CONFIG, message, open_store, put_some
from tests.unit.storage.transactions.engine_bench import Bench

SIZE = CONFIG.mapped_file_size_commit_log
PATIENCE_S = 280
PLACE = Path("/backups")
"""A directory of the simulated disk."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backups"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "restored"


def fill(root: Path, messages_: int = 600) -> None:
    with open_store(root) as store:
        store.create_topic("T", queues=3)
        put_some(store, messages_)


def ends_of(root: Path) -> list[int]:
    """The physical offsets behind each record of a closed store, and the begin of its log."""
    with open_store(root) as store:
        return sorted(
            entry.physical_offset + entry.size
            for queue in store.queues.of_topic("T")
            for _, entry in queue.entries(queue.min_index, queue.max_index)
        )


def test_a_restored_store_has_topics_groups_and_offsets(
    root: Path, place: Path, target: Path
) -> None:
    fill(root)
    with open_store(root) as store:
        store.create_topic("Empty", queues=5)
        store.offsets.commit("g", [Commit("T", 0, 100)])
        expected = messages(store)
    back_up(root, place)
    put_back(place, target)
    with open_store(target) as copy:
        assert messages(copy) == expected
        assert copy.topic("Empty").write_queues == 5
        assert copy.offsets.committed("g", "T", 0) == 100
        assert copy.lookups.by_key("T", "k5").records
        put_some(copy, 30, start=600)


def test_changes_that_only_a_journal_has_are_restored(
    root: Path, place: Path, target: Path
) -> None:
    with open_store(root) as store:
        for number in range(700):  # more than a file that is written at each change
            store.create_topic(f"topic-{number}", queues=1)
        put_some(store, 10)
        store.flush.flush_all()
        back_up(root, place)
    put_back(place, target)
    assert "topic-699" in (target / "config" / "topics.json").read_text()
    with open_store(target) as copy:
        assert (
            len({each.name for each in copy.topics()} & {f"topic-{n}" for n in range(700)}) == 700
        )


@dataclass(frozen=True)
class Filled:
    """A place with a backup of a store."""

    base: Path
    ends: list[int]
    messages: dict[tuple[int, int], bytes]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    base = tmp_path_factory.mktemp("filled")
    fill(base / "store", 400)
    back_up(base / "store", base / "backups")
    with open_store(base / "store") as store:
        found = messages(store)
    return Filled(base, ends_of(base / "store"), found)


@settings(max_examples=5)
@given(data=st.data())
def test_a_cut_is_behind_the_last_record_that_ends_before_it(
    data: st.DataObject, filled: Filled
) -> None:
    ends, target = filled.ends, filled.base / "restored"
    offset = data.draw(st.integers(min_value=ends[0], max_value=ends[-1]), label="offset")

    restored = put_back(filled.base / "backups", target, offset=offset, replace=True)

    assert restored.end == max(each for each in ends if each <= offset)
    with open_store(target) as copy:
        kept = messages(copy)
        assert len(kept) == sum(each <= offset for each in ends)
        assert kept.items() <= filled.messages.items()
        for queue_id in {queue for queue, _ in kept}:
            following = [index for queue, index in kept if queue == queue_id]
            assert copy.lookups.queue_range("T", queue_id).max_offset == len(following)


def test_a_cut_by_time_is_before_the_first_later_message(tmp_path: Path) -> None:
    world = DelayedStore()
    for number in range(20):
        world.put(number, 0)
        world.run(1)
    first, last = (world.records("T", 3)[n].store_timestamp_ms for n in (7, 8))
    assert first is not None
    assert last is not None
    simulated_restore(world, Cut(ms=last - 1))
    assert world.delivered() == list(range(8))
    assert world.records("T", 3)[-1].store_timestamp_ms == first


class DirectoriesRenamed:
    """The simulated disk, which renames files only."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def rename(self, source: Path, target: Path) -> None:
        stat = self._disk.stat(source)
        if stat is None or not stat.is_directory:
            self._disk.rename(source, target)
            return
        self._disk.copy_tree(source, target)
        remove_tree(self._disk, source)


def simulated_restore(world: DelayedStore, cut: Cut | None) -> None:
    """Back the open store up, close it, and open it anew from the backup."""
    seams = replace(world.machine.seams, files=DirectoriesRenamed(world.machine.disk))
    place = Repository(DirectoryObjects(seams.files, PLACE), seams)
    Creation(ROOT, place, seams).run()
    world.store.close()
    Restoration(place, place.get(None), ROOT, seams, cut=cut).run(replace=True)
    world.restart(world.machine.disk.kill())


def test_delayed_messages_are_delivered_once_after_a_restore() -> None:
    world = DelayedStore()
    for number in range(6):
        world.put(number, 2)
    world.run(6)
    world.put(6, 3)
    simulated_restore(world, None)
    world.run(20)
    assert sorted(world.delivered()) == list(range(7))


def test_a_delivery_behind_the_cut_is_made_again_and_one_before_it_is_not() -> None:
    world = DelayedStore()
    world.put(1, 1)
    world.put(2, 2)
    world.run(3)  # the first is delivered
    cut = world.store.log.max_offset
    world.run(5)
    assert world.delivered() == [1, 2]
    simulated_restore(world, Cut(offset=cut))
    assert world.delivered() == [1]
    world.run(10)
    assert world.delivered() == [1, 2]


def test_the_timer_of_a_restored_store_begins_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A backup has the timer's progress, and no timer log: that is made again from the messages."""
    caplog.set_level(logging.INFO)
    with contextmanager(small_wheel)():
        world = TimedStore()
        for number in range(4):
            world.timed(number, 2_000 * (number + 1))
        world.run(5)
        delivered = world.delivered()
        assert 0 < len(delivered) < 4
        simulated_restore(world, None)
        world.run(20)
    assert sorted(world.delivered()) == list(range(4))
    assert "timer log is made again" in caplog.text
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_a_transaction_that_was_committed_behind_the_cut_is_pending_again() -> None:
    bench = Bench()
    bench.begin("before")
    bench.begin("behind")
    bench.commit("before")
    world = bench.world
    cut = world.store.log.max_offset
    bench.commit("behind")
    bench.step(120)
    assert bench.keys() == []
    bench.engine.leave()

    simulated_restore(world, Cut(offset=cut))

    bench.start()
    assert bench.keys() == ["behind"]
    assert bench.keys(State.COMMITTED) == ["before"]
    bench.commit("behind")
    assert bench.bodies() == [b"before", b"behind"]


def test_offsets_of_groups_behind_the_cut_are_lowered(
    root: Path, place: Path, target: Path
) -> None:
    fill(root)
    with open_store(root) as store:
        store.offsets.commit("g", [Commit("T", 1, 200)])
    ends = ends_of(root)
    back_up(root, place)
    restored = put_back(place, target, offset=ends[299])
    assert restored.lowered_offsets == 1
    with open_store(target) as copy:
        assert copy.offsets.committed("g", "T", 1) == 100


@pytest.mark.parametrize("cut", [False, True])
def test_a_queue_whose_messages_have_expired_goes_on_at_its_offset(
    root: Path, place: Path, target: Path, *, cut: bool
) -> None:
    with open_store(root) as store:
        for topic, many in (("Old", 130), ("Full", 100), ("T", 1200)):
            store.create_topic(topic, queues=1)
            put_in(store, topic, many)
        store.expire(2)
        assert store.log.min_offset == 2 * SIZE
        put_in(store, "Late", 1)
    back_up(root, place)
    put_back(place, target, offset=5 * SIZE if cut else None)
    with open_store(target) as copy:
        found = {topic: copy.lookups.queue_range(topic, 0) for topic in ("Old", "Full")}
        assert [(each.min_offset, each.max_offset) for each in found.values()] == [
            (130, 130),
            (100, 100),
        ]
        put_in(copy, "Old", 1)
        assert messages(copy, "Old").keys() == {(0, 130)}
        assert bool(messages(copy, "Late")) != cut


def put_in(store: MessageStore, topic: str, many: int) -> None:
    for number in range(many):
        store.append(message(store, number, topic=topic))


def test_a_cut_outside_of_the_backup_is_refused(root: Path, place: Path, target: Path) -> None:
    fill(root)
    backup = back_up(root, place).backup
    for offset in (backup.end + 1, backup.begin):
        with pytest.raises(CutRefused, match=str(backup.end)):
            put_back(place, target, offset=offset)
    with pytest.raises(CutRefused, match="later time"):
        put_back(place, target, ms=1_000_000)
    assert not target.exists()


def test_the_first_backup_that_reaches_a_cut_is_taken(
    root: Path, place: Path, target: Path
) -> None:
    found = []
    for start in (0, 300, 600):
        with open_store(root) as store:
            put_some(store, 300, start=start)
        found.append(back_up(root, place).backup)
    assert put_back(place, target, offset=found[1].end).backup == found[1].id
    again = put_back(place, target, ms=found[0].created_ms, replace=True)
    assert (again.backup, again.end) == (found[0].id, found[0].end)


def test_a_target_that_is_not_empty_needs_consent(root: Path, place: Path, target: Path) -> None:
    fill(root)
    back_up(root, place)
    target.mkdir()
    put_back(place, target)
    with pytest.raises(TargetRefused, match="--replace"):
        put_back(place, target)
    (target / "mine").touch()
    put_back(place, target, replace=True)
    assert not (target / "mine").exists()
    assert sorted(each.name for each in target.parent.iterdir()) == ["backups", "restored", "store"]


def test_a_store_that_a_writer_has_open_is_not_replaced(root: Path, place: Path) -> None:
    with open_store(root) as store:
        put_some(store, 20)
        store.flush.flush_all()
        back_up(root, place)
        with pytest.raises(StoreLocked):
            put_back(place, root, replace=True)


def test_a_file_or_a_mount_point_is_no_target(
    root: Path, place: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, 20)
    back_up(root, place)
    target.touch()
    with pytest.raises(TargetRefused, match="no directory"):
        put_back(place, target, replace=True)
    target.unlink()
    target.mkdir()
    monkeypatch.setattr(
        "mqstore.storage.system.posix_files.PosixFileSystem.is_mount_point", lambda *_: True
    )
    with pytest.raises(TargetRefused, match="mount point"):
        put_back(place, target)


def test_a_damaged_backup_leaves_the_target_as_it_was(
    root: Path, place: Path, target: Path
) -> None:
    fill(root)
    back_up(root, place)
    put_back(place, target)
    before = sorted(path.name for path in (target / "commitlog").iterdir())
    part = sorted((place / "log").iterdir())[1]
    part.write_bytes(bytes(part.stat().st_size))
    with pytest.raises(BackupDamaged, match="CRC-32C"):
        put_back(place, target, replace=True)
    assert sorted(path.name for path in (target / "commitlog").iterdir()) == before
    with open_store(target) as copy:
        assert len(messages(copy)) == 600


def kill_steps_of_restore(root: Path, place: Path, target: Path) -> int:
    """Restore in forks, each killed at a later step, over a store that is there."""
    for step in count(1, sampled_step(5)):
        pid = os.fork()
        if pid == 0:
            seams = seams_with(files=killer(step))
            found = repository(place)
            Restoration(found, found.get(None), target, seams).run(replace=True)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        check_target(target)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return step
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError


def check_target(target: Path) -> None:
    """The target is the old store or the new one, or between two renames no directory."""
    if target.exists():
        with open_store(target, in_place=False, services=False, create=False) as found:
            assert len(messages(found)) in (30, 200)
    else:
        kept = target.with_name(target.name + ".replaced")
        with open_store(kept, in_place=False, services=False, create=False) as found:
            assert len(messages(found)) in (30, 200)


def test_an_interrupted_restore_is_never_taken_for_a_store(
    root: Path, place: Path, target: Path
) -> None:
    fill(root, 200)
    back_up(root, place)
    fill(target, 30)
    program = PROGRAM.replace("test_repositories_over_kills", "test_restored_stores")
    process = start_program(program, "kill_steps_of_restore", str(root), str(place), str(target))
    output, errors = process.communicate(PATIENCE_S)
    assert process.wait() == 0, errors
    assert int(output) > 40
    with open_store(target) as store:
        assert len(messages(store)) == 200
    assert sorted(each.name for each in target.parent.iterdir()) == ["backups", "restored", "store"]


def test_epochs_of_the_former_log_are_not_restored(root: Path, place: Path, target: Path) -> None:
    """No follower of the former log goes on with the restored one."""
    with open_store(root, epoch=3) as store:
        put_some(store, 20)
        former = store.epochs.history.log_id
    back_up(root, place)
    put_back(place, target)
    with open_store(target) as copy:
        assert copy.epochs.history.log_id not in (None, former)
        assert copy.epochs.newest == 0


def test_a_backup_of_a_log_on_another_volume_is_restored_into_one_directory(
    root: Path, place: Path, target: Path, tmp_path: Path
) -> None:
    log = tmp_path / "volume" / "log"
    log.parent.mkdir()
    with open_store(root, store_path_commit_log=str(log)) as store:
        put_some(store, 300)
        expected = messages(store)
    back_up(root, place)
    put_back(place, target)
    assert (target / "commitlog" / segment_name(0)).exists()
    with open_store(target) as copy:
        assert messages(copy) == expected


def test_a_restored_store_is_backed_up_into_the_same_place(
    root: Path, place: Path, target: Path
) -> None:
    """Its log has another end: only what differs is copied."""
    fill(root)
    first = back_up(root, place).backup
    put_back(place, target, offset=2 * SIZE - 2000)
    with open_store(target) as store:
        put_some(store, 300, start=5000)
    created = back_up(target, place)
    assert created.reused_bytes == SIZE
    assert flaws(place) == []
    assert first.store_id == created.backup.store_id


@given(sizes=st.lists(st.integers(1, 400), min_size=1, max_size=30), data=st.data())
def test_the_last_end_is_that_of_the_model(sizes: list[int], data: st.DataObject) -> None:
    world = DelayedStore()
    ends = []
    for number, size in enumerate(sizes):
        world.put(number, 0, flag=size)
        ends.append(world.store.log.max_offset)
    view, *_ = world.store.log.view_from(0) or (memoryview(b""),)
    stop = data.draw(st.integers(0, ends[-1]), label="stop")
    found = last_end(view, stop, 0)
    assert found.position == max([0, *(each for each in ends if each <= stop)])
