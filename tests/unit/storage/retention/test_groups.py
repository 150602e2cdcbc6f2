from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.message_store import MessageStore
from mqstore.storage.retention.groups import Groups, next_record
from mqstore.storage.retention.holds import Hold
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import ConsumerOffsets
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store, put_some


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return open_store(tmp_path / "store")


def holds(store: MessageStore, setting: str) -> list[Hold]:
    offsets = ConsumerOffsets.load(store.paths, store.format, production_seams())
    return Groups(setting, store.queues, offsets).holds()


def consume(store: MessageStore, group: str, topic: str, offsets: dict[int, int]) -> None:
    table = ConsumerOffsets.load(store.paths, store.format, production_seams())
    for queue_id, offset in offsets.items():
        table.put(group, topic, queue_id, offset)
    table.save()


def physical(store: MessageStore, queue_id: int, index: int, topic: str = "T") -> int:
    queue = store.queues.get(topic, queue_id)
    assert queue is not None
    found = next_record(queue, index)
    assert found is not None
    return found


def test_a_group_holds_from_its_next_message_of_any_queue(store: MessageStore) -> None:
    with store:
        put_some(store, 30)
        consume(store, "g", "T", {0: 9, 1: 4, 2: 10})
        (hold,) = holds(store, " g ;")
        assert (hold.kind, hold.name, hold.to_offset, hold.until_ms) == ("group", "g", None, None)
        assert hold.from_offset == physical(store, 1, 4)


def test_a_queue_without_an_offset_is_not_consumed_at_all(store: MessageStore) -> None:
    with store:
        put_some(store, 30)
        consume(store, "g", "T", {0: 10, 2: 10})
        (hold,) = holds(store, "g")
        assert hold.from_offset == physical(store, 1, 0)


def test_a_group_that_has_consumed_everything_holds_nothing(store: MessageStore) -> None:
    with store:
        put_some(store, 30)
        consume(store, "g", "T", {0: 10, 1: 10, 2: 10})
        put_message(store, message(store, 1, topic="other"))
        assert holds(store, "g") == []


def test_an_unknown_group_holds_everything(store: MessageStore) -> None:
    with store:
        put_some(store, 3)
        consume(store, "g", "T", {0: 1, 1: 1, 2: 1})
        assert [(hold.name, hold.from_offset) for hold in holds(store, "g;typo")] == [("typo", 0)]


def test_without_groups_nothing_is_read(store: MessageStore) -> None:
    with store:
        assert holds(store, "") == []
