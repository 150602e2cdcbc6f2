"""bornHost of messages that another process forwarded: the client's address, once it is proven."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.service.forwarding import CLIENT, CLIENT_PROOF, FORWARDED
from mqstore.service.key_shards import shard_of
from mqstore.storage.errors import QueueUnknown
from mqstore.storage.formats import Host
from mqstore.storage.layout import HALF_TOPIC
from tests.long_runs import few_first
from tests.unit.writer.writers_in_process import ADDRESS, Writers, run, spec

SYSTEM, PRODUCE = "s" * 32, "p" * 32
TOKENS: dict[str, Any] = {"token_system": SYSTEM, "token_produce": PRODUCE}
AS_PRODUCER = {"authorization": f"Bearer {PRODUCE}"}
KEY = next(key for key in ("k0", "k1", "k2", "k3") if shard_of(key, [0, 1]) == 1)
CONNECTION = "{}:{}".format(*ADDRESS)
STATED = "192.0.2.7:5151"
BEGIN, PRODUCED = "/v1/transactions", "/v1/topics/t/messages"


def body_of(path: str, key: str | None) -> dict[str, Any]:
    given = spec(key)
    return given if path == BEGIN else {"messages": given["messages"]}


def born_hosts(writers: Writers, shard: int, path: str) -> list[str]:
    """Born hosts of the messages, or half messages, that a shard has stored."""
    lookups, found = writers.service(shard).store.lookups, list[Host]()
    topic = HALF_TOPIC if path == BEGIN else "t"
    for queue in range(8):
        with suppress(QueueUnknown):
            page = lookups.records(topic, queue, 0, 10)
            found += [each.born_host for each in page.records]
    return [f"{each.address_text}:{each.port}" for each in found]


async def send(writers: Writers, path: str, key: str | None, headers: dict[str, str]) -> None:
    """To shard 0."""
    async with writers.http(0) as http:
        sent: httpx.Response = await http.post(path, json=body_of(path, key), headers=headers)
    assert sent.status_code == 201, sent.text


@pytest.mark.parametrize("path", [BEGIN, PRODUCED])
@pytest.mark.parametrize("tokens", few_first([TOKENS, {}]))
def test_a_forwarded_message_has_the_address_of_its_client(
    path: str, tokens: dict[str, Any], tmp_path: Path
) -> None:
    async def act(writers: Writers) -> list[str]:
        await send(writers, path, KEY, AS_PRODUCER if tokens else {})
        return born_hosts(writers, 1, path)

    assert run(tmp_path, act, **tokens) == [CONNECTION]


@pytest.mark.parametrize("path", [BEGIN, PRODUCED])
@pytest.mark.parametrize("key", few_first([KEY, None]))
def test_an_address_that_a_system_token_proves_is_taken_and_passed_on(
    path: str, key: str | None, tmp_path: Path
) -> None:
    """A coordinator's request, also one that goes on to the shard of its key."""

    async def act(writers: Writers) -> list[str]:
        headers = {CLIENT: STATED, CLIENT_PROOF: SYSTEM} | AS_PRODUCER
        await send(writers, path, key, headers)
        return born_hosts(writers, 0 if key is None else 1, path)

    assert run(tmp_path, act, **TOKENS) == [STATED]


def test_an_address_that_is_not_proven_or_is_none_counts_for_nothing(tmp_path: Path) -> None:
    refused = [
        {CLIENT: STATED},
        {CLIENT: STATED, FORWARDED: "0"},
        {CLIENT: STATED, FORWARDED: "0", CLIENT_PROOF: PRODUCE},
        {CLIENT: STATED, FORWARDED: "0", CLIENT_PROOF: ""},
        {CLIENT: "192.0.2.7", CLIENT_PROOF: SYSTEM},
        {CLIENT: "example.org:1", CLIENT_PROOF: SYSTEM},
        {CLIENT: "192.0.2.7:70000", CLIENT_PROOF: SYSTEM},
        {CLIENT: "", CLIENT_PROOF: SYSTEM},
    ]

    async def act(writers: Writers) -> list[str]:
        for headers in refused:
            await send(writers, BEGIN, None, headers | AS_PRODUCER)
        return born_hosts(writers, 0, BEGIN)

    assert run(tmp_path, act, count=1, **TOKENS) == [CONNECTION] * len(refused)


@pytest.mark.parametrize(("is_marked", "found"), [(True, STATED), (False, CONNECTION)])
def test_without_tokens_a_request_marked_as_forwarded_states_its_client(
    is_marked: bool, found: str, tmp_path: Path
) -> None:
    async def act(writers: Writers) -> list[str]:
        headers = {CLIENT: STATED} | ({FORWARDED: "1"} if is_marked else {})
        await send(writers, BEGIN, None, headers)
        return born_hosts(writers, 0, BEGIN)

    assert run(tmp_path, act, count=1) == [found]


def test_an_address_of_ipv6_is_taken(tmp_path: Path) -> None:
    async def act(writers: Writers) -> list[str]:
        headers = {CLIENT: "[2001:db8::7]:5151", CLIENT_PROOF: SYSTEM} | AS_PRODUCER
        await send(writers, BEGIN, KEY, headers)
        return born_hosts(writers, 1, BEGIN)

    assert run(tmp_path, act, **TOKENS) == ["2001:db8:0:0:0:0:0:7:5151"]
