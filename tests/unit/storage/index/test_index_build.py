"""Index files built in parts, from ranges of the log, are those of a sequential build."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage._kernel import IndexItems, Stop, index_chain, item_at
from mqstore.storage.index.build import (
    BuildPlan,
    PartBuilder,
    PartCounts,
    finish_files,
    make_files,
)
from mqstore.storage.index.plan import IndexPlan, Item, Layout
from mqstore.storage.index.scan import Chunk, IndexScan
from mqstore.storage.layout import SCHEDULE_TOPIC, StoreFormat
from mqstore.storage.system.posix_files import PosixFileSystem
from tests.long_runs import examples
from tests.unit.storage.small_store import BORN_MS, SEGMENT, V4, V5, SmallLog, SmallStore
from tests.unit.storage.small_store import small_config as config

FILES = PosixFileSystem()
SLOTS, INDEX_NUM = 7, 9

texts = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\x01\x02"), min_size=1, max_size=6
)
properties = st.fixed_dictionaries(
    {},
    optional={
        "KEYS": st.sampled_from(["k", "k1 k2", " a  b ", "名"]) | texts,
        "UNIQ_KEY": st.sampled_from(["U1", "U2"]),
        "TAGS": st.sampled_from(["t", "u"]),
        "DELAY": st.just("3"),
    },
)
puts = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["a", "b", "%RETRY%g", SCHEDULE_TOPIC]),
        "props": properties,
        "sys_flag": st.sampled_from([0, 0, 0, 4, 8, 12]),
        "store_ms": st.integers(BORN_MS, BORN_MS + 100_000),
        "body": st.binary(max_size=300),
    }
)


def sequential(root: Path, log: SmallLog) -> list[bytes]:
    """Queues first, then the index by a run of its own, as a writer makes one that is gone."""
    SmallStore(root, log, indexed=False).dispatch()
    store = SmallStore(root, log, position=log.max_offset, index_position=0)
    store.dispatch()
    store.close()
    return store.index_bytes()


class Rebuild:
    def __init__(self, root: Path, log: SmallLog, parts: int = 1) -> None:
        self.queues = SmallStore(root, log, indexed=False)
        self.queues.dispatch()
        self.log = log
        self.parts = parts
        self.layout = Layout(SLOTS, INDEX_NUM, log.store_format.indexes_tags)
        self.staging = root / "staging"

    def scan(
        self, start: int, stop: int, records: int, parts: int
    ) -> list[tuple[Chunk, list[bytes]]]:
        number = start // SEGMENT
        view = memoryview(self.log.segments[number])[: self.log.wrote[number]].toreadonly()
        scan = IndexScan(
            view,
            number * SEGMENT,
            self.queues.queues,
            parts=parts,
            slots=SLOTS,
            tags=self.layout.tags,
        )
        return list(scan.chunks(start, stop, records))

    def ranges(self, cuts: Sequence[int]) -> Iterator[tuple[int, int]]:
        for number, wrote in enumerate(self.log.wrote):
            base, end = number * SEGMENT, number * SEGMENT + wrote
            inside = sorted({cut for cut in cuts if base < cut < end})
            yield from pairwise([base, *inside, end] if wrote else [])

    def run(self, cuts: Sequence[int] = (), records: int = 3) -> list[bytes]:
        chunks = [c for a, b in self.ranges(cuts) for c in self.scan(a, b, records, self.parts)]
        plan = IndexPlan([chunk for chunk, _ in chunks], self.layout)

        def item(chunk: Chunk, number: int) -> Item:
            found = item_at(self.scan(chunk.start, chunk.end, records, 1)[0][1][0], number)
            assert found is not None
            return found

        build = BuildPlan.of(plan, plan.files(item))
        make_files(FILES, self.staging, build)
        built = [self.part(build, part, chunks) for part in range(self.parts)]
        staged = finish_files(FILES, self.staging, build, built)
        assert sum(each.used for each in staged) == plan.staged_bytes
        return [(self.staging / each.staged).read_bytes() for each in staged]

    def part(
        self, build: BuildPlan, part: int, chunks: list[tuple[Chunk, list[bytes]]]
    ) -> PartCounts:
        builder = PartBuilder(FILES, self.staging, build)
        for chunk, items in chunks:
            builder.add(chunk.start, items[part])
        return builder.close()


def both(
    log: SmallLog, parts: int, cuts: Sequence[int] = (), records: int = 3
) -> tuple[list[bytes], list[bytes]]:
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        rebuilt = Rebuild(Path(second), log, parts).run(cuts, records)
        due = sequential(Path(first), log)
    if log.store_format is V5 and rebuilt and not any(rebuilt[-1][36:40]):
        rebuilt[-1] = rebuilt[-1][:36] + b"\0\0\0\1" + rebuilt[-1][40:]  # as a close does
    return rebuilt, due


def filled(count: int, store_format: StoreFormat = V4, **put: object) -> tuple[SmallLog, list[int]]:
    log = SmallLog(store_format)
    offsets = [
        log.put(
            props={"KEYS": f"k{n} common", "UNIQ_KEY": f"U{n}", "TAGS": "t"},
            store_ms=BORN_MS + 900 * n,
        )
        for n in range(count)
    ]
    return log, offsets


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(40))
@given(st.data(), st.sampled_from([V4, V5]), st.lists(puts, max_size=40), st.integers(1, SLOTS))
def test_any_partition_gives_the_bytes_of_a_sequential_build(
    data: st.DataObject, store_format: StoreFormat, records: list[dict[str, object]], parts: int
) -> None:
    log = SmallLog(store_format)
    offsets = [log.put(**each) for each in records]  # type: ignore[arg-type]  # drawn by name
    cuts = data.draw(st.lists(st.sampled_from(offsets))) if offsets else []
    rebuilt, due = both(log, parts, cuts, data.draw(st.integers(1, 5)))
    assert rebuilt == due


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(30))
@given(
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_damage_is_stepped_over_as_dispatch_does(
    changes: list[tuple[int, int]], parts: int
) -> None:
    log, _ = filled(40)
    for at, value in changes:  # not in the last segment: recovery would have cut the log there
        log.damage(at % SEGMENT, bytes([value]))
    rebuilt, due = both(log, parts)
    assert rebuilt == due


@pytest.mark.parametrize("count", [0, 1, 4, 8])
@pytest.mark.parametrize("store_format", [V4, V5])
def test_a_file_is_begun_by_the_next_record_where_the_last_one_is_full(
    count: int, store_format: StoreFormat
) -> None:
    """Records of two keys each: four of them fill a file of eight items in 4.9."""
    log = SmallLog(store_format)
    for number in range(count):
        log.put(props={"KEYS": f"a{number} b{number}"}, store_ms=BORN_MS + number)
    for keyless in range(2):
        assert both(log, 2)[0] == both(log, 2)[1], keyless
        log.put(props={}, sys_flag=12 * keyless)


def test_a_range_that_damage_leads_out_of_is_recognised_by_its_end(tmp_path: Path) -> None:
    log, offsets = filled(60)
    log.damage(offsets[3] + 4, b"\xcb\xd4\x31\x94")  # as a blank record: the segment ends here
    rebuild = Rebuild(tmp_path, log)
    chunk, _ = rebuild.scan(offsets[2], offsets[5], 100, 1)[0]
    assert chunk.end > offsets[5]
    assert both(log, 1)[0] == both(log, 1)[1]


def test_items_out_of_their_order_are_refused() -> None:
    items = IndexItems(1, SLOTS, False)
    items.add_record([5, 12], 100, BORN_MS)
    (found,) = items.take()
    file = memoryview(bytearray(Layout(SLOTS, INDEX_NUM, False).file_size))
    where = (SLOTS, INDEX_NUM), (0, SLOTS), (100, 101, 2)
    assert index_chain(found, 0, file, *where, 4, 0, 0) == (48, 1)
    with pytest.raises(ValueError, match="cannot stand here"):
        index_chain(found, 0, file, *where, 4, 0, 0)
    with pytest.raises(ValueError, match="no whole items"):
        index_chain(found, 3, file, *where, 6, 0, 0)


@pytest.mark.parametrize(
    ("numbers", "hashes", "slots", "chunk", "first"),
    [
        ((1, 0), (5, 5), (0, SLOTS), (100, 101, 2), 4),
        ((0, 0), (5, 6), (0, SLOTS), (100, 101, 2), 4),
        ((0, 2), (5, 6), (0, SLOTS), (100, 101, 2), 4),
        ((0, 1), (5, 6), (0, 6), (100, 101, 2), 4),
        ((0, 1), (5, 6), (6, SLOTS), (100, 101, 2), 4),
        ((0, 1), (5, 1 << 31), (0, SLOTS), (100, 101, 2), 4),
        ((0, 1), (5, 6), (0, SLOTS), (101, 200, 2), 4),
        ((0, 1), (5, 6), (0, SLOTS), (0, 100, 2), 4),
        ((0, 1), (5, 6), (0, SLOTS), (100, 101, 2), -7),
    ],
)
def test_items_of_another_place_are_refused(
    numbers: tuple[int, int],
    hashes: tuple[int, int],
    slots: tuple[int, int],
    chunk: tuple[int, int, int],
    first: int,
) -> None:
    """By their number, hash, slot or offset; none is written outside of the part's slots."""
    items = b"".join(
        struct.pack("=IIqq", number, key_hash, 100, BORN_MS)
        for number, key_hash in zip(numbers, hashes, strict=True)
    )
    file = memoryview(bytearray(Layout(SLOTS, INDEX_NUM, False).file_size))
    with pytest.raises(ValueError, match="cannot stand here"):
        index_chain(items, 0, file, (SLOTS, INDEX_NUM), slots, chunk, first, 0, 0)
    assert not any(file[:40])
    outside = [slot for slot in range(SLOTS) if not slots[0] <= slot < slots[1]]
    assert not any(any(file[40 + 4 * slot : 44 + 4 * slot]) for slot in outside)


