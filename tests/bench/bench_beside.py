"""The latency of a put without readers, beside eight busy readers, and beside a scan of the log.

The readers pull through query as fast as it answers; the scan reads the whole log through query
from the disk. The writer runs in this process and puts at a steady pace; query, with its default
settings, and the readers are processes of their own. The readers stand for other machines and have
the lowest priority. The aim is that p99 is at most 1.2 times that without readers. On two cores the
writer also waits for a core while query runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from mqstore.storage.message_store import MessageStore
from tests.bench import log_reads
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
    "alone": "put p99, no readers",
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
            Metric(
                f"{each} share",
                f"{_NAMES[each]}, relative to no readers",
                "times",
                higher_is_better=False,
            )
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
    """The 99th percentile of puts at a steady pace, in µs."""
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
        log_reads.drop(filled.ours / "commitlog")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.busy", phase, url, str(filled.records // QUEUES)],
        cwd=Path(__file__).parents[2],
    )
    try:
        time.sleep(SETTLE_S)
        yield
        assert process.poll() is None, "the reader ended early"
    finally:
        process.kill()
        process.wait()
