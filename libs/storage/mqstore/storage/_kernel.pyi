from array import array
from collections.abc import Callable, Container, Iterable, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar, final

from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Record
from mqstore.storage.lookup.answers import PullStatus, Unreadable
from mqstore.storage.lookup.views import QueueView
from mqstore.storage.seams import Clock

A = TypeVar("A", "Pull", "Slices")

class Stop(IntEnum):
    """Why ``dispatch_run`` came back."""

    END = 0
    """``position`` is ``end``: nothing is left."""
    BLANK = 1
    """A blank record: the rest of the segment is unused."""
    DEFECT = 2
    """No whole record stands here; ``record.decode`` says what is wrong."""
    QUEUE = 3
    """Its queue is unknown, its window full, or its queue offset is not the next one."""
    INDEX = 4
    """The index window is full, or lacks room for all keys of this record, or has no file."""
    SPECIAL = 5
    """For Python alone: delay, multi-dispatch, inner batch, malformed UTF-8, over 64 keys."""
    LIMIT = 6
    """``max_records`` were handled."""

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

class QueueWindow:
    """Cursor over one topic-queue's current ConsumeQueue file. For one dispatching thread."""

    next_index: int
    """The entry to be written next, counted from the queue's beginning."""

    def __init__(self) -> None: ...
    def attach(self, view: memoryview | None, first_index: int, entries: int) -> None:
        """Point at a file of ``entries`` 20-byte entries, the first being ``first_index``.

        None detaches: every record of this queue then stops a run. ValueError when the view is
        too short. Leaves ``next_index`` alone.
        """
    @property
    def first_index(self) -> int: ...
    @property
    def entries(self) -> int: ...

class IndexWindow:
    """Cursor over the current IndexFile; counts and times live in the file's own header."""

    def __init__(self) -> None: ...
    def attach(self, view: memoryview | None, slots: int, index_num: int) -> None:
        """Point at an index file; None detaches. ValueError when the view is too short."""

def dispatch_run(
    view: memoryview,
    position: int,
    end: int,
    base: int,
    queues: dict[bytes, QueueWindow] | None,
    index: IndexWindow | None,
    index_tags: bool,
    skip_index_below: int,
    max_records: int,
    touched: set[bytes] | None,
) -> tuple[Stop, int, int, int]:
    """Write queue and index entries of the records in ``view[position:end]``.

    ``base`` is the physical offset of ``view[0]``. ``queues`` is keyed by topic bytes + 4-byte
    big-endian queue id; None leaves the queues alone (an index rebuild). ``index`` None leaves the
    index alone; records whose physical offset is below ``skip_index_below`` are not indexed. A
    record whose very entry already stands in its window is not written again.

    Returns (stop, position, records, last store timestamp in ms or 0): ``position`` is that of the
    first record not handled, of which nothing was written. Keys of the queues that grew are added
    to ``touched``. Body CRCs are not judged. Releases the GIL over long stretches; one caller at a
    time per window.
    """

class IndexItems:
    """Index items of records in the order of the log, set apart by ranges of slots.

    An item takes 24 bytes of this machine's order: its number among all of them 4, hash 4,
    physical offset 8, store time in ms 8. For one thread.
    """

    records: int
    """Added since the last ``take``, ..."""
    items: int
    """... with so many items, ..."""
    before_last: int
    """... of which so many are of the records before the last one."""

    def __init__(self, parts: int, slots: int, index_tags: bool) -> None:
        """Of ``slots`` slots the part ``slot * parts // slots`` is each item's."""

    def add(
        self, view: memoryview, position: int, stop: int, base: int, max_records: int
    ) -> tuple[Stop, int]:
        """Add the records that begin in ``view[position:stop]``, as ``dispatch_run`` indexes them.

        ``base`` is the physical offset of ``view[0]``; the last record may end behind ``stop``.
        Returns why it came back (LIMIT: there are ``max_records``) and the position of the first
        record that was not added. Body CRCs are not judged.
        """

    def add_record(self, hashes: Iterable[int], physical_offset: int, store_timestamp: int) -> None:
        """Add one record with its index hashes."""

    def take(self) -> list[bytes]:
        """The items by part; then there are none."""

