"""Which shards own keys: the first shard decides it, once a shard was ready; the others copy it."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import AsyncClient, NewMessage
from mqstore.service.key_shards import shard_of
from mqstore.storage.admin import KeyOwners, KeyOwnersFile
from tests.unit.writer.writers_in_process import Writers, run, url_of

WAIT_S = 30.0
KEY_OF_2 = next(
    k for k in map(str, range(99)) if (shard_of(k, [0, 1]), shard_of(k, [0, 1, 2])) == (0, 2)
)


def owners(writers: Writers, shard: int) -> tuple[int, ...]:
    record = writers.service(shard).key_ownership.record
    return () if record is None else record.shards


async def produce(writers: Writers, at: int, key: str) -> dict[str, Any]:
    async with writers.http(at) as http:
        message = {"body": "x", "uniqKey": key}
        reply = await http.post("/v1/topics/t/messages", json={"messages": [message]})
    assert reply.status_code == 201, reply.text
    place: dict[str, Any] = reply.json()["messages"][0]
    return place


def test_a_shard_owns_keys_only_after_it_was_ready(tmp_path: Path) -> None:
    """A new shard does not start for any time, and no key waits for it."""

    async def act(writers: Writers) -> None:
        assert (await produce(writers, 1, KEY_OF_2))["shard"] == 0
        writers.count = 3
        writers.put_list()
        for _ in range(3):
            await writers.check()
            assert [owners(writers, each) for each in (0, 1)] == [(0, 1), (0, 1)]
            assert (await produce(writers, 1, KEY_OF_2 + "~during"))["shard"] == 0
        await writers.start(2)
        await writers.check()
        assert [owners(writers, each) for each in range(3)] == [(0, 1, 2)] * 3
        for at in range(3):
            again = await produce(writers, at, KEY_OF_2)
            assert (again["shard"], again["repeat"]) == (0, True)
            assert (await produce(writers, at, f"{KEY_OF_2}~{at}"))["shard"] == 2

    run(tmp_path, act)


def test_a_shard_that_is_down_keeps_its_keys(tmp_path: Path) -> None:
    async def act(writers: Writers) -> None:
        await writers.stop(1)
        await writers.check()
        assert owners(writers, 0) == (0, 1)
        await writers.stop(0)
        await writers.start(0)
        assert owners(writers, 0) == (0, 1)

    run(tmp_path, act)


def test_a_released_shard_gets_keys_again_once_it_was_started_again(tmp_path: Path) -> None:
    async def act(writers: Writers) -> None:
        async with writers.http(1) as http:  # it forwards the request to the first shard
            reply = await http.post("/v1/shards/2:release-keys")
        assert (reply.status_code, reply.json()) == (200, {"shards": [0, 1], "released": [2]})
        await writers.check()
        assert [owners(writers, each) for each in range(3)] == [(0, 1)] * 3
        assert (await produce(writers, 1, KEY_OF_2))["shard"] == 0
        await writers.stop(2)
        await writers.check()
        assert (await produce(writers, 1, KEY_OF_2 + "~gone"))["shard"] == 0
        await writers.start(2)
        await writers.check()
        assert [owners(writers, each) for each in range(3)] == [(0, 1, 2)] * 3
        assert (await produce(writers, 2, KEY_OF_2))["shard"] == 0

    run(tmp_path, act, count=3)


def test_a_shard_that_is_not_listed_is_left_out_at_once(tmp_path: Path) -> None:
    async def act(writers: Writers) -> None:
        assert (await produce(writers, 0, KEY_OF_2))["shard"] == 2
        await writers.stop(2)
        writers.count = 2
        writers.put_list()
        await writers.check()
        assert (await produce(writers, 1, KEY_OF_2 + "~gone"))["shard"] == 0

    run(tmp_path, act, count=3)


def test_a_shard_whose_list_is_old_does_not_wait_for_a_removed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removed shard owned keys a moment ago, so it would be visited first."""

    async def act(writers: Writers) -> None:
        await writers.stop(2)
        writers.count = 2
        writers.put_list()
        stale = writers.service(1).shards.members
        monkeypatch.setattr(stale, "reload_if_changed", lambda: False)
        await writers.check()
        assert 2 in stale.numbers and owners(writers, 1) == (0, 1)
        assert (await produce(writers, 1, KEY_OF_2))["shard"] == 0
        monkeypatch.undo()
        writers.count = 3
        writers.put_list()
        await writers.start(2)
        await writers.check()
        assert [owners(writers, each) for each in range(3)] == [(0, 1, 2)] * 3

    run(tmp_path, act, count=3)


