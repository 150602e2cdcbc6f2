"""Look-ups that are plain, each in one call."""

from typing import Protocol, TypeVar

from mqstore.storage._kernel import R, Word
from mqstore.storage.codec.record import Record
from mqstore.storage.kernel.entries import Pull, Slices
from mqstore.storage.kernel.filter import Tags
from mqstore.storage.kernel.key_search import KeyAnswer
from mqstore.storage.kernel.segment import Segment
from mqstore.storage.lookup.answers import PullStatus
from mqstore.storage.lookup.views import QueueView

A = TypeVar("A", "Pull", "Slices")

class LogWindow:
    """The log as one process has it mapped in one epoch; reads what is plain by itself.

    Plain: a record begins there and is whole, it is no tombstone, and its blocks are as their
    checksums say; where those do not cover all of it, its body is as BODYCRC says. Anything else is
    answered by None, or ends a run of entries. For any thread.

    A look-up copies bytes, checks the copy, and answers it where the epoch is still the one that it
    began in, and ``changing`` was 0 then.
    """

    def __init__(
        self,
        epoch: Word,
        minimum: Word,
        maximum: Word,
        dispatched: Word,
        index_complete: Word,
        changing: Word,
    ) -> None: ...
    @property
    def epoch(self) -> int:
        """As it was when this was renewed last."""
    def renew(self) -> int:
        """Forget segments that expired, and all of them when the epoch moved; the epoch."""
    def forget(self) -> None:
        """Forget all segments."""
    def find(self, offset: int) -> Segment | None:
        """The known segment that holds an offset."""
    def add(self, segment: Segment, most: int, epoch: int) -> None:
        """Know a segment, in place of one at the same base; all others are forgotten when there
        are ``most``. Nothing where ``epoch``, in which its file was mapped, is not this one's."""
    def record_at(self, kind: type[R], offset: int) -> R | None:
        """The record that begins at a physical offset, of class ``kind``."""
    def record_by_id(self, kind: type[R], text: str) -> R | None:
        """The record of an offset message id, stored under the host that the id names."""
    def slice_at(self, offset: int) -> bytes | None:
        """The bytes of the record that begins at a physical offset."""
    def records(
        self,
        kind: type[R],
        entries: memoryview,
        position: int,
        topic: bytes,
        queue_id: int,
        index: int,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[list[R], int, bool]:
        """The records that consecutive queue entries name, as far as they are plain.

        ``entries[position:]`` begins with entry ``index``; at most ``count`` of them are read,
        below the dispatched offset. Plain is also that the record says of itself what the entry,
        ``topic`` and ``queue_id`` do. Ends where a further record would make ``taken``, the bytes
        of the answer so far, more than ``max_bytes``. Returns the records, ``taken`` with theirs,
        and whether one of these bounds was reached. Nothing where the epoch moved.
        """
    def tagged(
        self,
        kind: type[R],
        tags: Tags,
        entries: memoryview,
        position: int,
        topic: bytes,
        queue_id: int,
        index: int,
        most: int,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[list[R], int, int, bool]:
        """As ``records``, of those that have one of the tags: at most ``count`` of at most ``most``
        entries.

        Ends where an entry's unit or a record is not plain. Returns the records, how many entries
        were passed, ``taken`` with the records, and whether ``count`` or ``max_bytes`` was reached.
        """
    def slices(
        self,
        entries: memoryview,
        position: int,
        topic: bytes,
        queue_id: int,
        index: int,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[list[bytes], int, int, bool]:
        """As ``records``, their bytes one after the other.

        Returns them in as few pieces as can be, how many records they are, ``taken`` and whether a
        bound was reached.
        """
    def first_at(self, queue: QueueView, timestamp_ms: int) -> int | None:
        """The first entry of a queue whose record was stored at or after a time, by a binary search
        over store times; the queue's maximum where there is none. None where any entry that it
        looks at is not plain."""
    def keyed(
        self,
        kind: type[Record],
        index: _Index,
        topic: str,
        key: str,
        from_ms: int,
        to_ms: int,
        uniq_key_only: bool,
        below: int,
        limit: int,
    ) -> KeyAnswer | None:
        """The records under a key, newest first, ``limit`` at most, and no cursor.

        Store times include both ends. Only what lies below ``below`` counts. None also where
        dispatch is behind the log's end, where over 255 items of one file have the key's hash, and
        for text that bytes alone cannot be compared with (invalid Unicode, U+FFFD).
        """

    def pull(
        self,
        answer: type[A],
        status: PullStatus,
        kind: type[Record],
        queue: QueueView,
        offset: int,
        count: int,
        most: int,
        max_bytes: int,
    ) -> A | None:
        """``count`` plain records of a queue, or as many as ``max_bytes`` allow; None where there
        are fewer, and where ``count`` is over ``most``. ``answer`` is Pull or Slices."""

class _IndexFile(Protocol):
    @property
    def view(self) -> memoryview: ...
    @property
    def slots(self) -> int: ...
    @property
    def index_num(self) -> int: ...

class _Index(Protocol):
    @property
    def files(self) -> tuple[_IndexFile, ...] | None:
        """As they are now, oldest first; None where a search cannot read them."""
