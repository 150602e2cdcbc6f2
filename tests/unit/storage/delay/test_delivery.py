from __future__ import annotations

import errno

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import ANY_OFFSET, decode
from mqstore.storage.delay.delivery import RETRY_S
from mqstore.storage.delay.rewriting import copy_for_delivery
from mqstore.storage.errors import MessageInvalid, StorageError
from mqstore.storage.layout import SCHEDULE_TOPIC, StoreFormat, SysFlag
from mqstore.storage.message_store import StoreOptions
from mqstore.storage.tables.config_tables import DelayOffsets
from tests.simulation.delayed_store import CONFIG, ROOT, DelayedStore
from tests.simulation.inode import Loss
from tests.unit.storage.puts import put_batch, put_message
from tests.unit.storage.record_examples import ordinary, with_record_crc

PREPARED = int(SysFlag.TRANSACTION_PREPARED)
COMMIT = int(SysFlag.TRANSACTION_COMMIT)
ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
HOUR_MS = 3_600_000


@pytest.fixture
def world() -> DelayedStore:
    return DelayedStore()


def saved(world: DelayedStore) -> dict[int, int]:
    return DelayOffsets.load(world.store.paths, world.format, world.machine.seams).all()


@pytest.mark.parametrize("store_format", list(StoreFormat))
def test_a_message_is_delivered_when_its_level_says(store_format: StoreFormat) -> None:
    world = DelayedStore(store_format=store_format)
    world.run(0.5)
    world.put(7, 2)
    world.run(4.99)
    assert world.delivered() == []
    world.run(0.02)
    assert world.delivered() == [7]
    found, kept = world.records("T", 3)[0], world.pending(2)[0]
    assert found.store_timestamp_ms == kept.store_timestamp_ms + 5_000
    assert found.properties == {
        "UNIQ_KEY": "u7",
        "TAGS": "a",
        "DELAY": "2",
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }
    assert found.born_timestamp_ms == kept.born_timestamp_ms
    entry = world.store.queues.get("T", 3).entry(0)  # type: ignore[union-attr] # delivered
    assert entry is not None
    assert entry.tags_code == properties.tags_code("a")


def test_the_delay_of_each_delivery_is_reported(world: DelayedStore) -> None:
    late: list[int] = []
    world.store.delays.service.on_delivered = late.append
    world.put(1, 1)
    world.run(2)
    world.put(2, 1)
    world.machine.clock.advance(9)
    world.run(2)
    assert world.delivered() == [1, 2]
    assert late[0] < 100
    assert 7_900 <= late[1] <= 8_100


def test_levels_go_in_order_and_beside_each_other(world: DelayedStore) -> None:
    for number, level in enumerate([3, 1, 2, 1, 3, 2, 1]):
        world.put(number, level)
        world.run(0.1)
    world.run(20)
    assert world.delivered() == [1, 3, 6, 2, 5, 0, 4]


def test_a_level_beyond_the_last_is_the_last(world: DelayedStore) -> None:
    world.put(1, 40)
    (found,) = world.pending(3)
    assert (found.properties or {})["DELAY"] == "3"
    world.run(10.01)
    assert world.delivered() == [1]


@pytest.mark.parametrize("level", [0, -1])
def test_without_a_level_a_message_is_not_delayed(world: DelayedStore, level: int) -> None:
    world.put(1, level)
    assert world.delivered() == [1]


def test_a_delay_that_is_no_number_is_refused(world: DelayedStore) -> None:
    message = world.message(1, 0).replace(properties=b"DELAY\x01soon")
    with pytest.raises(MessageInvalid, match="'soon'"):
        put_message(world.store, message)


@pytest.mark.parametrize("kind", [PREPARED, ROLLBACK])
def test_prepared_and_rollback_messages_are_not_delayed(world: DelayedStore, kind: int) -> None:
    world.put(1, 1, sys_flag=kind)
    assert world.pending(1) == []
    assert world.store.queues.get(SCHEDULE_TOPIC, 0) is None


def test_a_commit_message_is_delayed_and_stays_one(world: DelayedStore) -> None:
    world.put(1, 1, sys_flag=COMMIT, prepared_transaction_offset=17)
    world.run(1.01)
    (found,) = world.records("T", 3)
    assert (found.sys_flag, found.prepared_transaction_offset) == (COMMIT, 0)


def test_a_batch_is_stored_as_it_is_and_a_run_is_delayed(world: DelayedStore) -> None:
    put_batch(world.store, [world.message(number, 1) for number in (1, 2)])
    assert world.delivered() == [1, 2]
    placements, _ = world.store.append([world.message(3, 1), world.message(4, 0)])
    assert [each.queue_id for each in placements] == [0, 3]
    world.run(1.01)
    assert world.delivered() == [1, 2, 4, 3]


