"""One copy of the log that is connected: the socket, tasks and threads of a ``LeaderSession``."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from dataclasses import dataclass, field
from typing import Final, Protocol

from mqstore.service import logs
from mqstore.service.ha_tls import certified_names
from mqstore.service.rate import Rate
from mqstore.storage.replication import (
    Frame,
    FrameInvalid,
    LeaderSession,
    ProofRefused,
    Reading,
    SlaveRefused,
)

log = logs.get(__name__)

UNSENT_MAX: Final = 256 << 10
"""Bytes for a slave that wait in memory for its connection, beyond those of one read."""
REPORTS_SIZE: Final = 1 << 16
FETCH_TIMEOUT_S: Final = 5.0
"""Seconds in which a follower must send a requested range of its log."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Seconds in which a slave must complete its TLS handshake."""


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
    """Notes what happens on the connections. Called on the event loop."""

    def note_sent(self, size: int) -> None:
        """Note that bytes of the log were sent."""

    def note_refusal(
        self, event: str, session: LeaderSession, *, reason: str | None = None
    ) -> None:
        """Count a connection that is refused or does not follow the protocol, and log some."""


class Slave:
    """A connected slave. Used on one event loop."""

    def __init__(
        self,
        session: LeaderSession,
        options: HaOptions,
        connection: socket.socket,
        observer: SlaveObserver,
    ) -> None:
        """``connection`` was accepted, and nothing of it was read."""
        self._session = session
        self._options = options
        self._connection = connection
        self._reader = asyncio.StreamReader()
        self.writer: asyncio.StreamWriter
        """Set once the connection is open, with TLS where the settings say so."""
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._written_at = self._loop.time()
        self._has_more = asyncio.Event()
        session.wake = self._has_more.set
        self._fetching = asyncio.Lock()
        self._fetched: asyncio.Future[Frame] | None = None
        """The range that the follower is to send."""

    async def fetch(self, offset: int, size: int) -> bytes:
        """Return a range of the follower's log; nothing where it lacks a part of it. Raises
        TimeoutError, ConnectionError."""
        session = self._session
        async with self._fetching:
            self._fetched = found = self._loop.create_future()
            self._write(session.request_range(offset, size, found.set_result))
            try:
                async with asyncio.timeout(FETCH_TIMEOUT_S):
                    frame = await found
            finally:
                session.on_fetched = None
        return frame.body if frame.offset == offset else b""

    def disconnect(self) -> None:
        """End the connection."""
        if hasattr(self, "writer"):
            self.writer.transport.abort()
        else:
            self._close()

    async def serve(self) -> None:
        """Serve the slave until its connection ends. Raises nothing but cancellation."""
        if not await self._open():
            return
        self.writer.transport.set_write_buffer_limits(high=UNSENT_MAX)
        tasks = [self._loop.create_task(each) for each in (self._receive(), self._send())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._note_end([task.exception() for task in tasks if task.done()])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.writer.transport.abort()
            if self._fetched is not None and not self._fetched.done():
                self._fetched.set_exception(ConnectionResetError("the follower is gone"))

    async def _open(self) -> bool:
        """Open the connection, encrypted if the settings say so; return whether it goes on."""
        protocol = asyncio.StreamReaderProtocol(self._reader)
        tls = self._options.tls
        try:
            # uvloop does not cancel a handshake before its first bytes: the socket is shut down.
            late = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self._close)
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, self._connection, ssl=tls
            )
        except OSError as error:
            self._observer.note_refusal(
                "a slave is refused: no TLS", self._session, reason=str(error)
            )
            return False
        finally:
            late.cancel()
        self.writer = asyncio.StreamWriter(transport, protocol, self._reader, self._loop)
        if tls is not None:
            self._session.deadline = self._loop.time() + self._options.housekeeping_s
        return True

    def certified_names(self) -> frozenset[str]:
        """Return the names in the certificate of the slave; none without TLS."""
        return certified_names(self.writer)

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _note_end(self, errors: list[BaseException | None]) -> None:
        session = self._session
        error = next((each for each in errors if each is not None), None)
        where = {"slave": session.name, "acknowledged": session.acknowledged}
        if isinstance(error, (SlaveRefused, FrameInvalid, ProofRefused)):
            self._observer.note_refusal("a slave is refused", session, reason=str(error))
        elif not session.is_admitted and isinstance(error, (OSError, type(None))):
            self._observer.note_refusal("a slave has said nothing", session)
        elif isinstance(error, TimeoutError):
            log.warning("a slave is disconnected: it has sent no report in time", **where)
        elif error is None or isinstance(error, OSError):
            log.info("a slave is gone", **where)
        else:
            log.error("replication to a slave failed", exc_info=error, **where)

    async def _receive(self) -> None:
        """Take reports until the connection ends. Raises TimeoutError, OSError, and what the
        session does."""
        session = self._session
        while True:
            async with asyncio.timeout_at(session.deadline):
                data = await self._reader.read(REPORTS_SIZE)
            if not data:
                return
            for step in session.receive(data):
                result = step.run() if step.is_quick else await asyncio.to_thread(step.run)
                self._write(step.reply(result))

    async def _send(self) -> None:
        """Send the log and the tables as they change, and heartbeats. Raises OSError, and what the
        session does."""
        session = self._session
        while session.requested is None:
            await self._has_more.wait()
            self._has_more.clear()
        where = {"at": session.requested, "sent": session.sent}
        log.info("a slave copies the log", slave=session.name, **where)
        while True:
            self._has_more.clear()
            if confirmation := session.begin_turn():
                self._write(confirmation)
            reading = session.take()
            if reading is None:
                reading = await asyncio.to_thread(session.read)
            if not await self._send_frames(reading):
                await self._await_more()

    async def _send_frames(self, reading: Reading) -> bool:
        """Send what was read, and let other tasks run; return whether there was something."""
        rate, has_sent = self._options.rate, False
        for data, log_size in self._session.frames(reading):
            if log_size and rate.per_second:
                await rate.take(log_size)
            self._write(data)
            await self.writer.drain()
            has_sent = True
        if reading.log:
            self._observer.note_sent(len(reading.log))
            await asyncio.sleep(0)
        return has_sent

    async def _await_more(self) -> None:
        """Wait until the log may have grown. Send a heartbeat when one is due."""
        due = self._written_at + self._options.heartbeat_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._has_more.wait()
            return
        self._write(self._session.heartbeat())
        await self.writer.drain()

    def _write(self, data: bytes) -> None:
        self.writer.write(data)
        self._written_at = self._loop.time()
