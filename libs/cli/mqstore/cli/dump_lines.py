"""The output of ``mqstore store dump``: everything in a store directory, as JSON lines.

The store is opened on a copy-on-write overlay and recovered there: nothing is written, no lock is
needed, and a read-only mount will do. Lines come in this order: ``recovered``; ``msg``, ``blank``
and ``bad`` in log order; ``queue``; ``cq``; and with ``--queries`` ``query``.
"""

from __future__ import annotations

import hashlib
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.progress import Progress, show_progress
from mqstore.cli.store_command import Line, index_sizes, print_line, print_refusal, run_command
from mqstore.storage import MessageStore, StoreConfig, StoreOptions
from mqstore.storage.errors import RecordBlockCorrupt, StorageError
from mqstore.storage.formats import (
    PROPERTY_DELAY,
    SCHEDULE_TOPIC,
    Blank,
    Defect,
    Record,
    body_crc,
    check_record,
    index_keys,
)
from mqstore.storage.host import production_seams
from mqstore.storage.reads import TIME_MAX
from mqstore.storage.settings import DelayLevels
from mqstore.storage.verify import Stretch, walk_log

PROGRESS_RECORDS: Final = 4096
"""Records between two reports of progress."""
QUERY_MAX: Final = 64
"""Offsets in one query line: RocketMQ's maxMsgsNumBatch."""


def run(
    directory: Path, queries: bool, in_place: bool, hash_slots: int | None, index_num: int | None
) -> int:
    """Print all lines; the exit code."""
    return run_command(
        lambda: _run(directory, queries, in_place, index_sizes(hash_slots, index_num)),
        print_refusal,
        unread=EXIT_OK,
    )


class Dump:
    """The lines of one recovered store, and the damage found. Memory use is limited."""

    def __init__(self, store: MessageStore, progress: Progress = lambda *_: None) -> None:
        self._store, self._progress = store, progress
        self._delays = DelayLevels(store.config.message_delay_level)
        self.bad = 0
        """Stretches of log without a whole record."""
        self.corrupt = 0
        """Messages whose body is not what was stored."""

    def lines(self, *, queries: bool) -> Iterator[Line]:
        """Yield all lines, in the order of the module's docstring."""
        yield self._recovered()
        yield from self._log()
        for queue in self._store.queues.all():
            place = {"topic": queue.topic, "q": queue.queue_id}
            yield {"t": "queue", **place, "min": queue.min_index, "max": queue.max_index}
        yield from self._entries()
        if queries:
            yield from self._queries()

    def findings(self) -> list[str]:
        """Warnings for operators about damaged or missing data; empty for a complete store."""
        report = self._store.recovery
        counted = {
            "bytes cut from the log": report.plan.cut_bytes,
            "stretches of log without a whole record": self.bad,
            "messages with a damaged body": self.corrupt,
            "stretches of log left out of the queues": report.dispatch_skipped,
        }
        found = [f"{what}: {count}" for what, count in counted.items() if count]
        if report.plan.read_only:
            found.append(f"the store may only be read: {report.plan.read_only}")
        return found

    def _recovered(self) -> Line:
        plan = self._store.recovery.plan
        log = self._store.log
        return {
            "t": "recovered",
            "path": plan.path,
            "minPhyOffset": log.min_offset,
            "maxPhyOffset": log.max_offset,
            "cutBytes": plan.cut_bytes,
        }

    # log ----------------------------------------------------------------------------------

    def _log(self) -> Iterator[Line]:
        for found in self._walk("log"):
            if isinstance(found, Record):
                line = message_line(found, self._delays)
                self.corrupt += not line["crcOk"]
                yield line | self._doubt(found)
            elif isinstance(found, Blank):
                yield {"t": "blank", "off": found.offset, "size": found.size}
            else:
                self.bad += 1
                yield {"t": "bad", "off": found.offset, "why": found.why}

    def _walk(self, stage: str) -> Iterator[Stretch]:
        """Yield what is in the log, and report the progress."""
        log = self._store.log
        length = log.max_offset - log.min_offset
        for number, found in enumerate(walk_log(log)):
            if number % PROGRESS_RECORDS == 0:
                at = found.physical_offset if isinstance(found, Record) else found.offset
                self._progress(stage, at - log.min_offset, length)
            yield found

    def _doubt(self, found: Record) -> Line:
        """A mark on what lies in a damaged block of the log: ``checkedBy`` where only the record's
        own checks vouch for it, ``suspect`` where it is refused to readers."""
        try:
            read = self._store.lookups.by_physical_offset(found.physical_offset)
        except RecordBlockCorrupt:
            return {"suspect": True}
        except StorageError:
            return {}  # its other fields show what is wrong
        return {"checkedBy": "record"} if read.is_self_checked else {}

    # queues -------------------------------------------------------------------------------

    def _entries(self) -> Iterator[Line]:
        queues = list(self._store.queues.all())
        for number, queue in enumerate(queues):
            self._progress("queues", number, len(queues))
            for index in range(queue.min_index, queue.max_index):
                entry = queue.entry(index)
                if entry is not None:
                    yield {
                        "t": "cq",
                        "topic": queue.topic,
                        "q": queue.queue_id,
                        "i": index,
                        "off": entry.physical_offset,
                        "size": entry.size,
                        "tagsCode": entry.tags_code,
                    }

    # queries ------------------------------------------------------------------------------

    def _queries(self) -> Iterator[Line]:
        """One line for each distinct topic and key, in the order of the log."""
        # A database without a name lives in memory and moves to a temporary file as it grows.
        with closing(sqlite3.connect("")) as seen:
            seen.execute("create table seen (topic_key blob primary key) without rowid")
            for found in self._walk("queries"):
                if not isinstance(found, Record):
                    continue
                for key in index_keys(found.uniq_key, found.keys):
                    name = hashlib.blake2b(f"{found.topic}\0{key}".encode(), digest_size=16)
                    row = (name.digest(),)
                    if seen.execute("insert or ignore into seen values (?)", row).rowcount > 0:
                        offsets = self._query(found.topic, key)
                        yield {"t": "query", "topic": found.topic, "key": key, "offsets": offsets}

    def _query(self, topic: str, key: str) -> list[int]:
        """Query as RocketMQ's queryMessage: the newest, ascending, with hash collisions."""
        hits = self._store.index.query(topic, key, QUERY_MAX, 0, TIME_MAX)
        return sorted(offset for offset in hits.offsets if self._is_record(offset))

    def _is_record(self, offset: int) -> bool:
        """Whether an index entry still names a record (index entries outlive a cut)."""
        log = self._store.log
        place = log.view_from(offset) if log.min_offset <= offset < log.max_offset else None
        if place is None or place[1] >= place[2]:
            return False
        defect, _ = check_record(*place, offset, False)
        return defect == Defect.NONE


