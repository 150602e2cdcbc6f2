"""Serves the slaves that copy the log: sockets, tasks and timers of ``Connections``."""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import socket
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from mqstore.service import logs
from mqstore.service.sockets import format_address
from mqstore.storage import MessageStore
from mqstore.storage.errors import RepairRefused
from mqstore.storage.replication import (
    FETCH_SIZE_MAX,
    NONCE_SIZE,
    Connections,
    LeaderOptions,
    LeaderSession,
    Peer,
)
from mqstore.writer.replication.admission import Admission
from mqstore.writer.replication.slave import HaOptions, Slave

log = logs.get(__name__)

ACCEPT_PAUSE_S: Final = 0.1
"""Pause after the system rejected an accept, for lack of file descriptors for instance."""
LOOK_INTERVAL_S: Final = 0.02
"""Seconds between two looks at the log's end, while slaves are connected; RocketMQ takes 0.1."""
TABLES_INTERVAL_S: Final = 1.0
"""Seconds between two looks whether offsets have grown: a new leader may have those of the time
before. Other changes of tables are sent at once."""


class HaServer:
    """The sockets of all slaves, and their ``SlaveObserver``. Used on one event loop."""

    def __init__(
        self, store: MessageStore, name: str, options: HaOptions, admission: Admission
    ) -> None:
        """``name`` is the leader's ``replicaName``."""
        self._feed = store.table_feed
        self._feed_seen_at = -math.inf
        self._options = options
        self._loop = asyncio.get_running_loop()
        self.fetched_bytes = 0
        """Bytes of damaged records that were fetched from followers."""
        self.sent_bytes = 0
        """Bytes of the log that were sent to slaves."""
        secret = admission.secret
        self.connections = Connections(
            store,
            name,
            LeaderOptions(
                housekeeping_s=options.housekeeping_s,
                batch_size=options.batch_size,
                from_last_segment=options.from_last_segment,
                nonce=partial(secrets.token_hex, NONCE_SIZE),
                keys=None if secret is None else secret.keys,
            ),
            admission,
            self._loop.time,
            logs.LimitedWarnings(log).log,
        )
        self.note_refusal = self.connections.note_refusal
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._slaves: dict[LeaderSession, Slave] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._look: asyncio.TimerHandle | None = None

    def note_sent(self, size: int) -> None:
        """See ``SlaveObserver``."""
        self.sent_bytes += size

    async def start(self, listener: socket.socket) -> None:
        """Serve the connections of a listening socket, which ``close`` closes."""
        listener.setblocking(False)
        self._listener = listener
        self._accepting = self._loop.create_task(self._accept(listener))
        self._feed.on_change = self._note_tables

    async def close(self) -> None:
        """Close the socket and all connections."""
        self._feed.on_change = lambda: None
        if self._accepting is not None and self._listener is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._listener.close()
        if self._look is not None:
            self._look.cancel()
        self.connections.end_all()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # then the connections are closed

    async def _accept(self, listener: socket.socket) -> None:
        """Accept sockets: asyncio's servers read of a connection before TLS can begin on it."""
        while True:
            try:
                connection, address = await self._loop.sock_accept(listener)
            except OSError as error:
                log.warning("a slave's connection cannot be accepted", error=str(error))
                await asyncio.sleep(ACCEPT_PAUSE_S)
            else:
                self._begin(connection, address[:2])
                await asyncio.sleep(0)  # a successful accept did not yield to the loop

    def _begin(self, connection: socket.socket, address: tuple[str, int]) -> None:
        def certified() -> frozenset[str]:
            return slave.certified_names()

        slave: Slave
        session = self.connections.connect(Peer(format_address(address), address[0], certified))
        if session is None:
            connection.close()
            return
        slave = Slave(session, self._options, connection, self)
        task = self._loop.create_task(slave.serve())
        self._slaves[session] = slave
        self._tasks.add(task)
        session.disconnect = partial(self._disconnect, slave, task)
        task.add_done_callback(partial(self._forget, session))
        if self._look is None:
            self._look_at_end()

    @staticmethod
    def _disconnect(slave: Slave, task: asyncio.Task[None]) -> None:
        task.cancel()
        slave.disconnect()

    def _forget(self, session: LeaderSession, task: asyncio.Task[None]) -> None:
        self.connections.note_end(session)
        del self._slaves[session]
        self._tasks.discard(task)

    async def fetch(
        self, names: Collection[str], offset: int, size: int, is_right: Callable[[bytes], bool]
    ) -> tuple[str, bytes] | None:
        """Return a range of the log of the first of these followers whose bytes are right, with its
        name; None where no follower has them.

        Raises RepairRefused where one of them did not reply.
        """
        missing = set(names)
        for session in self.connections.slaves:
            if session.name not in names or size > FETCH_SIZE_MAX:
                continue
            try:
                data = await self._slaves[session].fetch(offset, size)
            except (TimeoutError, OSError) as error:
                log.warning("a follower sends no range of its log", slave=session.name, error=error)
                continue
            missing.discard(session.name)
            if is_right(data):
                self.fetched_bytes += size
                return session.name, data
        if missing and size <= FETCH_SIZE_MAX:
            raise RepairRefused(
                f"replicas in sync may have the bytes, and did not reply: {', '.join(missing)}; "
                "repair again"
            )
        return None

    def _note_tables(self) -> None:
        """Send a change of tables. Called from the thread that made it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.connections.wake_all)

    def _look_at_end(self) -> None:
        """Send what the log has now; again later, while there are slaves."""
        if not self.connections.has_any:
            self._look = None
            return
        self.connections.send_now()
        if (now := self._loop.time()) - self._feed_seen_at >= TABLES_INTERVAL_S:
            self._feed_seen_at = now
            self._feed.refresh()
        self._look = self._loop.call_later(LOOK_INTERVAL_S, self._look_at_end)
