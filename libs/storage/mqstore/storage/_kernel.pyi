"""The compiled kernel: checksums, hashes and atomics here; the stubs of its other parts are in
``kernel/``, one for each source file.
"""

from typing import TypeVar

from mqstore.storage.kernel.answers import (
    placements_json as placements_json,
)
from mqstore.storage.kernel.batch import (
    NameRules as NameRules,
)
from mqstore.storage.kernel.blocks import (
    check_block as check_block,
)
from mqstore.storage.kernel.blocks import (
    cover_blocks as cover_blocks,
)
from mqstore.storage.kernel.blocks import (
    locate_damage as locate_damage,
)
from mqstore.storage.kernel.bulk import (
    records_by_id as records_by_id,
)
from mqstore.storage.kernel.columns import (
    RecordColumns as RecordColumns,
)
from mqstore.storage.kernel.dispatch import (
    IndexWindow as IndexWindow,
)
from mqstore.storage.kernel.dispatch import (
    QueueWindow as QueueWindow,
)
from mqstore.storage.kernel.dispatch import (
    Stop as Stop,
)
from mqstore.storage.kernel.dispatch import (
    dispatch_run as dispatch_run,
)
from mqstore.storage.kernel.entries import (
    Pull as Pull,
)
from mqstore.storage.kernel.entries import (
    Slices as Slices,
)
from mqstore.storage.kernel.exchange import (
    Exchange as Exchange,
)
from mqstore.storage.kernel.exchange import (
    RepeatedHead as RepeatedHead,
)
from mqstore.storage.kernel.exchange import (
    RequestIds as RequestIds,
)
from mqstore.storage.kernel.exchange import (
    ValueCounts as ValueCounts,
)
from mqstore.storage.kernel.filter import (
    Tags as Tags,
)
from mqstore.storage.kernel.filter import (
    count_unflagged as count_unflagged,
)
from mqstore.storage.kernel.filter import (
    count_untagged as count_untagged,
)
from mqstore.storage.kernel.filter import (
    split_entries_out_of_order as split_entries_out_of_order,
)
from mqstore.storage.kernel.filter import (
    walk_units as walk_units,
)
from mqstore.storage.kernel.gather import (
    IndexItems as IndexItems,
)
from mqstore.storage.kernel.gather import (
    index_chain as index_chain,
)
from mqstore.storage.kernel.gather import (
    item_at as item_at,
)
from mqstore.storage.kernel.index import (
    index_find as index_find,
)
from mqstore.storage.kernel.index import (
    index_put as index_put,
)
from mqstore.storage.kernel.json_text import (
    count_json_values as count_json_values,
)
from mqstore.storage.kernel.json_text import (
    has_distinct_members as has_distinct_members,
)
from mqstore.storage.kernel.key_search import (
    KeyAnswer as KeyAnswer,
)
from mqstore.storage.kernel.key_search import (
    ScanRange as ScanRange,
)
from mqstore.storage.kernel.keys import (
    KeyTable as KeyTable,
)
from mqstore.storage.kernel.keys import (
    key_digests as key_digests,
)
from mqstore.storage.kernel.lookup import (
    LogWindow as LogWindow,
)
from mqstore.storage.kernel.lookup_lanes import (
    MessageLane as MessageLane,
)
from mqstore.storage.kernel.lookup_lanes import (
    TimeLane as TimeLane,
)
from mqstore.storage.kernel.memory import (
    in_memory as in_memory,
)
from mqstore.storage.kernel.message_json import (
    MessageForm as MessageForm,
)
from mqstore.storage.kernel.message_json import (
    leased_json as leased_json,
)
from mqstore.storage.kernel.message_json import (
    messages_json as messages_json,
)
from mqstore.storage.kernel.places import (
    PlaceWatch as PlaceWatch,
)
from mqstore.storage.kernel.pull_lane import (
    LANE_COUNT_MAX as LANE_COUNT_MAX,
)
from mqstore.storage.kernel.pull_lane import (
    PulledQueue as PulledQueue,
)
from mqstore.storage.kernel.pull_lane import (
    PullLane as PullLane,
)
from mqstore.storage.kernel.put import (
    DispatchEnd as DispatchEnd,
)
from mqstore.storage.kernel.put import (
    FilePositions as FilePositions,
)
from mqstore.storage.kernel.put import (
    LogEnd as LogEnd,
)
from mqstore.storage.kernel.put import (
    Reason as Reason,
)
from mqstore.storage.kernel.put import (
    StateWords as StateWords,
)
from mqstore.storage.kernel.put import (
    SystemClock as SystemClock,
)
from mqstore.storage.kernel.read import (
    Defect as Defect,
)
from mqstore.storage.kernel.read import (
    StoredRecord as StoredRecord,
)
from mqstore.storage.kernel.read import (
    check_record as check_record,
)
from mqstore.storage.kernel.read import (
    check_run as check_run,
)
from mqstore.storage.kernel.read import (
    count_topics as count_topics,
)
from mqstore.storage.kernel.read import (
    decode_record as decode_record,
)
from mqstore.storage.kernel.read import (
    set_copy_hook as set_copy_hook,
)
from mqstore.storage.kernel.read import (
    split_properties as split_properties,
)
from mqstore.storage.kernel.receipts import (
    receipts_by_queue as receipts_by_queue,
)
from mqstore.storage.kernel.records import (
    EncodedBatch as EncodedBatch,
)
from mqstore.storage.kernel.search import (
    RecordSearch as RecordSearch,
)
from mqstore.storage.kernel.search import (
    find_record as find_record,
)
from mqstore.storage.kernel.segment import (
    Segment as Segment,
)
from mqstore.storage.kernel.sends import (
    GeneratedKeys as GeneratedKeys,
)
from mqstore.storage.kernel.sends import (
    KeyTables as KeyTables,
)
from mqstore.storage.kernel.sends import (
    QueueTurns as QueueTurns,
)
from mqstore.storage.kernel.sends import (
    SendChecks as SendChecks,
)
from mqstore.storage.kernel.sends import (
    Sends as Sends,
)
from mqstore.storage.kernel.time_search import (
    first_at as first_at,
)
from mqstore.storage.kernel.transaction_lane import (
    BeginReader as BeginReader,
)
from mqstore.storage.kernel.transaction_lane import (
    BeginRequest as BeginRequest,
)
from mqstore.storage.kernel.transaction_lane import (
    TransactionLane as TransactionLane,
)
from mqstore.storage.kernel.write import (
    Message as Message,
)
from mqstore.storage.kernel.write import (
    Placement as Placement,
)
from mqstore.storage.kernel.write import (
    encode_record as encode_record,
)
from mqstore.storage.kernel.write import (
    write_blank as write_blank,
)

