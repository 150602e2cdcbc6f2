from __future__ import annotations

import pytest

from mqstore.storage.codec.record import Message
from mqstore.storage.delay.timer_files import TimerCheckpoint
from mqstore.storage.errors import PutRefused
from mqstore.storage.layout import TIMER_TOPIC, StoreFormat
from tests.simulation.delayed_store import ROOT
from tests.simulation.timed_store import TimedStore, small_wheel

wheel = pytest.fixture(autouse=True)(small_wheel)


@pytest.fixture
def world() -> TimedStore:
    return TimedStore()


def checkpoint(world: TimedStore) -> TimerCheckpoint:
    found = TimerCheckpoint.load(world.machine.disk, world.store.paths.timer_check)
    assert found is not None
    return found


@pytest.mark.parametrize("store_format", list(StoreFormat))
def test_a_message_is_delivered_at_its_time(store_format: StoreFormat) -> None:
    world = TimedStore(store_format=store_format)
    due_ms = world.timed(7, 5_300)
    world.run(5.2)
    assert world.delivered() == []
    world.run(1.0)
    [copy] = world.records("T", 3)
    assert due_ms <= copy.store_timestamp_ms <= due_ms + 1_000
    slot_ms = (due_ms - 1) // 1_000 * 1_000
    table = dict(copy.properties or {})
    assert table.pop("TIMER_ENQUEUE_MS").isdigit()
    assert int(table.pop("TIMER_DEQUEUE_MS")) >= slot_ms + 1_000
    assert table == {
        "UNIQ_KEY": "u7",
        "TAGS": "a",
        "TIMER_DELIVER_MS": str(due_ms),
        "TIMER_OUT_MS": str(slot_ms),
    }
    [kept] = world.waiting()
    assert (kept.topic, kept.queue_id, kept.properties["REAL_TOPIC"]) == (TIMER_TOPIC, 0, "T")  # type: ignore[index]


def test_a_time_that_has_passed_means_at_once(world: TimedStore) -> None:
    world.timed(1, 0)
    world.timed(2, -10_000)
    assert world.delivered() == [1, 2]


def test_messages_of_a_second_are_delivered_in_their_order(world: TimedStore) -> None:
    for number in range(40):
        world.timed(number, 3_000)
    world.run(5)
    assert world.delivered() == list(range(40))


def test_a_time_beyond_the_window_is_kept_by_rolling(world: TimedStore) -> None:
    due_ms = world.timed(1, 200_000)
    world.run(199)
    assert world.delivered() == []
    assert len(world.waiting()) > 3
    assert world.store.delays.timer.status().pending == 1
    world.run(3)
    [(_, _, came_ms)] = world.arrivals()
    assert due_ms <= came_ms <= due_ms + 1_000
    [copy] = world.records("T", 3)
    assert (copy.properties or {})["TIMER_ROLL_TIMES"] == str(len(world.waiting()) - 1)


def test_status_and_hold_name_what_waits(world: TimedStore) -> None:
    timer = world.store.delays.timer
    assert (timer.status().pending, list(timer.holds())) == (0, [])
    due_ms = world.timed(1, 10_000)
    assert timer.status().pending == 1
    [hold] = timer.holds()
    assert hold.from_offset == world.waiting()[0].physical_offset
    world.run(1.5)
    status = timer.status()
    assert status.pending == 1
    assert status.next_due_ms is not None
    assert due_ms <= status.next_due_ms < due_ms + 1_000
    assert list(timer.holds()) == [hold]
    world.run(12)
    assert (timer.status().pending, list(timer.holds())) == (0, [])
    assert timer.status().next_due_ms is None


@pytest.mark.parametrize("milliseconds", [-20_000, 20_000])
def test_times_are_those_of_the_clock_as_it_is(world: TimedStore, milliseconds: int) -> None:
    due_ms = world.timed(1, 10_000)
    world.run(2)
    world.machine.clock.step(milliseconds)
    world.timed(2, 1_000)
    world.run(60)
    arrivals = world.arrivals()
    assert sorted(number for number, _, _ in arrivals) == [1, 2]
    assert all(came_ms >= at_ms for _, at_ms, came_ms in arrivals)
    assert world.machine.clock.now_ms() > due_ms


