"""Verifies checkpoint, config tables and our own files, and finds stray files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from mqstore.storage import inventory, own_files
from mqstore.storage.delay.timer_files import WHEEL_SIZE, timer_log_file_size
from mqstore.storage.inventory import Subject, Verdict
from mqstore.storage.layout import CHECKPOINT_SIZE, StoreFormat
from mqstore.storage.metadata import (
    clock_steps,
    expired_unread,
    key_owners,
    manifest,
    sealed_json,
    settled_letters,
    store_lock,
    write_pause,
)
from mqstore.storage.metadata.format_file import FormatFile, read_broker_conf
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.own_files import OwnFile
from mqstore.storage.recovery import accepted_loss
from mqstore.storage.recovery.report import RecoveryReport
from mqstore.storage.retention import archive, pins
from mqstore.storage.seams import FileSystem
from mqstore.storage.tables import offsets_file, table_text
from mqstore.storage.tables.change_journal import decode_lines
from mqstore.storage.tables.config_tables import TopicTable
from mqstore.storage.tables.consumer_filters import ConsumerFilters
from mqstore.storage.tables.subscription_groups import SubscriptionGroups
from mqstore.storage.verify.broker import refuses_file
from mqstore.storage.verify.finding import REFUSES, REMOVES, Finding, Kind
from mqstore.storage.verify.store_at_rest import StoreAtRest

_BACKUP_SUFFIX: Final = ".bak"
_JSON_SUFFIX: Final = ".json"
_TIMER_METRICS: Final = "timermetrics"
_READ_BY_BOTH: Final = frozenset(
    {"topics.json", "subscriptionGroup.json", "consumerFilter.json", "delayOffset.json"}
)
_READ_AT_START: Final = {
    StoreFormat.V4_9: _READ_BY_BOTH,
    StoreFormat.V5_X: _READ_BY_BOTH
    | {"topicQueueMapping.json", "consumerOrderInfo.json", _TIMER_METRICS},
}
"""Those besides the offsets of groups."""
_INVENTORY: Final = {Verdict.REFUSED: Kind.STATE_REFUSED, Verdict.NAMED: Kind.STATE_NAMED}
_JOURNALED: Final = tuple(
    table.file_name for table in (TopicTable, SubscriptionGroups, ConsumerFilters)
)
"""Files of ``config`` whose changes may still be in a journal of ours."""
_READERS: Final[Mapping[OwnFile, Callable[[FileSystem, Path], object]]] = {
    own_files.ARCHIVE: archive.read,
    own_files.CLEAN_CLOSE: manifest.read,
    own_files.CLOCK: clock_steps.read,
    own_files.DEAD_LETTERS: settled_letters.read,
    own_files.EXPIRED_UNREAD: expired_unread.read,
    own_files.KEY_OWNERS: key_owners.read,
    own_files.PINS: pins.read,
    own_files.RUNNING: manifest.read,
    own_files.WRITE_PAUSE: write_pause.read,
}
"""Readers that check more than the seal."""
_SIZES_IN_CONF: Final = (
    *("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"),
    *("maxHashSlotNum", "maxIndexNum"),
)


class SmallFilesCheck:
    """Checks everything but log, queues and index."""

    def __init__(self, store: StoreAtRest) -> None:
        self._store = store
        self._files = store.seams.files
        self._paths = store.paths

    def findings(self, newest_ms: int) -> Iterator[Finding]:
        """Yield the findings; ``newest_ms`` is the greatest STORETIMESTAMP in the log."""
        yield from self._close_state()
        yield from self._checkpoint(newest_ms)
        yield from self._config()
        yield from self._timer()
        yield from self._ours()
        yield from self._strays()

    def _close_state(self) -> Iterator[Finding]:
        if self._store.is_live:
            yield self._of(
                Kind.NOT_CHECKED,
                self._paths.lock,
                "a process holds the store's lock: what it wrote since this look began is left out",
            )
        elif self._store.view.abort:
            yield self._of(Kind.NOT_CLOSED, self._paths.abort, "the last writer did not close")

    # RocketMQ's ---------------------------------------------------------------------------

    def _checkpoint(self, newest_ms: int) -> Iterator[Finding]:
        path = self._paths.checkpoint
        stat = self._files.stat(path)
        if stat is None or stat.size != CHECKPOINT_SIZE:
            if stat is not None or newest_ms:
                size = "it is not there" if stat is None else f"{stat.size} bytes"
                yield self._of(Kind.CHECKPOINT, path, f"{size}; {CHECKPOINT_SIZE} are due")
            return
        times = self._store.view.checkpoint
        if newest_ms and not self._store.view.abort and not (times.physic_ms or times.logics_ms):
            yield self._of(Kind.CHECKPOINT, path, "it holds no times", offset=0)
        named = {"physic": times.physic_ms, "logics": times.logics_ms, "index": times.index_ms}
        for position, (name, value) in enumerate(named.items()):
            if not 0 <= value <= newest_ms and not self._store.is_live:
                what = f"{name}MsgTimestamp {value} is later than the newest record, {newest_ms}"
                yield self._of(Kind.CHECKPOINT, path, what, offset=8 * position)

    def _config(self) -> Iterator[Finding]:
        names = {each.removesuffix(_BACKUP_SUFFIX) for each in self._files.list(self._paths.config)}
        for name in sorted(names):
            if name.endswith(_JSON_SUFFIX) or name == _TIMER_METRICS:
                yield from self._table(self._paths.config / name)

    def _table(self, path: Path) -> Iterator[Finding]:
        """Yield the findings of a table and its ``.bak``. A broker begins with an empty table where
        both are missing or empty, and does not start where it falls back to one it cannot read."""
        backup = path.with_name(path.name + _BACKUP_SUFFIX)
        why, why_backup = self._why_unreadable(path), self._why_unreadable(backup)
        needs_backup = why is not None or not self._has_bytes(path)
        is_read = path.name in self._read_at_start()
        stops = is_read and needs_backup and why_backup is not None and self._has_bytes(backup)
        for kind, each, text in (
            (Kind.CONFIG, path, why),
            (Kind.CONFIG_BACKUP, backup, why_backup),
        ):
            if text is not None:
                found = self._of(kind, each, f"cannot be read: {text}")
                yield replace(found, broker=REFUSES) if stops else found

    def _read_at_start(self) -> frozenset[str]:
        """Return the tables without which, or their ``.bak``, a broker does not start."""
        offsets = offsets_file.find(self._files, self._paths)
        return _READ_AT_START[self._store.format] | {offsets.name}

    def _why_unreadable(self, path: Path) -> str | None:
        """Return why a table that is there cannot be read, else None."""
        try:
            table_text.load(self._files, path)
        except ValueError as error:
            return str(error)
        return None

    def _has_bytes(self, path: Path) -> bool:
        stat = self._files.stat(path)
        return stat is not None and stat.size > 0

    def _timer(self) -> Iterator[Finding]:
        """Yield the timer's files of lengths with which a broker of 5.x does not start."""
        if self._store.format is not StoreFormat.V5_X:
            return
        wheel, log = self._paths.timer_wheel, self._paths.timer_log
        names = self._files.list(log)
        sizes = {each: self._size_of(log / each) for each in names}
        due = timer_log_file_size(sizes[each] for each in names)
        lengths = [(wheel, self._size_of(wheel), WHEEL_SIZE)]
        lengths += [(log / each, sizes[each], due) for each in names]
        for path, size, wanted in lengths:
            is_removed = size == 0 and path in (wheel, log / max(names, default=""))
            if size is not None and size != wanted and not is_removed:
                what = f"{size} bytes; {wanted} are due"
                yield replace(self._of(Kind.STRAY_REFUSED, path, what), broker=REFUSES)

    def _size_of(self, path: Path) -> int | None:
        """Return the size of a file; None where there is none."""
        stat = self._files.stat(path)
        return None if stat is None or stat.is_directory else stat.size

    # ours ---------------------------------------------------------------------------------

    def _ours(self) -> Iterator[Finding]:
        if self._store.why_no_format is not None:
            yield self._of(Kind.OURS, self._paths.format, self._store.why_no_format)
        if self._store.content is not None:
            yield from self._format(self._store.content)
        yield from self._state()
        yield from self._losses()
        yield from self._manifests()
        yield from self._report()
        yield from self._sealed()
        yield from self._journals()
        yield from self._quarantine()

    def _format(self, content: FormatFile) -> Iterator[Finding]:
        path = self._paths.broker_conf
        if self._files.stat(path) is None:
            yield self._of(Kind.OURS, path, "is not there; the next opening writes it again")
            return
        found = read_broker_conf(self._files, self._paths)
        sizes = content.sizes.model_dump(by_alias=True)
        for name in _SIZES_IN_CONF:
            if found.get(name) != str(sizes[name]):
                what = f"{name} is {found.get(name)}; format.json says {sizes[name]}"
                yield self._of(Kind.OURS, path, what)

    def _state(self) -> Iterator[Finding]:
        stat, state = self._files.stat(self._paths.state), self._store.state
        if state is None:
            if stat is not None:
                yield self._of(Kind.OURS, self._paths.state, "is no state page of this version")
            return
        content = self._store.content
        if content is not None and state.store_id != content.store_id:
            what = f"is of store {state.store_id}; format.json says {content.store_id}"
            yield self._of(Kind.OURS, self._paths.state, what)
        bounds = (state.min_offset, state.flushed_offset, state.log_end)
        if list(bounds) != sorted(bounds) or state.dispatched_offset > state.max_offset:
            what = (
                f"its offsets are out of order: min, flushed, end {bounds}, dispatched "
                f"{state.dispatched_offset}"
            )
            yield self._of(Kind.OURS, self._paths.state, what)
        elif not self._store.is_live and state.flushed_offset > self._store.end:
            what = f"it calls {state.flushed_offset} durable; the log ends at {self._store.end}"
            yield self._of(Kind.OURS, self._paths.state, what)

    def _losses(self) -> Iterator[Finding]:
        look = self._store.loss_check
        if look is not None and look.loss is not None:
            by = "a broker has had the store since: " if look.blocking is None else ""
            path = self._paths.commit_log if look.in_traces else self._paths.state
            found = self._of(Kind.DATA_MISSING, path, by + look.loss.text)
            yield replace(found, physical_offset=look.loss.log_end)
        for each in accepted_loss.load_history(self._files, self._paths):
            what = f"accepted at {each.accepted_ms} ms: {each.loss.text}"
            yield self._of(Kind.LOSS_ACCEPTED, self._paths.losses, what)

    def _manifests(self) -> Iterator[Finding]:
        path = self._paths.manifest
        if manifest.load(self._files, path) is None or self._store.clean is not None:
            return
        if not self._was_opened_by_another():  # else it is of an older close, which is ignored
            yield self._of(Kind.OURS, path, "the files are not as this clean close left them")

    def _was_opened_by_another(self) -> bool:
        """Whether a broker has written ``lock`` since our last opening: each start of one does."""
        content, lock = self._store.content, self._files.stat(self._paths.lock)
        is_touched = (
            content is not None
            and lock is not None
            and lock.modified_ms != content.lock_modified_ms
        )
        return is_touched or store_lock.broker_wrote(self._files, self._paths)

    def _report(self) -> Iterator[Finding]:
        path = self._paths.recovery_report
        if self._files.stat(path) is None:
            return
        try:
            RecoveryReport.model_validate_json(self._files.read(path))
        except ValidationError as error:
            yield self._of(Kind.OURS, path, f"cannot be read: {error.errors()[0]['msg']}")

    def _sealed(self) -> Iterator[Finding]:
        """Yield a finding for each sealed file that cannot be read; format.json has its own."""
        for each in own_files.OWN_FILES:
            if not each.is_sealed or each is own_files.FORMAT:
                continue
            path = self._paths.ours / each.name
            try:
                _READERS.get(each, sealed_json.read_members)(self._files, path)
            except (OSError, ValueError) as error:
                why = sealed_json.why_unreadable(error)
                yield self._of(Kind.OURS, path, f"cannot be read, {each.if_unreadable}: {why}")

    def _journals(self) -> Iterator[Finding]:
        for name in _JOURNALED:
            path = self._paths.journal_of(name)
            if self._files.stat(path) is not None:
                damaged = decode_lines(self._files.read(path))[1]
                if damaged:
                    what = f"{damaged} changes of {name} are damaged; the next opening skips them"
                    yield self._of(Kind.OURS, path, what)

    def _quarantine(self) -> Iterator[Finding]:
        directory = self._paths.quarantine
        quarantine = Quarantine(self._files, self._store.seams.clock, directory, self._paths.root)
        kept = {entry.name: entry for entry in quarantine.entries()}
        for name in self._files.list(directory):
            entry = kept.get(name)
            if entry is None:
                yield self._of(
                    Kind.OURS, directory / name, "an entry without a readable entry.json"
                )
                continue
            what = f"{entry.length} bytes of {entry.source} at {entry.position}: {entry.reason}"
            yield self._of(Kind.QUARANTINED, directory / name, what)
            why = quarantine.damage(entry)
            if why is not None:
                yield self._of(Kind.OURS, quarantine.data(name), why)

    # strays -------------------------------------------------------------------------------

    def _strays(self) -> Iterator[Finding]:
        for path in map(Path, self._store.view.segments.strays):
            yield self._of_log_stray(path)
        for each in inventory.survey(self._files, self._paths):
            is_stray = each.state is None and each.subject is Subject.FILE
            kind = Kind.STRAY if is_stray else _INVENTORY[each.verdict]
            yield Finding(kind, each.where, each.what, self._store.broker.predict(kind))

    def _of_log_stray(self, path: Path) -> Finding:
        found = self._of(Kind.STRAY_REFUSED, path, "no segment of the log")
        stat, is_5 = self._files.stat(path), self._store.format is StoreFormat.V5_X
        if stat is not None and stat.is_directory and is_5:
            return self._of(Kind.STRAY, path, "a directory beside the segments")
        is_last = path.name == max(self._files.list(path.parent), default="")
        size = 0 if stat is None else stat.size
        due = self._store.config.mapped_file_size_commit_log
        stops = refuses_file(self._store.format, path.name, size, due, is_last=is_last)
        return found if stops else replace(found, broker=REMOVES)

    def _of(self, kind: Kind, path: Path, what: str, *, offset: int | None = None) -> Finding:
        does = self._store.broker.predict(kind)
        return Finding(kind, self._store.name_of(path), what, does, offset=offset)
