"""One connection of a leader to a copy of its log, as bytes: a follower of mqstore, or a slave of
RocketMQ.

The caller has the socket: it gives the session what arrives, and sends what it returns. To send
the log it repeats turns: the bytes of ``begin_turn``, then ``take``, or ``read`` in a thread where
that needs a file, then the ``frames`` of what was read. Times are those of the caller's clock. A
follower of mqstore is a slave that introduces itself (``ha_handover``).

Source: HAConnection of 4.9.7. Here a slave that cannot go on from its offset is disconnected with a
reason, where RocketMQ sends it heartbeats for ever: its log ends beyond ours, or the segment at its
offset was deleted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from mqstore.storage.errors import RecordExpired
from mqstore.storage.replication import ha_handover
from mqstore.storage.replication.ha_frames import (
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
from mqstore.storage.replication.ha_handover import FollowerIntroduction
from mqstore.storage.replication.ha_proof import MESSAGE_SIZE_MAX, Keys, LeaderProof, Proven
from mqstore.storage.replication.stores import Step
from mqstore.storage.replication.table_feed import NOTHING
from mqstore.storage.replication.tables_sender import TablesSender

if TYPE_CHECKING:
    from mqstore.storage.replication.connections import Connections

READ_SIZE: Final = 1 << 20
"""Bytes that one read takes from the disk: many frames."""
TLS_HELLO: Final = b"\x16\x03"
"""Begin of a TLS connection: a record of type handshake, of version 3."""


class SlaveRefused(Exception):
    """The slave cannot copy this log from its offset."""


class Peer(NamedTuple):
    """The other side of a connection."""

    address: str
    host: str
    """Its IP address."""
    certified: Callable[[], Collection[str]] = frozenset
    """Returns the names in its certificate; none without TLS."""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """Bytes that were read of the log, and the text of tables that comes before them, if any."""

    log: bytes
    tables: bytes | None = None


@dataclass(frozen=True, slots=True)
class LeaderOptions:
    """The settings of a leader's connections."""

    housekeeping_s: float
    """Longest time without a report."""
    batch_size: int
    """Bytes of a frame at most."""
    from_last_segment: bool
    """Whether an empty slave gets the last segment only."""
    nonce: Callable[[], str]
    """Returns ``NONCE_SIZE`` random bytes, as hexadecimal digits."""
    keys: Callable[[], Keys] | None = None
    """Returns the secret of the shard's replicas; raises ProofRefused. None without one."""


