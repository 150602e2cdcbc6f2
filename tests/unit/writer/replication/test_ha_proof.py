"""Proofs between a leader and its followers: who gets the log, and whose copies count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import structlog
import trustme

from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.replica_secret import ReplicaSecret
from mqstore.service.settings import Settings
from mqstore.storage.replication import ha_handover, ha_proof
from mqstore.storage.replication.connections import SLAVES_MAX
from mqstore.storage.replication.ha_frames import encode_report
from mqstore.storage.replication.ha_proof import Proven
from mqstore.writer.replication.admission import Admission
from tests.unit.storage.stores import put_some
from tests.unit.writer.replication.test_ha_server import (
    OPTIONS,
    STORE_ID,
    RawSlave,
    Served,
    message_of,
    serving,
)
from tests.unit.writer.replication.test_ha_tls import files

SECRET: Final = "a-secret-of-replicas\n"
NAMES: Final = "pod-0 pod-1 pod-2"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    return write_secret(tmp_path / "secret")


def write_secret(path: Path, text: str = SECRET) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@asynccontextmanager
async def proving(root: Path, secret_file: Path, allowed: str = "") -> AsyncIterator[Served]:
    given: dict[str, Any] = {"replica_secret_file": secret_file, "replica_names": NAMES}
    async with serving(root, OPTIONS, allowed, **given) as served:
        put_some(served.store, 3)
        yield served


def run_proving(
    root: Path,
    secret_file: Path,
    scenario: Callable[[Served], Awaitable[None]],
    allowed: str = "",
) -> None:
    async def run() -> None:
        async with proving(root, secret_file, allowed) as served:
            await asyncio.wait_for(scenario(served), 60)

    asyncio.run(run())


async def proven_slave(
    served: Served, secret_file: Path, name: str, store_id: str = STORE_ID
) -> RawSlave:
    """A follower that has proved itself, introduced itself, and reported an empty log."""
    found = await served.slave(None)
    await found.prove(ReplicaSecret(secret_file), Proven(name, store_id))
    await found.introduce(name, store_id, proven=True)
    found.report(0)
    return found


async def copies(served: Served, name: str) -> None:
    """Wait until the follower of a name copies the log."""
    await served.until(lambda: name in [each.name for each in served.server.connections.slaves])


def test_a_follower_that_proves_itself_copies_the_log_and_counts_if_it_is_named(
    root: Path, secret_file: Path
) -> None:
    async def scenario(served: Served) -> None:
        end = served.store.log.max_offset
        named = await proven_slave(served, secret_file, "pod-1/ffffffff")
        assert await named.log_from(0, end) == served.log
        (slave,) = served.server.connections.slaves
        assert (slave.name, slave.counts) == ("pod-1/ffffffff", True)
        named.close()
        await served.until(lambda: not served.server.connections.slaves)
        other = await proven_slave(served, secret_file, "pod-9")
        assert await other.log_from(0, end) == served.log
        (slave,) = served.server.connections.slaves
        assert (slave.name, slave.counts) == (f"pod-9@{slave.address}", False)
        other.report(end)
        await served.until(lambda: slave.acknowledged == end)
        assert served.server.connections.acknowledged_by(1) is None

    run_proving(root, secret_file, scenario)


async def _echoes(slave: RawSlave) -> None:
    """Do as a stranger can: reply with what the leader sends."""
    slave.send(ha_handover.REQUEST)
    data = await slave._read()
    slave.send(data + data + encode_report(0))


async def _reports(slave: RawSlave) -> None:
    slave.report(0)


async def _another_secret(slave: RawSlave, tmp_path: Path) -> None:
    wrong = ReplicaSecret(write_secret(tmp_path / "wrong", "another-secret-of-replicas"))
    with pytest.raises(EOFError):
        await slave.prove(wrong, Proven("pod-1", STORE_ID))


@pytest.mark.parametrize("kind", ["echo", "slave of RocketMQ", "another secret", "another name"])
def test_a_stranger_gets_nothing_of_the_log(
    root: Path, secret_file: Path, tmp_path: Path, kind: str
) -> None:
    async def scenario(served: Served) -> None:
        slave = await served.slave(None)
        if kind == "echo":
            await _echoes(slave)
        elif kind == "slave of RocketMQ":
            await _reports(slave)
        elif kind == "another secret":
            await _another_secret(slave, tmp_path)
        else:
            await slave.prove(ReplicaSecret(secret_file), Proven("pod-1", STORE_ID))
            await slave.introduce("pod-2", proven=True)
            slave.report(0)
        assert await slave.ended()
        await served.until(lambda: served.server.connections.refused == 1)
        assert served.server.connections.slaves == []
        assert not served.server.connections.has_had_followers

    run_proving(root, secret_file, scenario)


def test_a_recorded_proof_is_of_no_use_again(root: Path, secret_file: Path) -> None:
    async def scenario(served: Served) -> None:
        first = await served.slave(None)
        sent: list[bytes] = []
        write = first._writer.write
        first._writer.write = lambda data: (sent.append(bytes(data)), write(data))[1]  # type: ignore
        await first.prove(ReplicaSecret(secret_file), Proven("pod-1", STORE_ID))
        again = await served.slave(None)
        again.send(b"".join(sent))
        while await again._read():
            pass
        await served.until(lambda: served.server.connections.refused == 1)

    run_proving(root, secret_file, scenario)


def test_a_follower_goes_no_further_with_a_leader_that_has_another_secret(
    root: Path, secret_file: Path, tmp_path: Path
) -> None:
    """A leader that accepts any follower, and cannot prove itself."""

    async def run() -> None:
        both = ReplicaSecret(write_secret(tmp_path / "both", "its-own-secret-too\n" + SECRET))

        ended = asyncio.Event()

        async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            challenge = ha_proof.Challenge(challenge="0" * 64, store_id="1" * 32)
            await reader.readexactly(8)
            writer.write(ha_handover.encode(challenge))
            await message_of(reader)
            writer.write(ha_handover.encode(ha_proof._LeaderMessage(proof="0" * 64)))
            await reader.read()
            writer.close()
            ended.set()

        server = await asyncio.start_server(lie, "127.0.0.1", 0)
        async with server:
            address = server.sockets[0].getsockname()
            slave = RawSlave(*await asyncio.open_connection(*address))
            with pytest.raises(ha_proof.ProofRefused, match="the leader's proof"):
                await slave.prove(both, Proven("pod-1", STORE_ID))
            slave.close()
            await ended.wait()

    asyncio.run(run())


def test_a_secret_is_changed_without_a_restart(root: Path, secret_file: Path) -> None:
    follower = secret_file.parent / "follower"

    async def scenario(served: Served) -> None:
        for own, leaders in (
            (SECRET, "the-next-secret-of-replicas\n" + SECRET),
            ("the-next-secret-of-replicas", "the-next-secret-of-replicas\n" + SECRET),
            ("the-next-secret-of-replicas", "the-next-secret-of-replicas"),
        ):
            write_secret(follower, own)
            write_secret(secret_file, leaders)
            slave = await proven_slave(served, follower, "pod-1")
            await copies(served, "pod-1")
            slave.close()
            await served.until(lambda: not served.server.connections.slaves)

    run_proving(root, secret_file, scenario)


def test_slaves_of_rocketmq_are_admitted_by_address_beside_a_secret(
    root: Path, secret_file: Path
) -> None:
    async def scenario(served: Served) -> None:
        end = served.store.log.max_offset
        slave = await served.slave()
        assert await slave.log_from(0, end) == served.log
        slave.report(end)
        await served.until(lambda: served.server.connections.slaves[0].acknowledged == end)
        assert not served.server.connections.slaves[0].counts
        assert served.server.connections.acknowledged_by(1) is None

    run_proving(root, secret_file, scenario, allowed="127.0.0.0/8")


def test_a_connection_ends_no_live_one_of_another_address(root: Path, secret_file: Path) -> None:
    async def scenario(served: Served) -> None:
        first = await proven_slave(served, secret_file, "pod-1")
        await copies(served, "pod-1")
        second = RawSlave(
            *await asyncio.open_connection(*served.address, local_addr=("127.0.0.2", 0))
        )
        served.slaves.append(second)
        await second.prove(ReplicaSecret(secret_file), Proven("pod-1", STORE_ID))
        await second.introduce("pod-1", proven=True)
        assert await second.ended()
        assert [each.host for each in served.server.connections.slaves] == ["127.0.0.1"]
        again = await proven_slave(served, secret_file, "pod-1")
        with pytest.raises(EOFError):
            await first.until_fetch()
        await again.log_from(0, served.store.log.max_offset)

    run_proving(root, secret_file, scenario)


def test_no_number_of_connections_keeps_a_follower_out(root: Path, secret_file: Path) -> None:
    """Strangers that say nothing, and slaves of a block that have reported."""

    async def scenario(served: Served) -> None:
        end = served.store.log.max_offset
        for _ in range(SLAVES_MAX):
            await served.slave()
        await served.until(lambda: len(served.server.connections.slaves) == SLAVES_MAX)
        silent = [await served.slave(None) for _ in range(SLAVES_MAX + 1)]
        assert await silent[0].ended()
        for name in NAMES.split():
            named = await proven_slave(served, secret_file, name)
            await named.log_from(0, end)
        counted = [each.name for each in served.server.connections.slaves if each.counts]
        assert counted == NAMES.split()
        assert len(served.server.connections.slaves) == SLAVES_MAX

    run_proving(root, secret_file, scenario, allowed="127.0.0.0/8")


def test_a_slave_of_another_address_gets_its_share(root: Path, secret_file: Path) -> None:
    async def scenario(served: Served) -> None:
        end = served.store.log.max_offset
        for _ in range(SLAVES_MAX):
            await served.slave()
        await served.until(lambda: len(served.server.connections.slaves) == SLAVES_MAX)
        other = RawSlave(
            *await asyncio.open_connection(*served.address, local_addr=("127.0.0.2", 0))
        )
        served.slaves.append(other)
        other.report(0)
        await other.log_from(0, end)

    run_proving(root, secret_file, scenario, allowed="127.0.0.0/8")


def test_hostile_connections_are_counted_and_not_logged_one_by_one(
    root: Path, secret_file: Path
) -> None:
    async def scenario(served: Served) -> None:
        for number in range(50):
            slave = await served.slave(None)
            slave.send(encode_report(0) if number % 2 else b"\xfe" * 8)
            assert await slave.ended()
        await served.until(lambda: served.server.connections.refused == 50)

    with structlog.testing.capture_logs() as lines:
        run_proving(root, secret_file, scenario)
    assert len([each for each in lines if each["event"] == "a slave is refused"]) == 1


def test_a_certificate_that_names_a_replica_proves_it(root: Path, tmp_path: Path) -> None:
    authority = trustme.CA()

    async def run() -> None:
        leader = files(tmp_path / "a", authority, "pod-0")
        options = OPTIONS.__class__(**{**_fields(OPTIONS), "tls": leader.server})
        async with serving(root, options, "127.0.0.0/8", replica_names=NAMES) as served:
            put_some(served.store, 3)
            for name in ("pod-1", "pod-2"):
                tls = files(tmp_path / "b", authority, "pod-1").client()
                slave = RawSlave(*await asyncio.open_connection(*served.address, ssl=tls))
                served.slaves.append(slave)
                await slave.introduce(name)
                slave.report(0)
                await slave.log_from(0, served.store.log.max_offset)
            counted = {
                each.follower.name: each.counts
                for each in served.server.connections.slaves
                if each.follower
            }
            assert counted == {"pod-1": True, "pod-2": False}

    asyncio.run(run())


def _fields(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__slots__}


@pytest.mark.parametrize("allowed", ["0.0.0.0/0", "::/0", "10.0.0.1,0.0.0.0/1,128.0.0.0/1"])
def test_all_addresses_are_refused_without_tls(root: Path, tmp_path: Path, allowed: str) -> None:
    with pytest.raises(ConfigurationError, match="all addresses"):
        Admission(Settings(store=root, ha_allowed_slaves=allowed))
    assert Admission(Settings(store=root, ha_allowed_slaves=allowed, ha_tls_cert=tmp_path / "c"))


@pytest.mark.parametrize(
    "needs",
    [
        {"broker_role": "SYNC_MASTER"},
        {"election_lease": "file:lease", "founding_replica": "pod-0"},
    ],
)
def test_settings_that_need_a_copy_name_one(
    root: Path, secret_file: Path, needs: dict[str, str]
) -> None:
    given: dict[str, Any] = {"store": root, **needs}
    with pytest.raises(ConfigurationError, match="not in blocks"):
        Admission(Settings(**given, ha_allowed_slaves="10.0.0.0/8", replica_names=NAMES))
    assert Admission(Settings(**given, ha_allowed_slaves="10.0.0.0/8,10.1.2.3"))
    secret: dict[str, Any] = {"replica_secret_file": secret_file}
    assert Admission(Settings(**given, **secret, replica_names=NAMES))
    assert Admission(Settings(**given, **secret, replica_pods=NAMES))


def test_a_secret_needs_names_and_a_file(root: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"store": root, "replica_secret_file": tmp_path / "missing"}
    with pytest.raises(ValueError, match="replicaNames"):
        Settings(**given)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Admission(Settings(**given, replica_names=NAMES))
    write_secret(tmp_path / "missing", "short")
    with pytest.raises(ConfigurationError, match="shorter than 16"):
        Admission(Settings(**given, replica_names=NAMES))
