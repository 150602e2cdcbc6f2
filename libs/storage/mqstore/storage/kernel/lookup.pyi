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

class _Blocks(Protocol):
    """The files of a queue."""

    def block(self, index: int) -> tuple[memoryview, int] | None: ...

class LogWindow:
    """The log as one process has it mapped in one epoch; reads plain records by itself.

    A record is plain when it is whole and no tombstone, and its blocks match their checksums; where
    those do not cover all of it, its body matches BODYCRC. Any other record gives None, or ends a
    run of entries. For any thread.

    A look-up copies bytes, checks the copy, and returns it if the epoch is still the one in which
    it began, and ``changing`` was 0 then.
    """

    def __init__(
        self,
        epoch: Word,
        minimum: Word,
        maximum: Word,
        dispatched: Word,
        index_complete: Word,
        changing: Word,
        log_end: Word | None = None,
    ) -> None:
        """Records from ``maximum`` to ``log_end`` are there, and readers may not see them yet."""
    @property
    def epoch(self) -> int:
        """The epoch at the last ``renew``."""
    def renew(self) -> int:
        """Forget expired segments, and all of them when the epoch has changed; returns the
        epoch."""
    def forget(self) -> None:
        """Forget all segments."""
    def find(self, offset: int) -> Segment | None:
        """The known segment that holds an offset, or None."""
    def add(self, segment: Segment, most: int, epoch: int) -> None:
        """Add a segment, in place of one at the same base; all others are forgotten when there are
        ``most``. Does nothing when ``epoch``, in which its file was mapped, is not the present
        one."""
    def record_at(self, kind: type[R], offset: int) -> R | None:
        """Read the record that begins at a physical offset, as class ``kind``; None when it is not
        plain."""
    def record_by_id(self, kind: type[R], text: str) -> R | None:
        """Read the record of an offset message id, stored under the host that the id names, or
        None."""
    def slice_at(self, offset: int) -> bytes | None:
        """Read the bytes of the record that begins at a physical offset, or None."""
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
        """Read the records that consecutive queue entries name, while they are plain.

        ``entries[position:]`` begins with entry ``index``; at most ``count`` of them are read,
        below the dispatched offset. A plain record also agrees with its entry, ``topic`` and
        ``queue_id``. Ends where a further record would make ``taken``, the bytes of the answer so
        far, more than ``max_bytes``. Returns the records, ``taken`` with theirs, and whether one of
        these bounds was reached. Returns no record when the epoch changed.
        """
    def read_tagged(
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
        """Read as ``records``, but only records with one of the tags: at most ``count`` of at most
        ``most`` entries.

        Ends where an entry's unit or a record is not plain. Returns the records, the number of
        passed entries, ``taken`` with the records, and whether ``count`` or ``max_bytes`` was
        reached.
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
        """Read as ``records``, as bytes one after the other.

        Returns them in as few pieces as possible, the number of records, ``taken`` and whether a
        bound was reached.
        """
    def find_by_key(
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
        """Find the records under a key, newest first, ``limit`` at most, without a cursor.

        Store times include both ends. Only records below ``below`` count. None also where dispatch
        is behind the log's end, where over 255 items of one file have the key's hash, and for text
        that bytes cannot be compared with (invalid Unicode, U+FFFD).
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
        """Pull ``count`` plain records of a queue, or as many as ``max_bytes`` allow; None where
        there are fewer, or ``count`` is over ``most``. ``answer`` is Pull or Slices."""

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
        """The present files, oldest first; None where a search cannot read them."""
