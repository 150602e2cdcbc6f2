"""Serves the slaves that copy the log."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

from mqstore.service import logs
from mqstore.service.ha_frames import FETCH_SIZE_MAX, Confirmation
from mqstore.service.ha_handover import FollowerIntroduction, LeaderIntroduction, fields_of
from mqstore.storage import MessageStore
from mqstore.storage.errors import LeaderLogRefused, RepairRefused
from mqstore.storage.status import LogHistory, common_end
from mqstore.writer.replication.admission import Admission
from mqstore.writer.replication.slave import HaOptions, Slave, SlaveRefused

log = logs.get(__name__)

SLAVES_MAX: Final = 16
"""Maximum number of slaves that copy the log, and of connections that have not said yet who they
are."""
LOOK_INTERVAL_S: Final = 0.02
"""Seconds between two looks at the log's end, while slaves are connected; RocketMQ takes 0.1."""
TABLES_INTERVAL_S: Final = 1.0
"""Seconds between two looks whether offsets have grown: a new leader may have those of the time
before. Other changes of tables are sent at once."""


class HaServer:
    """The connections of all slaves, and their ``SlaveObserver``. Used on one event loop."""

    def __init__(
        self, store: MessageStore, name: str, options: HaOptions, admission: Admission
    ) -> None:
        """``name`` is the leader's ``replicaName``."""
        self.admission = admission
        self._store = store
        self._name = name
        self._stream = store.log_stream
        self._feed = store.table_feed
        self._feed_seen_at = -math.inf
        self._options = options
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
        """Connections that were refused, or did not follow the protocol."""
        self._warnings = logs.LimitedWarnings(log)
        self._server: asyncio.Server | None = None
        self._slaves: dict[asyncio.Task[None], Slave] = {}
        self._ending: set[asyncio.Task[None]] = set()
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
        """The offset up to which at least ``count`` connected slaves that count have
        acknowledged the log; None with fewer of them."""
        slaves = (each for each in self.slaves if each.counts)
        found = sorted((each.acknowledged for each in slaves), reverse=True)
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

    def admit(self, slave: Slave) -> None:
        """See ``SlaveObserver``. Its earlier connection, which may be lost, ends: if it is of the
        same address, since a live one is not to be displaced."""
        admission = self.admission
        if slave.follower is None:
            if slave.host not in admission.allowed:
                raise SlaveRefused("it is a slave of RocketMQ whose address haAllowedSlaves lacks")
            slave.counts = admission.counts(slave.host, None)
        else:
            _require_prefix(self._store.epochs.history, slave.follower.history)
            slave.counts = admission.counts(slave.host, slave.proven_name)
            self._warn_of_name(slave)
            self._end_earlier(slave, slave.follower)
        if sum(each.is_admitted for each in self._slaves.values()) >= SLAVES_MAX:
            self._disconnect(self._rival_of(slave))
        slave.is_admitted = True
        self.has_had_followers |= slave.is_replica

    def _warn_of_name(self, slave: Slave) -> None:
        if not slave.counts:
            self._warnings.log(
                "a follower is never in sync: neither replicaNames names it, with a proof, nor "
                "haAllowedSlaves its very address",
                replica=slave.name,
            )
        elif slave.name == self._name:
            self._warnings.log(
                "a follower has the leader's replicaName and is never in sync: give it another one",
                replica=slave.name,
                address=slave.address,
            )

    def _end_earlier(self, slave: Slave, introduction: FollowerIntroduction) -> None:
        """End the earlier connection of a follower. Raises SlaveRefused where it is another's."""
        for other in list(self._slaves.values()):
            if other is slave or other.follower is None or other.name != slave.name:
                continue
            if other.follower.store_id != introduction.store_id:
                raise SlaveRefused(
                    f"its replicaName {slave.name} is that of the follower at {other.address}: "
                    "give each follower a name of its own"
                )
            if other.host != slave.host:
                raise SlaveRefused(
                    f"{slave.name} is connected from {other.address}; that connection ends when "
                    "it has reported nothing for haHousekeepingInterval"
                )
            self._disconnect(other)

    def _rival_of(self, slave: Slave) -> Slave:
        """Return the slave that is disconnected for a further one.

        It does not count, or is of an address that has more connections. Raises SlaveRefused.
        """
        admitted = [each for each in self._slaves.values() if each.is_admitted]
        others = [each for each in admitted if not each.counts]
        if slave.counts and others:
            return _first_of_most(others)
        rivals = admitted if slave.counts else others
        number = Counter(each.host for each in rivals)
        found = _first_of_most(rivals) if rivals else None
        if found is None or number[found.host] <= number[slave.host] + 1:
            found = next((each for each in rivals if each.host == slave.host), None)
        if found is None:
            raise SlaveRefused(f"{SLAVES_MAX} slaves are connected")
        return found

    def note_sent(self, size: int) -> None:
        """See ``SlaveObserver``."""
        self.sent_bytes += size

    def note_report(self) -> None:
        """See ``SlaveObserver``."""
        self.notify()

    def note_refusal(self, event: str, slave: Slave, *, reason: str | None = None) -> None:
        """See ``SlaveObserver``. Refusals of one that counts are not hidden by those of others."""
        self.refused += 1
        of = slave.host if slave.counts else ""
        self._warnings.log(event, of=of, slave=slave.name, reason=reason, refused=self.refused)

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
        for slave in list(self._slaves.values()):
            self._disconnect(slave)
        await asyncio.gather(*self._ending, return_exceptions=True)
        await asyncio.sleep(0)  # then the connections are closed

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        slave = Slave(self._stream, self._feed, self._options, reader, writer, self)
        if not self.admission.may_connect(slave.host):
            self.note_refusal("a slave is not in haAllowedSlaves", slave)
            writer.close()
            return
        unknown = [each for each in self._slaves.values() if not each.is_admitted]
        if len(unknown) >= SLAVES_MAX:
            silent = _first_of_most(unknown)
            self.note_refusal("a slave that says nothing is disconnected", silent)
            self._disconnect(silent)
        task = self._loop.create_task(slave.serve())
        self._slaves[task] = slave
        task.add_done_callback(lambda task: self._slaves.pop(task, None))
        if self._look is None:
            self._look_at_end()

    def _disconnect(self, slave: Slave) -> None:
        """Disconnect a slave; it counts for nothing from now on."""
        for task, each in self._slaves.items():
            if each is slave:
                del self._slaves[task]
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
                task.cancel()
                slave.disconnect()
                return

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


def _first_of_most(slaves: Sequence[Slave]) -> Slave:
    """Return the oldest connection of the address that has most of them."""
    number = Counter(each.host for each in slaves)
    return max(slaves, key=lambda each: number[each.host])


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
