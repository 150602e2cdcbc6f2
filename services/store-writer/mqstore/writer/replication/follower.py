"""Copies a leader's log to the open store: the slave's side of RocketMQ's HA protocol.

Source: HAService.HAClient of 4.9.7. In other ways than that one, this follower reports where its
log ends once it has connected, reports only what is on its disk (unless haFlushDiskType is
ASYNC_FLUSH), and names the reason why it refuses a leader. A leader of mqstore introduces itself
first (``ha_handover``).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Final

from mqstore.service import ha_handover, ha_proof, ha_tables, logs
from mqstore.service.events import Events
from mqstore.service.ha_frames import (
    Fetch,
    Frame,
    FrameCorrupt,
    FrameInvalid,
    FrameReader,
    Tables,
    encode_fetched,
    encode_report,
    encode_tables_report,
)
from mqstore.service.ha_handover import FollowerIntroduction, LeaderIntroduction
from mqstore.service.ha_proof import Challenge, ProofRefused, Proven, ReplicaSecret
from mqstore.service.ha_tls import HaTls
from mqstore.service.metrics import Traffic
from mqstore.service.sockets import format_address
from mqstore.storage import MessageStore
from mqstore.storage.errors import (
    FlushTimeout,
    LeaderLogRefused,
    QueuesIncomplete,
    RecordExpired,
    StorageError,
    StoreFailed,
)
from mqstore.storage.status import common_end
from mqstore.writer.durability import DurabilityWaiter

log = logs.get(__name__)

READ_SIZE: Final = 1 << 20
"""Bytes that one read takes from the connection; they are appended together."""
INLINE_MAX: Final = 64 << 10
"""Bytes that are appended on the event loop: it takes less time than the way to a thread."""
UNSYNCED_MAX: Final = 64 << 20
"""Bytes that may be received and not on disk: beyond them the leader waits."""
CONNECT_TIMEOUT_S: Final = 5.0
INTRODUCTION_TIMEOUT_S: Final = 1.0
"""Seconds without an introduction after which a leader is taken for a master of RocketMQ."""
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


class LogDiverged(Exception):
    """The log has bytes from ``offset`` on that the leader's lacks."""

    def __init__(self, offset: int, epoch: int) -> None:
        """``epoch``: that of the leader."""
        super().__init__(f"this log has bytes from {offset} on that the leader's lacks")
        self.offset = offset
        self.epoch = epoch


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
        *,
        heartbeat_s: float,
        housekeeping_s: float,
        name: str,
        syncs: bool = True,
        tls: HaTls | None = None,
        secret: ReplicaSecret | None = None,
        is_proof_needed: bool = True,
        traffic: Traffic,
        on_diverged: Callable[[Divergence], None],
    ) -> None:
        """``on_diverged`` is called once, when following has ended: the store must be opened again.
        ``heartbeat_s``: longest time between two reports; ``housekeeping_s``: longest time
        without bytes of the leader; ``name``: its ``replicaName``; ``syncs``: whether bytes are
        on the disk before they are acknowledged, or in the page cache; ``tls``: None for a leader
        that is reached without; ``secret``: of the shard's replicas, or None; with one
        ``is_proof_needed``, unless the leader is of a release that proves nothing; ``traffic``
        counts the messages that are received."""
        assert store.receiver is not None
        assert store.table_copies is not None
        self._receiver = store.receiver
        self._table_copies = store.table_copies
        self._store = store
        self._durability = durability
        self._events = events
        self._address = address
        self._heartbeat_s = heartbeat_s
        self._housekeeping_s = housekeeping_s
        self._name = name
        self._syncs = syncs
        self._tls = tls
        self._secret = secret
        self._traffic = traffic
        self._is_proof_needed = secret is not None and is_proof_needed
        self._on_diverged = on_diverged
        self._pause_s = PAUSE_FIRST_S
        self._has_grown = asyncio.Event()
        self._reported = 0
        """The end of the log in the last report."""
        self.check_slave: Callable[[], Awaitable[None]] = self._check_nothing
        """Called before the log of a master of RocketMQ is received; raises LeaderLogRefused."""
        self.is_slave = asyncio.Event()
        """Set while the leader is a master of RocketMQ, which sends no tables on this connection,
        and does not say what is confirmed."""
        self._tables_version = 0
        """Version of the leader's tables that are here, in this connection."""
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
        try:
            leader = await self._await_introduction(reader, writer)
            await asyncio.to_thread(self._compare, leader)
            if leader is None:
                await self.check_slave()
            else:
                writer.write(ha_handover.encode(self._introduce()))
            writer.write(encode_report(end))
            self._reported = end
            async with asyncio.TaskGroup() as tasks:
                self.is_slave.clear() if leader is not None else self.is_slave.set()
                self._tables_version = 0
                frames = FrameReader(has_checksum=leader is not None)
                tasks.create_task(self._receive(reader, frames, writer))
                tasks.create_task(self._report(writer))
        except ExceptionGroup as group:
            raise _first_of(group) from None
        finally:
            writer.transport.abort()

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

    async def _await_introduction(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> LeaderIntroduction | None:
        """Request an introduction, after a mutual proof; None of a master of RocketMQ.

        Raises OSError, EOFError, FrameInvalid, ProofRefused."""
        writer.write(ha_handover.REQUEST)
        has_epochs = self._store.epochs.is_compared
        first: Challenge | LeaderIntroduction | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_TIMEOUT_S if has_epochs else INTRODUCTION_TIMEOUT_S):
                first = await ha_proof.read_first(reader)
        if isinstance(first, Challenge):
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await self._prove(first, reader, writer)
        if self._is_proof_needed:
            raise ProofRefused(
                "the leader does not prove that it has the secret of this shard's replicas: set "
                "replicaSecretFile there too, or here not where it is a broker"
            )
        return first

    async def _prove(
        self, challenge: Challenge, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> LeaderIntroduction:
        if self._secret is None:
            raise ProofRefused(
                "the leader admits only followers that prove themselves: set replicaSecretFile here"
            )
        own = Proven(self._name, self._store.store_id)
        await self._secret.prove(challenge, reader, writer, own)
        leader = await ha_handover.read(reader, LeaderIntroduction)
        if leader.store_id != challenge.store_id:
            raise ProofRefused("the leader introduces itself as another store than it has proved")
        return leader

    def _introduce(self) -> FollowerIntroduction:
        store = self._store
        fields = ha_handover.fields_of(store.store_id, store.epochs.history)
        return FollowerIntroduction(**fields, name=self._name)

    def _compare(self, leader: LeaderIntroduction | None) -> None:
        """Find out whether the leader has all bytes that this log has, and take over its epochs.

        Raises LeaderLogRefused, LogDiverged, OSError.
        """
        epochs = self._store.epochs
        if leader is None:
            if epochs.is_compared:
                raise LeaderLogRefused(
                    "no-epochs",
                    "the leader has not introduced itself as a store of mqstore does: a store that "
                    "has led, or followed one of mqstore, cannot be compared with its log. Name "
                    "the leader of this store's shard, or follow into an empty directory",
                )
            return
        end = common_end(leader.history, epochs.history)
        if end < self._receiver.end:
            raise LogDiverged(end, leader.history.newest)
        epochs.adopt(leader.history)

    async def _receive(
        self, reader: asyncio.StreamReader, frames: FrameReader, writer: asyncio.StreamWriter
    ) -> None:
        """Append what the leader sends, and send it what it requests. Raises OSError, FrameInvalid,
        StorageError."""
        while True:
            async with asyncio.timeout(self._housekeeping_s):
                data = await reader.read(READ_SIZE)
            if not data:
                raise ConnectionResetError("the leader closed the connection")
            received = list(frames.feed(data))
            if frames.confirmation is not None:
                self._store.confirm(*frames.confirmation)
            for is_log, items in groupby(received, lambda item: isinstance(item, Frame)):
                if is_log:
                    log_frames = [item for item in items if isinstance(item, Frame)]
                    await self._take_log(log_frames, writer)
                    continue
                for item in items:
                    if isinstance(item, Tables):
                        await self._take_tables(item)
                    elif isinstance(item, Fetch):
                        data = await asyncio.to_thread(self._read_range, item)
                        writer.write(encode_fetched(item.offset, data))

    async def _take_log(self, frames: Sequence[Frame], writer: asyncio.StreamWriter) -> None:
        if self._is_quick(frames):
            end = self._append_all(frames)
        else:
            end = await asyncio.to_thread(self._append_all, frames)
        self._note_received(frames)
        if self._syncs and end > self._reported:
            self._has_grown.set()
        elif end > self._reported:
            self._report_end(writer)
        if end - self._store.log.flushed_offset > UNSYNCED_MAX:
            await self._durability.wait(end)

    def _read_range(self, wanted: Fetch) -> bytes:
        """Read a range of the log on disk; nothing where a part is missing. Raises OSError."""
        if wanted.offset + wanted.size > self._store.log.flushed_offset:
            return b""
        try:
            return self._store.log_stream.read(*wanted)  # within a segment
        except RecordExpired:
            return b""

    async def _take_tables(self, tables: Tables) -> None:
        """Take changes of the leader's tables. A failure ends the connection: the next one begins
        with all tables."""
        try:
            batch = await asyncio.to_thread(ha_tables.decode, tables.text)
            await asyncio.to_thread(self._table_copies.take, batch)
        except (FrameInvalid, StorageError, OSError) as error:
            self.tables.note(str(error))
            raise
        if batch.version:
            self.tables.note(None)
            self._tables_version = batch.version
            self._has_grown.set()

    def _is_quick(self, frames: Sequence[Frame]) -> bool:
        """Whether frames are few bytes, and need no other segment."""
        size = sum(len(frame.body) for frame in frames)
        return size <= INLINE_MAX and self._receiver.has_room(size)

    def _append_all(self, frames: Sequence[Frame]) -> int:
        end = self._receiver.end
        for frame in frames:
            end = self._receiver.append(frame.offset, frame.body)
        return end

    def _note_received(self, frames: Sequence[Frame]) -> None:
        for topic, (count, size) in self._receiver.take_counts().items():
            self._traffic.count(topic.decode("utf-8", "replace"), "", count, size)
        last = frames[-1]
        self.note_leader_end(last.offset + len(last.body))
        self._note(LinkState.FOLLOWING, None)
        if any(frame.body for frame in frames):
            self._pause_s = PAUSE_FIRST_S

    async def _report(self, writer: asyncio.StreamWriter) -> None:
        """Report what is on disk after each sync, either end as a heartbeat, and which tables are
        here."""
        tables = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_s):
                    await self._has_grown.wait()
            self._has_grown.clear()
            if self._syncs:
                with contextlib.suppress(FlushTimeout):
                    await self._durability.wait(self._receiver.end)
            self._report_end(writer)
            if self._tables_version > tables:
                tables = self._tables_version
                writer.write(encode_tables_report(tables))
            await writer.drain()

    def _report_end(self, writer: asyncio.StreamWriter) -> None:
        """Report up to where the log is on disk, or in the page cache."""
        end = self._store.log.flushed_offset if self._syncs else self._receiver.end
        self._reported = end
        if self.is_slave.is_set():
            self._store.confirm(end, 0)
        writer.write(encode_report(end))

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


def _first_of(group: ExceptionGroup[Exception]) -> Exception:
    """The first error of a group that is no group itself."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
