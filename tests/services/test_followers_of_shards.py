"""A store-writer that follows one that leads: log and tables are copied, then taken over."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from mqstore.client import Client, NewMessage
from tests.free_ports import free_port
from tests.services.followers import await_following
from tests.services.service_processes import query, running, writer

SEGMENT_SIZE = 1 << 20


@contextmanager
def damaging_connection(port: int, flipped_at: int) -> Iterator[int]:
    """A port that leads to another one. Its first connection flips a bit of what comes back."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            at = flipped_at
            with suppress(OSError):
                while True:
                    near, _ = listener.accept()
                    with near, socket.create_connection(("127.0.0.1", port)) as far:
                        other = threading.Thread(target=pump, args=(near, far, -1))
                        other.start()
                        pump(far, near, at)
                        other.join()
                    at = -1

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def pump(source: socket.socket, target: socket.socket, flipped_at: int) -> None:
    """Copy bytes until either side ends; flip a bit of the byte at an offset, if not -1."""
    done = 0
    with suppress(OSError):
        while data := bytearray(source.recv(1 << 16)):
            if done <= flipped_at < done + len(data):
                data[flipped_at - done] ^= 4
            done += len(data)
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def test_a_follower_of_a_shard_has_the_whole_log_and_all_tables(tmp_path: Path) -> None:
    remoting, ha = free_port(), free_port()
    sizes: dict[str, Any] = {"mapped_file_size_commit_log": SEGMENT_SIZE}
    leads = {"ha_allowed_slaves": "127.0.0.1", "listen_port": remoting, "ha_listen_port": ha}
    follows: dict[str, Any] = {
        "broker_role": "SLAVE",
        "replica_name": "second",
        "ha_master_address": f"127.0.0.1:{ha}",
    }
    messages = [NewMessage(body=f"{number}" * 1_500, keys=("k",)) for number in range(700)]
    with writer(tmp_path / "leader", **sizes, **leads) as process, Client(process.url) as leader:
        leader.create_topic("orders", queues=2)
        stored = [
            leader.produce("orders", messages[first : first + 100]).messages[0]
            for first in range(0, len(messages), 100)
        ]
        leader.commit("billing", "orders", {0: 1})
        end = leader.store().max_offset
        assert end > 2 * SEGMENT_SIZE
        with running(tmp_path / "follower", **sizes, **follows) as run, run.client() as client:
            await_following(client, lambda now: now.durable_offset == end)
            await_following(client, lambda now: now.tables_copied_at_ms is not None)
            assert client.store().min_offset == 0
            metrics = httpx.get(f"{process.url}/metrics").text
            assert 'mqstore_replication_lag_bytes{slave="second"} 0.0' in metrics
            followed = httpx.get(f"{run.writer_url}/metrics").text
            assert 'mqstore_replication_messages_total{topic="orders"} 700.0' in followed
            assert client.message(stored[0].offset_msg_id).body == messages[0].body
            assert client.topic("orders").write_queues == 2
            assert client.offsets("billing", topic="orders").offsets[0].committed == 1
            client.promote()
            assert client.receive("billing", "orders").messages


def test_a_leader_that_returns_loses_what_its_successor_lacks_to_quarantine(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    ports = [(free_port(), free_port()) for _ in range(2)]
    lead, other = (
        {"ha_allowed_slaves": "127.0.0.1", "listen_port": remoting, "ha_listen_port": ha}
        for remoting, ha in ports
    )
    follow, back = (
        {"broker_role": "SLAVE", "ha_master_address": f"127.0.0.1:{ha}", "status": "not-ready"}
        for _, ha in ports
    )
    with writer(first, **lead) as process, Client(process.url) as leader:
        leader.create_topic("orders", queues=1)
        leader.produce("orders", [NewMessage(body=f"both {number}") for number in range(10)])
        shared = leader.store().max_offset
        with writer(second, **follow, **other) as copy, Client(copy.url) as client:
            await_following(client, lambda now: now.durable_offset == shared)
            assert client.replication().epoch == 1
            assert client.promote().epoch == 2
            client.create_topic("orders", queues=1)
            client.produce("orders", NewMessage(body="of the second"))
            lost = leader.produce(
                "orders", [NewMessage(body=f"lost {number}") for number in range(5)]
            )
            process.kill()
            end = client.store().max_offset
            with writer(first, **back) as again, Client(again.url) as returned:
                await_following(returned, lambda now: now.durable_offset == end)
                assert returned.replication().epoch == 2
                (entry,) = [
                    each for each in returned.quarantine().entries if "commitlog" in each.source
                ]
                assert entry.reason.startswith(f"5 messages from offset {shared} ")
                assert len(lost.messages) == 5


def test_a_leader_that_returns_withdraws_a_deletion_that_its_successor_lacks(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    lead, other = (
        {
            "ha_allowed_slaves": "127.0.0.1",
            "listen_port": free_port(),
            "ha_listen_port": free_port(),
        }
        for _ in range(2)
    )
    follow, back = (
        {
            "broker_role": "SLAVE",
            "ha_master_address": f"127.0.0.1:{ports['ha_listen_port']}",
            "status": "not-ready",
        }
        for ports in (lead, other)
    )
    with writer(first, **lead) as process, Client(process.url) as leader:
        leader.create_topic("orders", queues=1)
        leader.produce("orders", [NewMessage(body=f"{number}") for number in range(10)])
        shared = leader.store().max_offset
        with writer(second, **follow, **other) as copy, Client(copy.url) as client:
            await_following(client, lambda now: now.durable_offset == shared)
            client.promote()
            client.create_topic("orders", queues=1)
            client.produce("orders", NewMessage(body="10"))
            leader.delete_topic("orders")
            process.kill()
            end = client.store().max_offset
            with writer(first, **back) as again, Client(again.url) as returned:
                await_following(returned, lambda now: now.durable_offset == end)
                assert [each.topic for each in returned.topics().topics] == ["orders"]
    with query(first) as process, Client(process.url, process.url) as client:
        pulled = client.pull("orders", 0, 0, max_messages=20)
        assert [each.body for each in pulled.messages] == [f"{number}" for number in range(11)]


def test_a_bit_that_changes_on_the_way_is_found_and_requested_again(tmp_path: Path) -> None:
    ports = {"listen_port": free_port(), "ha_listen_port": free_port()}
    with (
        writer(tmp_path / "leader", ha_allowed_slaves="127.0.0.1", **ports) as process,
        Client(process.url) as leader,
    ):
        leader.create_topic("orders", queues=1)
        leader.produce("orders", [NewMessage(body=f"{each}" * 900) for each in range(100)])
        end = leader.store().max_offset
        with (
            damaging_connection(ports["ha_listen_port"], end // 2) as port,
            writer(
                tmp_path / "follower",
                broker_role="SLAVE",
                ha_master_address=f"127.0.0.1:{port}",
                status="not-ready",
            ) as copy,
            Client(copy.url) as client,
        ):
            found = await_following(client, lambda now: now.durable_offset == end)
            assert found.damaged_records == 0
            metrics = httpx.get(f"{copy.url}/metrics").text
            assert "mqstore_replication_corrupt_frames_total 1.0" in metrics