@pytest.mark.parametrize("is_restarted", [False, True])
def test_seconds_of_two_turns_share_a_slot_after_the_clock_was_set_back(
    world: TimedStore, is_restarted: bool
) -> None:
    turn_ms = 256_000
    due_ms = [world.timed(number, 30_000) for number in range(3)]
    world.run(2)
    world.machine.clock.step(-2_000 - turn_ms)
    for number in range(3, 6):
        world.timed(number, 30_000)
    world.run(2)
    if is_restarted:
        world.store.close()
        world.kill()
        world.run(0.1)
    assert world.store.delays.timer.status().pending == 6
    world.run(30)
    assert world.delivered() == [3, 4, 5]
    status = world.store.delays.timer.status()
    assert (status.pending, status.next_due_ms) == (3, due_ms[0])
    world.run(256)
    assert world.delivered() == [3, 4, 5, 0, 1, 2]
    assert world.store.delays.timer.status().pending == 0


def test_a_slot_that_is_left_in_the_middle_keeps_its_order_and_repeats_nothing(
    world: TimedStore,
) -> None:
    for number in range(4):
        world.timed(number, 1_000)
    timer, clock = world.store.delays.timer, world.machine.clock
    put = timer._put
    world.run(0.5)

    def refused_from_the_third(message: Message) -> object:
        if len(world.delivered()) == 2:
            raise PutRefused("for a test")
        return put(message)

    timer._put = refused_from_the_third
    world.run(2)
    assert world.delivered() == [0, 1]
    clock.step(-90_000)
    timer._put = put
    world.timed(4, 1_000)
    world.run(3)
    assert world.delivered() == [0, 1, 4]
    world.run(90)
    assert world.delivered() == [0, 1, 4, 2, 3]


@pytest.mark.parametrize("lost", ["timerwheel", "timerlog", "timercheck", "all", "garbage"])
def test_lost_files_are_made_again_of_the_log(world: TimedStore, lost: str) -> None:
    for number in range(30):
        world.timed(number, 1_000 * (number + 1))
    world.run(10)
    before = len(world.delivered())
    paths, disk = world.store.paths, world.machine.disk
    world.store.close()
    assert 0 < before < 30
    logs = [paths.timer_log / name for name in disk.list(paths.timer_log)]
    files = {
        "timerwheel": [paths.timer_wheel],
        "timerlog": logs,
        "timercheck": [paths.timer_check],
        "all": [paths.timer_wheel, paths.timer_check, *logs],
        "garbage": [],
    }
    for path in files[lost]:
        disk.unlink(path)
    if lost == "garbage":
        size = len(disk.read(logs[0]))
        disk.write(logs[0], b"\7" * size)
        disk.write(paths.timer_wheel, b"\7" * 256 * 32)
    world.kill()
    world.run(40)
    assert sorted(world.delivered()) == list(range(30))


def test_a_long_stop_loses_nothing(world: TimedStore) -> None:
    for number in range(20):
        world.timed(number, 10_000 * number + 500)
    world.run(3)
    world.store.close()
    world.machine.clock.advance(10_000)
    world.kill()
    world.timed(20, 5_000)
    world.run(10)
    assert sorted(world.delivered()) == list(range(21))


def test_files_of_finished_units_are_removed(world: TimedStore) -> None:
    for number in range(60):
        world.timed(number, 2_000)
        world.run(1)
    names = world.machine.disk.list(world.store.paths.timer_log)
    assert len(names) <= 2
    assert names[0] != "0" * 20


def test_the_checkpoint_is_not_ahead_of_the_log(world: TimedStore) -> None:
    world.timed(1, 3_000)
    world.run(6)
    assert world.delivered() == [1]
    assert checkpoint(world).queue_offset == 1
    assert world.store.log.flushed_offset == world.store.log.max_offset


def test_a_copy_in_a_diverged_tail_is_delivered_again(world: TimedStore) -> None:
    world.timed(1, 1_000)
    world.timed(2, 3_000)
    world.run(2)
    end = world.store.log.max_offset
    world.run(4)
    assert world.delivered() == [1, 2]
    world.store.epochs.cut_at_opening(end, "leader:10912", 2)
    world.store.close()
    world.kill()
    assert world.delivered() == [1]
    world.run(2)
    assert world.delivered() == [1, 2]


def test_a_store_without_timed_messages_has_no_timer_files(world: TimedStore) -> None:
    world.put(1, 1)
    world.run(5)
    assert not {"timerwheel", "timerlog"} & set(world.machine.disk.list(ROOT))
