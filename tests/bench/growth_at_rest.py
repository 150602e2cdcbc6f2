"""Damages and ages stores at rest, and runs the engine's work over them, for the growth table.

Each store is one that a broker left when it was killed: nothing says what its files hold.
"""

from __future__ import annotations

import shutil
import time
from array import array
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from mqstore.storage._kernel import check_run
from mqstore.storage.config import StoreConfig
from mqstore.storage.message_store import MessageStore
from mqstore.storage.paths import StorePaths
from mqstore.storage.repair import StoreRepair
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Verification
from tests.unit.storage.backup.backups import back_up, put_back
from tests.unit.storage.record_examples import nested_heads

KEPT_SEGMENTS: Final = 2
"""Segments of an aged log that have not expired."""


def leave_as_killed_broker(root: Path) -> StorePaths:
    """Remove what mqstore noted of a store, and its clean close."""
    paths = StorePaths(root)
    shutil.rmtree(paths.ours)
    paths.lock.write_bytes(b"lock")
    paths.abort.write_bytes(b"")
    return paths


def damage_records(root: Path, _: int) -> None:
    """Zero the head of every second record of the log."""
    for path in _segments(leave_as_killed_broker(root)):
        data, starts = bytearray(path.read_bytes()), array("q")
        check_run(
            data,
            0,
            len(data),
            int(path.name),
            verify_body=False,
            max_records=1 << 30,
            starts=starts,
        )
        for start in starts[1::2]:
            data[start : start + 8] = bytes(8)
        path.write_bytes(data)


def nest_heads(root: Path, size: int) -> None:
    """Put so many KiB of heads of records in one another behind the last record."""
    path = _segments(leave_as_killed_broker(root))[-1]
    data = bytearray(path.read_bytes())
    _, end, _, _ = check_run(
        data, 0, len(data), int(path.name), verify_body=False, max_records=1 << 30
    )
    data[end : end + (size << 10)] = nested_heads(size << 10, int(path.name) + end)
    path.write_bytes(data)


def expire(root: Path, _: int) -> None:
    """Remove all segments but the last ones; the queues keep the entries of the others."""
    for path in _segments(leave_as_killed_broker(root))[:-KEPT_SEGMENTS]:
        path.unlink()


def _segments(paths: StorePaths) -> list[Path]:
    return sorted(paths.commit_log.iterdir())


def prepare(work: str, root: Path, config: StoreConfig) -> Callable[[], object]:
    """Return the work of this name over a store, and do what has to be done before it."""
    seams = production_seams()
    match work:
        case "recovery":
            return lambda: MessageStore.open(root, config, seams).close()
        case "verify":
            return lambda: deque(Verification(root, config, seams).findings(), maxlen=0)
        case "repair":
            return StoreRepair(root, config, seams, lambda *_: None).run
        case "restore":
            MessageStore.open(root, config, seams).close()
            place = root.with_name("backup")
            back_up(root, place)
            return partial(put_back, place, root.with_name("restored"))
        case _:
            raise ValueError(work)


def cpu_ms(call: Callable[[], object]) -> float:
    """Processor time of a call."""
    before = time.process_time()
    call()
    return (time.process_time() - before) * 1000
