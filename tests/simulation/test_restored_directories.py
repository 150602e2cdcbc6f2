"""Segments that go, logs and roots that come back from a snapshot: nothing is written to a store
that lacks what was on disk, and nothing is given out twice once the loss is accepted."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from mqstore.storage import accept_loss
from mqstore.storage.errors import DataMissing
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from tests.long_runs import few_first
from tests.simulation.crash_states import MARK
from tests.simulation.disk import SimulatedDisk
from tests.simulation.driver import NewMessage, message_of
from tests.simulation.inode import Loss
from tests.simulation.invariants import Checker
from tests.simulation.model import QueueKey
from tests.simulation.restored import CHANGES, durable_end, lacks, lived, next_offsets
from tests.simulation.world import ROOT, World, open_store, seams_on
from tests.unit.storage.puts import put_message

pytestmark = pytest.mark.slow

SEEDS = (*range(100, 110), 130, 158)
"""In the last two, entries beside the loss are in the page cache only when it is accepted."""
MANY = range(120, 520)
STEPS = 160
CRASHES = 4
"""Crash states that are tested of an opening that continues after a loss."""


@pytest.mark.parametrize("change", few_first(CHANGES))
def test_what_is_missing_is_noticed_and_what_is_accepted_goes_on(change: str) -> None:
    noticed = sum(_examine(seed, change) for seed in SEEDS)
    assert noticed > 0 or change in ("nothing", "older root")


@pytest.mark.nightly
@pytest.mark.parametrize("change", CHANGES)
def test_so_it_is_in_many_worlds(change: str) -> None:
    for seed in MANY:
        _examine(seed, change)


def _examine(seed: int, change: str) -> bool:
    """Whether something was missing."""
    world, earlier = lived(seed, STEPS)
    disk, rng = world.disk, random.Random(seed)
    begin = min(world.model.min_range)
    CHANGES[change](disk, earlier, rng)
    end = durable_end(disk)
    is_missing = lacks(disk, world.model, begin, end)
    if change == "nothing":
        assert not is_missing
    seams = seams_on(disk.kill(), seed)
    try:
        store = open_store(seams, world.format, world.config)
    except DataMissing as missing:
        assert is_missing or change in ("first segment", "older root"), (seed, missing)
        _is_left_alone(world, disk, seed)
        _goes_on(world, disk, seed, missing)
        return True
    assert not is_missing, f"seed {seed}: it takes messages, and lacks what was durable"
    if change == "nothing":
        Checker(store, world.model, seams, rng, torn=world.torn).check(world.floor)
    return False


def _is_left_alone(world: World, disk: SimulatedDisk, seed: int) -> None:
    """An opening changes nothing, and what is there can be looked at."""
    tried = disk.kill()
    with pytest.raises(DataMissing):
        open_store(seams_on(tried, seed), world.format, world.config)
    assert _content(tried) == _content(disk)
    options = StoreOptions(in_place=False, services=False, boot_id="0" * 32)
    store = MessageStore.open(ROOT, world.config, seams_on(tried, seed), options)
    assert store.read_only_reason is not None
    assert _content(tried) == _content(disk)


def _content(disk: SimulatedDisk) -> dict[str, bytes]:
    return {str(path): disk.read(path) for path in disk.paths()}


def _goes_on(world: World, disk: SimulatedDisk, seed: int, missing: DataMissing) -> None:
    """Accepted, opened (once more after a power cut in between), and written to."""
    accept_loss.accept(ROOT, world.config, disk, disk.clock, missing.loss.confirmation)
    due = next_offsets(disk, world, missing.loss.watermark)
    for crashed in _openings(world, disk, seed):
        store = open_store(seams_on(crashed, seed), world.format, world.config)
        placed = [(key, _put(store, crashed, key)) for key in sorted(due)]
        for key, (queue_offset, offset) in placed:
            assert queue_offset >= due[key], (key, "gives out a queue offset again")
            assert offset >= missing.loss.watermark, (key, "gives out a message id again")
        after = crashed.power_cut(seed, Loss.DROP)
        again = open_store(seams_on(after, seed), world.format, world.config)
        for key, (queue_offset, offset) in placed:
            queue = again.queues.get(*key)
            assert queue is not None
            entry = queue.entry(queue_offset)
            assert entry is not None
            assert entry.physical_offset == offset
            assert again.log.record_at(offset).queue_offset == queue_offset


def _put(store: MessageStore, disk: SimulatedDisk, key: QueueKey) -> tuple[int, int]:
    new = NewMessage(MARK, 50, 0, None)
    placed = put_message(store, message_of(store, key, new, disk.clock.now_ms()), Durability.SYNC)
    return placed.queue_offset, placed.physical_offset


def _openings(world: World, disk: SimulatedDisk, seed: int) -> Iterator[SimulatedDisk]:
    """The disk as the loss was accepted, and as crashes of the opening that acts on it leave it."""
    states = [disk.kill()]
    working, numbers = disk.kill(), random.Random(seed)

    def crash() -> None:
        if numbers.random() < 0.1:
            states.append(working.power_cut(numbers.getrandbits(32), numbers.choice(list(Loss))))

    working.before_effect = crash
    open_store(seams_on(working, seed), world.format, world.config)
    yield from [states[0], *numbers.sample(states[1:], min(CRASHES, len(states) - 1))]