def test_a_run_catches_up_after_downtime(world: DelayedStore) -> None:
    for number in range(250):
        world.put(number, 1 + number % 3)
    world.store.close()
    world.machine.clock.advance(3600)
    world.open()
    world.run(RETRY_S + 0.5)  # the index may have to look at its last message first
    assert sorted(world.delivered()) == list(range(250))
    assert world.store.delays.service.suppressed == 0


def test_what_was_delivered_before_a_kill_is_not_delivered_again(world: DelayedStore) -> None:
    for number in range(20):
        world.put(number, 1)
    world.run(1.05)
    world.put(20, 1)
    world.put(21, 2)
    before = saved(world)
    world.run(1.5)
    assert saved(world) == before, "the progress is saved every ten seconds"
    world.kill()
    world.run(10)
    assert sorted(world.delivered()) == list(range(22))
    assert world.store.delays.service.suppressed > 0


def test_a_clean_close_soon_after_a_kill_repeats_nothing(world: DelayedStore) -> None:
    world.run(20)
    world.put(1, 1)
    world.run(1.1)
    world.put(2, 1)
    world.run(1.1)
    world.kill()
    world.store.close()
    world.open()
    world.run(5)
    assert world.delivered() == [1, 2]


def test_without_an_index_a_kill_repeats_what_was_not_saved(world: DelayedStore) -> None:
    world = DelayedStore(config=CONFIG.model_copy(update={"message_index_enable": False}))
    world.run(20)
    world.put(1, 1)
    world.run(3)
    assert saved(world) == {1: 1}
    world.put(2, 1)
    world.run(3)
    world.kill()
    world.run(3)
    assert world.delivered() == [1, 2, 2]


def test_a_key_that_was_used_twice_is_delivered_twice(world: DelayedStore) -> None:
    again = world.message(1, 1)
    put_message(world.store, again)
    world.run(0.6)
    put_message(world.store, again)
    world.run(0.6)
    assert world.delivered() == [1]
    world.kill()
    world.run(20)
    assert world.delivered() == [1, 1]


def test_progress_is_saved_every_interval_and_at_a_close(world: DelayedStore) -> None:
    world.put(1, 1)
    world.run(2)
    world.put(2, 1)
    world.run(2)
    assert world.store.delays.status()[0].delivered_up_to == 2
    world.run(10)
    assert saved(world) == {1: 2}
    world.put(3, 1)
    world.run(2)
    world.store.close()
    assert saved(world) == {1: 3}


def test_a_5x_store_saves_every_level() -> None:
    world = DelayedStore(store_format=StoreFormat.V5_X)
    world.put(1, 1)
    world.run(15)
    assert saved(world) == {1: 1} | dict.fromkeys(range(2, 19), 0)


def test_progress_never_runs_ahead_of_the_copies_on_disk(world: DelayedStore) -> None:
    """RocketMQ's does: a power cut then loses messages."""
    world.put(1, 1)
    world.run(1.01)
    assert world.delivered() == [1]
    end = world.store.log.max_offset
    world.run(0.001)
    assert saved(world) == {1: 1}
    assert world.store.log.flushed_offset >= end


def test_a_lost_progress_file_repeats_nothing(world: DelayedStore) -> None:
    world.put(1, 1)
    world.run(3)
    world.store.close()
    path = world.store.paths.config / DelayOffsets.file_name
    world.machine.disk.unlink(path)
    world.open()
    world.run(3)
    assert world.delivered() == [1]


@pytest.mark.parametrize("offset", [9, -3])
def test_progress_outside_of_the_queue_is_moved_into_it(world: DelayedStore, offset: int) -> None:
    world.put(1, 1)
    world.run(3)
    world.store.close()
    table = DelayOffsets.load(world.store.paths, world.format, world.machine.seams)
    table.put(1, offset)
    table.save()
    world.open()
    world.run(0.5)
    world.put(2, 1)
    world.run(3)
    assert world.delivered()[-1] == 2
    assert world.store.delays.status()[0].delivered_up_to == 2


@pytest.mark.parametrize("has_queue", [True, False])
def test_progress_behind_the_queues_end_passes_over_nothing_that_comes_next(
    world: DelayedStore, has_queue: bool
) -> None:
    """As a broker leaves it whose log lost its end."""
    if has_queue:
        world.put(1, 1)
        world.run(3)
    world.store.close()
    table = DelayOffsets.load(world.store.paths, world.format, world.machine.seams)
    table.put(1, 9)
    table.save()
    world.open()
    world.put(2, 1)
    world.put(3, 1)
    world.kill()
    world.run(3)
    assert world.delivered()[-2:] == [2, 3]
    assert saved(world)[1] == 2 + has_queue