def message_line(found: Record, delays: DelayLevels) -> Line:
    """One ``msg`` line; integers signed, hosts as Java prints them."""
    return {
        "t": "msg",
        "off": found.physical_offset,
        "size": found.size,
        "topic": found.topic,
        "q": found.queue_id,
        "qoff": found.queue_offset,
        "flag": found.flag,
        "phys": found.physical_offset,
        "sysFlag": found.sys_flag,
        "bornTs": found.born_timestamp_ms,
        "bornHost": str(found.born_host),
        "storeTs": found.store_timestamp_ms,
        "storeHost": str(found.store_host),
        "reconsume": found.reconsume_times,
        "pto": found.prepared_transaction_offset,
        "bodyLen": len(found.body),
        "bodyCrc": found.body_crc,
        "crcOk": not found.body or body_crc(found.body) == found.body_crc,
        "bodySha256": hashlib.sha256(found.body).hexdigest(),
        "props": found.properties,
        "tags": found.tags,
        "keys": found.keys,
        "uniqKey": found.uniq_key,
        "offsetMsgId": found.offset_message_id,
        "tagsCode": _dispatched_tags_code(found, delays),
    }


def _dispatched_tags_code(found: Record, delays: DelayLevels) -> int:
    """The tagsCode of the queue entry: a delivery time in the delay topic."""
    if found.topic == SCHEDULE_TOPIC:
        delay = (found.properties or {}).get(PROPERTY_DELAY)
        code = delays.queue_code(delay, found.store_timestamp_ms)
        if code is not None:
            return code
    return found.tags_code


def _run(directory: Path, queries: bool, in_place: bool, config: StoreConfig) -> int:
    with show_progress(prints=True) as progress:
        options = StoreOptions(
            create=False,
            in_place=in_place,
            services=False,
            on_progress=lambda now: progress(now.stage, now.done, now.total),
        )
        with MessageStore.open(directory.absolute(), config, production_seams(), options) as store:
            store.wait_for_index()
            dump = Dump(store, progress)
            for line in dump.lines(queries=queries):
                print_line(line)
            sys.stdout.flush()
            findings = dump.findings()
    for finding in findings:
        print(f"mqstore: {finding}", file=sys.stderr)
    return EXIT_FINDINGS if findings else EXIT_OK
