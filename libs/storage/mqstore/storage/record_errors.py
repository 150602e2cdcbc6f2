"""The base of the storage library's errors, and those of a stretch of log that is no whole record.

``errors`` offers them with all others.
"""

from __future__ import annotations

from typing import ClassVar


class StorageError(Exception):
    """Base of all errors that the storage library raises on purpose."""

    index: int | None = None
    """Number, from 0, of the refused message of a batch; None if the error is not about one."""


class RecordError(StorageError):
    """A stretch of the commit log that is not one whole record.

    ``offset`` is the physical offset where the record begins (or the position in the buffer when
    no physical offset is known). ``size`` is its TOTALSIZE where its parts add up to that, so that
    reading can go on behind it; else 0.
    """

    defect: ClassVar[str] = "record"

    def __init__(self, offset: int, why: str, size: int = 0) -> None:
        super().__init__(f"{self.defect} at offset {offset}: {why}")
        self.offset = offset
        self.why = why
        self.size = size


class RecordTruncated(RecordError):
    """The buffer ends before the record does."""

    defect = "record truncated"


class RecordMagicUnknown(RecordError):
    """MAGICCODE is that of no record."""

    defect = "magic code unknown"


class RecordSizeWrong(RecordError):
    """TOTALSIZE is negative, too small for a header, or beyond what a segment can hold."""

    defect = "total size wrong"


class RecordLengthsDisagree(RecordError):
    """TOTALSIZE is not the sum of the parts."""

    defect = "lengths disagree"


class RecordMisplaced(RecordError):
    """PHYSICALOFFSET is not where the record stands."""

    defect = "physical offset wrong"


class RecordHostInvalid(RecordError):
    """The port of BORNHOST or STOREHOST is not between 0 and 65535."""

    defect = "host invalid"


class RecordTopicInvalid(RecordError):
    """TOPIC is empty, too long, or has a NUL inside."""

    defect = "topic invalid"


class RecordPropertiesMalformed(RecordError):
    """The properties cannot be split into names and values."""

    defect = "properties malformed"


class RecordBodyCorrupt(RecordError):
    """BODYCRC does not fit the body."""

    defect = "body crc mismatch"


class RecordCrcMismatch(RecordError):
    """The 5.x whole-record CRC (property ``__CRC32#``) does not fit."""

    defect = "record crc mismatch"


class RecordBlockCorrupt(RecordError):
    """A record that lies, wholly or in part, where the log is not what was written.

    Its own parts add up, but nothing in it covers its header and properties, so it is not served.
    ``start`` and ``stop`` are physical offsets between which all of the damage lies.
    """

    defect = "block checksum mismatch"

    def __init__(self, offset: int, start: int, stop: int) -> None:
        super().__init__(
            offset,
            f"the log has changed on the disk between offsets {start} and {stop}, so the record "
            "may be another than was written; see GET /v1/store/scrub (`mqstore store verify`)",
        )
        self.start = start
        self.stop = stop


class RecordTombstone(RecordError):
    """A record of ours that stands where an unreadable one was, so that a broker walks over it.

    What the original's queue is was known where ``queue_offset`` is not None; its bytes are in
    ``store/mqstore/quarantine``.
    """

    defect = "lost record"

    def __init__(
        self,
        offset: int,
        size: int,
        topic: str | None,
        queue_id: int | None = None,
        queue_offset: int | None = None,
    ) -> None:
        place = "" if topic is None else f" of queue {queue_id} of {topic}, entry {queue_offset},"
        super().__init__(
            offset,
            f"the message{place} could not be read any more when the store was recovered; its "
            "bytes are kept in mqstore/quarantine",
            size,
        )
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
