"""Frames of RocketMQ's HA protocol, by which a slave copies its master's commit log.

The slave sends reports of 8 bytes: the end of its log. The first one requests the log from there,
later ones acknowledge. The master sends a header of 12 bytes, physical offset (8) and size (4), and
as many bytes of the log. A frame of size 0 is a heartbeat. Integers are big-endian.

A leader of mqstore sends its followers frames with a checksum: the CRC-32C of header and bytes
stands between them. It also sends what is confirmed: a header of offset -2 less the confirmed
offset, and the number of copies in sync as its size, without bytes. Tables come as a text in one or
several frames, of the two least offsets. A follower reports -2 less the version of the tables that
it has. A frame of the offset above them requests a range of the follower's log: its bytes are those
of a header. The follower replies by a report of the least offset, then a frame with these bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from mqstore.storage._kernel import crc32c
from mqstore.storage.service_settings import HA_BODY_SIZE_MAX

REPORT: Final = struct.Struct(">q")
HEADER: Final = struct.Struct(">qi")
CHECKSUM: Final = struct.Struct(">I")
CONFIRMED_NOTHING: Final = -2
"""Offset in the header of a confirmation of offset 0."""
TABLES_PART: Final = -(1 << 63)
"""Offset in the header of a frame with a part of a text of tables, which another one follows."""
TABLES_END: Final = TABLES_PART + 1
"""Offset in the header of the frame with its last part."""
FETCH: Final = TABLES_END + 1
"""Offset in the header of a request for a range of the follower's log."""
FETCHED: Final = TABLES_PART
"""Report that a frame with a requested range follows."""
FETCH_SIZE_MAX: Final = 8 << 20
"""Bytes of a requested range at most: a record of the greatest maxMessageSize in use."""
TABLES_PART_SIZE: Final = 1 << 20
TABLES_SIZE_MAX: Final = 256 << 20
"""Bytes of a text of tables at most, which a follower has in memory: some million topics."""
TABLES_NONE: Final = -2
"""A report of version 0."""


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


def encode_tables_report(version: int) -> bytes:
    """Return a follower's report that it has the tables of a version."""
    return REPORT.pack(TABLES_NONE - version)


def encode_header(offset: int, size: int) -> bytes:
    """Return the header of a frame whose body has ``size`` bytes of the log."""
    assert 0 <= size <= HA_BODY_SIZE_MAX
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


def encode_tables(text: bytes) -> Iterator[bytes]:
    """Yield the frames with a text of tables."""
    assert 0 < len(text) <= TABLES_SIZE_MAX
    for start in range(0, len(text), TABLES_PART_SIZE):
        body = text[start : start + TABLES_PART_SIZE]
        is_last = start + len(body) == len(text)
        header = HEADER.pack(TABLES_END if is_last else TABLES_PART, len(body))
        yield b"".join((header, CHECKSUM.pack(crc32c(body, crc32c(header))), body))


def encode_fetch(offset: int, size: int) -> bytes:
    """Return a leader's request for a range of a follower's log."""
    body = HEADER.pack(offset, size)
    header = HEADER.pack(FETCH, len(body))
    return b"".join((header, CHECKSUM.pack(crc32c(body, crc32c(header))), body))


def encode_fetched(offset: int, body: bytes) -> bytes:
    """Return a follower's reply with a range of its log; empty where it lacks a part of it."""
    assert len(body) <= FETCH_SIZE_MAX
    header = HEADER.pack(offset, len(body))
    checksum = CHECKSUM.pack(crc32c(body, crc32c(header)))
    return b"".join((REPORT.pack(FETCHED), header, checksum, body))


