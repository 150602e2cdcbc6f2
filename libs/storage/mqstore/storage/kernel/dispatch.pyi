"""Records to entries of queues and of the index, many in one call."""

from enum import IntEnum

class Stop(IntEnum):
    """Why ``dispatch_run`` returned."""

    END = 0
    """``position`` is ``end``: nothing is left."""
    BLANK = 1
    """A blank record: the rest of the segment is unused."""
    DEFECT = 2
    """No whole record stands here; ``record.decode`` names the defect."""
    QUEUE = 3
    """The record's queue is unknown, its window full, or its queue offset is not the next one."""
    INDEX = 4
    """The index window is full, or lacks room for all keys of this record, or has no file."""
    SPECIAL = 5
    """For Python: delay, multi-dispatch, inner batch, malformed UTF-8, over 64 keys."""
    LIMIT = 6
    """``max_records`` were handled."""

class QueueWindow:
    """Cursor over one topic-queue's current ConsumeQueue file. For one dispatching thread."""

    next_index: int
    """The queue offset of the next entry."""

    def __init__(self) -> None: ...
    def attach(self, view: memoryview | None, first_index: int, entries: int) -> None:
        """Point at a file of ``entries`` 20-byte entries, the first being ``first_index``.

        None detaches: every record of this queue then stops a run. Raises ValueError when the view
        is too short. Does not change ``next_index``.
        """
    @property
    def first_index(self) -> int:
        """The queue offset of the file's first entry."""
    @property
    def entries(self) -> int:
        """Number of entries of the file."""

class IndexWindow:
    """Cursor over the current IndexFile; counts and times are in the file's own header."""

    def __init__(self) -> None: ...
    def attach(self, view: memoryview | None, slots: int, index_num: int) -> None:
        """Point at an index file; None detaches. Raises ValueError when the view is too short."""

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
    to ``touched``. Body CRCs are not compared. Releases the GIL over long stretches; one caller at
    a time per window.
    """
