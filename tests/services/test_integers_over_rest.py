"""Integers as strings over HTTP: also on routes that have a fast path, and in requests."""

from __future__ import annotations

from typing import Any

import httpx

from mqstore.client import Client
from tests.services.service_processes import Run

STRINGS = {"accept": "application/json; integers=string"}
MESSAGES = {"messages": [{"body": "2"}]}


def _integers(value: Any) -> list[int]:
    """The integers within a value."""
    if isinstance(value, dict | list):
        return [found for each in list(_items(value)) for found in _integers(each)]
    return [value] if type(value) is int else []


def _items(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value


def test_one_connection_gets_strings_only_where_it_wants_them(
    services: Run, client: Client, topic: str
) -> None:
    sends, pulls = f"/v1/topics/{topic}/messages", f"/v1/topics/{topic}/queues/0/messages"
    with httpx.Client(base_url=services.writer_url) as writer:
        numbers, strings = [
            writer.post(sends, json=MESSAGES, headers=headers).json()["messages"][0]
            for headers in ({}, STRINGS)
        ]
    assert (numbers["queueOffset"], strings["queueOffset"]) == (0, "1")
    with httpx.Client(base_url=services.query_url) as query:
        for offset in ("0", "1", "0"):
            plain = query.get(pulls, params={"offset": offset}).json()
            reply = query.get(pulls, params={"offset": offset}, headers=STRINGS)
            assert reply.headers["content-type"] == STRINGS["accept"]
            assert (plain["next"], reply.json()["next"]) == (2, "2")
            assert _integers(plain)
            assert not _integers(reply.json())
        head = query.head(pulls, params={"offset": "0"}, headers=STRINGS)
        whole = query.get(pulls, params={"offset": "0"}, headers=STRINGS)
        assert head.headers["content-length"] == whole.headers["content-length"]
        records = {"accept": f"application/x-rocketmq-records, {STRINGS['accept']}"}
        stored = query.get(pulls, params={"offset": "0"}, headers=records)
        assert stored.headers["content-type"] == "application/x-rocketmq-records"
        assert (
            query.get("/openapi.json", headers=STRINGS).json() == query.get("/openapi.json").json()
        )


def test_offset_in_a_request_may_be_a_string(services: Run, client: Client, topic: str) -> None:
    with httpx.Client(base_url=services.writer_url) as writer:
        writer.post(f"/v1/topics/{topic}/messages", json=MESSAGES).raise_for_status()

        def commit(offset: object) -> httpx.Response:
            body = {"offsets": [{"topic": topic, "queueId": 0, "offset": offset}]}
            return writer.put("/v1/groups/reader/offsets", json=body, headers=STRINGS)

        assert commit("1").json()["offsets"][0]["committed"] == "1"
        assert client.offsets("reader", topic=topic).offsets[0].committed == 1
        for wrong in ("-1", "1.0", "", "x", str(2**63), "٣", 1.5, True):
            refused = commit(wrong)
            assert (refused.status_code, refused.json()["status"]) == (422, 422)
        beyond = commit(str(2**63 - 1))
        assert (beyond.status_code, beyond.json()["type"]) == (
            409,
            "urn:mqstore:problem:offset-refused",
        )
