"""Builds index files from items that were gathered by ranges of the log, one part of the slots at a
time.

Several processes of one machine fill the same files at the same time: each part has its own slots
and its own places for items. The process that created the files writes the headers at the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqstore.storage._kernel import index_chain
from mqstore.storage.errors import StagingFull
from mqstore.storage.index.plan import IndexPlan, Layout, PlannedFile
from mqstore.storage.index.publication import StagedFile, stage
from mqstore.storage.layout import INDEX_HEADER_SIZE, INDEX_SLOT_SIZE
from mqstore.storage.seams import FileSystem, MappedBytes
from mqstore.storage.system.open_map import open_map

ITEM_SIZE: Final = 24
"""Bytes of one item of ``IndexItems``."""
OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The layout, files and chunks of a build; each part's builder gets it."""

    layout: Layout
    files: tuple[PlannedFile, ...]
    starts: tuple[int, ...]
    """First physical offsets of all chunks, ascending."""
    firsts: tuple[int, ...]
    """For each chunk, the number of its item 0 among all items."""

    @classmethod
    def of(cls, plan: IndexPlan, files: Sequence[PlannedFile]) -> BuildPlan:
        """Make the plan of a build of these files."""
        starts = tuple(chunk.start for chunk in plan.chunks)
        return cls(plan.layout, tuple(files), starts, tuple(plan.firsts))

    @property
    def staged_bytes(self) -> int:
        """Bytes of disk blocks that all files take."""
        return sum(self.layout.used_size(each.items) for each in self.files)


@dataclass(slots=True)
class PartCounts:
    """The number of items and slots that one part put into each file."""

    items: Counter[int]
    slots: Counter[int]


def staged_name(number: int) -> str:
    """The name of a staged file."""
    return f"{number:06d}"


def make_files(files: FileSystem, directory: Path, plan: BuildPlan) -> None:
    """Create empty files with disk blocks for all of their content. Raises OSError."""
    files.make_directories(directory)
    for number, planned in enumerate(plan.files):
        layout, path = plan.layout, directory / staged_name(number)
        files.create(path, layout.file_size, reserve=layout.used_size(planned.items))


def refuse_full_disk(files: FileSystem, directory: Path, needed: int, ratio: int) -> None:
    """Check the disk before files of ``needed`` bytes are created.

    Raises StagingFull where they would fill the directory's volume to more than ``ratio`` percent;
    OSError.
    """
    usage = files.usage(directory)
    percent = 100 * (usage.used + needed) / max(usage.total, 1)
    if percent > ratio:
        raise StagingFull(
            f"{needed} bytes of new index files would fill the volume of {directory} to"
            f" {percent:.1f} %, above {ratio} % (diskMaxUsedSpaceRatio, or the job's own): make"
            " room; nothing was changed",
            {
                "path": str(directory),
                "neededBytes": needed,
                "totalBytes": usage.total,
                "usedBytes": usage.used,
                "freeBytes": usage.free,
                "wouldBePercent": round(percent, 2),
                "refusedAbovePercent": ratio,
            },
        )


class PartBuilder:
    """Puts one part's items into all files. Chunks come in the order of the log. One thread."""

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        plan: BuildPlan,
        slots: range | None = None,
        end: int = OFFSET_MAX,
    ) -> None:
        """``slots`` are those of the part, by default all; ``end`` is after every record."""
        self._files = files
        self._directory = directory
        self._plan = plan
        whole = range(plan.layout.slots) if slots is None else slots
        self._slots = whole.start, whole.stop
        self._ends = (*plan.starts[1:], end)
        self._built = PartCounts(Counter(), Counter())
        self._open: tuple[int, MappedBytes] | None = None

    def clear(self) -> None:
        """Empty the part's slots before it is built a second time. Raises OSError."""
        start, stop = (INDEX_HEADER_SIZE + each * INDEX_SLOT_SIZE for each in self._slots)
        for number in range(len(self._plan.files)):
            self._view(number)[start:stop] = bytes(stop - start)

    def add(self, start: int, items: bytes) -> None:
        """Add the next items of the chunk that begins at physical offset ``start``.

        Raises ValueError for an unknown chunk, or an item outside this part; OSError.
        """
        plan = self._plan
        chunk = bisect_left(plan.starts, start)
        if chunk == len(plan.starts) or plan.starts[chunk] != start:
            raise ValueError(f"no chunk of the plan begins at offset {start}")
        first, at = plan.firsts[chunk], 0
        place = start, self._ends[chunk], plan.firsts[chunk + 1] - first
        number = first // plan.layout.capacity
        while at < len(items):
            if number == len(plan.files):
                raise ValueError(f"offset {start} has more items than the plan")
            end, used = self._put(number, items, at, first, place)
            self._built.items[number] += (end - at) // ITEM_SIZE
            self._built.slots[number] += used
            at, number = end, number + 1

    def _put(
        self, number: int, items: bytes, at: int, first: int, place: tuple[int, int, int]
    ) -> tuple[int, int]:
        layout, planned = self._plan.layout, self._plan.files[number]
        return index_chain(
            items,
            at,
            self._view(number),
            (layout.slots, planned.items + 1),
            self._slots,
            place,
            first - planned.first + 1,
            planned.begin[1],
            planned.carried_ms,
        )

    def close(self) -> PartCounts:
        """Unmap the files; returns the counts of the part."""
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
    files: FileSystem, directory: Path, plan: BuildPlan, built: Sequence[PartCounts]
) -> list[StagedFile]:
    """Write the headers and sync. Raises AssertionError where an item is missing; OSError."""
    return [
        _finish(files, directory / staged_name(number), plan.layout, planned, _sum(number, built))
        for number, planned in enumerate(plan.files)
    ]


def _sum(number: int, built: Sequence[PartCounts]) -> Mapping[str, int]:
    return {
        "items": sum(part.items[number] for part in built),
        "slots": sum(part.slots[number] for part in built),
    }


def _finish(
    files: FileSystem, path: Path, layout: Layout, planned: PlannedFile, found: Mapping[str, int]
) -> StagedFile:
    if found["items"] != planned.items:
        raise AssertionError(f"{path.name} got {found['items']} of {planned.items} items")
    with open_map(files, path, writable=True) as mapped:
        mapped.view[:INDEX_HEADER_SIZE] = planned.header(found["slots"])
    return stage(files, path, layout.used_size(planned.items))
