"""``JournaledTable``: a config table whose changes are durable before its file is written whole.

A change costs one line of a journal (``ChangeJournal``), however large the table is. The file
itself, which a broker reads, is written by ``save``: from time to time, and at the close. An
opening applies the journal to the file. Source of the files: TopicConfigManager,
SubscriptionGroupManager and ConsumerFilterManager of 4.9.7 and 5.4.0, which write the whole file at
each change.

Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self, TypeVar

from mqstore.storage.errors import ConfigTableError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import Seams
from mqstore.storage.tables import java_json
from mqstore.storage.tables.change_journal import ChangeJournal, TableChange, decode_lines
from mqstore.storage.tables.table import DATA_VERSION, Source, Table
from mqstore.storage.tables.table_text import JsonObject

SMALL_FILE_MAX: Final = 32 << 10
"""Bytes of a file that is written at each change, as RocketMQ writes it: some hundred topics. A
broker that takes over after a kill then lacks no change."""

_T = TypeVar("_T")


class JournaledTable(Table):
    """One file and its journal. A change is durable after ``save_changes`` or ``save``."""

    def __init__(self, path: Path, store_format: StoreFormat, seams: Seams, journal: Path) -> None:
        super().__init__(path, store_format, seams)
        self._journal = ChangeJournal(seams.files, journal)
        self._appending = Lock()
        """Held while the journal changes; taken before the lock of the memory."""
        self._is_torn = False
        """Whether the journal may end within a line: only ``save`` makes changes durable then."""
        self.on_unsaved: Callable[[], None] = lambda: None
        """Called when the file begins to lack a change that is to be durable."""
        self.on_changes: Callable[[bytes | None], None] = lambda _: None
        """Called with the lines of changes that are durable, in their order; with None where only
        the whole table has them. The caller holds a lock: return at once."""
        self.on_durable: Callable[[], None] = lambda: None
        """Called when changes are on disk, by the thread that made them so: return at once."""
        self.revision = 0
        """Number of changes in memory."""
        self._unsaved: dict[str, bool] = {}
        """Names of entries whose change no file has, with whether each was new."""
        self._printed: dict[str | int, str] = {}
        """Text of each entry that has not changed since it was printed."""
        self._values: dict[str | int, Any] = {}
        """Results of ``_value``, by entry, until the entry changes."""

    @classmethod
    def empty(cls, paths: StorePaths, store_format: StoreFormat, seams: Seams) -> Self:
        """The table without entries; no file is read."""
        name = cls.file_name
        return cls(paths.config / name, store_format, seams, paths.journal_of(name))

    @classmethod
    def settle_after_broker(
        cls, paths: StorePaths, store_format: StoreFormat, seams: Seams
    ) -> None:
        """Keep only the new entries of the journal, durably: a broker has had the file since, and
        may have changed all others. Raises ConfigTableError, OSError."""
        table = cls.empty(paths, store_format, seams)
        changes, _ = decode_lines(table._journal.load())
        if changes:
            super(JournaledTable, table)._load()
            new = {each.name for each in changes if each.is_new} - table.entries.keys()
            kept = [each.encode() for each in changes if each.name in new]
            table._journal.keep(b"".join(kept))

    def _load(self) -> None:
        # The journal first: what a save removes from it meanwhile is then in the file.
        lines = self._journal.load()
        super()._load()
        changes, damaged = decode_lines(lines)
        self._apply(changes)
        self._is_torn = damaged > 0 or len(lines) > self._journal.size
        if damaged:
            what = f"{damaged} changes of {self.path.name} are damaged in its journal"
            self.problem = "; ".join(filter(None, (self.problem, what)))

    def follow(self) -> bool:
        """Apply the changes that another process has made since; False when the file may have
        them instead: it must then be loaded again. Raises OSError."""
        with self._appending:
            lines = self._journal.read_new()
        if lines:
            self._apply(decode_lines(lines)[0])
        return lines is not None

    @property
    def is_saved(self) -> bool:
        """Whether the file has every durable change."""
        return not self._journal.size and not self._is_torn

    def names(self) -> set[str]:
        """The names of the entries."""
        with self._lock:
            return {str(name) for name, found in self.entries.items() if isinstance(found, dict)}

    def save_changes(self) -> None:
        """Make all changes so far durable, those of other threads too, at a cost that does not
        depend on the size of the table. The file of a small table has them at return, too. Raises
        OSError; a later call then saves them."""
        with self._appending:
            was_saved = self.is_saved
            self._append_changes()
        try:
            if self._is_torn or self.saved_size <= SMALL_FILE_MAX:
                self.save()
        finally:
            if was_saved and not self.is_saved:
                self.on_unsaved()
        self.on_durable()

    def save(self, await_log: Callable[[], object] = lambda: None) -> None:
        """Write the file, unless it has this content, and remove the changes that it has from the
        journal: ``.bak`` keeps the content before the last change.

        Errors as ``Table.save``."""
        with self._saving:
            with self._appending:
                end, was_torn = self._journal.size, self._is_torn
                content = self.text().encode()
            if content != self._saved or self.source is not Source.FILE:
                self._write(content, await_log)
            with self._appending:
                self._journal.drop(end)
                self._is_torn = self._is_torn and not was_torn
        self.on_durable()

    def adopt_changes(self, lines: str) -> list[str]:
        """Apply changes of another store's table, as ``on_changes`` has them; durable at return.

        Returns the names of the entries. Raises OSError; ConfigTableError, and nothing changes.
        """
        changes, damaged = decode_lines(lines.encode())
        if damaged or not changes:
            raise ConfigTableError(f"these are no changes of {self.file_name}")
        with self._lock:
            known = [(change, change.name in self.entries) for change in changes]
            self._apply(changes)
            for change, is_known in known:
                self._note(change.name, is_new=not is_known)
        self.save_changes()
        return [change.name for change in changes]

    def text(self) -> str:
        """The text that ``save`` writes; only changed entries are printed anew."""
        with self._lock:
            tree, printed = self._tree_to_save(), self._printed
            entries = tree[self.table_name]
            for name in entries.keys() - printed.keys():
                printed[name] = java_json.dump_member(name, entries[name], self._format)
            tree[self.table_name] = java_json.Printed(map(printed.__getitem__, entries))
            return java_json.dump(tree, self._format)

    def _apply(self, changes: Iterable[TableChange]) -> None:
        with self._lock:
            for change in changes:
                self._forget(change.name)
                if change.value is None:
                    self.entries.pop(change.name, None)
                else:
                    self.entries[change.name] = change.value
                if change.version is not None:
                    self.data[DATA_VERSION] = change.version

    def _value(self, name: str, make: Callable[[str, JsonObject], _T]) -> _T | None:
        """Return what ``make`` makes of an entry, once until it changes; None without one. The
        caller holds the lock."""
        known: _T | None = self._values.get(name)
        if known is None and isinstance(found := self.entries.get(name), dict):
            known = self._values[name] = make(name, found)
        return known

    def _put(self, name: str, value: JsonObject) -> None:
        """Add or replace an entry, in memory. The caller holds the lock."""
        is_new = self._unsaved.get(name, name not in self.entries)
        self.entries[name] = value
        self._note(name, is_new=is_new)

    def _pop(self, name: str) -> bool:
        """Remove an entry, in memory; returns whether there was one. The caller holds the lock."""
        if self.entries.pop(name, None) is None:
            return False
        self._note(name, is_new=False)
        return True

    def _note(self, name: str, *, is_new: bool) -> None:
        self._forget(name)
        self._unsaved[name] = is_new

    def _forget(self, name: str | int) -> None:
        """Drop what was made of an entry that changes. The caller holds the lock."""
        self.revision += 1
        self._printed.pop(name, None)
        self._values.pop(name, None)

    def _forget_all(self) -> None:
        self.revision += 1
        for made in (self._printed, self._values, self._unsaved):
            made.clear()

    def _append_changes(self) -> None:
        """Append to the journal; where that fails, the file is to be saved instead."""
        if self._is_torn:
            self.on_changes(None)
            return
        changes = self._take_changes()
        if not changes:
            return
        lines = b"".join(change.encode() for change in changes)
        try:
            self._journal.append(lines)
        except OSError:
            self._is_torn = True
        self.on_changes(None if self._is_torn else lines)

    def _take_changes(self) -> list[TableChange]:
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
            entries, version = self.entries, self.data.get(DATA_VERSION)
            return [
                TableChange(name, entries.get(name), is_new, version)
                for name, is_new in unsaved.items()
            ]
