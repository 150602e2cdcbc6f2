"""Finds which version of RocketMQ laid out the files of a store without format.json."""

from __future__ import annotations

from typing import Final

from mqstore.storage.layout import MAGIC_V2, StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.recovery.view import Segments
from mqstore.storage.recovery.walk import whole_runs
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.open_map import open_map

_MAGIC_END: Final = 7
_V2_MAGIC_END: Final = MAGIC_V2 & 0xFF
"""The last byte of MAGICCODE differs between V1 and V2."""


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
        with open_map(files, segment.path) as mapped:
            if _finds_v2(mapped.view, segment.base):
                return True
    return False


def _finds_v2(view: memoryview, base: int) -> bool:
    """Looks at records only, so the unused rest of a segment is not read."""
    runs = whole_runs(view, 0, len(view), base, verify_body=False)
    return any(view[at + _MAGIC_END] == _V2_MAGIC_END for run in runs for at in run.starts)
