"""Reasons for which the put path refuses puts, and their end."""

from __future__ import annotations

import errno
import logging
import os
import re
from pathlib import Path

import pytest

from mqstore.storage.errors import FilePending, Lack, SegmentCreationFailed
from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.put_refusal import PutRefusal, file_failure
from mqstore.storage.retention.plan import Trigger, Why
from tests.simulation.retention_machine import Machine
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message

SEGMENT = 128 << 10


def small_beside_its_segments(**settings: object) -> Machine:
    """A machine whose disk has no room for one segment more and is below every ratio."""
    ratios = ("max_used_space", "space_clean_forcibly", "space_warning_level")
    settings |= {f"disk_{name}_ratio": 100 for name in ratios}
    machine = Machine(1, **settings, mapped_file_size_commit_log=SEGMENT)
    machine.fill(3)
    machine.settle()
    machine.disk.capacity = machine.disk.usage(Path("/store")).used + SEGMENT - PAGE_SIZE
    return machine


def refusal(machine: Machine) -> PutRefusal:
    found = machine.store.put_refusal
    assert found is not None
    return found


def test_no_room_for_a_segment_below_every_ratio_is_said_and_ends_with_the_room() -> None:
    machine = small_beside_its_segments()
    with pytest.raises(SegmentCreationFailed, match="make room") as refused:
        machine.fill(9)
    assert refused.value.lack is Lack.NO_ROOM
    assert refused.value.numbers == {"neededBytes": SEGMENT}
    assert (refusal(machine).reason, refusal(machine).is_for_room) == ("no-room", True)
    machine.run(20)
    plan = machine.store.retention.plan()
    assert plan.puts_refused
    assert plan.puts_refused_why == refusal(machine).detail
    assert Trigger.NO_SEGMENT in plan.triggers
    assert plan.segments[0].why is Why.YOUNG
    machine.disk.capacity += 2 * SEGMENT
    machine.run(2.1)
    assert machine.store.put_refusal is None
    machine.fill(5)


@pytest.mark.slow
def test_segments_go_earlier_where_the_next_one_would_not_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)  # a record keeps its error, whose frames keep maps alive
    machine = small_beside_its_segments()
    machine.age(2)
    for number in range(4000):
        try:
            put_message(machine.store, message(machine.store, number), Durability.ASYNC)
        except SegmentCreationFailed:
            machine.run(3)
            put_message(machine.store, message(machine.store, number), Durability.ASYNC)
        if number % 50 == 0:
            machine.run(1)
            machine.age(1)
    assert machine.store.retention.deleted[Why.FORCED] > 3
    machine.run(12)
    assert machine.store.put_refusal is None


def test_no_room_for_a_queue_file_refuses_puts_until_there_is_room() -> None:
    size = 20 * PAGE_SIZE
    machine = Machine(
        mapped_file_size_consume_queue=size,
        clean_file_forcibly_enable=False,
        disk_space_clean_forcibly_ratio=100,
        disk_space_warning_level_ratio=100,
    )
    machine.store.close()
    options = StoreOptions(waits_for_files=False)
    store = MessageStore.open(Path("/store"), machine.config, machine.machine.seams, options)
    machine.store = store
    put_with_files(store, 0)
    machine.settle()
    machine.disk.capacity = machine.disk.usage(Path("/store")).used
    with pytest.raises(SegmentCreationFailed, match="T/1/") as refused:
        put_with_files(store, 1)
    assert refusal(machine) == PutRefusal.of(refused.value)
    assert (refusal(machine).reason, refusal(machine).is_for_room) == ("no-room", True)
    machine.run(5)
    assert refusal(machine).figures == {"neededBytes": PAGE_SIZE}
    machine.disk.capacity *= 4
    machine.run(2.1)
    assert store.put_refusal is None
    store.append(message(store, 1, queue_id=1))


def put_with_files(store: MessageStore, queue_id: int) -> None:
    """As store-writer puts: the files that a put needs are made first."""
    while True:
        try:
            store.append(message(store, 0, queue_id=queue_id))
        except FilePending as pending:
            pending.make()
        else:
            return


@pytest.mark.parametrize(
    ("error", "lack", "todo"),
    [
        (errno.ENOSPC, Lack.NO_ROOM, "make room"),
        (errno.EDQUOT, Lack.NO_ROOM, "make room"),
        (errno.EMFILE, Lack.TOO_MANY_FILES, "ulimit"),
        (errno.ENFILE, Lack.TOO_MANY_FILES, "ulimit"),
        (errno.EIO, Lack.DISK_ERROR, "look at the disk"),
        (errno.EROFS, Lack.DISK_ERROR, "look at the disk"),
    ],
)
def test_each_cause_is_said_as_it_is(error: int, lack: Lack, todo: str) -> None:
    found = file_failure("segment 0", OSError(error, "why"))
    assert found.lack is lack
    assert todo in str(found)
    assert ("room" in str(found)) is (lack is Lack.NO_ROOM)


@pytest.mark.parametrize(
    ("error", "reason"), [(errno.EMFILE, "too-many-files"), (errno.EIO, "disk-error")]
)
def test_a_segment_that_cannot_be_made_refuses_puts_until_it_can(
    error: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    machine.fill(2)
    machine.store.retention.removal.give_up_spares()
    machine.store.retention.removal.make_spares(False)

    def refuse(offset: int) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patched:
        patched.setattr(machine.store.log.files, "create", refuse)
        with pytest.raises(SegmentCreationFailed, match=re.escape(os.strerror(error))):
            machine.fill(3)
        machine.run(2)
    assert (refusal(machine).reason, refusal(machine).is_for_room) == (reason, False)
    machine.run(2.1)
    assert machine.store.put_refusal is None
    machine.fill(3)


def test_a_segment_that_still_cannot_be_made_goes_on_refusing_puts() -> None:
    machine = small_beside_its_segments()
    with pytest.raises(SegmentCreationFailed):
        machine.fill(9)
    for _ in range(5):
        machine.run(3)
        assert refusal(machine).reason == "no-room"


def test_a_pause_is_a_refusal_and_what_the_disk_refuses_comes_first() -> None:
    machine = Machine(clean_file_forcibly_enable=False)
    machine.fill(2)
    machine.store.write_pause.begin("moving")
    assert (refusal(machine).reason, refusal(machine).detail) == ("paused", "moving")
    machine.use(95)
    machine.run(11)
    assert refusal(machine).reason == "disk-full"
    assert refusal(machine).figures["refusedAbovePercent"] == 90
    machine.store.close()
    assert refusal(machine).reason == "closing"
