"""One connection of a follower to its leader, as bytes: the slave's side of RocketMQ's HA protocol.

The caller has the socket. It gives the session what arrives, runs the steps that this causes, one
after the other, and sends what they return. It syncs the log, and sends ``report`` then. Times are
those of the caller's clock. A leader of mqstore introduces itself first (``ha_handover``), after
a mutual proof where there is a secret (``ha_proof``).

Source: HAService.HAClient of 4.9.7. In other ways than that one, this follower reports where its
log ends once it has connected, and reports only what is on its disk (unless haFlushDiskType is
ASYNC_FLUSH).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final

from mqstore.storage.errors import LeaderLogRefused, RecordExpired, StorageError
from mqstore.storage.metadata.log_history import common_end
from mqstore.storage.replication import ha_handover, ha_tables
from mqstore.storage.replication.ha_frames import (
    Fetch,
    Frame,
    FrameInvalid,
    FrameReader,
    Tables,
    encode_fetched,
    encode_report,
    encode_tables_report,
)
from mqstore.storage.replication.ha_handover import FollowerIntroduction, LeaderIntroduction
from mqstore.storage.replication.ha_proof import (
    Challenge,
    FollowerProof,
    Keys,
    ProofRefused,
    Proven,
    decode_first,
)
from mqstore.storage.replication.stores import ReplicaStore, Step
from mqstore.storage.replication.table_feed import NOTHING

INLINE_MAX: Final = 64 << 10
"""Bytes that are appended at once: it takes less time than the way to a thread."""
ANSWER_TIMEOUT_S: Final = 5.0
"""Seconds in which a leader of mqstore must answer."""
INTRODUCTION_TIMEOUT_S: Final = 1.0
"""Seconds without an introduction after which a leader is taken for a master of RocketMQ."""


class LogDiverged(Exception):
    """The log has bytes from ``offset`` on that the leader's lacks."""

    def __init__(self, offset: int, epoch: int) -> None:
        """``epoch``: that of the leader."""
        super().__init__(f"this log has bytes from {offset} on that the leader's lacks")
        self.offset = offset
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class FollowerOptions:
    """The settings of a follower's connections."""

    name: str
    """Its ``replicaName``."""
    housekeeping_s: float
    """Longest time without bytes of the leader."""
    nonce: Callable[[], str]
    """Returns ``NONCE_SIZE`` random bytes, as hexadecimal digits."""
    syncs: bool = True
    """Whether bytes are on the disk before they are acknowledged, or in the page cache."""
    keys: Callable[[], Keys] | None = None
    """Returns the secret of the shard's replicas; raises ProofRefused. None without one."""
    is_proof_needed: bool = False
    """Whether the leader must prove itself."""


