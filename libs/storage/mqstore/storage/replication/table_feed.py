"""The changes of a leader's tables, numbered, for its followers.

A change has a version. A follower that has the tables up to a version is sent what changed since:
the lines of changes of a table that has a journal, while they are kept, else the whole table. Lines
have whole entries, so a table that is read a little later than its version, and lines that it has
already, do no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import Final, NamedTuple

KEPT_BYTES_MAX: Final = 1 << 20
"""Bytes of lines that are kept for each table; a follower that is further behind gets it whole."""


class TableName(StrEnum):
    """The tables that followers copy."""

    DELETED_TOPICS = "deletedTopics"
    TOPICS = "topics"
    GROUPS = "groups"
    FILTERS = "filters"
    CONSUMER_OFFSETS = "consumerOffsets"
    DELAY_OFFSETS = "delayOffsets"
    WRITE_PAUSE = "writePause"
    DEAD_LETTERS = "deadLetters"
    ORDERED_GROUPS = "orderedGroups"
    EXPIRED_UNREAD = "expiredUnread"
    KEY_OWNERS = "keyOwners"


BEFORE_LOG: Final = frozenset({TableName.DELETED_TOPICS})
"""Tables that a follower needs before the log that follows their change: its records would get
entries in queues that are about to be removed."""
NOTHING: Final = 0
"""The version of a follower that has no tables."""


class TableUpdate(NamedTuple):
    """The content of a table, or changes of it."""

    table: TableName
    text: str
    is_whole: bool
    is_forced: bool
    """Whether it is to be on the follower's disk before the version counts."""


class TableBatch(NamedTuple):
    """Updates after which a follower has the tables of a version; of NOTHING: some of them."""

    version: int
    updates: tuple[TableUpdate, ...]


@dataclass(slots=True)
class _Table:
    """The changes of one table."""

    text: Callable[[], str]
    changed: int = 1
    """Version of the last change."""
    forced: int = 1
    """Version of the last change that is to be on the followers' disks."""
    whole: int = 1
    """Lines are kept of all changes after this version."""
    lines: deque[tuple[int, bytes]] = field(default_factory=deque)
    size: int = 0
    """Bytes of the lines."""

    def keep(self, version: int, lines: bytes | None) -> None:
        """Keep the lines of a change, and forget the oldest; None: there are none."""
        if lines is None:
            self.lines.clear()
            self.size, self.whole = 0, version
            return
        self.lines.append((version, lines))
        self.size += len(lines)
        while self.size > KEPT_BYTES_MAX:
            self.whole, oldest = self.lines.popleft()
            self.size -= len(oldest)

    def lines_after(self, version: int) -> str | None:
        """The lines of all changes after a version; None where they are not kept."""
        if version < self.whole:
            return None
        return b"".join(lines for at, lines in self.lines if at > version).decode()


class TableFeed:
    """The tables of one open store. Thread-safe."""

    def __init__(self, texts: Mapping[TableName, Callable[[], str]]) -> None:
        """``texts`` return the whole tables."""
        self.version = 1
        """Version of the last change."""
        self.forced = 1
        """Version of the last change whose reply waits for followers."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change, in its thread, maybe with a lock held: return at once."""
        self._tables = {name: _Table(text) for name, text in texts.items()}
        self._lock = Lock()
        self._revisions: dict[TableName, Callable[[], int]] = {}
        self._seen: dict[TableName, int] = {}

    def note(self, table: TableName, lines: bytes | None = None, *, is_forced: bool = True) -> None:
        """Note that a table has changed: by these lines, or as a whole. ``is_forced``: its reply
        waits for followers."""
        with self._lock:
            self.version += 1
            found = self._tables[table]
            found.changed = self.version
            if is_forced:
                found.forced = self.forced = self.version
            found.keep(self.version, lines)
        self.on_change()

    def look_at(self, table: TableName, revision: Callable[[], int]) -> None:
        """Have ``refresh`` note changes of a table, whose number ``revision`` returns."""
        self._revisions[table], self._seen[table] = revision, revision()

    def refresh(self) -> None:
        """Note the changes of tables that do not note each of theirs."""
        for table, revision in self._revisions.items():
            found = revision()
            if found != self._seen[table]:
                self._seen[table] = found
                self.note(table, is_forced=False)

    def changed(self, after: int, tables: Iterable[TableName]) -> int:
        """The version of the last change of some tables, if there was one after a version; else
        that version."""
        return max([after, *(self._tables[table].changed for table in tables)])

    def take(self, after: int) -> TableBatch:
        """Return the changes after a version, without those of ``BEFORE_LOG``. Long tables take
        time. Raises OSError."""
        with self._lock:
            version = self.version
            wanted = [
                (name, table.lines_after(after), table.forced > after, table)
                for name, table in self._tables.items()
                if table.changed > after and name not in BEFORE_LOG
            ]
        updates = [
            TableUpdate(name, table.text() if lines is None else lines, lines is None, is_forced)
            for name, lines, is_forced, table in wanted
        ]
        return TableBatch(version, tuple(updates))

    def take_before_log(self) -> TableBatch:
        """Return the tables of ``BEFORE_LOG``. Raises OSError."""
        return TableBatch(
            NOTHING,
            tuple(
                TableUpdate(name, table.text(), is_whole=True, is_forced=True)
                for name, table in self._tables.items()
                if name in BEFORE_LOG
            ),
        )
