"""Receipts: the text that names a lease. A client returns it as it came.

``SHARD.QUEUE.OFFSET.LEASE.TOPIC``: four numbers in base 36 and the topic's name, which has no dot;
that of a POP retry topic may have a ``+``.
The lease of an ordered group is even, and has the epoch of its queue.
A receipt is no secret: any client that may consume as the group may acknowledge its messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

from mqstore.storage._kernel import receipts_by_queue
from mqstore.storage.errors import ReceiptInvalid

LEASE_BITS: Final = 62
"""Random bits of the lease id of one receive, so that receipts of two receives or processes do not
agree by chance."""
_EPOCH_SHIFT: Final = 20
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class Receipt(NamedTuple):
    """A lease of one message."""

    shard: int
    topic: str
    queue_id: int
    offset: int
    lease: int

    @property
    def epoch(self) -> int | None:
        """The epoch of the queue in an ordered group; None in a shared one."""
        return epoch_of(self.lease)

    def encode(self) -> str:
        """The text of the receipt."""
        before, behind = texts_beside_offset(self.shard, self.topic, self.queue_id, self.lease)
        return before + _base36(self.offset) + behind


class QueueReceipts(NamedTuple):
    """Receipts of one queue; in an ordered group of one epoch."""

    shard: int
    topic: str
    queue_id: int
    epoch: int | None
    numbers: list[int]
    """The place of each in its request."""
    offsets: list[int]
    leases: list[int]

    def receipts(self) -> list[Receipt]:
        """The receipts one by one."""
        shard, topic, queue_id = self[:3]
        return [
            Receipt(shard, topic, queue_id, *each)
            for each in zip(self.offsets, self.leases, strict=True)
        ]

    def by_offset(self) -> QueueReceipts:
        """The same receipts in the order of their messages."""
        order = sorted(range(len(self.offsets)), key=self.offsets.__getitem__)
        lists = (self.numbers, self.offsets, self.leases)
        return QueueReceipts(*self[:4], *([each[at] for at in order] for each in lists))


def new_lease(random: Random) -> int:
    """Make the id of leases in a shared group."""
    return random.getrandbits(LEASE_BITS) | 1


def lease_of_epoch(random: Random, epoch: int) -> int:
    """Make the id of leases in a queue of an ordered group."""
    return epoch << _EPOCH_SHIFT | random.getrandbits(_EPOCH_SHIFT - 1) << 1


def epoch_of(lease: int) -> int | None:
    """The epoch that a lease id has; None for one of a shared group."""
    return None if lease & 1 else lease >> _EPOCH_SHIFT


def texts_beside_offset(shard: int, topic: str, queue_id: int, lease: int) -> tuple[str, str]:
    """Return the text before the offset, and that behind it, of all receipts of a lease."""
    return f"{_base36(shard)}.{_base36(queue_id)}.", f".{_base36(lease)}.{topic}"


def decode(text: str) -> Receipt:
    """Parse a receipt. Raises ReceiptInvalid."""
    return decode_by_queue([text])[0].receipts()[0]


def decode_by_queue(texts: Sequence[str]) -> list[QueueReceipts]:
    """Parse receipts, and group them by queue. Raises ReceiptInvalid."""
    found = receipts_by_queue(list(texts), QueueReceipts)
    if isinstance(found, int):
        raise ReceiptInvalid("this is no receipt; send it as `receive` returned it")
    return found


def group_by_queue(receipts: Iterable[Receipt]) -> list[QueueReceipts]:
    """Group receipts by queue, and by epoch."""
    found: dict[tuple[int, str, int, int | None], QueueReceipts] = {}
    for number, each in enumerate(receipts):
        key = each.shard, each.topic, each.queue_id, each.epoch
        queue = found.setdefault(key, QueueReceipts(*key, [], [], []))
        queue.numbers.append(number)
        queue.offsets.append(each.offset)
        queue.leases.append(each.lease)
    return list(found.values())


def decode_receipts(texts: Iterable[str]) -> list[Receipt]:
    """Parse receipts. Raises ReceiptInvalid."""
    return [decode(each) for each in texts]


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
