"""How the ranges of a log become Spark's tasks."""

from __future__ import annotations

import pytest

from mqstore.jobs.log.source import LogRange, LogSegment
from mqstore.jobs.rebuild.spark_build import RANGE_SIZE, TASK_SIZE, task_count

SEGMENT = LogSegment("0" * 20, 0, 0, 1 << 40)


@pytest.mark.parametrize(
    ("size", "cores", "expected"),
    [
        (RANGE_SIZE, 4, 1),  # there is but one range
        (4 * RANGE_SIZE, 4, 4),
        (2 * TASK_SIZE, 2, 2),
        (2 * TASK_SIZE + RANGE_SIZE, 2, 2),
        (3 * TASK_SIZE + RANGE_SIZE, 2, 4),
        (41 * TASK_SIZE, 16, 48),
    ],
)
def test_all_cores_have_as_many_tasks_and_none_has_too_much(
    size: int, cores: int, expected: int
) -> None:
    starts = range(0, size, RANGE_SIZE)
    ranges = [LogRange(SEGMENT, start, start + RANGE_SIZE) for start in starts]
    assert task_count(ranges, cores) == expected


def test_a_log_without_ranges_is_one_task() -> None:
    assert task_count([], 2) == 1
