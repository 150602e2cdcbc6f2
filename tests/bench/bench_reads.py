"""Reads from a store that fits the page cache: by queue, by physical offset, by unique key.

Both sides decode each record with its body and properties; ours also checks the body's CRC.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from mqstore.storage.codec.record import Record
from mqstore.storage.lookups import Lookups
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.stores import Filled, filled_store, open_store
from tests.bench.workload import QUEUES, TOPIC, unique_key

SEGMENT: Final = 64 << 20
PULL: Final = 32
"""RocketMQ's maxTransferCountOnMessageInMemory."""
SEED: Final = 4

Loop = Callable[[Lookups], int]
"""Returns how many records were read."""


def benches(setting: Setting) -> Iterator[Bench]:
    with filled_store(setting.directory, SEGMENT, setting.log_mib << 20) as filled:
        numbers = _pick(filled, setting.records)
        offsets = [filled.offsets[number] for number in numbers]
        keys = [unique_key(number) for number in numbers]
        plans: list[tuple[str, str, Loop, list[int]]] = [
            ("queue reads, 32 at a time", "read-queues", read_queues, []),
            ("random reads by offset", "read-offsets", partial(read_offsets, offsets), offsets),
            ("queries by unique key", "query-keys", partial(query_keys, keys), numbers),
        ]
        for name, verb, loop, picks in plans:
            file = _write(filled.peers.parent / f"{verb}.picks", picks)
            peer = partial(_peer, setting, filled, verb, file) if setting.peer else None
            yield Bench([Metric("rate", name, "messages/s")], partial(_ours, filled, loop), peer)


def read_queues(lookups: Lookups) -> int:
    records = 0
    for queue_id in range(QUEUES):
        offset, end = 0, lookups.queue_range(TOPIC, queue_id).max_offset
        while offset < end:
            pull = lookups.records(TOPIC, queue_id, offset, PULL)
            for record in pull.records:
                _use(record)
            records += len(pull.records)
            offset = pull.next_offset
    return records


def read_offsets(offsets: list[int], lookups: Lookups) -> int:
    for offset in offsets:
        _use(lookups.by_physical_offset(offset))
    return len(offsets)


def query_keys(keys: list[str], lookups: Lookups) -> int:
    records = 0
    for key in keys:
        answer = lookups.by_key(TOPIC, key, limit=PULL)
        for record in answer.records:
            _use(record)
        records += len(answer.records)
    return records


def _use(record: Record) -> None:
    """Properties are decoded when they are asked for."""
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


def _ours(filled: Filled, loop: Loop) -> Figures:
    with open_store(filled.ours, segment=filled.segment) as store:
        began = time.perf_counter()
        records = loop(store.lookups)
        return {"rate": records / (time.perf_counter() - began)}


def _peer(setting: Setting, filled: Filled, verb: str, picks: Path) -> Figures:
    assert setting.peer is not None
    return setting.peer.ask(
        verb, dir=filled.peers, segment=filled.segment, flush="ASYNC_FLUSH", picks=picks
    )
