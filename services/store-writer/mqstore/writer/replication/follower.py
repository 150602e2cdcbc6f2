"""Copies a leader's log to the open store: the socket, tasks and threads of a ``FollowerSession``.

It names the reason why a leader is refused, and connects again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from mqstore.service import logs
from mqstore.service.events import Events
from mqstore.service.ha_tls import HaTls
from mqstore.service.metrics import Traffic
from mqstore.service.sockets import format_address
from mqstore.storage import MessageStore
from mqstore.storage.errors import (
    FlushTimeout,
    LeaderLogRefused,
    QueuesIncomplete,
    StorageError,
    StoreFailed,
)
from mqstore.storage.replication import (
    FollowerOptions,
    FollowerSession,
    FrameCorrupt,
    FrameInvalid,
    LogDiverged,
    ProofRefused,
)
from mqstore.writer.durability import DurabilityWaiter

log = logs.get(__name__)

READ_SIZE: Final = 1 << 20
"""Bytes that one read takes from the connection; they are appended together."""
UNSYNCED_MAX: Final = 64 << 20
"""Bytes that may be received and not on disk: beyond them the leader waits."""
CONNECT_TIMEOUT_S: Final = 5.0
PAUSE_FIRST_S: Final = 0.5
PAUSE_MAX_S: Final = 10.0
"""Pauses between two connections: doubled from the first one until bytes are received."""


class LinkState(StrEnum):
    """State of the connection to the leader."""

    CONNECTING = "connecting"
    FOLLOWING = "following"
    REFUSED = "refused"
    """The leader's log does not continue this one, or either has not proved itself: it is tried
    again, and needs an operator."""
    DIVERGED = "diverged"
    """This log has a tail that the leader's lacks, and it is being cut; or queues of a topic that
    was deleted here only are being made again."""
    STOPPED = "stopped"


Divergence = LogDiverged | QueuesIncomplete
"""A difference to the leader that the next opening of the store ends."""


@dataclass(slots=True)
class Link:
    """The connection to the leader as it was last seen."""

    leader: str
    """``host:port`` of its HA port."""
    state: LinkState = LinkState.CONNECTING
    reason: str | None = None
    """Why there is no connection, or why the leader is refused."""
    since_ms: int = field(default_factory=lambda: _now_ms())
    """Time of the last change of ``state``."""
    leader_end: int = 0
    """The greatest end of the leader's log that is known."""


@dataclass(slots=True)
class CopiedTables:
    """The last copy of a leader's tables."""

    at_ms: int | None = None
    """When there was one; None before the first one."""
    reason: str | None = None
    """Why the last attempt failed; None where it did not."""

    def note(self, reason: str | None) -> None:
        """Note the result of an attempt; a new reason is logged."""
        if reason is None:
            self.at_ms = _now_ms()
        elif reason != self.reason:
            log.warning("the leader's topics, groups and offsets are not copied", reason=reason)
        self.reason = reason


