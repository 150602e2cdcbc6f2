"""Records read and checked."""

from array import array
from collections.abc import Callable
from enum import IntEnum

from mqstore.storage._kernel import R
from mqstore.storage.codec.hosts import Host

class Defect(IntEnum):
    """The result of ``check_record``; every value from TRUNCATED on is one class of RecordError."""

    NONE = 0
    BLANK = 1
    """No defect: a blank record."""
    TRUNCATED = 2
    MAGIC_UNKNOWN = 3
    SIZE_WRONG = 4
    LENGTHS_DISAGREE = 5
    MISPLACED = 6
    HOST_INVALID = 7
    TOPIC_INVALID = 8
    PROPERTIES_MALFORMED = 9
    BODY_CORRUPT = 10
    CRC_MISMATCH = 11

def check_record(
    view: memoryview | bytes | bytearray,
    position: int,
    end: int,
    physical_offset: int,
    verify_body: bool,
) -> tuple[Defect, int]:
    """Check one record strictly: (defect, size).

    ``physical_offset`` -1: any. ``size`` is TOTALSIZE where the parts add up to it (or of a blank
    record as stored), else 0.
    """

def check_run(
    view: memoryview | bytes | bytearray,
    position: int,
    end: int,
    base: int,
    *,
    verify_body: bool,
    max_records: int,
    starts: array[int] | None = None,
) -> tuple[Defect, int, int, int]:
    """Walk whole records without decoding them; the GIL is released.

    Returns (defect, position, records, last store timestamp in ms or 0) at the first stretch that
    is no whole record, at a blank one (BLANK), at ``end`` or after ``max_records`` (NONE).
    ``starts``, an array of typecode ``q``, gets each record's position.
    """

def count_topics(
    view: memoryview | bytes | bytearray,
    position: int,
    end: int,
    counts: dict[bytes, list[int]],
) -> None:
    """Add the records of a range, which are whole, to the counts of records and bytes by topic."""

class StoredRecord:
    """A record's own bytes, checked when it was made; fields are read from them on access.

    Immutable; equal when the bytes are. Integers are signed.
    """

    @property
    def raw(self) -> bytes:
        """The record's bytes in the log; without the body where it was read without."""
    @property
    def size(self) -> int:
        """TOTALSIZE, body included."""
    @property
    def version(self) -> int:
        """1 or 2."""
    @property
    def body_crc(self) -> int:
        """BODYCRC."""
    @property
    def queue_id(self) -> int:
        """QUEUEID."""
    @property
    def flag(self) -> int:
        """FLAG."""
    @property
    def queue_offset(self) -> int:
        """QUEUEOFFSET."""
    @property
    def physical_offset(self) -> int:
        """PHYSICALOFFSET."""
    @property
    def sys_flag(self) -> int:
        """SYSFLAG."""
    @property
    def born_timestamp_ms(self) -> int:
        """BORNTIMESTAMP."""
    @property
    def born_host(self) -> Host:
        """BORNHOST."""
    @property
    def store_timestamp_ms(self) -> int:
        """STORETIMESTAMP."""
    @property
    def store_host(self) -> Host:
        """STOREHOST."""
    @property
    def reconsume_times(self) -> int:
        """RECONSUMETIMES."""
    @property
    def prepared_transaction_offset(self) -> int:
        """PREPAREDTRANSACTIONOFFSET."""
    @property
    def body(self) -> bytes:
        """A copy of the body at each call; empty where it was read without."""
    @property
    def raw_topic(self) -> bytes:
        """The topic's bytes."""
    @property
    def raw_properties(self) -> bytes:
        """The properties' bytes."""
    def utf8_topic(self) -> str | None:
        """The topic; None for malformed UTF-8."""
    @property
    def properties(self) -> dict[str, str] | None:
        """The properties, decoded once; not to be changed.

        None when their length is 0; for malformed UTF-8, the result of the subclass's
        ``odd_properties``.
        """

def set_copy_hook(hook: Callable[[], None] | None) -> None:
    """Call ``hook`` whenever a look-up is about to copy bytes of a map. For tests."""

def decode_record(
    kind: type[R],
    view: memoryview | bytes | bytearray,
    position: int,
    end: int,
    physical_offset: int,
    verify_body: bool,
    with_body: bool,
    leniently: bool = False,
) -> R | tuple[Defect, int]:
    """Decode one record as class ``kind``; or return the result of ``check_record``.

    ``leniently``: ignore defects when its lengths add up and it is not blank.
    """

def split_properties(data: bytes) -> dict[str, str] | None:
    """Decode as ``properties.decode``; None for malformed UTF-8."""