def index_chain(
    items: bytes,
    start: int,
    file: memoryview,
    layout: tuple[int, int],
    slots_of_part: tuple[int, int],
    chunk: tuple[int, int, int],
    first: int,
    begin_ms: int,
    carried_ms: int,
) -> tuple[int, int]:
    """Put items of one part of ``IndexItems`` into an index file, in the slots of that part only.

    ``layout`` is the file's slots and entries, ``slots_of_part`` the first slot and the one behind
    the last, ``chunk`` the least physical offset, the one behind the greatest, and how many items
    there are in all parts. ``first`` is the number in the file that item 0 of all parts has or
    would have; items from byte ``start`` on are put up to the last that the file has room for.
    ``begin_ms`` is the store time of the file's item 1, ``carried_ms`` that of the last item of
    the file before, 0 without one. The header is left alone. Returns (the first byte that was not
    used, slots that were empty). ValueError for an item outside of all that, or out of its order.
    The GIL is released; what is written stays within the file, whatever the items say.
    """

def item_at(items: bytes, number: int) -> tuple[int, int] | None:
    """(physical offset, store time in ms) of an item of ``IndexItems.take``."""

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

class RecordColumns:
    """Rows of whole records, as columns in Arrow's layout. Not for several threads at once.

    Columns by name: ``physical_offset``, ``queue_offset``, ``prepared_transaction_offset`` of 64
    bits; ``size``, ``queue_id``, ``flag``, ``sys_flag``, ``body_crc``, ``reconsume_times``,
    ``version`` (1, 2) of 32 bits; ``born_time``, ``store_time`` in microseconds, null outside of
    the years 1 to 9999; ``topic``, ``born_host``, ``store_host`` (``address:port``), ``tags``,
    ``keys``, ``uniq_key``, ``real_topic`` as UTF-8, the last four null where a record has no such
    property; ``body``; ``properties``, a map. Text is as Java reads it, properties are as
    ``properties.decode`` reads them.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        topics: Iterable[bytes] | None = None,
        lowest: int = 0,
        since_ms: int = ...,
        until_ms: int = ...,
    ) -> None:
        """Only records of these topics, at physical offset ``lowest`` or behind, and stored from
        ``since_ms`` to before ``until_ms``. KeyError for an unknown column."""

    @property
    def rows(self) -> int: ...
    def add(
        self,
        view: memoryview | bytes | bytearray,
        position: int,
        stop: int,
        base: int,
        max_rows: int,
    ) -> tuple[Defect, int, int]:
        """Read the records that begin in ``view`` from ``position`` to before ``stop``; ``base`` is
        the physical offset of ``view[0]``. Checksums are compared.

        Returns (defect, size, position): where it ended, at what is no whole record (a defect or
        BLANK; its size where its parts add up, else 0), at ``stop`` or with ``max_rows`` rows
        (NONE).
        OverflowError for more than 2 GiB of one column.
        """

    def take_tombstones(self) -> list[tuple[int, int]]:
        """Physical offset and size of the tombstones that were passed: they are no rows."""

    def take(self) -> list[tuple[bytes | None, ...]]:
        """The rows until now, which then are gone: for each column its validity (None where
        nothing is null; a bit a row), then numbers; or ends and bytes; or, of a map, ends of rows,
        ends and bytes of names, ends and bytes of values. Native byte order, ends of 32 bits."""

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
    """A record's own bytes, checked when it was made; fields are read from them when asked for.

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

R = TypeVar("R", bound=StoredRecord)

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

@final
class Message:
    """What is put. ``properties`` is already encoded; the v6 bits of ``sys_flag`` are set by the
    encoder from the hosts. Times are milliseconds since the epoch. What no record can hold is
    refused where it is put."""

    topic: str
    queue_id: int
    body: bytes | None
    properties: bytes
    born_host: Host
    store_host: Host
    born_timestamp_ms: int
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes | None,
        properties: bytes,
        born_host: Host,
        store_host: Host,
        born_timestamp_ms: int,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> None: ...
    @property
    def has_delay(self) -> bool:
        """Whether its properties name a DELAY, whatever its value."""
    def replaced(self, **changes: object) -> Message:
        """A copy with other values; AttributeError for a field that there is not."""

