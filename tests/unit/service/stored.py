"""Records as a store holds them, for tests of what services show."""

from __future__ import annotations

from mqstore.storage.codec import record
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, Record

HOST = Host(b"\x7f\0\0\1", 10911)


def stored(body: bytes = b"hello", sys_flag: int = 0, raw: bytes = b"") -> Record:
    """One record of topic orders at physical offset 0; ``raw`` are its encoded properties."""
    message = Message("orders", 0, body, raw, HOST, HOST, 1, sys_flag=sys_flag)
    out = bytearray(record.size_of(message, 1))
    record.encode_into(
        out, 0, message, version=1, queue_offset=0, physical_offset=0, store_timestamp_ms=2
    )
    return record.decode(out, 0, len(out), physical_offset=0)
