"""Compares the existing index with the index that a rebuild makes from the log.

The existing files may hold other ranges of items than those of a rebuild, for instance after
retention has deleted the oldest. So items are compared in their order across files, and the header
and chains of each file with those that its own items require.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mqstore.storage.directory import StorePaths
from mqstore.storage.formats import INDEX_HEADER_SIZE, INDEX_ITEM_SIZE, INDEX_SLOT_SIZE
from mqstore.storage.host import PosixFileSystem
from mqstore.storage.index import (
    OFFSET_MAX,
    BuildPlan,
    Layout,
    PlannedFile,
    index_names,
    staged_name,
)

REPORTED_MAX: Final = 1_000
"""Maximum number of differences that are reported one by one; all are counted."""
_BLOCK_ITEMS: Final = 1 << 20
_ITEM: Final = np.dtype(
    [("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
_HEADER: Final = np.dtype(
    [
        ("begin_ms", ">i8"),
        ("end_ms", ">i8"),
        ("begin_physical", ">i8"),
        ("end_physical", ">i8"),
        ("slots_used", ">i4"),
        ("index_count", ">i4"),
    ]
)
_SECOND_MS: Final = 1_000

Items = NDArray[Any]


@dataclass(slots=True)
class Differences:
    """The number of differences, and the first ``REPORTED_MAX`` of them in JSON."""

    count: int = 0
    reported: list[dict[str, Any]] = field(default_factory=list)

    def add(self, kind: str, **what: int | str) -> None:
        """Count a difference, and report it unless there are too many."""
        self.count += 1
        if len(self.reported) < REPORTED_MAX:
            self.reported.append({"kind": kind, **what})


@dataclass(frozen=True, slots=True)
class IndexBytes:
    """One index file, mapped by numpy."""

    name: str
    header: Items
    slots: Items
    items: Items
    """From item 0, which is never used, up to the header's count."""

    @classmethod
    def of(cls, path: Path, layout: Layout) -> IndexBytes:
        """Map an index file. Raises OSError."""
        raw = np.memmap(path, dtype=np.uint8, mode="r")
        header = raw[:INDEX_HEADER_SIZE].view(_HEADER)[0]
        end = INDEX_HEADER_SIZE + layout.slots * INDEX_SLOT_SIZE
        count = min(max(int(header["index_count"]), 1), layout.index_num)
        items = raw[end : end + count * INDEX_ITEM_SIZE].view(_ITEM)
        return cls(path.name, header, raw[INDEX_HEADER_SIZE:end].view(">i4"), items)

    def blocks(self) -> Iterator[tuple[Items, Items, Items]]:
        """Offset, hash and earliest store time of its items; -1 for the first one, whose time
        counts from the file before."""
        for start in range(1, len(self.items), _BLOCK_ITEMS):
            block = self.items[start : start + _BLOCK_ITEMS]
            times = self.header["begin_ms"] + block["seconds"].astype(np.int64) * _SECOND_MS
            if start == 1:
                times[0] = -1
            yield block["offset"].astype(np.int64), block["hash"].astype(np.int64), times


def differences(
    paths: StorePaths,
    layout: Layout,
    plan: BuildPlan,
    low: int,
    *,
    high: int = OFFSET_MAX,
    staging: Path,
) -> Differences:
    """Compare the files in ``staging`` with those in ``index/``.

    Items below physical offset ``low`` have expired. If a writer appends from ``high`` on, it
    changes the newest file: only its items below ``high`` are compared, and not its chains.
    """
    found = Differences()
    files = PosixFileSystem()
    there = []
    for name in index_names(files, paths):
        stat = files.stat(paths.index / name)
        if stat is None:  # retention takes files meanwhile
            continue
        if stat.size != layout.file_size:
            found.add("length", file=name, found=stat.size, due=layout.file_size)
        else:
            there.append(IndexBytes.of(paths.index / name, layout))
    planned = {(each.begin[0], each.end[0]): each for each in plan.files}
    for each in there if high == OFFSET_MAX else there[:-1]:
        _check_chains(each, layout, found)
        begin, end = int(each.header["begin_physical"]), int(each.header["end_physical"])
        _check_times(each, planned.get((begin, end)), found)
    due = (
        IndexBytes.of(staging / staged_name(number), layout) for number in range(len(plan.files))
    )
    _compare(_Stream(due, low, high), _Stream(iter(there), low, high), found)
    return found


def _check_chains(file: IndexBytes, layout: Layout, found: Differences) -> None:
    """Compare header, slots and links of one file with those that its items require."""
    items = file.items[1:]
    slots = items["hash"].astype(np.int64) % layout.slots
    order = np.argsort(slots, kind="stable")
    by_slot, numbers = slots[order], order + 1
    follows = np.concatenate(([False], by_slot[1:] == by_slot[:-1])) if len(items) else order > 0
    links = np.zeros(len(items), np.int64)
    links[order] = np.where(follows, np.roll(numbers, 1), 0) if len(items) else 0
    heads = np.zeros(layout.slots, np.int64)
    heads[by_slot] = numbers  # of equal slots the last one, the newest, counts
    for at in np.flatnonzero(items["previous"] != links):
        found.add(
            "link",
            file=file.name,
            item=int(at) + 1,
            found=int(items["previous"][at]),
            due=int(links[at]),
        )
    for slot in np.flatnonzero(file.slots != heads):
        found.add(
            "slot",
            file=file.name,
            slot=int(slot),
            found=int(file.slots[slot]),
            due=int(heads[slot]),
        )
    if len(items):
        due = {
            "begin_physical": int(items["offset"][0]),
            "end_physical": int(items["offset"][-1]),
            "slots_used": int(np.count_nonzero(heads)),
        }
        for name, value in due.items():
            if int(file.header[name]) != value:
                found.add(
                    "header",
                    file=file.name,
                    field=name,
                    found=int(file.header[name]),
                    due=value,
                )


