"""Whole lives of a store from a seed: work, faults, kills, power cuts, and recoveries."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage._kernel import Placement
from mqstore.storage.admin.group_offsets import Commit, GroupOffset
from mqstore.storage.errors import DiskRefuses, StorageError, StoreFailed
from mqstore.storage.layout import StoreFormat, SysFlag
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.metadata.state_snapshot import Health
from mqstore.storage.tables.config_tables import ConsumerOffsets
from tests.long_runs import examples, nightly_examples
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.simulation.driver import NewMessage, message_of
from tests.simulation.inode import PAGE, SECTOR, Loss
from tests.simulation.world import ROOT, WAITLESS_SEEDS, World, open_store, seams_on
from tests.unit.storage.puts import put_message

SEEDS = st.integers(0, 2**32)
BODY_SIZE = 258
"""Body size of a second record whose body ends with the first sector."""
SYNCS = ("sync", "sync_directory")
TRACE = """
import logging, zlib
from tests.simulation.world import World
logging.disable(logging.CRITICAL)
world = World({seed})
world.live({steps})
print(zlib.crc32(repr((world.disk.trace, world.model.image)).encode()))
"""


def opened(seed: int = 3, steps: int = 30) -> World:
    """A world at work, without faults."""
    world = World(seed)
    world.open()
    for _ in range(steps):
        world.step()
    world.store.log.check_clock()
    return world


def put(world: World, number: int = 10_000, durability: Durability = Durability.SYNC) -> bool:
    assert world.driver is not None
    return world.driver.put(("T", 0), [NewMessage(number, 50, 0, None)], durability)


@settings(max_examples=examples(20))
@given(seed=SEEDS)
def test_acknowledged_messages_survive_kills_power_cuts_and_faults(seed: int) -> None:
    World(seed).live(150)


@pytest.mark.parametrize("turn", range(8))
def test_files_made_ahead_survive_kills_power_cuts_and_faults(turn: int) -> None:
    count, number = WAITLESS_SEEDS
    world = World(number + count * turn)
    assert not world.waits
    world.live(100)


@pytest.mark.slow
@settings(max_examples=nightly_examples(250))
@given(seed=SEEDS)
def test_acknowledged_messages_survive_long_lives(seed: int) -> None:
    World(seed).live(400)


def test_an_opening_after_a_clean_close_syncs_only_what_a_crash_must_not_undo() -> None:
    world = opened()
    world.close()
    before = len(world.disk.trace)
    open_store(world.seams, world.format, world.config)
    done = [each for each in world.disk.trace[before:] if each.split()[0] in SYNCS]
    assert done == [
        "sync /store/mqstore/format.json.tmp",
        "sync_directory /store/mqstore",
        "sync /store/abort",
        "sync_directory /store",
        "sync /store/mqstore/recovery.json.tmp",
    ]


@pytest.mark.slow
def test_a_seed_is_one_history_in_every_process() -> None:
    """Else no failure could be shown again: sets must not decide what comes first."""
    script = TRACE.format(seed=102, steps=500)
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": each, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for each in ("1", "2")
    }
    assert len(found) == 1


def test_a_saved_offset_is_never_behind_the_log_that_a_power_cut_leaves() -> None:
    world = opened()
    assert put(world, durability=Durability.ASYNC)
    queue = world.store.queues.get("T", 0)
    assert queue is not None
    end = queue.max_index
    world.store.offsets.commit("g", [Commit("T", 0, end)])
    world.store.offsets.save()
    world.lose_power(Loss.DROP)
    world.open()
    assert world.store.offsets.of("g", "T")[0] == GroupOffset("T", 0, end, 0, end)


def test_offsets_are_not_saved_where_the_log_cannot_be_synced() -> None:
    world = opened()
    assert put(world, durability=Durability.ASYNC)
    world.store.offsets.commit("g", [Commit("T", 0, 1)])
    world.disk.fail_next("sync", errno.EIO)
    with pytest.raises(StoreFailed):
        world.store.offsets.save()
    table = ConsumerOffsets.load(world.store.paths, world.format, world.seams)
    assert table.get("g", "T", 0) is None


def test_after_a_failed_sync_nothing_is_acknowledged_any_more() -> None:
    world = opened()
    world.disk.fail_next("sync", errno.EIO)
    with pytest.raises(StorageError):
        put(world)
    assert world.store.state.health is Health.FAILED
    assert not put(world, 10_001, Durability.ASYNC)
    assert not put(world, 10_002, Durability.SYNC)


def test_a_close_that_the_disk_refuses_says_so() -> None:
    """Else the caller of close would take its puts for durable."""
    world = opened()
    put(world, durability=Durability.ASYNC)
    world.disk.fail_next("sync", errno.EIO)
    with pytest.raises(StorageError):
        world.close()
    world.lose_power(Loss.DROP)
    world.open()


def test_a_store_that_failed_before_closes_without_a_word() -> None:
    world = opened()
    world.disk.fail_next("sync", errno.EIO)
    with pytest.raises(StorageError):
        put(world)
    world.store.close()


def test_an_opening_that_the_disk_refuses_leaves_nothing_running_and_may_be_tried_again() -> None:
    world = opened(steps=60)
    end = world.store.log.max_offset
    left = world.disk.kill()
    refused = 0
    for number in range(len(left.trace), len(left.trace) + 400, 3):
        machine = SimulatedMachine(number, clock=left.clock, disk=left)
        left.fail_at(number, errno.EIO)
        try:
            store = open_store(machine.seams, world.format, world.config)
        except DiskRefuses:
            assert machine.scheduler.is_idle
            refused += 1
        else:
            assert store.log.max_offset == end
        left = left.kill()
    assert refused > 5


def test_small_mapped_files_that_a_halt_left_as_holes_get_their_blocks() -> None:
    """A store into a hole of a full disk would kill the process."""
    world = opened()
    paths = world.store.paths
    world.kill()
    for path in (paths.state, paths.checkpoint):
        world.disk.unlink(path)
        world.disk.create(path, PAGE, reserve=0)
    world.open()
    world.disk.stat(paths.state)
    assert world.disk.holes_written == []


def test_a_sync_that_failed_in_another_caller_fails_the_requests_that_wait() -> None:
    world = opened()
    put(world, durability=Durability.ASYNC)
    request = world.store.flush.request(world.store.log.max_offset)
    world.disk.fail_next("sync", errno.EIO)
    with pytest.raises(StorageError):
        world.store._parts.core.queue_flush.flush_all()
    world.store._parts.failure.report(OSError("queues cannot be synced"))
    assert request.failed


@pytest.mark.parametrize("name", ["sync", "sync_directory", "rename", "create", "write", "reserve"])
@pytest.mark.parametrize("loss", Loss)
def test_no_acknowledgement_rests_on_a_failed_operation_of_the_process_before(
    name: str, loss: Loss
) -> None:
    """Data of a failed sync is in the page cache only, and lost at the next power cut."""
    for seed in range(examples(4)):
        world = opened(seed)
        world.disk.fail_next(name, errno.EIO)
        for _ in range(40):
            world.attempt(world.step)
        world.kill()
        world.open()
        world.attempt(lambda world=world: put(world))  # type: ignore[misc]  # bound for this turn
        world.lose_power(loss)
        world.open()


def test_queue_entries_that_a_failed_sync_left_in_memory_are_written_again() -> None:
    """The next process finds them present, which is not the same as durable."""
    for torn_format in range(examples(8)):
        world = opened(torn_format, 60)
        put(world)
        queue = world.store.queues.get("T", 0)
        assert queue is not None
        world.disk.fail_next("sync", errno.EIO)
        with pytest.raises(StorageError):
            queue.flush()
        world.kill()
        _forget_what_the_queues_hold(world)
        world.open()
        world.scheduler.run_for(200)
        world.lose_power(Loss.DROP)
        world.open()


def _forget_what_the_queues_hold(world: World) -> None:
    """Delete the notes of the queues, so that they are made again from the log."""
    paths = [path for path in world.disk.paths() if path.name == "running.json"]
    for path in paths:
        world.disk.unlink(path)
        world.disk.sync_directory(path.parent)


def test_entries_beyond_a_cut_do_not_come_back() -> None:
    """They would stand for other records, which were put at the same place since."""

    def life(world: World) -> None:
        world.lose_power(Loss.TORN_512)
        world.open()
        for _ in range(12):
            world.step()

    each_life(life)


@pytest.mark.parametrize("cut_off", [False, True])
def test_what_was_cut_is_no_part_of_a_record_that_is_put_in_its_place(cut_off: bool) -> None:
    """Else head and body would be those of the one, and properties, which no checksum covers,
    those of the other. Nor where the first recovery came no further than to a failing sync."""
    left, cut = _with_half_a_record()
    if cut_off:
        left = _cut_off_at(left, f"sync {ROOT}/commitlog/{0:020d}")
    store = open_store(seams_on(left, 1), StoreFormat.V4_9)
    new = NewMessage(12, BODY_SIZE, 0, None)
    placed = _put_one(store, new)
    assert (placed.physical_offset, placed.size) == (cut.physical_offset, cut.size)
    found = 0
    for seed in range(20):
        torn = open_store(seams_on(left.power_cut(seed), seed), StoreFormat.V4_9)
        if torn.log.max_offset > placed.physical_offset:
            record = torn.log.record_at(placed.physical_offset)
            assert record.is_tombstone or (record.body, record.uniq_key) == (new.body, "u12")
            found += not record.is_tombstone
    assert found


def test_queue_entries_that_a_recovery_failed_to_drop_do_not_come_back() -> None:
    """They would name what is put in the place of their records."""
    left, cut = _with_half_a_record()
    left = _cut_off_at(left, f"sync {ROOT}/consumequeue/T/0/{0:020d}")
    store = open_store(seams_on(left, 1), StoreFormat.V4_9)
    other = message_of(store, ("T", 1), NewMessage(12, BODY_SIZE, 0, None), 0)
    assert put_message(store, other, Durability.SYNC).physical_offset == cut.physical_offset
    again = open_store(seams_on(left.power_cut(1, Loss.DROP), 1), StoreFormat.V4_9)
    assert [(queue.queue_id, queue.max_index) for queue in again.queues.all()] == [(0, 1), (1, 1)]


def _with_half_a_record() -> tuple[SimulatedDisk, Placement]:
    """Behind one that is known to be on disk: of the other, head and body, which fill a sector, and
    its queue entry."""
    disk = SimulatedMachine(1).disk
    disk.make_directories(ROOT)
    store = open_store(seams_on(disk, 1), StoreFormat.V4_9)
    _put_one(store, NewMessage(10, 50, 0, None))
    store.close()
    store = open_store(seams_on(disk, 1), StoreFormat.V4_9)
    left = disk.power_cut(1, Loss.DROP)
    cut = _put_one(store, NewMessage(11, BODY_SIZE, 0, None))
    path = store.log.files.files[0].path
    _have_on_disk(left, path, disk.read(path)[:SECTOR])
    queue = ROOT / "consumequeue" / "T" / "0" / f"{0:020d}"
    _have_on_disk(left, queue, disk.read(queue))
    return left, cut


def _have_on_disk(disk: SimulatedDisk, path: Path, content: bytes) -> None:
    mapped = disk.map(path, writable=True)
    mapped.view[: len(content)] = content
    mapped.sync()
    mapped.unmap()


def _cut_off_at(left: SimulatedDisk, operation: str) -> SimulatedDisk:
    """The state of an opening that failed, as the next process finds it."""
    whole, refused = left.kill(), left.kill()
    open_store(seams_on(whole, 1), StoreFormat.V4_9)
    refused.fail_at(whole.trace.index(operation), errno.EIO)
    with pytest.raises(DiskRefuses):
        open_store(seams_on(refused, 1), StoreFormat.V4_9)
    return refused.kill()


def _put_one(store: MessageStore, new: NewMessage) -> Placement:
    return put_message(store, message_of(store, ("T", 0), new, 0), Durability.ASYNC)


def test_what_a_process_before_the_last_noted_of_the_queues_is_not_believed() -> None:
    """The process before the last may have known more of the log, without a clock step."""
    world = World(3)
    world.open()
    assert put(world)
    assert world.driver is not None
    prepared = NewMessage(1, 50, 0, None, SysFlag.TRANSACTION_PREPARED)
    assert world.driver.put(("T", 1), [prepared], Durability.ASYNC)
    world.store._parts.running_manifest.step(0.0)
    world.lose_power(Loss.DROP)
    world.open()
    assert world.driver.put(("T", 1), [NewMessage(2, 90, 0, None)], Durability.SYNC)
    world.lose_power(Loss.DROP)
    world.open()


def test_queue_offsets_go_on_where_they_were_when_all_records_of_a_queue_expired() -> None:
    def life(world: World) -> None:
        put(world)
        _expire_it(world)

    each_life(life)


def test_queue_offsets_go_on_although_a_sync_of_the_process_before_had_failed() -> None:
    def life(world: World) -> None:
        put(world)
        queue = world.store.queues.get("T", 0)
        assert queue is not None
        world.disk.fail_next("sync", errno.EIO)
        with pytest.raises(StorageError):
            queue.flush()
        world.kill()
        _forget_what_the_queues_hold(world)
        world.open()
        _expire_it(world)

    each_life(life)


def _expire_it(world: World) -> None:
    """Only the queue's entries say then where that queue goes on."""
    driver = world.driver
    assert driver is not None
    for number in range(150):
        driver.put(("T", 1), [NewMessage(20_000 + number, 400, 0, None)], Durability.SYNC)
    driver.expire(2)
    world.lose_power(Loss.DROP)
    world.open()
    put(world, 30_000)


def each_life(life: Callable[[World], None]) -> None:
    for seed in range(examples(12)):
        life(opened(seed, 40))


def test_a_topic_survives_although_its_directory_could_not_be_synced_at_first() -> None:
    world = opened(steps=0)
    assert world.driver is not None
    world.disk.fail_next("sync_directory", errno.EIO)
    world.driver.create_topic("made", 3)  # the journal's directory is not synced: a whole save
    world.lose_power(Loss.DROP)
    world.open()
    assert world.store.topic("made").write_queues == 3
