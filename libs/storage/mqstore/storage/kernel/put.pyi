"""A whole put."""

from collections.abc import Callable, Sequence
from enum import IntEnum

from mqstore.storage.kernel.dispatch import IndexWindow, QueueWindow
from mqstore.storage.kernel.records import EncodedBatch
from mqstore.storage.kernel.write import Message, Placement
from mqstore.storage.seams import Clock

class Reason(IntEnum):
    """Why nothing was put or encoded: what the caller has to provide before it calls again."""

    NEEDS_LOCK = 1
    """The put lock: puts are rejected, another thread has the lock, a body is written without the
    GIL, or a pool commits the records."""
    NEEDS_ROOM = 2
    """Room in a segment."""
    NEEDS_CLOCK = 3
    """A look at the clock, which is out of its bounds."""
    NEEDS_QUEUE = 4
    """The number of the next record of a queue."""
    NEEDS_DISPATCH = 5
    """The dispatcher, or a file of a queue or the index. Only without the put lock: a put with it
    leaves the dispatch of its records to the dispatcher."""
    NEEDS_CHECK = 6
    """A check of messages that may have to be refused, and their record versions."""
    NEEDS_DELAY = 7
    """A delay."""
    KEY_KNOWN = 8
    """A look at the messages that were put under the same unique keys, or at the table of keys."""

class SystemClock:
    """``seams.Clock`` of production. Thread-safe."""

    def now_ms(self) -> int:
        """The wall clock in milliseconds since the epoch."""
    def monotonic(self) -> float:
        """The monotonic clock in seconds."""

class FilePositions:
    """Positions of a mapped file, in bytes from its begin (``mapped.mapped_file``)."""

    wrote_position: int
    flushed_position: int
    populate_at: int

class StateWords:
    """The words of a state page that every put changes, in a writable view; byte offsets of
    each."""

    def __init__(
        self, view: memoryview, max_at: int, dispatched_at: int, arrivals_at: int
    ) -> None: ...
    def set_max(self, offset: int) -> None:
        """Store the readable end."""
    def set_dispatched(self, offset: int) -> None:
        """Store the dispatched offset, then count an arrival and wake its waiters."""
    def notify(self, event_fd: int) -> None:
        """Add 1 to an event file descriptor at the next arrival of this process; -1: do not."""

class DispatchEnd:
    """The progress of dispatch; changed by the holder of the dispatcher's lock and, while
    ``is_idle``, by ``LogEnd.put``."""

    position: int
    """Physical offset up to which the queues are written."""
    records: int
    last_store_timestamp_ms: int
    is_idle: bool
    """Whether no thread dispatches, and the next put is all that there will be to dispatch."""

    def follow(
        self,
        queues: dict[tuple[str, int], QueueWindow],
        index: IndexWindow | None,
        index_tags: bool,
        skip_index_below: int,
    ) -> None:
        """Set the windows to write through, as for ``dispatch_run``; queues are by topic and queue
        id."""

class LogEnd:
    """The end of the log, and puts there.

    The holder of the put lock, and puts, change its fields.
    """

    position: int
    """Position in the attached segment."""
    room_end: int
    """The end of the room for records in it."""
    max_offset: int
    last_store_timestamp_ms: int
    """Lower bound of the times of later records; a clock step back lowers it."""
    clock_low_ms: int
    clock_high_ms: int
    """A put that finds the wall clock outside of these bounds needs a look at the clock: a step of
    it is recorded."""
    refused: bool
    """Whether puts are rejected now."""
    holders: int
    """Number of times that the put lock is held."""
    on_populate: Callable[[], None] | None
    """Called when the segment's ``populate_at`` is passed."""

    def __init__(
        self, next_offsets: dict[tuple[str, int], int], body_max: int, clock: Clock
    ) -> None: ...
    def attach(
        self, segment: FilePositions | None, view: memoryview | None, is_pooled: bool = False
    ) -> None:
        """Put into this segment from now on; None: into none. Keeps the view's memory.

        ``is_pooled``: the view is a buffer that is committed to the segment later, by the caller.
        """
    def publish_to(self, words: StateWords, dispatch: DispatchEnd) -> None:
        """Set the words and the dispatch to publish to; until then, a put needs the put lock, and
        its holder publishes."""
    def has_in_memory(self, offset: int, size: int) -> bool:
        """Whether bytes at a physical offset are in the attached segment and can be read without
        waiting for the disk; False while another thread puts."""
    def encode(
        self,
        messages: Sequence[Message],
        as_batch: bool = False,
        versions: list[int] | None = None,
    ) -> EncodedBatch | Reason:
        """Encode messages for ``put``.

        NEEDS_CHECK without ``versions``, the record versions of messages that were checked, unless
        every message surely can be stored, as a V1 record; and with ``as_batch``, where the
        messages violate RocketMQ's rules of a batch. With ``versions``, raises ValueError,
        TypeError or OverflowError for a message that no record can hold.
        """
    def put(self, batch: EncodedBatch, locked: bool = False) -> list[Placement] | Reason:
        """Append records, dispatch them and publish both, in one call; nothing is changed where a
        Reason is returned.

        ``locked``: the caller has the put lock. Records are then stored also where their dispatch
        is left to the dispatcher, or their commit to a pool. Without it, the GIL is held, and no
        Python code runs, from the first check to the last store.
        """
    def put_message(self, message: Message) -> Placement | Reason:
        """``encode`` and ``put`` of one message without the put lock; NEEDS_DELAY for one with a
        DELAY, of any value."""
