"""Messages encoded as records."""

from typing import final

from mqstore.storage.codec.hosts import Host

@final
class Message:
    """A message to put.

    ``properties`` is already encoded; the encoder sets the v6 bits of ``sys_flag`` from the hosts.
    Times are milliseconds since the epoch. The put rejects a message that no record can hold.
    """

    topic: str
    queue_id: int
    body: bytes | None
    properties: bytes
    born_host: Host
    store_host: Host
    born_timestamp_ms: int
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes | None,
        properties: bytes,
        born_host: Host,
        store_host: Host,
        born_timestamp_ms: int,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> None: ...
    @property
    def has_delay(self) -> bool:
        """Whether its properties contain DELAY, with any value."""
    def replace(self, **changes: object) -> Message:
        """A copy with other values. Raises AttributeError for an unknown field."""

class Placement:
    """The place of a stored message. Offsets are physical, in bytes; times in milliseconds."""

    def __init__(
        self,
        physical_offset: int,
        size: int,
        queue_id: int,
        queue_offset: int,
        store_timestamp_ms: int,
        store_host: Host,
    ) -> None: ...
    @property
    def physical_offset(self) -> int:
        """The record's first byte."""
    @property
    def size(self) -> int:
        """The record's size."""
    @property
    def queue_id(self) -> int:
        """The queue id."""
    @property
    def queue_offset(self) -> int:
        """The queue offset."""
    @property
    def store_timestamp_ms(self) -> int:
        """STORETIMESTAMP."""
    @property
    def store_host(self) -> Host:
        """STOREHOST."""
    @property
    def end(self) -> int:
        """The record's end: the log must be on disk up to it for the message to be durable."""
    @property
    def offset_message_id(self) -> str:
        """32 hex characters (56 when the store's host is an IPv6 address)."""

def encode_record(
    view: memoryview | bytearray,
    position: int,
    message: Message,
    version: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp_ms: int,
) -> int:
    """Write one record and return its size. Raises ValueError when it does not fit or cannot be
    stored.

    TOTALSIZE and MAGICCODE are stored last, so that a killed writer leaves no half record.
    """

def write_blank(view: memoryview | bytearray, position: int, size: int) -> None:
    """Write the 8 bytes of a blank record for ``size`` bytes."""
