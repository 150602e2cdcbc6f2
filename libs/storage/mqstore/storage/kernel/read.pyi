"""Records read and checked."""

from array import array
from collections.abc import Callable
from enum import IntEnum

from mqstore.storage._kernel import R
from mqstore.storage.codec.hosts import Host

class Defect(IntEnum):
    """What ``check_record`` found; every value from TRUNCATED on is one class of RecordError."""

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
    """Every strict check of one record: (defect, size).

    ``physical_offset`` -1: any. ``size`` is TOTALSIZE where the parts add up to it (or for a blank
    record as it stands there), else 0.
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

def find_record(
    view: memoryview | bytes | bytearray,
    position: int,
    end: int,
    base: int,
    verify_body: bool,
    stop: int = ...,
) -> int:
    """First position at or after ``position`` where a whole record stands that says so itself.

    Its PHYSICALOFFSET equals base + position; it begins below ``stop`` (by default anywhere) and
    ends at or below ``end``. -1 when there is none. Releases the GIL.
    """

class StoredRecord:
    """A record's own bytes, checked when it was made; fields are read from them at access.

    Immutable; equal when the bytes are. Integers are signed.
    """

    @property
    def raw(self) -> bytes:
        """As it stands in the log; without the body where it was read without."""
    @property
    def size(self) -> int:
        """TOTALSIZE, body included."""
    @property
    def version(self) -> int: ...
    @property
    def body_crc(self) -> int: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def born_timestamp_ms(self) -> int: ...
    @property
    def born_host(self) -> Host: ...
    @property
    def store_timestamp_ms(self) -> int: ...
    @property
    def store_host(self) -> Host: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def prepared_transaction_offset(self) -> int: ...
    @property
    def body(self) -> bytes:
        """A copy at each call; empty where it was read without."""
    @property
    def raw_topic(self) -> bytes: ...
    @property
    def raw_properties(self) -> bytes: ...
    def utf8_topic(self) -> str | None:
        """None where it is malformed UTF-8."""
    @property
    def properties(self) -> dict[str, str] | None:
        """Decoded once, and not to be changed; None when their length is 0. Where they are
        malformed UTF-8, what the subclass's ``odd_properties`` says."""

def set_copy_hook(hook: Callable[[], None] | None) -> None:
    """Have ``hook`` called wherever a look-up is about to copy bytes of a map. For tests."""

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
    """One record, of class ``kind``; or what ``check_record`` says.

    ``leniently``: whatever its defect, so long as its lengths add up and it is not blank.
    """

def split_properties(data: bytes) -> dict[str, str] | None:
    """As ``properties.decode``; None where anything is malformed UTF-8."""
