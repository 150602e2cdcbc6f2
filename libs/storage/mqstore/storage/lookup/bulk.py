"""Look-ups of many messages in one call. Each has the result that its single look-up has.

Called from the query service. Every function may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from mqstore.storage.codec.record import Record
from mqstore.storage.errors import (
    MessageIdError,
    QueryError,
    RecordError,
    RecordTombstone,
    StorageError,
)
from mqstore.storage.lookup.lookups import BYTES_MAX_DEFAULT, Lookups

_OF_ONE: Final = (MessageIdError, QueryError, RecordError, RecordTombstone)
"""Errors of one message; any other error is that of the whole look-up."""


def by_message_ids(
    lookups: Lookups, ids: Sequence[str], max_bytes: int = BYTES_MAX_DEFAULT
) -> list[Record | StorageError]:
    """Read the records of offset message ids: each record, or the error of ``by_message_id``.

    There are fewer results than ids where a further record would make them more than ``max_bytes``
    together; the first one excepted. Raises StoreNotOpen.
    """
    names = list(ids)
    return _complete(
        names, lookups.plain_by_ids(names, max_bytes), lookups.by_message_id, max_bytes
    )


def by_unique_keys(
    lookups: Lookups, topic: str, keys: Sequence[str], max_bytes: int = BYTES_MAX_DEFAULT
) -> list[Record | StorageError]:
    """Find the newest record of a topic with each unique key, as ``by_message_ids``."""
    unread: list[Record | None] = [None] * len(keys)
    return _complete(keys, unread, lambda key: lookups.by_unique_key(topic, key), max_bytes)


def _complete(
    names: Sequence[str],
    found: Sequence[Record | None],
    read: Callable[[str], Record],
    max_bytes: int,
) -> list[Record | StorageError]:
    """Read what is not found yet, up to the limit."""
    results: list[Record | StorageError] = []
    taken = 0
    for name, record in zip(names, found, strict=False):
        result = _result(read, name) if record is None else record
        size = result.size if isinstance(result, Record) else 0
        if taken and taken + size > max_bytes:
            break
        taken += size
        results.append(result)
    return results


def _result(read: Callable[[str], Record], name: str) -> Record | StorageError:
    try:
        return read(name)
    except _OF_ONE as error:
        return error
