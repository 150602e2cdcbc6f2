"""Opening a store that was closed cleanly: 100 full segments of 1 MiB; and query's start over it,
from the start of its process until it says that it is ready."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.stores import Filled, filled_store, open_store
from tests.services.service_processes import query

SEGMENT: Final = 1 << 20
SEGMENTS: Final = 100


def benches(setting: Setting) -> Iterator[Bench]:
    with filled_store(setting.directory, SEGMENT, (SEGMENTS - 1) * SEGMENT + 1) as filled:
        metric = Metric("ms", f"open, {SEGMENTS} segments", "ms", higher_is_better=False)
        peer = partial(_peer, setting, filled) if setting.peer else None
        yield Bench([metric], partial(_ours, filled), peer)
        metric = Metric("ms", f"query ready, {SEGMENTS} segments", "ms", higher_is_better=False)
        yield Bench([metric], partial(_query, filled))


def _ours(filled: Filled) -> Figures:
    began = time.perf_counter()
    store = open_store(filled.ours, segment=filled.segment)
    seconds = time.perf_counter() - began
    store.close()
    return {"ms": seconds * 1000}


def _query(filled: Filled) -> Figures:
    began = time.perf_counter()
    with query(filled.ours):
        return {"ms": (time.perf_counter() - began) * 1000}


def _peer(setting: Setting, filled: Filled) -> Figures:
    assert setting.peer is not None
    figures = setting.peer.request(
        "open", dir=filled.peers, segment=filled.segment, flush="ASYNC_FLUSH"
    )
    return {"ms": figures["seconds"] * 1000}