class Placement:
    """Where a message was stored. Offsets are physical, in bytes; times in milliseconds."""

    def __init__(
        self,
        physical_offset: int,
        size: int,
        queue_id: int,
        queue_offset: int,
        store_timestamp_ms: int,
        store_host: Host,
    ) -> None: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def store_timestamp_ms(self) -> int: ...
    @property
    def store_host(self) -> Host: ...
    @property
    def end(self) -> int:
        """The log must be on disk up to here for the message to be durable."""
    @property
    def offset_message_id(self) -> str:
        """32 hex characters (56 when the store's host is an IPv6 address)."""

def encode_record(
    view: memoryview | bytearray,
    position: int,
    message: Message,
    version: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp_ms: int,
) -> int:
    """Write one record and return its size; ValueError when it does not fit or cannot be stored.

    TOTALSIZE and MAGICCODE are stored last, so that a killed writer leaves no half record there.
    """

def encode_batch(
    view: memoryview | bytearray,
    position: int,
    messages: Sequence[Message],
    versions: Sequence[int],
    queue_offsets: Sequence[int],
    physical_offset: int,
    store_timestamp_ms: int,
) -> list[int]:
    """Write messages one after another from ``position`` on; their sizes.

    Errors as above; what was written is then zeros again.
    """

def put_ordinary_batch(
    view: memoryview | bytearray,
    position: int,
    end: int,
    physical_offset: int,
    messages: Sequence[Message],
    next_offsets: dict[tuple[str, int], int],
    batch_max: int,
    item_overhead: int,
    store_timestamp_ms: int,
) -> list[Placement] | None:
    """Number, check and write messages of one topic and queue between ``position`` and ``end``.

    None, and nothing written, for whatever is not plain: a topic that is not 1 to 127 ASCII
    characters or no key of ``next_offsets``, a message of any transaction type, no room, bodies
    and properties that together, with ``item_overhead`` bytes each, are over ``batch_max``, or
    anything that may not be stored. Who calls then finds out which.
    """

def write_blank(view: memoryview | bytearray, position: int, size: int) -> None:
    """The 8 bytes of a blank record that stands for ``size`` bytes."""

def is_zero(data: bytes | bytearray | memoryview) -> bool:
    """Whether all bytes are zeros. Releases the GIL."""

