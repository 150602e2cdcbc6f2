"""Requests to send: their messages in the form in which they are put, and the put itself."""

from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol, final

from mqstore.storage.kernel.batch import NameRules
from mqstore.storage.kernel.exchange import ValueCounts
from mqstore.storage.kernel.keys import KeyTable
from mqstore.storage.kernel.put import LogEnd, Reason
from mqstore.storage.kernel.records import EncodedBatch
from mqstore.storage.kernel.write import Message

@final
class GeneratedKeys:
    """Unique keys that the store makes (``codec.message_id``). Any thread."""

    def __init__(self, prefix: bytes) -> None:
        """``prefix`` is 20 characters of ASCII. ValueError."""
    def begin_month(self, begin_ms: int, end_ms: int) -> None:
        """Keys of this month count milliseconds from its begin."""
    def next(self, now_ms: int) -> str | None:
        """The next key; None where another month has begun."""

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

class SendChecks(Protocol):
    """The rules of requests, in Python: each raises the error that a client gets.

    They are called for what the kernel does not know to be allowed; what they let pass is stored.
    """

    def message(self, number: int, message: Any, key: str, now_ms: int) -> tuple[bytes, bytes]:
        """Check a message, whose unique key is ``key``, and return its body, and the property of
        its delay, encoded; b"" without one."""
    def encoded(self, number: int, properties: bytes) -> None:
        """Check the properties of a message in RocketMQ's encoding."""
    def malformed(self, data: bytes) -> None:
        """Raise for a batch whose parts do not add up."""
    def count(self, count: int) -> None:
        """Raise for a number of messages that no request may have."""
    def queue(self, queue_id: int, queues: int) -> None:
        """Raise for a queue beyond the last one."""
    def queues(self, messages: list[Any]) -> None:
        """Raise for messages that name several queues, or a queue beside an ordering key."""
    def both_named(self, number: int) -> None:
        """Raise for a message with an ordering key in a request that names a queue."""
    def limits(self, messages: list[Message]) -> list[int]:
        """Check the sizes of messages and return their record versions."""

class KnownKeys(Protocol):
    """The unique keys that were put lately (``dedup.puts``)."""

    lock: Lock
    """Protects ``tables``."""
    @property
    def tables(self) -> KeyTables | None:
        """None until they are prepared."""

class KeySource(Protocol):
    """Makes unique keys (``codec.unique_keys``)."""

    generated: GeneratedKeys
    def next(self) -> str:
        """The next key, also where another month has begun."""

class PropertyWriter:
    """Makes the properties of messages that were decoded from JSON."""

@final
class Sends(PropertyWriter):
    """Makes what is put of the requests to one topic, and puts it. Any thread may read."""

    def __init__(
        self,
        end: LogEnd,
        topic: str,
        *,
        checks: SendChecks,
        keys: KeySource,
        rules: NameRules,
        encoded_rules: NameRules,
        trailing_separator: bool,
        count_max: int,
        queues: int,
        turns: QueueTurns,
        queue_of: Callable[[str, int], int],
        store_host: tuple[bytes, int],
        dedup: KnownKeys | None,
        shard: int,
        quote: Callable[[str], bytes],
        traffic: list[int],
        put_s: ValueCounts,
        record_size: ValueCounts,
    ) -> None:
        """``rules`` are those of properties in JSON, ``encoded_rules`` of those in RocketMQ's
        encoding. ``queues`` is the number of write queues, ``queue_of`` returns that of an ordering
        key among them. Without ``dedup`` duplicates are stored. ``quote`` quotes a key in JSON.
        What ``put`` stores is added to ``traffic`` (messages, bytes of records), ``put_s`` (the
        seconds that a put took) and ``record_size`` (the mean bytes of a request's records).
        ValueError."""
    def read(self, messages: list[Any], born_host: tuple[bytes, int]) -> EncodedBatch:
        """Encode the messages of a ``ProduceRequest``. Raises what ``checks`` raise."""
    def read_batch(
        self,
        data: bytes,
        born_host: tuple[bytes, int],
        queue_id: int = -1,
        keys_of: Callable[[int], list[str]] | None = None,
    ) -> EncodedBatch:
        """Read messages in RocketMQ's batch encoding. ``queue_id`` -1 names no queue, ``keys_of``
        returns the unique keys of messages without one. Raises what ``checks`` raise."""
    def put(self, batch: EncodedBatch) -> bytes | Reason:
        """Store a batch that this read, and return the body of the reply; nothing is stored where a
        Reason is returned.

        KEY_KNOWN where a message may have been put before.
        """
