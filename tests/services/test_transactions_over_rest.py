"""Transactions over real processes: a coordinator between a store-writer and a query service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import AsyncClient, Client, NewMessage, ProblemError, Transaction
from mqstore.storage.layout import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from tests.services.service_processes import Process
from tests.services.transaction_shard import Shard, begin, end, shard_at


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    with shard_at(tmp_path_factory.mktemp("shard")) as found:
        yield found


@pytest.fixture
def shard(store: Shard) -> Shard:
    return store.afresh()


def test_messages_are_seen_together_at_the_commit_and_never_after_a_rollback(shard: Shard) -> None:
    with shard.coordinator() as one:
        kept, dropped = begin(one, "a", "b"), begin(one, "c")
        assert shard.bodies() == []
        assert end(one, kept, "commit").json()["state"] == "committed"
        assert shard.bodies() == ["a", "b"]
        assert end(one, dropped, "rollback").json()["state"] == "rolled-back"
        assert shard.bodies() == ["a", "b"]


def test_a_repeated_decision_is_fine_and_a_contrary_one_gets_the_decision_that_was_taken(
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


def test_a_store_that_rejects_transactions_begins_none_and_decides_those_that_are_pending(
    tmp_path: Path,
) -> None:
    with shard_at(tmp_path) as shard:
        pending = begin(shard.writer, "a")
        shard.settings["reject_transaction_message"] = True
        shard.restart_writer()
        spec = {"producerGroup": "billing", "topic": "orders", "messages": [{"body": "b"}]}
        with shard.coordinator() as one:
            for process in (shard.writer, one):
                for headers in ({}, {"idempotency-key": "k"}):
                    url = f"{process.url}/v1/transactions"
                    refused = httpx.post(url, json=spec, headers=headers)
                    assert refused.status_code == 409
                    assert refused.json()["type"].endswith("transactions-rejected")
            assert end(one, pending, "commit").json()["state"] == "committed"
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
        two.process.terminate()
        assert two.ended()[0] == 0
    assert shard.bodies() == ["a", "b"]


def test_a_producer_takes_checks_of_its_group_and_they_are_counted(shard: Shard) -> None:
    with shard.coordinator() as one:
        transaction = begin(one, "a")
        request = {"producerGroup": "billing", "wait": 20}
        taken = httpx.post(f"{one.url}/v1/checks", json=request, timeout=60).json()["transactions"]
        assert [(each["transactionId"], each["checksSent"]) for each in taken] == [(transaction, 1)]
        end(one, transaction, "commit")
        snapshot = httpx.get(f"{one.url}/v1/transactions/{transaction}", timeout=60).json()
    assert [copy["checkTimes"] for copy in snapshot["halves"]] == [0, 1]
    assert all(copy["opOffset"] is not None for copy in snapshot["halves"])
    assert shard.bodies() == ["a"]


def test_a_relayed_reply_has_each_header_once_and_the_id_that_the_client_gave(
    shard: Shard,
) -> None:
    """Over one connection, so that all but the first request are relayed past ASGI."""
    with shard.coordinator() as one, httpx.Client(base_url=one.url, timeout=60) as http:
        for given in (None, None, "of-mine"):
            headers = {} if given is None else {"x-request-id": given}
            message = {"producerGroup": "billing", "topic": "orders", "messages": [{"body": "a"}]}
            reply = http.post("/v1/transactions", json=message, headers=headers)
            names = [name for name, _ in reply.headers.multi_items()]
            assert (reply.status_code, sorted(set(names))) == (201, sorted(names))
            assert given in (None, reply.headers["x-request-id"])
            transaction = reply.json()["transactionId"]
            ended = http.post(f"/v1/transactions/{transaction}:commit", headers=headers)
            assert ended.json()["state"] == "committed"
    assert shard.bodies() == ["a", "a", "a"]


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
        with pytest.raises(ValueError, match="cannot be delayed"):
            client.begin("billing", "orders", [NewMessage(delay_level=1)])

        async def resolve() -> Transaction:
            async with AsyncClient(coordinator_url=one.url) as other:
                found = await other.begin("billing", "orders", [NewMessage(body=b"b")])
                return await other.resolve_transaction(found.transaction_id, "commit", "by hand")

        assert asyncio.run(resolve()).why == "by hand"
    assert shard.bodies() == ["a", "b"]


def test_a_begin_under_an_idempotency_key_is_one_transaction(shard: Shard) -> None:
    def begin(url: str, *bodies: str) -> httpx.Response:
        messages = [{"body": body} for body in bodies]
        spec = {"producerGroup": "billing", "topic": "orders", "messages": messages}
        headers = {"idempotency-key": '"order-1"'}
        return httpx.post(f"{url}/v1/transactions", json=spec, headers=headers, timeout=60)

    with shard.coordinator() as one:
        first = begin(one.url, "a", "b")
        assert (first.status_code, first.json()["transactionId"]) == (201, "0-order-1~0")
        assert begin(one.url, "a", "b").json() == first.json()
        assert begin(one.url, "a", "b", "c").status_code == 409
        (listed,) = httpx.get(f"{one.url}/v1/transactions?state=pending").json()["transactions"]
        end(one, "0-order-1~0", "commit")
    assert listed["transactionId"] == "0-order-1~0"
    assert shard.bodies() == ["a", "b"]


def test_another_begin_under_an_idempotency_key_is_a_conflict(shard: Shard) -> None:
    def begin(coordinator: Process, group: str, *bodies: str) -> tuple[int, str]:
        messages = [{"body": body} for body in bodies]
        spec = {"producerGroup": group, "topic": "orders", "messages": messages}
        headers = {"idempotency-key": "order-2"}
        url = f"{coordinator.url}/v1/transactions"
        found = httpx.post(url, json=spec, headers=headers, timeout=60)
        return found.status_code, found.json().get("type", "").rpartition(":")[2]

    def refuse_others(coordinator: Process) -> None:
        for group, *bodies in (
            ("billing", "a", "another"),
            ("billing", "b", "a"),
            ("billing", "a", "b", "c"),
            ("shipping", "a", "b"),
        ):
            assert begin(coordinator, group, *bodies) == (409, "unique-key-taken")

    with shard.coordinator() as one:
        assert begin(one, "billing", "a", "b") == (201, "")
        refuse_others(one)
        assert begin(one, "billing", "a", "b") == (201, "")
    shard.restart_writer()  # so that the half messages are known from the log alone
    with shard.coordinator() as one:
        refuse_others(one)
        assert end(one, "0-order-2~0", "commit").status_code == 200
        refuse_others(one)
        assert begin(one, "billing", "a", "b") == (201, "")
    assert shard.bodies() == ["a", "b"]


def test_transactions_are_listed_by_state_group_and_age(shard: Shard) -> None:
    with shard.coordinator() as one, Client(coordinator_url=one.url) as client:

        def listed(**parameters: Any) -> list[str]:
            group = {"group": "listed"}
            return [
                each.transaction_id
                for each in client.transactions(**group | parameters).transactions
            ]

        ids = [
            client.begin("listed", "orders", [NewMessage(body=body)]).transaction_id
            for body in "abcd"
        ]
        client.commit_transaction(ids[1])
        client.rollback_transaction(ids[2])
        assert listed() == listed(state="pending") == [ids[0], ids[3]]
        assert (listed(state="committed"), listed(state="rolled-back")) == ([ids[1]], [ids[2]])
        assert listed(group="unknown") == listed(older_than_s=3_600) == []
        for each in (ids[0], ids[3]):
            client.rollback_transaction(each)


@pytest.mark.slow
def test_a_transaction_without_an_answer_is_set_aside_and_resolved_by_hand(
    tmp_path: Path,
) -> None:
    few: dict[str, Any] = {"transaction_check_interval": 1_000, "transaction_check_max": 2}
    with shard_at(tmp_path / "shard", **few) as shard:
        with shard.coordinator() as one, Client(coordinator_url=one.url) as client:
            messages = [NewMessage(body="a"), NewMessage(body="b")]
            begun = client.begin("forgetful", "orders", messages).transaction_id
            while (found := client.transaction(begun)).state == "pending":
                client.take_checks("forgetful", wait_s=1)  # and answers none of them
            assert (found.state, found.checks_sent, found.why) == (
                "set-aside",
                2,
                "checked 2 times",
            )
            assert client.transactions(group="forgetful").transactions == (found,)
            kept = shard.client.pull(CHECK_MAX_TIME_TOPIC, 0).messages
            assert [each.body for each in kept] == ["a", "b"]
            with pytest.raises(ProblemError, match="resolve it by hand") as refused:
                client.commit_transaction(begun)
            assert refused.value.problem["decision"] == "set-aside"
            assert shard.bodies() == []
            client.resolve_transaction(begun, "commit", "the customer has paid")
        shard.restart_writer()
        with shard.coordinator() as two, Client(coordinator_url=two.url) as client:
            snapshot = client.transaction(begun)
            assert (snapshot.state, snapshot.why) == ("committed", "the customer has paid")
            assert [copy.check_times for copy in snapshot.halves] == [0, 1, 2, 0, 1, 2]
            assert not client.transactions().transactions
        assert shard.bodies() == ["a", "b"]


def test_the_offsets_of_half_messages_are_saved_at_the_end(tmp_path: Path) -> None:
    with shard_at(tmp_path / "shard") as shard, shard.coordinator() as one:
        for body in "ab":
            end(one, begin(one, body), "commit")
        shard.restart_writer()
        saved = shard.client.offsets(TRANSACTION_GROUP, topic=HALF_TOPIC).offsets
        ends = shard.client.queues(HALF_TOPIC).queues
        assert [each.committed for each in saved] == [each.max_offset for each in ends] == [2]


def test_whatever_key_a_transaction_may_have_its_id_finds_it(shard: Shard) -> None:
    with shard.coordinator() as one, Client(coordinator_url=one.url) as client:
        for key in ("a:commit", "50%25", "a?b#c", "..", "\u043a\u043b\u044e\u0447"):
            message = NewMessage(body=key, uniq_key=key)
            begun = client.begin("billing", "orders", [message]).transaction_id
            assert begun == f"0-{key}"
            assert client.transaction(begun).state == "pending"
            assert client.rollback_transaction(begun).state == "rolled-back"
        with pytest.raises(ProblemError, match="uniqKey") as refused:
            client.begin("billing", "orders", [NewMessage(uniq_key="a/b")])
        assert refused.value.status == 422


def test_what_is_no_transaction_is_named(shard: Shard) -> None:
    with shard.coordinator() as one:
        for transaction in ("0-unknown", "7-other", "nothing"):
            answer = end(one, transaction, "commit")
            assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (
                *(404, "transaction-unknown"),
            )


def test_a_message_without_a_body_begins_no_transaction(shard: Shard) -> None:
    with shard.coordinator() as one, Client(coordinator_url=one.url) as client:
        for body in ("", b""):
            with pytest.raises(ProblemError, match="no body") as refused:
                client.begin("billing", "orders", [NewMessage(body=body)])
            assert (refused.value.status, refused.value.type) == (422, "message-invalid")


@pytest.mark.slow
def test_a_topic_may_be_made_after_a_begin_was_refused(shard: Shard) -> None:
    spec = {"producerGroup": "billing", "topic": "late", "messages": [{"body": "a"}]}
    with shard.coordinator() as one:
        url = f"{one.url}/v1/transactions"
        refused = httpx.post(url, json=spec, timeout=60)
        assert refused.json()["type"].rpartition(":")[2] == "topic-unknown"
        shard.client.create_topic("late")
        begun = httpx.post(url, json=spec, timeout=60)
        assert begun.status_code == 201
        assert end(one, begun.json()["transactionId"], "rollback").is_success