def test_a_full_disk_holds_a_level_up_and_loses_nothing(world: DelayedStore) -> None:
    world.put(1, 1)
    large = world.message(2, 1).replace(body=b"2".ljust(30_000))
    for _ in range(2):
        put_message(world.store, large)
    capacity, world.machine.disk.capacity = world.machine.disk.capacity, 0
    world.run(3)
    assert world.store.failure is None
    assert "make room" in str(world.store.delays.status()[0].waiting)
    world.machine.disk.capacity = capacity
    # The disk is looked at again once in that interval.
    world.run(world.config.clean_resource_interval / 1000 + 3)
    assert world.delivered() == [1, 2, 2]
    assert world.store.delays.status()[0].waiting is None


def test_until_the_index_is_whole_what_may_be_a_repeat_waits(world: DelayedStore) -> None:
    world.put(1, 1)
    world.kill()
    world.store.state.set_index_complete(False)
    world.put(2, 2)
    world.run(6)
    assert world.delivered() == [2], "it came after the opening"
    assert "index" in str(world.store.delays.status()[0].waiting)
    world.store.state.set_index_complete(True)
    world.run(2)
    assert world.delivered() == [2, 1]


def test_an_entry_that_fills_a_hole_is_not_delivered(world: DelayedStore) -> None:
    for number in (1, 2, 3):
        world.put(number, 1)
    queue = world.store.queues.get(SCHEDULE_TOPIC, 0)
    assert queue is not None
    view = queue.files.files[0].view
    view[20:40] = view[:20]
    world.run(2)
    assert world.delivered() == [1, 3]


def test_a_progress_file_that_cannot_be_written_is_tried_again(world: DelayedStore) -> None:
    world.put(1, 1)
    world.run(0.9)
    world.machine.disk.fail_next("create", errno.ENOSPC)
    world.run(0.5)
    assert world.store.failure is None
    world.run(11)
    assert saved(world) == {1: 1}


def test_a_failed_store_delivers_nothing(world: DelayedStore) -> None:
    world.put(1, 1)
    world.machine.disk.fail_next("sync", errno.EIO)
    with pytest.raises(StorageError):
        world.store.flush.flush_all()
    world.run(5)
    assert world.delivered() == []


def test_a_store_that_is_not_to_deliver_does_not(world: DelayedStore) -> None:
    world.put(1, 1)
    world.store.close()
    options = StoreOptions(boot_id="0" * 32, deliver_delayed=False)
    world.store = type(world.store).open(ROOT, CONFIG, world.machine.seams, options)
    world.run(5)
    assert world.delivered() == []


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("hours", [24, 1, -1, -24])
def test_a_clock_that_is_set_delivers_nothing_earlier_or_later(
    world: DelayedStore, hours: int, is_restarted: bool
) -> None:
    world.put(1, 2)
    world.run(1)
    world.machine.clock.step(hours * HOUR_MS)
    world.put(2, 2)
    world.run(1)
    if is_restarted:
        world.kill()
    world.run(2.9)
    assert world.delivered() == []
    world.run(0.2)
    assert world.delivered() == [1]
    world.run(1)
    assert world.delivered() == [1, 2]


@pytest.mark.parametrize("step_ms", [24 * HOUR_MS, 61_000, -61_000, -80_000, -24 * HOUR_MS])
def test_no_entry_is_judged_by_a_clock_that_was_not_compared(
    world: DelayedStore, step_ms: int
) -> None:
    """The clock's own service compares it once a second; a level may have its turn before."""
    world.put(1, 2)
    world.run(1.5)
    world.machine.clock.step(step_ms)
    world.store.delays.service.step(world.machine.clock.monotonic())
    assert world.delivered() == []
    assert [each.step_ms for each in world.store.clock.steps.view.steps] == [step_ms]
    world.run(3.4)
    assert world.delivered() == []
    world.run(0.2)
    assert world.delivered() == [1]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_was_stored_while_the_clock_was_ahead_is_delivered_when_its_delay_has_passed(
    world: DelayedStore, is_restarted: bool
) -> None:
    world.machine.clock.step(24 * HOUR_MS)
    world.put(1, 2)
    world.run(1)
    world.machine.clock.step(-24 * HOUR_MS)
    world.put(2, 2)
    world.run(1)
    if is_restarted:
        world.kill()
    world.run(2.9)
    assert world.delivered() == []
    world.run(1.2)
    assert world.delivered() == [1, 2]
    stored = [found.store_timestamp_ms for found in world.pending(2)]
    assert stored[0] - stored[1] > 23 * HOUR_MS


