"""A leader takes damaged records from its followers, which report damage of their own."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import Any

import pytest

from mqstore.client import Client, NewMessage, ProblemError
from mqstore.wire.produce import MessagePlace
from tests.free_ports import free_port
from tests.services.elected_replicas import Replica, elected
from tests.services.followers import await_following
from tests.services.service_processes import writer

TOPIC = "orders"


def log_of(replica: Replica, end: int) -> bytes:
    with (replica.store / "commitlog" / f"{0:020d}").open("rb") as log:
        return log.read(end)


def damage(store: Path, placed: MessagePlace) -> None:
    """Change more of a message than the checksum of its block can restore."""
    with (store / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(placed.physical_offset + 100)
        log.write(b"?" * 100)


def produce(client: Client) -> MessagePlace:
    """Produce three messages; returns the second one."""
    messages = [NewMessage(body=f"{number}" * 200) for number in range(3)]
    return client.produce(TOPIC, messages, durability="replicated").messages[1]


def test_a_damaged_record_comes_back_from_a_replica_in_sync(tmp_path: Path) -> None:
    with elected(tmp_path, 2, damage_repair="manual") as replicas:
        leader = replicas.leader()
        (other,) = [each for each in replicas.replicas if each is not leader]
        with leader.client() as client:
            client.create_topic(TOPIC, queues=1)
            replicas.await_in_sync(2)
            placed = produce(client)
            damage(leader.store, placed)
            (planned,) = client.repair_log(dry_run=True).plan["actions"]
            assert planned["kind"] == "place-tombstone"
            (done,) = client.repair_log().plan["actions"]
            assert (done["kind"], done["offset"]) == ("fetch-bytes", placed.physical_offset)
            assert done["replica"].startswith(f"{other.name}/")
            (listed,) = client.scrub().repairs
            assert (listed.kind, listed.replica) == ("fetch-bytes", done["replica"])
            end = client.store().max_offset
        assert log_of(leader, end) == log_of(other, end)


def test_a_record_is_not_given_up_while_no_other_replica_is_in_sync(tmp_path: Path) -> None:
    with elected(tmp_path, 2, damage_repair="manual") as replicas:
        leader = replicas.leader()
        (other,) = [each for each in replicas.replicas if each is not leader]
        with leader.client() as client:
            client.create_topic(TOPIC, queues=1)
            replicas.await_in_sync(2)
            placed = produce(client)
            other.kill()
            replicas.await_in_sync(1)
            damage(leader.store, placed)
            with pytest.raises(ProblemError) as refused:
                client.repair_log()
            assert refused.value.type == "repair-refused"
            other.start()
            replicas.await_in_sync(2)
            (done,) = client.repair_log().plan["actions"]
            assert (done["kind"], done["offset"]) == ("fetch-bytes", placed.physical_offset)


def test_a_leader_without_an_election_gives_up_no_record_that_its_follower_may_have(
    tmp_path: Path,
) -> None:
    ports = {"ha_listen_port": free_port(), "listen_port": free_port()}
    lead = {"replica_name": "first", "ha_allowed_slaves": "127.0.0.1", "damage_repair": "manual"}
    follow = {
        "replica_name": "second",
        "broker_role": "SLAVE",
        "ha_master_address": f"127.0.0.1:{ports['ha_listen_port']}",
    }
    first, second = tmp_path / "first", tmp_path / "second"
    with writer(first, **lead, **ports) as process, Client(process.url) as client:
        client.create_topic(TOPIC, queues=1)
        with writer(second, status="not-ready", **follow) as copy, Client(copy.url) as other:
            placed = produce(client)
            end = placed.physical_offset + placed.size
            await_following(other, lambda now: now.durable_offset > end)
        process.process.send_signal(signal.SIGTERM)
        assert process.ended()[0] == 0
    damage(first, placed)
    with writer(first, **lead, **ports) as process, Client(process.url) as client:
        with pytest.raises(ProblemError) as refused:
            client.repair_log()
        assert refused.value.type == "repair-refused"
        with writer(second, status="not-ready", **follow):
            done: list[Any] = []
            while not done:
                with contextlib.suppress(ProblemError):  # until the follower is in sync
                    done = client.repair_log().plan["actions"]
        assert [(each["kind"], each["offset"]) for each in done] == [
            ("fetch-bytes", placed.physical_offset)
        ]


def test_a_follower_reports_damage_of_its_own_log(tmp_path: Path) -> None:
    with elected(tmp_path, 2) as replicas:
        leader = replicas.leader()
        (other,) = [each for each in replicas.replicas if each is not leader]
        with leader.client() as client, other.client() as follower:
            client.create_topic(TOPIC, queues=1)
            replicas.await_in_sync(2)
            placed = produce(client)
            while follower.scrub().checked_bytes < placed.physical_offset + placed.size:
                follower.run_scrub()  # until checksums cover it
            damage(other.store, placed)
            while not follower.scrub().findings:
                follower.run_scrub()
            (found,) = follower.scrub().findings
            assert found.offset <= placed.physical_offset < found.offset + found.length
            assert follower.scrub().repair_count == client.scrub().finding_count == 0
