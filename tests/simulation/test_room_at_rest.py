"""A store on a volume without a free block is opened for writing: the oldest segment goes first,
where retention would delete it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage import room_at_rest
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import DiskRefuses, StoreLocked
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from tests.long_runs import few_first
from tests.simulation import Loss, PowerCut, SimulatedDisk, SimulatedMachine
from tests.simulation.retention_machine import HOUR_S, SEGMENT, Machine
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message

pytestmark = pytest.mark.slow

ROOT = Path("/store")
RATIOS = {
    "disk_max_used_space_ratio": 100,
    "disk_space_clean_forcibly_ratio": 100,
    "disk_space_warning_level_ratio": 100,
}
"""Segments go only because the next one does not fit."""
NOTE_S = 65
"""Until the engine has noted how far the queues are on disk."""
OPTIONS = StoreOptions()


class Rest:
    """The store at rest, on a disk whose every block is in use."""

    def __init__(
        self, *, closed: bool = False, ahead: bool = False, hours: float = 2, **settings: object
    ) -> None:
        """``ahead``: with a segment that was made ahead of need."""
        before = Machine(1, **RATIOS, **settings)
        before.fill(4)
        before.settle()
        before.run(NOTE_S)
        before.fill(5)
        before.store.flush.flush_all()
        self.config = before.config
        self.segments = [file.path.name for file in before.store.log.files.files]
        self.bodies = bodies(before.store)
        if not ahead:
            before.store.retention.removal.give_up_spares()
        if closed:
            before.store.close()
        self.start(before.disk.kill())
        self.machine.clock.step(round(hours * HOUR_S * 1000))
        self.fill_disk()

    def start(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.machine = SimulatedMachine(7, clock=disk.clock, disk=disk)

    def fill_disk(self) -> None:
        self.disk.capacity = self.disk.usage(ROOT).used

    def open(self) -> MessageStore:
        return MessageStore.open(ROOT, self.config, self.machine.seams, OPTIONS)

    def open_at_last(self) -> MessageStore:
        """As store-writer does: an attempt may end half-way."""
        for _ in self.segments:
            try:
                return self.open()
            except DiskRefuses:
                assert self.make_room() is not None
        raise AssertionError

    def make_room(self, config: StoreConfig | None = None, **options: object) -> object:
        chosen = StoreOptions(**options)  # type: ignore[arg-type] # passed through
        return room_at_rest.make_room(ROOT, config or self.config, self.machine.seams, chosen)

    def segments_now(self) -> list[str]:
        return [name for name in self.segments if (self.disk.stat(ROOT / "commitlog" / name))]


def bodies(store: MessageStore) -> dict[int, bytes]:
    """By physical offset."""
    found = {}
    for queue in store.queues.all():
        for _, entry in queue.entries(queue.min_index, queue.max_index):
            if entry.physical_offset >= store.log.min_offset:
                record = store.log.record_at(entry.physical_offset)
                found[entry.physical_offset] = record.body
    return found


@pytest.mark.parametrize("closed", [False, True])
def test_a_full_volume_is_opened_once_the_oldest_segment_went(closed: bool) -> None:
    rest = Rest(closed=closed)
    with pytest.raises(DiskRefuses):
        rest.open()
    figures = rest.make_room()
    assert isinstance(figures, dict)
    assert figures["segment"] == rest.segments[0]
    assert (figures["bytes"], figures["trigger"]) == (SEGMENT, "no-segment")
    assert figures["ageMs"] >= 2 * HOUR_S * 1000
    store = rest.open_at_last()
    assert store.read_only_reason is None
    least = store.log.min_offset
    assert least <= 2 * SEGMENT  # a segment has four blocks here
    assert rest.segments_now() == rest.segments[least // SEGMENT :]
    assert bodies(store) == {at: body for at, body in rest.bodies.items() if at >= least}
    rest.machine.scheduler.run_for(30)
    put_message(store, message(store, 100_000), Durability.SYNC)
    store.close()


def test_segments_made_ahead_go_before_any_message() -> None:
    rest = Rest(ahead=True)
    ahead = f"{int(rest.segments[-1]) + SEGMENT:020d}"
    assert rest.disk.stat(ROOT / "commitlog" / ahead) is not None
    figures = rest.make_room()
    assert isinstance(figures, dict)
    assert (figures["segment"], figures["bytes"]) == (None, SEGMENT)
    assert rest.segments_now() == rest.segments
    assert bodies(rest.open()) == rest.bodies


@pytest.mark.parametrize(
    "keeps",
    [
        {"hours": 0.5},
        {"clean_file_forcibly_enable": False},
        {"keep_for_groups": "g", "keep_disk_ceiling_ratio": 100},
    ],
)
def test_what_retention_keeps_stays(keeps: dict[str, object]) -> None:
    rest = Rest(closed=True, **keeps)  # type: ignore[arg-type]
    before = [(path, rest.disk.stat(path)) for path in rest.disk.paths()]
    assert rest.make_room() is None
    assert [(path, rest.disk.stat(path)) for path in rest.disk.paths()] == before


def test_a_process_whose_retention_deletes_nothing_makes_no_room() -> None:
    assert Rest(closed=True).make_room(deletes=False) is None


def test_nothing_goes_while_there_is_room_to_open_the_store() -> None:
    rest = Rest(closed=True)
    rest.disk.capacity += room_at_rest.ROOM_TO_OPEN
    assert rest.make_room() is None


def test_nothing_goes_from_a_directory_without_a_store() -> None:
    rest = Rest(closed=True)
    rest.disk.make_directories(Path("/other"))
    seams = rest.machine.seams
    assert room_at_rest.make_room(Path("/other"), rest.config, seams, OPTIONS) is None


def test_an_open_store_makes_no_room_this_way() -> None:
    rest = Rest()
    rest.disk.capacity += 32 << 20
    store = rest.open()
    with pytest.raises(StoreLocked):
        rest.make_room()
    store.close()


def test_entries_that_may_not_be_on_disk_keep_their_segment() -> None:
    rest = Rest(closed=True)
    rest.disk.unlink(ROOT / "mqstore" / "clean-close.json")
    rest.disk.unlink(ROOT / "mqstore" / "running.json")
    assert rest.make_room() is None


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("loss", few_first(Loss, 2, others=pytest.mark.nightly))
def test_a_power_cut_at_any_moment_of_it_costs_no_more_than_the_segment(
    closed: bool, loss: Loss
) -> None:
    whole = Rest(closed=closed)
    image = whole.disk
    whole.start(image.kill())
    whole.make_room()
    moments = list(whole.disk.effects)
    assert len(moments) > 3
    for seed, moment in enumerate(moments):
        whole.start(image.kill())
        whole.disk.cut_at(moment)
        with pytest.raises(PowerCut):
            whole.make_room()
        whole.start(whole.disk.power_cut(seed, loss))
        whole.disk.capacity += 1 << 20
        store = whole.open()
        assert store.read_only_reason is None
        least = store.log.min_offset
        assert least in (0, SEGMENT)
        kept = {at: body for at, body in whole.bodies.items() if at >= least}
        assert bodies(store) == kept
        store.close()
