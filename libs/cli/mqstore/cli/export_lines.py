"""Runs ``mqstore store export``: walks the log of a store that is recovered in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.message_documents import document_of
from mqstore.cli.message_files import form_of, written
from mqstore.cli.message_selection import Selection
from mqstore.cli.progress import Progress, show_progress
from mqstore.cli.store_command import index_sizes, run_command
from mqstore.cli.times import parse_when
from mqstore.storage import MessageStore, StoreConfig, StoreOptions
from mqstore.storage.errors import StorageError
from mqstore.storage.formats import QUEUED_TYPES, TRANSACTION_MASK, Blank, Record
from mqstore.storage.host import production_seams
from mqstore.storage.topic_names import is_system_topic
from mqstore.storage.verify import walk_log


@dataclass(frozen=True, slots=True)
class Choice:
    """The file and the messages of an export, as given."""

    to: Path | None
    form: str | None
    topics: list[str] | None
    from_time: str | None
    until_time: str | None
    keys: list[str] | None

    @property
    def selection(self) -> Selection:
        """The selected messages. Raises ValueError, also for a time in place of a file."""
        if self.to is not None and _is_time(str(self.to)):
            raise ValueError(f"--to {self.to} is a time, and --to names a file; use --until")
        return Selection.of(self.topics, self.from_time, self.until_time, self.keys)


def run(directory: Path, choice: Choice, hash_slots: int | None, index_num: int | None) -> int:
    """Write all selected messages; the exit code."""
    return run_command(
        lambda: _run(directory, choice, index_sizes(hash_slots, index_num)),
        refuse,
        unread=EXIT_OK,
    )


def _run(directory: Path, choice: Choice, config: StoreConfig) -> int:
    selection = choice.selection
    form = form_of(choice.to, choice.form)
    options = StoreOptions(create=False, in_place=False, services=False)
    with (
        show_progress() as progress,
        written(choice.to, form) as write,  # a refused file ends it before the store is read
        MessageStore.open(directory.absolute(), config, production_seams(), options) as store,
    ):
        export = Export(store, selection)
        for found in export.messages(progress):
            write(document_of(found))
    where = "stdout" if choice.to is None else str(choice.to)
    print(f"mqstore: {export.count} messages to {where}", file=sys.stderr)
    if export.unreadable:
        refuse(f"{export.unreadable} stretches of the log cannot be read, and are left out")
    absent = sorted((selection.topics or frozenset()) - export.topics)
    for topic in absent:
        refuse(f"the log has no message of the topic {topic}")
    return EXIT_FINDINGS if export.unreadable or absent else EXIT_OK


def _is_time(text: str) -> bool:
    try:
        parse_when(text)
    except ValueError:
        return False
    return True


class Export:
    """The messages of one store. Memory use is limited."""

    def __init__(self, store: MessageStore, selection: Selection) -> None:
        self._store = store
        self._selection = selection
        self.count = 0
        self.unreadable = 0
        """Stretches of the log without a readable message."""
        self.topics: set[str] = set()
        """The topics that messages of the log name."""

    def messages(self, progress: Progress) -> Iterator[Record]:
        """Yield the selected messages, in the order of the log."""
        log = self._store.log
        for found in walk_log(log):
            if isinstance(found, Record):
                progress("export", found.physical_offset - log.min_offset, log.max_offset)
                if self._is_selected(found):
                    yield from self._readable(found)
            elif not isinstance(found, Blank):
                self.unreadable += 1

    def _is_selected(self, found: Record) -> bool:
        if found.sys_flag & TRANSACTION_MASK not in QUEUED_TYPES:
            return False
        if is_system_topic(found.topic, self._store.format):
            return False
        self.topics.add(found.topic)
        keys = {*(found.keys or "").split(), found.uniq_key or ""}
        return self._selection.has(found.topic, found.store_timestamp_ms, keys)

    def _readable(self, found: Record) -> Iterator[Record]:
        try:
            yield self._store.lookups.by_physical_offset(found.physical_offset)
        except StorageError:
            self.unreadable += 1
        else:
            self.count += 1
