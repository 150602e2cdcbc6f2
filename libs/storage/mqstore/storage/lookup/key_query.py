"""``KeyQuery``: the conditions of a query by key."""

from __future__ import annotations

from dataclasses import dataclass

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Record


@dataclass(slots=True)
class KeyQuery:
    """A topic, a key, and a range of store times in ms, both ends included."""

    topic: str
    key: str
    from_ms: int
    to_ms: int
    uniq_key_only: bool = False

    def accepts(self, found: Record) -> bool:
        """Whether the record's time is in range, and the key is its UNIQ_KEY or, unless
        ``uniq_key_only``, one of its KEYS."""
        if found.topic != self.topic:
            return False
        if not self.from_ms <= found.store_timestamp_ms <= self.to_ms:
            return False
        if found.uniq_key == self.key:
            return True
        return not self.uniq_key_only and self.key in properties.index_keys(None, found.keys)
