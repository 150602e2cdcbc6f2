"""Opening a store whose queues and index are gone, until every record is in them again.

`dispatch`: closed cleanly, then consumequeue/ and index/ deleted. `recovery`: as after a halt, with
the checkpoint deleted too, since 4.9.7 would otherwise rebuild the last segment only. After a halt
of the machine the log is not in the page cache, and the disk is the limit; after a halt of the
process it is.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from mqstore.storage.paths import StorePaths
from tests.bench import harness, log_reads
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.stores import Filled, filled_store, open_store

SEGMENT: Final = 64 << 20

Spoil = Callable[[StorePaths], None]


def benches(setting: Setting) -> Iterator[Bench]:
    with filled_store(setting.directory, SEGMENT, setting.log_mib << 20) as filled:
        for name, spoil in (
            ("dispatch into queues and index, after a clean close", drop_derived),
            ("recovery after a halt of the process, queues and index deleted", drop_and_halt),
            ("recovery after a halt of the machine, queues and index deleted", drop_and_evict),
        ):
            row = f"{name}, {setting.log_mib} MiB"
            peer = partial(peers_rebuild, setting, filled, spoil) if setting.peer else None
            disk = partial(log_reads.from_disk, filled) if spoil is drop_and_evict else None
            metrics = [Metric("rate", row, "MiB/s"), harness.cost(row)]
            yield Bench(metrics, partial(_ours, filled, spoil), peer, disk)


def drop_derived(paths: StorePaths) -> None:
    """Delete queues and index."""
    for directory in (paths.consume_queue, paths.index):
        shutil.rmtree(directory)


def drop_and_halt(paths: StorePaths) -> None:
    """Delete queues and index, and what a clean close leaves."""
    drop_derived(paths)
    paths.checkpoint.unlink()
    paths.manifest.unlink(missing_ok=True)
    paths.abort.touch()


def drop_and_evict(paths: StorePaths) -> None:
    """``drop_and_halt``, with a log that is not in the page cache."""
    drop_and_halt(paths)
    log_reads.evict(paths.commit_log)


def _ours(filled: Filled, spoil: Spoil) -> Figures:
    spoil(StorePaths(filled.ours))
    cpu, began = time.process_time(), time.perf_counter()
    # An opening leaves a lost index of a larger log to a rebuild by Spark.
    size = filled.log_bytes + filled.segment
    store = open_store(filled.ours, segment=filled.segment, index_catch_up_size=size)
    store.wait_for_index()
    seconds = time.perf_counter() - began
    cost = (time.process_time() - cpu) / filled.records * 1e6
    dispatched = store.recovery.dispatched_records
    store.close()
    _check(dispatched, filled)
    return {"rate": filled.log_bytes / seconds / (1 << 20), "cost": cost}


def peers_rebuild(setting: Setting, filled: Filled, spoil: Spoil) -> Figures:
    """One round of RocketMQ's own rebuild."""
    assert setting.peer is not None
    spoil(StorePaths(Path(filled.peers)))
    figures = setting.peer.request(
        "rebuild", dir=filled.peers, segment=filled.segment, flush="ASYNC_FLUSH"
    )
    _check(int(figures["records"]), filled)
    return figures


def _check(dispatched: int, filled: Filled) -> None:
    if dispatched != filled.records:
        raise SideError(f"{dispatched} of {filled.records} records were dispatched")
