"""The metrics of transactions that store-writer serves; the reference has every one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from docs.generate.metrics import metric_names
from mqstore.client import Client
from tests.services.service_processes import REPOSITORY, Process, query, writer
from tests.services.transaction_shard import begin, end

PREFIXES = (
    *("mqstore_transactions", "rocketmq_half", "rocketmq_commit", "rocketmq_rollback"),
    "rocketmq_finish",
)
LABELS = ("shard", "decision", "topic", "older_than_seconds")
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
MESSAGES_IN, BYTES_IN = "rocketmq_messages_in_total", "rocketmq_throughput_in_total"
PUT_TIMES = "rocketmq_brokeruntime_pmdt_"
SIZES = "rocketmq_message_size_count"
PUTS = (MESSAGES_IN, BYTES_IN, PUT_TIMES, SIZES, "mqstore_put_seconds_count")
PUT_LABELS = ("topic", "message_type", "is_system")


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Process]:
    settings: dict[str, Any] = {"transaction_time_out": 0, "shard": 3}
    with writer(tmp_path / "store", **settings) as process, Client(process.url) as client:
        client.create_topic("orders")
        yield process


def samples(process: Process) -> dict[str, float]:
    """Samples of transaction metrics, by name and labels, without those of the node."""
    found = {}
    text = httpx.get(f"{process.url}/metrics", timeout=60).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if family.name.startswith(PREFIXES) and family.name != "rocketmq_rpc_latency":
                labels = [sample.labels[name] for name in LABELS if name in sample.labels]
                found[" ".join([sample.name, *labels])] = sample.value
    return found


def test_each_thing_that_happens_is_counted(one: Process) -> None:
    end(one, begin(one, "a", "b"), "commit")
    end(one, begin(one, "c"), "rollback")
    kept = begin(one, "d")
    terms = {"group": "billing", "wait": 20, "by": "poll"}
    url = f"{one.url}/v1/transactions:lease-checks"
    checks = httpx.post(url, json=terms, timeout=60).json()["checks"]
    assert [each["transaction"]["transactionId"] for each in checks] == [kept]
    found = samples(one)
    expected = {
        "mqstore_transactions_pending 3": 1,
        "mqstore_transactions_pending_by_age 3 3600": 0,
        "mqstore_transactions_set_aside 3": 0,
        "mqstore_transactions_checks_waiting 3": 0,
        "mqstore_transactions_begun_total 3": 3,
        "mqstore_transactions_decided_total 3 commit": 1,
        "mqstore_transactions_decided_total 3 rollback": 1,
        "mqstore_transactions_checks_sent_total 3": 1,
        "mqstore_transactions_checks_answered_total 3": 0,
        "mqstore_transactions_loads_total 3": 1,
        "mqstore_transactions_batch_count 3": 6,
        "rocketmq_half_messages orders": 1,
        "rocketmq_commit_messages_total orders": 2,
        "rocketmq_rollback_messages_total orders": 1,
        "rocketmq_finish_message_latency_count": 1,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["mqstore_transactions_oldest_seconds 3"] > 0
    end(one, kept, "commit")
    found = samples(one)
    assert found["mqstore_transactions_checks_answered_total 3"] == 1
    assert found["mqstore_transactions_pending 3"] == 0


def count_puts(url: str) -> Counter[str]:
    """store-writer's counters of puts, by name, topic, message type and is_system; the distribution
    of put times as one sum."""
    found: Counter[str] = Counter()
    text = httpx.get(f"{url}/metrics", timeout=60).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = PUT_TIMES if sample.name.startswith(PUT_TIMES) else sample.name
            if name in PUTS:
                labels = [sample.labels[each] for each in PUT_LABELS if each in sample.labels]
                found[" ".join([name, *labels])] += int(sample.value)
    return found


def test_half_and_committed_messages_count_as_puts(one: Process, tmp_path: Path) -> None:
    before = count_puts(one.url)
    committed, rolled_back, _ = begin(one, "a", "b"), begin(one, "c"), begin(one, "d")
    begun = count_puts(one.url)
    assert end(one, committed, "commit").status_code == 200
    assert end(one, rolled_back, "rollback").status_code == 200
    decided = count_puts(one.url)

    half = f"{HALF_TOPIC} transaction true"
    own = "orders transaction false"
    counted = {name: decided[name] for name in decided if name.startswith(MESSAGES_IN)}
    assert counted == {f"{MESSAGES_IN} {half}": 4, f"{MESSAGES_IN} {own}": 2}
    assert begun[f"{MESSAGES_IN} {half}"] == 4
    assert begun[f"{MESSAGES_IN} {own}"] == 0

    with query(tmp_path / "store", shard=3) as reads, Client(query_url=reads.url) as client:
        pulled = [client.pull("orders", queue).messages for queue in range(4)]
    messages = [each for found in pulled for each in found]
    assert [each.body for each in messages] == ["a", "b"]
    assert decided[f"{BYTES_IN} {own}"] == sum(each.size for each in messages)
    assert decided[f"{BYTES_IN} {half}"] == begun[f"{BYTES_IN} {half}"] > 0

    for name in (PUT_TIMES, "mqstore_put_seconds_count"):
        assert begun[name] - before[name] == 3, "a begin is one put"
        assert decided[name] - begun[name] >= 2, "so is a decision, at least"
    # As in RocketMQ: the sizes are those of the messages that producers sent.
    assert decided[SIZES] - before[SIZES] == 4


def test_every_metric_is_explained(one: Process) -> None:
    names = {name.split()[0] for name in samples(one)}
    assert len(names) > 10
    bases = {re.sub("_(bucket|count|sum)$", "", name) for name in names}
    assert bases - metric_names() == set()


def test_the_alerts_are_about_metrics_that_are_there() -> None:
    page = (REPOSITORY / "docs/how-to/resolve-stuck-transactions.md").read_text(encoding="utf-8")
    expressions = [line for line in page.splitlines() if line.strip().startswith("expr: ")]
    assert len(expressions) >= 3
    for expression in expressions:
        for name in re.findall(r"mqstore_[a-z_]+", expression):
            assert name in metric_names()
