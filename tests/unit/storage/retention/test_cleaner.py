"""The cleaner over a whole store on a simulated machine: its clock and disk are the test's own."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.errors import DiskFull, PinRefused, StoreFailed, StoreNotWritable
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.metadata import manifest
from mqstore.storage.retention.cleaner import MANUAL_ROUNDS
from mqstore.storage.retention.plan import Why
from tests.long_runs import few_first
from tests.simulation.retention_machine import HOUR_S, SEGMENT, Machine
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message


@pytest.fixture(params=few_first([1, 6, 7], others=pytest.mark.nightly))
def machine(request: pytest.FixtureRequest) -> Machine:
    """Seeds in which the services take their first steps in different orders."""
    return Machine(seed=request.param)


def test_nothing_in_time_goes(machine: Machine) -> None:
    machine.fill(5)
    machine.age(16)  # 04:00
    assert machine.run(60) == 0


def test_expired_segments_go_in_their_hour_and_not_before(machine: Machine) -> None:
    machine.fill(5)
    machine.age(72 + 15)
    assert machine.run(60) == 0
    machine.age(1)
    assert machine.run(60) == 4
    assert machine.store.retention.deleted == {Why.EXPIRED: 4}
    assert [file.base_offset for file in machine.store.log.files.files] == [4 * SEGMENT]


def test_at_most_ten_go_in_a_round_a_tenth_of_a_second_apart(machine: Machine) -> None:
    machine.fill(16)
    machine.run(5)
    machine.age(72 + 16)
    assert machine.run(5.01) == 1
    assert machine.run(0.5) == 5
    assert machine.run(9) == 4
    assert machine.run(15) == 5
    assert machine.run(60) == 0


def test_queue_and_index_files_follow_the_log(machine: Machine) -> None:
    machine.fill(12)
    store = machine.store
    queue = store.queues.get("T", 0)
    assert queue is not None
    first_index_file = store.index.files[0].path.name
    machine.age(72 + 16)
    machine.run(60)
    entry = queue.entry(queue.min_index)
    assert entry is not None
    assert queue.first_index > 0
    assert entry.physical_offset >= store.log.min_offset
    before = queue.entry(queue.min_index - 1)
    assert before is None or before.physical_offset < store.log.min_offset
    assert first_index_file not in machine.disk.list(store.paths.index)
    assert store.retention.removal.queue_files > 0
    assert store.retention.removal.index_files > 0


def test_the_log_never_begins_above_what_is_known_to_be_on_disk(machine: Machine) -> None:
    machine.fill(2)
    machine.fill(6)
    assert machine.store.log.flushed_offset < 5 * SEGMENT
    assert machine.store.expire(5) == 5
    assert machine.store.log.flushed_offset >= machine.store.log.min_offset == 5 * SEGMENT


def test_block_checksums_go_with_their_segments(machine: Machine) -> None:
    machine.fill(5)
    machine.settle()
    blocks = machine.store.paths.blocks
    assert len(machine.disk.list(blocks)) >= 4
    machine.age(72 + 16)
    machine.run(20)
    assert len(machine.store.log.files.files) == 1
    assert len(machine.disk.list(blocks)) <= 1


def test_left_over_queue_files_go_with_the_first_round_after_an_opening(machine: Machine) -> None:
    machine.fill(12)
    machine.store.retention.removal.remove_segments(9)
    machine.store.close()
    machine.store = machine.open()
    queue = machine.store.queues.get("T", 0)
    assert queue is not None
    assert queue.first_index == 0
    machine.run(20)
    assert queue.first_index > 0


@pytest.mark.parametrize(("percent", "goes"), [(74, False), (77, True)])
def test_a_disk_above_the_first_ratio_makes_every_hour_the_hour(percent: int, goes: bool) -> None:
    machine = Machine()
    machine.fill(4)
    machine.settle()
    machine.age(72)
    machine.use(percent)
    assert (machine.run(11) > 0) is goes


def test_a_disk_above_the_second_ratio_lets_go_until_it_is_not(machine: Machine) -> None:
    machine.fill(30)
    machine.settle()
    machine.age(2)
    machine.use(88)
    assert 0 < machine.run(60) < 20
    assert not machine.store.retention.plan().volumes[0].is_above(85)
    assert set(machine.store.retention.deleted) == {Why.FORCED}


def test_a_segment_made_ahead_is_given_up_before_one_with_messages(machine: Machine) -> None:
    machine.fill(20)
    machine.settle()
    machine.age(2)
    ahead = max(machine.disk.list(machine.store.paths.commit_log))
    assert int(ahead) == machine.store.log.files.files[-1].end_offset
    machine.use(85.4)
    assert machine.run(30) == 0
    assert ahead not in machine.disk.list(machine.store.paths.commit_log)
    machine.fill(21)
    assert int(max(machine.disk.list(machine.store.paths.commit_log))) < int(ahead) + SEGMENT


def test_what_was_forced_is_noted_with_its_figures(machine: Machine) -> None:
    machine.fill(10)
    machine.settle()
    machine.age(2)
    machine.use(93)
    machine.run(11)
    spare, first, *_ = machine.store.retention.journal.after(0)
    assert (spare.figures["segment"], spare.figures["ageMs"]) == (None, None)
    assert (first.figures["segment"], first.figures["bytes"]) == (f"{0:020d}", SEGMENT)
    age_ms = first.figures["ageMs"]
    assert isinstance(age_ms, int)
    assert age_ms > 2 * HOUR_S * 1000
    assert first.figures["totalBytes"] == machine.disk.capacity
    assert (first.figures["volume"], first.figures["abovePercent"]) == ("commitlog", 85)


def test_puts_are_refused_before_messages_just_written_go(machine: Machine) -> None:
    machine.fill(10)
    machine.settle()
    machine.use(95)
    assert machine.run(60) == 0
    assert machine.store.retention.plan().segments[0].why is Why.YOUNG
    with pytest.raises(DiskFull):
        put_message(machine.store, message(machine.store, 1))
    machine.age(1)
    assert machine.run(12) > 0
    put_message(machine.store, message(machine.store, 1))


def test_puts_are_taken_within_a_second_of_there_being_room() -> None:
    machine = Machine(clean_file_forcibly_enable=False)
    machine.fill(10)
    machine.settle()
    machine.use(91)
    machine.run(10.5)
    machine.use(50)
    machine.run(1.1)
    put_message(machine.store, message(machine.store, 1))


def test_puts_are_refused_at_the_last_ratio_and_taken_again_when_there_is_room() -> None:
    machine = Machine(clean_file_forcibly_enable=False)
    machine.fill(30)
    machine.settle()
    machine.use(91)
    machine.run(11)
    with pytest.raises(DiskFull, match=r"91\.\d % full") as refused:
        put_message(machine.store, message(machine.store, 1))
    assert refused.value.numbers["usedPercent"] == pytest.approx(91, abs=0.1)
    machine.use(88)
    machine.run(11)
    with pytest.raises(DiskFull, match="88"):
        put_message(machine.store, message(machine.store, 1))
    machine.use(84)
    machine.run(11)
    put_message(machine.store, message(machine.store, 1))


def test_a_store_that_opens_on_a_full_disk_refuses_at_once() -> None:
    machine = Machine(clean_file_forcibly_enable=False)
    machine.fill(3)
    machine.store.close()
    machine.use(95)
    machine.store = machine.open()
    machine.run(0.001)
    with pytest.raises(DiskFull):
        put_message(machine.store, message(machine.store, 1))


def test_the_newest_stays_however_full_the_disk_is(machine: Machine) -> None:
    machine.fill(5)
    machine.age(1000)
    machine.use(99)
    machine.run(100)
    machine.use(99)
    machine.run(100)
    assert len(machine.store.log.files.files) == 1


def test_services_outlive_a_disk_without_any_room(machine: Machine) -> None:
    machine.fill(5)
    machine.use(100)
    machine.run(200)
    assert machine.store.failure is None
    machine.use(1)
    machine.run(2)
    machine.fill(6)
    machine.run(100)
    assert manifest.load(machine.disk, machine.store.paths.running) is not None


def test_by_hand_expired_segments_go_for_twenty_rounds(machine: Machine) -> None:
    machine.fill(5)
    machine.age(73)
    plan = machine.store.run_retention()
    assert plan.triggers == ("manual",)
    assert plan.bytes_to_go == 4 * SEGMENT
    assert machine.run(1) == 4
    assert machine.run(10 * (MANUAL_ROUNDS + 1)) == 0
    assert machine.store.retention.plan().triggers == ()


def test_by_hand_nothing_in_time_goes(machine: Machine) -> None:
    machine.fill(5)
    machine.store.run_retention()
    assert machine.run(30) == 0


def test_what_is_read_stays_until_the_reader_is_done(machine: Machine) -> None:
    machine.fill(4)
    first = machine.store.log.files.files[0]
    machine.age(72 + 16)
    with first.hold():
        assert machine.run(20) == 0
        assert machine.store.retention.plan().segments[0].why is Why.READER
        assert not first.acquire()
    assert machine.run(30) == 3


def test_what_is_read_too_long_goes_all_the_same(machine: Machine) -> None:
    machine.fill(4)
    first = machine.store.log.files.files[0]
    content = bytes(first.view)
    machine.age(72 + 16)
    assert first.acquire()
    assert machine.run(39) == 0
    assert machine.run(12) == 3
    assert bytes(first.view) == content
    assert machine.disk.stat(first.path) is None


def test_a_segment_that_is_leaving_is_tried_again_when_the_hour_is_over(machine: Machine) -> None:
    machine.fill(4)
    first = machine.store.log.files.files[0]
    machine.age(72 + 16)
    with first.hold():
        machine.run(15)
        machine.age(1)
        machine.run(15)
    machine.run(31)
    assert machine.disk.stat(first.path) is None
    assert len(machine.store.log.files.files) == 3


def test_a_pin_keeps_its_range_until_the_lease_ends(machine: Machine) -> None:
    machine.fill(6)
    retention = machine.store.retention
    retention.put_pin("job", 2 * SEGMENT + 5, 3 * SEGMENT, lease_s=300_100, why="a test")
    machine.age(72 + 16 - 1 / 60)
    retention.put_pin("job", 2 * SEGMENT + 5, 3 * SEGMENT, lease_s=120, why="a test")
    assert machine.run(110) == 2
    assert retention.plan().segments[0].held_by == ("pin job",)
    assert machine.run(60) == 3


def test_pins_yield_to_a_full_disk_and_their_owner_gets_an_error(machine: Machine) -> None:
    machine.fill(10)
    machine.settle()
    retention = machine.store.retention
    retention.put_pin("job", 0, None, lease_s=80_000, why="a test")
    machine.age(2)
    machine.use(87.5)
    assert machine.run(30) == 0
    machine.use(89.5)
    assert machine.run(30) > 0
    with pytest.raises(PinRefused, match="not all there"):
        retention.put_pin("job", 0, None, lease_s=80_000, why="a test")


def test_pins_outlive_the_process(machine: Machine) -> None:
    machine.fill(3)
    machine.store.retention.put_pin("job", 0, None, lease_s=80_000, why="a test")
    machine.store.close()
    machine.store = machine.open()
    assert machine.store.retention.plan().segments[0].held_by == ("pin job",)
    machine.store.retention.remove_pin("job")
    assert machine.store.retention.pins() == []


def test_what_a_group_has_not_consumed_stays() -> None:
    machine = Machine(keep_for_groups="g")
    machine.fill(6)
    store = machine.store
    queue = store.queues.get("T", 0)
    other = store.queues.get("T", 1)
    assert queue is not None
    assert other is not None
    needed = queue.find_by_physical(3 * SEGMENT)
    store.offsets.commit("g", [Commit("T", 1, other.max_index), Commit("T", 0, needed)])
    machine.age(72 + 16)
    assert machine.run(60) == 3
    assert store.retention.plan().segments[0].held_by == ("group g",)


def test_what_is_not_delivered_yet_stays() -> None:
    machine = Machine(message_delay_level="5d")
    machine.fill(2)
    delayed = message(machine.store, 0).replace(properties=b"DELAY\x011")
    kept = put_message(machine.store, delayed, Durability.ASYNC).physical_offset
    machine.fill(5)
    machine.age(72 + 16)
    assert machine.run(60) == kept // SEGMENT
    (hold,) = machine.store.retention.plan().holds
    assert (str(hold), hold.from_offset) == ("delay 1", kept)
    machine.age(24)
    assert machine.run(0) == 0
    machine.age(24)  # delivered by now, and its copy is in the newest segment
    machine.run(60)
    assert machine.store.retention.plan().holds == ()
    assert machine.store.log.min_offset > kept


def test_what_is_not_dispatched_stays(machine: Machine) -> None:
    machine.fill(3)
    store = machine.store
    while len(store.log.files.files) < 6:
        store.log.append(message(store, 1))
    machine.age(72 + 16)
    assert store.retention.plan().segments[2].why is Why.NOT_DISPATCHED
    assert store.expire(6) == 2


def test_a_plan_changes_nothing_and_has_at_most_the_requested_segments(machine: Machine) -> None:
    machine.fill(5)
    machine.age(72 + 16)
    names = machine.disk.list(machine.store.paths.commit_log)
    plan = machine.store.retention.plan(2)
    assert [each.why for each in plan.segments] == [Why.EXPIRED, Why.EXPIRED]
    assert machine.disk.list(machine.store.paths.commit_log) == names


def test_a_full_disk_that_keeps_everything_is_said(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.fill(3)
    machine.use(80)
    with caplog.at_level(logging.WARNING):
        machine.run(11)
    assert "keeps every segment" in caplog.text


def test_a_store_that_may_only_be_read_deletes_nothing(machine: Machine) -> None:
    machine.fill(3)
    machine.store.close()
    options = StoreOptions(services=False, in_place=True)
    with MessageStore.open(Path("/store"), machine.config, machine.machine.seams, options) as store:
        machine.clock.advance((72 + 16) * HOUR_S)
        assert store.retention.plan().next is not None
        with pytest.raises(StoreNotWritable):
            store.run_retention()


@pytest.mark.parametrize("operation", ["unlink", "sync_directory"])
def test_a_disk_that_fails_a_deletion_ends_the_store(operation: str) -> None:
    machine = Machine()
    machine.fill(3)
    machine.age(72 + 16)
    machine.run(9)
    machine.disk.fail_next(operation, 5)
    machine.run(10)
    assert machine.store.failure is not None
    with pytest.raises(StoreFailed):
        machine.store.run_retention()
    with pytest.raises((StoreFailed, StoreNotWritable)):
        put_message(machine.store, message(machine.store, 1))


@pytest.mark.parametrize("days", [30, -30])
def test_a_clock_that_is_set_makes_no_segment_older_or_younger(days: int) -> None:
    machine = Machine()
    machine.fill(5)
    machine.clock.step(round(days * 24 * HOUR_S * 1000))
    plan = machine.store.run_retention()  # before the clock is compared by its own service
    assert not any(each.goes for each in plan.segments)
    machine.run(60)
    machine.age(48 + 16)
    assert machine.run(60) == 0
    machine.age(24)
    assert machine.run(60) == 4


def test_the_plan_has_the_time_of_the_oldest_message_as_it_was_read(machine: Machine) -> None:
    store = machine.store
    assert store.retention.plan().oldest_ms is None
    machine.fill(2)
    assert store.retention.plan().oldest_ms == store.log.record_at(0).store_timestamp_ms
    assert store.expire(1) == 1
    first = store.log.record_at(store.log.min_offset)
    assert store.retention.plan().oldest_ms == first.store_timestamp_ms