def test_after_a_start_of_the_machine_whose_clock_was_ahead_nothing_is_delivered_early(
    world: DelayedStore,
) -> None:
    """How long it was down cannot be known: the delay begins at the opening at the latest."""
    world.machine.clock.step(24 * HOUR_MS)
    world.put(1, 2)
    world.store.flush.flush_all()
    disk = world.machine.disk.power_cut(1, Loss.DROP)
    disk.clock.step(-24 * HOUR_MS)
    world.restart(disk)
    [step] = world.store.clock.steps.view.steps
    assert not step.is_measured
    world.run(4.9)
    assert world.delivered() == []
    world.run(0.2)
    assert world.delivered() == [1]


def test_a_clock_that_steps_back_a_little_delays_nothing_by_more_than_its_level(
    world: DelayedStore,
) -> None:
    world.machine.clock.step(-30_000)
    world.put(1, 2)
    world.run(4.5)
    assert world.delivered() == []
    world.run(31)
    assert world.delivered() == [1]


@pytest.mark.parametrize(
    "table",
    [
        {"DELAY": "1"},
        {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "x"},
        {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": str(2**31)},
        {"DELAY": "1", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
        {"DELAY": "1", "REAL_TOPIC": SCHEDULE_TOPIC, "REAL_QID": "0"},
        {"DELAY": "1", "REAL_TOPIC": "T" * 128, "REAL_QID": "0"},
    ],
)
def test_what_can_never_be_delivered_is_passed_over(
    world: DelayedStore, table: dict[str, str]
) -> None:
    encoded = properties.encode(table, trailing_separator=False)
    lost = world.message(1, 0).replace(topic=SCHEDULE_TOPIC, queue_id=0, properties=encoded)
    put_message(world.store, lost)
    world.put(2, 1)
    world.run(3)
    assert world.delivered() == [2]
    assert world.store.delays.service.passed_over == 1


def test_a_message_that_cannot_be_read_is_passed_over(world: DelayedStore) -> None:
    world.put(1, 1)
    (found,) = world.pending(1)
    view = world.store.log.files.files[0].view
    end = found.physical_offset + found.size
    at = bytes(view[:end]).index(b"1", found.physical_offset + 80)
    view[at] ^= 1
    world.put(2, 1)
    world.run(3)
    assert world.delivered() == [2]
    assert world.store.delays.service.passed_over == 1


def test_messages_that_expired_undelivered_are_passed_over(world: DelayedStore) -> None:
    world.put(1, 3)
    while len(world.store.log.files.files) < 3:
        put_message(world.store, world.message(0, 0, topic="O").replace(body=bytes(20_000)))
    world.store.expire(1)
    world.put(2, 3)
    world.run(12)
    assert world.delivered() == [2]


def test_an_entry_with_the_code_of_tags_is_delivered_by_the_records_time(
    world: DelayedStore,
) -> None:
    """4.9.7 leaves such entries when it recovers from a crash, and delivers them at once."""
    world.put(1, 2)
    queue = world.store.queues.get(SCHEDULE_TOPIC, 1)
    assert queue is not None
    queue.files.files[0].view[12:20] = properties.tags_code("a").to_bytes(8, signed=True)
    world.run(4.9)
    assert world.delivered() == []
    world.run(0.2)
    assert world.delivered() == [1]


def test_the_crc_of_a_delayed_record_is_not_in_its_copy() -> None:
    kept = b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02"
    message = ordinary(SCHEDULE_TOPIC, properties=kept)
    record = with_record_crc(message, 1)
    found = decode(record, 0, len(record), physical_offset=ANY_OFFSET)
    assert found.raw_properties.startswith(kept + b"__CRC32#")
    assert copy_for_delivery(found, StoreFormat.V5_X).properties == kept


def test_the_status_of_a_level_has_its_pending_messages(world: DelayedStore) -> None:
    for number in range(3):
        world.put(number, 2)
    first, second, third = world.store.delays.status()
    assert (first.level, first.delay, first.pending, first.next_due_ms) == (1, "1s", 0, None)
    assert (second.queue_min, second.queue_max, second.delivered_up_to) == (0, 3, 0)
    assert second.pending == 3
    assert second.next_due_ms == world.pending(2)[0].store_timestamp_ms + 5_000
    world.run(6)
    second = world.store.delays.status()[1]
    assert (second.delivered_up_to, second.pending, second.next_due_ms) == (3, 0, None)
    assert third.level == 3


def test_levels_are_those_of_the_setting() -> None:
    world = DelayedStore(config=CONFIG.model_copy(update={"message_delay_level": "2s"}))
    world.put(1, 9)
    world.run(2.01)
    assert world.delivered() == [1]
    assert len(world.store.delays.status()) == 1
