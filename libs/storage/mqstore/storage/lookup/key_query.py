"""What a query by key asks for."""

from __future__ import annotations

from dataclasses import dataclass

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Record


@dataclass(slots=True)
class KeyQuery:
    topic: str
    key: str
    from_ms: int
    to_ms: int
    uniq_key_only: bool = False

    def accepts(self, found: Record) -> bool:
        """Times within ``from_ms`` … ``to_ms``; the UNIQ_KEY, or one of KEYS unless only that."""
        if found.topic != self.topic:
            return False
        if not self.from_ms <= found.store_timestamp_ms <= self.to_ms:
            return False
        if found.uniq_key == self.key:
            return True
        return not self.uniq_key_only and self.key in properties.index_keys(None, found.keys)
