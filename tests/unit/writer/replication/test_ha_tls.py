"""TLS of the HA port: who is admitted, and what the others see."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
import trustme
import uvloop

from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.ha_tls import HaTls
from mqstore.service.settings import Settings
from mqstore.storage.message_store import MessageStore
from mqstore.storage.replication.connections import SLAVES_MAX
from mqstore.storage.replication.leader_session import TLS_HELLO
from mqstore.writer.replication import slave
from tests.unit.storage.stores import put_some
from tests.unit.writer.replication.test_ha_server import OPTIONS, RawSlave, Served, serving

HANDSHAKE_RECORD = b"\x16"
"""First byte of a TLS server's answer."""


def files(directory: Path, authority: trustme.CA, name: str = "replica") -> HaTls:
    """The certificates of a replica."""
    directory.mkdir(exist_ok=True)
    issued = authority.issue_cert(name)
    paths = [directory / each for each in ("tls.crt", "tls.key", "ca.crt")]
    blobs = issued.cert_chain_pems[0], issued.private_key_pem, authority.cert_pem
    for path, blob in zip(paths, blobs, strict=True):
        path.write_bytes(blob.bytes())
    return HaTls(*paths)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


async def connect(served: Served, tls: ssl.SSLContext | None) -> RawSlave:
    found = RawSlave(*await asyncio.open_connection(*served.address, ssl=tls))
    served.slaves.append(found)
    return found


async def copied(store: MessageStore, follower: RawSlave) -> bool:
    await follower.introduce("one")
    follower.report(0)
    end = store.log.max_offset
    return len(await follower.log_from(0, end)) == end


def test_a_follower_with_a_certificate_of_the_authority_copies_the_log(
    root: Path, tmp_path: Path, authority: trustme.CA
) -> None:
    async def run() -> None:
        leader, follower = (files(tmp_path / name, authority, name) for name in "ab")
        async with serving(root, replace(OPTIONS, tls=leader.server)) as served:
            put_some(served.store, 300)
            assert await copied(served.store, await connect(served, follower.client()))

    asyncio.run(run())


def _without_certificate(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    authority.configure_trust(context)
    return context


@pytest.mark.parametrize("kind", ["no certificate", "another authority", "clear text"])
def test_others_are_refused_with_one_line_and_the_leader_goes_on(
    root: Path,
    tmp_path: Path,
    authority: trustme.CA,
    kind: str,
) -> None:
    async def run() -> None:
        leader = files(tmp_path / "a", authority)
        other = files(tmp_path / "b", trustme.CA()).client()
        authority.configure_trust(other)
        contexts = {
            "no certificate": _without_certificate(authority),
            "another authority": other,
            "clear text": None,
        }
        async with serving(root, replace(OPTIONS, tls=leader.server)) as served:
            put_some(served.store, 3)
            refused = await connect(served, contexts[kind])
            refused.report(0)
            assert await refused.ended()
            await served.until(lambda: served.server.connections.refused == 1)
            assert served.server.connections.slaves == []
            follower = files(tmp_path / "c", authority).client()
            assert await copied(served.store, await connect(served, follower))

    with structlog.testing.capture_logs() as lines:
        asyncio.run(run())
    warnings = [each for each in lines if each["log_level"] != "info"]
    assert [each["event"] for each in warnings] == ["a slave is refused: no TLS"]


def test_a_follower_does_not_trust_another_authority(
    root: Path, tmp_path: Path, authority: trustme.CA
) -> None:
    async def run() -> None:
        leader = files(tmp_path / "a", authority)
        async with serving(root, replace(OPTIONS, tls=leader.server)) as served:
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(served, files(tmp_path / "b", trustme.CA()).client())

    asyncio.run(run())


def test_changed_certificates_count_for_the_next_connection(
    root: Path, tmp_path: Path, authority: trustme.CA
) -> None:
    async def run() -> None:
        leader, follower = (files(tmp_path / name, authority, name) for name in "ab")
        async with serving(root, replace(OPTIONS, tls=leader.server)) as served:
            put_some(served.store, 3)
            assert await copied(served.store, await connect(served, follower.client()))
            changed = trustme.CA()
            for name in "ab":
                files(tmp_path / name, changed, name)
            assert await copied(served.store, await connect(served, follower.client()))

    asyncio.run(run())


def test_a_handshake_that_does_not_end_is_dropped(
    root: Path, tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave, "HANDSHAKE_TIMEOUT_S", 0.05)

    async def run() -> None:
        leader = files(tmp_path / "a", authority)
        async with serving(root, replace(OPTIONS, tls=leader.server)) as served:
            assert await (await connect(served, None)).ended()

    asyncio.run(run())


def test_a_hello_that_comes_with_its_connection_begins_tls(
    root: Path, tmp_path: Path, authority: trustme.CA
) -> None:
    """Also on uvloop, which reads of a server's connection before a callback can stop it."""

    async def run() -> None:
        leader, follower = (files(tmp_path / name, authority, name) for name in "ab")
        async with serving(root, replace(OPTIONS, tls=leader.server)) as served:
            received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
            handshake = follower.client().wrap_bio(received, sent)
            with pytest.raises(ssl.SSLWantReadError):
                handshake.do_handshake()
            with socket.create_connection(served.address) as connection:
                connection.sendall(sent.read())  # before the loop accepts the connection
                connection.setblocking(False)
                reply = await asyncio.get_running_loop().sock_recv(connection, 1)
            assert reply == HANDSHAKE_RECORD

    uvloop.run(asyncio.wait_for(run(), 60))


def test_connections_that_say_nothing_keep_no_follower_out(root: Path) -> None:
    async def run() -> None:
        async with serving(root, OPTIONS) as served:
            put_some(served.store, 3)
            silent = [await connect(served, None) for _ in range(SLAVES_MAX)]
            assert await copied(served.store, await connect(served, None))
            assert await silent[0].ended()

    asyncio.run(run())


def test_a_leader_without_tls_names_the_reason_to_its_log(
    root: Path,
) -> None:
    async def run() -> None:
        async with serving(root, OPTIONS) as served:
            follower = await connect(served, None)
            follower.send(TLS_HELLO + b"\x01\x00\xf4\x01\x00\x00")
            assert await follower.ended()
            await served.until(lambda: served.server.connections.refused == 1)

    with structlog.testing.capture_logs() as lines:
        asyncio.run(run())
    assert "haTlsCert is not set here" in next(each["reason"] for each in lines if "reason" in each)


@pytest.mark.parametrize("missing", ["ha_tls_cert", "ha_tls_key", "ha_tls_ca"])
def test_the_three_settings_belong_together(
    root: Path, tmp_path: Path, authority: trustme.CA, missing: str
) -> None:
    files(tmp_path / "a", authority)
    given: dict[str, Any] = {
        "ha_tls_cert": tmp_path / "a" / "tls.crt",
        "ha_tls_key": tmp_path / "a" / "tls.key",
        "ha_tls_ca": tmp_path / "a" / "ca.crt",
    }
    assert HaTls.of(Settings(store=root)) is None
    assert HaTls.of(Settings(store=root, **given)) is not None
    with pytest.raises(ConfigurationError, match="all three"):
        HaTls.of(Settings(store=root, **{name: given[name] for name in given if name != missing}))
    with pytest.raises(ConfigurationError, match="cannot be used"):
        HaTls.of(Settings(store=root, **given | {missing: tmp_path / "missing"}))
