"""Messages of shared groups are counted by state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.shared_groups import PendingCounts, group_states
from mqstore.storage.shared_groups.saved_leases import Place
from tests.unit.storage.shared_groups.test_leases_of_a_store import Consumers
from tests.unit.storage.stores import open_store, put_some

T0 = Place("g", "T", 0)


@pytest.fixture
def consumers(tmp_path: Path) -> Iterator[Consumers]:
    with open_store(tmp_path / "store", deliver_delayed=False) as store:
        store.create_topic("T", queues=1)
        put_some(store, 10, queues=1)
        yield Consumers(store)


def test_leased_and_acknowledged_messages_are_counted_apart(
    consumers: Consumers,
) -> None:
    assert consumers.groups.pending() == {}
    found = consumers.receive(6).messages
    consumers.receive(2, "h")
    consumers.acknowledge(found[2], found[3])
    assert consumers.groups.pending("g") == {T0: PendingCounts(leased=4, done=2)}
    assert consumers.groups.pending().keys() == {T0, Place("h", "T", 0)}
    consumers.clock.time_s += 61
    assert consumers.groups.pending("g") == {T0: PendingCounts(leased=0, done=2)}
    consumers.acknowledge(found[0], found[1])
    assert consumers.offsets() == [4]
    assert consumers.groups.pending("g") == {T0: PendingCounts(leased=0, done=0)}


def test_an_offset_that_was_set_ends_the_counts(consumers: Consumers) -> None:
    consumers.acknowledge(consumers.receive(6).messages[2])
    consumers.store.offsets.commit("g", [Commit("T", 0, 9)])
    assert consumers.groups.pending("g") == {}


def test_returned_messages_are_counted_while_they_are_delayed(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert consumers.groups.count_returned() == {}
    found = consumers.receive(6).messages
    consumers.give_back(*found[:3], level=3)
    consumers.give_back(found[3], level=5)
    assert consumers.groups.count_returned() == {"g": 4}
    monkeypatch.setattr(group_states, "DELAYED_MAX", 3)
    assert consumers.groups.count_returned() is None
