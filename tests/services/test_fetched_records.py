"""A leader takes damaged records from its followers."""

from __future__ import annotations

from pathlib import Path

from mqstore.client import NewMessage
from tests.services.elected_replicas import Replica, elected

TOPIC = "orders"


def log_of(replica: Replica, end: int) -> bytes:
    with (replica.store / "commitlog" / f"{0:020d}").open("rb") as log:
        return log.read(end)


def test_a_damaged_record_comes_back_from_a_replica_in_sync(tmp_path: Path) -> None:
    with elected(tmp_path, 2, damage_repair="manual") as replicas:
        leader = replicas.leader()
        (other,) = [each for each in replicas.replicas if each is not leader]
        with leader.client() as client:
            client.create_topic(TOPIC, queues=1)
            replicas.await_in_sync(2)
            messages = [NewMessage(body=f"{number}" * 200) for number in range(3)]
            placed = client.produce(TOPIC, messages, durability="replicated").messages[1]
            path = leader.store / "commitlog" / f"{0:020d}"
            with path.open("r+b") as log:
                log.seek(placed.physical_offset + 100)
                log.write(b"?" * 100)
            (planned,) = client.repair_log(dry_run=True).plan["actions"]
            assert planned["kind"] == "place-tombstone"
            (done,) = client.repair_log().plan["actions"]
            assert (done["kind"], done["offset"]) == ("fetch-bytes", placed.physical_offset)
            assert done["replica"].startswith(f"{other.name}/")
            (listed,) = client.scrub().repairs
            assert (listed.kind, listed.replica) == ("fetch-bytes", done["replica"])
            end = client.store().max_offset
        assert log_of(leader, end) == log_of(other, end)
