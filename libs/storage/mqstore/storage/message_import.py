"""Stores messages of another store again in a store that no process has open, with their times.

An import is recorded in ``mqstore/import.json`` before its first message and until its last one is
on disk: its source, and the end of the log at its beginning. After a crash the messages from there
on are those that it had stored, so that the next import of the same source continues behind them.

Called from ``mqstore store import``, through the face module ``puts``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from mqstore.storage.admin.topics import QUEUES_MAX, TopicChange
from mqstore.storage.codec.record import Message, Record, size_of
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import MessageInvalid, StorageError, TopicUnknown
from mqstore.storage.layout import StoreFormat
from mqstore.storage.log.put_checks import (
    PutLimits,
    check_batch,
    check_fields,
    check_message,
    check_size,
)
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import format_file, sealed_json
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.options import Durability, StoreOptions
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import Clock, FileSystem, Seams
from mqstore.storage.system.atomic_file import remove_file
from mqstore.storage.verify import walk_log

SYNC_EVERY: Final = 10_000
"""Messages after which an import waits for the disk."""
_BODY_SIZE: Final = "maxMessageSize"


class ImportRefused(StorageError):
    """Another import into the store was interrupted, its note cannot be read, or the store accepts
    no messages."""


@dataclass(frozen=True, slots=True)
class ImportRules:
    """The rules for messages of one store, known before it is opened."""

    format: StoreFormat
    limits: PutLimits

    @classmethod
    def of(
        cls, files: FileSystem, root: Path, config: StoreConfig, create: StoreFormat | None
    ) -> ImportRules:
        """The rules of a store, or of the one that is made. Raises StoreDamaged, OSError."""
        content = format_file.load(files, StorePaths(files_root(files, root)))
        if content is None:
            store_format = create or StoreFormat.V5_X
            return cls(store_format, PutLimits.of(config, store_format))
        known = {
            "mapped_file_size_commit_log": content.sizes.mapped_file_size_commit_log,
            "max_message_size": (content.settings or {}).get(_BODY_SIZE, config.max_message_size),
        }
        limits = PutLimits.of(config.model_copy(update=known), content.rocketmq_format)
        return cls(content.rocketmq_format, limits)

    def check(self, message: Message) -> None:
        """Raise PutRefused for a message that the store will not accept."""
        check_fields(message)
        version = check_message(message, self.limits)
        check_batch([message], self.limits)
        check_size(size_of(message, version), self.limits)
        if message.queue_id >= QUEUES_MAX:
            raise MessageInvalid(
                f"queue id {message.queue_id}: a topic has at most {QUEUES_MAX} queues"
            )


class ImportNote(Value):
    """The import that was begun and has not ended."""

    magic: Literal["mqstore-import"] = "mqstore-import"
    source: str
    """Identifies the file and the selected messages."""
    start: int
    """Physical offset at which the log ended before the import."""


class ReplayClock:
    """A clock that shows the store time of the message that is stored next.

    It never goes back, and never beyond the real clock. The monotonic clock advances with it, so
    that no step of the clock is seen.
    """

    def __init__(self, clock: Clock, start_ms: int) -> None:
        self._clock = clock
        self._start_ms = self._now_ms = min(start_ms, clock.now_ms())
        self._start_s = clock.monotonic()

    def advance(self, now_ms: int) -> None:
        """Advance to a time; an earlier one changes nothing."""
        self._now_ms = max(self._now_ms, min(now_ms, self._clock.now_ms()))

    def now_ms(self) -> int:
        """The store time of the next message, in ms since the epoch."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds."""
        return self._start_s + (self._now_ms - self._start_ms) / 1000


