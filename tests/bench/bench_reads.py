"""Reads from a store that fits the page cache: by queue, by physical offset, by unique key.

Undecoded, RocketMQ gives slices of its map, of which the size is asked; ours gives records whose
bytes were checked, the body's CRC included, and copied. Decoded, body and properties of each are
taken on both sides.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from mqstore.storage.codec.record import Record
from mqstore.storage.lookups import Lookups
from tests.bench import latencies
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.stores import Filled, filled_store, open_store
from tests.bench.workload import BODY_SIZE, QUEUES, TOPIC, unique_key

SEGMENT: Final = 64 << 20
READ_SHARE: Final = 4
"""The part of the log's size that is read: so much stays in the page cache for both sides."""
PULL: Final = 32
"""RocketMQ's maxTransferCountOnMessageInMemory."""
SEED: Final = 4
TIMED_SHARE: Final = 4
"""One call in so many is timed by itself."""

Use = Callable[[Record], object]
Loop = Callable[[Lookups], int]
"""Returns how many records were read."""


@dataclass(frozen=True)
class Plan:
    """One way of reading, as both sides do it."""

    name: str
    verb: str
    decoded: bool
    loop: Loop
    picks: list[int]
    """What the peer reads: offsets, or numbers of records; empty for everything."""
    one: Callable[[Lookups, int], int] | None = None
    """One call of the loop, by the number of its pick, to be timed by itself."""


def benches(setting: Setting) -> Iterator[Bench]:
    with filled_store(setting.directory, SEGMENT, (setting.log_mib << 20) // READ_SHARE) as filled:
        for plan in _plans(filled, setting.records):
            picks = _write(filled.peers.parent / f"{plan.verb}.picks", plan.picks)
            peer = partial(_peer, setting, filled, plan, picks) if setting.peer else None
            metrics = [Metric("rate", plan.name, "messages/s", record_size=BODY_SIZE)]
            if plan.one is not None:
                metrics += latencies.metrics(plan.name)
            yield Bench(metrics, partial(_ours, filled, plan), peer)


def _plans(filled: Filled, count: int) -> Iterator[Plan]:
    numbers = _pick(filled, count)
    offsets = [filled.offsets[number] for number in numbers]
    keys = [unique_key(number) for number in numbers]
    for kind, decoded, use in (("undecoded", False, size_of), ("decoded", True, contents_of)):
        name = f"queue reads, {PULL} at a time, {kind}"
        yield Plan(name, "read-queues", decoded, partial(read_queues, use), [])
        name = f"random reads by offset, {kind}"
        loop, one = partial(read_offsets, use, offsets), partial(read_offset, use, offsets)
        yield Plan(name, "read-offsets", decoded, loop, offsets, one)
    name = "queries by unique key, decoded"
    loop = partial(query_keys, keys)
    yield Plan(name, "query-keys", True, loop, numbers, partial(query_key, keys))


def read_queues(use: Use, lookups: Lookups) -> int:
    records = 0
    for queue_id in range(QUEUES):
        offset, end = 0, lookups.queue_range(TOPIC, queue_id).max_offset
        while offset < end:
            pull = lookups.records(TOPIC, queue_id, offset, PULL)
            for record in pull.records:
                use(record)
            records += len(pull.records)
            offset = pull.next_offset
    return records


def read_offset(use: Use, offsets: list[int], lookups: Lookups, number: int) -> int:
    use(lookups.by_physical_offset(offsets[number]))
    return 1


def read_offsets(use: Use, offsets: list[int], lookups: Lookups) -> int:
    for offset in offsets:
        use(lookups.by_physical_offset(offset))
    return len(offsets)


def query_key(keys: list[str], lookups: Lookups, number: int) -> int:
    answer = lookups.by_key(TOPIC, keys[number], limit=PULL)
    for record in answer.records:
        contents_of(record)
    return len(answer.records)


def query_keys(keys: list[str], lookups: Lookups) -> int:
    return sum(query_key(keys, lookups, number) for number in range(len(keys)))


def size_of(record: Record) -> int:
    return len(record.raw)


def contents_of(record: Record) -> None:
    if not record.body or not record.properties:
        raise AssertionError(f"nothing in the record at offset {record.physical_offset}")


def _pick(filled: Filled, count: int) -> list[int]:
    chosen = random.Random(SEED)
    return [chosen.randrange(filled.records) for _ in range(min(count, filled.records))]


def _write(path: Path, numbers: list[int]) -> Path:
    packed = array("q", numbers)
    packed.byteswap()
    path.write_bytes(packed.tobytes())
    return path


def _ours(filled: Filled, plan: Plan) -> Figures:
    with open_store(filled.ours, segment=filled.segment) as store:
        began = time.perf_counter()
        records = plan.loop(store.lookups)
        rate = {"rate": records / (time.perf_counter() - began)}
        if plan.one is None:
            return rate
        timed = range(max(1, len(plan.picks) // TIMED_SHARE))
        return {
            **rate,
            **latencies.figures(latencies.timed(partial(plan.one, store.lookups), timed)),
        }


def _peer(setting: Setting, filled: Filled, plan: Plan, picks: Path) -> Figures:
    assert setting.peer is not None
    return setting.peer.ask(
        plan.verb,
        dir=filled.peers,
        segment=filled.segment,
        flush="ASYNC_FLUSH",
        picks=picks,
        decode=int(plan.decoded),
        timed=max(1, len(plan.picks) // TIMED_SHARE),
    )
