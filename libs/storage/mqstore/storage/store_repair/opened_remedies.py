"""Remedies of a store that is opened as its writer opens it: recovery, records, what is derived."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mqstore.storage._kernel import Defect, RecordSearch, check_record
from mqstore.storage.codec import properties, record
from mqstore.storage.codec.record import Record
from mqstore.storage.layout import PROPERTY_KEYS, PROPERTY_UNIQ_KEY, SysFlag
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.recovery.report import (
    CloseSegment,
    CutTail,
    ExtendSegment,
    PlaceTombstone,
    RefitQueueFile,
    RemoveSegment,
    Repair,
    RestoreBytes,
    SetQueuesAside,
)
from mqstore.storage.recovery.tombstones import read_parts
from mqstore.storage.seams import FileSystem
from mqstore.storage.store_repair.changes import Action, Change, ChangeList
from mqstore.storage.system.open_map import open_map

_LOST: Final = "the message is lost"


class OpenedRemedies:
    """Repairs one open store, and notes what its opening and the repair change."""

    def __init__(
        self,
        store: MessageStore,
        files: FileSystem,
        quarantine: Quarantine,
        changes: ChangeList,
    ) -> None:
        self._store = store
        self._files = files
        self._quarantine = quarantine
        self._changes = changes
        self._segment_size = store.config.mapped_file_size_commit_log
        self._kept_entries: dict[tuple[str, int, int], str] = {}
        """Names of quarantine entries, by file, position and length."""

    def note_recovery(self) -> None:
        """Note the changes that the opening has made."""
        self._list_kept()
        for action in self._store.recovery.plan.actions:
            self._note_action(action)
        filled = self._store.dispatcher.counts.holes_filled
        if filled:
            what = f"{filled} entries have no record: each repeats the one before it"
            self._changes.add(Change(action=Action.REMAKE_QUEUES, what=what))

    def repair_records(
        self,
        odd: Iterable[int],
        moved: Iterable[Record],
        progress: Callable[[int, int], None],
    ) -> None:
        """Repair the damage in the log, then replace whole records that cannot stay: those at the
        physical offsets ``odd``, and the ``moved`` ones, which have copies.

        Raises RepairRefused, StoreFailed, StoreNotWritable.
        """
        repaired = self._store.repair_damage(progress).plan.actions
        self._list_kept()
        for action in repaired:
            self._note_action(action)
        unfit = [each for offset in odd if (each := self._replacement(offset)) is not None]
        self._store.repairs.replace(unfit)
        for each in unfit:
            self._note_action(each)
        self._store.repairs.replace([_tombstone(each) for each in moved])

    def _replacement(self, offset: int) -> Repair | None:
        """The replacement of a record that is whole by its lengths; None where there is none."""
        segment = self._store.log.files.find(offset)
        if segment is None:
            return None
        view, position, size = segment.view, offset - segment.base_offset, segment.size
        defect, _ = check_record(view, position, size, offset, True)
        if defect == Defect.BLANK:
            why = "a blank record of a wrong size"
            return CloseSegment(offset=offset, length=size - position, defect=why)
        if defect != Defect.NONE:
            return None
        found = record.decode(view, position, size, physical_offset=offset)
        return None if found.is_tombstone else _tombstone(found)

    def _list_kept(self) -> None:
        """Read which bytes are in quarantine; of the same place, the newest."""
        entries = sorted(self._quarantine.entries(), key=lambda entry: entry.kept_at_ms)
        self._kept_entries = {
            (entry.source, entry.position, entry.length): entry.name for entry in entries
        }

    # notes ----------------------------------------------------------------------------------

    def _note_action(self, action: object) -> None:
        match action:
            case RestoreBytes():
                what = f"the record at {action.record_offset} gets its bytes back"
                self._add(Action.RESTORE_BYTES, action.offset, action.length, what)
            case PlaceTombstone():
                self._note_tombstone(action)
            case CloseSegment():
                self._add(Action.CLOSE_SEGMENT, action.offset, action.length, action.defect)
            case CutTail():
                self._add(Action.CUT_TAIL, action.offset, action.length, action.reason)
                self._note_cut_messages(action.offset, action.length)
            case RemoveSegment(length=length) if length:
                self._add(Action.REMOVE_SEGMENT, action.offset, length, action.reason)
                self._note_cut_messages(action.offset, length)
            case ExtendSegment():
                what = f"{action.length} bytes become {action.size}"
                base = int(action.name)
                self._add(Action.REFIT_SEGMENT, base, action.size, what)
            case RefitQueueFile():
                self._note_refit(action)
            case SetQueuesAside():
                self._changes.add(Change(action=Action.SET_ASIDE, what=action.reason))
            case _:
                return

    def _note_refit(self, action: RefitQueueFile) -> None:
        self._changes.add(
            Change(
                action=Action.REFIT_QUEUE_FILE,
                what=f"{action.length} bytes become {action.size}",
                file=f"consumequeue/{action.topic}/{action.queue_id}/{action.name}",
                topic=action.topic,
                queue_id=action.queue_id,
            )
        )

    def _note_tombstone(self, action: PlaceTombstone) -> None:
        is_known = action.topic is not None
        is_counted = self._changes.is_counted(action.offset)
        unique_key, keys = self._keys_at(action.offset, action.length)
        self._changes.add(
            Change(
                action=Action.PLACE_TOMBSTONE,
                what=f"{_LOST}: {action.defect}",
                file=self._name_at(action.offset),
                physical_offset=action.offset,
                length=action.length,
                topic=action.topic,
                queue_id=action.queue_id if is_known else None,
                queue_offset=action.queue_offset if is_known else None,
                unique_key=unique_key,
                keys=keys,
                lost=int(not is_counted),
            )
        )

    def _note_cut_messages(self, offset: int, length: int) -> None:
        """Note the whole records in bytes that were cut."""
        with self._kept(offset, length) as data:
            position, search = 0, RecordSearch(data, offset, True)
            while (position := search.find(position, len(data))) >= 0:
                found = record.decode(
                    data, position, len(data), physical_offset=offset + position, with_body=False
                )
                self._changes.add(change_of(found, Action.CUT_MESSAGE, "it is behind the end"))
                position += found.size

    def _keys_at(self, offset: int, length: int) -> tuple[str | None, str | None]:
        """UNIQ_KEY and KEYS of a replaced record, where its properties can be read."""
        with self._kept(offset, length) as data:
            parts = read_parts(data)
            found = {} if parts is None else properties.decode(parts.properties)
        return found.get(PROPERTY_UNIQ_KEY), found.get(PROPERTY_KEYS)

    @contextmanager
    def _kept(self, offset: int, length: int) -> Iterator[memoryview]:
        """The bytes that were in a range of the log before the repair; empty where they are not
        found."""
        place = self._name_at(offset), offset % self._segment_size, length
        name = self._kept_entries.get(place)
        if name is None or not length:
            yield memoryview(b"")
            return
        with open_map(self._files, self._quarantine.data(name)) as mapped:
            yield mapped.view

    def _name_at(self, offset: int) -> str:
        return name_of_segment(self._store.paths, offset - offset % self._segment_size)

    def _add(self, action: Action, offset: int, length: int, what: str) -> None:
        self._changes.add(
            Change(
                action=action,
                what=what,
                file=self._name_at(offset),
                physical_offset=offset,
                length=length,
            )
        )


def name_of_segment(paths: StorePaths, base: int) -> str:
    """The name of a segment in changes: relative to the store where it lies inside."""
    path: Path = paths.commit_log / segment_name(base)
    return str(path.relative_to(paths.root)) if path.is_relative_to(paths.root) else str(path)


def change_of(found: Record, action: Action, what: str, *, lost: int = 0) -> Change:
    """The change of one message."""
    return Change(
        action=action,
        what=what,
        physical_offset=found.physical_offset,
        length=found.size,
        topic=found.topic,
        queue_id=found.queue_id,
        queue_offset=found.queue_offset,
        unique_key=found.uniq_key,
        keys=found.keys,
        lost=lost,
    )


def _tombstone(found: Record) -> PlaceTombstone:
    return PlaceTombstone(
        offset=found.physical_offset,
        length=found.size,
        defect="the record cannot stay in its place",
        topic=None,
        sys_flag=int(SysFlag.TRANSACTION_ROLLBACK),
        store_timestamp_ms=found.store_timestamp_ms,
    )