class ReportReader:
    """Reads a slave's reports from a stream of bytes in pieces of any size.

    It keeps less than one report, of a follower less than one requested range.
    """

    def __init__(self, *, has_tables: bool = False) -> None:
        """``has_tables``: the slave is a follower of mqstore, which reports versions too, and sends
        ranges of its log."""
        self.tables = 0
        """Version of the tables in the newest report of one."""
        self.fetched: list[Frame] = []
        """Ranges that came; the caller takes them away."""
        self._has_tables = has_tables
        self._rest = bytearray()

    def feed(self, data: bytes) -> int | None:
        """Return the newest offset that is complete with these bytes, or None.

        Older ones in the same bytes are superseded. Raises FrameInvalid for a negative offset.
        """
        self._rest += data
        newest: int | None = None
        start = 0
        while len(self._rest) - start >= REPORT.size:
            offset: int = REPORT.unpack_from(self._rest, start)[0]
            behind = start + REPORT.size
            if offset >= 0:
                newest = offset
            elif not self._has_tables or offset > TABLES_NONE:
                raise FrameInvalid(f"the slave reports offset {offset}; an offset is 0 or more")
            elif offset != FETCHED:
                self.tables = TABLES_NONE - offset
            elif (end := self._take_fetched(behind)) is not None:
                behind = end
            else:
                break
            start = behind
        del self._rest[:start]
        return newest

    def _take_fetched(self, start: int) -> int | None:
        """Take a requested range; return where it ends, None where it is not all here."""
        at = start + HEADER.size
        if len(self._rest) < at + CHECKSUM.size:
            return None
        offset, size = HEADER.unpack_from(self._rest, start)
        if offset < 0 or not 0 <= size <= FETCH_SIZE_MAX:
            raise FrameInvalid(f"the follower sends {size} bytes of its log at offset {offset}")
        end: int = at + CHECKSUM.size + size
        if len(self._rest) < end:
            return None
        body = bytes(self._rest[at + CHECKSUM.size : end])
        (stated,) = CHECKSUM.unpack_from(self._rest, at)
        if crc32c(body, crc32c(bytes(self._rest[start:at]))) != stated:
            raise FrameCorrupt(f"{size} bytes of the log at offset {offset} changed on the way")
        self.fetched.append(Frame(offset, body))
        return end


class Tables(NamedTuple):
    """A text of tables."""

    text: bytes


class Fetch(NamedTuple):
    """A leader's request for a range of the follower's log."""

    offset: int
    size: int


class FrameReader:
    """Reads a master's frames from a stream of bytes in pieces of any size.

    It keeps less than one frame, and less than one text of tables: its memory is bounded by
    ``HA_BODY_SIZE_MAX`` and ``TABLES_SIZE_MAX``.
    """

    def __init__(self, *, has_checksum: bool = False) -> None:
        """``has_checksum``: the frames are those of a leader of mqstore."""
        self._data = bytearray()
        self._checksum_size = CHECKSUM.size if has_checksum else 0
        self._tables = bytearray()
        """The parts of a text of tables that are here."""
        self.confirmation: Confirmation | None = None
        """The newest confirmation of a leader of mqstore."""

    def feed(self, data: bytes) -> Iterator[Frame | Tables | Fetch]:
        """Yield the frames, texts of tables and requests that are complete with these bytes.

        Raises FrameInvalid for a negative offset, or too many bytes; FrameCorrupt.
        """
        self._data += data
        start = 0
        try:
            while len(self._data) - start >= HEADER.size:
                offset, size = HEADER.unpack_from(self._data, start)
                is_ours = bool(self._checksum_size) and offset <= CONFIRMED_NOTHING
                is_confirmation = is_ours and offset > FETCH
                self._require_valid(offset, size, is_ours=is_ours)
                body = start + HEADER.size + self._checksum_size
                end = body + (0 if is_confirmation else size)
                if len(self._data) < end:
                    break
                frame = Frame(offset, bytes(self._data[body:end]))
                if self._checksum_size:
                    self._check(start, frame)
                start = end
                if is_confirmation:
                    self.confirmation = Confirmation(CONFIRMED_NOTHING - offset, size)
                elif not is_ours:
                    yield frame
                elif offset == FETCH:
                    yield _decode_fetch(frame.body)
                elif (tables := self._take_part(frame)) is not None:
                    yield tables
        finally:
            del self._data[:start]

    def _take_part(self, frame: Frame) -> Tables | None:
        """Take a part of a text of tables; return the text with its last part."""
        self._tables += frame.body
        if len(self._tables) > TABLES_SIZE_MAX:
            raise FrameInvalid(f"the leader sends tables of more than {TABLES_SIZE_MAX} bytes")
        if frame.offset == TABLES_PART:
            return None
        tables, self._tables = Tables(bytes(self._tables)), bytearray()
        return tables

    @staticmethod
    def _require_valid(offset: int, size: int, *, is_ours: bool) -> None:
        if (offset < 0 and not is_ours) or not 0 <= size <= HA_BODY_SIZE_MAX:
            raise FrameInvalid(
                f"the master sends {size} bytes at offset {offset}; a frame has an offset of 0 or "
                f"more, and 0 to {HA_BODY_SIZE_MAX} bytes"
            )

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


def _decode_fetch(body: bytes) -> Fetch:
    """Return the request of a frame. Raises FrameInvalid."""
    if len(body) != HEADER.size:
        raise FrameInvalid(f"the leader requests a range by {len(body)} bytes")
    found = Fetch(*HEADER.unpack(body))
    if found.offset < 0 or not 0 < found.size <= FETCH_SIZE_MAX:
        raise FrameInvalid(f"the leader requests {found.size} bytes at offset {found.offset}")
    return found
