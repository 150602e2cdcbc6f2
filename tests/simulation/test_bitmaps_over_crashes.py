"""Units of ConsumeQueueExt over crashes: each that an entry names is true of the entry's message.

Subscriptions come, change and go meanwhile, the setting is switched off and on, and now and then a
recovery may trust nothing of what was left, as after a broker's run.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.errors import StorageError
from mqstore.storage.filter.bloom import has
from mqstore.storage.filter.expression import compile_expression
from mqstore.storage.message_store import MessageStore, StoreOptions
from tests.long_runs import few_first, nightly_examples
from tests.simulation import SimulatedMachine
from tests.simulation.crashes import CRASHES
from tests.simulation.disk import SimulatedDisk
from tests.simulation.driver import CONFIG
from tests.simulation.inode import Loss
from tests.simulation.world import ROOT

pytestmark = pytest.mark.slow

WITH_UNITS: Final = CONFIG.model_copy(
    update={
        "enable_consume_queue_ext": True,
        "enable_calc_filter_bit_map": True,
        "mapped_file_size_consume_queue_ext": 1024,
    }
)
TOPICS: Final = ("T", "U")
GROUPS: Final = ("g", "h", "i")


class Life:
    """Puts and subscribes, crashes, and looks at every unit after each opening."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = SimulatedMachine(seed)
        self.units = 0
        """True ones that were seen."""
        self.machine.disk.make_directories(ROOT)
        self.store = self._open()
        for topic in TOPICS:
            self.store.create_topic(topic, queues=1)

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
        self._check()

    def _open(self) -> MessageStore:
        config = WITH_UNITS if self.rng.random() < 0.8 else CONFIG
        options = StoreOptions(boot_id="0" * 32, pid=1)
        return MessageStore.open(ROOT, config, self.machine.seams, options)

    def _step(self) -> None:
        rng = self.rng
        match rng.randrange(20):
            case 0:
                self._restart(rng.choice(CRASHES))
            case 1:
                self.store.close()
                self._restart(None)
            case 2:
                self.machine.clock.step(rng.randint(-5_000, 5_000))
            case 3 | 4:
                self.machine.scheduler.run_for(rng.random() * 90)
            case 5:
                expression = f"a > {rng.randrange(10)}"
                self.store.subscriptions.put(rng.choice(GROUPS), rng.choice(TOPICS), expression)
            case 6:
                with suppress(StorageError):
                    self.store.subscriptions.remove(rng.choice(GROUPS), rng.choice(TOPICS))
            case _:
                self._put()

    def _put(self) -> None:
        store, number = self.store, self.rng.randrange(10)
        raw = properties.encode(
            {"TAGS": f"t{number}", "a": str(number)},
            trailing_separator=store.format.trailing_property_separator,
        )
        body = bytes(self.rng.randrange(300))
        now_ms = self.machine.clock.now_ms()
        topic = self.rng.choice(TOPICS)
        for _ in range(self.rng.choice([1, 1, 10])):
            store.append(Message(topic, 0, body, raw, store.host, store.host, now_ms))

    def _restart(self, loss: Loss | None) -> None:
        disk = self._left(loss)
        if self.rng.random() < 0.3:  # a broker writes it at each of its starts
            disk.set_modified(ROOT / "lock", 1)
        self.machine = self.machine.restart(disk)
        self.store = self._open()
        self._check()

    def _left(self, loss: Loss | None) -> SimulatedDisk:
        disk = self.machine.disk
        return disk.kill() if loss is None else disk.power_cut(self.rng.getrandbits(32), loss)

    def _check(self) -> None:
        for queue in self.store.queues.all():
            for index, entry in queue.entries(queue.min_index, queue.max_index):
                if not entry.is_ext_address:
                    continue
                assert queue.ext is not None
                try:
                    found = self.store.log.record_at(entry.physical_offset)
                except StorageError:  # a tombstone: its unit is undefined
                    continue
                unit = queue.ext.unit(entry.tags_code)
                if unit is None and found.queue_offset != index:
                    continue  # it fills a hole, with an address that a crash left without its unit
                assert unit is not None
                assert unit[:2] == (found.tags_code, found.store_timestamp_ms)
                self._check_bits(found, unit.bitmap)
                self.units += 1

    def _check_bits(self, found: Record, bitmap: bytes) -> None:
        for each in self.store.subscriptions._table.of_topic(found.topic):
            is_counted = found.store_timestamp_ms > each.born_ms and len(bitmap) * 8 == each.bits
            expression = compile_expression(each.expression, self.store.format)
            if is_counted and expression.matches(found.properties or {}):
                assert has(bitmap, each.positions)


@pytest.mark.parametrize("seed", few_first([369_054, *range(8)], 2, others=pytest.mark.nightly))
def test_every_unit_is_true_of_its_message_whatever_crashed(seed: int) -> None:
    life = Life(seed)
    life.live(150)
    assert life.units > 50


@pytest.mark.slow
@settings(max_examples=nightly_examples(60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_long_lives_every_unit_is_true(seed: int) -> None:
    Life(seed).live(400)
