"""The job of an index rebuild in slow and simple Python: for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from mqstore.storage._kernel import item_at
from mqstore.storage.index.build import BuildPlan
from mqstore.storage.index.plan import IndexPlan, Item, Layout
from mqstore.storage.index.scan import Chunk, IndexScan
from mqstore.storage.message_store import MessageStore
from mqstore.storage.rebuild.values import Published, RebuildView


class Segment(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class Scan:
    """A log as a job reads it: its chunks with their items by part, and the plan of them."""

    def __init__(self, layout: Layout, parts: int = 2) -> None:
        self.layout = layout
        self.parts = parts
        self.chunks: list[tuple[Chunk, list[bytes]]] = []
        self._whole: list[tuple[Chunk, list[bytes]]] = []

    def read(self, segments: Iterator[tuple[Segment, memoryview, int]], records: int = 10) -> None:
        """Each with its bytes, and the physical offset that they begin at."""
        for segment, view, base in segments:
            self._read(self.chunks, view, base, segment, self.parts, records)
            self._read(self._whole, view, base, segment, 1, records)

    def _read(
        self,
        found: list[tuple[Chunk, list[bytes]]],
        view: memoryview,
        base: int,
        segment: Segment,
        parts: int,
        records: int,
    ) -> None:
        slots, tags = self.layout.slots, self.layout.tags
        scan = IndexScan(view, base, _NoNames(), parts=parts, slots=slots, tags=tags)
        found.extend(scan.chunks(segment.start, segment.end, records))

    @property
    def plan(self) -> BuildPlan:
        plan = IndexPlan([chunk for chunk, _ in self.chunks], self.layout)
        return BuildPlan.of(plan, plan.files(self._item))

    @property
    def plan_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "parts": self.parts,
            "files": [
                {
                    "first": each.first,
                    "items": each.items,
                    "begin": list(each.begin),
                    "end": list(each.end),
                    "carriedMs": each.carried_ms,
                }
                for each in plan.files
            ],
            "starts": list(plan.starts),
            "firsts": list(plan.firsts),
        }

    def part(self, number: int) -> Iterator[tuple[int, bytes]]:
        return ((chunk.start, items[number]) for chunk, items in self.chunks)

    def count(self, part: int) -> int:
        return sum(len(items) // 24 for _, items in self.part(part))

    def _item(self, chunk: Chunk, number: int) -> Item:
        items = next(items[0] for each, items in self._whole if each.start == chunk.start)
        found = item_at(items, number)
        assert found is not None
        return found


class RebuildJob:
    """A rebuild that has begun, in the writer's own process."""

    def __init__(self, store: MessageStore, view: RebuildView, parts: int = 2) -> None:
        self.store = store
        self.view = view
        self.scan = Scan(Layout(view.hash_slots, view.index_num, view.tags), parts)
        self.scan.read(self._segments())

    def _segments(self) -> Iterator[tuple[Segment, memoryview, int]]:
        for segment in self.view.segments:
            place = self.store.log.view_from(segment.start)
            assert place is not None
            view, position, end = place
            yield segment, view[:end], segment.start - position

    def plan(self) -> None:
        self.store.rebuilds.plan(self.view.id, self.scan.plan, self.scan.parts)

    def fill(self) -> None:
        """Plan and parts."""
        self.plan()
        for part in range(self.scan.parts):
            self.send(part)

    def send(self, part: int) -> None:
        rebuilds, job = self.store.rebuilds, self.view.id
        upload = rebuilds.begin_part(job, part)
        for start, items in self.scan.part(part):
            upload.add(start, items)
        rebuilds.finish_part(job, upload, self.scan.count(part))

    def publish(self) -> Published:
        return self.store.rebuilds.publish(self.view.id)


class _NoNames:
    """Queue entries that are never needed, because the log is whole."""

    def next_physical(self, after: int) -> int | None:
        raise AssertionError(f"the log is damaged at {after}")