class Follower:
    """Keeps the store's log equal to a leader's. Used on one event loop."""

    def __init__(
        self,
        store: MessageStore,
        durability: DurabilityWaiter,
        events: Events,
        address: tuple[str, int],
        options: FollowerOptions,
        *,
        heartbeat_s: float,
        tls: HaTls | None = None,
        traffic: Traffic,
        on_diverged: Callable[[Divergence], None],
    ) -> None:
        """``on_diverged`` is called once, when following has ended: the store must be opened again.
        ``heartbeat_s``: longest time between two reports; ``tls``: None for a leader that is
        reached without; ``traffic`` counts the messages that are received."""
        assert store.receiver is not None
        self._receiver = store.receiver
        self._store = store
        self._durability = durability
        self._events = events
        self._address = address
        self._options = options
        self._heartbeat_s = heartbeat_s
        self._tls = tls
        self._traffic = traffic
        self._on_diverged = on_diverged
        self._pause_s = PAUSE_FIRST_S
        self._has_grown = asyncio.Event()
        self.check_slave: Callable[[], Awaitable[None]] = self._check_nothing
        """Called before the log of a master of RocketMQ is received; raises LeaderLogRefused."""
        self.is_slave = asyncio.Event()
        """Set while the leader is a master of RocketMQ, which sends no tables on this connection,
        and does not say what is confirmed."""
        self.tables = CopiedTables()
        self.corrupt_frames = 0
        """Frames whose bytes changed on the way; they were requested again."""
        self.link = Link(format_address(address))

    async def run(self) -> None:
        """Follow the leader until the task is cancelled, or the store fails."""
        while True:
            try:
                await self._follow()
            except StoreFailed:
                return  # the process ends
            except (LogDiverged, QueuesIncomplete) as diverged:
                self._note(LinkState.DIVERGED, str(diverged))
                self._on_diverged(diverged)
                return
            except (LeaderLogRefused, ProofRefused) as error:
                self._note(LinkState.REFUSED, str(error))
            except (OSError, EOFError, FrameInvalid, StorageError) as error:
                self.corrupt_frames += isinstance(error, FrameCorrupt)
                self._note(LinkState.CONNECTING, str(error) or type(error).__name__)
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    async def _follow(self) -> None:
        """Receive over one connection; raises the reason of its end."""
        end = await asyncio.to_thread(self._receiver.restart)
        await self._durability.wait(end)
        reader, writer = await self._connect()
        session = FollowerSession(self._store, self._options, asyncio.get_running_loop().time)
        try:
            writer.write(session.begin())
            await self._introduce(session, reader, writer)
            self.is_slave.set() if session.is_slave else self.is_slave.clear()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._receive(session, reader, writer))
                tasks.create_task(self._report(session, writer))
        except ExceptionGroup as group:
            raise _first_of(group) from None
        finally:
            writer.transport.abort()
            if session.tables_trouble is not None:
                self.tables.note(session.tables_trouble)

    async def _check_nothing(self) -> None:
        """Accept every master, and note that nothing was looked at."""
        self.tables.note(
            "masterAddress is not set: neither are the leader's topics, groups and settings looked"
            " at, so its log may have what mqstore cannot serve"
        )

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the leader. Raises OSError."""
        tls = None if self._tls is None else await asyncio.to_thread(self._tls.client)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await asyncio.open_connection(*self._address, limit=READ_SIZE, ssl=tls)
        except ssl.SSLError as error:
            raise ConnectionError(f"no TLS with the leader, see haTlsCert: {error}") from error

    async def _introduce(
        self, session: FollowerSession, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Exchange what comes before the log. Raises what the session does."""
        while not session.is_introduced:
            try:
                async with asyncio.timeout_at(session.deadline):
                    data = await reader.read(READ_SIZE)
            except TimeoutError:
                session.expire()
                await self.check_slave()
                writer.write(session.begin_as_slave())
                return
            if not data:
                session.end()
            await self._take(session, data, writer)

    async def _receive(
        self, session: FollowerSession, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Take what the leader sends, and reply. Raises what the session does."""
        while True:
            async with asyncio.timeout_at(session.deadline):
                data = await reader.read(READ_SIZE)
            if not data:
                session.end()
            await self._take(session, data, writer)

    async def _take(
        self, session: FollowerSession, data: bytes, writer: asyncio.StreamWriter
    ) -> None:
        tables = session.tables_version
        for step in session.receive(data):
            result = step.run() if step.is_quick else await run_to_end(step.run)
            if reply := step.reply(result):
                writer.write(reply)
            if session.has_news:
                self._has_grown.set()
        if session.is_following:
            self._note_received(session)
        if session.tables_version != tables:
            self.tables.note(None)
        if session.unsynced > UNSYNCED_MAX:
            await self._durability.wait(self._receiver.end)

    def _note_received(self, session: FollowerSession) -> None:
        for topic, (count, size) in self._receiver.take_counts().items():
            self._traffic.count(topic.decode("utf-8", "replace"), "", count, size)
        self.note_leader_end(session.leader_end)
        self._note(LinkState.FOLLOWING, None)
        if session.has_received:
            self._pause_s = PAUSE_FIRST_S

    async def _report(self, session: FollowerSession, writer: asyncio.StreamWriter) -> None:
        """Report what is on disk after each sync, either end as a heartbeat, and which tables are
        here."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_s):
                    await self._has_grown.wait()
            self._has_grown.clear()
            if self._options.syncs:
                with contextlib.suppress(FlushTimeout):
                    await self._durability.wait(self._receiver.end)
            writer.write(session.report())
            await writer.drain()

    def note_leader_end(self, end: int) -> None:
        """Note where the leader's log ends, at least."""
        self.link.leader_end = max(self.link.leader_end, end)
        self._store.state.note_leader_end(self.link.leader_end)

    @property
    def lag(self) -> int:
        """Bytes of the leader's log that are known of, and of which no whole record is here."""
        return max(0, self.link.leader_end - self._receiver.end)

    def _note(self, state: LinkState, reason: str | None) -> None:
        link = self.link
        if (link.state, link.reason) == (state, reason):
            return
        if link.state is not state:
            link.since_ms = _now_ms()
        link.state, link.reason = state, reason
        report = log.info if reason is None else log.warning
        figures = {"leader": link.leader, "offset": self._receiver.end}
        report("replication", state=state.value, reason=reason, **figures)
        self._events.publish("replication", state=state.value, reason=reason, **figures)


async def run_to_end(run: Callable[[], Any]) -> Any:
    """Run in a thread, and return at its end only, also where the task is cancelled: a step for an
    earlier leader must not end after one for a later leader."""
    running = asyncio.ensure_future(asyncio.to_thread(run))
    is_cancelled = False
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        running.exception()  # it is of no interest any more
        raise asyncio.CancelledError
    return running.result()


def _first_of(group: ExceptionGroup[Exception]) -> Exception:
    """The first error of a group that is no group itself."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
