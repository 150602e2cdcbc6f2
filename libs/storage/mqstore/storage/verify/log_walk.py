"""Walks the log of an open store from end to end, damaged stretches included.

Called from ``mqstore store dump``.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqstore.storage._kernel import find_record
from mqstore.storage.codec import record
from mqstore.storage.codec.record import Blank, Record
from mqstore.storage.errors import RecordError, RecordTruncated
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.mapped.mapped_file import MappedFile

Stretch = Record | Blank | RecordError


def walk_log(log: CommitLog) -> Iterator[Stretch]:
    """Yield the records, blank records and defects of the log, in order.

    Each defect comes once; the walk continues at the next record. Bodies are not compared with
    their checksums.
    """
    offset = log.min_offset
    for segment in log.files.files:
        if segment.base_offset > offset:
            yield RecordTruncated(offset, f"no segment up to {segment.base_offset}")
        end = min(segment.wrote_position, log.max_offset - segment.base_offset)
        yield from _walk_segment(segment, end)
        offset = segment.base_offset + segment.size


def _walk_segment(segment: MappedFile, end: int) -> Iterator[Stretch]:
    base, view, position = segment.base_offset, segment.view, 0
    while position < end:
        last: Stretch | None = None
        for last in record.scan(view, position, end, base, verify_body=False):
            if isinstance(last, Record) and last.is_tombstone:
                yield record.tombstone_error(last)
            else:
                yield last
            if isinstance(last, Blank):
                return
        if not isinstance(last, RecordError):
            return
        # Its lengths are wrong: search the next record that states its own offset.
        position = find_record(view, last.offset - base + 1, end, base, True)
        if position < 0:
            return
