"""One slave that copies the log: what it reports, and the frames that it is sent.

A follower of mqstore is a slave that introduces itself (``ha_handover``).

Source: HAConnection of 4.9.7. Here a slave that cannot go on from its offset is disconnected with a
reason, where RocketMQ sends it heartbeats for ever: its log ends beyond ours, or the segment at its
offset was deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from mqstore.service import ha_handover, logs
from mqstore.service.ha_frames import (
    REPORT,
    Confirmation,
    Frame,
    FrameInvalid,
    ReportReader,
    encode_confirmation,
    encode_fetch,
    encode_frame,
    encode_tables,
)
from mqstore.service.ha_handover import FollowerIntroduction, LeaderIntroduction
from mqstore.service.ha_proof import ProofRefused, Proven
from mqstore.service.ha_tls import HELLO, certified_names
from mqstore.service.rate import Rate
from mqstore.service.sockets import format_address
from mqstore.storage.errors import RecordExpired
from mqstore.storage.reads import LogStream
from mqstore.storage.status import NOTHING, TableFeed
from mqstore.writer.replication.admission import Admission
from mqstore.writer.replication.tables_sender import TablesSender

log = logs.get(__name__)

READ_SIZE: Final = 1 << 20
"""Bytes that one read in a thread takes from the disk: many frames."""
UNSENT_MAX: Final = 256 << 10
"""Bytes for a slave that wait in memory for its connection, beyond those of one read."""
REPORTS_SIZE: Final = 1 << 16
FETCH_TIMEOUT_S: Final = 5.0
"""Seconds in which a follower must send a requested range of its log."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Seconds in which a slave must complete its TLS handshake."""


class SlaveRefused(Exception):
    """The slave cannot copy this log from its offset."""


@dataclass(frozen=True, slots=True)
class HaOptions:
    """The settings of the connections to slaves."""

    heartbeat_s: float
    housekeeping_s: float
    batch_size: int
    from_last_segment: bool
    """Whether an empty slave gets the last segment only."""
    rate: Rate = field(default_factory=lambda: Rate(0))
    """The limit of all connections together."""
    tls: ssl.SSLContext | None = None
    """None: connections are not encrypted."""


class SlaveObserver(Protocol):
    """Notes what happens on the connections, and knows the store. Called on the event loop."""

    @property
    def confirmation(self) -> Confirmation | None:
        """The part of the log that all copies in sync have; None before it is known."""

    def introduce(self) -> LeaderIntroduction:
        """Return what the leader says of itself to a follower."""

    @property
    def admission(self) -> Admission:
        """The settings that admit copies of the log."""

    def admit(self, slave: Slave) -> None:
        """Accept a follower that has introduced itself, or a slave of RocketMQ that has reported an
        offset, before it is sent anything of the log. Raises SlaveRefused."""

    def note_sent(self, size: int) -> None:
        """Note that bytes of the log were sent."""

    def note_report(self) -> None:
        """Note that a slave has reported an offset."""

    def note_refusal(self, event: str, slave: Slave, *, reason: str | None = None) -> None:
        """Count a connection that is refused or does not follow the protocol, and log some."""


