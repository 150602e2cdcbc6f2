"""The parts of a store that sessions use: those of ``MessageStore``, or of a simulated one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from mqstore.storage.metadata.log_history import LogHistory
from mqstore.storage.replication.table_feed import TableBatch, TableFeed


class ReadLog(Protocol):
    """``LogStream``."""

    @property
    def start(self) -> int:
        """The first offset."""

    @property
    def end(self) -> int:
        """The end of the readable bytes."""

    @property
    def last_segment(self) -> int:
        """The first offset of the last segment."""

    def take(self, offset: int, size: int) -> bytes | None:
        """Return up to ``size`` bytes if they need no disk, else None. Raises RecordExpired."""

    def read(self, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes. Raises RecordExpired, OSError."""


class ReceivedLog(Protocol):
    """``LogReceiver``."""

    @property
    def end(self) -> int:
        """The end of the whole records."""

    def has_room(self, size: int) -> bool:
        """Whether the next ``size`` bytes need no other segment."""

    def append(self, offset: int, data: bytes) -> int:
        """Append a leader's bytes; returns the end of the whole records."""


class CopiedTables(Protocol):
    """``TableCopies``."""

    def take(self, batch: TableBatch) -> None:
        """Take the changes of a leader, durably where they are forced."""


class HeldLog(Protocol):
    """``CommitLog``."""

    @property
    def max_offset(self) -> int:
        """The end of the log."""

    @property
    def flushed_offset(self) -> int:
        """The end of the bytes on disk."""


class ComparedLog(Protocol):
    """``LogEpochs``."""

    @property
    def history(self) -> LogHistory:
        """The epochs and bounds of the log."""

    @property
    def is_compared(self) -> bool:
        """Whether the log has epochs by which it is compared with that of a leader."""

    def adopt(self, leader: LogHistory) -> None:
        """Take over the epochs of a leader, durably. Raises OSError."""


class ReplicaStore(Protocol):
    """``MessageStore``."""

    @property
    def store_id(self) -> str:
        """Id of the store."""

    @property
    def epochs(self) -> ComparedLog:
        """The epochs of the log."""

    @property
    def log(self) -> HeldLog:
        """The log."""

    @property
    def log_stream(self) -> ReadLog:
        """Its bytes."""

    @property
    def table_feed(self) -> TableFeed:
        """The changes of a leader's tables."""

    @property
    def receiver(self) -> ReceivedLog | None:
        """Appends the bytes of a leader; None where the store leads."""

    @property
    def table_copies(self) -> CopiedTables | None:
        """Takes the tables of a leader; None where the store leads."""

    def confirm(self, offset: int, in_sync: int) -> None:
        """Publish what all copies in sync have, and their number."""


class Step(msgspec.Struct, frozen=True, gc=False):
    """Work that bytes of the other side cause. Each step ends before the next one begins."""

    run: Callable[[], Any]
    """Reads or writes files, in any thread."""
    is_quick: bool
    """Whether it takes no longer than the way to a thread."""
    reply: Callable[[Any], bytes]
    """Called with the result, on the thread of the session; returns bytes to send."""
