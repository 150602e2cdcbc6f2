"""A plain produce request stored in one call."""

from collections.abc import Callable
from threading import Lock
from typing import final

from mqstore.storage.kernel.batch import NameRules
from mqstore.storage.kernel.exchange import ValueCounts
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

@final
class QueueTurns:
    """The write queues of a topic in turn, for messages that name none. Any thread."""

    def take(self, queues: int) -> int:
        """The next one of so many queues, of which there is one at least."""

@final
class StoredSend:
    """Messages that are stored, and whose reply waits: for the disk, or for a replica."""

    @property
    def reply(self) -> bytes:
        """The body of the reply."""
    @property
    def end(self) -> int:
        """The end of the messages, a physical offset."""
    @property
    def waits(self) -> int:
        """What the reply waits for: 1 the disk, 2 a replica, 3 both."""
    @property
    def keys(self) -> list[str]:
        """Their unique keys."""
    @property
    def placements(self) -> list[Placement]:
        """Their places."""

@final
class SendLane:
    """Stores plain requests to one topic: ``read`` or ``read_batch``, then ``put``. For one thread;
    others may put."""

    def __init__(
        self,
        end: LogEnd,
        reader: JsonReader,
        rules: NameRules,
        topic: str,
        *,
        queues: int,
        turns: QueueTurns,
        queue_of: Callable[[str, int], int],
        store_host: tuple[bytes, int],
        keys: KeyTables | None,
        lock: Lock | None,
        shard: int,
        waits: int,
        traffic: list[int],
        put_s: ValueCounts,
        record_size: ValueCounts,
    ) -> None:
        """``rules`` are those of properties in RocketMQ's encoding. ``queues`` is the number of
        write queues, ``queue_of`` returns that of an ordering key among them. ``lock`` protects
        ``keys`` (None: duplicates are stored), ``waits`` is what a JSON request without durability
        waits for, as ``StoredSend.waits``. What is stored is added to ``traffic`` (messages, bytes
        of records), ``put_s`` (the seconds that a put took) and ``record_size`` (the mean bytes of
        a request's records). ValueError."""
    def read(self, text: bytes, born_host: tuple[bytes, int]) -> bool:
        """Read a request in JSON. False for one that is not plain, and while the store takes no put
        in one call."""
    def read_batch(
        self, data: bytes, born_host: tuple[bytes, int], queue_id: int, waits: int
    ) -> bool:
        """Read messages in RocketMQ's batch encoding, as ``read``. ``queue_id`` -1 names no queue,
        ``waits`` is what the reply waits for."""
    @property
    def given_keys(self) -> list[str]:
        """The unique keys of what was read, which are "" or given by the client; empty where it
        gave none."""
    @property
    def ordering_key(self) -> str | None:
        """The ordering key of all messages that were read, which chose their queue."""
    def put(self) -> bytes | StoredSend | None:
        """Store what was read, and return the body of the reply. None, and nothing is stored: a key
        is known, or the store takes no put in one call."""
    @property
    def queues(self) -> int:
        """Number of write queues."""