class Slave:
    """A connected slave. Used on one event loop."""

    def __init__(
        self,
        stream: LogStream,
        feed: TableFeed,
        options: HaOptions,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        observer: SlaveObserver,
    ) -> None:
        peer = (writer.get_extra_info("peername") or ("", 0))[:2]
        self.address = format_address(peer)
        self.host = str(peer[0])
        """Its IP address."""
        self.follower: FollowerIntroduction | None = None
        """None for a slave of RocketMQ, or before the introduction."""
        self.is_admitted = False
        """Whether it may copy the log."""
        self.counts = False
        """Whether replies may wait for it, and a follower be in sync: the settings name it."""
        self._proven: Proven | None = None
        self.requested: int | None = None
        """The end of its log when it connected; None before its first report."""
        self.acknowledged = 0
        """The end of its log as it last reported it: on the disk of a follower of mqstore, in the
        page cache of a slave of RocketMQ."""
        self.sent = 0
        """The end of what was sent."""
        self._stream = stream
        self._tables = TablesSender(feed, stream)
        self._acknowledged_tables = NOTHING
        self._options = options
        self._reader = reader
        self._writer = writer
        self._observer = observer
        self._confirmation: Confirmation | None = None
        """The last one that was sent."""
        self._loop = asyncio.get_running_loop()
        self._written_at = self._loop.time()
        self._has_requested = asyncio.Event()
        self._has_more = asyncio.Event()
        self._fetching = asyncio.Lock()
        self._fetched: asyncio.Future[Frame] | None = None
        """The range that the follower is to send."""
        if options.tls is not None:  # nothing is read before the handshake begins
            cast(asyncio.ReadTransport, writer.transport).pause_reading()

    @property
    def name(self) -> str:
        """The ``replicaName`` of a follower, the address of a slave of RocketMQ; both of a follower
        that does not count, whose name may be that of another one."""
        if self.follower is None:
            return self.address
        return self.follower.name if self.counts else f"{self.follower.name}@{self.address}"

    @property
    def proven_name(self) -> str | None:
        """The ``replicaName`` that the follower has proved, by the secret or by its certificate;
        without the store id that may follow a slash."""
        if self.follower is None:
            return None
        name = self.follower.name.partition("/")[0]
        return name if self._proven is not None or name in certified_names(self._writer) else None

    @property
    def is_replica(self) -> bool:
        """Whether it is a follower of mqstore."""
        return self.follower is not None

    @property
    def tables(self) -> int:
        """The version of the tables that a follower has; a slave of RocketMQ copies them by
        itself."""
        return self._acknowledged_tables if self.is_replica else sys.maxsize

    @property
    def awaits_confirmed(self) -> int:
        """The offset up to which the log is to be confirmed before more tables are sent; 0 where
        none wait for it."""
        return self._tables.awaited(self.sent)

    async def fetch(self, offset: int, size: int) -> bytes:
        """Return a range of the follower's log; nothing where it lacks a part of it. Raises
        TimeoutError, ConnectionError."""
        async with self._fetching:
            self._fetched = self._loop.create_future()
            self._write(encode_fetch(offset, size))
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                frame = await self._fetched
        return frame.body if frame.offset == offset else b""

    def disconnect(self) -> None:
        """End the connection."""
        self._writer.transport.abort()

    def wake(self) -> None:
        """Send what the log has now, if the slave waits for it."""
        self._has_more.set()

    async def serve(self) -> None:
        """Serve the slave until its connection ends. Raises nothing but cancellation."""
        if not await self._begin_tls():
            return
        self._writer.transport.set_write_buffer_limits(high=UNSENT_MAX)
        tasks = [self._loop.create_task(each) for each in (self._receive(), self._send())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._note_end([task.exception() for task in tasks if task.done()])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._writer.transport.abort()
            if self._fetched is not None and not self._fetched.done():
                self._fetched.set_exception(ConnectionResetError("the follower is gone"))

    async def _begin_tls(self) -> bool:
        """Encrypt the connection, if the settings say so; return whether it goes on."""
        if self._options.tls is None:
            return True
        try:
            timeout_s = HANDSHAKE_TIMEOUT_S
            await self._writer.start_tls(self._options.tls, ssl_handshake_timeout=timeout_s)
        except OSError as error:
            self._observer.note_refusal("a slave is refused: no TLS", self, reason=str(error))
            self._writer.transport.abort()
            return False
        return True

    def _note_end(self, errors: list[BaseException | None]) -> None:
        error = next((each for each in errors if each is not None), None)
        where = {"slave": self.name, "acknowledged": self.acknowledged}
        if isinstance(error, (SlaveRefused, FrameInvalid, ProofRefused)):
            self._observer.note_refusal("a slave is refused", self, reason=str(error))
        elif not self.is_admitted and isinstance(error, (OSError, EOFError, type(None))):
            self._observer.note_refusal("a slave has said nothing", self)
        elif isinstance(error, TimeoutError):
            log.warning("a slave is disconnected: it has sent no report in time", **where)
        elif error is None or isinstance(error, (OSError, asyncio.IncompleteReadError)):
            log.info("a slave is gone", **where)
        else:
            log.error("replication to a slave failed", exc_info=error, **where)

    async def _receive(self) -> None:
        """Take reports until the connection ends.

        Raises TimeoutError, OSError, IncompleteReadError, FrameInvalid, SlaveRefused,
        ProofRefused."""
        reports = ReportReader()
        async with asyncio.timeout(self._options.housekeeping_s):
            first = await self._reader.readexactly(REPORT.size)
            if first.startswith(HELLO):
                raise SlaveRefused("it connects by TLS, and haTlsCert is not set here")
            if first == ha_handover.REQUEST:
                await self._hand_over()
                reports = ReportReader(has_tables=True)
            elif (offset := reports.feed(first)) is not None:
                self._observer.admit(self)
                self._take_report(offset)
        while True:
            async with asyncio.timeout(self._options.housekeeping_s):
                data = await self._reader.read(REPORTS_SIZE)
            if not data:
                return
            offset = reports.feed(data)
            self._take_tables_report(reports.tables)
            while reports.fetched:
                self._take_fetched(reports.fetched.pop(0))
            if offset is not None:
                self._take_report(offset)

    async def _hand_over(self) -> None:
        leader, secret = self._observer.introduce(), self._observer.admission.secret
        if secret is not None:
            self._proven = await secret.require_proof(self._reader, self._writer, leader.store_id)
            leader = self._observer.introduce()
        self._write(ha_handover.encode(leader))
        follower = await ha_handover.read(self._reader, FollowerIntroduction)
        if self._proven not in (None, Proven(follower.name, follower.store_id)):
            raise SlaveRefused("it introduces itself by another name or store than it has proved")
        self.follower = follower
        self._observer.admit(self)

    def _take_report(self, offset: int) -> None:
        if offset > (end := self._stream.end):
            raise SlaveRefused(
                f"its log ends at {offset} and this one at {end}: it has bytes that this log "
                "lacks, of another or a later leader; save them if needed, then empty its store"
            )
        if self.requested is None:
            self.requested = self.sent = offset
            self._has_requested.set()
        elif offset > self.sent:
            raise SlaveRefused(
                f"it acknowledges up to {offset}, and was sent the log up to {self.sent}"
            )
        self.acknowledged = offset
        self._observer.note_report()

    def _take_tables_report(self, version: int) -> None:
        if version > self._tables.sent:
            raise SlaveRefused(
                f"it has tables of version {version}, and was sent those of {self._tables.sent}"
            )
        if version > self._acknowledged_tables:
            self._acknowledged_tables = version
            self._observer.note_report()

    def _take_fetched(self, frame: Frame) -> None:
        if self._fetched is None or self._fetched.done():
            raise FrameInvalid("it sends a range of its log that was not requested, or too late")
        self._fetched.set_result(frame)

    async def _send(self) -> None:
        """Send the log and the tables as they change, and heartbeats. Raises OSError,
        SlaveRefused, TablesTooLong."""
        await self._has_requested.wait()
        self.sent = self._first_offset()
        log.info("a slave copies the log", slave=self.name, at=self.requested, sent=self.sent)
        while True:
            self._has_more.clear()
            self._send_confirmation()
            if self.is_replica:
                await self._tables.take()
            try:
                data = await self._next_bytes()
            except RecordExpired as error:
                raise SlaveRefused(
                    f"it is at {self.sent}, and {error}: empty its store, then it gets the log anew"
                ) from None
            if self.is_replica:
                await self._send_tables(await self._tables.before_log())
            if data:
                await self._send_frames(data)
            tables = self._next_tables() if self.is_replica else None
            if tables is not None:
                await self._send_tables(tables)
            elif not data:
                await self._await_more()

    def _first_offset(self) -> int:
        assert self.requested is not None
        if self.requested:
            return self.requested
        stream = self._stream
        return stream.last_segment if self._options.from_last_segment else stream.start

    async def _next_bytes(self) -> bytes:
        found = self._stream.take(self.sent, self._options.batch_size)
        if found is None:
            found = await asyncio.to_thread(self._stream.read, self.sent, READ_SIZE)
        return found

    def _next_tables(self) -> bytes | None:
        found = self._observer.confirmation
        return None if found is None else self._tables.behind_log(self.sent, found.offset)

    async def _send_frames(self, data: bytes) -> None:
        """Send bytes of one segment, and let other tasks run."""
        size, rate = self._options.batch_size, self._options.rate
        for start in range(0, len(data), size):
            body = data[start : start + size]
            if rate.per_second:
                await rate.take(len(body))
            self._write_frame(body)
            self.sent += len(body)
        self._observer.note_sent(len(data))
        await self._writer.drain()
        await asyncio.sleep(0)

    async def _send_tables(self, text: bytes | None) -> None:
        for frame in encode_tables(text) if text is not None else ():
            self._write(frame)
            await self._writer.drain()

    async def _await_more(self) -> None:
        """Wait until the log may have grown. Send a heartbeat when one is due."""
        due = self._written_at + self._options.heartbeat_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._has_more.wait()
            return
        self._write_frame(b"")
        await self._writer.drain()

    def _send_confirmation(self) -> None:
        """Send a follower what is confirmed, where that has changed."""
        found = self._observer.confirmation
        if self.is_replica and found is not None and found != self._confirmation:
            self._confirmation = found
            self._write(encode_confirmation(found))

    def _write_frame(self, body: bytes) -> None:
        self._write(encode_frame(self.sent, body, has_checksum=self.is_replica))

    def _write(self, frame: bytes) -> None:
        self._writer.write(frame)
        self._written_at = self._loop.time()
