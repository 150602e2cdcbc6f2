"""Verifies index files by themselves (header, chains) and against the log (items and keys)."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from mqstore.storage.codec.java_text import index_hash
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import StorageError
from mqstore.storage.index.file import TIME_STEP_MS, IndexFile, IndexHeader
from mqstore.storage.index.service import TIME_MAX, IndexService
from mqstore.storage.layout import INDEX_HEADER_SIZE, INDEX_SLOT_SIZE, SysFlag
from mqstore.storage.verify.finding import Finding, Kind
from mqstore.storage.verify.index_merge import IndexMerge, Item, items_of
from mqstore.storage.verify.store_at_rest import StoreAtRest

_INT32_MAX = 2**31 - 1


@dataclass(slots=True)
class _Missing:
    """A run of messages with keys that are in no index file."""

    first: int
    last: int
    messages: int
    example: str


class IndexCheck:
    """Call ``log`` for each record in log order, then ``rest``; ``files`` at any time."""

    def __init__(self, store: StoreAtRest) -> None:
        self.items = 0
        self.keyed = 0
        """Number of messages with keys."""
        self._store = store
        self._service = IndexService(
            store.paths, store.config, store.format, store.seams, writable=False
        )
        self._loaded = self._service.load(safe=True)
        self._merge = IndexMerge(self._service.files)
        self._missing: _Missing | None = None

    @property
    def file_count(self) -> int:
        """Number of index files."""
        return len(self._service.files)

    # a file by itself ---------------------------------------------------------------------

    def files(self) -> Iterator[Finding]:
        """Lengths, headers and chains."""
        for left_out in self._loaded.dropped:
            yield self._finding(Kind.INDEX_FILE, self._store.name_of(left_out.path), left_out.why)
        for left_out in self._loaded.strays:
            is_index = left_out.path.name.isdigit()
            kind = Kind.INDEX_FILE if is_index else Kind.STRAY
            yield self._finding(kind, self._store.name_of(left_out.path), left_out.why)
        for file in self._service.files:
            yield from self._chains(file)

    def _chains(self, file: IndexFile) -> Iterator[Finding]:
        name = self._store.name_of(file.path)
        heads = array("i", bytes(INDEX_SLOT_SIZE * file.slots))
        first: Item | None = None
        last: Item | None = None
        for item in items_of(file):
            self.items += 1
            first = first or item
            last = item
            if item.hash < 0:
                yield self._of_item(Kind.INDEX_ITEM, item, f"its hash {item.hash} is negative")
                continue
            slot = item.hash % file.slots
            if item.previous != heads[slot]:
                why = f"it links to item {item.previous}; the one before in its slot is "
                yield self._of_item(Kind.INDEX_CHAIN, item, f"{why}{heads[slot]}")
            heads[slot] = item.number
        if self._store.is_live and file is self._service.files[-1]:
            return  # the file grows meanwhile
        yield from self._heads(file, name, heads)
        yield from self._header(file, name, first, last, sum(1 for head in heads if head))
        yield from self._uncounted(file, name)

    def _heads(self, file: IndexFile, name: str, heads: array[int]) -> Iterator[Finding]:
        raw = bytes(file.view[INDEX_HEADER_SIZE : INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * file.slots])
        may_be_ahead = self._may_be_ahead(file)
        for slot, (head,) in enumerate(struct.iter_unpack(">i", raw)):
            if head != heads[slot] and not (
                may_be_ahead and _newest_counted(file, slot, head) == heads[slot]
            ):
                why = f"slot {slot} names item {head}; its newest is {heads[slot]}"
                at = INDEX_HEADER_SIZE + slot * INDEX_SLOT_SIZE
                yield self._finding(Kind.INDEX_CHAIN, name, why, offset=at)

    def _may_be_ahead(self, file: IndexFile) -> bool:
        """Whether the file may have items that its header does not count yet: what a kill leaves,
        and a copy made beside the writer. The next opening unlinks them."""
        return self._store.view.abort and file is self._service.files[-1]

    def _is_indexed_next(self) -> bool:
        """Whether the keys missing at the log's end are those that the next opening indexes."""
        files, run = self._service.files, self._missing
        if not files or run is None or not self._may_be_ahead(files[-1]):
            return False
        return run.first > files[-1].header.end_physical

    def _header(
        self, file: IndexFile, name: str, first: Item | None, last: Item | None, slots_used: int
    ) -> Iterator[Finding]:
        header = file.header
        if first is None or last is None:
            due = header._replace(slots_used=0)
        else:
            due = IndexHeader(
                self._store_time(first, header.begin_ms),
                self._store_time(last, header.end_ms),
                first.physical_offset,
                last.physical_offset,
                slots_used,
                header.index_count,
            )
        for field, found, expected in zip(IndexHeader._fields, header, due, strict=True):
            if found != expected:
                why = f"{field} is {found}; its items say {expected}"
                yield self._finding(Kind.INDEX_HEADER, name, why, offset=0)

    def _uncounted(self, file: IndexFile, name: str) -> Iterator[Finding]:
        number = file.index_count
        if self._may_be_ahead(file):
            return
        if number < file.index_num and any(file.item(number)):
            item = Item(file, number, *file.item(number))
            why = "it stands behind the last item that the header counts"
            yield self._of_item(Kind.INDEX_CHAIN, item, why)

    def _store_time(self, item: Item, unknown: int) -> int:
        found = self._record(item.physical_offset)
        return unknown if found is None else found.store_timestamp_ms

    # items and records --------------------------------------------------------------------

    def log(self, found: Record) -> Iterator[Finding]:
        """Check the keys of the next record of the log."""
        if not self._service.files:
            self.keyed += bool(self._keys(found))
            return
        offset = found.physical_offset
        for item in self._merge.before(offset):
            yield from self._judge(item)
        hashes = {index_hash(key): key for key in self._service.keys_of(found)}
        seen: set[int] = set()
        for in_order, item in self._merge.at(offset):
            if not in_order:
                yield from self._judge(item)
            elif found.is_tombstone:
                seen.add(item.hash)  # the items are still those of the previous record
            elif item.hash in hashes:
                seen.add(item.hash)
                yield from self._time(item, found)
            else:
                yield self._of_item(Kind.INDEX_ITEM, item, "its record has no key of this hash")
        yield from self._count_missing(found, seen)

    def rest(self) -> Iterator[Finding]:
        """Check items after the last record, and report keys missing at the log's end."""
        for item in self._merge.before(TIME_MAX):
            yield from self._judge(item)
        if not self._is_indexed_next():
            yield from self._report_missing()
        if self.keyed and not self._service.files:
            what = f"there is no index file, and {self.keyed} messages have keys"
            yield self._finding(
                Kind.INDEX_MISSING, self._store.name_of(self._store.paths.index), what
            )

    def _keys(self, found: Record) -> list[str]:
        """The keys that must be found; TAGS are indexed by 5.x only, so they may be missing."""
        if found.sys_flag & SysFlag.TRANSACTION_ROLLBACK == SysFlag.TRANSACTION_ROLLBACK:
            return []
        tags_key = bool(self._service.indexes_tags and found.tags)
        keys = self._service.keys_of(found)
        return keys[:-1] if tags_key else keys

    def _count_missing(self, found: Record, seen: set[int]) -> Iterator[Finding]:
        keys = self._keys(found)
        self.keyed += bool(keys)
        offset = found.physical_offset
        missing = [key for key in keys if index_hash(key) not in seen]
        missing = [key for key in missing if not self._is_found(index_hash(key), offset)]
        if missing:
            run = self._missing or _Missing(offset, offset, 0, missing[0])
            run.last, run.messages = offset, run.messages + 1
            self._missing = run
        elif keys:
            yield from self._report_missing()

    def _report_missing(self) -> Iterator[Finding]:
        run, self._missing = self._missing, None
        if run is not None:
            what = (
                f"keys of {run.messages} messages up to offset {run.last} are in no index file, "
                f"the first being {run.example!r}"
            )
            name = self._store.name_of(self._store.paths.index)
            yield self._finding(Kind.INDEX_MISSING, name, what, physical_offset=run.first)

    def _is_found(self, key_hash: int, offset: int) -> bool:
        """Search the chains for an item that is out of order."""
        for file in self._service.files:
            header = file.header
            if header.begin_physical <= offset <= header.end_physical and offset in file.find(
                key_hash, 0, TIME_MAX
            ):
                return True
        return False

    def _judge(self, item: Item) -> Iterator[Finding]:
        """Check an item that the walk along the log met at no record."""
        if 0 <= item.physical_offset < self._store.min_offset:
            return  # the record has expired
        if item.physical_offset >= self._store.end:
            if not self._store.is_live:
                why = f"it names offset {item.physical_offset}, beyond the log's end"
                yield self._of_item(Kind.INDEX_BEYOND, item, why)
            return
        found = self._record(item.physical_offset)
        if found is None:
            why = f"no record begins at offset {item.physical_offset}"
            yield self._of_item(Kind.INDEX_ITEM, item, why)
        elif not found.is_tombstone and item.hash not in map(
            index_hash, self._service.keys_of(found)
        ):
            yield self._of_item(Kind.INDEX_ITEM, item, "its record has no key of this hash")

    def _time(self, item: Item, found: Record) -> Iterator[Finding]:
        """Check the seconds since the file's begin; those of the first item count from the previous
        file."""
        begin = item.file.header.begin_ms
        passed = max(0, found.store_timestamp_ms - begin) // TIME_STEP_MS if begin > 0 else 0
        if item.number > 1 and item.seconds != min(passed, _INT32_MAX):
            why = f"its time is {item.seconds} s after the file's begin; its record says {passed}"
            yield self._of_item(Kind.INDEX_ITEM, item, why)

    def _record(self, offset: int) -> Record | None:
        try:
            return self._store.record_at(offset)
        except StorageError:
            return None

    def _of_item(self, kind: Kind, item: Item, why: str) -> Finding:
        return Finding(
            kind=kind,
            file=self._store.name_of(item.file.path),
            what=why,
            broker=self._store.broker.predict(kind, item.physical_offset),
            offset=item.position,
            physical_offset=item.physical_offset,
            index=item.number,
        )

    def _finding(
        self,
        kind: Kind,
        name: str,
        why: str,
        *,
        offset: int | None = None,
        physical_offset: int | None = None,
    ) -> Finding:
        does = self._store.broker.predict(kind)
        return Finding(kind, name, why, does, offset=offset, physical_offset=physical_offset)


def _newest_counted(file: IndexFile, slot: int, head: int) -> int:
    """The newest item of a slot's chain that the header counts, or -1 for a chain that goes
    wrong."""
    while file.index_count <= head < file.index_num:
        item = file.item(head)
        if item.hash % file.slots != slot or item.previous >= head:
            return -1
        head = item.previous
    return head
