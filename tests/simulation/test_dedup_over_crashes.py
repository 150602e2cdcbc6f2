"""Clients that send again whatever was not answered: each message is there once, whatever crashed.

Wherever a crash would leave another state behind, some copies of the disk are opened, and all that
is unanswered there is sent again.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.dedup.puts import Put, end_of
from mqstore.storage.errors import StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore, StoreOptions
from tests.long_runs import examples, few_first, nightly_examples
from tests.simulation import SimulatedMachine
from tests.simulation.crashes import CRASHES, crashed
from tests.simulation.driver import CONFIG, POOLED
from tests.simulation.inode import Loss
from tests.simulation.world import ROOT

pytestmark = pytest.mark.slow

TOPIC: Final = "T"
QUEUES: Final = 2
SIZE_MAX: Final = 700
Request = tuple[int, ...]
"""The numbers of its messages."""


class Process:
    """One process after another on one machine, and what can be sent to it."""

    def __init__(self, machine: SimulatedMachine, seed: int, store_format: StoreFormat) -> None:
        self.machine = machine
        self.seed = seed
        machine.disk.make_directories(ROOT)
        options = StoreOptions(format=store_format, boot_id=machine.clock.boot_id, pid=1)
        config = POOLED if seed % 3 == 0 else CONFIG
        self.store: MessageStore = MessageStore.open(ROOT, config, machine.seams, options)

    def send(self, request: Request, *, sync: bool) -> Put:
        """Raises what the store raises."""
        store = self.store
        messages = [self._message(each) for each in request]
        keys = [f"u{each}" for each in request]
        is_batch = len(messages) > 1 and len({each.queue_id for each in messages}) == 1
        put = store.append(messages, keys, as_batch=is_batch)
        if store.commits is not None:
            store.commits.wait(end_of(put))
        if sync:
            store.flush.wait(store.flush.request(end_of(put)))
        return put

    def _message(self, number: int) -> Message:
        store = self.store
        encoded = properties.encode(
            {"UNIQ_KEY": f"u{number}"}, trailing_separator=store.format.trailing_property_separator
        )
        body = (b"%d:" % number).ljust(10 + hash((self.seed, number)) % SIZE_MAX, b".")
        host, now_ms = store.host, self.machine.clock.now_ms()
        return Message(TOPIC, number % QUEUES, body, encoded, host, host, now_ms)

    def numbers(self) -> Counter[int]:
        """How often each message is in the log."""
        found: Counter[int] = Counter()
        for queue in self.store.queues.all():
            for index, entry in queue.entries(queue.min_index, queue.max_index):
                with suppress(StorageError):
                    record = self.store.log.record_at(entry.physical_offset)
                    # An entry that fills a hole names another message, or the log's first byte.
                    if (record.queue_id, record.queue_offset) == (queue.queue_id, index):
                        found[int(record.body.partition(b":")[0])] += 1
        return found


class Life:
    """Sends, crashes, sends again; every crash must keep what was acknowledged."""

    def __init__(self, seed: int, examined: float = 0.0) -> None:
        """``examined``: the share of crash points that are looked at."""
        self.rng = random.Random(seed)
        self.chance = random.Random(seed + 1)
        self.examined = examined
        self.seed = seed
        self.format = self.rng.choice(list(StoreFormat))
        self.process = Process(SimulatedMachine(seed), seed, self.format)
        self.sent: list[Request] = []
        self.durable: set[int] = set()
        """Acknowledged as sync, or after such a one."""
        self.acknowledged: set[int] = set()
        self.next_number = 0
        self.states = 0
        self.found: AssertionError | None = None
        """Kept here: the store takes what a crash point raises for a failing disk."""
        self._begin()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            with suppress(OSError, StorageError):
                self._step()
            if self.process.store.failure is not None:
                self._restart(None)
            if self.found is not None:
                raise self.found
        self.process.machine.disk.before_effect = None
        self.process.machine.disk.forgive()
        if self.process.store.failure is None:
            settle(self.process, self.sent, self.acknowledged)

    def _begin(self) -> None:
        self.process.machine.disk.before_effect = self._crash_point

    def _step(self) -> None:
        rng, machine = self.rng, self.process.machine
        match rng.randrange(16):
            case 0:
                self._restart(rng.choice(CRASHES))
            case 1:
                with suppress(StorageError):
                    self.process.store.close()
                self._restart(None)
            case 2:
                machine.clock.step(rng.randint(-5_000, 5_000))
            case 3:
                number = len(machine.disk.trace) + rng.randrange(60)
                machine.disk.fail_at(number, rng.choice([errno.EIO, errno.ENOSPC]))
            case 4:
                machine.scheduler.run_for(rng.random() * 3)
            case 5 | 6 if self.sent:
                self._send(rng.choice(self.sent[-30:]))
            case _:
                self._send(self._draw())

    def _draw(self) -> Request:
        """Draw messages of one queue, as a batch has them."""
        first, count = self.next_number, self.rng.choice([1, 1, 1, 2, 5])
        self.next_number += QUEUES * count
        return tuple(range(first + self.rng.randrange(QUEUES), self.next_number, QUEUES))

    def _send(self, request: Request) -> None:
        sync = self.rng.random() < 0.4
        if request not in self.sent:
            self.sent.append(request)
        self.process.send(request, sync=sync)
        self.acknowledged |= set(request)
        if sync:
            self.durable |= set(request)

    def _restart(self, loss: Loss | None) -> None:
        disk = crashed(self.process.machine.disk, loss, self.rng)
        try:
            self.process = Process(self.process.machine.restart(disk), self.seed, self.format)
        except (OSError, StorageError):
            machine = self.process.machine.restart(disk.kill())
            self.process = Process(machine, self.seed, self.format)
        self.acknowledged &= self.process.numbers().keys()
        assert self.durable <= self.acknowledged, "lost"
        self.durable = set(self.acknowledged)
        self._begin()

    def _crash_point(self) -> None:
        if self.found is not None or self.chance.random() >= self.examined:
            return
        loss = self.chance.choice(CRASHES)
        disk = crashed(self.process.machine.disk, loss, self.chance)
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        self.states += 1
        try:
            after = Process(machine, self.seed, self.format)
            settle(after, self.sent, self.acknowledged if loss is None else self.durable)
        except AssertionError as error:
            self.found = error


def settle(process: Process, sent: list[Request], promised: set[int]) -> None:
    """Everything is sent again: then each message is there once, where the answer says."""
    process.store.wait_for_index()  # and the queues: with a pool they follow in the background
    there = process.numbers()
    assert promised <= there.keys(), f"lost: {promised - there.keys()}"
    for request in sent:
        placements, repeats = process.send(request, sync=True)
        known = {number for at, number in enumerate(request) if at in repeats}
        assert known == there.keys() & set(request), "stored again, or taken for stored"
        for number, placement in zip(request, placements, strict=True):
            record = process.store.log.record_at(placement.physical_offset)
            assert record.uniq_key == f"u{number}"
            assert (record.queue_offset, record.size) == (placement.queue_offset, placement.size)
    process.store.wait_for_index()
    again = [number for number, count in process.numbers().items() if count > 1]
    assert not again, f"stored twice: {again}"


@pytest.mark.parametrize("seed", few_first([1, 2, 3], others=pytest.mark.nightly))
def test_after_any_crash_a_retry_stores_what_is_missing_and_nothing_twice(seed: int) -> None:
    life = Life(seed, examined=0.1)
    life.live(120)
    assert life.states > 10


@settings(max_examples=examples(8), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_restarts_nothing_is_stored_twice(seed: int) -> None:
    Life(seed).live(80)


@pytest.mark.parametrize("seed", [2337760300, 5060])
def test_a_tombstone_hides_no_message_that_was_put(seed: int) -> None:
    Life(seed, examined=0.03).live(200)


@pytest.mark.slow
@settings(max_examples=nightly_examples(150), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_long_lives_nothing_is_stored_twice(seed: int) -> None:
    Life(seed, examined=0.03).live(200)


@pytest.mark.parametrize("step_ms", [86_400_000, -86_400_000])
@pytest.mark.parametrize("loss", CRASHES)
def test_what_is_sent_again_is_known_whatever_the_clock_was_set_to(
    step_ms: int, loss: Loss | None
) -> None:
    process = Process(SimulatedMachine(1), 1, StoreFormat.V4_9)
    process.send((1,), sync=True)
    process.machine.clock.step(step_ms)
    process.send((2,), sync=True)
    process.machine.clock.step(-step_ms)
    process.send((3,), sync=True)
    disk = crashed(process.machine.disk, loss, random.Random(1))
    again = Process(process.machine.restart(disk), 1, StoreFormat.V4_9)
    assert again.send((1, 2, 3), sync=True)[1] == {0, 1, 2}
