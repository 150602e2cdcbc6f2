"""What Prometheus reads of transactions, and that operations.md has every name of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.services.service_processes import REPOSITORY, Process
from tests.services.transaction_shard import Shard, begin, end, shard_at

PAGE = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
PREFIXES = ("mqstore_transactions", "mqstore_coordinator", "rocketmq_")
LABELS = ("shard", "decision", "topic")


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    with shard_at(tmp_path / "shard") as found:
        yield found


def samples(process: Process) -> dict[str, float]:
    """Of transactions: by name and labels, but for those of the node."""
    found = {}
    text = httpx.get(f"{process.url}/metrics", timeout=60).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if family.name.startswith(PREFIXES) and family.name != "rocketmq_rpc_latency":
                labels = [sample.labels[name] for name in LABELS if name in sample.labels]
                found[" ".join([sample.name, *labels])] = sample.value
    return found


def test_each_thing_that_happens_is_counted(shard: Shard) -> None:
    with shard.coordinator() as one:
        end(one, begin(one, "a", "b"), "commit")
        end(one, begin(one, "c"), "rollback")
        kept = begin(one, "d")
        asked = {"producerGroup": "billing", "wait": 20}
        taken = httpx.post(f"{one.url}/v1/checks", json=asked, timeout=60).json()["transactions"]
        assert [each["transactionId"] for each in taken] == [kept]
        found = samples(one)
        expected = {
            "mqstore_coordinator_leader": 1,
            "mqstore_transactions_pending 0": 1,
            "mqstore_transactions_set_aside 0": 0,
            "mqstore_transactions_begun_total 0": 3,
            "mqstore_transactions_decided_total 0 commit": 1,
            "mqstore_transactions_decided_total 0 rollback": 1,
            "mqstore_transactions_checks_sent_total 0": 1,
            "mqstore_transactions_checks_answered_total 0": 0,
            "mqstore_transactions_loads_total 0": 1,
            "rocketmq_half_messages orders": 1,
            "rocketmq_commit_messages_total orders": 2,
            "rocketmq_rollback_messages_total orders": 1,
        }
        assert {name: found[name] for name in expected} == expected
        assert found["mqstore_transactions_oldest_seconds 0"] > 0
        end(one, kept, "commit")
        found = samples(one)
        assert found["mqstore_transactions_checks_answered_total 0"] == 1
        assert found["mqstore_transactions_pending 0"] == 0


def test_every_metric_is_explained(shard: Shard) -> None:
    with shard.coordinator() as one:
        names = {name.split()[0] for name in samples(one)}
    assert len(names) > 10
    for name in names:
        base = name
        for end_of_name in ("_bucket", "_count", "_sum"):
            base = base.removesuffix(end_of_name)
        assert f"`{base}" in PAGE, name


def test_the_alerts_are_about_metrics_that_are_there() -> None:
    expressions = [line for line in PAGE.splitlines() if line.strip().startswith("expr: ")]
    assert len(expressions) >= 3
    for expression in expressions:
        for name in re.findall(r"mqstore_[a-z_]+", expression):
            assert f"| `{name}` |" in PAGE
