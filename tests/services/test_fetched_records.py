"""A leader takes damaged records from its followers, which report damage of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.client import Client, NewMessage, ProblemError
from mqstore.wire.produce import MessagePlace
from tests.services.elected_replicas import Replica, elected

TOPIC = "orders"


def log_of(replica: Replica, end: int) -> bytes:
    with (replica.store / "commitlog" / f"{0:020d}").open("rb") as log:
        return log.read(end)


def damage(replica: Replica, placed: MessagePlace) -> None:
    """Change more of a message than the checksum of its block can restore."""
    with (replica.store / "commitlog" / f"{0:020d}").open("r+b") as log:
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
            damage(leader, placed)
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
            damage(leader, placed)
            with pytest.raises(ProblemError) as refused:
                client.repair_log()
            assert refused.value.type == "repair-refused"
            other.start()
            replicas.await_in_sync(2)
            (done,) = client.repair_log().plan["actions"]
            assert (done["kind"], done["offset"]) == ("fetch-bytes", placed.physical_offset)


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
            damage(other, placed)
            while not follower.scrub().findings:
                follower.run_scrub()
            (found,) = follower.scrub().findings
            assert found.offset <= placed.physical_offset < found.offset + found.length
            assert follower.scrub().repair_count == client.scrub().finding_count == 0
