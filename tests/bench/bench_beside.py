"""Appends beside readers: what a put takes while nobody reads, while eight readers pull through
query as fast as it answers, and while somebody reads the whole log through it from the disk.

The writer is in this process and puts at a steady pace; query, with its settings as they come, and
who reads are processes of their own. Who reads stands for other machines and so has the lowest
priority; query has the writer's. The aim is that p99 is at most 1.2 times that without readers. On
two cores query takes turns with the writer, and what it waits for a core is in here too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from mqstore.storage.message_store import MessageStore
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.stores import Filled, filled_store, open_store
from tests.bench.workload import BODY_SIZE, QUEUES, encoded_properties, make_body
from tests.bench.workload import make_message as message_of
from tests.services.service_processes import query

SEGMENT: Final = 64 << 20
READ_SHARE: Final = 4
READERS: Final = 8
PUTS_SHARE: Final = 100
"""One put of a phase for so many records of the run."""
PACE_S: Final = 0.0005
SETTLE_S: Final = 0.3
"""Readers are at it by then."""
PHASES: Final = ("alone", "readers", "scan")
_NAMES: Final = {
    "alone": "put p99, nobody reads",
    "readers": f"put p99, {READERS} busy readers",
    "scan": "put p99, the whole log read from the disk",
}


def benches(setting: Setting) -> Iterator[Bench]:
    size = (setting.log_mib << 20) // READ_SHARE
    puts = max(200, setting.records // PUTS_SHARE)
    with (
        filled_store(setting.directory, SEGMENT, size) as filled,
        open_store(filled.ours, segment=SEGMENT) as store,
        query(filled.ours) as find,
    ):
        times = [Metric(each, _NAMES[each], "µs", higher_is_better=False) for each in PHASES]
        shares = [
            Metric(f"{each} share", f"{_NAMES[each]}, of nobody", "times", higher_is_better=False)
            for each in PHASES[1:]
        ]
        yield Bench([*times, *shares], partial(_ours, store, find.url, filled, puts))


def _ours(store: MessageStore, url: str, filled: Filled, puts: int) -> Figures:
    p99 = {}
    for phase in PHASES:
        with _reading(phase, url, filled):
            p99[phase] = _p99(store, puts)
    shares = {f"{each} share": p99[each] / p99["alone"] for each in PHASES[1:]}
    return {**p99, **shares}


def _p99(store: MessageStore, puts: int) -> float:
    """Of puts at a steady pace, in µs."""
    body, took = make_body(BODY_SIZE), []
    for number, encoded in enumerate(encoded_properties(0, puts)):
        message = message_of(number % QUEUES, body, encoded)
        began = time.perf_counter()
        store.append(message)
        took.append(time.perf_counter() - began)
        time.sleep(PACE_S)
    return sorted(took)[int(len(took) * 0.99)] * 1e6


@contextmanager
def _reading(phase: str, url: str, filled: Filled) -> Iterator[None]:
    if phase == "alone":
        yield
        return
    if phase == "scan":
        _evict(filled.ours)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.busy", phase, url, str(filled.records // QUEUES)],
        cwd=Path(__file__).parents[2],
    )
    try:
        time.sleep(SETTLE_S)
        yield
        assert process.poll() is None, "who reads has ended"
    finally:
        process.kill()
        process.wait()


def _evict(root: Path) -> None:
    """What nobody has mapped leaves the page cache."""
    for path in (root / "commitlog").iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
