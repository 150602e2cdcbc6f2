"""Checks a plan that a job sent, without trusting any of its values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from mqstore.storage.errors import IndexRebuildInvalid
from mqstore.storage.index.build import OFFSET_MAX, BuildPlan
from mqstore.storage.index.plan import Item, PlannedFile
from mqstore.storage.index.service import KEY_SIZE_MIN

PARTS_MAX: Final = 4_096


def check(plan: BuildPlan, parts: int, start: int, end: int) -> None:
    """Check a plan for the log from ``start`` to ``end``. Raises IndexRebuildInvalid."""
    _require(
        1 <= parts <= min(PARTS_MAX, plan.layout.slots),
        f"{parts} parts are not 1 to {min(PARTS_MAX, plan.layout.slots)}",
    )
    _check_chunks(plan.starts, plan.firsts, start, end)
    items, capacity = plan.firsts[-1], plan.layout.capacity
    due = -(-items // capacity)
    _require(
        due <= len(plan.files) <= due + (items % capacity == 0),
        f"{items} items are not {len(plan.files)} files of {capacity}",
    )
    before: Item = (0, 0)
    for number, planned in enumerate(plan.files):
        left = min(items - number * capacity, capacity)
        _check_file(planned, number * capacity, left, before, (start, end))
        before = planned.end


def _check_chunks(starts: Sequence[int], firsts: Sequence[int], start: int, end: int) -> None:
    most = (end - start) // KEY_SIZE_MIN
    _require(
        len(firsts) == len(starts) + 1, f"{len(starts)} starts need one first more: {len(firsts)}"
    )
    _require(
        all(a < b for a, b in pairwise(starts))
        and (not starts or (start <= starts[0] and starts[-1] < end)),
        f"starts do not ascend from {start} to below {end}",
    )
    _require(
        firsts[0] == 0 and all(a <= b for a, b in pairwise(firsts)) and firsts[-1] <= most,
        "firsts do not ascend from 0, or are more than the log can hold",
    )


def _check_file(
    planned: PlannedFile, first: int, items: int, before: Item, log: tuple[int, int]
) -> None:
    name = f"the file from item {first} on"
    _require((planned.first, planned.items) == (first, items), f"{name} has {items} items")
    _require(planned.carried_ms == before[1], f"{name} does not carry the time before it")
    if items == 0:
        _require(
            planned.begin == planned.end == before, f"{name} is empty and ends at another item"
        )
        return
    (begin, begin_ms), (end, end_ms) = planned.begin, planned.end
    _require(
        max(log[0], before[0]) <= begin <= end < log[1],
        f"{name} lies from offset {begin} to {end}, which cannot be",
    )
    _require(min(begin_ms, end_ms) >= 0 and max(begin_ms, end_ms) <= OFFSET_MAX, f"{name}: times")


def _require(is_so: bool, why: str) -> None:
    if not is_so:
        raise IndexRebuildInvalid(f"the plan cannot be: {why}; make it again from the log")
