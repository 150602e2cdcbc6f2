"""Records to put, in the form in which everything is put."""

from collections.abc import Sequence
from typing import final

from mqstore.storage.kernel.write import Message, Placement

@final
class EncodedBatch:
    """Messages, checked and not stored. Made by ``LogEnd.encode`` and ``Sends``."""

    @property
    def topic(self) -> str:
        """The topic of the first message."""
    @property
    def digests(self) -> bytes | None:
        """``key_digests`` of ``given``; None without such keys."""
    @property
    def keys(self) -> list[str]:
        """Each message's unique key, "" without one."""
    @property
    def given(self) -> list[str | None] | None:
        """The unique keys that the client gave; None where it gave none."""
    @property
    def ordering(self) -> list[str | None] | None:
        """The ordering keys of what ``Sends`` read; None where there is none."""
    @property
    def has_delay(self) -> bool:
        """Whether properties name a delay, of any value."""
    @property
    def is_changed(self) -> bool:
        """Whether messages are changed before they are put: for a delay, or further queues."""
    @property
    def size(self) -> int:
        """The size of all records in bytes."""
    @property
    def counts(self) -> dict[tuple[str, int], int]:
        """The number of records that each queue gets, by topic and queue id."""
    @property
    def end(self) -> int:
        """The end of the records, a physical offset, once they are put."""
    @property
    def placements(self) -> list[Placement]:
        """The places of the records, once they are put."""
    def __len__(self) -> int: ...
    def messages(self) -> list[Message]:
        """Each message by itself."""
    def only(self, numbers: list[int]) -> EncodedBatch:
        """A batch of some of the messages, one at least, by number."""
    def name_all(self, keys: Sequence[str | None]) -> None:
        """Set ``given``, of as many keys as there are messages."""
