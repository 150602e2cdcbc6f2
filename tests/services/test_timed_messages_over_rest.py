from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, Message, NewMessage
from tests.services.service_processes import ServicePair, service_pair, writer

TOPIC = "orders"
FORTY_DAYS_S = 40 * 86_400


@pytest.fixture(scope="module", params=["4.9", "5.x"])
def services(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServicePair]:
    store = tmp_path_factory.mktemp("timed") / "store"
    with service_pair(store, store_format=request.param) as pair:
        with pair.client() as client:
            client.create_topic(TOPIC, queues=1)
        yield pair


@pytest.fixture
def client(services: ServicePair) -> Iterator[Client]:
    with services.client() as found:
        yield found


def await_message(client: Client, key: str) -> Message:
    deadline = time.monotonic() + 60
    while not (found := client.messages_by_key(TOPIC, key).messages):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found[0]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("name", ["delayS", "deliverAt", "deliverAt in RFC 3339"])
def test_a_message_is_delivered_at_its_time(client: Client, name: str) -> None:
    key, begun_ms = name.replace(" ", "-"), now_ms()
    at = datetime.fromtimestamp(begun_ms / 1000, UTC) + timedelta(seconds=1.5)
    ways: dict[str, dict[str, Any]] = {
        "delayS": {"delay_s": 1.5},
        "deliverAt": {"deliver_at": begun_ms + 1_500},
        "deliverAt in RFC 3339": {"deliver_at": at},
    }
    client.produce(TOPIC, [NewMessage(body=key, keys=[key], **ways[name])])
    found = await_message(client, key)
    assert found.store_timestamp >= begun_ms + 1_499
    assert {"TIMER_DELIVER_MS", "TIMER_OUT_MS"} <= found.properties.keys()
    (traced,) = client.traces(TOPIC, key).traces
    (timed,) = [copy for copy in traced.copies if copy.kind == "delayed"]
    assert timed.due_at == int(found.properties["TIMER_DELIVER_MS"])


def test_a_time_that_has_passed_means_at_once(client: Client) -> None:
    sent = [
        NewMessage(body="x", deliver_at="2020-01-01T00:00:00Z"),
        NewMessage(body="y", delay_s=0),
    ]
    placed = client.produce(TOPIC, sent).messages
    assert placed[1].queue_offset == placed[0].queue_offset + 1
    assert client.message(placed[0].offset_msg_id).topic == TOPIC


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"delayS": FORTY_DAYS_S + 1}, "delayS"),
        ({"delayS": -1}, "delayS"),
        ({"delayS": "1"}, "delayS"),
        ({"deliverAt": "2999-01-01T00:00:00Z"}, "40 days"),
        ({"deliverAt": "tomorrow"}, "no time"),
        ({"deliverAt": -1}, "deliverAt"),
        ({"deliverAt": 2026}, "milliseconds are 0 or from"),
        ({"deliverAt": "2026"}, "milliseconds are 0 or from"),
        ({"deliverAt": 1, "delayS": 1}, "one of"),
        ({"delayLevel": 1, "delayS": 1}, "one of"),
        ({"delayLevel": 1, "deliverAt": 1}, "one of"),
        ({"properties": {"TIMER_DELIVER_MS": "1"}}, "TIMER_DELIVER_MS"),
    ],
)
def test_a_refused_time_is_named(
    services: ServicePair, fields: dict[str, Any], detail: str
) -> None:
    url = f"{services.writer_url}/v1/topics/{TOPIC}/messages"
    answer = httpx.post(url, json={"messages": [{"body": "x"} | fields]})
    assert answer.status_code == 422
    assert detail in answer.json()["detail"]


def test_the_limit_is_forty_days(services: ServicePair, client: Client) -> None:
    before = client.delays().timed.pending
    client.produce(TOPIC, [NewMessage(body="far", delay_s=FORTY_DAYS_S)])
    timed = client.delays().timed
    assert timed.pending == before + 1
    metrics = httpx.get(f"{services.writer_url}/metrics").text
    assert f'mqstore_delay_pending{{delay="",level="timer"}} {before + 1}.0' in metrics


def test_waiting_messages_survive_kills(tmp_path: Path) -> None:
    store = tmp_path / "store"
    numbers = [f"n{number}" for number in range(40)]
    with writer(store) as process, Client(process.url) as client:
        client.create_topic(TOPIC, queues=1)
        for number, key in enumerate(numbers):
            client.produce(TOPIC, [NewMessage(body=key, uniq_key=key, delay_s=number / 20)])
        process.kill()
    with writer(store) as process, Client(process.url) as client:
        while client.delays().timed.pending > 10:
            time.sleep(0.01)
        process.kill()
    with service_pair(store) as pair, pair.client() as client:
        while client.delays().timed.pending:
            time.sleep(0.02)
        found = client.pull(TOPIC, 0, 0, max_messages=100).messages
        assert sorted(str(each.body) for each in found) == sorted(numbers)


def test_the_place_of_a_delayed_message_is_named_as_that_of_its_waiting_topic(
    client: Client,
) -> None:
    due = now_ms() + 3_600_000
    sent = [
        NewMessage(body="at once"),
        NewMessage(body="timed", deliver_at=due, uniq_key="a-timed-one"),
        NewMessage(body="level 18", delay_level=18, uniq_key="one-of-a-level"),
    ]
    plain, timed, level = client.produce(TOPIC, sent).messages
    assert (plain.waits_in, plain.due_at) == (None, None)
    assert (timed.waits_in, timed.due_at) == ("rmq_sys_wheel_timer", due)
    assert level.waits_in == "SCHEDULE_TOPIC_XXXX"
    assert level.due_at == level.store_timestamp + 7_200_000
    for each in (timed, level):
        found = client.message(each.offset_msg_id)
        assert found.topic == each.waits_in
        assert (found.queue_id, found.queue_offset) == (each.queue_id, each.queue_offset)
    again = client.produce(TOPIC, sent[1:]).messages
    assert [each.repeat for each in again] == [True, True]
    assert [(each.waits_in, each.due_at) for each in again] == [
        (timed.waits_in, timed.due_at),
        (level.waits_in, level.due_at),
    ]
    assert not {"waits_in", "due_at"} & plain.model_fields_set  # left out
