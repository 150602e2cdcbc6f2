"""A plain produce request stored in one call."""

from collections.abc import Callable
from threading import Lock
from typing import Protocol, final

from mqstore.storage.kernel.json_batch import JsonReader
from mqstore.storage.kernel.keys import KeyTable
from mqstore.storage.kernel.put import LogEnd
from mqstore.storage.kernel.write import Placement

class KeyTables:
    """The two tables of a ``KeyWindow`` (dedup/window.py). For one thread at a time."""

    younger: KeyTable
    older: KeyTable
    since: float | None
    """Monotonic seconds: when the younger table's first message was added."""

    def __init__(self, *args: object, **named: object) -> None:
        """Arguments are those of a subclass."""
    def limit(self, count_max: int, span_s: float) -> None:
        """The younger table becomes the older one with this number of keys, or at this age."""
    @property
    def count_max(self) -> int:
        """Keys."""
    @property
    def span_s(self) -> float:
        """Seconds."""

class ValueCounts(Protocol):
    """A histogram; ``counts`` has one number for each bound and one for all above them."""

    counts: list[int]
    total: float
    @property
    def bounds(self) -> tuple[float, ...]:
        """At most 32, in order."""

@final
class QueueTurns:
    """The write queues of a topic in turn, for messages that name none. Any thread."""

    def take(self, queues: int) -> int:
        """The next one of so many queues, of which there is one at least."""

Sent = bytes | tuple[bytes, list[str], list[Placement]]
"""The body of the reply; with the unique keys and placements of the messages where the reply waits
until the log is on disk."""

@final
class SendLane:
    """Stores plain requests to one topic, each in one call. For one thread; others may put."""

    def __init__(
        self,
        end: LogEnd,
        reader: JsonReader,
        topic: str,
        *,
        queues: int,
        turns: QueueTurns,
        store_host: tuple[bytes, int],
        keys: KeyTables | None,
        lock: Lock | None,
        shard: int,
        is_sync: bool,
        quote: Callable[[str], bytes],
        traffic: list[int],
        put_s: ValueCounts,
        record_size: ValueCounts,
    ) -> None:
        """``queues`` is the number of write queues, ``lock`` protects ``keys`` (None: duplicates
        are stored), ``is_sync`` says whether a request without durability waits for the disk.
        What is stored is added to ``traffic`` (messages, bytes of records) and the histograms (the
        seconds that a put took, the mean bytes of a request's records). ValueError."""
    def send(self, text: bytes, born_host: tuple[bytes, int]) -> Sent | None:
        """Store the messages of a request. None, and nothing is stored, for a request that is not
        plain, one with a key that is known, and while the store takes no put in one call."""
    def read(self, text: bytes, born_host: tuple[bytes, int]) -> list[str] | None:
        """The first half of ``send``: the unique keys that the client gave, which may be none."""
    def put(self) -> Sent | None:
        """The second half of ``send``, for the request that ``read`` returned keys of."""
    @property
    def queues(self) -> int:
        """Number of write queues."""
