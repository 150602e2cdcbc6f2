"""The cleaner at work while processes die, disks fail and the power is cut."""

from __future__ import annotations

import errno
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.message_store import Durability, MessageStore
from tests.long_runs import examples, few_first
from tests.simulation.crash_states import Crash, examine
from tests.simulation.driver import NewMessage
from tests.simulation.inode import Loss
from tests.simulation.world import World

pytestmark = pytest.mark.slow

CLEANING: Final = {
    "file_reserved_time": 0,
    "delete_when": ";".join(map(str, range(24))),
    "clean_resource_interval": 300,
    "delete_commit_log_files_interval": 10,
    "delete_consume_queue_files_interval": 10,
    "delete_file_batch_max": 2,
}
"""Every segment but the newest has expired, and rounds come all the time."""
EVERY_POINT: Final = 7


class CleaningWorld(World):
    """Segments go by themselves; those that went with their directory synced never come back."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.config = self.config.model_copy(update=CLEANING)
        self.cleaned = 0
        self.states = 0
        self._points = 0

    def open(self) -> MessageStore:
        """An opening that the disk ends halfway may have cleaned already."""
        size = self.config.mapped_file_size_commit_log
        self.model.expire_up_to(self.model.end // size * size)
        return super().open()

    def _follow(self) -> None:
        super()._follow()
        if self.driver is None:
            return
        log = self.driver.store.log
        low, newest = log.min_offset, log.files.last
        self.cleaned = max(self.cleaned, low)
        self.model.expired(low)
        self.model.expire_up_to(low if newest is None else newest.base_offset)

    def examine_now_and_then(self) -> None:
        self._points += 1
        if self._points % EVERY_POINT == 0 and self.driver is not None:
            crash = list(Crash)[self._points // EVERY_POINT % len(Crash)]
            examine(self, crash, self._points)
            self.states += 1


@settings(max_examples=examples(10))
@given(seed=st.integers(0, 2**32))
def test_messages_that_are_not_expired_survive_a_cleaner_that_dies_at_work(seed: int) -> None:
    CleaningWorld(seed).live(120)


@pytest.mark.parametrize("seed", few_first([1, 2], others=pytest.mark.nightly))
def test_every_crash_of_a_cleaner_leaves_a_whole_store(seed: int) -> None:
    world = CleaningWorld(seed)
    world.on_crash_point = world.examine_now_and_then
    world.live(100)
    for _ in range(20):  # another service more makes another history of a seed
        if world.cleaned:
            break
        world.live(20)
    assert world.cleaned > 0
    assert world.states > 20


@pytest.mark.parametrize("loss", Loss)
def test_a_pin_that_was_answered_survives_a_power_cut_and_keeps_its_range(loss: Loss) -> None:
    world = CleaningWorld(5)
    store = world.open()
    store.retention.put_pin("job", 0, None, lease_s=3600, why="a test")
    world.lose_power(loss)
    store = world.open()
    assert world.driver is not None
    for number in range(300):
        new = NewMessage(number, 300, 0, None)
        world.driver.put(("T", 0), [new], Durability.ASYNC)
    world.scheduler.run_for(10)
    assert store.log.min_offset == 0
    store.retention.remove_pin("job")
    world.scheduler.run_for(10)
    assert store.log.min_offset > 0
    world.kill()
    world.open()


@pytest.mark.parametrize("name", ["write", "rename", "sync_directory"])
def test_a_pin_that_the_disk_refused_is_not_there(name: str) -> None:
    world = CleaningWorld(6)
    retention = world.open().retention
    world.disk.fail_next(name, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        retention.put_pin("job", 0, None, lease_s=3600, why="a test")
    assert retention.pins() == []
