"""Sessions of a leader and a follower with real stores, without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from mqstore.storage.errors import LeaderLogRefused
from mqstore.storage.message_store import MessageStore
from mqstore.storage.replication import (
    Connections,
    FollowerOptions,
    FollowerSession,
    InSyncLook,
    InSyncSet,
    LeaderOptions,
    LeaderSession,
    LogDiverged,
    Peer,
    ProofRefused,
    SlaveRefused,
)
from mqstore.storage.replication.ha_frames import encode_frame, encode_report
from tests.unit.storage.stores import bodies, open_store, put_some

LEADER: Final = "leader:10912"
SOME: Final = 40
SECRET: Final = (b"secret-of-the-replicas",)


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class _Admission:
    def may_connect(self, address: str) -> bool:
        return True

    def admits_slave(self, address: str) -> bool:
        return True

    def counts(self, address: str, name: str | None) -> bool:
        return True


class _Pair:
    """A leader and a follower; ``exchange`` carries what they send, in pieces of any size."""

    def __init__(
        self,
        leader: MessageStore,
        follower: MessageStore,
        *,
        secret: tuple[bytes, ...] | None = None,
        own_secret: tuple[bytes, ...] | None = None,
    ) -> None:
        self.clock = _Clock()
        self.leader_store, self.follower_store = leader, follower
        options = LeaderOptions(
            housekeeping_s=20,
            batch_size=700,
            from_last_segment=False,
            nonce=lambda: "1" * 64,
            keys=None if secret is None else lambda: secret,
        )
        self.connections = Connections(
            leader, "one", options, _Admission(), self.clock, lambda *_, **__: None
        )
        copies = InSyncSet("one", behind_max_s=15, now=self.clock.now)
        self.in_sync = InSyncLook(copies, leader, self.connections, self.clock)
        self.connections.listeners.append(self.in_sync.look)
        session = self.connections.connect(Peer("10.0.0.2:1", "10.0.0.2"))
        assert session is not None
        self.leader: LeaderSession = session
        self.follower = FollowerSession(
            follower,
            FollowerOptions(
                name="two",
                housekeeping_s=20,
                nonce=lambda: "2" * 64,
                keys=None if own_secret is None else lambda: own_secret,
            ),
            self.clock,
        )
        self.to_leader, self.to_follower = self.follower.begin(), b""

    def exchange(self, piece: int = 1 << 20) -> None:
        """Carry what both send until there is nothing more."""
        while self.to_leader or self.to_follower or self._has_frames():
            taken, self.to_leader = self.to_leader[:piece], self.to_leader[piece:]
            for step in self.leader.receive(taken) if taken else ():
                self.to_follower += step.reply(step.run())
            taken, self.to_follower = self.to_follower[:piece], self.to_follower[piece:]
            for step in self.follower.receive(taken) if taken else ():
                self.to_leader += step.reply(step.run())
            if self.follower.is_introduced and self.follower.has_news:
                self.follower_store.log.sync()
                self.to_leader += self.follower.report()

    def _has_frames(self) -> bool:
        if self.leader.requested is None:
            return False
        self.in_sync.look()
        found = self.leader.begin_turn()
        reading = self.leader.take() or self.leader.read()
        found += b"".join(data for data, _ in self.leader.frames(reading))
        self.to_follower += found
        return bool(found)


@contextmanager
def _pair(root: Path, **secrets: tuple[bytes, ...]) -> Iterator[_Pair]:
    with (
        open_store(root / "leader") as leader,
        open_store(root / "follower", leader=LEADER) as follower,
    ):
        put_some(leader, SOME)
        leader.log.sync()
        yield _Pair(leader, follower, **secrets)


@pytest.mark.parametrize("secrets", [{}, {"secret": SECRET, "own_secret": SECRET}])
@pytest.mark.parametrize("piece", [1, 13, 1 << 20])
def test_a_follower_gets_the_log_and_the_tables_in_pieces_of_any_size(
    root: Path, piece: int, secrets: dict[str, tuple[bytes, ...]]
) -> None:
    with _pair(root, **secrets) as pair:
        pair.leader_store.create_topic("U")
        pair.exchange(piece)
        leader, follower = pair.leader_store, pair.follower_store
        assert pair.leader.acknowledged == follower.log.max_offset == leader.log.max_offset
        assert bodies(follower) == bodies(leader)
        assert follower.topic("U").name == "U"
        assert pair.leader.tables == leader.table_feed.version
        assert pair.in_sync.copies.confirmed == leader.log.max_offset
        assert pair.in_sync.begin_change() == frozenset({"one", "two"})


def test_a_report_says_what_is_on_the_disk(root: Path) -> None:
    with _pair(root) as pair:
        pair.exchange()
        synced = pair.follower_store.log.flushed_offset
        put_some(pair.leader_store, 1, start=SOME)
        assert pair._has_frames()
        for step in pair.follower.receive(pair.to_follower):
            step.reply(step.run())
        assert pair.follower.has_news
        assert pair.follower.report() == encode_report(synced)


@pytest.mark.parametrize(
    ("secrets", "reason"),
    [
        ({"secret": SECRET}, "set replicaSecretFile here"),
        ({"secret": SECRET, "own_secret": (b"another",)}, "its proof is not made"),
    ],
)
def test_a_follower_without_the_secret_gets_nothing(
    root: Path, secrets: dict[str, tuple[bytes, ...]], reason: str
) -> None:
    with _pair(root, **secrets) as pair:
        with pytest.raises(ProofRefused, match=reason):
            pair.exchange()
        assert not pair.leader.is_admitted
        if "own_secret" in secrets:
            with pytest.raises(ProofRefused, match="the same secret"):
                pair.follower.end()


def test_a_leader_that_does_not_introduce_itself_is_a_master_of_rocketmq(root: Path) -> None:
    with _pair(root) as pair:
        follower, leader = pair.follower, pair.leader_store
        assert follower.deadline == pair.clock.now + 1
        follower.expire()
        assert follower.begin_as_slave() == encode_report(0)
        assert follower.is_slave
        data = leader.log_stream.read(0, 1 << 20)
        for step in follower.receive(encode_frame(0, data, has_checksum=False)):
            step.reply(step.run())
        pair.follower_store.log.sync()
        assert follower.report() == encode_report(leader.log.max_offset)
        assert bodies(pair.follower_store) == bodies(leader)


def test_a_store_with_epochs_follows_no_master_of_rocketmq(root: Path) -> None:
    with _pair(root) as pair:
        pair.exchange()
        again = FollowerSession(pair.follower_store, pair.follower._options, pair.clock)
        assert again.deadline == pair.clock.now + 5
        with pytest.raises(LeaderLogRefused, match="has not introduced itself"):
            again.expire()


def test_the_time_of_steps_is_not_that_of_a_silent_leader(root: Path) -> None:
    with _pair(root) as pair:
        pair.exchange()
        put_some(pair.leader_store, 1, start=SOME)
        assert pair._has_frames()
        for step in pair.follower.receive(pair.to_follower):
            step.reply(step.run())
            pair.clock.now += 60
        assert pair.follower.deadline == pair.clock.now + 20
        with pytest.raises(TimeoutError):
            pair.follower.expire()


def test_a_log_with_a_tail_of_its_own_is_diverged(root: Path) -> None:
    with _pair(root) as pair:
        pair.exchange()
        end = pair.follower_store.log.max_offset
    with open_store(root / "follower") as former:
        put_some(former, 3)
    with (
        open_store(root / "leader", epoch=9) as leader,
        open_store(root / "follower", leader=LEADER) as follower,
    ):
        pair = _Pair(leader, follower)
        with pytest.raises(LogDiverged) as found:
            pair.exchange()
        assert (found.value.offset, found.value.epoch) == (end, 9)
        assert not pair.leader.is_admitted


def test_a_copy_cannot_acknowledge_what_it_was_not_sent(root: Path) -> None:
    with _pair(root) as pair:
        list(pair.leader.receive(encode_report(0)))
        with pytest.raises(SlaveRefused, match="was sent the log up to 0"):
            list(pair.leader.receive(encode_report(pair.leader_store.log.max_offset)))


def test_a_deletion_comes_before_the_log_also_while_other_tables_wait(root: Path) -> None:
    with _pair(root) as pair:
        pair.exchange()
        leader, session = pair.leader_store, pair.leader
        put_some(leader, 1, start=SOME)
        leader.create_topic("U")
        list(session.frames(session.read()))
        assert session.awaits_confirmed == leader.log.max_offset
        put_some(leader, 1, start=SOME + 1)
        assert session.take() is not None
        leader.delete_topic("T")
        put_some(leader, 1, start=SOME + 2)
        assert session.take() is None
        reading = session.read()
        assert reading.tables is not None and b"deletedTopics" in reading.tables
        first, *_ = [data for data, _ in session.frames(reading)]
        assert b"deletedTopics" in first