@pytest.mark.parametrize(("parts", "slots"), [(0, 7), (8, 7), (1, 0)])
def test_slots_that_cannot_be_parted_are_refused(parts: int, slots: int) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        IndexItems(parts, slots, False)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_each_slot_belongs_to_one_part(parts: int) -> None:
    layout = Layout(SLOTS, INDEX_NUM, False)
    items = IndexItems(parts, SLOTS, False)
    items.add_record(range(SLOTS), 0, 0)
    assert items.items == SLOTS
    counts = [len(part) // 24 for part in items.take()]
    assert counts == [len(layout.slots_of(part, parts)) for part in range(parts)]
    assert [s for part in range(parts) for s in layout.slots_of(part, parts)] == list(range(SLOTS))


def test_a_scan_comes_back_for_what_it_cannot_index(tmp_path: Path) -> None:
    log = SmallLog()
    log.put(topic=SCHEDULE_TOPIC, props={"KEYS": "k", "DELAY": "3"})
    items = IndexItems(1, SLOTS, False)
    view = memoryview(log.segments[0])[: log.wrote[0]]
    assert items.add(view, 0, len(view), 0, 10) == (Stop.SPECIAL, 0)
    assert items.items == items.records == 0
    with pytest.raises(ValueError, match="outside"):
        items.add(view, 0, len(view) + 1, 0, 10)


assert config().max_index_num == INDEX_NUM