R = TypeVar("R", bound=StoredRecord)

def is_zero(data: bytes | bytearray | memoryview) -> bool:
    """Whether all bytes are zeros. Releases the GIL."""

def crc32(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Compute the CRC-32 of the GIL-free loops; equals zlib.crc32."""

def crc32_by_table(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Compute ``crc32`` as on a machine without carry-less multiplication."""

def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Compute CRC-32C (Castagnoli), as the crc32c package does."""

def crc32c_by_table(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Compute ``crc32c`` as on a machine without carry-less multiplication."""

def utf16_hash(units: bytes) -> int:
    """Compute String.hashCode over UTF-16 units in the machine's byte order, as a signed 32-bit
    number."""

def utf8_hash(text: bytes) -> int | None:
    """Compute String.hashCode of UTF-8 text; None for malformed UTF-8."""

def full_fence() -> None:
    """Make all earlier stores visible to other processes before any later store."""

def load_u64(view: memoryview, offset: int) -> int:
    """Load atomically (acquire), in the machine's byte order.

    Raises ValueError unless 8-aligned and inside.
    """

def store_u64(view: memoryview, offset: int, value: int) -> None:
    """Store atomically (release), in the machine's byte order.

    Raises ValueError unless 8-aligned and inside.
    """

def add_u32(view: memoryview, offset: int, value: int) -> int:
    """Add atomically to a 32-bit word (a futex's), wrapping; returns the new value."""

class Word:
    """An aligned 64-bit word, in the machine's byte order, for frequent loads."""

    def __init__(self, view: memoryview, offset: int) -> None:
        """Raises ValueError unless 8-aligned and inside. Keeps the view's memory."""
    value: int
    """Atomic: loaded with acquire order, stored with release. BufferError in a read-only view."""

def load_u32(view: memoryview, offset: int) -> int:
    """Load a 4-aligned word atomically (acquire)."""

def futex_wait(view: memoryview, offset: int, expected: int, timeout_s: float | None) -> bool:
    """Sleep while the 32-bit word equals ``expected``; False only on a timeout.

    True may be a false alarm: check the word again. Works on a read-only mapping, across processes
    that map the same file. The GIL is released. Raises OSError on systems without futex.
    """

def futex_wake(view: memoryview, offset: int) -> int:
    """Wake all waiters on the word, in any process; returns their number."""
