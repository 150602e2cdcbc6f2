"""In-process look-ups of the query service: messages by their ids, one and many at a time, a queue
offset by time, a pull that a tag filters, and pulls of eight threads at a time.

The store fits the page cache. Filtered, the rate counts the messages that were passed over too: one
in a hundred has the tag. Of eight readers each pulls every queue whole, and copies what it gets, as
``bench_reads`` does with one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from mqstore.storage.codec import message_id
from mqstore.storage.codec.record import Record
from mqstore.storage.lookup.bulk import by_message_ids
from mqstore.storage.lookup.pull_filter import parse_tags
from mqstore.storage.lookup.queue_pulls import QueuePulls
from mqstore.storage.message_store import MessageStore
from tests.bench import latencies
from tests.bench.bench_reads import (
    PULL,
    READ_SHARE,
    SEED,
    SEGMENT,
    TIMED_SHARE,
    Taking,
    contents_of,
    copy_queues,
    write_picks,
)
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.stores import Filled, filled_store, open_store
from tests.bench.workload import BODY_SIZE, HOST, QUEUES, RARE_TAG, TOPIC

READERS: Final = 8
BATCH: Final = 100
BYTES_MAX: Final = 8 << 20

Call = Callable[[int], object]


@dataclass(frozen=True)
class Looking:
    """One call for each pick, as both sides do it."""

    name: str
    verb: str
    unit: str
    picks: list[int]
    call_of: Callable[[MessageStore, list[int]], Call]
    """The call is given the number of a pick, or of a batch of picks."""
    batch: int = 1
    """Picks of one call; the peer's calls are of one each."""


@dataclass(frozen=True)
class Pulling:
    """Passes over all queues; the second one counts."""

    name: str
    verb: str
    taking: Taking
    loop: Callable[[MessageStore], int]
    """Returns how many messages were passed."""


def benches(setting: Setting) -> Iterator[Bench]:
    size = (setting.log_mib << 20) // READ_SHARE
    with filled_store(setting.directory, SEGMENT, size) as filled:
        for looking in _lookings(filled, setting.records):
            metrics = [Metric("rate", looking.name, looking.unit)]
            if looking.batch == 1:
                metrics += latencies.metrics(looking.name)
            peer = partial(_peer_looks, setting, filled, looking) if setting.peer else None
            yield Bench(metrics, partial(_look, filled, looking), peer)
        for pulling in PULLINGS:
            metric = Metric("again", pulling.name, "messages/s", record_size=BODY_SIZE)
            peer = partial(_peer_pulls, setting, filled, pulling) if setting.peer else None
            yield Bench([metric], partial(_pull, filled, pulling), peer)


def _lookings(filled: Filled, count: int) -> Iterator[Looking]:
    chosen = random.Random(SEED)
    numbers = [chosen.randrange(filled.records) for _ in range(min(count, filled.records))]
    offsets = [filled.offsets[number] for number in numbers]
    name = "look-ups by offset message id, decoded"
    yield Looking(name, "look-ids", "messages/s", offsets, by_id)
    many = f"look-ups by offset message id, {BATCH} at a time, decoded"
    yield Looking(many, "look-ids", "messages/s", offsets, by_many_ids, BATCH)
    with open_store(filled.ours, segment=filled.segment) as store:
        first, last = (_stored_ms(store, filled.offsets[at]) for at in (0, -1))
    times = [chosen.randint(first, last + 1) for _ in numbers]
    yield Looking("queue offsets by time", "offsets-by-time", "look-ups/s", times, by_time)


def _stored_ms(store: MessageStore, offset: int) -> int:
    return store.lookups.by_physical_offset(offset).store_timestamp_ms


def by_id(store: MessageStore, offsets: list[int]) -> Call:
    ids = [message_id.encode(HOST, offset) for offset in offsets]
    look_up = store.lookups.by_message_id
    return lambda number: contents_of(look_up(ids[number]))


def by_many_ids(store: MessageStore, offsets: list[int]) -> Call:
    ids = [message_id.encode(HOST, offset) for offset in offsets]
    batches = [ids[at : at + BATCH] for at in range(0, len(ids), BATCH)]

    def look_up(number: int) -> None:
        for found in by_message_ids(store.lookups, batches[number], BYTES_MAX):
            assert isinstance(found, Record)
            contents_of(found)

    return look_up


def by_time(store: MessageStore, times: list[int]) -> Call:
    search = store.lookups.offset_by_time
    return lambda number: search(TOPIC, number % QUEUES, times[number])


def pull_filtered(store: MessageStore) -> int:
    pulls, wanted, passed = QueuePulls(store.lookups, store.queues), parse_tags(RARE_TAG), 0
    for queue_id in range(QUEUES):
        offset, end = 0, store.lookups.queue_range(TOPIC, queue_id).max_offset
        while offset < end:
            pull = pulls.pull(
                TOPIC, queue_id, offset, count=PULL, max_bytes=BYTES_MAX, wanted=wanted
            )
            for record in pull.records:
                contents_of(record)
            offset = pull.next_offset
        passed += end
    return passed


def pull_by_many(store: MessageStore) -> int:
    with ThreadPoolExecutor(READERS) as pool:
        return sum(pool.map(copy_queues, [store.lookups] * READERS))


PULLINGS: Final = [
    Pulling(
        "queue reads filtered by tag, one in 100, decoded",
        "read-filtered",
        Taking.DECODED,
        pull_filtered,
    ),
    Pulling(
        f"queue reads, {PULL} at a time, copied, {READERS} readers",
        "read-by-many",
        Taking.COPIED,
        pull_by_many,
    ),
]


def _look(filled: Filled, looking: Looking) -> Figures:
    with open_store(filled.ours, segment=filled.segment) as store:
        call, picks = looking.call_of(store, looking.picks), len(looking.picks)
        began = time.perf_counter()
        for number in range(-(-picks // looking.batch)):
            call(number)
        rate = picks / (time.perf_counter() - began)
        if looking.batch > 1:
            return {"rate": rate}
        timed = latencies.timed(call, range(_timed(looking)))
        return {"rate": rate, **latencies.figures(timed)}


def _timed(looking: Looking) -> int:
    return max(1, len(looking.picks) // TIMED_SHARE)


def _pull(filled: Filled, pulling: Pulling) -> Figures:
    with open_store(filled.ours, segment=filled.segment) as store:
        pulling.loop(store)
        began = time.perf_counter()
        passed = pulling.loop(store)
        return {"again": passed / (time.perf_counter() - began)}


def _peer_looks(setting: Setting, filled: Filled, looking: Looking) -> Figures:
    picks = write_picks(filled.peers.parent / f"{looking.verb}.picks", looking.picks)
    more: dict[str, int | str | Path] = {"picks": picks, "timed": _timed(looking)}
    return _request(setting, filled, looking.verb, Taking.DECODED, more)


def _peer_pulls(setting: Setting, filled: Filled, pulling: Pulling) -> Figures:
    more: dict[str, int | str | Path] = {"readers": READERS, "tag": RARE_TAG}
    return _request(setting, filled, pulling.verb, pulling.taking, more)


def _request(
    setting: Setting, filled: Filled, verb: str, taking: Taking, more: dict[str, int | str | Path]
) -> Figures:
    assert setting.peer is not None
    return setting.peer.request(
        verb, dir=filled.peers, segment=filled.segment, flush="ASYNC_FLUSH", taking=taking, **more
    )
