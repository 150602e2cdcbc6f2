"""How far groups are behind, beside a writer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mqstore.storage.admin.group_lag import QUEUES_PER_CALL, GroupLags
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.errors import TopicUnknown
from mqstore.storage.layout import StoreFormat
from mqstore.storage.lookup.dead_letters import count_open
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata.expired_unread import FollowedExpired
from mqstore.storage.paths import segment_name
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import ConsumerOffsets
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store

SEAMS = production_seams()
BODY_AT = 100
"""Position of the body in a record."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Queue 0 of T has five messages, queue 1 one."""
    with open_store(tmp_path) as found:
        found.create_topic("T", queues=2)
        for number in range(5):
            put_message(found, message(found, number))
        put_message(found, message(found, 9, queue_id=1))
        yield found


def _lags(store: MessageStore) -> GroupLags:
    """As a reader of the same directory finds them."""
    store.offsets.save()
    reader = StoreReader.open(store.paths.root, SEAMS)
    lookups, count = reader.lookups, partial(count_open, reader.queues, settled={})
    offsets = ConsumerOffsets.load(store.paths, StoreFormat.V4_9, SEAMS)
    passed = FollowedExpired(SEAMS.files, store.paths.expired_unread)
    return GroupLags(lookups, offsets, lookups.queues, count, passed.of)


def _stored_ms(store: MessageStore, offset: int) -> int:
    return store.lookups.records("T", 0, offset, 1).records[0].store_timestamp_ms


def test_lag_is_what_lies_between_the_committed_offset_and_the_end(store: MessageStore) -> None:
    store.offsets.commit("g", [Commit("T", 0, 2)])
    (topic,) = _lags(store).group("g", ["T"]).topics
    first, second = topic.queues
    assert (first.stand.committed, first.stand.lag, first.expired) == (2, 3, 0)
    assert first.next_ms == _stored_ms(store, 2)
    assert first.consumed_ms == _stored_ms(store, 1)
    assert (second.stand.committed, second.stand.lag, second.consumed_ms) == (None, 1, None)
    assert topic.lag == 4


def test_age_is_that_of_the_oldest_message_of_all_queues(store: MessageStore) -> None:
    store.offsets.commit("g", [Commit("T", 0, 5)])
    (topic,) = _lags(store).group("g", ["T"]).topics
    done, behind = topic.queues
    assert behind.next_ms is not None
    assert (done.age_ms(behind.next_ms + 70), behind.age_ms(behind.next_ms + 70)) == (0, 70)
    assert topic.age_ms(behind.next_ms + 70) == 70
    assert behind.age_ms(behind.next_ms - 70) == 0


def test_group_that_has_consumed_all_has_no_lag(store: MessageStore) -> None:
    store.offsets.commit("g", [Commit("T", 0, 5), Commit("T", 1, 1)])
    found = _lags(store).group("g", ["T"])
    assert (found.lag, found.topics[0].age_ms(1 << 60)) == (0, 0)


def test_age_of_a_message_that_cannot_be_read_is_unknown(store: MessageStore) -> None:
    store.offsets.commit("g", [Commit("T", 0, 4), Commit("T", 1, 1)])
    placed = store.lookups.records("T", 0, 4, 1).records[0]
    segment = store.paths.commit_log / segment_name(0)
    with segment.open("r+b") as file:
        file.seek(placed.physical_offset + BODY_AT)
        file.write(b"!")
    (topic,) = _lags(store).group("g", ["T"]).topics
    assert (topic.lag, topic.queues[0].next_ms, topic.age_ms(0)) == (1, None, None)


def test_expired_messages_are_counted_apart_from_the_lag(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("T", queues=1)
        while store.status().segments < 3:
            put_message(store, message(store, 1))
        store.offsets.commit("g", [Commit("T", 0, 1)])
        assert store.retention.remove_oldest(1) == 1
        low = store.lookups.queue_range("T", 0).min_offset
        (topic,) = _lags(store).group("g", ["T"]).topics
        assert low > 1
        assert (topic.expired, topic.lag) == (low - 1, topic.queues[0].stand.max_offset - low)
        assert topic.expired_total == low - 1


@pytest.mark.parametrize("is_damaged", [False, True])
def test_expired_messages_that_a_commit_passed_stay_counted(
    tmp_path: Path, is_damaged: bool
) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("T", queues=1)
        while store.status().segments < 3:
            put_message(store, message(store, 1))
        store.offsets.commit("g", [Commit("T", 0, 1)])
        assert store.retention.remove_oldest(1) == 1
        low = store.lookups.queue_range("T", 0).min_offset
        store.offsets.commit("g", [Commit("T", 0, low + 1)])
        store.offsets.commit("g", [Commit("T", 0, low + 2)])
        (topic,) = _lags(store).group("g", ["T"]).topics
        assert (topic.expired, topic.expired_total) == (0, low - 1)
        path = store.paths.expired_unread
    if is_damaged:
        path.write_bytes(b'{"checksum":"00000000",}')
    with open_store(tmp_path) as store:
        (topic,) = _lags(store).group("g", ["T"]).topics
        assert topic.expired_total == (0 if is_damaged else low - 1)
        store.offsets.forget_group("g")
        store.offsets.commit("g", [Commit("T", 0, low)])
        (topic,) = _lags(store).group("g", ["T"]).topics
        assert topic.expired_total == 0


def test_topic_that_was_deleted_shows_what_was_committed(store: MessageStore) -> None:
    store.offsets.commit("g", [Commit("T", 0, 2)])
    lags = _lags(store)
    store.delete_topic("T")
    (queue,) = lags.group("g", ["T"]).topics[0].queues
    assert (queue.stand.queue_id, queue.stand.committed, queue.stand.lag) == (0, 2, 0)
    with pytest.raises(TopicUnknown):
        lags.group("g", ["never"])


def test_dead_letters_are_counted(store: MessageStore) -> None:
    assert _lags(store).group("g", ["T"]).dead_letters == 0
    store.create_topic("%DLQ%g", queues=1)
    put_message(store, message(store, 3, topic="%DLQ%g"))
    assert _lags(store).group("g", ["T"]).dead_letters == 1


def test_pages_are_all_groups_once_by_name(store: MessageStore) -> None:
    names = ["c", "a", "b", "d"]
    for name in names:
        store.offsets.commit(name, [Commit("T", 0, 1)])
    lags = _lags(store)
    groups = {name: ["T"] for name in names}
    found, last = [], ""
    for _ in range(2):
        page, following = lags.page(groups, limit=3, after=last)
        found += [each.group for each in page]
        last = following or ""
    assert (found, last) == (["a", "b", "c", "d"], "")


def test_page_ends_where_it_has_looked_at_many_queues(store: MessageStore) -> None:
    lags = _lags(store)
    wide = ["T"] * (QUEUES_PER_CALL // 2)
    page, last = lags.page({"a": wide, "b": ["T"]}, limit=10, after="")
    assert ([each.group for each in page], last) == (["a"], "a")
