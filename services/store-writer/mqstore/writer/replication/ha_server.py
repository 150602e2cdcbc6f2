"""Serves the slaves that copy the log."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Collection
from typing import Final

from mqstore.service import logs
from mqstore.service.ha_frames import FETCH_SIZE_MAX, Confirmation
from mqstore.service.ha_handover import LeaderIntroduction, fields_of
from mqstore.storage import MessageStore
from mqstore.storage.errors import LeaderLogRefused, RepairRefused
from mqstore.storage.status import LogHistory, common_end
from mqstore.writer.replication.slave import HaOptions, Slave, SlaveRefused

log = logs.get(__name__)

SLAVES_MAX: Final = 16
"""Maximum number of connected slaves; a further one replaces one that has reported nothing, or is
disconnected."""
LOOK_INTERVAL_S: Final = 0.02
"""Seconds between two looks at the log's end, while slaves are connected; RocketMQ takes 0.1."""
TABLES_INTERVAL_S: Final = 1.0
"""Seconds between two looks whether offsets have grown: a new leader may have those of the time
before. Other changes of tables are sent at once."""


class HaServer:
    """The connections of all slaves, and their ``SlaveObserver``. Used on one event loop."""

    def __init__(
        self, store: MessageStore, name: str, options: HaOptions, allows: Callable[[str], bool]
    ) -> None:
        """``name`` is the leader's ``replicaName``; ``allows`` decides by a slave's IP address
        whether it may copy the log."""
        self._store = store
        self._name = name
        self._stream = store.log_stream
        self._feed = store.table_feed
        self._feed_seen_at = -math.inf
        self._options = options
        self._allows = allows
        self._loop = asyncio.get_running_loop()
        self.fetched_bytes = 0
        """Bytes of damaged records that were fetched from followers."""
        self.sent_bytes = 0
        """Bytes of the log that were sent to slaves."""
        self.listeners: list[Callable[[], object]] = []
        """Called after each report of a slave, in their order."""
        self.confirmation: Confirmation | None = None
        """See ``SlaveObserver``."""
        self.has_had_followers = False
        """Whether a follower of mqstore was connected, or is."""
        self.refused = 0
        """Connections whose slave could not copy this log from the end of its own."""
        self._server: asyncio.Server | None = None
        self._slaves: dict[asyncio.Task[None], Slave] = {}
        self._end = -1
        self._look: asyncio.TimerHandle | None = None

    @property
    def end(self) -> int:
        """The end of the log that slaves copy."""
        return self._stream.end

    @property
    def slaves(self) -> list[Slave]:
        """The slaves that are connected and have reported where their logs end."""
        return [each for each in list(self._slaves.values()) if each.requested is not None]

    def acknowledged_by(self, count: int) -> int | None:
        """The offset up to which at least ``count`` connected slaves have acknowledged the log;
        None with fewer slaves."""
        found = sorted((each.acknowledged for each in self.slaves), reverse=True)
        return found[count - 1] if len(found) >= count else None

    @property
    def tables(self) -> int:
        """The version of the tables."""
        return self._feed.version

    def confirm(self, confirmation: Confirmation) -> None:
        """Have the followers know what is confirmed."""
        self.confirmation = confirmation
        self._wake_all()

    def notify(self) -> None:
        """Call the listeners."""
        for each in self.listeners:
            each()

    def introduce(self) -> LeaderIntroduction:
        """See ``SlaveObserver``."""
        store = self._store
        return LeaderIntroduction(**fields_of(store.store_id, store.epochs.history))

    def admit(self, replica: Slave) -> None:
        """See ``SlaveObserver``. Its earlier connection, which may be lost, ends."""
        assert replica.follower is not None
        _require_prefix(self._store.epochs.history, replica.follower.history)
        if replica.name == self._name:
            log.warning(
                "a follower has the leader's replicaName and is never in sync: give it another one",
                replica=replica.name,
                address=replica.address,
            )
        for other in list(self._slaves.values()):
            if other is replica or not other.is_replica or other.name != replica.name:
                continue
            assert other.follower is not None
            if other.follower.store_id != replica.follower.store_id:
                raise SlaveRefused(
                    f"its replicaName {replica.name} is that of the follower at {other.address}: "
                    "give each follower a name of its own"
                )
            other.disconnect()
        self.has_had_followers = True

    def note_sent(self, size: int) -> None:
        """See ``SlaveObserver``."""
        self.sent_bytes += size

    def note_report(self) -> None:
        """See ``SlaveObserver``."""
        self.notify()

    def note_refusal(self) -> None:
        """See ``SlaveObserver``."""
        self.refused += 1

    async def start(self, listener: socket.socket) -> None:
        """Serve the connections of a listening socket, which ``close`` closes."""
        self._server = await asyncio.start_server(self._accept, sock=listener)
        self._feed.on_change = self._note_tables

    async def close(self) -> None:
        """Close the socket and all connections."""
        self._feed.on_change = lambda: None
        if self._server is not None:
            self._server.close()
        if self._look is not None:
            self._look.cancel()
        tasks = list(self._slaves)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        slave = Slave(self._stream, self._feed, self._options, reader, writer, self)
        host = str((writer.get_extra_info("peername") or ("",))[0])
        if not self._allows(host):
            log.warning("a slave is not in haAllowedSlaves", slave=slave.address)
            writer.close()
        elif len(self._slaves) >= SLAVES_MAX and not self._drop_silent():
            log.warning("too many slaves", slave=slave.address, max=SLAVES_MAX)
            writer.close()
        else:
            task = self._loop.create_task(slave.serve())
            self._slaves[task] = slave
            task.add_done_callback(lambda task: self._slaves.pop(task, None))
            if self._look is None:
                self._look_at_end()

    async def fetch(
        self, names: Collection[str], offset: int, size: int, is_right: Callable[[bytes], bool]
    ) -> tuple[str, bytes] | None:
        """Return a range of the log of the first of these followers whose bytes are right, with its
        name; None where no follower has them.

        Raises RepairRefused where one of them did not reply.
        """
        missing = set(names)
        for slave in self.slaves:
            if slave.name not in names or size > FETCH_SIZE_MAX:
                continue
            try:
                data = await slave.fetch(offset, size)
            except (TimeoutError, OSError) as error:
                log.warning("a follower sends no range of its log", slave=slave.name, error=error)
                continue
            missing.discard(slave.name)
            if is_right(data):
                self.fetched_bytes += size
                return slave.name, data
        if missing and size <= FETCH_SIZE_MAX:
            raise RepairRefused(
                f"replicas in sync may have the bytes, and did not reply: {', '.join(missing)}; "
                "repair again"
            )
        return None

    def _drop_silent(self) -> bool:
        """Disconnect the oldest slave that has reported nothing, for one that may; return whether
        there was one."""
        for task, slave in self._slaves.items():
            if slave.requested is None:
                log.warning("a slave that says nothing is disconnected", slave=slave.address)
                del self._slaves[task]
                task.cancel()
                slave.disconnect()
                return True
        return False

    def send_now(self) -> None:
        """Wake the slaves if the log has grown."""
        if (end := self._stream.end) != self._end:
            self._end = end
            self._wake_all()

    def _wake_all(self) -> None:
        for slave in self._slaves.values():
            slave.wake()

    def _note_tables(self) -> None:
        """Send a change of tables. Called from the thread that made it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake_all)

    def _look_at_end(self) -> None:
        """Send what the log has now; again later, while there are slaves."""
        if not self._slaves:
            self._look = None
            return
        self.send_now()
        if (now := self._loop.time()) - self._feed_seen_at >= TABLES_INTERVAL_S:
            self._feed_seen_at = now
            self._feed.refresh()
        self._look = self._loop.call_later(LOOK_INTERVAL_S, self._look_at_end)


def _require_prefix(own: LogHistory, follower: LogHistory) -> None:
    """Raise SlaveRefused unless this log has all that a follower's has."""
    try:
        end = common_end(own, follower)
    except LeaderLogRefused as error:
        raise SlaveRefused(f"it cannot follow: {error}") from None
    if end != follower.end:
        raise SlaveRefused(
            f"its log has bytes from {end} to {follower.end} that this one lacks, and it has not "
            "cut them"
        )
