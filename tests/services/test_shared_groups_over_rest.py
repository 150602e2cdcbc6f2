"""Shared groups over REST: consumers lease, acknowledge and return messages, over kills too."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.client import (
    Client,
    LeasedMessage,
    NewMessage,
    ProblemError,
    ReceiptStatus,
    WantedMessages,
)
from tests.services.producing import produce
from tests.services.service_processes import ServicePair, service_pair, writer
from tests.services.shard_processes import cluster

SAVED_SOON = {"flush_consumer_offset_interval": 20}
PENDING = re.compile(r"\[\d+,\s*\d+\]")
"""A pending message of shared-groups.json: its offset and attempts."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    with service_pair(tmp_path_factory.mktemp("shared") / "store", **SAVED_SOON) as started:
        yield started


@pytest.fixture
def client(pair: ServicePair) -> Iterator[Client]:
    with pair.client() as made:
        yield made


def bodies(messages: tuple[LeasedMessage, ...]) -> set[str]:
    return {each.body or "" for each in messages}


def test_two_consumers_share_the_messages_of_a_topic(client: Client) -> None:
    sent = produce(client, "shared", 40)
    first = client.receive("g", "shared", max_messages=25).messages
    second = client.receive("g", "shared", max_messages=25).messages

    assert len(first) == 25
    assert bodies(first) | bodies(second) == sent
    assert bodies(first).isdisjoint(bodies(second))
    assert {each.delivery_attempt for each in first} == {1}
    results = client.acknowledge("g", [*first, *second]).results
    assert {each.status for each in results} == {ReceiptStatus.OK}
    assert client.lag("g", topic="shared").lag == 0


def test_a_waiting_receive_returns_when_a_message_arrives(client: Client) -> None:
    client.create_topic("awaited")
    with Client(*(client._urls[each] for each in list(client._urls)[:2])) as other:
        found: list[tuple[LeasedMessage, ...]] = []
        waiting = threading.Thread(
            target=lambda: found.append(other.receive("g", "awaited", wait_s=30).messages)
        )
        waiting.start()
        sent = produce(client, "awaited", 1)
        waiting.join(60)
    assert [bodies(each) for each in found] == [sent]


def test_an_expired_lease_wakes_a_waiting_receive(client: Client) -> None:
    sent = produce(client, "expiring", 1)
    (first,) = client.receive("g", "expiring", invisible_s=0.05).messages
    (again,) = client.receive("g", "expiring", wait_s=30).messages
    assert bodies((again,)) == sent
    assert again.delivery_attempt == 2
    assert client.acknowledge("g", first).results[0].status is ReceiptStatus.LOST
    assert client.acknowledge("g", again.receipt).results[0].status is ReceiptStatus.OK


def test_a_filter_selects_by_tags_or_by_sql(client: Client) -> None:
    produce(client, "filtered", 3, tags="b")
    wanted = produce(client, "filtered", 2, tags="a")
    for group, one in (
        ("t", WantedMessages(tags="a || c")),
        ("s", WantedMessages(sql="TAGS = 'a'")),
    ):
        found = client.receive(group, {"filtered": one})
        assert bodies(found.messages) == wanted


def test_a_returned_message_is_delivered_again_after_its_delay(client: Client) -> None:
    sent = produce(client, "returned", 1)
    (first,) = client.receive("retrying", "returned").messages
    client.give_back("retrying", first, delay_level=1, reason="later")
    (again,) = client.receive("retrying", "returned", wait_s=30).messages

    assert bodies((again,)) == sent
    assert (again.topic, again.source_topic) == ("%RETRY%retrying", "returned")
    assert (again.reconsume_times, again.delivery_attempt) == (1, 2)
    assert again.properties["ORIGIN_MESSAGE_ID"] == first.offset_msg_id
    assert again.properties["MQSTORE_WHY"] == "later"
    assert client.acknowledge("retrying", again).results[0].status is ReceiptStatus.OK


def test_a_dead_letter_can_be_read_as_any_message(client: Client) -> None:
    sent = produce(client, "dying", 1)
    (first,) = client.receive("burying", "dying").messages
    client.give_back("burying", [first.receipt], delay_level=-1, reason="malformed")
    (dead,) = client.pull("%DLQ%burying", 0).messages
    assert ({dead.body}, dead.properties["RETRY_TOPIC"]) == (sent, "dying")


