"""Which plans of a rebuild are believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqstore.storage.errors import IndexRebuildInvalid
from mqstore.storage.index.build import OFFSET_MAX, BuildPlan
from mqstore.storage.index.plan import Layout, PlannedFile
from mqstore.storage.rebuild.plan_check import PARTS_MAX, check

START, END = 100, 1_000
SLOTS = 50
FULL = PlannedFile(0, 10, (110, 5), (190, 9), 0)
LAST = PlannedFile(10, 5, (190, 9), (210, 8), 9)
PLAN = BuildPlan(Layout(SLOTS, 11, False), (FULL, LAST), (100, 200), (0, 12, 15))
EMPTY = BuildPlan(PLAN.layout, (), (), (0,))


@pytest.mark.parametrize("plan", [PLAN, EMPTY])
@pytest.mark.parametrize("parts", [1, SLOTS])
def test_what_counts_of_a_log_make_is_believed(plan: BuildPlan, parts: int) -> None:
    check(plan, parts, START, END)


def test_a_file_may_begin_with_a_record_that_has_no_keys() -> None:
    behind = PlannedFile(10, 0, FULL.end, FULL.end, 9)
    check(replace(PLAN, files=(FULL, behind), firsts=(0, 5, 10)), 1, START, END)


@pytest.mark.parametrize("parts", [-1, 0, SLOTS + 1])
def test_parts_are_no_more_than_slots(parts: int) -> None:
    with pytest.raises(IndexRebuildInvalid, match=f"{parts} parts are not 1 to {SLOTS}"):
        check(PLAN, parts, START, END)


def test_parts_are_no_more_than_a_writer_keeps() -> None:
    many = replace(PLAN, layout=Layout(1 << 20, 11, False))
    check(many, PARTS_MAX, START, END)
    with pytest.raises(IndexRebuildInvalid, match="parts are not"):
        check(many, PARTS_MAX + 1, START, END)


@pytest.mark.parametrize(
    ("starts", "firsts"),
    [
        ((100, 200), (0, 15)),
        ((), ()),
        ((100, 100), (0, 12, 15)),
        ((200, 100), (0, 12, 15)),
        ((99, 200), (0, 12, 15)),
        ((100, END), (0, 12, 15)),
        ((100, 200), (1, 12, 15)),
        ((100, 200), (0, 16, 15)),
        ((100, 200), (0, 12, (END - START) // 2 + 1)),
    ],
)
def test_chunks_are_in_the_order_of_the_log_and_hold_no_more_than_it_can(
    starts: tuple[int, ...], firsts: tuple[int, ...]
) -> None:
    with pytest.raises(IndexRebuildInvalid, match=r"starts|firsts"):
        check(replace(PLAN, starts=starts, firsts=firsts), 1, START, END)


@pytest.mark.parametrize(
    "files",
    [
        (),
        (FULL,),
        (FULL, LAST, replace(LAST, first=15, items=0)),
        (replace(FULL, items=9), LAST),
        (FULL, replace(LAST, items=6)),
        (FULL, replace(LAST, first=9)),
        (FULL, replace(LAST, carried_ms=8)),
        (replace(FULL, begin=(99, 5)), LAST),
        (replace(FULL, begin=(191, 5)), LAST),
        (FULL, replace(LAST, begin=(189, 9))),
        (FULL, replace(LAST, end=(END, 8))),
        (FULL, replace(LAST, end=(210, -1))),
        (FULL, replace(LAST, end=(210, OFFSET_MAX + 1))),
    ],
)
def test_files_are_those_that_so_many_items_make(files: tuple[PlannedFile, ...]) -> None:
    with pytest.raises(IndexRebuildInvalid, match="the plan cannot be"):
        check(replace(PLAN, files=files), 1, START, END)


def test_an_empty_file_ends_where_the_one_before_ends() -> None:
    behind = PlannedFile(10, 0, FULL.end, (END - 1, 9), 9)
    with pytest.raises(IndexRebuildInvalid, match="is empty and ends at another item"):
        check(replace(PLAN, files=(FULL, behind), firsts=(0, 5, 10)), 1, START, END)
