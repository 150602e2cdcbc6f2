"""Produce requests in JSON, read into batches in RocketMQ's encoding.

``text`` is the body of a request as ``ProduceRequest`` of mqstore.wire.produce describes it.
"""

from typing import Literal, final

from mqstore.storage.kernel.batch import NameRules

@final
class GeneratedKeys:
    """Unique keys that the store makes (``codec.message_id``). Any thread."""

    def __init__(self, prefix: bytes) -> None:
        """``prefix`` is 20 characters of ASCII. ValueError."""
    def begin_month(self, begin_ms: int, end_ms: int) -> None:
        """Keys of this month count milliseconds from its begin."""
    def next(self, now_ms: int) -> str | None:
        """The next key; None where another month has begun."""

@final
class JsonBatch:
    """The messages of a request in RocketMQ's batch encoding."""

    @property
    def data(self) -> bytes:
        """The batch; each message has a UNIQ_KEY property."""
    @property
    def queue_id(self) -> int:
        """The queue that the request names, or -1."""
    @property
    def durability(self) -> Literal["sync", "async", "replicated"] | None:
        """What the request names."""
    @property
    def has_keys(self) -> bool:
        """Whether the client gave the unique keys; otherwise all of them were generated."""

@final
class JsonReader:
    """Reads plain requests. Any thread."""

    def __init__(
        self, rules: NameRules, keys: GeneratedKeys, trailing_separator: bool, count_max: int
    ) -> None:
        """``rules`` are those of user properties; ``count_max`` messages are read at most."""
    def read(self, text: bytes, now_ms: int) -> JsonBatch | None:
        """The messages of a request; None for one that is not plain: it has an error, a value
        that is not needed often, or more than 256 KiB."""
