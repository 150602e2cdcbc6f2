"""Append and group-commit throughput of the log's write path, in one process.

Run: ``python -m tests.bench.bench_append [--records N] [--directory DIR]``. A record is 1 KiB of
body with a unique key, a tag and a key, as in the design's table; ``append`` includes the put
lock, numbering, encoding and publishing. The directory should lie on the disk that is meant
(default: the current one's).
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from mqstore.storage.allocation import AllocationService
from mqstore.storage.commit_log import CommitLog
from mqstore.storage.config import StoreConfig
from mqstore.storage.flush import FlushRequest
from mqstore.storage.hosts import Host
from mqstore.storage.layout import StoreFormat
from mqstore.storage.mapped_file_queue import MappedFileQueue
from mqstore.storage.record import Message
from mqstore.storage.threads import production_seams
from tests.bench.harness import Row, paired, table

SEGMENT = 64 << 20
BODY = bytes(range(256)) * 4
PROPERTIES = (
    b"UNIQ_KEY\x01AC1200020B9C18B4AAC218B4AAC20000\x02KEYS\x01order-1234567\x02TAGS\x01paid"
)


class NoMarks:
    def set_min(self, offset: int) -> None: ...

    def set_max(self, offset: int) -> None: ...

    def set_flushed(self, offset: int) -> None: ...


def make_message(queue_id: int = 0) -> Message:
    host = Host.parse("127.0.0.1", 10911)
    now = time.time_ns() // 1_000_000
    return Message("bench-topic", queue_id, BODY, PROPERTIES, host, host, now)


@contextmanager
def open_log(directory: Path) -> Iterator[CommitLog]:
    seams = production_seams()
    with TemporaryDirectory(dir=directory, prefix="bench-append-") as root:
        files = MappedFileQueue(Path(root, "commitlog"), SEGMENT, seams, staging=Path(root, "new"))
        allocation = AllocationService(seams)
        allocation.start(lambda error: None)
        config = StoreConfig(mapped_file_size_commit_log=SEGMENT)
        yield CommitLog(files, config, StoreFormat.V4_9, seams, NoMarks(), allocation=allocation)
        allocation.close()
        files.close()


def append_single(log: CommitLog, records: int) -> None:
    append, message = log.append, make_message()
    for _ in range(records):
        append(message)


def append_batches(log: CommitLog, records: int) -> None:
    batch = [make_message() for _ in range(100)]
    for _ in range(records // 100):
        log.append_batch(batch)


def wait_inline(log: CommitLog) -> None:
    """Append and let this thread sync for the group."""
    log.flush.wait(log.flush.request(log.append(make_message()).end), 60)


def wait_for_service(log: CommitLog) -> None:
    """Append and let the flush thread sync."""
    done = threading.Event()
    request: FlushRequest = log.flush.request(log.append(make_message()).end)
    request.add_done_callback(lambda _: done.set())
    done.wait(60)


def durable_puts(
    log: CommitLog, put: Callable[[CommitLog], None], threads: int, puts: int
) -> list[float]:
    """Latencies in seconds of ``puts`` puts by each of ``threads`` threads."""
    latencies: list[float] = []

    def run() -> None:
        mine = []
        for _ in range(puts):
            began = time.perf_counter()
            put(log)
            mine.append(time.perf_counter() - began)
        latencies.extend(mine)

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return latencies


def append_rate(run: Callable[[CommitLog, int], None], directory: Path, records: int) -> float:
    """Records a second, into a fresh log; the first thousand are not counted."""
    with open_log(directory) as log:
        run(log, 1000)
        began = time.perf_counter()
        run(log, records)
        return records / (time.perf_counter() - began)


def durable_rate(
    put: Callable[[CommitLog], None], threads: int, directory: Path, puts: int
) -> float:
    """Durable puts a second by so many threads at once."""
    with open_log(directory) as log:
        log.flush.start()
        durable_puts(log, put, threads, 20)
        began = time.perf_counter()
        latencies = durable_puts(log, put, threads, max(1, puts // threads))
        rate = len(latencies) / (time.perf_counter() - began)
        log.flush.stop()
        return rate


def rows(directory: Path, records: int) -> Iterator[Row]:
    for name, run in (("one at a time", append_single), ("batches of 100", append_batches)):
        rate = partial(append_rate, run, directory, records)
        yield paired(f"append 1 KiB, {name}", "records/s", rate, None)
    for threads in (1, 4):
        for name, put in (("waiter syncs", wait_inline), ("flush thread", wait_for_service)):
            rate = partial(durable_rate, put, threads, directory, max(400, records // 100))
            yield paired(f"durable put 1 KiB, {threads} at once, {name}", "puts/s", rate, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--directory", type=Path, default=Path.cwd())
    options = parser.parse_args()
    print(table(list(rows(options.directory, options.records))))


if __name__ == "__main__":
    main()
