"""Asynchronous puts by one thread into a fresh store of RocketMQ's own sizes.

`acknowledged` ends when the last put returns, `readable` when queues and index have the last
record too: ours dispatches in the putting thread, RocketMQ in one of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from mqstore.storage.message_store import MessageStore
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.stores import SEGMENT_DEFAULT, fresh_directory, open_store
from tests.bench.workload import QUEUES, encoded_properties, make_body, make_message

WARM: Final = 10_000
"""Records put into the fresh store before the clock starts."""
SHAPES: Final = (("1 KiB", 1024, 1), ("100 B", 100, 1), ("1 KiB, batches of 100", 1024, 100))


def benches(setting: Setting) -> Iterator[Bench]:
    for name, body_size, batch in SHAPES:
        metrics = [
            Metric(key, f"append {name}, {key}", "messages/s")
            for key in ("acknowledged", "readable")
        ]
        ours = partial(_ours, setting, body_size, batch)
        peer = partial(_peer, setting, body_size, batch) if setting.peer else None
        yield Bench(metrics, ours, peer)


def put_singles(store: MessageStore, body: bytes, properties: list[bytes]) -> None:
    put = store.put
    for number, encoded in enumerate(properties):
        put(make_message(number % QUEUES, body, encoded))


def put_batches(store: MessageStore, body: bytes, properties: list[bytes], batch: int) -> None:
    for number, first in enumerate(range(0, len(properties), batch)):
        queue_id = number % QUEUES
        encoded = properties[first : first + batch]
        store.put_batch([make_message(queue_id, body, each) for each in encoded])


def _ours(setting: Setting, body_size: int, batch: int) -> Figures:
    body = make_body(body_size)
    puts: Callable[[MessageStore, bytes, list[bytes]], None] = (
        put_singles if batch == 1 else partial(put_batches, batch=batch)
    )
    with fresh_directory(setting.directory) as root, open_store(root) as store:
        puts(store, body, encoded_properties(0, WARM))
        properties = encoded_properties(WARM, setting.records)
        began = time.perf_counter()
        puts(store, body, properties)
        acknowledged = time.perf_counter() - began
        while store.dispatcher.behind:
            time.sleep(50e-6)
        readable = time.perf_counter() - began
    return {
        "acknowledged": setting.records / acknowledged,
        "readable": setting.records / readable,
    }


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
            body=body_size,
            batch=batch,
        )