class LeaderSession:
    """One connection. Not thread-safe, but for ``read`` and the ``run`` of a step."""

    def __init__(self, connections: Connections, peer: Peer) -> None:
        self.address, self.host = peer.address, peer.host
        self._certified = peer.certified
        self.follower: FollowerIntroduction | None = None
        """None for a slave of RocketMQ, or before the introduction."""
        self.is_admitted = False
        """Whether it may copy the log."""
        self.counts = False
        """Whether replies may wait for it, and a follower be in sync: the settings name it."""
        self.requested: int | None = None
        """The end of its log when it connected; None before its first report."""
        self.acknowledged = 0
        """The end of its log as it last reported it: on the disk of a follower of mqstore, in the
        page cache of a slave of RocketMQ."""
        self.sent = 0
        """The end of what was sent."""
        self.wake: Callable[[], object] = lambda: None
        """Called when there may be more to send."""
        self.disconnect: Callable[[], object] = lambda: None
        """Called where the connection is to end; it counts for nothing then."""
        self._connections = connections
        self._options = connections.options
        self._clock = connections.clock
        self._stream = connections.store.log_stream
        self._tables = TablesSender(connections.store.table_feed, self._stream)
        self._acknowledged_tables = NOTHING
        self._confirmation: Confirmation | None = None
        """The last one that was sent."""
        self.deadline = self._clock() + self._options.housekeeping_s
        """Time at which the connection ends, unless bytes arrive before."""
        self._begun = bytearray()
        """Bytes before the first report."""
        self._is_requested = False
        """Whether a hand-over was requested."""
        self._proof: LeaderProof | None = None
        self._proven: Proven | None = None
        self._reports: ReportReader | None = None
        """None before the first report."""
        self.on_fetched: Callable[[Frame], object] | None = None
        """Takes the range that the follower is to send; None where none is awaited."""

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
        return name if self._proven is not None or name in self._certified() else None

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

    # what arrives

    def receive(self, data: bytes) -> Iterable[Step]:
        """Take bytes of the copy, and return what is to be done with them.

        It raises, and steps do, FrameInvalid, SlaveRefused, ProofRefused.
        """
        if self._reports is None:
            return self._take_begin(data)
        self._take_reports(self._reports, data)
        return ()

    def _take_begin(self, data: bytes) -> Iterator[Step]:
        self._begun += data
        yield from self._begin()
        if self._reports is not None:
            data, self._begun = bytes(self._begun), bytearray()
            self._take_reports(self._reports, data)

    def _take_reports(self, reports: ReportReader, data: bytes) -> None:
        self.deadline = self._clock() + self._options.housekeeping_s
        offset = reports.feed(data)
        if not self.is_admitted and offset is not None:
            self._connections.admit(self)
        self._take_tables_report(reports.tables)
        while reports.fetched:
            self._take_fetched(reports.fetched.pop(0))
        if offset is not None:
            self._take_report(offset)

    def _begin(self) -> Iterator[Step]:
        """Find out who the copy is."""
        begun = self._begun
        if not self._is_requested:
            if len(begun) < REPORT.size:
                return
            if begun.startswith(TLS_HELLO):
                raise SlaveRefused("it connects by TLS, and haTlsCert is not set here")
            if not begun.startswith(ha_handover.REQUEST):
                self._reports = ReportReader()
                return
            del begun[: REPORT.size]
            self._is_requested = True
            keys = self._options.keys
            yield (
                Step(keys, False, self._challenge)
                if keys is not None
                else Step(self._connections.introduce, True, ha_handover.encode)
            )
        if self._proof is not None and self._proven is None:
            text = ha_handover.take_text(begun, MESSAGE_SIZE_MAX)
            if text is None:
                return
            self._proven, message = self._proof.check(text)
            leader = self._connections.introduce()
            yield Step(lambda: leader, True, lambda found: message + ha_handover.encode(found))
        if (text := ha_handover.take_text(begun)) is not None:
            follower = ha_handover.decode_introduction(text, FollowerIntroduction)
            if self._proven not in (None, Proven(follower.name, follower.store_id)):
                raise SlaveRefused(
                    "it introduces itself by another name or store than it has proved"
                )
            self.follower = follower
            self._connections.admit(self)
            self._reports = ReportReader(has_tables=True)

    def _challenge(self, keys: Keys) -> bytes:
        store_id = self._connections.store.store_id
        self._proof = LeaderProof(keys, store_id, self._options.nonce())
        return self._proof.challenge

    def _take_report(self, offset: int) -> None:
        if offset > (end := self._stream.end):
            raise SlaveRefused(
                f"its log ends at {offset} and this one at {end}: it has bytes that this log "
                "lacks, of another or a later leader; save them if needed, then empty its store"
            )
        if self.requested is None:
            self.requested = offset
            self.sent = self._first_offset(offset)
            self.wake()
        elif offset > self.sent:
            raise SlaveRefused(
                f"it acknowledges up to {offset}, and was sent the log up to {self.sent}"
            )
        self.acknowledged = offset
        self._connections.notify()

    def _first_offset(self, requested: int) -> int:
        if requested:
            return requested
        stream = self._stream
        return stream.last_segment if self._options.from_last_segment else stream.start

    def _take_tables_report(self, version: int) -> None:
        if version > self._tables.sent:
            raise SlaveRefused(
                f"it has tables of version {version}, and was sent those of {self._tables.sent}"
            )
        if version > self._acknowledged_tables:
            self._acknowledged_tables = version
            self._connections.notify()

    # ranges of the follower's log

    def request_range(self, offset: int, size: int, on_fetched: Callable[[Frame], object]) -> bytes:
        """Return the request for a range of the follower's log, which ``on_fetched`` takes."""
        self.on_fetched = on_fetched
        return encode_fetch(offset, size)

    def _take_fetched(self, frame: Frame) -> None:
        on_fetched, self.on_fetched = self.on_fetched, None
        if on_fetched is None:
            raise FrameInvalid("it sends a range of its log that was not requested, or too late")
        on_fetched(frame)

    # what is sent, once a report has come

    def begin_turn(self) -> bytes:
        """Return what a follower is to know of what is confirmed, where that has changed."""
        found = self._connections.confirmation
        if not self.is_replica or found is None or found == self._confirmation:
            return b""
        self._confirmation = found
        return encode_confirmation(found)

    def take(self) -> Reading | None:
        """Read what comes next, if that takes no time; None: call ``read``. Raises SlaveRefused."""
        try:
            found = self._stream.take(self.sent, self._options.batch_size)
        except RecordExpired as error:
            raise self._expired(error) from None
        if found is None or (self.is_replica and self._tables.has_news):
            return None
        return Reading(found)

    def read(self) -> Reading:
        """Read what comes next of the log and the tables. Raises SlaveRefused, OSError,
        TablesTooLong."""
        if self.is_replica:
            self._tables.take()
        try:
            found = self._stream.take(self.sent, self._options.batch_size)
            if found is None:
                found = self._stream.read(self.sent, READ_SIZE)
        except RecordExpired as error:
            raise self._expired(error) from None
        return Reading(found, self._tables.before_log() if self.is_replica else None)

    def _expired(self, error: RecordExpired) -> SlaveRefused:
        return SlaveRefused(
            f"it is at {self.sent}, and {error}: empty its store, then it gets the log anew"
        )

    def frames(self, reading: Reading) -> Iterator[tuple[bytes, int]]:
        """Yield what is to be sent of a reading, each with the number of its bytes of the log;
        nothing where there is no news."""
        if reading.tables is not None:
            yield from ((frame, 0) for frame in encode_tables(reading.tables))
        size, log = self._options.batch_size, reading.log
        for start in range(0, len(log), size):
            body = log[start : start + size]
            frame = encode_frame(self.sent, body, has_checksum=self.is_replica)
            self.sent += len(body)
            yield frame, len(body)
        confirmation = self._connections.confirmation
        if self.is_replica and confirmation is not None:
            text = self._tables.behind_log(self.sent, confirmation.offset)
            if text is not None:
                yield from ((frame, 0) for frame in encode_tables(text))

    def heartbeat(self) -> bytes:
        """Return a frame without bytes."""
        return encode_frame(self.sent, b"", has_checksum=self.is_replica)
