"""Frames of RocketMQ's HA protocol, by which a slave copies its master's commit log.

The slave sends reports of 8 bytes: the end of its log. The first one requests the log from there,
later ones acknowledge. The master sends a header of 12 bytes, physical offset (8) and size (4), and
as many bytes of the log. A frame of size 0 is a heartbeat. Integers are big-endian.

A leader of mqstore sends its followers frames with a checksum: the CRC-32C of header and bytes
stands between them. It also sends what is confirmed: a header of offset -2 less the confirmed
offset, and the number of copies in sync as its size, without bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from mqstore.storage.formats import crc32c

REPORT: Final = struct.Struct(">q")
HEADER: Final = struct.Struct(">qi")
CHECKSUM: Final = struct.Struct(">I")
CONFIRMED_NOTHING: Final = -2
"""Offset in the header of a confirmation of offset 0."""
BODY_SIZE_MAX: Final = (4 << 20) - HEADER.size
"""Maximum number of bytes of a frame's body: RocketMQ's slave reads frames into 4 MiB."""


class FrameInvalid(Exception):
    """The peer sent a frame that the HA protocol does not have. Close the connection."""


class FrameCorrupt(FrameInvalid):
    """A frame has another checksum than the leader computed: bytes changed on the way."""


class Frame(NamedTuple):
    """Bytes of the log at a physical offset; without bytes a heartbeat."""

    offset: int
    body: bytes


def encode_report(offset: int) -> bytes:
    """Return a slave's report that its log ends at a physical offset."""
    return REPORT.pack(offset)


def encode_header(offset: int, size: int) -> bytes:
    """Return the header of a frame whose body has ``size`` bytes of the log."""
    assert 0 <= size <= BODY_SIZE_MAX
    return HEADER.pack(offset, size)


def encode_frame(offset: int, body: bytes, *, has_checksum: bool) -> bytes:
    """Return a frame with bytes of the log."""
    header = encode_header(offset, len(body))
    if not has_checksum:
        return header + body
    return b"".join((header, CHECKSUM.pack(crc32c(body, crc32c(header))), body))


class Confirmation(NamedTuple):
    """The part of the log that all copies in sync have on their disks, and their number."""

    offset: int
    in_sync: int


def encode_confirmation(confirmation: Confirmation) -> bytes:
    """Return a frame that says what is confirmed, with its checksum."""
    header = HEADER.pack(CONFIRMED_NOTHING - confirmation.offset, confirmation.in_sync)
    return header + CHECKSUM.pack(crc32c(header))


class ReportReader:
    """Reads a slave's reports from a stream of bytes in pieces of any size."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """Return the newest offset that is complete with these bytes, or None.

        Older ones in the same bytes are superseded. Raises FrameInvalid for a negative offset.
        """
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        offset: int = REPORT.unpack_from(data, whole - REPORT.size)[0]
        if offset < 0:
            raise FrameInvalid(f"the slave reports offset {offset}; an offset is 0 or more")
        return offset


class FrameReader:
    """Reads a master's frames from a stream of bytes in pieces of any size.

    It keeps less than one frame, so its memory is bounded by ``BODY_SIZE_MAX``.
    """

    def __init__(self, *, has_checksum: bool = False) -> None:
        """``has_checksum``: the frames are those of a leader of mqstore."""
        self._data = bytearray()
        self._checksum_size = CHECKSUM.size if has_checksum else 0
        self.confirmation: Confirmation | None = None
        """The newest confirmation of a leader of mqstore."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete with these bytes.

        Raises FrameInvalid for a negative offset, or a size beyond ``BODY_SIZE_MAX``; FrameCorrupt.
        """
        self._data += data
        start = 0
        try:
            while len(self._data) - start >= HEADER.size:
                offset, size = HEADER.unpack_from(self._data, start)
                if self._checksum_size and offset <= CONFIRMED_NOTHING:
                    if len(self._data) < start + HEADER.size + CHECKSUM.size:
                        break
                    self._check(start, Frame(offset, b""))
                    self.confirmation = Confirmation(CONFIRMED_NOTHING - offset, size)
                    start += HEADER.size + CHECKSUM.size
                    continue
                if offset < 0 or not 0 <= size <= BODY_SIZE_MAX:
                    raise FrameInvalid(
                        f"the master sends {size} bytes at offset {offset}; a frame has an offset "
                        f"of 0 or more, and 0 to {BODY_SIZE_MAX} bytes"
                    )
                body = start + HEADER.size + self._checksum_size
                if len(self._data) < body + size:
                    break
                frame = Frame(offset, bytes(self._data[body : body + size]))
                if self._checksum_size:
                    self._check(start, frame)
                start = body + size
                yield frame
        finally:
            del self._data[:start]

    def _check(self, start: int, frame: Frame) -> None:
        at = start + HEADER.size
        (stated,) = CHECKSUM.unpack_from(self._data, at)
        found = crc32c(frame.body, crc32c(bytes(self._data[start:at])))
        if found != stated:
            raise FrameCorrupt(
                f"{len(frame.body)} bytes at offset {frame.offset} arrived with CRC-32C "
                f"{found:08x}, and were sent with {stated:08x}: the connection damages data; they "
                "are requested again"
            )
