"""Index files built from items that were gathered by ranges, each range of slots by itself.

Several processes of one machine fill the same files at the same time: a part has slots of its own,
and items whose places nobody else has. Whoever made the files puts the headers in, at the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqstore.storage._kernel import index_chain
from mqstore.storage.derived.index_plan import IndexPlan, Layout, PlannedFile
from mqstore.storage.derived.index_publication import StagedFile, staged
from mqstore.storage.layout import INDEX_HEADER_SIZE
from mqstore.storage.seams import FileSystem, MappedBytes

_ITEM_SIZE: Final = 24
"""Of ``IndexItems``."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """All that a part's builder needs to know; goes to each of them."""

    layout: Layout
    files: tuple[PlannedFile, ...]
    starts: tuple[int, ...]
    """Of all chunks, ascending."""
    firsts: tuple[int, ...]
    """The number of each chunk's item 0 among all items."""

    @classmethod
    def of(cls, plan: IndexPlan, files: Sequence[PlannedFile]) -> BuildPlan:
        starts = tuple(chunk.start for chunk in plan.chunks)
        return cls(plan.layout, tuple(files), starts, tuple(plan.firsts))


@dataclass(slots=True)
class PartBuilt:
    """What one part was, by file."""

    items: Counter[int]
    slots: Counter[int]


def staged_name(number: int) -> str:
    return f"{number:06d}"


def make_files(files: FileSystem, directory: Path, plan: BuildPlan) -> None:
    """Empty files with disk blocks for all that comes into them. OSError."""
    files.make_directories(directory)
    for number, planned in enumerate(plan.files):
        layout, path = plan.layout, directory / staged_name(number)
        files.create(path, layout.file_size, reserve=layout.used_size(planned.items))


class PartBuilder:
    """Puts one part's items into all files. Chunks come in the order of the log. One thread."""

    def __init__(self, files: FileSystem, directory: Path, plan: BuildPlan) -> None:
        self._files = files
        self._directory = directory
        self._plan = plan
        self._built = PartBuilt(Counter(), Counter())
        self._open: tuple[int, MappedBytes] | None = None

    def add(self, start: int, items: bytes) -> None:
        """The items of the chunk that begins at a physical offset."""
        layout, at = self._plan.layout, 0
        first = self._plan.firsts[bisect_left(self._plan.starts, start)]
        number = first // layout.capacity
        while at < len(items):
            planned = self._plan.files[number]
            end, used = index_chain(
                items,
                at,
                self._view(number),
                layout.slots,
                planned.items + 1,
                first - planned.first + 1,
                planned.begin[1],
                planned.carried_ms,
            )
            self._built.items[number] += (end - at) // _ITEM_SIZE
            self._built.slots[number] += used
            at, number = end, number + 1

    def close(self) -> PartBuilt:
        if self._open is not None:
            self._open[1].unmap()
        self._open = None
        return self._built

    def _view(self, number: int) -> memoryview:
        if self._open is None or self._open[0] != number:
            self.close()
            path = self._directory / staged_name(number)
            self._open = number, self._files.map(path, writable=True)
        return self._open[1].view


def finish_files(
    files: FileSystem, directory: Path, plan: BuildPlan, built: Sequence[PartBuilt]
) -> list[StagedFile]:
    """Put the headers in and sync; AssertionError where an item is missing. OSError."""
    return [
        _finish(files, directory / staged_name(number), plan.layout, planned, _sum(number, built))
        for number, planned in enumerate(plan.files)
    ]


def _sum(number: int, built: Sequence[PartBuilt]) -> Mapping[str, int]:
    return {
        "items": sum(part.items[number] for part in built),
        "slots": sum(part.slots[number] for part in built),
    }


def _finish(
    files: FileSystem, path: Path, layout: Layout, planned: PlannedFile, found: Mapping[str, int]
) -> StagedFile:
    if found["items"] != planned.items:
        raise AssertionError(f"{path.name} got {found['items']} of {planned.items} items")
    mapped = files.map(path, writable=True)
    try:
        mapped.view[:INDEX_HEADER_SIZE] = planned.header(found["slots"])
    finally:
        mapped.unmap()
    return staged(files, path, layout.used_size(planned.items))
