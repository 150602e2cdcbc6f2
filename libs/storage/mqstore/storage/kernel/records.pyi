"""Records to put, in the form in which everything is put."""

from typing import final

from mqstore.storage.kernel.write import Message

@final
class EncodedBatch:
    """Messages, checked and not stored. Made by ``LogEnd.encode`` and ``LogEnd.read_batch``."""

    @property
    def message(self) -> Message:
        """The fields that all messages share; of ``read_batch`` only."""
    @property
    def data(self) -> bytes:
        """The batch in RocketMQ's encoding (``codec.batch``); of ``read_batch`` only."""
    @property
    def digests(self) -> bytes:
        """``key_digests`` of ``keys``; of ``read_batch`` only."""
    @property
    def keys(self) -> list[str]:
        """Each message's unique key, "" without one."""
    @property
    def size(self) -> int:
        """The size of all records in bytes."""
    @property
    def counts(self) -> dict[tuple[str, int], int]:
        """The number of records that each queue gets, by topic and queue id."""
    def __len__(self) -> int: ...
