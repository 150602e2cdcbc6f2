"""Values that scrapes read take a bounded part of the time, whatever the store holds."""

from __future__ import annotations

from collections import Counter
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from mqstore.service.metrics import PACE, PACED_FROM_S, PacedValue, RocketmqNames
from mqstore.service.settings import Settings
from mqstore.storage.shared_groups import SharedGroups
from mqstore.writer.consumers.metrics import GroupStateMetrics


class Costly:
    """A value whose read takes a time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 100.0
        self.reads = 0

    def read(self) -> int:
        self.now += self.seconds
        self.reads += 1
        return self.reads


def test_a_value_that_takes_long_is_kept_until_its_read_is_paid_for() -> None:
    costly = Costly(2.0)
    value = PacedValue(costly.read, lambda: costly.now)
    assert [value.get() for _ in range(50)] == [1] * 50
    costly.now += PACE * 2.0 - 0.1
    assert value.get() == 1
    costly.now += 0.2
    assert value.get() == 2
    assert costly.reads == 2


def test_a_value_that_takes_no_time_is_read_each_time() -> None:
    costly = Costly(PACED_FROM_S / 2)
    value = PacedValue(costly.read, lambda: costly.now)
    assert [value.get() for _ in range(3)] == [1, 2, 3]


def test_a_read_that_fails_is_tried_again() -> None:
    value: PacedValue[None] = PacedValue(lambda: pytest.fail("read"), lambda: 0.0)
    for _ in range(2):
        with pytest.raises(pytest.fail.Exception):
            value.get()


class Groups:
    """Shared groups without messages, which count what a scrape reads."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()

    def pending(self) -> dict[object, object]:
        self.reads["pending"] += 1
        return {}

    def count_returned(self) -> dict[str, int]:
        self.reads["returned"] += 1
        return {}

    def count_members(self) -> dict[str, tuple[int, int]]:
        self.reads["members"] += 1
        return {"g": (1, 2)}


def test_the_counts_of_groups_are_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqstore.service.metrics.PACED_FROM_S", 0.0)
    monkeypatch.setattr("mqstore.service.metrics.PACE", 1e12)
    groups = Groups()
    names = RocketmqNames(Settings())
    collected = GroupStateMetrics(
        CollectorRegistry(), names, 10, lambda: cast("SharedGroups", groups)
    )
    for _ in range(5):
        list(collected.collect())
    assert groups.reads == {"pending": 1, "returned": 1, "members": 1}
