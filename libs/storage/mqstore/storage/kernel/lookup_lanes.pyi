"""A plain look-up of one message or one time, answered in one call without waiting for the disk."""

from typing import Protocol, final

from mqstore.storage.kernel.lookup import LogWindow
from mqstore.storage.kernel.message_json import MessageForm
from mqstore.storage.kernel.pull_lane import PulledQueue

class _Queue(Protocol):
    """What is used of a queue."""

    @property
    def pulled(self) -> PulledQueue: ...
    def block(self, index: int) -> tuple[memoryview, int] | None: ...

class _Queues(Protocol):
    """What is used of the queues of a store."""

    def known(self, topic: str, queue_id: int) -> _Queue | None: ...

@final
class MessageLane:
    """Answers look-ups by offset message id, with messages of one form. For one thread."""

    def __init__(self, form: MessageForm, *, max_bytes: int) -> None:
        """``max_bytes`` of a record, and of what is compared with checksums in one call."""
    def find(
        self,
        window: LogWindow,
        queues: _Queues,
        message_id: bytes,
        start: bytes,
        fields: bytes,
        ending: bytes,
    ) -> bytes | None:
        """Answer a look-up: a whole HTTP reply with a ``MessageDetail``.

        Its head is ``start``, content-type and content-length, ``fields`` and ``ending``. None
        where bytes that are needed are not in memory, for a record that is not plain, and where its
        queue is not known or has no entry of it without a unit.
        """

@final
class TimeLane:
    """Answers searches for the offset of a time in one queue. For one thread."""

    def __init__(self, begin: bytes, *, shard: int, max_bytes: int) -> None:
        """``begin`` is the JSON of the reply up to the time. ``max_bytes`` are read or compared
        with checksums in one call."""
    def find(
        self, queue: _Queue, timestamp_ms: int, start: bytes, fields: bytes, ending: bytes
    ) -> bytes | None:
        """Answer a search as ``first_at``: a whole HTTP reply, as of ``MessageLane``.

        None where the queue is not aimed, where bytes that are needed are not in memory, and where
        any examined entry is not plain. Store times must not go back in the log.
        """
