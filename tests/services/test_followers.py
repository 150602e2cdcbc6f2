"""store-writer and query over a store that follows a leader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError
from mqstore.service.remoting import RequestCode
from mqstore.storage import MessageStore
from tests.forked_processes import run_mqstore
from tests.forked_processes import start as start_forked
from tests.services.followers import await_following
from tests.services.scripted_broker import scripted_broker
from tests.services.scripted_leader import ScriptedLeader, log_bytes
from tests.services.service_processes import environment, ready, running, writer
from tests.unit.storage.stores import CONFIG, abandon, open_store, put_some

SETTINGS: dict[str, Any] = {
    "broker_role": "SLAVE",
    "mapped_file_size_commit_log": CONFIG.mapped_file_size_commit_log,
    "ha_send_heartbeat_interval": 100,
    "status": "not-ready",
}
"""A follower is not ready: it takes no messages."""

RUN: dict[str, Any] = {name: value for name, value in SETTINGS.items() if name != "status"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "leader") as found:
        put_some(found, 400)
        yield found


@pytest.fixture
def leader(store: MessageStore) -> Iterator[ScriptedLeader]:
    found = ScriptedLeader(lambda: log_bytes(store))
    yield found
    found.close()


def await_state(client: Client, state: str) -> str:
    """The reason that a follower gives for its state, once it has that state."""
    return await_following(client, lambda now: now.state == state).reason or ""


def test_a_follower_serves_reads_and_refuses_writes_until_it_is_promoted(
    tmp_path: Path, store: MessageStore, leader: ScriptedLeader
) -> None:
    root = tmp_path / "follower"
    with running(root, ha_master_address=leader.address, **RUN) as run, run.client() as client:
        leader.await_offset(store.log.max_offset)
        found = client.replication()
        assert found.role == "follower"
        assert found.following is not None
        assert found.following.lag_bytes == 0
        assert found.following.durable_offset == store.log.max_offset
        metrics = httpx.get(f"{run.writer_url}/metrics").text
        assert "mqstore_replication_following 1.0" in metrics
        assert "mqstore_replication_behind_bytes 0.0" in metrics
        assert client.message(f"U{7:031d}", topic="T").body == "body 7 " * 10
        for change in (
            lambda: client.receive("g", "T"),
            lambda: client.create_topic("new"),
            lambda: client.produce("T", NewMessage(body="refused")),
        ):
            with pytest.raises(ProblemError) as refused:
                change()
            assert refused.value.status == 503
        assert leader.address in str(refused.value)
        assert client.promote().role == "leader"
        assert client.promote().role == "leader"
        client.create_topic("new")
        client.produce("new", NewMessage(body="accepted"))
        assert client.store().min_offset == 0
        assert client.store().max_offset > store.log.max_offset


def test_a_broker_with_what_mqstore_cannot_serve_is_refused_before_its_log_is_copied(
    tmp_path: Path, store: MessageStore, leader: ScriptedLeader
) -> None:
    batches = {"topicName": "B", "attributes": {"queue.type": "BatchCQ"}}
    bodies: dict[int, str] = {
        RequestCode.GET_ALL_TOPIC_CONFIG: json.dumps({"topicConfigTable": {"B": batches}}),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: json.dumps({"subscriptionGroupTable": {}}),
        RequestCode.GET_BROKER_CONFIG: "brokerName=a\n",
    }
    root = tmp_path / "follower"
    with scripted_broker(bodies) as address:
        given = {**SETTINGS, "ha_master_address": leader.address, "master_address": address}
        with writer(root, **given) as process, Client(process.url) as client:
            assert "batch-topic" in await_state(client, "refused")
            assert leader.requested == []
            assert client.store().max_offset == 0
            bodies[RequestCode.GET_ALL_TOPIC_CONFIG] = json.dumps({"topicConfigTable": {}})
            leader.await_offset(store.log.max_offset)


def test_a_follower_of_a_broker_without_its_address_names_what_is_not_looked_at(
    tmp_path: Path, leader: ScriptedLeader
) -> None:
    given = {**SETTINGS, "ha_master_address": leader.address}
    with writer(tmp_path / "follower", **given) as process, Client(process.url) as client:
        await_following(client, lambda now: now.durable_offset > 0)
        found = client.replication().following
        assert found is not None
        assert "masterAddress is not set" in (found.tables_reason or "")
        process.process.terminate()
        assert "may have what mqstore cannot serve" in process.ended()[1]


def test_mqstore_follow_prints_its_progress_and_promote_ends_it(
    tmp_path: Path, store: MessageStore, leader: ScriptedLeader
) -> None:
    root = tmp_path / "follower"
    words = ["follow", "127.0.0.1:10911", "--ha-port", str(leader.port), "--store", str(root)]
    words += ["--writer-port", "0", "--query-port", "0"]
    given = environment(mapped_file_size_commit_log=CONFIG.mapped_file_size_commit_log)
    process = start_forked("mqstore.cli.main", *words, environment=given, interactive=True)
    with ready(process) as run:
        leader.await_offset(store.log.max_offset)
        urls = environment(writer_url=run.writer_url)
        promoted = run_mqstore("promote", environment=urls)
        assert promoted.returncode == 0
        assert promoted.stdout.split()[-2] == str(store.log.max_offset)
        assert "leads already" in run_mqstore("promote", environment=urls).stdout
        code, errors = run.stop()
        assert code == 0
        assert f" {leader.address}: " in errors


def test_a_promoted_store_follows_no_broker_again(
    tmp_path: Path, store: MessageStore, leader: ScriptedLeader
) -> None:
    root = tmp_path / "follower"
    with writer(root, ha_master_address=leader.address, **SETTINGS) as process:
        leader.await_offset(store.log.max_offset)
        with Client(process.url) as client:
            assert client.promote().epoch == 1
    with (
        writer(root, ha_master_address=leader.address, **SETTINGS) as process,
        Client(process.url) as client,
    ):
        assert "has not introduced itself" in await_state(client, "refused")


def test_promote_refuses_a_copy_that_lags_behind(tmp_path: Path, store: MessageStore) -> None:
    stopped = ScriptedLeader(lambda: log_bytes(store)[:20_000])  # within a message
    with running(tmp_path / "follower", ha_master_address=stopped.address, **RUN) as run:
        stopped.await_offset(19_000)
        urls = environment(writer_url=run.writer_url)
        refused = run_mqstore("promote", environment=urls)
        assert refused.returncode == 1
        assert "--force" in refused.stderr
        assert run_mqstore("promote", "--force", environment=urls).returncode == 0
    stopped.close()


def test_a_follower_that_is_killed_goes_on_at_the_end_of_its_log(
    tmp_path: Path, store: MessageStore, leader: ScriptedLeader
) -> None:
    root = tmp_path / "follower"
    with writer(root, ha_master_address=leader.address, **SETTINGS) as process:
        leader.await_offset(store.log.max_offset)
        reached = store.log.max_offset
        process.kill()
    put_some(store, 200, start=400)
    with writer(root, ha_master_address=leader.address, **SETTINGS):
        leader.await_offset(store.log.max_offset)
    assert leader.requested == [0, reached]
    with open_store(root, leader=leader.address) as follower:
        assert log_bytes(follower) == log_bytes(store)


def test_a_follower_connects_again_when_its_leader_was_gone(
    tmp_path: Path, store: MessageStore, leader: ScriptedLeader
) -> None:
    with writer(tmp_path / "follower", ha_master_address=leader.address, **SETTINGS) as process:
        leader.await_offset(store.log.max_offset)
        leader.close()
        with Client(process.url) as client:
            assert await_state(client, "connecting")
            put_some(store, 100, start=400)
            again = ScriptedLeader(lambda: log_bytes(store), port=leader.port)
            again.await_offset(store.log.max_offset)
            again.close()


def test_a_leader_whose_log_does_not_continue_is_refused_without_damage(
    tmp_path: Path, store: MessageStore, leader: ScriptedLeader
) -> None:
    root = tmp_path / "follower"
    other = open_store(tmp_path / "other")
    put_some(other, 900, queues=1)
    with writer(root, ha_master_address=leader.address, **SETTINGS):
        leader.await_offset(store.log.max_offset)
    wrong = ScriptedLeader(lambda: log_bytes(other)[1:])
    with (
        writer(root, ha_master_address=wrong.address, **SETTINGS) as process,
        Client(process.url) as client,
    ):
        assert "damaged" in await_state(client, "refused")
    wrong.close()
    abandon(other)
    with open_store(root, leader=leader.address) as follower:
        assert log_bytes(follower) == log_bytes(store)
