"""Transactions over real processes: a coordinator between a store-writer and a query service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mqstore.client import AsyncClient, Client, NewMessage, ProblemError, Transaction
from tests.services.transaction_shard import Shard, begin, end, shard_at


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    with shard_at(tmp_path) as found:
        yield found


def test_messages_are_seen_together_at_the_commit_and_never_after_a_rollback(shard: Shard) -> None:
    with shard.coordinator() as one:
        kept, dropped = begin(one, "a", "b"), begin(one, "c")
        assert shard.bodies() == []
        assert end(one, kept, "commit").json()["state"] == "committed"
        assert shard.bodies() == ["a", "b"]
        assert end(one, dropped, "rollback").json()["state"] == "rolled-back"
        assert shard.bodies() == ["a", "b"]


def test_a_repeated_decision_is_fine_and_a_contrary_one_is_told_which_was_taken(
    shard: Shard,
) -> None:
    with shard.coordinator() as one:
        transaction = begin(one, "a")
        first, again = (end(one, transaction, "commit", reason="paid") for _ in range(2))
        refused = end(one, transaction, "rollback")
    assert first.json() == again.json()
    assert refused.status_code == 409
    problem = refused.json()
    assert (problem["decision"], problem["why"]) == ("commit", "paid")
    assert problem["decidedAt"] == first.json()["decidedAt"]
    assert shard.bodies() == ["a"]


def test_what_is_pending_and_decided_outlives_a_kill(shard: Shard) -> None:
    with shard.coordinator() as one:
        decided, pending = begin(one, "a"), begin(one, "b")
        end(one, decided, "commit")
        one.kill()
    with shard.coordinator() as two:
        listed = httpx.get(f"{two.url}/v1/transactions", timeout=60).json()["transactions"]
        assert [each["transactionId"] for each in listed] == [pending]
        assert end(two, decided, "commit").json()["state"] == "committed"
        end(two, pending, "commit")
    assert shard.bodies() == ["a", "b"]


def test_a_producer_takes_checks_of_its_group_and_they_are_counted(shard: Shard) -> None:
    with shard.coordinator() as one:
        transaction = begin(one, "a")
        asked = {"producerGroup": "billing", "wait": 20}
        taken = httpx.post(f"{one.url}/v1/checks", json=asked, timeout=60).json()["transactions"]
        assert [(each["transactionId"], each["checksSent"]) for each in taken] == [(transaction, 1)]
        end(one, transaction, "commit")
        story = httpx.get(f"{one.url}/v1/transactions/{transaction}", timeout=60).json()
    assert [copy["checkTimes"] for copy in story["halves"]] == [0, 1]
    assert all(copy["opOffset"] is not None for copy in story["halves"])
    assert shard.bodies() == ["a"]


def test_the_client_has_every_call_blocking_and_not(shard: Shard) -> None:
    with shard.coordinator() as one, Client(coordinator_url=one.url) as client:
        message = NewMessage(body="a", keys=("k",), uniq_key="A1")
        begun = client.begin("billing", "orders", [message], shard=0)
        assert client.begin("billing", "orders", [message]) == begun
        (listed,) = client.transactions(state="pending", group="billing").transactions
        assert listed == client.transaction(begun.transaction_id)
        (taken,) = client.take_checks("billing", max_checks=1, wait_s=20).transactions
        assert [(check.by, check.answer) for check in taken.checks] == [("poll", None)]
        committed = client.commit_transaction(begun.transaction_id, reason="paid")
        assert (committed.state, committed.why) == ("committed", "paid")
        with pytest.raises(ProblemError) as refused:
            client.rollback_transaction(begun.transaction_id)
        assert refused.value.type == "transaction-decided"
        with pytest.raises(ProblemError) as refused:
            client.register_producer("billing", "one", "https://example.org/", "s" * 32)
        assert refused.value.type == "callback-refused"
        with pytest.raises(ProblemError):
            client.remove_producer("billing", "one")
        assert client.producers().producers == ()
        assert client.leader().leading
        with pytest.raises(ValueError, match="cannot be delayed"):
            client.begin("billing", "orders", [NewMessage(delay_level=1)])

        async def resolve() -> Transaction:
            async with AsyncClient(coordinator_url=one.url) as other:
                found = await other.begin("billing", "orders", [NewMessage(body=b"b")])
                return await other.resolve_transaction(found.transaction_id, "commit", "by hand")

        assert asyncio.run(resolve()).why == "by hand"
    assert shard.bodies() == ["a", "b"]


def test_what_is_no_transaction_is_named(shard: Shard) -> None:
    with shard.coordinator() as one:
        for transaction in ("0-nobody", "7-other", "nothing"):
            answer = end(one, transaction, "commit")
            assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (
                *(404, "transaction-unknown"),
            )
