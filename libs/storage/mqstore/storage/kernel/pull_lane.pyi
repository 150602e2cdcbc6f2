"""A plain pull answered in one call."""

from typing import Final, Protocol, final

from mqstore.storage.kernel.lookup import LogWindow
from mqstore.storage.kernel.message_json import MessageForm

LANE_COUNT_MAX: Final[int]
"""Maximum number of messages of one pull."""

class _Queue(Protocol):
    """What is used of a ``QueueView``."""

    @property
    def min_index(self) -> int: ...
    @property
    def max_index(self) -> int: ...
    def block(self, index: int) -> tuple[memoryview, int] | None: ...

@final
class PulledQueue:
    """The bounds and the mapped files of a queue, for pulls in one call. Any thread."""

    def __init__(self, window: LogWindow, topic: bytes, queue_id: int) -> None: ...
    def aim(self, queue: _Queue, offset: int) -> None:
        """Take the bounds of the queue, and the files that hold them and an offset.

        Pulls are answered until the epoch changes, or the start of the queue moves into a file that
        is not held. May wait for the disk.
        """
    def release(self, first: int) -> None:
        """Drop the files before an entry, which may have been deleted, and all of an earlier
        epoch."""
    def forget(self) -> None:
        """Drop the files, so that the disk blocks of deleted ones are free; ``aim`` takes them
        again."""

@final
class PullLane:
    """Answers pulls of one form, each in one call. For one thread."""

    def __init__(
        self,
        count: int,
        *,
        max_bytes: int,
        shard: int,
        sends_empty: bool,
        form: MessageForm | None,
    ) -> None:
        """``form`` is None for records of the log. ``sends_empty``: a pull at the end of its queue
        is answered too. ValueError for a ``count`` above LANE_COUNT_MAX."""
    def pull(
        self, queue: PulledQueue, offset: int, start: bytes, fields: bytes, ending: bytes
    ) -> bytes | None:
        """Answer a pull from an offset: a whole HTTP reply.

        Its head is ``start``, content-type and content-length, ``fields``, the bounds and counts of
        a pull of records, and ``ending``. None where the queue is not aimed, where bytes that are
        needed are not in memory, where the records have more than ``max_bytes``, and for any record
        that is not plain.
        """
    @property
    def messages(self) -> int:
        """Messages of the latest reply."""
    @property
    def size(self) -> int:
        """Bytes of their records."""
