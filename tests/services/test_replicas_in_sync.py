"""The copies in sync of a running leader, and what depends on them: replies, reads, refusals.

Replicas are real followers, or acknowledge what a test says.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from mqstore.cli.main import app
from mqstore.client import Client, Leading, NewMessage, ProblemError, Replica
from tests.free_ports import free_port
from tests.services.scripted_leader import ScriptedLeader, log_bytes
from tests.services.scripted_replica import scripted_replica
from tests.services.service_processes import Process, query, writer
from tests.unit.storage.stores import open_store

TOPIC: Final = "orders"
PATIENCE_S: Final = 60.0
LEADER: Final = {"slave_timeout": 60_000, "ha_allowed_slaves": "127.0.0.1", "replica_name": "a"}


@contextlib.contextmanager
def _leader(store: Path, **settings: Any) -> Iterator[tuple[Process, Client, int]]:
    """A leader, its client, and its HA port."""
    ha = free_port()
    given = {**LEADER, "listen_port": free_port(), "ha_listen_port": ha, **settings}
    with (
        writer(store, **given) as process,
        Client(process.url, process.url, coordinator_url=process.url) as client,
    ):
        client.create_topic(TOPIC, queues=1)
        yield process, client, ha


@contextlib.contextmanager
def _follower(store: Path, port: int, name: str = "b", **settings: Any) -> Iterator[Process]:
    following = writer(
        store,
        status="not-ready",  # a follower takes no messages
        broker_role="SLAVE",
        ha_master_address=f"127.0.0.1:{port}",
        ha_send_heartbeat_interval=100,
        replica_name=name,
        **settings,
    )
    with following as process:
        yield process


def _leading(client: Client) -> Leading:
    found = client.replication().leading
    assert found is not None
    return found


def _await_leading(client: Client, is_so: Callable[[Leading], bool]) -> Leading:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so(found := _leading(client)):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def _await_in_sync(client: Client, *names: str) -> Leading:
    return _await_leading(client, lambda found: found.in_sync == names)


def _produce(client: Client, durability: Any = None) -> int:
    """Produce a message; returns the end of its record."""
    placed = client.produce(TOPIC, [NewMessage(body="paid")], durability=durability).messages[0]
    return placed.physical_offset + placed.size


def test_a_follower_that_has_caught_up_is_in_sync_until_it_is_gone(tmp_path: Path) -> None:
    with _leader(tmp_path / "leader") as (process, client, port):
        end = _produce(client)
        assert _leading(client).in_sync == ("a",)
        with _follower(tmp_path / "follower", port) as follower:
            _await_in_sync(client, "a", "b")
            found = _await_leading(client, lambda found: found.confirmed_offset == end)
            with query(tmp_path / "follower") as copy:
                assert _get(copy, "/v1/store", f"0:{end}")["behindBytes"] == 0
            replica = found.replicas[0]
            assert isinstance(replica, Replica)
            assert (replica.name, replica.kind, replica.in_sync) == ("b", "replica", True)
            assert (replica.acknowledged_offset, replica.lag_bytes) == (end, 0)
            assert replica.in_sync_since_ms is not None
            _produce(client, "replicated")
            assert _metric(process, "mqstore_replication_in_sync ") == 2
            assert _metric(process, 'mqstore_replication_lag_bytes{slave="b"} ') == 0
            assert _shard_rows(process) == [
                {
                    "shard": 0,
                    "address": process.url,
                    "role": "leader",
                    "epoch": client.replication().epoch,
                    "minOffset": 0,
                    "endOffset": _leading(client).end_offset,
                    "lagBytes": 0,
                    "lagMs": 0,
                    "inSync": ["a", "b"],
                }
            ]
            follower.kill()
            _await_in_sync(client, "a")
        assert _leading(client).replicas == ()
        changes = [each["change"] for each in _events(process, "replica", 4)]
        assert changes == ["connected", "joined", "lost", "left"]


def test_with_too_few_copies_in_sync_a_replicated_message_is_refused(tmp_path: Path) -> None:
    settings = {"broker_role": "SYNC_MASTER", "min_in_sync_replicas": 2}
    with _leader(tmp_path / "leader", **settings) as (_, client, port):
        for durability in (None, "sync", "replicated"):
            with pytest.raises(ProblemError) as refused:
                _produce(client, durability)
            assert refused.value.type == "in-sync-replicas-not-enough"
            assert refused.value.problem["inSync"] == 1
        with pytest.raises(ProblemError) as refused:
            client.begin("g", TOPIC, NewMessage(body="half"))
        assert refused.value.type == "in-sync-replicas-not-enough"
        assert _leading(client).end_offset == 0
        end = _produce(client, "async")
        with scripted_replica(port, "b") as replica:
            replica.acknowledge(end)
            _await_in_sync(client, "a", "b")
            done = _in_thread(lambda: _produce(client))
            end = _await_leading(client, lambda found: found.end_offset > end).end_offset
            replica.acknowledge(end)
            done.join()
        _await_in_sync(client, "a")
        with pytest.raises(ProblemError):
            _produce(client)


def test_replies_wait_for_all_copies_that_are_in_sync(tmp_path: Path) -> None:
    settings = {"all_ack_in_sync_state_set": True, "slave_timeout": 200}
    with _leader(tmp_path / "leader", **settings) as (_, client, port):
        end = _produce(client)
        assert _problem_of(client) == "slave-not-available"
        end = _leading(client).end_offset
        with scripted_replica(port, "b") as one, scripted_replica(port, "c") as other:
            one.acknowledge(end)
            other.acknowledge(end)
            _await_in_sync(client, "a", "b", "c")
            assert _problem_of(client) == "flush-slave-timeout"
            end = _leading(client).end_offset
            one.acknowledge(end)
            assert _problem_of(client) == "flush-slave-timeout"


def test_a_change_waits_for_the_tables_of_all_copies_that_are_in_sync(tmp_path: Path) -> None:
    with _leader(tmp_path / "leader", slave_timeout=200) as (_, client, port):
        with scripted_replica(port, "b") as replica:
            replica.acknowledge(_leading(client).end_offset)
            _await_in_sync(client, "a", "b")
            _create_confirmed(client, "confirmed")
            replica.takes_tables = False
            with pytest.raises(ProblemError) as refused:
                client.create_topic("unconfirmed")
            assert refused.value.type == "change-unconfirmed"
            assert client.topic("unconfirmed").write_queues == 4
        _await_in_sync(client, "a")
        client.create_topic("alone")


def _create_confirmed(client: Client, topic: str) -> None:
    """Create a topic, and repeat that where the machine is slow, until its reply confirms it."""
    while True:
        with contextlib.suppress(ProblemError):
            client.create_topic(topic)
            return


def test_a_topic_that_a_produce_creates_is_on_all_copies_before_its_first_message(
    tmp_path: Path,
) -> None:
    settings = {"auto_create_topic_enable": True, "slave_timeout": 200}
    with _leader(tmp_path / "leader", **settings) as (_, client, port):
        with scripted_replica(port, "b") as replica:
            end = _leading(client).end_offset
            replica.acknowledge(end)
            _await_in_sync(client, "a", "b")
            replica.takes_tables = False
            for _ in range(2):  # the topic is known at the second time
                with pytest.raises(ProblemError) as refused:
                    client.produce("created", [NewMessage(body="first")])
                assert refused.value.type == "change-unconfirmed"
            assert client.topic("created").write_queues
            assert _leading(client).end_offset == end
            client.produce(TOPIC, [NewMessage(body="of a topic that exists")])
        _await_in_sync(client, "a")
        assert client.produce("created", [NewMessage(body="first")]).messages[0].queue_offset == 0


@pytest.mark.slow
def test_a_copy_that_does_not_catch_up_leaves(tmp_path: Path) -> None:
    settings = {"ha_max_time_slave_not_catchup": 50}
    with _leader(tmp_path / "leader", **settings) as (_, client, port):
        end = _produce(client)
        with scripted_replica(port, "b") as replica:
            replica.acknowledge(end)
            _await_in_sync(client, "a", "b")
            _produce(client)
            found = _await_in_sync(client, "a")
            assert [each.in_sync for each in found.replicas] == [False]
            assert found.replicas[0].lag_bytes > 0
            _await_leading(client, lambda found: found.confirmed_offset == found.end_offset)


def test_readers_see_a_message_once_all_copies_in_sync_have_it(tmp_path: Path) -> None:
    store = tmp_path / "leader"
    settings: dict[str, Any] = {"read_up_to_confirmed_offset": True}
    with (
        _leader(store, **settings) as (process, client, port),
        query(store) as reads,
        Client(process.url, reads.url) as reader,
        scripted_replica(port, "b") as replica,
    ):
        replica.acknowledge(0)
        _await_in_sync(client, "a", "b")
        placed = client.produce(TOPIC, [NewMessage(body="paid")]).messages[0]
        assert len(reader.pull(TOPIC, 0, offset=0).messages) == 0
        with pytest.raises(ProblemError) as missing:
            reader.message(placed.offset_msg_id)
        assert missing.value.type == "message-unknown"
        assert client.receive("g", TOPIC).messages == ()
        end = placed.physical_offset + placed.size
        state = reader.store_state()
        assert (state.max_offset, state.end_offset, state.in_sync) == (0, end, 2)
        pulled: list[Any] = []
        received: list[Any] = []
        waiting = [
            _in_thread(lambda: pulled.extend(reader.pull(TOPIC, 0, offset=0, wait_s=30).messages)),
            _in_thread(lambda: received.extend(client.receive("g", TOPIC, wait_s=30).messages)),
        ]
        replica.acknowledge(end)
        assert reader.reading_after([placed]).message(placed.offset_msg_id).body == "paid"
        for each in waiting:
            each.join()
        assert [[each.body for each in found] for found in (pulled, received)] == [["paid"]] * 2
        assert reader.message(placed.offset_msg_id).body == "paid"


def test_readers_of_a_follower_see_what_is_confirmed_by_its_leader(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"read_up_to_confirmed_offset": True}
    copied = tmp_path / "follower"
    with (
        _leader(tmp_path / "leader", **settings) as (_, client, port),
        _follower(copied, port, **settings),
        query(copied) as reads,
        Client(reads.url, reads.url) as reader,
        scripted_replica(port, "c") as replica,
    ):
        replica.acknowledge(0)
        _await_in_sync(client, "a", "b", "c")
        placed = client.produce(TOPIC, [NewMessage(body="paid")]).messages[0]
        end = placed.physical_offset + placed.size
        _await_leading(client, lambda found: found.replicas[0].acknowledged_offset == end)
        state = reader.store_state()
        assert (state.max_offset, state.end_offset) == (0, end)
        replica.acknowledge(end)
        assert reader.reading_after([placed]).message(placed.offset_msg_id).body == "paid"
        state = reader.store_state()
        assert (state.confirmed_offset, state.in_sync, state.behind_bytes) == (end, 3, 0)


def test_a_follower_acknowledges_what_its_disk_lacks_if_the_settings_say_so(
    tmp_path: Path,
) -> None:
    unsynced: dict[str, Any] = {
        "flush_interval_commit_log": 3_600_000,
        "flush_commit_log_thorough_interval": 3_600_000,
    }
    settings = unsynced | {"ha_flush_disk_type": "ASYNC_FLUSH"}
    with (
        _leader(tmp_path / "leader", **unsynced) as (_, client, port),
        _follower(tmp_path / "follower", port, **settings) as follower,
        Client(follower.url, follower.url) as reader,
    ):
        _await_in_sync(client, "a", "b")
        end = _produce(client, "replicated")
        (replica,) = _leading(client).replicas
        following = reader.replication().following
        assert following is not None
        assert (replica.acknowledged_offset, following.received_offset) == (end, end)
        assert following.durable_offset < end


def test_readers_of_a_follower_of_a_broker_see_what_it_has_on_its_disk(tmp_path: Path) -> None:
    with _leader(tmp_path / "leader") as (_, client, _):
        placed = client.produce(TOPIC, [NewMessage(body="paid")]).messages[0]
    with open_store(tmp_path / "leader") as store:
        log = log_bytes(store)
    broker = ScriptedLeader(lambda: log)
    copied = tmp_path / "follower"
    settings: dict[str, Any] = {"read_up_to_confirmed_offset": True}
    with (
        contextlib.closing(broker),
        _follower(copied, broker.port, **settings),
        query(copied) as reads,
        Client(reads.url, reads.url) as reader,
    ):
        assert reader.reading_after([placed]).message(placed.offset_msg_id).body == "paid"


def _problem_of(client: Client) -> str:
    with pytest.raises(ProblemError) as refused:
        _produce(client, "replicated")
    return refused.value.type


def _in_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def _get(process: Process, path: str, at_least: str) -> Any:
    """Read once the log is readable up to an offset, of a shard."""
    wanted = urllib.request.Request(process.url + path, headers={"X-Mqstore-At-Least": at_least})
    with urllib.request.urlopen(wanted) as found:
        return json.load(found)


def _shard_rows(process: Process) -> list[Any]:
    """The output of ``mqstore shard ls``."""
    found = CliRunner().invoke(app, ["shard", "ls", "--writer-url", process.url, "-o", "json"])
    assert found.exit_code == 0, found.output
    return [json.loads(line) for line in found.stdout.splitlines()]


def _metric(process: Process, start: str) -> float:
    with urllib.request.urlopen(f"{process.url}/metrics") as found:
        lines = found.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(start))[len(start) :])


def _events(process: Process, kind: str, count: int) -> list[dict[str, Any]]:
    """The first events of a kind."""
    found: list[dict[str, Any]] = []
    with urllib.request.urlopen(f"{process.url}/v1/events") as stream:
        is_wanted = False
        for line in stream:
            if line.startswith(b"event:"):
                is_wanted = line.split(b":", 1)[1].strip() == kind.encode()
            elif line.startswith(b"data:") and is_wanted:
                found.append(json.loads(line[5:]))
                if len(found) == count:
                    break
    return found