class MessageImport:
    """One import into an open store, made by ``open_import``."""

    def __init__(self, store: MessageStore, clock: ReplayClock, start: int) -> None:
        self._store = store
        self._clock = clock
        self._start = start
        self._unsynced = 0
        self.format = store.format
        self.host = store.host

    def stored(self) -> Iterator[Record]:
        """Yield the messages that an interrupted import of the same source has stored."""
        for found in walk_log(self._store.log):
            if isinstance(found, Record) and found.physical_offset >= self._start:
                yield self._store.lookups.by_physical_offset(found.physical_offset)

    def make_topics(self, queues: Mapping[str, int]) -> None:
        """Create the topics that are missing, or have fewer queues; durable at return.

        Raises TopicNameError, TopicConfigError, OSError.
        """
        for topic, count in queues.items():
            try:
                known = self._store.topic(topic)
            except TopicUnknown:
                self._store.create_topic(topic, queues=count)
                continue
            if known.queues < count:
                self._store.put_topic(topic, TopicChange(count, count, known.perm))

    def put(self, message: Message, store_time_ms: int) -> None:
        """Store one message at its queue's end with its store time, or the time of the message
        before it where that is later. Raises PutRefused, StoreFailed."""
        self._clock.advance(store_time_ms)
        placements, _ = self._store.append([message], as_batch=True)
        self._unsynced += 1
        if self._unsynced == SYNC_EVERY:
            self.sync(placements[-1].end)

    def sync(self, end: int | None = None) -> None:
        """Wait until what was stored is on disk. Raises FlushTimeout, StoreFailed."""
        self._store.wait(self._store.log.max_offset if end is None else end, Durability.SYNC)
        self._unsynced = 0


@contextmanager
def open_import(
    root: Path,
    config: StoreConfig,
    seams: Seams,
    source: str,
    *,
    first_ms: int,
    create: StoreFormat | None = None,
    restarts: bool = False,
) -> Iterator[MessageImport]:
    """Open a store for an import, and close it; the import has ended if no error is raised.

    ``first_ms`` is the store time of the first message. ``create`` is the format of a store that is
    made where there is none. With ``restarts``, an interrupted import is forgotten.

    Raises ImportRefused where an import of another source was interrupted or the store accepts no
    messages, and as ``MessageStore.open``.
    """
    files, paths = seams.files, StorePaths(files_root(seams.files, root))
    is_new = create is not None and _is_empty(files, paths.root)
    newest_ms, end = (0, 0) if is_new else _newest(root, config, seams)
    note = None if restarts else _load(files, paths)
    if note is not None and note.source != source:
        raise ImportRefused(
            f"an import of {note.source} into {root} was interrupted, and this is {source}: end it "
            "by the same command, or give --restart to forget it; what it stored stays"
        )
    clock = ReplayClock(seams.clock, max(newest_ms, first_ms))
    options = StoreOptions(
        create=is_new,
        format=create,
        deletes=False,
        deliver_delayed=False,
        boot_id=str(uuid.UUID(int=seams.random.getrandbits(128), version=4)),
    )
    with MessageStore.open(root, config, replace(seams, clock=clock), options) as store:
        if store.put_refusal is not None:
            raise ImportRefused(f"nothing was stored: {store.put_refusal.detail}")
        if note is None:
            note = ImportNote(source=source, start=end)
            sealed_json.write(files, paths.import_note, note, in_lines=True)
        found = MessageImport(store, clock, note.start)
        yield found
        found.sync()
    remove_file(files, paths.import_note)


def files_root(files: FileSystem, root: Path) -> Path:
    """The root with its links resolved; the path itself where it does not exist."""
    return root if files.stat(root) is None else files.real_path(root)


def _is_empty(files: FileSystem, root: Path) -> bool:
    return files.stat(root) is None or not files.list(root)


def _newest(root: Path, config: StoreConfig, seams: Seams) -> tuple[int, int]:
    """STORETIMESTAMP of the newest record in ms, and the end of the log."""
    options = StoreOptions(create=False, in_place=False, services=False)
    with MessageStore.open(root, config, seams, options) as store:
        return store.log.last_store_timestamp_ms, store.log.max_offset


def _load(files: FileSystem, paths: StorePaths) -> ImportNote | None:
    """The interrupted import. Raises ImportRefused where its note cannot be read."""
    try:
        return sealed_json.read(files, paths.import_note, ImportNote)
    except ValueError as error:
        raise ImportRefused(
            f"{paths.import_note} cannot be read ({error}); give --restart to forget the import"
        ) from None
