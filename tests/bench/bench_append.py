"""Asynchronous puts by one thread into a fresh store of RocketMQ's own sizes.

`acknowledged` ends when the last put returns, `readable` when queues and index have the last
record too: ours dispatches in the putting thread, RocketMQ in one of its own. The percentiles are
of a run of its own behind that, in which each put, of one message or of a batch, is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from mqstore.storage._kernel import Reason
from mqstore.storage.codec.batch import encode_batch
from mqstore.storage.codec.record import Message
from mqstore.storage.message_store import MessageStore
from tests.bench import harness, latencies
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.rocketmq import SEGMENT_DEFAULT
from tests.bench.stores import fresh_directory, open_store
from tests.bench.workload import QUEUES, TOPIC, encoded_properties, make_body, make_message
from tests.unit.storage.sends import sends_of

WARM: Final = 10_000
"""Records put into the fresh store before the clock starts."""
TIMED_SHARE: Final = 4
"""One put in so many is timed by itself."""


@dataclass(frozen=True)
class Shape:
    name: str
    body_size: int
    batch: int = 1
    encoded: bool = False
    """Whether ours gets a batch ready encoded, too, as RocketMQ always does."""


SHAPES: Final = (
    Shape("1 KiB", 1024),
    Shape("100 B", 100),
    Shape("1 KiB, batches of 100", 1024, 100),
    Shape("1 KiB, batches of 100, encoded", 1024, 100, encoded=True),
)


def benches(setting: Setting) -> Iterator[Bench]:
    for shape in SHAPES:
        metrics = [
            Metric(key, f"append {shape.name}, {key}", "messages/s", record_size=shape.body_size)
            for key in ("acknowledged", "readable")
        ]
        metrics += [
            harness.cost(f"append {shape.name}"),
            *latencies.metrics(f"append {shape.name}"),
        ]
        ours = partial(_ours, setting, shape)
        peer = partial(_peer, setting, shape) if setting.peer else None
        yield Bench(metrics, ours, peer)


Put = Callable[[int], object]
"""Puts what has that number."""


def prepare(
    store: MessageStore, shape: Shape, body: bytes, properties: list[bytes]
) -> tuple[Put, range]:
    """Return a call that puts one message or one batch, and the numbers of all calls."""
    numbers = range(len(properties) // shape.batch)

    def batch_of(number: int) -> list[Message]:
        encoded = properties[number * shape.batch : (number + 1) * shape.batch]
        return [make_message(number % QUEUES, body, each) for each in encoded]

    def put(number: int) -> None:
        store.append(make_message(number % QUEUES, body, properties[number]))

    def put_batch(number: int) -> None:
        store.append(batch_of(number), as_batch=True)

    if not shape.encoded:
        return put if shape.batch == 1 else put_batch, numbers
    ready = [encode_batch(batch_of(number)) for number in numbers]

    sends = sends_of(store, TOPIC, QUEUES)

    def put_ready(number: int) -> None:
        batch = sends.read_batch(ready[number], store.host, number % QUEUES)
        if isinstance(sends.put(batch), Reason):
            store.append(batch)

    return put_ready, numbers


def _ours(setting: Setting, shape: Shape) -> Figures:
    body = make_body(shape.body_size)
    records, timed = setting.records, setting.records // TIMED_SHARE
    with fresh_directory(setting.directory) as root, open_store(root) as store:
        put, numbers = prepare(store, shape, body, encoded_properties(0, WARM))
        for number in numbers:
            put(number)
        put, numbers = prepare(store, shape, body, encoded_properties(WARM, records))
        cpu, began = time.process_time(), time.perf_counter()
        for number in numbers:
            put(number)
        acknowledged = time.perf_counter() - began
        while store.dispatcher.behind:
            time.sleep(50e-6)
        readable = time.perf_counter() - began
        cost = (time.process_time() - cpu) / records * 1e6
        put, numbers = prepare(store, shape, body, encoded_properties(WARM + records, timed))
        seconds = latencies.timed(put, numbers)
    rates = {"acknowledged": records / acknowledged, "readable": records / readable}
    return {**rates, "cost": cost, **latencies.figures(seconds)}


def _peer(setting: Setting, shape: Shape) -> Figures:
    assert setting.peer is not None
    with fresh_directory(setting.directory) as root:
        return setting.peer.request(
            "append",
            dir=root,
            segment=SEGMENT_DEFAULT,
            flush="ASYNC_FLUSH",
            warm=WARM,
            records=setting.records,
            timed=setting.records // TIMED_SHARE,
            body=shape.body_size,
            batch=shape.batch,
        )