def test_a_new_store_copies_the_record_of_the_others(tmp_path: Path) -> None:
    """The first shard lost its volume: it decides on top of what the others know."""

    async def act(writers: Writers) -> None:
        version = writers.service(1).key_ownership.record
        await writers.stop(0)
        (tmp_path / "store-0" / "mqstore" / "key-owners.json").unlink()
        await writers.start(0)
        await writers.service(0).shards.check()
        assert writers.service(0).key_ownership.record == version

    run(tmp_path, act)


def test_a_key_that_was_stored_while_the_first_owners_were_noted_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk writes beside the event loop, which stores messages under the owners before."""
    loop_threads = {threading.get_ident()}
    real = KeyOwnersFile.put
    stored: list[dict[str, Any]] = []

    async def act(writers: Writers) -> None:
        loop, service = asyncio.get_running_loop(), writers.service(0)

        def put_slowly(file: KeyOwnersFile, record: KeyOwners) -> None:
            if file is service.store.key_owners and not stored:
                assert threading.get_ident() not in loop_threads
                made = produce(writers, 0, KEY_OF_2)
                stored.append(asyncio.run_coroutine_threadsafe(made, loop).result(WAIT_S))
            real(file, record)

        assert owners(writers, 0) == (0, 1)
        writers.count = 3
        writers.put_list()
        await writers.start(2)
        monkeypatch.setattr(KeyOwnersFile, "put", put_slowly)
        await writers.check()
        assert stored[0]["shard"] == 0
        assert owners(writers, 0) == (0, 1, 2)
        assert (await produce(writers, 0, KEY_OF_2))["repeat"] is True

    run(tmp_path, act)


@pytest.mark.parametrize("messages", [0, 1])
def test_a_store_of_an_earlier_release_gives_all_listed_shards_keys(
    tmp_path: Path, messages: int
) -> None:
    async def act(writers: Writers) -> None:
        for each in range(messages):
            await produce(writers, 0, f"k{each}")
        await writers.stop(0)
        await writers.stop(1)
        for each in (0, 1):
            (tmp_path / f"store-{each}" / "mqstore" / "key-owners.json").unlink()
        await writers.start(0)
        await writers.service(0).shards.check()
        assert owners(writers, 0) == ((0, 1) if messages else (0,))

    run(tmp_path, act)


def test_the_record_has_a_bounded_number_of_former_owners(tmp_path: Path) -> None:
    async def act(writers: Writers) -> None:
        await produce(writers, 0, KEY_OF_2)
        for _ in range(20):
            for keys in ({"shards": [0]}, None):
                writers.put_list(keys)
                await writers.check()
        record = writers.service(0).key_ownership.record
        assert isinstance(record, KeyOwners)
        assert len(record.former) == 16 and record.shards == (0, 1)

    run(tmp_path, act)


def test_a_client_that_reaches_no_shard_by_its_address_has_its_produce_forwarded(
    tmp_path: Path,
) -> None:
    """The client knows one address; a reply 421 names another one, of the cluster."""

    async def act(writers: Writers) -> None:
        async with AsyncClient(url_of(0)) as client:
            outside = writers.http(0)
            client._http_by_process[os.getpid()] = outside
            attempts: list[int] = []

            async def send(**request: Any) -> httpx.Response:
                attempts.append(httpx.URL(request["url"]).port or 0)
                if attempts[-1] != 1:
                    raise httpx.ConnectError("the name is not known here")
                return await httpx.AsyncClient.request(outside, **request)

            outside.request = send  # type: ignore[method-assign,assignment]
            for number in range(3):
                placed = await client.produce("t", NewMessage(body=str(number)), shard=1)
                assert placed.messages[0].shard == 1
            assert attempts == [1, 2, 1, 1, 1]

    run(tmp_path, act)
