"""Offset message ids, and the shape of unique keys.

An offset message id is upper-case hex of the store host (address, 4-byte port) and the 8-byte
physical offset: 32 characters for IPv4, 56 for IPv6. A unique key has the shape of the RocketMQ
client's: 10 bytes that identify the producer (ours begin with ``GENERATED_PREFIX``), 4 bytes of
milliseconds since the month began, and a 2-byte counter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from mqstore.storage.codec.hosts import PORT_MAX, Host
from mqstore.storage.errors import MessageIdError

OFFSET_ID_LENGTH_V4: Final = 32
OFFSET_ID_LENGTH_V6: Final = 56
UNIQUE_KEY_LENGTH: Final = 32
GENERATED_PREFIX: Final = "006D7173"
"""First bytes, in hex, of generated unique keys: 0.109.113.115, which is the address of no host.

A RocketMQ client's keys have its address there, so the prefix identifies generated keys.
"""


def encode(host: Host, physical_offset: int) -> str:
    """The offset message id of the record at ``physical_offset`` of the store at ``host``."""
    return _host_part(host) + f"{physical_offset:016X}"


@lru_cache(maxsize=1024)
def _host_part(host: Host) -> str:
    return host.packed.hex().upper()


def decode(text: str) -> tuple[Host, int]:
    """Decode store host and physical offset of an id of either case. Raises MessageIdError."""
    if len(text) not in (OFFSET_ID_LENGTH_V4, OFFSET_ID_LENGTH_V6):
        raise MessageIdError(f"an offset message id has 32 or 56 hex digits, not {len(text)}")
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) * 2 != len(text):
        raise MessageIdError(f"{text!r} is no offset message id: it holds more than hex digits")
    host = Host.unpack(data[:-8])
    offset = int.from_bytes(data[-8:], signed=True)
    if host.port > PORT_MAX or offset < 0:
        raise MessageIdError(f"{text!r} is no offset message id: its port or offset is impossible")
    return host, offset
