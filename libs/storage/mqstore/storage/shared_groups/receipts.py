"""Receipts: the text that names a lease. A client returns it as it came.

``SHARD.QUEUE.OFFSET.LEASE.TOPIC``: four numbers in base 36 and the topic's name, which has no dot.
The lease of an ordered group is even, and has the epoch of its queue.
A receipt is no secret: any client that may consume as the group may acknowledge its messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, NamedTuple

from mqstore.storage._kernel import receipts_of
from mqstore.storage.errors import ReceiptInvalid

LENGTH_MAX: Final = 512
"""Characters; the longest topic has 255."""
_FORM: Final = re.compile(
    r"([0-9a-z]{1,6})\.([0-9a-z]{1,6})\.([0-9a-z]{1,12})\.([0-9a-z]{1,13})\.([%|a-zA-Z0-9_-]{1,255})"
)
LEASE_BITS: Final = 62
"""Random bits of the lease id of one receive, so that receipts of two receives or processes do not
agree by chance."""
_EPOCH_SHIFT: Final = 20
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_PAIRS: Final = [first + second for first in _DIGITS for second in _DIGITS]
"""Two digits by their value."""


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
        return encoder(self.shard, self.topic, self.queue_id, self.lease)(self.offset)


def new_lease(random: Random) -> int:
    """Make the id of leases in a shared group."""
    return random.getrandbits(LEASE_BITS) | 1


def lease_of_epoch(random: Random, epoch: int) -> int:
    """Make the id of leases in a queue of an ordered group."""
    return epoch << _EPOCH_SHIFT | random.getrandbits(_EPOCH_SHIFT - 1) << 1


def epoch_of(lease: int) -> int | None:
    """The epoch that a lease id has; None for one of a shared group."""
    return None if lease & 1 else lease >> _EPOCH_SHIFT


def encoder(shard: int, topic: str, queue_id: int, lease: int) -> Callable[[int], str]:
    """Return a function that encodes receipts of one queue and lease id by their offsets."""
    before, behind = f"{_base36(shard)}.{_base36(queue_id)}.", f".{_base36(lease)}.{topic}"
    high, start = 0, before  # offsets of one lot agree in all digits but the last two

    def encode(offset: int) -> str:
        nonlocal high, start
        found, pair = divmod(offset, 1296)
        if not found:
            return before + _base36(pair) + behind
        if found != high:
            high, start = found, before + _base36(found)
        return start + _PAIRS[pair] + behind

    return encode


def decode(text: str) -> Receipt:
    """Parse a receipt. Raises ReceiptInvalid."""
    found = _FORM.fullmatch(text) if len(text) <= LENGTH_MAX else None
    if found is None:
        raise ReceiptInvalid("this is no receipt; send it as `receive` returned it")
    shard, queue_id, offset, lease, topic = found.groups()
    return Receipt(int(shard, 36), topic, int(queue_id, 36), int(offset, 36), int(lease, 36))


def decode_receipts(texts: Iterable[str]) -> list[Receipt]:
    """Parse receipts. Raises ReceiptInvalid."""
    texts = list(texts)
    found = receipts_of(texts, Receipt)
    return [decode(each) for each in texts] if found is None else found


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, pair = divmod(number, 1296)
        digits = _PAIRS[pair] + digits
    return digits.lstrip("0") or "0"
