"""Replicas that prove themselves: strangers, and the upgrade of a release without proofs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mqstore.client import NewMessage, ProblemError
from mqstore.storage.replication import ha_handover
from mqstore.storage.replication.ha_frames import encode_report
from tests.services.elected_replicas import Replica, elected

TOPIC = "orders"


def _echo(connection: socket.socket) -> bytes:
    """Reply with what a leader sends, and acknowledge; return what came in all."""
    found = b""
    connection.sendall(ha_handover.REQUEST)
    while data := connection.recv(1 << 16):
        found += data
        connection.sendall(data + encode_report(0))
    return found


def test_a_stranger_is_neither_sent_the_log_nor_counted(tmp_path: Path) -> None:
    with elected(tmp_path, 1) as replicas:
        leader = replicas.leader()
        with leader.client() as client:
            client.create_topic(TOPIC)
            client.produce(TOPIC, NewMessage(body="confidential"), durability="sync")
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", leader.ha)) as connection:
                    try:
                        found = _echo(connection)
                    except ConnectionError:
                        found = b""
                assert b"confidential" not in found
                assert TOPIC.encode() not in found
            leading = client.replication().leading
            assert leading is not None
            assert (len(leading.in_sync), leading.replicas) == (1, ())
            with pytest.raises(ProblemError) as refused:
                client.produce(TOPIC, NewMessage(body="2"), durability="replicated")
            assert refused.value.type == "slave-not-available"


def test_a_follower_that_proves_itself_follows_a_leader_of_an_earlier_release(
    tmp_path: Path,
) -> None:
    """A rollout: a leader without a secret, its follower with one, and then the other way round."""
    with elected(tmp_path, 1, ha_allowed_slaves="127.0.0.1") as replicas:
        old = replicas.leader()
        new = Replica(1, tmp_path, {})
        replicas.replicas.append(new)
        new.start()
        replicas.await_in_sync(2)
        with old.client() as client:
            assert client.switch_over().successor.startswith("replica-1")
        assert old.ended() == 0
        assert replicas.leader(old) is new
        old.start()
        found = old.await_state(
            lambda now: now.following is not None and now.following.state == "refused"
        )
        assert found.following is not None
        assert "replicaSecretFile" in (found.following.reason or "")
        with new.client() as client:
            (leading,) = (client.replication().leading,)
            assert leading is not None
            assert leading.in_sync == (replicas.await_in_sync(1).holder,)
        old.kill()
        old.settings = {}
        old.start()
        replicas.await_in_sync(2)
