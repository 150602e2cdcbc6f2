"""`python -m tests.bench.growth [KIND…]`: what services cost as one thing grows tenfold, twice.

For each kind of thing and each size it makes a store, starts store-writer and query over it, and
reads what they have cost once they are ready: processor time since the start (the modules are
loaded before), resident memory, open files. Of connections it reads what opening them cost. Of
shared groups it also reads what a save after one change costs the engine, and a count of all
messages by state. Of damaged and aged stores it reads what the engine costs to recover, verify,
repair or restore them.

The exponent p fits cost = a + b · size^p to the three sizes, so that fixed costs do not hide
growth: 0 is constant, 1 linear. Exit status 1 when a row grows faster than linear.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.message_store import MessageStore
from mqstore.storage.shared_groups import SharedGroups, Subscription, decode_receipts
from mqstore.storage.system.threads import production_seams
from tests.bench.growth_at_rest import cpu_ms, damage_records, expire, nest_heads, prepare
from tests.bench.servers import Server
from tests.bench.workload import TOPIC, make_body, make_message
from tests.services.service_processes import Process, query, writer
from tests.unit.storage.puts import put_batch

STEPS: Final = (1, 10, 100)
SEGMENT: Final = 256 << 10
PAGES_IN_MIB: Final = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
BATCH: Final = 64
SHARD: Final = 0
NOISE: Final = {
    "start": 0.1,
    "memory": 6.0,
    "files": 4.0,
    "save": 2.0,
    "count": 2.0,
    "recovery": 100.0,
    "verify": 100.0,
    "repair": 100.0,
    "restore": 100.0,
}
"""Growth from the least to the greatest size below which a row counts as constant; a fifth of it is
the least that the first step counts as."""
UNITS: Final = {
    "start": "s of CPU",
    "memory": "MiB",
    "files": "open files",
    "save": "ms of CPU for a save",
    "count": "ms of CPU for a count",
    "recovery": "ms of CPU for an opening",
    "verify": "ms of CPU to verify",
    "repair": "ms of CPU to repair",
    "restore": "ms of CPU to restore",
}
TRIES: Final = 3
"""Maximum number of times that a kind is measured."""
WORST: Final = 1.25
"""Exponent up to which a row counts as linear: timed figures of one machine vary by as much."""

CONFIG: Final = StoreConfig(
    mapped_file_size_commit_log=SEGMENT,
    disk_space_clean_forcibly_ratio=100,
    disk_space_warning_level_ratio=100,
    max_queues=10**6,
)

IN_MEMORY: Final = Path("/dev/shm")
"""Default place of the stores: no figure is of the disk, whose syncs would take most of the
time."""
BUILD: Final = Path("build")

Figures = dict[str, float]


@dataclass(frozen=True)
class Kind:
    """One thing that grows."""

    unit: int
    """Its number at the first step."""
    fill: Callable[[MessageStore, int], None]
    """Puts so many into a new store."""
    connects: bool = False
    """Whether the things are connections, opened after the start."""
    engine: Callable[[MessageStore], Figures] | None = None
    """Measures the engine over the open store."""
    spoil: Callable[[Path, int], None] | None = None
    """Damages or ages the store at rest. No service is started then; ``works`` are measured."""
    works: Sequence[str] = ("recovery", "verify", "repair")
    segment: int = SEGMENT

    @property
    def config(self) -> StoreConfig:
        return CONFIG.model_copy(update={"mapped_file_size_commit_log": self.segment})


def _message(queue_id: int, size: int = 100) -> Message:
    return make_message(queue_id, make_body(size), b"")


def _topics(store: MessageStore, count: int) -> None:
    for number in range(count):
        store.create_topic(f"topic-{number}", queues=4)


def _queues(store: MessageStore, count: int) -> None:
    store.create_topic(TOPIC, queues=count)
    for number in range(count):
        put_batch(store, [_message(number)])


def _groups(store: MessageStore, count: int) -> None:
    store.create_topic(TOPIC, queues=4)
    for number in range(count):
        store.groups.put(f"group-{number}", lambda found: found)
        store.offsets.commit(f"group-{number}", [Commit(TOPIC, 0, 0)])


def _shared_groups(store: MessageStore, count: int) -> None:
    store.create_topic(TOPIC, queues=4)
    put_batch(store, [_message(0) for _ in range(3)])
    groups = SharedGroups(store, production_seams(), SHARD)
    for number in range(count):
        _acknowledge_last(groups, f"group-{number}", 2)
    groups.save()


def _acknowledge_last(groups: SharedGroups, group: str, count: int) -> None:
    """Receive ``count`` messages and acknowledge the last, so that the group has a state."""
    found = groups.receive(
        group, [Subscription(TOPIC)], count=count, max_bytes=1 << 20, invisible_s=60
    ).messages
    groups.acknowledge(group, decode_receipts([found[-1].receipt]))


def _turns(store: MessageStore) -> Figures:
    """Milliseconds of a save after one change, and of a count, as each scrape of the metrics."""
    groups = SharedGroups(store, production_seams(), SHARD)
    _acknowledge_last(groups, "group-0", 3)
    return {"save": cpu_ms(lambda: groups.step(0.0)), "count": cpu_ms(groups.pending)}


def _messages(store: MessageStore, count: int) -> None:
    store.create_topic(TOPIC, queues=4)
    for first in range(0, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        put_batch(store, [_message(0) for _ in numbers])


def _segments(store: MessageStore, count: int) -> None:
    store.create_topic(TOPIC, queues=4)
    while len(store.log.files.files) < count:
        put_batch(store, [_message(0, size=32 << 10)])


KINDS: Final[dict[str, Kind]] = {
    "topics": Kind(100, _topics),
    "queues": Kind(20, _queues),
    "groups": Kind(100, _groups),
    "shared-groups": Kind(100, _shared_groups, engine=_turns),
    "messages": Kind(2_000, _messages),
    "segments": Kind(4, _segments),
    "connections": Kind(10, lambda store, count: None, connects=True),
    "damaged-records": Kind(20, _messages, spoil=damage_records),
    "nested-heads": Kind(
        32, lambda store, _: _messages(store, 10), spoil=nest_heads, segment=8 << 20
    ),
    "expired-messages": Kind(
        1_000, _messages, spoil=expire, works=("recovery", "verify", "repair", "restore")
    ),
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    kind: str
    service: str
    figure: str
    values: Sequence[float]

    @property
    def exponent(self) -> float:
        """The exponent of the growth; 0 where it is within the noise."""
        least, middle, most = self.values
        if most - least <= NOISE[self.figure]:
            return 0.0
        return math.log10(max(most - middle, 1e-9) / max(middle - least, NOISE[self.figure] / 5))

    def __str__(self) -> str:
        values = " | ".join(f"{value:.3g}" for value in self.values)
        what = f"{self.service}, {UNITS[self.figure]}"
        return f"| {self.kind} | {what} | {values} | {self.exponent:.2f} |"


def measure(kind: str, directory: Path, rounds: int) -> list[Row]:
    """The rows of one kind; each figure is the least of the rounds, or of twice and three times as
    many while one grows faster than linear: other work on the machine makes such rows."""
    found: list[dict[str, Figures]] = []
    for _ in range(TRIES):
        more = [_at(KINDS[kind], KINDS[kind].unit * step, directory, rounds) for step in STEPS]
        found = [_least(pair) for pair in zip(found, more, strict=True)] if found else more
        rows = [
            Row(kind, service, figure, [each[service][figure] for each in found])
            for service, figures in found[0].items()
            for figure in figures
        ]
        if all(row.exponent <= WORST for row in rows):
            break
    return rows


def _least(found: Sequence[dict[str, Figures]]) -> dict[str, Figures]:
    """The least of each figure."""
    return {
        service: {figure: min(each[service][figure] for each in found) for figure in figures}
        for service, figures in found[0].items()
    }


def _at(kind: Kind, count: int, directory: Path, rounds: int) -> dict[str, Figures]:
    with TemporaryDirectory(dir=directory, prefix="growth-") as room:
        root = Path(room) / "store"
        with MessageStore.open(root, kind.config, production_seams()) as store:
            kind.fill(store, 0 if kind.connects else count)
        if kind.spoil is not None:
            kind.spoil(root, count)
            found = [at_rest(kind, root) for _ in range(rounds)]
        else:
            found = [_cost(kind, root, count) | _engine(kind, root) for _ in range(rounds)]
    return _least(found)


def at_rest(kind: Kind, root: Path) -> dict[str, Figures]:
    """The cost of each work over a copy of the store."""
    costs = {}
    for work in kind.works:
        with TemporaryDirectory(dir=root.parent) as room:
            copy = Path(room) / "store"
            shutil.copytree(root, copy)
            costs[work] = cpu_ms(prepare(work, copy, kind.config))
    return {"engine": costs}


def _engine(kind: Kind, root: Path) -> dict[str, Figures]:
    if kind.engine is None:
        return {}
    with MessageStore.open(root, CONFIG, production_seams()) as store:
        return {"engine": kind.engine(store)}


def _cost(kind: Kind, root: Path, count: int) -> dict[str, Figures]:
    costs = {}
    with writer(root) as writes, query(root) as reads:
        for name, process in (("store-writer", writes), ("query", reads)):
            with ExitStack() as opened:
                before = _cpu_s(process) if kind.connects else 0.0
                for _ in range(count if kind.connects else 0):
                    opened.enter_context(closing(_connect(process.port)))
                costs[name] = _figures(process.process.pid, _cpu_s(process) - before)
    return costs


def _connect(port: int) -> HTTPConnection:
    """A connection that stays open after one request."""
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/healthz/live")
    assert connection.getresponse().read()
    return connection


def _figures(pid: int, cpu_s: float) -> Figures:
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return {"start": cpu_s, "memory": resident * PAGES_IN_MIB, "files": files}


def _cpu_s(process: Process) -> float:
    return Server(process.url, (process.process.pid,)).cpu_s()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the kinds and print the table; return 1 when a row grows faster than linear."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--rounds", type=int, default=2, help="starts over each store")
    parser.add_argument(
        "--directory", type=Path, default=IN_MEMORY if IN_MEMORY.is_dir() else BUILD
    )
    options = parser.parse_args(arguments)
    unknown = set(options.kinds) - KINDS.keys()
    if unknown:
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}; known are {', '.join(KINDS)}")
    options.directory.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.CRITICAL)  # the stores are damaged on purpose
    worst = 0.0
    began = time.monotonic()
    for kind in options.kinds or KINDS:
        sizes = " | ".join(f"{KINDS[kind].unit * step:,}" for step in STEPS)
        print(f"\n| grows | of | {sizes} | exponent |\n| --- | --- |{' ---: |' * 4}")
        for row in measure(kind, options.directory, options.rounds):
            print(row, flush=True)
            worst = max(worst, row.exponent)
    print(f"\nthe greatest exponent is {worst:.2f}; {time.monotonic() - began:.0f} s", flush=True)
    return 1 if worst > WORST else 0


if __name__ == "__main__":
    sys.exit(main())
