"""The arguments and the results of receives and of what settles receipts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from mqstore.storage.codec.record import Record
from mqstore.storage.lookup.answers import Unreadable
from mqstore.storage.lookup.pull_filter import PullFilter
from mqstore.storage.shared_groups.ordered import Turn
from mqstore.storage.shared_groups.receipts import Receipt


class ReceiptStatus(StrEnum):
    """The result of one receipt of an acknowledgement, a return or an extension."""

    OK = "ok"
    """Done, now or before."""
    LOST = "lost"
    """The lease expired and the message was delivered again, under another receipt."""
    UNKNOWN = "unknown"
    """The group has not received this message since it was set to an earlier offset."""
    REFUSED = "refused"
    """The copy of a returned message cannot be stored, as its properties do not fit; it stays
    leased."""
    EXPIRED = "expired"
    """A returned message that expired, or whose topic was deleted: there is neither a copy nor a
    dead letter of it."""
    DAMAGED = "damaged"
    """A returned message that cannot be read: there is neither a copy nor a dead letter of it."""
    STALE = "stale"
    """The queue of an ordered group is held under another epoch, or the group is shared now."""
    EARLY = "early"
    """An earlier message of the queue of an ordered group is not acknowledged."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic to receive from; ``wanted`` None: all of its messages."""

    topic: str
    wanted: PullFilter | None = None


class Delivered(NamedTuple):
    """A message that is leased to the caller."""

    record: Record
    receipt: str
    attempt: int
    """How often the message was delivered to the group, this time and retries included."""
    source_topic: str
    """The topic that it was produced to; ``record.topic`` may be the group's retry topic."""


class DeliveredBatch(NamedTuple):
    """Messages of one queue that were leased together, and produced to one topic."""

    shard: int
    topic: str
    queue_id: int
    lease: int
    records: list[Record]
    attempts: list[int]
    """How often each was delivered from this queue."""
    source_topic: str
    """As that of ``Delivered``."""

    def messages(self) -> list[Delivered]:
        """The messages one by one."""
        where = self.shard, self.topic, self.queue_id
        return [
            Delivered(
                record,
                Receipt(*where, record.queue_offset, self.lease).encode(),
                record.reconsume_times + times,
                self.source_topic,
            )
            for record, times in zip(self.records, self.attempts, strict=True)
        ]


@dataclass(slots=True)
class Received:
    """The result of one receive."""

    batches: list[DeliveredBatch] = field(default_factory=list)
    size: int = 0
    """Bytes of the records."""
    unreadable: list[Unreadable] = field(default_factory=list)
    """Damaged messages, which are passed over."""
    expired: int = 0
    """Messages that retention deleted before they were acknowledged, delivered or not."""
    dead: int = 0
    """Messages that became dead letters, as each of their deliveries failed."""
    is_full: bool = False
    """Whether a queue delivers nothing before messages are acknowledged: it has as many as it may
    have, or is that of an ordered group."""
    next_deadline: float = inf
    """Monotonic seconds: when the next lease of these queues expires."""
    ends: list[tuple[str, int, int]] = field(default_factory=list)
    """Topic, queue id and the offset where new messages will arrive, of each queue that was read;
    without those that are full, or whose next message cannot be read yet."""
    is_exhausted: bool = False
    """Whether all queues were read, and nothing was left for want of room in this receive."""
    end: int = 0
    """Physical offset below which the log has what this call appended."""

    @property
    def messages(self) -> list[Delivered]:
        """The leased messages one by one."""
        return [message for each in self.batches for message in each.messages()]


@dataclass(slots=True)
class Limits:
    """The room that is left in one receive, and the lease of its messages."""

    count: int
    bytes: int
    deadline: float
    """Monotonic seconds: when the leases expire."""
    lease: int = 0
    """Id of the leases; 0 before the first message."""
    turn: Turn | None = None
    """The queues of an ordered group to receive from."""
    is_in_memory: bool = False
    """Whether the disk must not be read."""
    is_cut: bool = False
    """Whether messages were left because the disk would have to be read for them."""

    def cut(self) -> None:
        """End the receive in front of messages for which the disk would have to be read: else
        later ones in memory would overtake them for ever."""
        self.count, self.is_cut = 0, True
