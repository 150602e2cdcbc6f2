"""Lag of groups as metrics: RocketMQ's names, of so many groups and topics at most."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from mqstore.query.lag_metrics import LagMetrics, LagSource
from mqstore.service.metrics import RocketmqNames
from mqstore.service.settings import Settings
from mqstore.storage.admin.group_lag import GroupLags
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.layout import StoreFormat
from mqstore.storage.lookup.dead_letters import count_open
from mqstore.storage.message_store import MessageStore
from mqstore.storage.paths import segment_name
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import ConsumerOffsets
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store

SEAMS = production_seams()
LATER_MS = 5_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """T has two queues with three messages each; two groups are behind, and RocketMQ's own."""
    with open_store(tmp_path) as found:
        found.create_topic("T", queues=2)
        for number in range(6):
            put_message(found, message(found, number, queue_id=number % 2))
        for group in ("CID_RMQ_SYS_TRANS", "a", "b"):
            found.offsets.commit(group, [Commit("T", 0, 1), Commit("T", 1, 3)])
        yield found


class _Metrics:
    """Exposed metrics at some time after the store's last message."""

    def __init__(self, store: MessageStore, maximum: int = 10) -> None:
        store.offsets.save()
        self.reader = StoreReader.open(store.paths.root, SEAMS)
        self.newest_ms = _stored_ms(store, 2)
        self.registry = CollectorRegistry()
        names, offsets = RocketmqNames(Settings()), ConsumerOffsets

        def look() -> LagSource:
            table = offsets.load(store.paths, StoreFormat.V4_9, SEAMS)
            lookups, count = (
                self.reader.lookups,
                partial(count_open, self.reader.queues, settled={}),
            )
            lags = GroupLags(lookups, table, lookups.queues, count)
            dead = [each.removeprefix("%DLQ%") for each in lookups.topics() if "%DLQ%" in each]
            return LagSource(lags, table.groups(), dead)

        self.registry.register(LagMetrics(names, maximum, look, lambda: self.newest_ms + LATER_MS))

    def of(self, name: str) -> dict[str, float]:
        """By group and topic."""
        return {
            f"{sample.labels['consumer_group']} {sample.labels['topic']}": sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name
        }

    def left_out(self) -> float | None:
        return self.registry.get_sample_value("mqstore_consumer_lags_left_out")


def _stored_ms(store: MessageStore, offset: int, queue_id: int = 0) -> int:
    found = store.lookups.records("T", queue_id, offset, 1).records
    return found[0].store_timestamp_ms


def test_each_group_and_topic_has_its_lag_in_messages_and_in_time(store: MessageStore) -> None:
    metrics = _Metrics(store)
    every = {"CID_RMQ_SYS_TRANS T": 2.0, "a T": 2.0, "b T": 2.0}
    age = metrics.newest_ms + LATER_MS - _stored_ms(store, 1)
    assert metrics.of("rocketmq_consumer_lag_messages") == every
    assert metrics.of("rocketmq_consumer_ready_messages") == every
    assert metrics.of("rocketmq_consumer_lag_latency") == dict.fromkeys(every, age)
    assert metrics.of("rocketmq_consumer_queueing_latency") == dict.fromkeys(every, age)
    assert metrics.of("mqstore_consumer_expired_messages") == dict.fromkeys(every, 0)
    assert metrics.left_out() == 0


def test_labels_are_rocketmqs(store: MessageStore) -> None:
    store.create_topic("%RETRY%a", queues=1)
    store.offsets.commit("a", [Commit("%RETRY%a", 0, 0)])
    (family,) = (
        each
        for each in _Metrics(store).registry.collect()
        if each.name == "rocketmq_consumer_lag_messages"
    )
    values = [
        tuple(sample.labels[name] for name in ("consumer_group", "topic", "is_retry", "is_system"))
        for sample in family.samples
    ]
    assert values == [
        ("a", "%RETRY%a", "true", "false"),
        ("a", "T", "false", "false"),
        ("b", "T", "false", "false"),
        ("CID_RMQ_SYS_TRANS", "T", "false", "true"),
    ]
    assert {"cluster", "node_type", "node_id"} <= family.samples[0].labels.keys()


def test_only_so_many_have_one_and_the_rest_is_counted(store: MessageStore) -> None:
    metrics = _Metrics(store, maximum=2)
    assert list(metrics.of("rocketmq_consumer_lag_messages")) == ["a T", "b T"]
    assert metrics.left_out() == 1


def test_groups_with_the_most_dead_letters_have_a_metric(store: MessageStore) -> None:
    for group, count in (("a", 1), ("b", 3), ("c", 2)):
        store.create_topic(f"%DLQ%{group}", queues=1)
        for number in range(count):
            put_message(store, message(store, number, topic=f"%DLQ%{group}"))
    registry = _Metrics(store, maximum=2).registry
    counts = {
        group: registry.get_sample_value("mqstore_dead_letters", {"consumer_group": group})
        for group in "abc"
    }
    assert counts == {"a": None, "b": 3, "c": 2}
    assert registry.get_sample_value("mqstore_dead_letters_left_out") == 1


def test_message_that_cannot_be_read_leaves_the_time_out(store: MessageStore) -> None:
    store.offsets.commit("a", [Commit("T", 0, 3)])
    store.offsets.save()  # it syncs the log: what changes later is no longer what was written
    placed = store.lookups.records("T", 0, 1, 1).records[0]
    with (store.paths.commit_log / segment_name(0)).open("r+b") as file:
        file.seek(placed.physical_offset + 100)
        file.write(b"!")
    metrics = _Metrics(store)
    assert metrics.of("rocketmq_consumer_lag_messages")["b T"] == 2
    assert metrics.of("rocketmq_consumer_lag_latency") == {"a T": 0}


def test_store_that_cannot_be_looked_at_has_none_and_hides_no_other_metric() -> None:
    registry = CollectorRegistry()

    def look() -> None:
        raise OSError("disk")

    registry.register(LagMetrics(RocketmqNames(Settings()), 10, look, lambda: 0))
    assert registry.get_sample_value("mqstore_consumer_lags_left_out") == 0


class _Counted:
    """In the place of ``GroupLags``: the groups whose dead letters were counted, in order."""

    def __init__(self) -> None:
        self.counted: list[str] = []

    def dead_letters(self, group: str) -> int:
        self.counted.append(group)
        return len(self.counted)


def test_a_scrape_counts_the_dead_letters_of_a_few_groups_and_keeps_the_other_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqstore.query.lag_metrics.CACHE_S", 0.0)
    monkeypatch.setattr("mqstore.query.lag_metrics.DEAD_TOPICS_MAX", 2)
    lags, groups = _Counted(), ["a", "b", "c", "d", "e"]
    source = LagSource(cast(GroupLags, lags), {}, groups)
    metrics = LagMetrics(RocketmqNames(Settings()), 10, lambda: source, lambda: 0)

    def scrape() -> dict[str, float]:
        (family,) = (each for each in metrics.collect() if each.name == "mqstore_dead_letters")
        return {sample.labels["consumer_group"]: sample.value for sample in family.samples}

    assert scrape() == {"a": 1, "b": 2}
    scrape()
    assert scrape() == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
    groups.remove("b")
    assert scrape() == {"a": 6, "c": 7, "d": 4, "e": 5}
    assert lags.counted == ["a", "b", "c", "d", "e", "a", "c"]
