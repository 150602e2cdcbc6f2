"""Copies a leader's tables: topics, groups, subscriptions, offsets, and metadata of ours.

A broker sends whole tables, in the JSON of their files (SlaveSynchronize of 4.9.7); its offsets may
be ahead of the log that has arrived. A leader of mqstore sends what has changed (``table_feed``).
Offsets are saved after a sync of the log, and an opening of the store for writing lowers those that
are behind their queue's end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mqstore.storage.errors import ConfigTableError
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.expired_unread import ExpiredUnread
from mqstore.storage.metadata.write_pause import WritePause
from mqstore.storage.replication.leader_survey import LeaderSurvey
from mqstore.storage.replication.table_feed import TableBatch, TableName, TableUpdate
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.atomic_file import remove_file, replace_file
from mqstore.storage.tables.config_tables import ConsumerOffsets, TopicTable
from mqstore.storage.tables.consumer_filters import ConsumerFilters
from mqstore.storage.tables.journaled_table import JournaledTable
from mqstore.storage.tables.subscription_groups import SubscriptionGroups


@dataclass(frozen=True, slots=True)
class CopiedTables:
    """The tables of a follower, and the functions that change what depends on them."""

    topics: TopicTable
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    filters: ConsumerFilters
    write_pause: WritePause
    expired: ExpiredUnread
    adopt_delays: Callable[[str], None]
    """``DelayedMessages.adopt``."""
    adopt_deletions: Callable[[str], None]
    """``Topics.adopt_deletions``."""
    adopt_filters: Callable[[list[str]], None]
    """``Subscriptions.adopt_topics``."""
    save_offsets: Callable[[], None]
    """``GroupOffsets.save``."""


class TableCopies:
    """Replaces the tables of a store that follows a leader by the leader's. Thread-safe.

    Each method raises ConfigTableError for a text that is no such table, which changes nothing; and
    FlushTimeout, StoreFailed, OSError.
    """

    def __init__(self, tables: CopiedTables, files: FileSystem, metadata: dict[TableName, Path]):
        """``metadata``: the files that are read when the store begins to lead."""
        self._tables = tables
        self._files = files
        self._metadata = metadata
        self.survey = LeaderSurvey()
        """Judges the tables of a broker that is followed."""
        self._takers: dict[TableName, Callable[[TableUpdate], object]] = {
            TableName.TOPICS: lambda update: _adopt(tables.topics, update),
            TableName.GROUPS: lambda update: _adopt(tables.groups, update),
            TableName.FILTERS: self._take_filters,
            TableName.CONSUMER_OFFSETS: self._take_offsets,
            TableName.DELAY_OFFSETS: lambda update: tables.adopt_delays(update.text),
            TableName.DELETED_TOPICS: lambda update: tables.adopt_deletions(update.text),
            TableName.WRITE_PAUSE: self._take_pause,
            TableName.EXPIRED_UNREAD: lambda update: tables.expired.adopt(update.text),
            **dict.fromkeys(metadata, self._take_file),
        }

    def take(self, batch: TableBatch) -> None:
        """Take the changes of a leader of mqstore; those that are forced are durable at return."""
        for update in batch.updates:
            self._takers[update.table](update)

    def take_whole(self, table: TableName, text: str) -> None:
        """Take a table of a broker. Consumer offsets are saved with their next save.

        Raises LeaderLogRefused for what mqstore cannot serve; nothing of the table is taken.
        """
        self.survey.take_table(table, text)
        self._takers[table](TableUpdate(table, text, is_whole=True, is_forced=False))

    def _take_filters(self, update: TableUpdate) -> None:
        self._tables.adopt_filters(_adopt(self._tables.filters, update))

    def _take_offsets(self, update: TableUpdate) -> None:
        self._tables.offsets.adopt(update.text)
        if update.is_forced:
            self._tables.save_offsets()

    def _take_pause(self, update: TableUpdate) -> None:
        self._take_text(self._tables.write_pause.path, update)
        self._tables.write_pause.reload()

    def _take_file(self, update: TableUpdate) -> None:
        self._take_text(self._metadata[update.table], update)

    def _take_text(self, path: Path, update: TableUpdate) -> None:
        """Replace a sealed file, or remove it where the leader has none."""
        content = update.text.encode()
        if content:
            try:
                sealed_json.unseal(content)
            except ValueError as error:
                raise ConfigTableError(f"this is no {path.name} ({error})") from error
            replace_file(self._files, path, content)
        elif self._files.stat(path) is not None:
            remove_file(self._files, path)


def read_sealed(files: FileSystem, path: Path) -> str:
    """Return the text of a sealed file; empty without one. Raises OSError."""
    return "" if files.stat(path) is None else files.read(path).decode()


def _adopt(table: JournaledTable, update: TableUpdate) -> list[str]:
    """Apply an update, durably; return the names of the entries that may have changed."""
    if not update.is_whole:
        return table.adopt_changes(update.text)
    before = table.names()
    if not table.adopt(update.text):
        return []
    table.save()
    return sorted(before | table.names())
