"""Walks the log of an open store from end to end, damaged stretches included.

Called from ``mqstore store dump``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from mqstore.storage.codec import record
from mqstore.storage.codec.record import Blank, Record, defect_error
from mqstore.storage.errors import RecordError, RecordTruncated
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.recovery.walk import Run, walk

Stretch = Record | Blank | RecordError


def walk_log(log: CommitLog) -> Iterator[Stretch]:
    """Yield the records, blank records and defects of the log, in order.

    Each defect comes once. Bodies are not compared with their checksums.
    """
    offset = log.min_offset
    for segment in log.files.files:
        if segment.base_offset > offset:
            yield RecordTruncated(offset, f"no segment up to {segment.base_offset}")
        end = min(segment.wrote_position, log.max_offset - segment.base_offset)
        yield from _walk_segment(segment, end)
        offset = segment.base_offset + segment.size


def _walk_segment(segment: MappedFile, end: int) -> Iterator[Stretch]:
    base, view = segment.base_offset, segment.view
    for found in walk(view, 0, end, base, verify_body=False):
        if isinstance(found, Blank):
            yield found
        elif not isinstance(found, Run):
            yield defect_error(found.defect, base + found.position)
        else:
            for start, stop in pairwise([*found.starts, found.stop]):
                each = record.decode(
                    view, start, stop, physical_offset=base + start, verify_body=False
                )
                yield record.tombstone_error(each) if each.is_tombstone else each
