"""Finds which version of RocketMQ laid out the files of a store without format.json."""

from __future__ import annotations

from array import array
from typing import Final

from mqstore.storage._kernel import check_run
from mqstore.storage.layout import MAGIC_V2, StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.recovery.view import Segments
from mqstore.storage.seams import FileSystem

_MAGIC_END: Final = 7
_V2_MAGIC_END: Final = MAGIC_V2 & 0xFF
"""The last byte of MAGICCODE differs between V1 and V2."""
_RUN_RECORDS: Final = 100_000


def find_format(
    files: FileSystem, paths: StorePaths, segments: Segments, wanted: StoreFormat | None
) -> StoreFormat:
    """5.x where ``abort.bak``, ``rocksdbstore/``, ``compaction/`` or a V2 record is; else 4.9."""
    traces = (paths.abort_backup, paths.root / "rocksdbstore", paths.root / "compaction")
    if any(files.stat(path) is not None for path in traces) or _has_v2_record(files, segments):
        return StoreFormat.V5_X
    if wanted is not None and not segments.usable:
        return wanted
    return StoreFormat.V4_9


def _has_v2_record(files: FileSystem, segments: Segments) -> bool:
    for segment in segments.usable:
        if segment.length == 0:
            continue
        mapped = files.map(segment.path, writable=False)
        try:
            if _finds_v2(mapped.view, segment.base):
                return True
        finally:
            mapped.unmap()
    return False


def _finds_v2(view: memoryview, base: int) -> bool:
    """Looks at records only, so the unused rest of a segment is not read."""
    position, records = 0, _RUN_RECORDS
    while records == _RUN_RECORDS:
        starts = array("q")
        _, position, records, _ = check_run(
            view,
            position,
            len(view),
            base,
            verify_body=False,
            max_records=_RUN_RECORDS,
            starts=starts,
        )
        if any(view[start + _MAGIC_END] == _V2_MAGIC_END for start in starts):
            return True
    return False
