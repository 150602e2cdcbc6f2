"""A batch in RocketMQ's encoding, checked, and the rules for its names."""

from collections.abc import Sequence
from typing import final

from mqstore.storage.kernel.write import Message

class NameRules:
    """The properties that producers may give, as far as the kernel checks them. Immutable."""

    def __init__(self, free: Sequence[bytes], refused: Sequence[bytes]) -> None:
        """Names in ``free`` need no check, those in ``refused`` are not plain; any other must be
        printable ASCII, as must its value."""

@final
class EncodedBatch:
    """Messages of one topic and queue, checked and not stored. Made by ``LogEnd.read_batch``."""

    @property
    def message(self) -> Message:
        """The fields that all messages share."""
    @property
    def data(self) -> bytes:
        """The batch in RocketMQ's encoding (``codec.batch``)."""
    @property
    def digests(self) -> bytes:
        """``key_digests`` of ``keys``."""
    @property
    def keys(self) -> list[str]:
        """Each message's unique key, "" without one."""
    def __len__(self) -> int: ...
