"""Produces that wait for a slave, as RocketMQ's SYNC_MASTER does; the slave is a raw socket."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.client import Client, NewMessage, ProblemError
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.sockets import bind
from mqstore.storage.replication.ha_frames import Frame, FrameReader, encode_report
from tests.services.service_processes import Process, query, writer

TOPIC: Final = "orders"
PATIENCE_S: Final = 60.0
SLAVE: Final = {"slave_timeout": 60_000, "ha_allowed_slaves": "127.0.0.1"}


def _ports() -> tuple[int, int]:
    """Ports for remoting and HA; the one two below the first is free too."""
    while True:
        with bind("127.0.0.1", 0) as first, bind("127.0.0.1", 0) as second:
            port, other = (int(each.getsockname()[1]) for each in (first, second))
            with contextlib.suppress(ConfigurationError):
                bind("127.0.0.1", port - 2).close()
                return port, other


@contextlib.contextmanager
def _leader(store: Path, **settings: Any) -> Iterator[tuple[Process, Client, int]]:
    """A leader, its client, and its HA port."""
    remoting, ha = _ports()
    given = {**SLAVE, "listen_port": remoting, "ha_listen_port": ha, **settings}
    with (
        writer(store, **given) as process,
        Client(process.url, process.url, coordinator_url=process.url) as client,
    ):
        client.create_topic(TOPIC)
        yield process, client, ha


@contextlib.contextmanager
def _slave(port: int, *, acknowledges: bool = True) -> Iterator[None]:
    """A slave that has reported its offset, and acknowledges what it gets."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(encode_report(0))
        reader = FrameReader()
        first = _frames(connection, reader)
        thread = threading.Thread(target=_acknowledge, args=(connection, reader))
        if acknowledges:
            _report(connection, first)
            thread.start()
        try:
            yield
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            if acknowledges:
                thread.join()


def _frames(connection: socket.socket, reader: FrameReader) -> int:
    """Read frames; the end of the last one. 0 when the connection has ended."""
    while data := connection.recv(1 << 16):
        found = [frame for frame in reader.feed(data) if isinstance(frame, Frame)]
        ends = [frame.offset + len(frame.body) for frame in found]
        if ends:
            return ends[-1]
    return 0


def _report(connection: socket.socket, end: int) -> None:
    connection.sendall(encode_report(end))


def _acknowledge(connection: socket.socket, reader: FrameReader) -> None:
    with contextlib.suppress(OSError):
        while end := _frames(connection, reader):
            _report(connection, end)


def _produce(client: Client, durability: Any = None) -> None:
    client.produce(TOPIC, [NewMessage(body="paid")], durability=durability)


def _problem_of(client: Client, durability: Any = None) -> str:
    """The problem of a produce whose message is stored all the same."""
    with pytest.raises(ProblemError) as refused:
        _produce(client, durability)
    assert refused.value.problem["messages"][0]["queueOffset"] >= 0
    return refused.value.type


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_synchronous_master_waits_for_a_slave(tmp_path: Path, flush: str) -> None:
    settings = {"broker_role": "SYNC_MASTER", "flush_disk_type": flush}
    with _leader(tmp_path / "store", **settings) as (_, client, port):
        for durability in (None, "sync", "replicated"):
            assert _problem_of(client, durability) == "slave-not-available"
        _produce(client, "async")
        with _slave(port):
            for durability in (None, "sync", "replicated", "async"):
                for _ in range(3):
                    _produce(client, durability)
            client.produce(TOPIC, [NewMessage(body="x", delay_level=1), NewMessage()])
            begun = client.begin("g", TOPIC, NewMessage(body="half"))
            client.commit_transaction(begun.transaction_id)


def test_a_slave_that_does_not_acknowledge_is_a_timeout(tmp_path: Path) -> None:
    settings = {"broker_role": "SYNC_MASTER", "slave_timeout": 50}
    with _leader(tmp_path / "store", **settings) as (_, client, port):
        _produce(client, "async")
        with _slave(port, acknowledges=False):
            for durability in (None, "replicated"):
                assert _problem_of(client, durability) == "flush-slave-timeout"


def test_one_request_may_wait_for_a_slave(tmp_path: Path) -> None:
    with _leader(tmp_path / "store") as (_, client, port):
        _produce(client)
        _produce(client, "sync")
        assert _problem_of(client, "replicated") == "slave-not-available"
        with _slave(port):
            for _ in range(3):
                _produce(client, "replicated")


def test_what_is_acknowledged_as_replicated_outlives_the_leader(tmp_path: Path) -> None:
    """Leader and follower are shards; the leader is killed and its store is gone."""
    with _leader(tmp_path / "leader", broker_role="SYNC_MASTER") as (process, client, port):
        following = writer(
            tmp_path / "follower",
            status="not-ready",  # a follower takes no messages
            broker_role="SLAVE",
            ha_master_address=f"127.0.0.1:{port}",
            ha_send_heartbeat_interval=100,
        )
        with following as other, Client(other.url, other.url) as promoted:
            _await_slave(client)
            placed = [
                client.produce(TOPIC, [NewMessage(body=f"{number}")]).messages[0]
                for number in range(50)
            ]
            process.kill()
            assert promoted.promote().role == "leader"
            assert promoted.store().max_offset >= max(m.physical_offset + m.size for m in placed)
            with query(tmp_path / "follower") as reads, Client(reads.url, reads.url) as found:
                bodies = [found.message(each.offset_msg_id).body for each in placed]
            assert bodies == [f"{number}" for number in range(50)]


def _await_slave(client: Client) -> None:
    """Produce until a slave is there."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(ProblemError):
            _produce(client)
            return
        assert time.monotonic() < deadline, "no slave connects"
        time.sleep(0.02)
