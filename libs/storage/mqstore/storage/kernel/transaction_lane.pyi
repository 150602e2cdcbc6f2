"""Begins and decisions of transactions of one message, each stored in one call."""

from typing import Any, Literal, final

from mqstore.storage.kernel.batch import NameRules
from mqstore.storage.kernel.put import LogEnd
from mqstore.storage.kernel.sends import GeneratedKeys, PropertyWriter
from mqstore.storage.kernel.write import Placement

@final
class BeginRequest:
    """A begin of one message, which is encoded."""

    @property
    def group(self) -> str:
        """The producer group."""
    @property
    def topic(self) -> str:
        """The message's topic, which may be none that messages can be sent to."""
    @property
    def key(self) -> str:
        """The message's unique key, which is the transaction's."""
    @property
    def has_key(self) -> bool:
        """Whether the client gave the key; otherwise it was generated."""
    @property
    def queue_id(self) -> int:
        """The queue that the request names, or -1."""
    @property
    def born_ms(self) -> int:
        """When it was read."""
    @property
    def body(self) -> bytes:
        """The message's body, of one byte at least."""
    @property
    def properties(self) -> bytes:
        """The message's properties, encoded, with a separator behind the last one."""
    @property
    def flag(self) -> int:
        """The message's flag."""

@final
class BeginReader(PropertyWriter):
    """Encodes begins of one message. Any thread."""

    def __init__(self, rules: NameRules, keys: GeneratedKeys) -> None:
        """``rules`` are those of user properties."""
    def read(self, group: str, topic: str, message: Any, now_ms: int) -> BeginRequest | None:
        """Encode a message (``NewHalf`` of mqstore.wire.transactions).

        None for one that may have to be refused, and where another month has begun.
        """

@final
class TransactionLane:
    """Stores half messages and decisions. For one thread at a time; others may put.

    A method returns None, and nothing is stored, while the store takes no put in one call
    (``LogEnd.put``), and where the next record of the half or op queue would not get the given
    queue offset.
    """

    def __init__(
        self, end: LogEnd, keys: GeneratedKeys, host: tuple[bytes, int], is_5x: bool
    ) -> None:
        """``keys`` generates the unique keys of op records, ``host`` is the store's."""
    def begin(
        self, begin: BeginRequest, queue_id: int, queue_offset: int, born_host: tuple[bytes, int]
    ) -> Placement | None:
        """Store the half message of a message to this queue of its topic."""
    def decide(
        self,
        key: str,
        half: tuple[int, int, int],
        place: tuple[str, int] | None,
        op_offset: int,
        verdict: Literal["commit", "rollback"],
        why: str,
    ) -> tuple[list[Placement], int] | None:
        """Store a decision; return the placements and the time of the decision.

        ``half`` is the physical offset, the size and the queue offset of the half message, and
        ``place`` the topic and queue of its message, which is stored before the op record; None
        stores the op record alone. The message is made from the half message's bytes in the log:
        None if these are not in memory, not in the segment of the log's end, damaged, or not plain.
        """
