"""The leader's ports, and the requests by which slaves copy tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.events import Events
from mqstore.service.remoting import CommandRefused, PeerUnreachable, RemotingClient
from mqstore.service.settings import Settings
from mqstore.storage.admin import Commit
from mqstore.storage.message_store import MessageStore
from mqstore.writer.replication.admission import AllowedSlaves
from mqstore.writer.replication.leader import Leader
from tests.free_ports import free_port
from tests.unit.storage.stores import open_store, put_some


def _led(
    root: Path,
    scenario: Callable[[MessageStore, int], Awaitable[None]],
    allowed: str = "127.0.0.1",
) -> None:
    async def run() -> None:
        port = free_port()
        settings = Settings(
            store=root, ha_allowed_slaves=allowed, ha_listen_port=0, listen_port=port
        )
        leader = Leader(settings, Events())
        with open_store(root) as store:
            await leader.start(store, "one")
            try:
                await scenario(store, port)
            finally:
                await leader.stop()

    asyncio.run(run())


async def _request(port: int, code: int, **fields: str) -> Any:
    client = RemotingClient("127.0.0.1", port)
    try:
        return await client.request(code, fields)
    finally:
        client.close()


def test_a_slave_gets_the_tables_as_they_are(root: Path) -> None:
    async def scenario(store: MessageStore, port: int) -> None:
        store.create_topic("T", queues=3)
        store.groups.put("g", lambda group: group)
        put_some(store, 3)
        store.offsets.commit("g", [Commit("T", 0, 1)])
        for at in (port, port - 2):
            topics = json.loads((await _request(at, 21)).body)
            assert topics["topicConfigTable"]["T"]["writeQueueNums"] == 3
            assert topics["dataVersion"]["counter"] == 1
        bounds = json.loads((await _request(port, 28)).body)["table"]
        assert bounds == {
            "commitLogMinOffset": "0",
            "commitLogMaxOffset": str(store.log.max_offset),
        }
        groups = json.loads((await _request(port, 201)).body)
        assert groups["subscriptionGroupTable"]["g"]["groupName"] == "g"
        offsets = (await _request(port, 43)).body
        assert offsets.split() == [b"{", b'"offsetTable":{', b'"T@g":{0:1', b"}", b"}", b"}"]
        assert (await _request(port, 45)).body.split() == [b"{", b'"offsetTable":{}', b"}"]

    _led(root, scenario)


def test_a_slave_that_registers_learns_the_addresses(root: Path) -> None:
    async def scenario(_: MessageStore, port: int) -> None:
        fields = (await _request(port, 103, brokerId="1")).ext_fields
        assert fields["masterAddr"] == f"127.0.0.1:{port}"
        host, _, ha_port = fields["haServerAddr"].rpartition(":")
        assert host == "127.0.0.1"
        writer = (await asyncio.open_connection(host, int(ha_port)))[1]
        writer.close()
        await _request(port, 104)
        with pytest.raises(CommandRefused, match="brokerId is not 0"):
            await _request(port, 103, brokerId="0")

    _led(root, scenario)


def test_other_requests_are_not_supported(root: Path) -> None:
    async def scenario(_: MessageStore, port: int) -> None:
        with pytest.raises(CommandRefused) as refused:
            await _request(port, 310)
        assert refused.value.code == 3

    _led(root, scenario)


def test_no_port_is_open_without_allowed_slaves(root: Path) -> None:
    async def scenario(_: MessageStore, port: int) -> None:
        with pytest.raises(PeerUnreachable):
            await _request(port, 21)

    _led(root, scenario, allowed="")


def test_other_addresses_get_no_tables(root: Path) -> None:
    async def scenario(_: MessageStore, port: int) -> None:
        with pytest.raises(PeerUnreachable):
            await _request(port, 21)

    _led(root, scenario, allowed="10.0.0.0/8")


def test_followers_are_expected_for_a_while_where_slaves_are_allowed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(allowed: str) -> list[bool]:
        settings = Settings(
            store=root, ha_allowed_slaves=allowed, ha_listen_port=0, listen_port=free_port()
        )
        found, leader = [], Leader(settings, Events())
        found.append(leader.may_have_followers)
        with open_store(root) as store:
            await leader.start(store, "one")
            found.append(leader.may_have_followers)
            with monkeypatch.context() as patched:
                patched.setattr("mqstore.writer.replication.leader.FOLLOWERS_S", 0.0)
                found.append(leader.may_have_followers)
                if leader.ha is not None:
                    leader.ha.connections.has_had_followers = True
                found.append(leader.may_have_followers)
            await leader.stop()
        return found

    assert asyncio.run(run("127.0.0.1")) == [True, True, False, True]
    assert asyncio.run(run("")) == [False] * 4


def test_a_synchronous_master_without_slaves_is_refused() -> None:
    async def run() -> None:
        with pytest.raises(ConfigurationError, match="haAllowedSlaves"):
            Leader(Settings(broker_role="SYNC_MASTER"), Events())

    asyncio.run(run())


def test_slaves_are_allowed_by_address_and_block() -> None:
    allowed = AllowedSlaves("10.1.0.0/16, 192.0.2.7,fd00::/8")
    for address in ("10.1.2.3", "192.0.2.7", "fd12::1", "::ffff:10.1.0.1"):
        assert address in allowed
    for address in ("10.2.0.1", "192.0.2.8", "fe80::1%eth0", "::1", ""):
        assert address not in allowed


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="haAllowedSlaves"):
        AllowedSlaves("10.1.0.0/16,slave-1")
