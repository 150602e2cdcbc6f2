"""Receipts: the text that names a lease. A client returns it as it came.

``SHARD.QUEUE.OFFSET.LEASE.TOPIC``: four numbers in base 36 and the topic's name, which has no dot.
A receipt is no secret: any client that may consume as the group may acknowledge its messages.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from mqstore.storage.errors import ReceiptInvalid

LENGTH_MAX: Final = 512
"""Characters; the longest topic has 255."""
_FORM: Final = re.compile(
    r"([0-9a-z]{1,6})\.([0-9a-z]{1,6})\.([0-9a-z]{1,12})\.([0-9a-z]{1,13})\.([%|a-zA-Z0-9_-]{1,255})"
)
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class Receipt(NamedTuple):
    """A lease of one message."""

    shard: int
    topic: str
    queue_id: int
    offset: int
    lease: int

    def encode(self) -> str:
        """The text of the receipt."""
        numbers = (self.shard, self.queue_id, self.offset, self.lease)
        return ".".join([*(_base36(each) for each in numbers), self.topic])


def decode(text: str) -> Receipt:
    """Parse a receipt. Raises ReceiptInvalid."""
    found = _FORM.fullmatch(text) if len(text) <= LENGTH_MAX else None
    if found is None:
        raise ReceiptInvalid("this is no receipt; send it as `receive` returned it")
    shard, queue_id, offset, lease = (int(each, 36) for each in found.groups()[:4])
    return Receipt(shard, found[5], queue_id, offset, lease)


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
