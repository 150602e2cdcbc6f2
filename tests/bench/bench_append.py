"""Asynchronous puts by one thread into a fresh store of RocketMQ's own sizes.

`acknowledged` ends when the last put returns, `readable` when queues and index have the last
record too: ours dispatches in the putting thread, RocketMQ in one of its own. The percentiles are
of a run of its own behind that, in which each put, of one message or of a batch, is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from mqstore.storage.message_store import MessageStore
from tests.bench import latencies
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.stores import SEGMENT_DEFAULT, fresh_directory, open_store
from tests.bench.workload import QUEUES, encoded_properties, make_body, make_message

WARM: Final = 10_000
"""Records put into the fresh store before the clock starts."""
TIMED_SHARE: Final = 4
"""One put in so many is timed by itself."""
SHAPES: Final = (("1 KiB", 1024, 1), ("100 B", 100, 1), ("1 KiB, batches of 100", 1024, 100))


def benches(setting: Setting) -> Iterator[Bench]:
    for name, body_size, batch in SHAPES:
        metrics = [
            Metric(key, f"append {name}, {key}", "messages/s", record_size=body_size)
            for key in ("acknowledged", "readable")
        ] + latencies.metrics(f"append {name}")
        ours = partial(_ours, setting, body_size, batch)
        peer = partial(_peer, setting, body_size, batch) if setting.peer else None
        yield Bench(metrics, ours, peer)


Put = Callable[[int], object]
"""Puts what has that number."""


def prepare(
    store: MessageStore, body: bytes, properties: list[bytes], batch: int
) -> tuple[Put, range]:
    """What puts one message, or one batch, and the numbers of all of them."""

    def put(number: int) -> None:
        store.put(make_message(number % QUEUES, body, properties[number]))

    def put_batch(number: int) -> None:
        encoded = properties[number * batch : (number + 1) * batch]
        store.put_batch([make_message(number % QUEUES, body, each) for each in encoded])

    return put if batch == 1 else put_batch, range(len(properties) // batch)


def _ours(setting: Setting, body_size: int, batch: int) -> Figures:
    body = make_body(body_size)
    records, timed = setting.records, setting.records // TIMED_SHARE
    with fresh_directory(setting.directory) as root, open_store(root) as store:
        put, numbers = prepare(store, body, encoded_properties(0, WARM), batch)
        for number in numbers:
            put(number)
        put, numbers = prepare(store, body, encoded_properties(WARM, records), batch)
        began = time.perf_counter()
        for number in numbers:
            put(number)
        acknowledged = time.perf_counter() - began
        while store.dispatcher.behind:
            time.sleep(50e-6)
        readable = time.perf_counter() - began
        put, numbers = prepare(store, body, encoded_properties(WARM + records, timed), batch)
        seconds = latencies.timed(put, numbers)
    rates = {"acknowledged": records / acknowledged, "readable": records / readable}
    return {**rates, **latencies.figures(seconds)}


def _peer(setting: Setting, body_size: int, batch: int) -> Figures:
    assert setting.peer is not None
    with fresh_directory(setting.directory) as root:
        return setting.peer.ask(
            "append",
            dir=root,
            segment=SEGMENT_DEFAULT,
            flush="ASYNC_FLUSH",
            warm=WARM,
            records=setting.records,
            timed=setting.records // TIMED_SHARE,
            body=body_size,
            batch=batch,
        )
