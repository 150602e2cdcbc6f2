"""Fences over crashes: one that was answered is never forgotten, and no older epoch gets in."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import FencedOff, FenceUnknown, StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore, StoreOptions
from tests.long_runs import nightly_examples
from tests.simulation import SimulatedMachine
from tests.simulation.disk import SimulatedDisk
from tests.simulation.driver import CONFIG
from tests.simulation.inode import Loss
from tests.simulation.world import ROOT

FENCE: Final = "leader"
TOPICS: Final = ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "T", "U")
CRASHES: Final = (None, *Loss)


def opened(machine: SimulatedMachine) -> MessageStore:
    machine.disk.make_directories(ROOT)
    options = StoreOptions(format=StoreFormat.V4_9, boot_id="0" * 32, pid=1)
    return MessageStore.open(ROOT, CONFIG, machine.seams, options)


def group(store: MessageStore, epoch: int, count: int) -> list[Message]:
    """Records over several topics that name their epoch."""
    encoded = properties.encode({"EPOCH": str(epoch)}, trailing_separator=False)
    return [
        Message(TOPICS[n % 3], n % 2, b"%d" % epoch, encoded, store.host, store.host, 1)
        for n in range(count)
    ]


def epochs(store: MessageStore) -> list[int]:
    """Of every record, in the order of the log."""
    found: dict[int, int] = {}
    for queue in store.queues.all():
        for _, entry in queue.entries(queue.min_index, queue.max_index):
            with suppress(StorageError):
                record = store.log.record_at(entry.physical_offset)
                found[record.physical_offset] = int(record.body)
    return [epoch for _, epoch in sorted(found.items())]


class Leaders:
    """Leaders that follow one another, and old ones that do not know that they are over."""

    def __init__(self, seed: int, examined: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.chance = random.Random(seed + 1)
        self.examined = examined
        self.machine = SimulatedMachine(seed)
        self.store = opened(self.machine)
        self.answered = -1
        """The highest epoch that a raise was answered with."""
        self.next_epoch = 0
        self.raised = False
        """Since the store was opened."""
        self.states = 0
        self.found: AssertionError | None = None
        """Kept here: the store takes what a crash point raises for a failing disk."""
        self.machine.disk.before_effect = self._crash_point

    def live(self, steps: int) -> None:
        for _ in range(steps):
            with suppress(OSError, StorageError):
                self._step()
            if self.store.failure is not None:
                self._restart(None)
            if self.found is not None:
                raise self.found
        self.machine.disk.before_effect = None
        self.machine.disk.forgive()
        hold(self.store, self.answered)

    def _step(self) -> None:
        match self.rng.randrange(12):
            case 0:
                self._restart(self.rng.choice(CRASHES))
            case 1:
                number = len(self.machine.disk.trace) + self.rng.randrange(20)
                self.machine.disk.fail_at(number, self.rng.choice([errno.EIO, errno.ENOSPC]))
            case 2 | 3 | 4:
                self.next_epoch += 1
                self.store.fences.raise_to(FENCE, self.next_epoch)
                self.answered, self.raised = self.next_epoch, True
            case _:
                self._append(self.rng.randint(max(0, self.next_epoch - 2), self.next_epoch))

    def _append(self, epoch: int) -> None:
        store = self.store
        end = store.log.max_offset
        try:
            store.append_fenced(FENCE, epoch, group(store, epoch, self.rng.randint(1, 6)))
        except (FencedOff, FenceUnknown):
            assert store.log.max_offset == end
            # A raise that was not answered may have counted; so may none since the opening.
            assert epoch != self.answered or self.next_epoch > self.answered or not self.raised
            return
        assert self.raised, "nobody had looked what the log has"
        assert epoch >= self.answered, "an older epoch got in"
        if self.rng.random() < 0.5:
            store.flush.flush_all()

    def _restart(self, loss: Loss | None) -> None:
        disk = crashed(self.machine.disk, loss, self.rng)
        self.machine = self.machine.restart(disk)
        self.raised = False
        try:
            self.store = opened(self.machine)
        except (OSError, StorageError):
            self.machine = self.machine.restart(disk.kill())
            self.store = opened(self.machine)
        hold(self.store, self.answered)
        self.machine.disk.before_effect = self._crash_point

    def _crash_point(self) -> None:
        if self.found is not None or self.chance.random() >= self.examined:
            return
        disk = crashed(self.machine.disk, self.chance.choice(CRASHES), self.chance)
        self.states += 1
        try:
            machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
            hold(opened(machine), self.answered)
        except AssertionError as error:
            self.found = error


def crashed(disk: SimulatedDisk, loss: Loss | None, rng: random.Random) -> SimulatedDisk:
    return disk.kill() if loss is None else disk.power_cut(rng.getrandbits(32), loss)


def hold(store: MessageStore, answered: int) -> None:
    """What was answered stands, an older leader is refused, and the log's epochs never go back."""
    present = store.fences.get(FENCE).epoch if store.fences.all() else -1
    assert present >= answered, "a fence was forgotten"
    for epoch in range(max(0, answered - 2), answered):
        with pytest.raises(FencedOff):
            store.append_fenced(FENCE, epoch, group(store, epoch, 1))
    found = epochs(store)
    assert found == sorted(found), "an older epoch got in"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_any_crash_the_fence_stands_where_it_was_answered(seed: int) -> None:
    leaders = Leaders(seed, examined=0.2)
    leaders.live(80)
    assert leaders.states > 10


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_restarts_no_older_epoch_gets_in(seed: int) -> None:
    Leaders(seed).live(80)


@pytest.mark.slow
@settings(max_examples=nightly_examples(150), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_long_lives_no_older_epoch_gets_in(seed: int) -> None:
    Leaders(seed, examined=0.05).live(200)
