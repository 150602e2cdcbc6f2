"""Bitmaps over HTTP: a group subscribes, messages come, and pulls by its expression find the same
with them as without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, NewMessage
from tests.long_runs import few_first
from tests.services.service_processes import ServicePair, service_pair

TOPIC, GROUP, EXPRESSION = "orders", "billing", "price > 5"
COUNT = 40
WANTED = [n for n in range(2 * COUNT) if n % 10 > 5]
WITH_BITMAPS: dict[str, Any] = {
    "enable_consume_queue_ext": "true",
    "enable_calc_filter_bit_map": "true",
}


def _produce(client: Client, numbers: range) -> None:
    sent = [
        NewMessage(body=str(n), tags=f"t{n % 3}", properties={"price": str(n % 10)})
        for n in numbers
    ]
    client.produce(TOPIC, sent)


def _pulled(client: Client, **chosen: Any) -> list[int]:
    """Bodies of all that a filtered pull finds, a few at a time."""
    found: list[int] = []
    at = 0
    while True:
        answer = client.pull(TOPIC, 0, at, max_messages=7, **chosen)
        found += [int(each.body or "") for each in answer.messages]
        assert not answer.unreadable
        if answer.next >= answer.max_offset:
            return found
        at = answer.next


def _unit(run: ServicePair, client: Client, offset: int) -> dict[str, Any] | None:
    found = client.pull(TOPIC, 0, offset, max_messages=1).messages[0]
    answer = httpx.get(f"{run.query_url}/v1/messages/{found.offset_msg_id}").raise_for_status()
    unit: dict[str, Any] | None = answer.json()["queueEntry"]["unit"]
    assert unit is None or unit["storeTimestamp"] == found.store_timestamp
    return unit


@pytest.mark.parametrize("settings", few_first([WITH_BITMAPS, {}]), ids=["with", "without"])
def test_pulls_by_a_subscribed_expression_find_what_it_is_true_of(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with service_pair(tmp_path / "store", **settings) as run, run.client() as client:
        client.create_topic(TOPIC, queues=1)
        _produce(client, range(COUNT))
        client.subscribe(GROUP, TOPIC, EXPRESSION)
        _produce(client, range(COUNT, 2 * COUNT))
        assert _pulled(client, sql=EXPRESSION) == WANTED
        assert _pulled(client, sql="price < 2") == [n for n in range(2 * COUNT) if n % 10 < 2]
        assert _pulled(client, tags="t1") == [n for n in range(2 * COUNT) if n % 3 == 1]

        assert _unit(run, client, COUNT - 1) is None
        units = [_unit(run, client, COUNT + n) for n in range(10)]
        bits = [int(unit["bitmap"], 16) for unit in units if unit is not None]
        if settings:
            assert [each > 0 for each in bits] == [n > 5 for n in range(10)]
        else:
            assert not bits
        files = f'mqstore_mapped_files{{kind="consumequeue_ext"}} {len(bits) // 10:.1f}'
        assert files in httpx.get(f"{run.writer_url}/metrics").text.splitlines()

        client.unsubscribe(GROUP, TOPIC)
        assert _pulled(client, sql=EXPRESSION) == WANTED


def test_a_changed_expression_is_gone_by_at_once(tmp_path: Path) -> None:
    with service_pair(tmp_path / "store", **WITH_BITMAPS) as run, run.client() as client:
        client.create_topic(TOPIC, queues=1)
        client.subscribe(GROUP, TOPIC, "price = 3")
        _produce(client, range(COUNT))
        client.subscribe(GROUP, TOPIC, EXPRESSION)
        _produce(client, range(COUNT, 2 * COUNT))
        assert _pulled(client, sql=EXPRESSION) == WANTED
        assert _pulled(client, sql="price = 3") == [n for n in range(2 * COUNT) if n % 10 == 3]