class FollowerSession:
    """One connection. Not thread-safe, but for the ``run`` of a step."""

    def __init__(
        self, store: ReplicaStore, options: FollowerOptions, clock: Callable[[], float]
    ) -> None:
        """The log of ``store`` is on its disk up to its end, and has no begun record."""
        assert store.receiver is not None
        assert store.table_copies is not None
        self._store = store
        self._receiver = store.receiver
        self._table_copies = store.table_copies
        self._options = options
        self._clock = clock
        has_epochs = store.epochs.is_compared
        self.deadline = clock() + (ANSWER_TIMEOUT_S if has_epochs else INTRODUCTION_TIMEOUT_S)
        """Time at which ``expire`` is to be called, unless bytes arrive before."""
        self._begun = bytearray()
        """The begin of a message before the first frame."""
        self._proof: FollowerProof | None = None
        self._is_proven = False
        self._frames: FrameReader | None = None
        """None before the log of the leader is received."""
        self.is_slave = False
        """Whether the leader is a master of RocketMQ, which sends no tables on this connection, and
        does not say what is confirmed."""
        self.leader_end = 0
        """The greatest end of the leader's log that came."""
        self.is_following = False
        """Whether a frame of the log came."""
        self.has_received = False
        """Whether bytes of the log came."""
        self.tables_trouble: str | None = None
        """Why the leader's tables were not taken; the connection is to end then."""
        self.has_news = False
        """Whether the leader does not know of bytes or tables that are here."""
        self.tables_version = NOTHING
        """Version of the leader's tables that are here."""
        self._reported = self._receiver.end
        self._reported_tables = NOTHING

    def begin(self) -> bytes:
        """Return the request for an introduction, with which the connection begins."""
        return ha_handover.REQUEST

    @property
    def is_introduced(self) -> bool:
        """Whether the log of the leader is received."""
        return self._frames is not None

    def receive(self, data: bytes) -> Iterator[Step]:
        """Yield what is to be done with bytes of the leader.

        It raises, and steps do, FrameInvalid, ProofRefused, LeaderLogRefused, LogDiverged,
        QueuesIncomplete, StorageError, OSError.
        """
        if self._frames is None:
            return self._take_begin(data)
        if self._begun:
            data, self._begun = bytes(self._begun) + data, bytearray()
        return self._take_frames(data)

    def _take_begin(self, data: bytes) -> Iterator[Step]:
        self._begun += data
        while not self.is_introduced:
            text = ha_handover.take_text(self._begun)
            if text is None:
                return
            yield self._hand_over(text)
        yield from self.receive(b"")

    def expire(self) -> None:
        """Go on after ``deadline``: with a leader that does not introduce itself as the slave of a
        master of RocketMQ. Call ``begin_as_slave`` then.

        Raises TimeoutError, ProofRefused, LeaderLogRefused.
        """
        if self._frames is not None or self._proof is not None or self._is_proven:
            raise TimeoutError
        self._require_proof()
        if self._store.epochs.is_compared:
            raise LeaderLogRefused(
                "no-epochs",
                "the leader has not introduced itself as a store of mqstore does: a store that "
                "has led, or followed one of mqstore, cannot be compared with its log. Name "
                "the leader of this store's shard, or follow into an empty directory",
            )
        self.is_slave = True

    def begin_as_slave(self) -> bytes:
        """Return the report that requests the log of a master of RocketMQ."""
        self._frames = FrameReader()
        self.deadline = self._clock() + self._options.housekeeping_s
        return encode_report(self._reported)

    def end(self) -> None:
        """Raise why the leader has ended the connection: ProofRefused, ConnectionResetError."""
        if self._proof is not None and not self._is_proven:
            raise ProofRefused(
                "the leader closed the connection when this replica proved itself: do both have "
                "the same secret in replicaSecretFile? The log of the leader has the reason"
            )
        raise ConnectionResetError("the leader closed the connection")

    @property
    def unsynced(self) -> int:
        """Bytes that were received and are not on disk."""
        return self._receiver.end - self._store.log.flushed_offset

    def report(self) -> bytes:
        """Return a report of what is on disk, or in the page cache, and which tables are here."""
        data = self._report_end()
        self.has_news = self._receiver.end > self._reported
        if self.tables_version > self._reported_tables:
            self._reported_tables = self.tables_version
            data += encode_tables_report(self._reported_tables)
        return data

    # before the log is received

    def _hand_over(self, text: bytes) -> Step:
        """Take the next message of a leader of mqstore."""
        proof = self._proof
        if proof is not None and not self._is_proven:
            return Step(lambda: proof.check(text), True, self._note_proven)
        if proof is None:
            first = decode_first(text)
            if isinstance(first, Challenge):
                self.deadline = self._clock() + ANSWER_TIMEOUT_S
                return Step(self._keys, False, partial(self._prove, first))
            self._require_proof()
        else:
            first = ha_handover.decode_introduction(text, LeaderIntroduction)
            if first.store_id != proof.leader_store:
                raise ProofRefused(
                    "the leader introduces itself as another store than it has proved"
                )
        return Step(partial(self._compare, first), False, self._introduce)

    def _require_proof(self) -> None:
        if self._options.is_proof_needed:
            raise ProofRefused(
                "the leader does not prove that it has the secret of this shard's replicas: set "
                "replicaSecretFile there too, or here not where it is a broker"
            )

    def _keys(self) -> Keys:
        if self._options.keys is None:
            raise ProofRefused(
                "the leader admits only followers that prove themselves: set replicaSecretFile here"
            )
        return self._options.keys()

    def _prove(self, challenge: Challenge, keys: Keys) -> bytes:
        own = Proven(self._options.name, self._store.store_id)
        self._proof = FollowerProof(keys, challenge, own, self._options.nonce())
        return self._proof.message

    def _note_proven(self, _: None) -> bytes:
        self._is_proven = True
        return b""

    def _compare(self, leader: LeaderIntroduction) -> None:
        """Find out whether the leader has all bytes that this log has, and take over its epochs."""
        epochs = self._store.epochs
        end = common_end(leader.history, epochs.history)
        if end < self._receiver.end:
            raise LogDiverged(end, leader.history.newest)
        epochs.adopt(leader.history)

    def _introduce(self, _: None) -> bytes:
        store = self._store
        fields = ha_handover.fields_of(store.store_id, store.epochs.history)
        own = FollowerIntroduction(**fields, name=self._options.name)
        self._frames = FrameReader(has_checksum=True)
        return ha_handover.encode(own) + encode_report(self._reported)

    # frames

    def _take_frames(self, data: bytes) -> Iterator[Step]:
        reader = self._frames
        assert reader is not None
        received = list(reader.feed(data))
        if reader.confirmation is not None:
            self._store.confirm(*reader.confirmation)
        for is_log, items in groupby(received, lambda item: isinstance(item, Frame)):
            if is_log:
                frames = [item for item in items if isinstance(item, Frame)]
                yield Step(
                    partial(self._append, frames),
                    self._is_quick(frames),
                    partial(self._note_appended, frames),
                )
                continue
            for item in items:
                if isinstance(item, Tables):
                    yield Step(partial(self._take_tables, item), False, self._note_tables)
                elif isinstance(item, Fetch):
                    reply = partial(encode_fetched, item.offset)
                    yield Step(partial(self._read_range, item), False, reply)
        self.deadline = self._clock() + self._options.housekeeping_s  # steps may have taken long

    def _is_quick(self, frames: Sequence[Frame]) -> bool:
        """Whether frames are few bytes, and need no other segment."""
        size = sum(len(frame.body) for frame in frames)
        return size <= INLINE_MAX and self._receiver.has_room(size)

    def _append(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self._receiver.append(frame.offset, frame.body)

    def _note_appended(self, frames: Sequence[Frame], _: None) -> bytes:
        """Acknowledge at once what is in the page cache, if that is what counts."""
        self.is_following = True
        last = frames[-1]
        self.leader_end = max(self.leader_end, last.offset + len(last.body))
        self.has_received |= any(frame.body for frame in frames)
        if self._receiver.end <= self._reported:
            return b""
        if not self._options.syncs:
            return self._report_end()
        self.has_news = True
        return b""

    def _take_tables(self, tables: Tables) -> int:
        """Take changes of the leader's tables. The connection after a failure begins with all
        tables."""
        try:
            batch = ha_tables.decode(tables.text)
            self._table_copies.take(batch)
        except (FrameInvalid, StorageError, OSError) as error:
            self.tables_trouble = str(error)
            raise
        return batch.version

    def _note_tables(self, version: int) -> bytes:
        if version:
            self.tables_version, self.has_news = version, True
        return b""

    def _read_range(self, wanted: Fetch) -> bytes:
        """Read a range of the log on disk; nothing where a part is missing."""
        if wanted.offset + wanted.size > self._store.log.flushed_offset:
            return b""
        try:
            return self._store.log_stream.read(*wanted)  # within a segment
        except RecordExpired:
            return b""

    def _report_end(self) -> bytes:
        end = self._store.log.flushed_offset if self._options.syncs else self._receiver.end
        self._reported = end
        if self.is_slave:
            self._store.confirm(end, 0)
        return encode_report(end)
