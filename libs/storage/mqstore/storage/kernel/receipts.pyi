"""Receipts of leases."""

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")

def receipts_of(
    texts: Sequence[str], kind: Callable[[int, str, int, int, int], _T]
) -> list[_T] | None:
    """Parse receipts; None where one has another form, or a number above 2^63.

    ``kind`` is a class that is called with shard, topic, queue id, offset and lease."""
