"""A group is used by a real push consumer and over REST in turn: neither misses a message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mqstore.client import Client, NewMessage, ReceiptStatus
from tests.compat.referee import Line, Referee
from tests.compat.versions import mainly
from tests.services.service_processes import Process, writer

pytestmark = [pytest.mark.referee, pytest.mark.slow]

GROUP, TOPIC = "g", "orders"
SIZES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "messageDelayLevel": "1s 1s 1s 1s",
}
OURS = {"mapped_file_size_commit_log": 1 << 20, "message_delay_level": "1s 1s 1s 1s"}


def consume(
    referee: Referee, store: Path, sends: Mapping[str, int], consumed: int, **more: Any
) -> list[Line]:
    """Run a broker with a push consumer of the group; ``sends`` has how often each body fails."""
    request: dict[str, Any] = {
        "config": SIZES,
        "group": GROUP,
        "topic": TOPIC,
        "sends": [{"body": body, "keys": f"k-{body}"} for body in sends],
        "fails": {body: times for body, times in sends.items() if times},
        "tries": 2,
        "consumed": consumed,
        "deadLetters": 0,
    } | more
    return [line for line in referee.consume(store, request) if line["t"] == "consumed"]


def stop(process: Process) -> None:
    """End a service as an operator does: what it acknowledged is saved."""
    process.process.terminate()
    assert process.ended()[0] == 0


@mainly("4.9.7")
def test_a_broker_and_rest_consumers_go_on_where_the_other_stopped(
    referee: Referee, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    consume(referee, store, {"good": 0, "late": 1}, 3)

    with writer(store, **OURS) as process, Client(process.url) as client:
        assert client.receive(GROUP, TOPIC).messages == ()
        client.produce(TOPIC, [NewMessage(body=f"m{n}", queue_id=0) for n in range(8)])
        found = client.receive(GROUP, TOPIC).messages
        assert [each.body for each in found] == [f"m{n}" for n in range(8)]
        client.acknowledge(GROUP, [found[1], found[3]])
        client.give_back(GROUP, found[0], delay_level=1)
        stop(process)

    lines = consume(referee, store, {}, 7)
    assert sorted(line["body"] for line in lines) == ["m0", *(f"m{n}" for n in range(2, 8))]
    (retried,) = [line for line in lines if line["body"] == "m0"]
    assert (retried["topic"], retried["reconsumeTimes"]) == (TOPIC, 1)
    assert retried["origin"] == found[0].offset_msg_id

    with writer(store, **OURS) as process, Client(process.url) as client:
        assert client.receive(GROUP, TOPIC).messages == ()
        client.produce(TOPIC, NewMessage(body="last"))
        (last,) = client.receive(GROUP, TOPIC).messages
        assert last.body == "last"
        assert client.acknowledge(GROUP, last).results[0].status is ReceiptStatus.OK
        stop(process)


@mainly("5.4.0")
def test_an_orderly_consumer_and_members_go_on_where_the_other_stopped(
    referee: Referee, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    consume(referee, store, {"first": 1}, 2, orderly=True)

    with writer(store, **OURS) as process, Client(process.url) as client:
        before = client.join(GROUP, "a", TOPIC, session_s=1).queues
        client.produce(TOPIC, [NewMessage(body=f"m{n}", queue_id=0) for n in range(8)])
        found = client.receive(GROUP, TOPIC, member="a").messages
        assert [each.body for each in found] == [f"m{n}" for n in range(8)]
        client.acknowledge(GROUP, found[:3])
        client.give_back(GROUP, found[3], delay_s=60)
        stop(process)

    lines = consume(referee, store, {}, 7, orderly=True, fails={"m3": 2})
    assert [line["body"] for line in lines] == ["m3", "m3", "m3", "m4", "m5", "m6", "m7"]
    assert {line["topic"] for line in lines} == {TOPIC}

    with writer(store, **OURS) as process, Client(process.url) as client:
        client.join(GROUP, "b", TOPIC)
        client.produce(TOPIC, NewMessage(body="last", queue_id=0))
        (last,) = client.receive(GROUP, TOPIC, member="b", wait_s=30).messages
        assert last.body == "last"
        assert client.acknowledge(GROUP, last).results[0].status is ReceiptStatus.OK
        client.leave(GROUP, "a")
        after = client.join(GROUP, "b", TOPIC).queues
        assert min(each.epoch for each in after) > max(each.epoch for each in before)
        stop(process)