def _check_times(file: IndexBytes, due: PlannedFile | None, found: Differences) -> None:
    """Compare the times of the header.

    They equal those of the planned file if both end at the same records. Otherwise the end time
    must lie in the second of the last item.
    """
    begin_ms, end_ms = int(file.header["begin_ms"]), int(file.header["end_ms"])
    if due is not None:
        due_ms = {"begin_ms": due.begin[1], "end_ms": due.end[1]}
    elif len(file.items) > 2:  # item 0 is none, and the first one's seconds are of another file
        seconds = int(file.items["seconds"][-1])
        last_ms = begin_ms + seconds * _SECOND_MS
        least_ms = last_ms if seconds else 0  # a clock that was set back
        due_ms = {"end_ms": min(max(end_ms, least_ms), last_ms + _SECOND_MS - 1)}
    else:
        due_ms = {}
    for name, value in due_ms.items():
        if int(file.header[name]) != value:
            found.add(
                "header",
                file=file.name,
                field=name,
                found=int(file.header[name]),
                due=value,
            )


class _Stream:
    """The items of several files in sequence, read from the front."""

    def __init__(self, files: Iterator[IndexBytes], low: int, high: int) -> None:
        self._blocks = (block for file in files for block in file.blocks())
        self._low = low
        self._high = high
        self._ended = False
        self.offsets: Items = np.zeros(0, np.int64)
        self.hashes: Items = self.offsets
        self.times: Items = self.offsets

    def fill(self, least: int) -> int:
        """Load up to so many items; return the number of loaded items."""
        while len(self.offsets) < least and not self._ended:
            block = next(self._blocks, None)
            if block is None:
                self._ended = True
                break
            kept = (block[0] >= self._low) & (block[0] < self._high)
            self.offsets = np.concatenate([self.offsets, block[0][kept]])
            self.hashes = np.concatenate([self.hashes, block[1][kept]])
            self.times = np.concatenate([self.times, block[2][kept]])
        return len(self.offsets)

    def drop(self, count: int) -> None:
        self.offsets = self.offsets[count:]
        self.hashes, self.times = self.hashes[count:], self.times[count:]

    def take_record(self, offset: int) -> Counter[int]:
        """Remove the items of one record from the front, and return their hashes."""
        count = 0
        while count < self.fill(count + 1) and self.offsets[count] == offset:
            count += 1
        taken = Counter(self.hashes[:count].tolist())
        self.drop(count)
        return taken


def _compare(due: _Stream, there: _Stream, found: Differences) -> None:
    while True:
        count = min(due.fill(_BLOCK_ITEMS), there.fill(_BLOCK_ITEMS))
        if count == 0:
            break
        unequal = np.flatnonzero(
            (due.offsets[:count] != there.offsets[:count])
            | (due.hashes[:count] != there.hashes[:count])
        )
        equal = int(unequal[0]) if len(unequal) else count
        _compare_times(due, there, equal, found)
        due.drop(equal)
        there.drop(equal)
        if equal < count:
            _compare_record(due, there, found)
    for stream, kind in ((due, "missing"), (there, "surplus")):
        while stream.fill(1):
            for offset, key in zip(stream.offsets.tolist(), stream.hashes.tolist(), strict=True):
                found.add(kind, physicalOffset=offset, hash=key)
            stream.drop(len(stream.offsets))


def _compare_times(due: _Stream, there: _Stream, count: int, found: Differences) -> None:
    """Compare times, which both files round down to whole seconds from their begin."""
    ours, theirs = due.times[:count], there.times[:count]
    known = (ours >= 0) & (theirs >= 0)
    for at in np.flatnonzero(known & (np.abs(ours - theirs) >= _SECOND_MS)):
        found.add(
            "time",
            physicalOffset=int(due.offsets[at]),
            hash=int(due.hashes[at]),
            found=int(theirs[at]),
            due=int(ours[at]),
        )


def _compare_record(due: _Stream, there: _Stream, found: Differences) -> None:
    """Count a record whose items differ or are missing; both streams continue behind it."""
    is_stray = len(there.offsets) > 1 and there.offsets[0] > there.offsets[1] >= due.offsets[0]
    if is_stray:  # its offset was changed: what follows is in order
        found.add("surplus", physicalOffset=int(there.offsets[0]), hash=int(there.hashes[0]))
        there.drop(1)
        return
    offset = int(min(due.offsets[0], there.offsets[0]))
    ours, theirs = due.take_record(offset), there.take_record(offset)
    for kind, more in (("missing", ours - theirs), ("surplus", theirs - ours)):
        for key in more.elements():
            found.add(kind, physicalOffset=offset, hash=key)
    if ours == theirs:
        found.add("order", physicalOffset=offset)
