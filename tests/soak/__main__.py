"""`python -m tests.soak`: millions of messages over HTTP, and what memory the services take.

Singles and batches with keys go to four queues of one store-writer; readers pull along from query;
retention takes the log's old files all the while, so the disk stays bounded. Each second the
services' memory is sampled. Exit 1 when private memory (RssAnon) grew once it had settled.
Writes build/soak.json and build/soak.svg.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.bench import senders
from tests.bench.workload import QUEUES, TOPIC
from tests.services.service_processes import Run, running
from tests.soak import graph

BUILD: Final = Path(__file__).parents[2] / "build"
BODY_SIZE: Final = 256
BATCH: Final = 100
BATCHING: Final = 6
"""Connections that send batches; SINGLE send one message at a time."""
SINGLE: Final = 2
SINGLES_EACH: Final = 50
BATCHES_EACH: Final = 10
"""Requests of one connection in a round."""
ROUND: Final = BATCHING * BATCHES_EACH * BATCH + SINGLE * SINGLES_EACH
SAMPLE_S: Final = 1.0
MIB: Final = 1 << 20
SETTLED: Final = 0.5
"""From this part of the run on memory must not grow: before, the window of unique keys fills."""
GROWTH_MAX: Final = 1.05
ROOM_MIB: Final = 8.0
SETTINGS: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 64 * MIB,
    "file_reserved_time": 0,
    "delete_when": ";".join(f"{hour:02}" for hour in range(24)),
    "clean_resource_interval": 1000,
}


@dataclass(frozen=True)
class Sample:
    seconds: float
    messages: int
    disk_mib: float
    writer_mib: float
    """RssAnon."""
    writer_rss_mib: float
    query_mib: float
    query_rss_mib: float


class Sampler:
    def __init__(self, run: Run, store: Path) -> None:
        self._processes = [run.child(name) for name in ("writer", "query")]
        self._store = store
        self._began = time.monotonic()
        self.samples: list[Sample] = []

    def sample(self, messages: int, *, is_last: bool = False) -> None:
        """One each second, and the last; call it as often as one likes."""
        seconds = time.monotonic() - self._began
        if is_last or seconds >= len(self.samples) * SAMPLE_S:
            memory = [mib for each in self._processes for mib in _memory(each)]
            self.samples.append(Sample(seconds, messages, _disk(self._store), *memory))


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 when memory grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--directory", type=Path, default=BUILD, help="where the store is made")
    parser.add_argument("--output", type=Path, default=BUILD, help="of soak.json and soak.svg")
    options = parser.parse_args(arguments)
    options.directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=options.directory, prefix="soak-") as room:
        samples, read = _soak(Path(room) / "store", options.messages)
    _write(samples, read, options.output)
    return 0 if _is_flat(samples) else 1


def _soak(store: Path, messages: int) -> tuple[list[Sample], int]:
    with running(store, **SETTINGS) as run:
        with run.client() as client:
            client.create_topic(TOPIC, queues=QUEUES)
        sampler = Sampler(run, store)
        with _reading(run.query_url) as reader:
            for number in range(0, messages, ROUND):
                senders.send_all(run.writer_url, _round(number))
                sampler.sample(number + ROUND)
                if len(sampler.samples) % 30 == 0:
                    print(sampler.samples[-1], file=sys.stderr, flush=True)
            sampler.sample(number + ROUND, is_last=True)
            read, _ = reader.communicate("end\n")
    return sampler.samples, int(read)


def _round(first: int) -> list[list[bytes]]:
    """Requests by connection, of the messages from this number on."""
    single, batch = senders.single(BODY_SIZE), senders.batch(BODY_SIZE, BATCH)
    requests: list[list[bytes]] = []
    for connection in range(BATCHING + SINGLE):
        make, count, size = (
            (batch, BATCHES_EACH, BATCH) if connection < BATCHING else (single, SINGLES_EACH, 1)
        )
        requests.append([make(connection, first + at * size) for at in range(count)])
        first += count * size
    return requests


@contextmanager
def _reading(url: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.soak.readers", url],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        yield reader


def _memory(process_id: int) -> tuple[float, float]:
    """RssAnon and RSS in MiB."""
    found = dict(
        line.split(":", 1) for line in Path(f"/proc/{process_id}/status").read_text().splitlines()
    )
    anon, rss = (int(found[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS"))
    return anon, rss


def _disk(store: Path) -> float:
    """MiB of the log's files."""
    sizes = []
    for path in (store / "commitlog").iterdir():
        try:
            sizes.append(path.stat().st_blocks * 512)
        except FileNotFoundError:  # retention took it
            continue
    return sum(sizes) / MIB


def _is_flat(samples: Sequence[Sample]) -> bool:
    """Whether no process has more private memory in the last tenth than where it had settled."""
    middle = samples[int(len(samples) * SETTLED) : int(len(samples) * (SETTLED + 0.1)) + 1]
    last = samples[int(len(samples) * 0.9) :]
    return all(
        statistics.median(getattr(each, name) for each in last)
        <= statistics.median(getattr(each, name) for each in middle) * GROWTH_MAX + ROOM_MIB
        for name in ("writer_mib", "query_mib")
    )


def _write(samples: Sequence[Sample], read: int, output: Path) -> None:
    lines = {
        "store-writer, RssAnon": [each.writer_mib for each in samples],
        "query, RssAnon": [each.query_mib for each in samples],
        "store-writer, RSS": [each.writer_rss_mib for each in samples],
        "query, RSS": [each.query_rss_mib for each in samples],
    }
    last = samples[-1]
    print(f"{last.messages:,} messages in {last.seconds:.0f} s, {read:,} read; MiB, least … most:")
    for name, values in lines.items():
        settled = values[int(len(values) * SETTLED) :]
        bounds = f"{min(settled):.0f} … {max(settled):.0f}"
        print(f"{name:22} {graph.sparkline(values)} {bounds}")
    disk = [each.disk_mib for each in samples]
    print(f"{'log on the disk':22} {graph.sparkline(disk)} {min(disk):.0f} … {max(disk):.0f}")
    output.mkdir(parents=True, exist_ok=True)
    found = {"read": read, "samples": [asdict(each) for each in samples]}
    (output / "soak.json").write_text(json.dumps(found) + "\n")
    (output / "soak.svg").write_text(graph.svg(lines, last.seconds, "MiB"))


if __name__ == "__main__":
    sys.exit(main())
