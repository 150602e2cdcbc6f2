"""Puts that wait for the disk, by one and by four threads; and the bare disk beside them.

The disk's own figure: as many records as there are threads are written into a mapped file and one
fdatasync follows; the file was reserved and its pages populated, as a segment of ours is. It is
what perfect group commit would reach. The second form of ours is what a service does: the thread
that put goes on, and the flush thread calls back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from mqstore.storage.codec.record import Message
from mqstore.storage.config import FlushDiskType
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system import native
from tests.bench import harness, latencies
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.rocketmq import SEGMENT_DEFAULT
from tests.bench.stores import fresh_directory, open_store
from tests.bench.workload import BODY_SIZE, QUEUES, encoded_properties, make_body, make_message

WARM: Final = 100
"""Puts of each thread before the clock starts."""
PUTS_PER_RECORD: Final = 100
"""One put that waits for the disk costs about as much as this many that do not."""
RAW_FILE: Final = 16 << 20
RAW_RECORD: Final = bytes(1200)
"""As long as the record of a 1 KiB message with its properties."""

Put = Callable[[MessageStore, Message], None]


def benches(setting: Setting) -> Iterator[Bench]:
    puts = max(200, setting.records // PUTS_PER_RECORD)
    for threads in (1, 4):
        disk = partial(_disk, setting, threads, puts)
        ours = partial(_ours, setting, wait_inline, threads, puts)
        peer = partial(_peer, setting, threads, puts) if setting.peer else None
        yield Bench(_metrics(f"sync flush 1 KiB, {_count(threads)}"), ours, peer, disk)
        ours = partial(_ours, setting, wait_for_callback, threads, puts)
        yield Bench(_metrics(f"sync flush 1 KiB, {_count(threads)}, callback"), ours, disk=disk)


def _metrics(name: str) -> list[Metric]:
    rate = Metric("rate", name, "messages/s", record_size=BODY_SIZE)
    return [rate, harness.cost(name), *latencies.metrics(name)]


def _count(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def wait_inline(store: MessageStore, message: Message) -> None:
    store.wait(store.append(message).end)


def wait_for_callback(store: MessageStore, message: Message) -> None:
    done = threading.Event()
    placement = store.append(message)
    store.flush.request(placement.end).add_done_callback(lambda _: done.set())
    done.wait()


def _ours(setting: Setting, put: Put, threads: int, puts: int) -> Figures:
    with (
        fresh_directory(setting.directory) as root,
        open_store(root, flush=FlushDiskType.SYNC) as store,
        ThreadPoolExecutor(threads) as pool,
    ):
        _put_all(store, put, pool, threads, WARM)
        cpu, began = time.process_time(), time.perf_counter()
        seconds = _put_all(store, put, pool, threads, puts)
        rate = len(seconds) / (time.perf_counter() - began)
        cost = (time.process_time() - cpu) / len(seconds) * 1e6
        return {"rate": rate, "cost": cost, **latencies.figures(seconds)}


def _put_all(
    store: MessageStore, put: Put, pool: ThreadPoolExecutor, threads: int, puts: int
) -> list[float]:
    """Latencies in seconds of ``puts`` puts by each of the threads."""
    body = make_body(BODY_SIZE)

    def work(number: int) -> list[float]:
        return latencies.timed(
            lambda encoded: put(store, make_message(number % QUEUES, body, encoded)),
            encoded_properties(number * puts, puts),
        )

    return [each for found in pool.map(work, range(threads)) for each in found]


def _peer(setting: Setting, threads: int, puts: int) -> Figures:
    assert setting.peer is not None
    with fresh_directory(setting.directory) as root:
        return setting.peer.request(
            "sync",
            dir=root,
            segment=SEGMENT_DEFAULT,
            flush="SYNC_FLUSH",
            warm=WARM,
            puts=puts,
            threads=threads,
            body=BODY_SIZE,
        )


def _disk(setting: Setting, records: int, syncs: int) -> Figures:
    with fresh_directory(setting.directory) as root:
        descriptor = os.open(root / "raw", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(descriptor, 0, RAW_FILE)
        os.fsync(descriptor)
        mapped = native.map_shared(descriptor, RAW_FILE, writable=True)
        native.populate(mapped, 0, RAW_FILE)
        seconds = _raw_syncs(mapped, descriptor, RAW_RECORD * records, syncs)
        os.close(descriptor)
    return {"rate": records * syncs / sum(seconds), **latencies.figures(seconds)}


def _raw_syncs(mapped: memoryview, descriptor: int, data: bytes, syncs: int) -> list[float]:
    seconds = []
    position = 0
    for _ in range(syncs):
        if position + len(data) > RAW_FILE:
            position = 0
        began = time.perf_counter()
        mapped[position : position + len(data)] = data
        os.fdatasync(descriptor)
        seconds.append(time.perf_counter() - began)
        position += len(data)
    return seconds
