"""Flushing queues and index behind the dispatcher."""

from __future__ import annotations

from pathlib import Path

from mqstore.storage.dispatch.queue_flush import QueueFlushService
from tests.unit.storage.small_store import BORN_MS, SmallLog, SmallStore


def flush_service(store: SmallStore) -> QueueFlushService:
    return QueueFlushService(
        store.queues, store.index, store.dispatcher, store.checkpoint, store.config
    )


def test_a_thorough_flush_moves_the_checkpoint_to_what_was_dispatched(tmp_path: Path) -> None:
    log = SmallLog()
    log.put(store_ms=BORN_MS + 7)
    store = SmallStore(tmp_path, log)
    service = flush_service(store)
    store.dispatch()

    due = service.step(100.0)

    assert due == 101.0
    assert store.checkpoint.logics_ms == BORN_MS + 7
    assert service.durable_position == log.max_offset
    queue = store.queues.get("topic", 0)
    assert queue is not None
    assert queue.files.flushed_where == 20


def test_between_thorough_ones_only_full_files_and_pages_are_synced(tmp_path: Path) -> None:
    log = SmallLog()
    store = SmallStore(tmp_path, log)
    service = flush_service(store)
    service.step(0.0)
    for number in range(12):
        log.put(store_ms=BORN_MS, props={"KEYS": f"k{number}"})
    store.dispatch()

    service.step(30.0)

    queue = store.queues.get("topic", 0)
    assert queue is not None
    assert queue.files.flushed_where == 200
    assert (store.checkpoint.logics_ms, service.durable_position) == (0, 0)
    assert store.checkpoint.index_ms == BORN_MS

    service.step(60.0)
    assert queue.files.flushed_where == 240
    assert store.checkpoint.logics_ms == BORN_MS
