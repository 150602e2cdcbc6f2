"""A whole put."""

from collections.abc import Callable

from mqstore.storage.kernel.batch import EncodedBatch, NameRules
from mqstore.storage.kernel.dispatch import IndexWindow, QueueWindow
from mqstore.storage.kernel.write import Message, Placement
from mqstore.storage.seams import Clock

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
    """The end of the log, and puts of plain messages there.

    The holder of the put lock, and ``put``, change its fields.
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
    """A put that finds the wall clock outside of these bounds is left to Python, which records
    clock steps."""
    refused: bool
    """Whether puts are rejected now."""
    holders: int
    """Number of times that the put lock is held."""
    on_populate: Callable[[], None] | None
    """Called when the segment's ``populate_at`` is passed."""

    def __init__(
        self, next_offsets: dict[tuple[str, int], int], body_max: int, clock: Clock
    ) -> None: ...
    def attach(self, segment: FilePositions | None, view: memoryview | None) -> None:
        """Put into this segment from now on; None: into none. Keeps the view's memory."""
    def publish_to(self, words: StateWords, dispatch: DispatchEnd) -> None:
        """Set the words and the dispatch to publish to; without them, or a segment, ``put`` returns
        None."""
    def has_in_memory(self, offset: int, size: int) -> bool:
        """Whether bytes at a physical offset are in the attached segment and can be read without
        waiting for the disk; False while another thread puts."""
    def put(self, message: Message) -> Placement | None:
        """Append a message, dispatch it and publish both, in one call.

        None, with nothing changed, when the message is not plain: a topic that is not 1 to 127
        ASCII characters or whose queue is no key of ``next_offsets``, has no room in its window or
        is being written; a body over ``body_max`` or of 64 KiB; a DELAY, further queues, a prepared
        or rolled back message; no room in the segment or the index; a message that may not be
        stored; a clock out of its bounds; and while ``refused``, ``holders``, not ``is_idle``, or
        not all is dispatched. Thread-safe: the GIL is held, and no Python code runs, from the first
        check to the last store.
        """

    def read_batch(
        self, message: Message, data: bytes, rules: NameRules | None = None
    ) -> EncodedBatch | None:
        """Decode a batch in RocketMQ's encoding for ``put_batch``; ``message`` gives the fields
        that it does not hold.

        None for a batch that is not plain: over 1 MiB or ``body_max``; parts that do not add up; a
        message that ``put`` would leave to Python, with DELAY (any value), any transaction type, or
        a unique key that is not ASCII; properties that violate ``rules``.
        """

    def put_batch(self, batch: EncodedBatch) -> list[Placement] | None:
        """Put as ``put``, all messages of a batch or none."""
