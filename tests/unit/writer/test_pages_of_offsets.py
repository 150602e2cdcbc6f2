"""Offsets of groups, and the states of their messages, are listed in pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Scope

from mqstore.query.committed_offsets import CommittedOffsets
from tests.unit.writer.writers_in_process import Writers, run

QUEUES = 5
GROUPS = [f"g{number}" for number in range(7)]


async def put_all(writers: Writers) -> None:
    """Each group commits an offset in each queue of both topics, on both shards."""
    async with writers.http(0) as http:
        for topic in ("t", "u"):
            made = await http.put(f"/v1/topics/{topic}", json={"queues": QUEUES})
            assert made.is_success, made.text
        for group in GROUPS:
            for shard in range(writers.count):
                offsets = [
                    {"topic": topic, "queueId": queue, "offset": 0}
                    for topic in ("t", "u")
                    for queue in range(QUEUES)
                ]
                path = f"/v1/groups/{group}/offsets?shard={shard}"
                reply = await http.put(path, json={"offsets": offsets})
                assert reply.status_code == 200, reply.text


async def pages(
    http: httpx.AsyncClient, path: str, limit: int, **chosen: str
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = chosen
    while not found or found[-1]["next"] is not None:
        reply = await http.get(path, params={"limit": limit, **cursor})
        assert reply.status_code == 200, reply.text
        found.append(reply.json())
        cursor = chosen | {"cursor": found[-1]["next"]}
    return found


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_offsets_of_a_group_are_listed_in_pages_over_all_shards(tmp_path: Path, limit: int) -> None:
    async def act(writers: Writers) -> None:
        await put_all(writers)
        async with writers.http(1) as http:
            found = await pages(http, "/v1/groups/g1/offsets", limit)
            assert all(len(page["offsets"]) == limit for page in found[:-1])
            places = [
                (each["topic"], each["shard"], each["queueId"], each["committed"])
                for page in found
                for each in page["offsets"]
            ]
            assert places == [
                (topic, shard, queue, 0)
                for topic in ("t", "u")
                for shard in range(2)
                for queue in range(QUEUES)
            ]
            of_one = await pages(http, "/v1/groups/g1/offsets", limit, topic="u")
            assert sum(len(page["offsets"]) for page in of_one) == 2 * QUEUES
            other = found[0]["next"]
            if other is not None:
                refused = await http.get("/v1/groups/g2/offsets", params={"cursor": other})
                assert refused.status_code == 400

    run(tmp_path, act)


class PagesOfTwo:
    """A ``LocalWriter`` that requests two entries a page."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.requests: list[str] = []

    async def request(self, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
        self.requests.append(path)
        return await self._http.request(
            method, f"{path}{'&' if '?' in path else '?'}limit=2", headers=headers
        )


def test_query_reads_all_pages(tmp_path: Path) -> None:
    scope: Scope = {"type": "http", "headers": []}

    async def act(writers: Writers) -> None:
        await put_all(writers)
        async with writers.http(0) as http:
            message = {"messages": [{"body": "a"} for _ in range(QUEUES)]}
            assert (await http.post("/v1/topics/t/messages?shard=0", json=message)).is_success
            for group in GROUPS:
                path = f"/v1/groups/{group}:receive?shard=0"
                body = {"topics": {"t": {}}, "max": 1}
                assert (await http.post(path, json=body)).is_success
            source = PagesOfTwo(http)
            offsets = CommittedOffsets(source, lambda: None)  # type: ignore[arg-type]
            every = await offsets.read_all()
            assert every is not None
            assert sorted(every) == sorted(f"{t}@{g}" for g in GROUPS for t in ("t", "u"))
            assert all(sorted(found) == list(range(QUEUES)) for found in every.values())
            assert len(source.requests) == len(GROUPS)
            one = await offsets.read_group("g1", scope)
            assert one is not None
            assert len(one) >= 2 * QUEUES
            states = await offsets.read_states(None)
            assert states is not None
            assert sorted({each.group for each in states.pending}) == GROUPS
            assert states.delayed == {}
            states = await offsets.read_states("g2")
            assert states is not None
            assert {each.group for each in states.pending} == {"g2"}
            assert await offsets.read_group("has-none", scope) == []

    run(tmp_path, act, count=1)
