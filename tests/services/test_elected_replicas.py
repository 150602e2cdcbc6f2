"""Replicas that elect their leader: kills, suspensions and hand-overs of the leader."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from mqstore.client import Client, ClientError, NewMessage, ProblemError
from tests.services.elected_replicas import PATIENCE_S, Replica, Replicas, elected
from tests.services.service_processes import query

TOPIC = "orders"
EXPIRING = {"election_lease_duration": 10_000, "election_renewal_deadline": 7_000}
"""A lease whose end a test waits for."""
Durability = Literal["sync", "replicated"]


@dataclass
class Load:
    """Stores messages, one after another, at whichever replica leads."""

    replicas: Replicas
    durability: Durability = "replicated"
    acknowledged: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _has_more: threading.Condition = field(default_factory=threading.Condition)

    def run(self) -> None:
        number = 0
        began = time.monotonic()
        while not self._stopping.is_set():
            body = f"{number}"
            if self._put(body):
                now = time.monotonic()
                self.slowest_s, began = max(self.slowest_s, now - began), now
                number += 1
                with self._has_more:
                    self.acknowledged.append(body)
                    self._has_more.notify_all()
            else:
                self._stopping.wait(0.02)

    def _put(self, body: str) -> bool:
        for each in self.replicas.replicas:
            with each.client() as client, contextlib.suppress(ClientError):
                client.produce(TOPIC, [NewMessage(body=body)], durability=self.durability)
                return True
        return False

    def await_more(self, count: int) -> None:
        """Wait until so many more messages were acknowledged."""
        wanted = len(self.acknowledged) + count
        with self._has_more:
            assert self._has_more.wait_for(lambda: len(self.acknowledged) >= wanted, PATIENCE_S)

    @contextlib.contextmanager
    def running(self) -> Iterator[Load]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            thread.join()


def bodies(replica: Replica) -> list[str]:
    """All messages of the topic in the store of a replica, read by a query of its own."""
    with query(replica.store) as process, Client(process.url, process.url) as client:
        found: list[str] = []
        for queue in client.queues(TOPIC).queues:
            offset = queue.min_offset
            while offset < queue.max_offset:
                pulled = client.pull(TOPIC, queue.queue_id, offset, max_messages=1000)
                found += [each.body or "" for each in pulled.messages]
                offset = pulled.next
        return found


def create_topic(replicas: Replicas) -> None:
    with replicas.leader().client() as client:
        client.create_topic(TOPIC)


def test_what_an_administrator_has_a_reply_for_is_kept_when_the_leader_is_killed(
    tmp_path: Path,
) -> None:
    with elected(tmp_path, 2) as replicas:
        first = replicas.leader()
        with first.client() as client:
            client.create_topic(TOPIC, queues=1)
            client.create_topic("gone", queues=1)
            stored = [NewMessage(body=f"{number}") for number in range(5)]
            client.produce(TOPIC, stored, durability="replicated")
            client.produce("gone", stored, durability="replicated")
            client.put_group("billing", retry_times_max=7)
            client.commit("billing", TOPIC, {0: 5})
            replicas.await_in_sync(2)
            client.reset_offsets("billing", TOPIC, to="earliest")
            client.delete_topic("gone")
            client.put_writes(paused=True, reason="maintenance")
        replicas.kill(first)
        second = replicas.leader(first)
        with second.client() as client:
            assert [each.topic for each in client.topics().topics] == [TOPIC]
            assert client.group("billing").config.retry_times_max == 7
            assert client.offsets("billing", topic=TOPIC).offsets[0].committed == 0
            with pytest.raises(ProblemError) as refused:
                client.produce(TOPIC, stored)
            assert refused.value.type == "writes-paused"


def test_a_follower_takes_over_from_a_killed_leader_with_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    with elected(tmp_path, 3) as replicas:
        first = replicas.leader()
        assert first.name == "replica-0"
        create_topic(replicas)
        with Load(replicas).running() as load:
            load.await_more(20)
            replicas.kill(first)
            load.await_more(20)
            second = replicas.leader(first)
            first.start()
            lease = replicas.await_in_sync(3)
            load.await_more(20)
        assert (replicas.leader_of(lease), lease.epoch) == (second, 2)
        found = bodies(second)
        assert set(load.acknowledged) <= set(found)


@pytest.mark.slow
def test_a_suspended_leader_acknowledges_nothing_after_its_lease(tmp_path: Path) -> None:
    with elected(tmp_path, 2, **EXPIRING) as replicas:
        first = replicas.leader()
        create_topic(replicas)
        pid = first.pid
        os.kill(pid, signal.SIGSTOP)
        second = replicas.leader(first)
        results: list[str] = []
        with first.client() as client:
            thread = threading.Thread(target=_try_put, args=(client, results))
            thread.start()
            with second.client() as other:
                other.produce(TOPIC, [NewMessage(body="new")])
            os.kill(pid, signal.SIGCONT)
            thread.join()
        assert results == ["refused"]
        assert first.ended() == 0
        first.start()
        replicas.await_in_sync(2)
        assert replicas.leader() == second


def _try_put(client: Client, results: list[str]) -> None:
    try:
        client.produce(TOPIC, [NewMessage(body="old")])
    except ClientError:
        results.append("refused")
    else:
        results.append("acknowledged")


@pytest.mark.slow
def test_a_replica_that_is_not_in_sync_does_not_take_over(tmp_path: Path) -> None:
    with elected(tmp_path, 2) as replicas:
        first = replicas.leader()
        (second,) = (each for each in replicas.replicas if each is not first)
        second.kill()
        replicas.await_in_sync(1)
        replicas.kill(first)
        second.start()
        second.await_state(
            lambda now: "is not in sync" in str(now.election and now.election.reason)
        )
        first.start()
        replicas.await_in_sync(2)
        assert replicas.leader() == first


@pytest.mark.parametrize("is_signal", [False, True], ids=["requested", "by a shutdown"])
def test_a_hand_over_loses_nothing_and_takes_less_than_a_lease(
    tmp_path: Path, *, is_signal: bool
) -> None:
    with elected(tmp_path, 3) as replicas:
        first = replicas.leader()
        create_topic(replicas)
        with Load(replicas, durability="sync").running() as load:
            load.await_more(20)
            if is_signal:
                os.kill(first.pid, signal.SIGTERM)
            else:
                with first.client() as client:
                    assert client.switch_over().successor.startswith("replica-")
            assert first.ended() == 0
            load.await_more(20)
        second = replicas.leader(first)
        assert set(load.acknowledged) <= set(bodies(second))


def test_a_hand_over_does_not_wait_for_a_third_replica_that_is_behind(tmp_path: Path) -> None:
    with elected(tmp_path, 3) as replicas:
        first = replicas.leader()
        second, third = (each for each in replicas.replicas if each is not first)
        create_topic(replicas)
        os.kill(third.pid, signal.SIGSTOP)
        with first.client() as client:
            client.produce(TOPIC, [NewMessage(body="last")], durability="sync")
            client.commit("billing", TOPIC, {0: 0})
            assert len(replicas.await_in_sync(3).in_sync) == 3
            assert client.switch_over(second.name).successor.startswith(second.name)
        assert first.ended() == 0
        assert replicas.leader(first, third) == second
        os.kill(third.pid, signal.SIGCONT)
        first.start()
        replicas.await_in_sync(3)
        assert {*map(tuple, map(bodies, replicas.replicas))} == {("last",)}
