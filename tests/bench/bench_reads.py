"""Reads from a store that fits the page cache: by queue, by physical offset, by unique key.

Undecoded, both sides give slices of their map, and read its size: RocketMQ one a record,
ours one for as many as stand together, of records and blocks that were checked. Copied, the bytes
of each answer are then copied to the heap, as who sends them does in some way. Decoded, body and
properties of each record are taken on both sides.

Queues are read through twice: the first pass, by a store just opened, maps pages and, here,
compares blocks with their checksums; ``again`` is the second.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from mqstore.storage.codec.record import Record
from mqstore.storage.lookup.lookups import Lookups
from tests.bench import latencies
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.stores import Filled, filled_store, open_store
from tests.bench.workload import BODY_SIZE, QUEUES, TOPIC, unique_key

T = TypeVar("T")

SEGMENT: Final = 64 << 20
READ_SHARE: Final = 4
"""The part of the log's size that is read: so much stays in the page cache for both sides."""
PULL: Final = 32
"""RocketMQ's maxTransferCountOnMessageInMemory."""
SEED: Final = 4
TIMED_SHARE: Final = 4
"""One call in so many is timed by itself."""

Loop = Callable[[Lookups], int]
"""Returns how many records were read."""
Call = Callable[[T], object]
"""Reads one record."""
PASSES: Final = {"rate": "", "again": ", again"}


class Taking(StrEnum):
    """The use of the read messages."""

    UNDECODED = "undecoded"
    COPIED = "copied"
    DECODED = "decoded"


@dataclass(frozen=True)
class Plan:
    """One way of reading, as both sides do it."""

    name: str
    verb: str
    taking: Taking
    loop: Loop
    picks: list[int]
    """Offsets, or numbers of records, that the peer reads; empty for everything."""
    timed: Callable[[Lookups], list[float]] | None = None
    """Seconds of some calls of the loop, each by itself."""


def benches(setting: Setting) -> Iterator[Bench]:
    with filled_store(setting.directory, SEGMENT, (setting.log_mib << 20) // READ_SHARE) as filled:
        for plan in _plans(filled, setting.records):
            picks = write_picks(filled.peers.parent / f"{plan.verb}.picks", plan.picks)
            peer = partial(_peer, setting, filled, plan, picks) if setting.peer else None
            yield Bench(_metrics(plan), partial(_ours, filled, plan), peer)


def _metrics(plan: Plan) -> list[Metric]:
    if plan.timed is not None:
        rate = Metric("rate", plan.name, "messages/s", record_size=BODY_SIZE)
        return [rate, *latencies.metrics(plan.name)]
    return [
        Metric(key, plan.name + suffix, "messages/s", record_size=BODY_SIZE)
        for key, suffix in PASSES.items()
    ]


def _plans(filled: Filled, count: int) -> Iterator[Plan]:
    numbers = _pick(filled, count)
    offsets = [filled.offsets[number] for number in numbers]
    keys = [unique_key(number) for number in numbers]
    for taking in Taking:
        name = f"queue reads, {PULL} at a time, {taking}"
        yield Plan(name, "read-queues", taking, QUEUE_LOOPS[taking], [])
        name = f"random reads by offset, {taking}"
        yield Plan(name, "read-offsets", taking, *_each(OFFSET_CALLS[taking], offsets, offsets))
    name = "queries by unique key, decoded"
    yield Plan(name, "query-keys", Taking.DECODED, *_each(query, keys, numbers))


def _each(
    call_of: Callable[[Lookups], Call[T]], wanted: list[T], picks: list[int]
) -> tuple[Loop, list[int], Callable[[Lookups], list[float]]]:
    """The last fields of a plan that reads one record a call."""

    def loop(lookups: Lookups) -> int:
        call = call_of(lookups)
        for each in wanted:
            call(each)
        return len(wanted)

    def timed(lookups: Lookups) -> list[float]:
        return latencies.timed(call_of(lookups), wanted[: max(1, len(wanted) // TIMED_SHARE)])

    return loop, picks, timed


def slice_queues(lookups: Lookups) -> int:
    size = records = 0
    for queue_id in range(QUEUES):
        offset, end = 0, lookups.queue_range(TOPIC, queue_id).max_offset
        while offset < end:
            pulled = lookups.slices(TOPIC, queue_id, offset, PULL)
            for part in pulled.parts:
                size += len(part)
            records += pulled.count
            offset = pulled.next_offset
    return records


def copy_queues(lookups: Lookups) -> int:
    size = records = 0
    for queue_id in range(QUEUES):
        offset, end = 0, lookups.queue_range(TOPIC, queue_id).max_offset
        while offset < end:
            pulled = lookups.slices(TOPIC, queue_id, offset, PULL)
            size += len(b"".join(pulled.parts))
            records += pulled.count
            offset = pulled.next_offset
    return records


def decode_queues(lookups: Lookups) -> int:
    records = 0
    for queue_id in range(QUEUES):
        offset, end = 0, lookups.queue_range(TOPIC, queue_id).max_offset
        while offset < end:
            pull = lookups.records(TOPIC, queue_id, offset, PULL)
            for record in pull.records:
                contents_of(record)
            records += len(pull.records)
            offset = pull.next_offset
    return records


def slice_offset(lookups: Lookups) -> Call[int]:
    return lookups.slice_at


def copy_offset(lookups: Lookups) -> Call[int]:
    return lambda offset: bytes(lookups.slice_at(offset))


def decode_offset(lookups: Lookups) -> Call[int]:
    return lambda offset: contents_of(lookups.by_physical_offset(offset))


def query(lookups: Lookups) -> Call[str]:
    def call(key: str) -> None:
        (found,) = lookups.by_key(TOPIC, key, limit=PULL).records
        contents_of(found)

    return call


QUEUE_LOOPS: Final = {
    Taking.UNDECODED: slice_queues,
    Taking.COPIED: copy_queues,
    Taking.DECODED: decode_queues,
}
OFFSET_CALLS: Final = {
    Taking.UNDECODED: slice_offset,
    Taking.COPIED: copy_offset,
    Taking.DECODED: decode_offset,
}


def contents_of(record: Record) -> None:
    if not record.body or not record.properties:
        raise SideError(f"nothing in the record at offset {record.physical_offset}")


def _pick(filled: Filled, count: int) -> list[int]:
    chosen = random.Random(SEED)
    return [chosen.randrange(filled.records) for _ in range(min(count, filled.records))]


def write_picks(path: Path, numbers: list[int]) -> Path:
    """For `Request.numbers`."""
    packed = array("q", numbers)
    packed.byteswap()
    path.write_bytes(packed.tobytes())
    return path


def _ours(filled: Filled, plan: Plan) -> Figures:
    with open_store(filled.ours, segment=filled.segment) as store:
        if plan.timed is None:
            return {key: _rate(plan, store.lookups) for key in PASSES}
        rate = {"rate": _rate(plan, store.lookups)}
        return {**rate, **latencies.figures(plan.timed(store.lookups))}


def _rate(plan: Plan, lookups: Lookups) -> float:
    began = time.perf_counter()
    return plan.loop(lookups) / (time.perf_counter() - began)


def _peer(setting: Setting, filled: Filled, plan: Plan, picks: Path) -> Figures:
    assert setting.peer is not None
    return setting.peer.request(
        plan.verb,
        dir=filled.peers,
        segment=filled.segment,
        flush="ASYNC_FLUSH",
        picks=picks,
        taking=plan.taking,
        timed=max(1, len(plan.picks) // TIMED_SHARE),
    )
