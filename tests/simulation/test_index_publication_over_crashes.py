"""A rebuilt index takes the old one's place while processes die and the power is cut."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mqstore.storage._kernel import item_at
from mqstore.storage.errors import StagingDamaged
from mqstore.storage.index.build import (
    BuildPlan,
    PartBuilder,
    finish_files,
    make_files,
)
from mqstore.storage.index.plan import IndexPlan, Item, Layout
from mqstore.storage.index.publication import StagedFile, index_names
from mqstore.storage.index.scan import Chunk, IndexScan
from mqstore.storage.index.service import IndexService
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.paths import StorePaths
from tests.long_runs import few_first
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.simulation.crashes import CrashPoints
from tests.simulation.driver import CONFIG, NewMessage, message_of
from tests.simulation.inode import Loss
from tests.unit.storage.puts import put_message

pytestmark = pytest.mark.slow

ROOT = Path("/store")
MESSAGES = 200
PARTS = 3
OTHER_SIZES = Layout(slots=23, index_num=100, tags=False)
SAME_SIZES = Layout(CONFIG.max_hash_slot_num, CONFIG.max_index_num, tags=False)


def opened(machine: SimulatedMachine, *, rebuilds: bool = False) -> MessageStore:
    options = StoreOptions(boot_id="0" * 32, pid=1, services=not rebuilds, replaces_index=rebuilds)
    return MessageStore.open(ROOT, CONFIG, machine.seams, options)


class Life:
    """A store whose index is rebuilt; every effect on its disk may be the last."""

    def __init__(self, seed: int, layout: Layout) -> None:
        self.layout = layout
        self.chance = random.Random(seed)
        self.machine = SimulatedMachine(seed)
        self.machine.disk.make_directories(ROOT)
        self.placed: dict[int, int] = {}
        with opened(self.machine) as store:
            for number in range(MESSAGES):
                new = NewMessage(number, 40, number % 7, None)
                message = message_of(store, ("T", number % 2), new, self.machine.clock.now_ms())
                self.placed[number] = put_message(store, message, Durability.ASYNC).physical_offset
            store.wait_for_index()

    def rebuild(self) -> int:
        """Returns the number of crashes."""
        points = CrashPoints(self.chance, self._examine)
        with points.of(self.machine.disk):
            store = opened(self.machine, rebuilds=True)
            staged, plan = stage(store, self.layout)
            end_ms = plan.files[-1].end[1]
            store.index.publish(
                staged, self.layout.slots, self.layout.index_num, store.store_id, end_ms
            )
            store.close()
        self.check(self.machine.disk.kill())
        return points.states

    def _examine(self, disk: SimulatedDisk, _: Loss | None) -> None:
        self._readers_find_all(self.machine.disk.kill())
        self.check(disk)

    def _readers_find_all(self, disk: SimulatedDisk) -> None:
        """In the files as they are, of the one or the other layout."""
        seams = SimulatedMachine(1, clock=disk.clock, disk=disk).seams
        keys = range(MESSAGES)
        found: dict[int, set[int]] = {number: set() for number in keys}
        for layout in (SAME_SIZES, self.layout):
            sizes = {"max_hash_slot_num": layout.slots, "max_index_num": layout.index_num}
            config = CONFIG.model_copy(update=sizes)
            index = IndexService(StorePaths(ROOT), config, StoreFormat.V4_9, seams, writable=False)
            index.load(safe=True)
            for number in keys:
                found[number] |= set(index.query("T", f"n{number}", 100).offsets)
            index.close()
        assert all(self.placed[number] in found[number] for number in keys)

    def check(self, disk: SimulatedDisk) -> None:
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        with opened(machine) as store:
            store.wait_for_index()
            paths, files = store.paths, machine.disk
            assert files.stat(paths.index_staging) is None
            assert files.stat(paths.index_journal) is None
            for number, offset in self.placed.items():
                assert offset in store.index.query("T", f"n{number}", 100).offsets
            assert {file.path.name for file in store.index.files} == set(index_names(files, paths))
            sizes = store.index.slots, store.index.index_num
            assert sizes in {(each.slots, each.index_num) for each in (SAME_SIZES, self.layout)}


def scan_of(store: MessageStore, offset: int, layout: Layout, parts: int) -> tuple[IndexScan, int]:
    """Scan the segment with a physical offset up to the end of its records."""
    place = store.log.view_from(offset)
    assert place is not None
    view, position, end = place
    base = offset - position
    named = store.queues
    scan = IndexScan(view[:end], base, named, parts=parts, slots=layout.slots, tags=layout.tags)
    return scan, base + end


def stage(store: MessageStore, layout: Layout) -> tuple[list[StagedFile], BuildPlan]:
    chunks: list[tuple[Chunk, list[bytes]]] = []
    offset = store.log.min_offset
    while offset < store.log.max_offset:
        scan, end = scan_of(store, offset, layout, PARTS)
        chunks += scan.chunks(offset, end, 10)
        offset = end

    def item(chunk: Chunk, number: int) -> Item:
        scan, _ = scan_of(store, chunk.start, layout, 1)
        _, (items,) = next(scan.chunks(chunk.start, chunk.end))
        found = item_at(items, number)
        assert found is not None
        return found

    plan = IndexPlan([chunk for chunk, _ in chunks], layout)
    build = BuildPlan.of(plan, plan.files(item))
    files, directory = store._parts.seams.files, store.paths.index_staging
    make_files(files, directory, build)
    built = []
    for part in range(PARTS):
        builder = PartBuilder(files, directory, build)
        for chunk, items in chunks:
            builder.add(chunk.start, items[part])
        built.append(builder.close())
    return finish_files(files, directory, build, built), build


@pytest.mark.parametrize("layout", few_first([SAME_SIZES, OTHER_SIZES]))
def test_every_crash_of_a_publication_leaves_the_old_index_or_the_new_one(layout: Layout) -> None:
    life = Life(1, layout)
    assert life.rebuild() > 10


def test_a_rebuild_that_is_given_up_leaves_a_store_as_clean_as_it_was() -> None:
    life = Life(3, SAME_SIZES)
    with opened(life.machine, rebuilds=True) as store:
        abort = store.paths.abort
    assert life.machine.disk.stat(abort) is None
    disk = life.machine.disk
    disk.write(abort, b"")
    disk.unlink(store.paths.manifest)
    opened(life.machine, rebuilds=True).close()
    assert disk.stat(abort) is not None
    life.check(disk.kill())


def test_what_was_staged_and_changed_since_is_not_published() -> None:
    life = Life(2, SAME_SIZES)
    with opened(life.machine, rebuilds=True) as store:
        before = index_names(life.machine.disk, store.paths)
        staged, _ = stage(store, SAME_SIZES)
        changed = life.machine.disk.map(store.paths.index_staging / staged[0].staged, writable=True)
        changed.view[300] ^= 1
        changed.unmap()
        with pytest.raises(StagingDamaged, match="is not what was written"):
            store.index.publish(staged, SAME_SIZES.slots, SAME_SIZES.index_num, store.store_id, 1)
        assert index_names(life.machine.disk, store.paths) == before
