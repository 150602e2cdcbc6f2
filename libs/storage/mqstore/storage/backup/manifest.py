"""The documents of a backup: its manifest, and its small files (``Tables``).

A manifest names every object of one backup with its size and CRC-32C. It is written last; an object
that no manifest names belongs to no backup. Both documents are sealed by a checksum of their own.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self, TypeVar

from crc32c import crc32c
from pydantic import Base64Bytes, BaseModel, Field, ValidationError, model_validator

from mqstore.storage.backup.errors import BackupDamaged
from mqstore.storage.layout import BLOCK_SIZE, QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import Value

MAGIC: Final = "mqstore-backup"
VERSION: Final = 1
LOG: Final = "log"
"""Folder of the parts of segments."""
TABLES: Final = "tables"
BACKUPS: Final = "backups"
"""Folder of the manifests."""
LOCKS: Final = "locks"
ID: Final = re.compile(r"\d{8}T\d{6}\.\d{3}Z")
SUFFIX: Final = ".json"
MANIFEST_SIZE_MAX: Final = 64 << 20
"""Bytes of a manifest: about 300,000 parts, which are 30 TiB of log or more."""
TABLES_SIZE_MAX: Final = 128 << 20
"""Bytes of the document of a store's small files, which are in Base64."""
SEGMENT_SIZE_MAX: Final = 2**31 - 1
"""Greatest ``mappedFileSizeCommitLog``."""
_INT64_MAX: Final = 2**63 - 1
_TIME_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""

Int64 = Annotated[int, Field(ge=-_INT64_MAX - 1, le=_INT64_MAX)]
Offset = Annotated[int, Field(ge=0, le=_INT64_MAX)]
Millis = Annotated[int, Field(ge=0, le=_TIME_MAX)]
Crc32c = Annotated[int, Field(ge=0, le=2**32 - 1)]
_NAME: Final = rf"^({LOG}|{TABLES})/[0-9A-Za-z][0-9A-Za-z.-]{{0,199}}$"
ObjectName = Annotated[str, Field(pattern=_NAME)]
"""The name of an object: one name in one of two folders, so that no path leaves the place."""

_Document = TypeVar("_Document", bound=BaseModel)


class StoredObject(Value):
    """An object of the repository."""

    name: ObjectName
    size: Offset
    crc32c: Crc32c


class Part(StoredObject):
    """A range of a segment; positions are counted from the segment's begin."""

    start: Offset
    blocks_crc32c: Crc32c | None
    """CRC-32C of the store's checksums of its blocks; None where a block had none."""

    @property
    def stop(self) -> int:
        """The position after its last byte."""
        return self.start + self.size


class BackedUpSegment(Value):
    """The part of a segment that is in a backup."""

    offset: Offset
    """Physical offset of its first byte."""
    first_ms: Int64 | None
    """STORETIMESTAMP of its first record; None without a readable one."""
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.parts[-1].stop if self.parts else 0

    @property
    def end(self) -> int:
        """Physical offset after its last byte."""
        return self.offset + self.size


class Backup(Value):
    """A manifest. Offsets are physical, times milliseconds since the epoch."""

    magic: Literal["mqstore-backup"] = "mqstore-backup"
    version: Annotated[int, Field(le=VERSION)] = VERSION
    id: str
    created_ms: Millis
    ended_ms: Millis
    store_id: str
    shard: str
    rocketmq_format: StoreFormat
    segment_size: Annotated[int, Field(gt=0, le=SEGMENT_SIZE_MAX)]
    begin: Offset
    end: Offset
    """The log from ``begin`` to before this offset, the end of a record, is in the backup."""
    last_ms: Int64 | None
    """STORETIMESTAMP of the last record; None without a record in the last segment."""
    copied_bytes: Offset
    """Bytes that this backup added to the repository."""
    damaged_blocks: Offset
    """Blocks of the log that did not match their checksums when they were copied."""
    segments: tuple[BackedUpSegment, ...]
    tables: StoredObject

    @model_validator(mode="after")
    def _require_shape(self) -> Self:
        """Require that segments and parts make one log, as those of every backup of ours do."""
        if self.tables.size > TABLES_SIZE_MAX:
            raise ValueError(f"{self.tables.name} has more than {TABLES_SIZE_MAX} bytes")
        reached = self.begin
        for segment in self.segments:
            self._require_fit(segment, reached)
            reached = segment.end
        if reached > self.end:
            raise ValueError(f"the log ends at {reached}, behind {self.end}")
        return self

    def _require_fit(self, segment: BackedUpSegment, reached: int) -> None:
        at = segment.offset
        if at % self.segment_size or segment.size > self.segment_size or not segment.parts:
            raise ValueError(f"segment {at} does not fit a log in segments of {self.segment_size}")
        if at < reached:
            raise ValueError(f"segment {at} begins before {reached}, the end of the previous one")
        position = 0
        for part in segment.parts:
            if part.start != position:
                raise ValueError(
                    f"{part.name} begins at {part.start} of its segment, not at {position}"
                )
            position = part.stop

    @property
    def log_bytes(self) -> int:
        """Bytes of log."""
        return sum(each.size for each in self.segments)

    def objects(self) -> list[StoredObject]:
        """All objects that the backup consists of."""
        return [self.tables, *(part for each in self.segments for part in each.parts)]


class QueueStart(Value):
    """A queue's first entry at or above the begin of the backup's log, and the entry before it.

    Entries below come from records that have expired: the log alone would let the queue begin at 0.
    """

    topic: str
    queue_id: Annotated[int, Field(ge=0, le=2**31 - 1)]
    index: Annotated[int, Field(ge=0, le=(_INT64_MAX >> 1) // QUEUE_ENTRY_SIZE)]
    """The queue offset of that first entry."""
    physical_offset: Int64
    size: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
    tags_code: Int64


class Tables(Value):
    """The small files of a store, by path relative to its root, and the begins of its queues."""

    files: dict[str, Base64Bytes]
    queue_starts: tuple[QueueStart, ...]


def manifest_name(backup_id: str) -> str:
    """The name of a backup's manifest."""
    return f"{BACKUPS}/{backup_id}{SUFFIX}"


def seal(document: BaseModel) -> bytes:
    """The bytes of a document."""
    return sealed_json.encode(document)


def unseal(raw: bytes, kind: type[_Document], name: str) -> _Document:
    """The document in some bytes. Raises BackupDamaged."""
    try:
        return kind.model_validate_json(sealed_json.unseal(raw))
    except (ValueError, RecursionError) as error:
        raise BackupDamaged(f"{name} cannot be read: {_why(error)}") from error


def _why(error: ValueError | RecursionError) -> str:
    """The first reason in one line, with the place in the document."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_input=False)[0]
    place = ".".join(map(str, first["loc"]))[:100]
    text = first["msg"].removeprefix("Value error, ")
    return f"{place}: {text}" if place else text


def digest_of_blocks(checksums: list[int | None], size: int) -> int | None:
    """The checksum over the checksums of all blocks of ``size`` bytes, or None: a block has
    none."""
    known = [each for each in checksums if each is not None]
    if len(known) * BLOCK_SIZE != size:
        return None
    return crc32c(b"".join(each.to_bytes(4) for each in known))


class Cut(Value):
    """The end of a restored log: at an offset, or before the first record after a time."""

    offset: int | None = None
    ms: int | None = None

    @classmethod
    def at(cls, offset: int | None, ms: int | None) -> Self | None:
        """The cut of these options; None without one."""
        return None if offset is None and ms is None else cls(offset=offset, ms=ms)
