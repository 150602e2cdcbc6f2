"""The follower's part of a simulated replica: a ``FollowerSession``, with connections and threads
of simulated time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mqstore.storage.errors import LeaderLogRefused, QueuesIncomplete
from mqstore.storage.replication import (
    FollowerOptions,
    FollowerSession,
    LogDiverged,
    ProofRefused,
    Step,
)
from tests.simulation.shard.network import End

if TYPE_CHECKING:
    from tests.simulation.shard.replica import SimulatedReplica

HEARTBEAT_S: Final = 0.5
RECONNECT_S: Final = 0.3
SILENCE_MAX_S: Final = 2.0
"""haHousekeepingInterval."""
SLOW_CHANCE, SLOW_S = 0.01, 3.0
"""How often a step, as the saving of tables, takes long, and its time then."""
TIMEOUT_CHANCE: Final = 0.1
"""How often a report does not wait for the end of its sync."""
SYNC_CHANCE: Final = 0.5
"""How often a step takes the time of a sync, or longer."""
QUICK_S: Final = 0.004
"""Longest time of other steps."""

_REFUSALS: Final = (LeaderLogRefused, ProofRefused, LogDiverged, QueuesIncomplete)


class SimulatedFollower:
    """Does as ``Follower``: connects again and again, runs the steps, syncs and reports."""

    def __init__(self, replica: SimulatedReplica, leader: str) -> None:
        """``leader``: address of its log."""
        self._replica = replica
        self._process = replica.process
        self._log = replica.log
        host, _, port = leader.partition(":")
        self._address = host, int(port)
        self._options = FollowerOptions(
            name=replica.name,
            housekeeping_s=SILENCE_MAX_S,
            nonce=replica.shard.nonce,
            syncs=replica.shard.syncs,
            keys=replica.shard.keys,
            is_proof_needed=True,
        )
        self._end: End | None = None
        self._session: FollowerSession | None = None
        self._incoming: deque[bytes] = deque()
        self._steps: Iterator[Step] | None = None
        self._is_busy = False
        """Whether a step runs, in a thread that nothing interrupts."""
        self._is_reporting = False
        self._on_closed: Callable[[], object] | None = None
        """Called once nothing runs any more."""
        self._connect()
        self._tick()

    def close(self, closed: Callable[[], object]) -> None:
        """Follow no more, and call back once nothing runs any more."""
        self._on_closed = closed
        self._drop()

    # the connection

    def _connect(self) -> None:
        if self._on_closed is None:
            self._log.restart()
            self._log.sync()
            network = self._replica.shard.network
            network.connect(self._process, self._address, self._open, self._retry)

    def _retry(self) -> None:
        self._process.after(RECONNECT_S, self._connect)

    def _open(self, end: End) -> None:
        if self._on_closed is not None:
            end.close()
            return
        self._session = FollowerSession(self._log.store, self._options, self._process.monotonic)
        self._end = end
        end.on_receive = self._receive
        end.on_lost = lambda: self._lose(end)
        end.send(self._session.begin())

    def _drop(self) -> None:
        if self._end is not None:
            self._end.close()
        self._lose(self._end)

    def _lose(self, end: End | None) -> None:
        """Forget the connection; a step that runs ends before anything else."""
        if self._end is not end:
            return
        had, self._end, self._session, self._steps = self._end, None, None, None
        self._incoming.clear()
        if self._is_busy:
            return
        if self._on_closed is not None:
            self._on_closed()
        elif had is not None:
            self._retry()

    # what arrives

    def _receive(self, data: object) -> None:
        assert isinstance(data, bytes)
        self._incoming.append(data)
        self._go_on()

    def _go_on(self) -> None:
        """Take what arrived, one step after the other."""
        while not self._is_busy and (session := self._session) is not None:
            if self._steps is None:
                if not self._incoming:
                    return
                self._steps = session.receive(self._incoming.popleft())
            step = self._try(partial(next, self._steps, None))
            if self._session is not session:
                return
            if step is None:
                self._steps = None
            elif step.is_quick:
                self._end_step(session, step, self._try(step.run))
            else:
                self._is_busy = True
                self._process.after(self._step_time(), partial(self._run, session, step))

    def _step_time(self) -> float:
        rng = self._replica.shard.events.rng
        drawn = rng.random()
        if drawn < SLOW_CHANCE:
            return SLOW_S
        return self._replica.sync_time() if drawn < SYNC_CHANCE else QUICK_S * rng.random()

    def _run(self, session: FollowerSession, step: Step) -> None:
        if self._session is session:
            result = self._try(step.run)
        else:
            with suppress(*_REFUSALS):
                step.run()
        self._is_busy = False
        if self._session is not session:
            self._lose_at_last()
        else:
            self._end_step(session, step, result)
            self._go_on()

    def _lose_at_last(self) -> None:
        if self._on_closed is not None:
            self._on_closed()
        else:
            self._retry()

    def _end_step(self, session: FollowerSession, step: Step, result: Any) -> None:
        if self._session is not session:
            return
        if reply := step.reply(result):
            self._send(reply)
        if session.has_news or session.unsynced:
            self._report()

    def _try(self, call: Callable[[], Any]) -> Any:
        """Do something for the session; what it raises ends the connection."""
        try:
            return call()
        except (LeaderLogRefused, ProofRefused, TimeoutError):
            self._drop()
        except QueuesIncomplete:
            self._log.open(None, self._process.monotonic)
            self._drop()
        except LogDiverged as diverged:
            ledger = self._replica.shard.ledger
            ledger.check_cut(self._replica.id, self._log.records, diverged.offset)
            self._log.cut(diverged.offset, diverged.epoch)
            self._drop()
        return None

    # reports

    def _report(self) -> None:
        """Sync the log, and report it then."""
        if not self._is_reporting:
            self._is_reporting = True
            self._process.after(self._replica.sync_time(), self._end_sync)

    def _end_sync(self) -> None:
        self._is_reporting = False
        if self._replica.shard.events.rng.random() >= TIMEOUT_CHANCE:
            self._log.sync()
        session = self._session
        if session is not None and session.is_introduced:
            self._send(session.report())

    def _send(self, data: bytes) -> None:
        if self._end is not None:
            self._end.send(data)

    def _tick(self) -> None:
        session = self._session
        if self._on_closed is None:
            if session is not None and not self._is_busy:
                self._expire(session)
            if session is not None and session.is_introduced:
                self._report()
            self._process.after(HEARTBEAT_S, self._tick)

    def _expire(self, session: FollowerSession) -> None:
        if self._process.monotonic() > session.deadline:
            self._try(session.expire)
