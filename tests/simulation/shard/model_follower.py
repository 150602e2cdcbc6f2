"""The follower's part of a model replica: copies a leader's log, and reports what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqstore.storage.errors import LeaderLogRefused
from mqstore.storage.metadata.log_history import LogHistory, common_end
from tests.simulation.shard.ledger import Broken
from tests.simulation.shard.messages import (
    Deletions,
    FollowerIntroduction,
    Frame,
    LeaderIntroduction,
    Report,
    Tables,
)
from tests.simulation.shard.model_leader import SILENCE_MAX_S
from tests.simulation.shard.network import End

if TYPE_CHECKING:
    from tests.simulation.shard.model_replica import ModelReplica

HEARTBEAT_S: Final = 0.5
RECONNECT_S: Final = 0.3
SLOW_CHANCE: Final = 0.02
SLOW_S: Final = 3.0
"""Time that tables sometimes take to be saved."""


class ModelFollower:
    """Does as ``Follower``, without sockets and tasks."""

    def __init__(self, replica: ModelReplica, leader: str) -> None:
        """``leader``: address of its log."""
        self._replica = replica
        self._process = replica.process
        self._log = replica.log
        host, _, port = leader.partition(":")
        self._address = host, int(port)
        self._end: End | None = None
        self._is_closed = False
        self._is_introduced = False
        self._tables_version = 0
        self._heard_at = 0.0
        self._connect()
        self._tick()

    def close(self) -> None:
        """Follow no more."""
        self._is_closed = True
        if self._end is not None:
            self._end.close()

    def _connect(self) -> None:
        if not self._is_closed:
            self._log.sync(self._log.end)  # as of an earlier connection
            network = self._replica.shard.network
            network.connect(self._process, self._address, self._open, self._retry)

    def _retry(self) -> None:
        self._process.after(RECONNECT_S, self._connect)

    def _open(self, end: End) -> None:
        if self._is_closed:
            end.close()
            return
        self._end, self._is_introduced, self._tables_version = end, False, 0
        self._heard_at = self._process.monotonic()
        end.on_receive = self._receive
        end.on_lost = lambda: self._lose(end)

    def _lose(self, end: End) -> None:
        if self._end is end:
            self._end = None
            self._retry()

    def _drop(self) -> None:
        end = self._end
        assert end is not None
        end.close()
        self._lose(end)

    def _receive(self, item: object) -> None:
        self._heard_at = self._process.monotonic()
        if isinstance(item, LeaderIntroduction):
            self._compare(item.history)
        elif isinstance(item, Frame):
            self._append(item)
        elif isinstance(item, Deletions):
            if self._log.adopt_deletions(item.content):
                self._drop()
        elif isinstance(item, Tables):
            end, slow = self._end, self._replica.shard.events.rng.random() < SLOW_CHANCE
            seconds = SLOW_S if slow else self._replica.sync_time()
            self._process.after(seconds, lambda: self._adopt(end, item))

    def _adopt(self, end: End | None, tables: Tables) -> None:
        is_open = not self._is_closed and end is not None and end is self._end
        if is_open and tables.version > self._tables_version:
            if tables.position > self._log.end:
                raise Broken(f"tables of offset {tables.position} come before that offset")
            self._log.sync(self._log.end)
            self._replica.volume.tables.adopt(tables.changes, tables.refers_to)
            self._tables_version = tables.version
            self._report()

    def _compare(self, leader: LogHistory) -> None:
        try:
            end = common_end(leader, self._log.history)
        except LeaderLogRefused:
            self._drop()
            return
        if end < self._log.end:
            self._replica.shard.ledger.check_cut(self._replica.id, self._log.records, end)
            self._log.cut(end, leader.newest)
            self._drop()
            return
        self._log.adopt(leader)
        assert self._end is not None
        self._end.send(FollowerIntroduction(self._replica.name, self._log.flushed))
        self._is_introduced = True

    def _append(self, frame: Frame) -> None:
        if frame.data:
            self._log.append(frame.offset, frame.data)
        confirmed = min(frame.confirmed, self._log.end)
        self._replica.confirmed = max(self._replica.confirmed, confirmed)
        end = self._log.end
        if not self._replica.shard.syncs:
            self._report()
        if end > self._log.flushed:
            self._process.after(self._replica.sync_time(), lambda: self._flush(end))

    def _flush(self, end: int) -> None:
        if not self._is_closed and end <= self._log.end:
            self._log.sync(end)
            self._report()

    def _report(self) -> None:
        if self._end is not None and self._is_introduced:
            end = self._log.flushed if self._replica.shard.syncs else self._log.end
            self._end.send(Report(end, self._tables_version))

    def _tick(self) -> None:
        if self._is_closed:
            return
        if self._end is not None and self._process.monotonic() - self._heard_at > SILENCE_MAX_S:
            self._drop()
        else:
            self._report()
        self._process.after(HEARTBEAT_S, self._tick)