def test_a_message_whose_properties_do_not_fit_a_return_is_refused_alone(client: Client) -> None:
    client.create_topic("wide", queues=1)
    wide = NewMessage(body="wide", properties={"p": "x" * 32_650})
    client.produce("wide", [NewMessage(body="a"), wide, NewMessage(body="b")])
    found = client.receive("returning", "wide").messages
    done = client.give_back("returning", found, delay_level=-1, reason="r" * 100)
    statuses = [each.status for each in done.results]
    assert statuses == [ReceiptStatus.OK, ReceiptStatus.REFUSED, ReceiptStatus.OK]
    assert [each.body for each in client.dead_letters("returning").messages] == ["b", "a"]
    assert client.lag("returning").lag > 0
    assert client.acknowledge("returning", found[1]).results[0].status is ReceiptStatus.OK
    assert client.lag("returning").lag == 0


def test_requests_of_no_use_are_refused(client: Client) -> None:
    for build, problem in (
        (lambda: client.receive("g", "unknown-topic"), "topic-unknown"),
        (lambda: client.receive("CID_RMQ_SYS_TRANS", "shared"), "group-invalid"),
        (lambda: client.receive("g", {"shared": WantedMessages(sql="a >")}), "bad-filter"),
        (lambda: client.acknowledge("g", "no receipt"), "receipt-invalid"),
        (lambda: client.acknowledge("g", "9.0.0.0.shared"), "receipt-invalid"),
        (lambda: client.give_back("g", "0.0.0.0.shared", reason="a\x01b"), "property-invalid"),
    ):
        with pytest.raises(ProblemError) as refused:
            build()
        assert refused.value.problem["type"].endswith(problem)


def test_a_group_that_is_disabled_gets_nothing(client: Client) -> None:
    produce(client, "disabled", 1)
    client.put_group("off", consume_enable=False)
    with pytest.raises(ProblemError, match="consumeEnable"):
        client.receive("off", "disabled")


def test_nothing_is_skipped_and_what_was_saved_is_not_delivered_again(tmp_path: Path) -> None:
    root, every = tmp_path / "store", 200
    acknowledged: set[str] = set()
    seen: Counter[str] = Counter()
    with writer(root, **SAVED_SOON) as process, Client(process.url) as client:
        sent = produce(client, "killed", every)
        found = client.receive("g", "killed", max_messages=150, invisible_s=3600).messages
        seen.update(bodies(found))
        done = found[::2]
        client.acknowledge("g", done)
        acknowledged = bodies(done)
        saved, pending = root / "mqstore" / "shared-groups.json", len(found) - len(done)
        while not saved.exists() or len(PENDING.findall(saved.read_text())) != pending:
            threading.Event().wait(0.005)
        process.kill()
    with writer(root, **SAVED_SOON) as process, Client(process.url) as client:
        rest = client.receive("g", "killed", max_messages=1_000).messages
        assert bodies(rest) == sent - acknowledged
        assert {each.delivery_attempt for each in rest} == {1}  # a kill is no failure


def test_with_tokens_a_consumer_works_and_a_producer_may_not_receive(tmp_path: Path) -> None:
    """RocketMQ's POP consumers broke once access control was on."""
    roles = ("admin", "produce", "consume")
    tokens = {role: f"{role}-token-0123456789" for role in roles}
    settings = {f"token_{role}": token for role, token in tokens.items()}
    with writer(tmp_path / "store", **settings) as process:
        with Client(process.url, token=tokens["admin"]) as client:
            sent = produce(client, "guarded", 3)
        with Client(process.url, token=tokens["consume"]) as client:
            found = client.receive("g", "guarded").messages
            assert bodies(found) == sent
            client.give_back("g", found[:1])
            results = client.acknowledge("g", found[1:]).results
            assert [each.status for each in results] == [ReceiptStatus.OK] * 2
        with Client(process.url, token=tokens["produce"]) as client:
            with pytest.raises(ProblemError) as refused:
                client.receive("g", "guarded")
            assert refused.value.status == 403


def test_any_shard_serves_messages_and_receipts_of_all(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as shards:
        sent: set[str] = set()
        with shards.client(0) as first:
            first.create_topic("spread", queues=2)
        for number in (0, 1):
            with shards.client(number) as client:
                body = f"of shard {number}"
                client.produce("spread", NewMessage(body=body), shard=number)
                sent.add(body)
        with shards.client(0) as client:
            found = [each for _ in range(2) for each in client.receive("g", "spread").messages]
            assert bodies(tuple(found)) == sent
            assert {each.shard for each in found} == {0, 1}
            results = client.acknowledge("g", found).results
            assert [each.status for each in results] == [ReceiptStatus.OK] * 2
            assert client.receive("g", "spread").messages == ()
            assert client.lag("g", topic="spread").lag == 0
