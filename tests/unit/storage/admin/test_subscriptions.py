from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.errors import (
    FilterError,
    GroupNameError,
    StorageError,
    SubscriptionUnknown,
    TopicUnknown,
)
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.consumer_filters import ConsumerFilters, FilterData
from tests.unit.storage.stores import CONFIG, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        for topic in ("T", "U"):
            opened.create_topic(topic)
        yield opened


def on_disk(store: MessageStore) -> list[FilterData]:
    return ConsumerFilters.load(store.paths, store.format, production_seams()).all()


def test_a_subscription_is_kept_as_a_broker_keeps_it(store: MessageStore) -> None:
    made = store.subscriptions.put("g", "T", "a > 5")

    assert (made.topic, made.group, made.expression) == ("T", "g", "a > 5")
    assert (made.expression_type, made.bits, len(made.positions)) == ("SQL92", 112, 3)
    assert made.born_ms == made.client_version > 0
    assert not made.is_dead
    assert on_disk(store) == [made] == store.subscriptions.of("g")


def test_the_same_expression_keeps_its_birth_and_another_is_born_anew(store: MessageStore) -> None:
    first = store.subscriptions.put("g", "T", "a > 5")
    store.subscriptions.remove("g", "T")
    again = store.subscriptions.put("g", "T", "a > 5")
    assert again.born_ms == first.born_ms
    assert again.client_version > first.client_version

    other = store.subscriptions.put("g", "T", "a > 6")

    assert other.born_ms >= again.born_ms
    assert other.client_version > again.client_version


def test_a_removed_subscription_is_listed_no_more_and_kept_on_disk_for_a_while(
    store: MessageStore,
) -> None:
    store.subscriptions.put("g", "T", "a > 5")
    store.subscriptions.remove("g", "T")

    assert store.subscriptions.of("g") == []
    for call in (store.subscriptions.get, store.subscriptions.remove):
        with pytest.raises(SubscriptionUnknown):
            call("g", "T")
    (remembered,) = on_disk(store)
    assert remembered.is_dead


def test_a_subscription_removed_long_ago_is_deleted(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"filter_data_clean_time_span": 0})
    with open_store(tmp_path / "store", config) as store:
        store.create_topic("T")
        store.subscriptions.put("g", "T", "a > 5")
        store.subscriptions.remove("g", "T")
        assert on_disk(store) == []


@pytest.mark.parametrize(
    ("group", "topic", "expression", "error"),
    [
        ("g", "T", "a >", FilterError),
        ("g", "unknown", "a > 5", TopicUnknown),
        ("a b", "T", "a > 5", GroupNameError),
        ("CID_RMQ_SYS_TRANS", "T", "a > 5", GroupNameError),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused(
    store: MessageStore, group: str, topic: str, expression: str, error: type[StorageError]
) -> None:
    with pytest.raises(error):
        store.subscriptions.put(group, topic, expression)
    assert on_disk(store) == []


def test_subscriptions_outlive_the_store_and_go_with_their_topic(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", format=StoreFormat.V5_X) as store:
        for topic in ("T", "U"):
            store.create_topic(topic)
            store.subscriptions.put("g", topic, "a CONTAINS 'x'")
    with open_store(tmp_path / "store") as store:
        assert [each.topic for each in store.subscriptions.of("g")] == ["T", "U"]
        store.delete_topic("T")
        assert [each.topic for each in store.subscriptions.of("g")] == ["U"]
        assert [each.topic for each in on_disk(store)] == ["U"]


def test_fields_that_we_do_not_know_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "store" / "config" / "consumerFilter.json"
    path.parent.mkdir(parents=True)
    path.write_text(
        '{"filterDataByTopic":{"T":{"topic":"T","later":1,"groupFilterData":{"g":{"new":[2],'
        '"expression":"a > 5","expressionType":"SQL92","bornTime":5,"clientVersion":9,'
        '"bloomFilterData":{"bitNum":112,"bitPos":[1,2,3]}},"h":7}}}}'
    )
    with open_store(tmp_path / "store") as store:
        store.create_topic("T")
        (found,) = store.subscriptions.of("g")
        assert (found.born_ms, found.positions, found.client_version) == (5, (1, 2, 3), 9)
        assert store.subscriptions.put("g", "T", "a > 5").born_ms > 5, "its bits were others"
        entry = store.subscriptions._table.entries["T"]
        assert (entry["later"], entry["groupFilterData"]["g"]["new"]) == (1, [2])
