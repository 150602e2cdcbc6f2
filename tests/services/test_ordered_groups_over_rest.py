"""Ordered groups over REST: members hold queues, and get their messages one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, LeasedMessage, Member, NewMessage, ProblemError, ReceiptStatus
from tests.services.service_processes import ServicePair, writer
from tests.services.shard_processes import cluster

OK, STALE, EARLY = ReceiptStatus.OK, ReceiptStatus.STALE, ReceiptStatus.EARLY


@pytest.fixture
def client(pair: ServicePair) -> Iterator[Client]:
    with pair.client() as made:
        yield made


def produce(client: Client, topic: str, count: int, *, queues: int = 1) -> None:
    """Create a topic, and store numbers in each of its queues."""
    client.create_topic(topic, queues=queues)
    for queue_id in range(queues):
        numbers = [NewMessage(body=f"{each}", queue_id=queue_id) for each in range(count)]
        client.produce(topic, numbers)


def bodies(messages: tuple[LeasedMessage, ...]) -> list[str | None]:
    return [each.body for each in messages]


def statuses(reply: Any) -> list[ReceiptStatus]:
    return [each.status for each in reply.results]


def queues_of(member: Member) -> set[int]:
    return {each.queue_id for each in member.queues if not each.topic.startswith("%")}


def test_a_queue_delivers_more_once_its_messages_are_acknowledged(client: Client) -> None:
    produce(client, "strict", 5)
    client.join("o", "a", "strict")
    first = client.receive("o", "strict", max_messages=2, member="a").messages
    assert bodies(first) == ["0", "1"]
    blocked = client.receive("o", "strict", member="a")
    assert (blocked.messages, blocked.full) == ((), True)

    assert statuses(client.acknowledge("o", first[1])) == [EARLY]
    assert statuses(client.acknowledge("o", [first[1], first[0]])) == [OK, OK]
    assert bodies(client.receive("o", "strict", member="a").messages) == ["2", "3", "4"]
    client.leave("o", "a")


def test_a_returned_message_holds_its_queue_until_it_is_a_dead_letter(client: Client) -> None:
    produce(client, "failing", 3)
    client.put_group("f", retry_times_max=1)
    client.join("f", "a", "failing")
    first, second, _ = client.receive("f", "failing", member="a").messages
    assert statuses(client.give_back("f", first, delay_s=0.05, reason="no stock")) == [OK]
    assert statuses(client.acknowledge("f", second)) == [EARLY]

    again = client.receive("f", "failing", member="a", wait_s=20).messages
    assert bodies(again) == ["0", "1", "2"]
    assert [each.delivery_attempt for each in again] == [2, 1, 1]
    assert statuses(client.give_back("f", again[0], delay_s=60, reason="still none")) == [OK]
    assert statuses(client.acknowledge("f", again[1:])) == [OK, OK]
    (letter,) = client.dead_letters("f").messages
    assert (letter.body, letter.reason, letter.delivery_attempts) == ("0", "still none", 2)
    assert client.lag("f", topic="failing").lag == 0


def test_a_queue_goes_to_a_member_when_the_earlier_one_is_done_with_it(client: Client) -> None:
    produce(client, "moving", 2, queues=2)
    first = client.join("m", "a", "moving")
    assert queues_of(first) == {0, 1}
    held = client.receive("m", "moving", member="a").messages
    second = client.join("m", "b", "moving")
    assert queues_of(second) == set()
    a, b = client.members("m").members
    (leaving,) = a.leaving
    assert (a.member, b.member, len(a.queues)) == ("a", "b", 1)

    found: list[tuple[LeasedMessage, ...]] = []
    waiting = threading.Thread(
        target=lambda: found.append(client.receive("m", "moving", member="b", wait_s=30).messages)
    )
    waiting.start()
    moved = [each for each in held if each.queue_id == leaving.queue_id]
    assert statuses(client.acknowledge("m", moved[0])) == [OK]
    assert statuses(client.give_back("m", moved[1], delay_s=0)) == [OK]
    waiting.join(60)
    assert [bodies(each) for each in found] == [["1"]]
    (queue,) = client.join("m", "b", "moving").queues
    assert queue.epoch > max(each.epoch for each in first.queues)
    assert statuses(client.acknowledge("m", moved[1])) == [STALE]


def test_a_member_whose_session_ends_loses_its_queues_and_its_receipts(client: Client) -> None:
    produce(client, "dying", 1)
    client.join("d", "a", "dying", session_s=1)
    (held,) = client.receive("d", "dying", member="a").messages
    client.join("d", "b", "dying", session_s=600)
    (again,) = client.receive("d", "dying", member="b", wait_s=30).messages
    assert again.delivery_attempt == 2
    assert statuses(client.acknowledge("d", held)) == [STALE]
    assert statuses(client.acknowledge("d", again)) == [OK]
    with pytest.raises(ProblemError, match="join again"):
        client.receive("d", "dying", member="a")


def test_metrics_count_members_and_queues_without_one(client: Client, pair: ServicePair) -> None:
    produce(client, "counted", 1, queues=3)
    client.join("n", "a", "counted")
    text = httpx.get(f"{pair.writer_url}/metrics").text
    assert 'mqstore_consumer_group_members{consumer_group="n"} 1.0' in text
    assert 'mqstore_consumer_group_queues_without_member{consumer_group="n"} 0.0' in text
    client.join("n", "a", "counted", session_s=1)
    while 'mqstore_consumer_group_members{consumer_group="n"} 0.0' not in text:
        text = httpx.get(f"{pair.writer_url}/metrics").text
    assert 'mqstore_consumer_group_queues_without_member{consumer_group="n"} 3.0' in text


def test_a_group_is_shared_or_ordered(client: Client) -> None:
    produce(client, "both", 2)
    (held,) = client.receive("s", "both", max_messages=1).messages
    with pytest.raises(ProblemError) as refused:
        client.join("s", "a", "both")
    assert refused.value.problem["type"].endswith("group-shared")
    client.acknowledge("s", held)
    client.join("s", "a", "both")
    with pytest.raises(ProblemError) as refused:
        client.receive("s", "both")
    assert refused.value.problem["type"].endswith("group-ordered")
    client.leave("s", "a")
    assert bodies(client.receive("s", "both").messages) == ["1"]


def test_a_commit_needs_the_epoch_of_the_queue(client: Client) -> None:
    produce(client, "committed", 4)
    (queue,) = client.join("c", "a", "committed").queues[:1]
    for epoch in (None, queue.epoch + 1):
        with pytest.raises(ProblemError) as refused:
            client.commit("c", "committed", {0: 2}, epochs={0: epoch} if epoch else None)
        assert refused.value.problem["status"] == 409
        assert refused.value.problem["type"].endswith("epoch-stale")
    client.commit("c", "committed", {0: 2}, epochs={0: queue.epoch})
    assert bodies(client.receive("c", "committed", member="a").messages) == ["2", "3"]


def test_requests_that_make_no_sense_are_refused(client: Client) -> None:
    produce(client, "refusing", 1)
    for build, problem in (
        (lambda: client.join("r", "a", "no-topic"), "topic-unknown"),
        (lambda: client.join("r", "a b", "refusing"), "bad-parameter"),
        (lambda: client.join("CID_RMQ_SYS_TRANS", "a", "refusing"), "group-invalid"),
        (lambda: client.receive("r", "refusing", member="a"), "member-unknown"),
    ):
        with pytest.raises(ProblemError) as refused:
            build()
        assert refused.value.problem["type"].endswith(problem)
    client.leave("r", "no-member")


def test_members_keep_queues_and_epochs_over_a_kill(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with writer(root) as process, Client(process.url) as client:
        produce(client, "kept", 3, queues=2)
        for name in "ab":
            client.join("k", name, "kept", session_s=600)
        before = client.members("k").members
        (held,) = client.receive("k", "kept", max_messages=1, member="a").messages
        process.kill()
    with writer(root) as process, Client(process.url) as client:
        assert [each.queues for each in client.members("k").members] == [
            each.queues for each in before
        ]
        client.leave("k", "b")
        (gained,) = {
            each.epoch for each in client.join("k", "a", "kept").queues if each.topic == "kept"
        } - {each.epoch for each in before[0].queues}
        assert gained > max(each.epoch for member in before for each in member.queues)
        assert client.acknowledge("k", held).results[0].status is ReceiptStatus.UNKNOWN
        again = client.receive("k", "kept", member="a").messages
        assert sorted(bodies(again), key=str) == ["0", "0", "1", "1", "2", "2"]


def test_any_shard_serves_members_of_all(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as shards:
        with shards.client(0) as client:
            client.create_topic("spread", queues=1)
            for number in (0, 1):
                client.produce("spread", NewMessage(body=f"{number}"), shard=number)
            for name in "ab":
                client.join("g", name, "spread", session_s=600)
            members = client.members("g").members
            held = [{each.shard for each in member.queues} for member in members]
            assert sorted(held, key=str) == [{0}, {1}]
            for member in members:
                (message,) = client.receive("g", "spread", member=member.member).messages
                assert {message.shard} == {
                    each.shard for each in member.queues if each.topic == "spread"
                }
                assert statuses(client.acknowledge("g", message)) == [OK]
            client.leave("g", "a")
        with shards.client(1) as client:
            (left,) = client.members("g").members
            assert {each.shard for each in left.queues} == {0, 1}