def crc32(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """The CRC-32 of the GIL-free loops; equals zlib.crc32."""

def crc32_by_table(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """As ``crc32`` on a machine without carry-less multiplication."""

def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """CRC-32C (Castagnoli), as of the crc32c package."""

def crc32c_by_table(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """As ``crc32c`` on a machine without carry-less multiplication."""

def utf16_hash(units: bytes) -> int:
    """String.hashCode over UTF-16 units in the machine's byte order, as a signed 32-bit number."""

def utf8_hash(text: bytes) -> int | None:
    """String.hashCode of UTF-8 text; None where it is malformed."""

def index_put(
    view: memoryview | bytearray,
    slots: int,
    index_num: int,
    key_hash: int,
    physical_offset: int,
    store_timestamp: int,
) -> bool:
    """Insert one entry and update the header as IndexFile.putKey does; False when full.

    ``key_hash`` is ``java_text.index_hash``'s. ValueError when the view is too short for the file.
    """

def index_find(
    view: memoryview | bytes | bytearray,
    slots: int,
    index_num: int,
    key_hash: int,
    begin_ms: int,
    end_ms: int,
    limit: int,
) -> list[int]:
    """Physical offsets whose entries have this hash and time, newest first, at most ``limit``.

    Times are the entries' own (begin of the file + whole seconds), both ends included; the walk
    ends at the first entry older than ``begin_ms``, as IndexFile.selectPhyOffset's does. Links
    that do not lead to an older entry end it too, so damage cannot make it loop.
    """

def full_fence() -> None:
    """Have all stores before it seen by other processes before any store after it."""

def load_u64(view: memoryview, offset: int) -> int:
    """Atomic load (acquire), the machine's byte order; ValueError unless 8-aligned and inside."""

def store_u64(view: memoryview, offset: int, value: int) -> None:
    """Atomic store (release), the machine's byte order; ValueError unless 8-aligned and inside."""

def add_u32(view: memoryview, offset: int, value: int) -> int:
    """Atomic add to a 32-bit word (a futex's), wrapping; the new value."""

class Word:
    """An aligned 64-bit word, in the machine's byte order, that is looked at often."""

    def __init__(self, view: memoryview, offset: int) -> None:
        """ValueError unless 8-aligned and inside. Keeps the view's memory."""
    value: int
    """Atomic: loaded with acquire order, stored with release. BufferError in a read-only view."""

class Segment:
    """One mapped segment of the log, and up to where its blocks are known to be as they were
    written. A block is compared with its checksum once and remembered; where it is not as covered,
    too. Keeps both buffers' memory."""

    def __init__(self, view: memoryview, base: int, entries: memoryview | None = None) -> None:
        """``view`` is the whole segment, ``base`` its first physical offset, ``entries`` its side
        file; ValueError when that is too short."""
    @property
    def view(self) -> memoryview:
        """Read-only."""
    @property
    def entries(self) -> memoryview | None: ...
    @property
    def base(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def lacks_checksums(self) -> bool:
        """True from time to time: it had none when it was made, and may have some by now."""
    def changed_block(self, position: int, size: int) -> int:
        """The first block of these bytes that is not as covered, by number; -1 for none."""
    def covered(self, position: int, size: int) -> int:
        """How many of these bytes are known to be as they were written."""

class LogWindow:
    """The log as one process has it mapped in one epoch; reads what is plain by itself.

    Plain: a record begins there and is whole, it is no tombstone, and its blocks are as their
    checksums say; where those do not cover all of it, its body is as BODYCRC says. Anything else is
    answered by None, or ends a run of entries. For any thread.

    A look-up copies bytes, checks the copy, and answers it where the epoch is still the one that it
    began in, and ``changing`` was 0 then.
    """

    def __init__(
        self,
        epoch: Word,
        minimum: Word,
        maximum: Word,
        dispatched: Word,
        index_complete: Word,
        changing: Word,
    ) -> None: ...
    @property
    def epoch(self) -> int:
        """As it was when this was renewed last."""
    def renew(self) -> int:
        """Forget segments that expired, and all of them when the epoch moved; the epoch."""
    def forget(self) -> None:
        """Forget all segments."""
    def find(self, offset: int) -> Segment | None:
        """The known segment that holds an offset."""
    def add(self, segment: Segment, most: int, epoch: int) -> None:
        """Know a segment, in place of one at the same base; all others are forgotten when there
        are ``most``. Nothing where ``epoch``, in which its file was mapped, is not this one's."""
    def record_at(self, kind: type[R], offset: int) -> R | None:
        """The record that begins at a physical offset, of class ``kind``."""
    def record_by_id(self, kind: type[R], text: str) -> R | None:
        """The record of an offset message id, stored under the host that the id names."""
    def slice_at(self, offset: int) -> bytes | None:
        """The bytes of the record that begins at a physical offset."""
    def records(
        self,
        kind: type[R],
        entries: memoryview,
        position: int,
        topic: bytes,
        queue_id: int,
        index: int,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[list[R], int, bool]:
        """The records that consecutive queue entries name, as far as they are plain.

        ``entries[position:]`` begins with entry ``index``; at most ``count`` of them are read,
        below the dispatched offset. Plain is also that the record says of itself what the entry,
        ``topic`` and ``queue_id`` do. Ends where a further record would make ``taken``, the bytes
        of the answer so far, more than ``max_bytes``. Returns the records, ``taken`` with theirs,
        and whether one of these bounds was reached. Nothing where the epoch moved.
        """
    def tagged(
        self,
        kind: type[R],
        tags: Tags,
        entries: memoryview,
        position: int,
        topic: bytes,
        queue_id: int,
        index: int,
        most: int,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[list[R], int, int, bool]:
        """As ``records``, of those that have one of the tags: at most ``count`` of at most ``most``
        entries.

        Ends where an entry's unit or a record is not plain. Returns the records, how many entries
        were passed, ``taken`` with the records, and whether ``count`` or ``max_bytes`` was reached.
        """
    def slices(
        self,
        entries: memoryview,
        position: int,
        topic: bytes,
        queue_id: int,
        index: int,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[list[bytes], int, int, bool]:
        """As ``records``, their bytes one after the other.

        Returns them in as few pieces as can be, how many records they are, ``taken`` and whether a
        bound was reached.
        """
    def first_at(self, queue: QueueView, timestamp_ms: int) -> int | None:
        """The first entry of a queue whose record was stored at or after a time, by a binary search
        over store times; the queue's maximum where there is none. None where any entry that it
        looks at is not plain."""
    def keyed(
        self,
        kind: type[Record],
        index: _Index,
        topic: str,
        key: str,
        from_ms: int,
        to_ms: int,
        uniq_key_only: bool,
        below: int,
        limit: int,
    ) -> KeyAnswer | None:
        """The records under a key, newest first, ``limit`` at most, and no cursor.

        Store times include both ends. Only what lies below ``below`` counts. None also where
        dispatch is behind the log's end, where over 255 items of one file have the key's hash, and
        for text that bytes alone cannot be compared with (invalid Unicode, U+FFFD).
        """

    def pull(
        self,
        answer: type[A],
        status: PullStatus,
        kind: type[Record],
        queue: QueueView,
        offset: int,
        count: int,
        most: int,
        max_bytes: int,
    ) -> A | None:
        """``count`` plain records of a queue, or as many as ``max_bytes`` allow; None where there
        are fewer, and where ``count`` is over ``most``. ``answer`` is Pull or Slices."""

def in_memory(
    window: LogWindow, entries: memoryview, position: int, count: int, max_bytes: int
) -> int:
    """How many of the entries at ``entries[position:]``, ``count`` at most, can be read without
    waiting for the disk: they, the blocks of the log that their records lie in, and the blocks'
    checksums are in the page cache. Of records with ``max_bytes`` at most, in known segments.

    Only for who may write the files: to others Linux says of everything that it is there
    (mincore(2)). It may be gone a moment later.
    """

class _IndexFile(Protocol):
    @property
    def view(self) -> memoryview: ...
    @property
    def slots(self) -> int: ...
    @property
    def index_num(self) -> int: ...

class _Index(Protocol):
    @property
    def files(self) -> tuple[_IndexFile, ...] | None:
        """As they are now, oldest first; None where a search cannot read them."""

class Scanned:
    """What a key query looked at. Immutable."""

    def __init__(
        self, from_ms: int, to_ms: int, candidates: int, min_offset: int, max_offset: int
    ) -> None: ...
    @property
    def from_ms(self) -> int: ...
    @property
    def to_ms(self) -> int: ...
    @property
    def candidates(self) -> int:
        """Index entries whose records were read."""
    @property
    def min_offset(self) -> int:
        """First physical offset of the log as it was."""
    @property
    def max_offset(self) -> int:
        """Everything below it was looked for."""

class KeyAnswer:
    """Records under a key, newest first."""

    cursor: str | None
    """Where to go on."""

    def __init__(
        self,
        records: list[Record],
        unreadable: Sequence[Unreadable],
        cursor: str | None,
        complete: bool,
        scanned: Scanned,
    ) -> None: ...
    @property
    def records(self) -> list[Record]: ...
    @property
    def unreadable(self) -> Sequence[Unreadable]:
        """Records under that key, or maybe under it, that are damaged."""
    @property
    def complete(self) -> bool:
        """No record is missing: there is nothing to go on with, and the index covered the whole log
        all along."""
    @property
    def scanned(self) -> Scanned: ...
    @property
    def following(self) -> int:
        """The first candidate that ``LogWindow.keyed`` did not read; else -1."""

class Pull:
    """Records of one queue, ascending; ``next_offset`` is where to go on.

    Neighbours share memory: a record that is kept keeps up to 64 KiB of others.
    """

    status: PullStatus
    records: list[Record]
    unreadable: list[Unreadable]
    next_offset: int
    min_offset: int
    max_offset: int

    def __init__(
        self,
        status: PullStatus,
        records: list[Record],
        unreadable: list[Unreadable],
        next_offset: int,
        min_offset: int,
        max_offset: int,
    ) -> None: ...
    def __len__(self) -> int: ...
    def take(
        self,
        window: LogWindow,
        kind: type[Record],
        entries: memoryview,
        position: int,
        queue: QueueView,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        """``LogWindow.records`` from ``next_offset`` on: the bytes of the answer by then, and
        whether one of its bounds was reached."""
    def add(self, found: Record) -> None: ...
    def take_tagged(
        self,
        window: LogWindow,
        kind: type[Record],
        tags: Tags,
        entries: memoryview,
        position: int,
        queue: QueueView,
        most: int,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        """``LogWindow.tagged`` from ``next_offset`` on; answers as ``take``."""

class Slices:
    """Records of one queue as they stand in the log, ascending: what a RocketMQ client decodes.

    Joined, ``parts`` are ``count`` whole records: copies, so that nothing changes them.
    """

    status: PullStatus
    parts: list[bytes]
    unreadable: list[Unreadable]
    next_offset: int
    min_offset: int
    max_offset: int
    count: int

    @property
    def self_checked(self) -> int:
        """How many of them only their own checks vouch for."""

    def __init__(
        self,
        status: PullStatus,
        parts: list[bytes],
        unreadable: list[Unreadable],
        next_offset: int,
        min_offset: int,
        max_offset: int,
    ) -> None: ...
    def __len__(self) -> int: ...
    def take(
        self,
        window: LogWindow,
        kind: type[Record],
        entries: memoryview,
        position: int,
        queue: QueueView,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        """As ``Pull.take``, by ``LogWindow.slices``."""
    def add(self, found: Record) -> None: ...
    def take_tagged(
        self,
        window: LogWindow,
        kind: type[Record],
        tags: Tags,
        entries: memoryview,
        position: int,
        queue: QueueView,
        most: int,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        """``LogWindow.tagged`` from ``next_offset`` on; answers as ``take``."""

def load_u32(view: memoryview, offset: int) -> int:
    """Atomic load (acquire) of a 4-aligned word."""

def futex_wait(view: memoryview, offset: int, expected: int, timeout_s: float | None) -> bool:
    """Sleep while the 32-bit word equals ``expected``; False only when the time is up.

    True may be a false alarm: look at the word again. Works on a read-only mapping, across
    processes that map the same file. The GIL is released. OSError where there is no futex.
    """

def futex_wake(view: memoryview, offset: int) -> int:
    """Wake everyone who waits on the word, in any process; how many were woken."""

# A put, whole ---------------------------------------------------------------------------------

class SystemClock:
    """``seams.Clock`` of production. Thread-safe."""

    def now_ms(self) -> int: ...
    def monotonic(self) -> float: ...

class FilePositions:
    """Positions of a mapped file, in bytes from its begin (``mapped.mapped_file``)."""

    wrote_position: int
    flushed_position: int
    populate_at: int

class StateWords:
    """The words of a state page that every put moves, in a writable view; byte offsets of each."""

    def __init__(
        self, view: memoryview, max_at: int, dispatched_at: int, arrivals_at: int
    ) -> None: ...
    def set_max(self, offset: int) -> None: ...
    def set_dispatched(self, offset: int) -> None:
        """Store it, then count an arrival and wake whoever waits for one."""

class DispatchEnd:
    """How far dispatch has come; moved by whoever holds the dispatcher's lock, and, while
    ``is_idle``, by ``LogEnd.put``."""

    position: int
    """Physical offset up to which the queues are written."""
    records: int
    last_store_timestamp_ms: int
    is_idle: bool
    """Nobody dispatches now, and what is put next is all that there will be to do."""

    def follow(
        self,
        queues: dict[tuple[str, int], QueueWindow],
        index: IndexWindow | None,
        index_tags: bool,
        skip_index_below: int,
    ) -> None:
        """What to write through, as for ``dispatch_run``; queues are by topic and queue id."""

class LogEnd:
    """Where the log ends, and puts of plain messages there.

    Its fields are moved by whoever holds the put lock, and by ``put``.
    """

    position: int
    """In the segment that is attached."""
    room_end: int
    """How far records may reach in it."""
    max_offset: int
    last_store_timestamp_ms: int
    """What no later record goes below; a step of the clock back lowers it."""
    clock_low_ms: int
    clock_high_ms: int
    """A put that finds the wall clock outside is left to Python, which notes steps of it."""
    refused: bool
    """Nothing may be put now."""
    holders: int
    """How often the put lock is held."""
    on_populate: Callable[[], None] | None
    """Called when the segment's ``populate_at`` is passed."""

    def __init__(
        self, next_offsets: dict[tuple[str, int], int], body_max: int, clock: Clock
    ) -> None: ...
    def attach(self, segment: FilePositions | None, view: memoryview | None) -> None:
        """Put into this segment from now on; None: into none. Keeps the view's memory."""
    def publish_to(self, words: StateWords, dispatch: DispatchEnd) -> None:
        """Without it, and without a segment, ``put`` answers None."""
    def put(self, message: Message) -> Placement | None:
        """Append a message, dispatch it and publish both, in one go.

        None, and nothing has changed, for whatever is not plain: a topic that is not 1 to 127
        ASCII characters or whose queue is no key of ``next_offsets``, has no room in its window or
        is written by somebody; a body over ``body_max`` or of 64 KiB; a DELAY, further queues, a
        prepared or rolled back message; no room in the segment or the index; anything that may not
        be stored; a clock out of its bounds; and while ``refused``, ``holders``, not ``is_idle``,
        or not all is dispatched.
        Thread-safe: the GIL is held, and no Python code runs, from the first look to the last
        store.
        """

    def read_batch(
        self, message: Message, data: bytes, rules: NameRules | None = None
    ) -> EncodedBatch | None:
        """Look at a batch in RocketMQ's encoding, for ``put_batch``; what it does not say comes
        from ``message``, whose body, properties and flag mean nothing.

        None for whatever is not plain: over 1 MiB or ``body_max``; parts that do not add up; a
        message that ``put`` would refuse for its own sake, with DELAY (whatever its value), any
        transaction type, or a unique key that is not ASCII; properties that are against ``rules``.
        """

    def put_batch(self, batch: EncodedBatch) -> list[Placement] | None:
        """As ``put``, all messages of a batch or none."""

class NameRules:
    """Which properties producers may give, as far as the kernel can tell. Immutable."""

    def __init__(self, free: Sequence[bytes], refused: Sequence[bytes]) -> None:
        """Names in ``free`` need no look, those in ``refused`` are not plain; any other must be
        printable ASCII, as must its value."""

@final
class EncodedBatch:
    """Messages of one topic and queue, checked and not stored. Made by ``LogEnd.read_batch``."""

    @property
    def message(self) -> Message:
        """What all messages share."""
    @property
    def data(self) -> bytes:
        """The batch in RocketMQ's encoding (``codec.batch``)."""
    @property
    def digests(self) -> bytes:
        """``key_digests`` of ``keys``."""
    @property
    def keys(self) -> list[str]:
        """Each message's unique key, "" without one."""
    def __len__(self) -> int: ...

# Checksums of the log's blocks ---------------------------------------------------------------
# ``log`` is one segment that begins at physical offset ``base``, ``entries`` its whole side file
# (own/block_files.py); positions are the segment's, blocks are counted from its begin.

def cover_blocks(log: memoryview, entries: memoryview, base: int, start: int, end: int) -> int:
    """Have the entries of every block from that of ``start`` on cover the log up to ``end``.

    Only for bytes that were synced. An entry is carried on from what it says of the bytes before,
    so that it goes on telling when these have changed. How many bytes were not covered before.
    Releases the GIL from 64 KiB on. ValueError when a view is too short.
    """

def check_block(log: memoryview, entries: memoryview, base: int, number: int, known: int) -> int:
    """How many bytes of a block its entry covers (0: there is none), or -1 when they are not those
    that it was made over. Not compared when at most ``known`` bytes are covered."""

def locate_damage(log: memoryview, entries: memoryview, base: int, number: int) -> tuple[int, int]:
    """Positions in ``log`` between which lies all that is not as covered: the changed bytes of one
    4-byte word when nothing else changed, else all that is covered; equal when nothing changed."""

# Queue entries -------------------------------------------------------------------------------

class Tags:
    """Tags that a pull wants: their codes (``properties.tags_code``, an array of int64 in memory's
    own order) and, one for each, their UTF-8. ValueError when these are not as many."""

    def __init__(self, codes: array[int], texts: Iterable[bytes]) -> None: ...

def count_untagged(
    entries: memoryview,
    position: int,
    count: int,
    codes: array[int],
    units: memoryview | None = None,
    units_base: int = 0,
) -> int:
    """How many of ``count`` queue entries from ``entries[position:]`` on come before the first
    whose tags code is one of ``codes`` (signed 64-bit), or the address of a ConsumeQueueExt unit
    that has the code, or that does not stand whole in ``units``, the file of them that begins at
    ``units_base``. Releases the GIL."""

def count_unflagged(
    entries: memoryview,
    position: int,
    count: int,
    positions: array[int],
    bits: int,
    born_ms: int,
    units: memoryview,
    units_base: int,
) -> int:
    """How many of ``count`` queue entries from ``entries[position:]`` on come before the first
    whose message a subscription may want, as its unit in ``units`` says: stored after ``born_ms``
    with a bitmap of ``bits`` that lacks one of ``positions`` (signed 64-bit) it is not wanted.
    Releases the GIL."""

def walk_units(units: memoryview, position: int) -> int:
    """Where the run of whole ConsumeQueueExt units from ``position`` on ends. Releases the GIL."""

def split_entries_out_of_order(entries: memoryview, length: int, sector: int) -> list[int]:
    """Of the first ``length`` bytes of a queue file, numbers of those entries in which a sector
    begins, unless they and the one before name records, the later one behind the earlier one."""

# Placements as text --------------------------------------------------------------------------

def placements_json(
    placements: list[Placement],
    keys: list[str],
    shard: int,
    repeats: Container[int],
    quote: Callable[[str], bytes],
) -> bytes:
    """A JSON array of where messages stand, as ``mqstore.writer.models.Placed`` says it.

    ``keys`` are their unique keys, ``repeats`` the numbers of those that get ``"repeat":true``.
    ``quote`` says a key in JSON that is not printable ASCII as it stands. ValueError when there are
    not as many keys as placements; raises what ``quote`` raises.
    """

# JSON text -----------------------------------------------------------------------------------

def count_json_values(text: bytes, most: int) -> int:
    """One more than the commas outside of strings: the array items and object members of a JSON
    text, at most, but for those that are the only one of theirs. Stops above ``most``. Releases the
    GIL."""

# Unique keys that were put lately ------------------------------------------------------------

def key_digests(topic: str, keys: Sequence[str | None]) -> bytes:
    """8 bytes for each key of a topic, zeros for None and "": what ``KeyTable`` knows it by.

    Good for this process only.
    """

class KeyTable:
    """Digests of unique keys to physical offsets. For one thread at a time.

    16 bytes a slot, between three eighths and three quarters of them taken once there are 1,000.
    """

    def __init__(self) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def memory_size(self) -> int:
        """Bytes."""
    def find(self, digests: bytes) -> list[int] | None:
        """The offset of each, -1 where it is not known; None when none of them is."""
    def add(self, digests: bytes, placements: Sequence[Placement]) -> None:
        """Where each stands now."""
    def add_run(
        self,
        view: memoryview,
        position: int,
        end: int,
        base: int,
        *,
        made_here: str,
        max_records: int,
    ) -> tuple[Defect, int, int, int]:
        """Add the unique keys of what clients put, as the records from ``position`` on tell, but
        for those that begin with ``made_here``. As ``check_run``: why and where it ended, how many
        records it passed, and the last one's STORETIMESTAMP.

        Of equal keys the first counts. Messages in the topics of delayed and half messages count
        under their REAL_TOPIC; copies of delayed messages and outcomes of transactions do not.
        """
