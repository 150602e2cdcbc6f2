"""Receipts of leases."""

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

def receipts_by_queue(
    texts: list[str],
    kind: Callable[[int, str, int, int | None, list[int], list[int], list[int]], _T],
) -> list[_T] | int:
    """Parse receipts, and group them by shard, queue and epoch; or return the number of the first
    text that is none: it has another form, or a number above 2^63.

    ``kind`` is a class that is called with shard, topic, queue id and epoch, and three lists, which
    it has as ``numbers``, ``offsets`` and ``leases``: of the receipts in ``texts``, of their
    messages, and their lease ids."""
