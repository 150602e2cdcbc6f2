"""Host addresses as records and message ids encode them."""

from __future__ import annotations

import functools
import ipaddress
import struct
from typing import Final, NamedTuple

from mqstore.storage.errors import MessageInvalid

PACKED_V4_SIZE: Final = 8
PACKED_V6_SIZE: Final = 20
PORT_MAX: Final = 65535


class Host(NamedTuple):
    """An IP address (4 or 16 bytes) and a port. Immutable."""

    address: bytes
    port: int

    @classmethod
    def parse(cls, address: str, port: int) -> Host:
        """Parse an address such as ``127.0.0.1`` or ``::1``. Raises MessageInvalid."""
        try:
            packed = ipaddress.ip_address(address).packed
        except ValueError:
            raise MessageInvalid(f"host {address!r} is no IP address: give numbers") from None
        if not 0 <= port <= PORT_MAX:
            raise MessageInvalid(f"port {port} is not between 0 and {PORT_MAX}")
        return cls(packed, port)

    @staticmethod
    def unpack(data: bytes) -> Host:
        """Decode the 8 or 20 bytes of ``packed``. Raises ValueError for another length."""
        return unpack_host(data)

    @property
    def packed(self) -> bytes:
        """The bytes on disk: the address (4 or 16), then the port in 4 bytes."""
        return self.address + self.port.to_bytes(4)

    @property
    def is_v6(self) -> bool:
        """Whether the address is IPv6."""
        return len(self.address) == 16

    @property
    def address_text(self) -> str:
        """The address as Java prints it: IPv6 is eight hex groups without padding or ``::``."""
        if self.is_v6:
            return ":".join(f"{group:x}" for group in struct.unpack(">8H", self.address))
        return ".".join(map(str, self.address))

    def __str__(self) -> str:
        return f"{self.address_text}|{self.port}"


@functools.lru_cache(maxsize=1024)
def unpack_host(data: bytes) -> Host:
    """``Host.unpack`` with a cache: the records of a store name few different hosts."""
    if len(data) not in (PACKED_V4_SIZE, PACKED_V6_SIZE):
        raise ValueError(f"a host has 8 or 20 bytes, not {len(data)}")
    return Host(data[:-4], int.from_bytes(data[-4:]))


def parse_host(text: str) -> Host:
    """Parse ``address:port``, the address IPv4 or IPv6 (in brackets). Raises ValueError."""
    address, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit()):
        raise ValueError(f"store host {text!r} is no address:port; write e.g. 127.0.0.1:10911")
    return Host.parse(address.removeprefix("[").removesuffix("]"), int(port))
