"""Events of store-writer about the index of its store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.service.events import Events
from mqstore.storage.config import DamageRepair, StoreConfig
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import ConsumerOffsets
from mqstore.writer import store_observer
from mqstore.writer.store_observer import StoreObserver
from tests.unit.storage.rebuild_job import RebuildJob
from tests.unit.storage.stores import CONFIG, open_store, put_some

COUNT = 100
LIVE = CONFIG.model_copy(update={"disk_max_used_space_ratio": 99})
EventStream = AsyncIterator[tuple[str, dict[str, Any]]]


@pytest.fixture(autouse=True)
def looks_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_observer, "INTERVAL_S", 0.0)


async def _events(events: Events) -> EventStream:
    """Kind and data of each."""
    async for part in events.follow(None, 30, lambda: True):
        if part.startswith(b"id: "):
            data = json.loads(part.partition(b"\ndata: ")[2])
            yield data["kind"], data


def _watched(
    root: Path,
    config: StoreConfig,
    test: Callable[[MessageStore, StoreObserver, EventStream], Awaitable[None]],
) -> None:
    async def run() -> None:
        with open_store(root, config) as store:
            events = Events()
            observer = StoreObserver(events, lambda: store)
            observer.note_opened(store)
            task = asyncio.create_task(observer.run())
            await test(store, observer, _events(events))
            task.cancel()

    asyncio.run(run())


def test_an_opening_that_lowered_offsets_says_so(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_some(store, COUNT)
        table = ConsumerOffsets.load(store.paths, store.format, production_seams())
    table.put("g", "T", 0, COUNT)
    table.save()

    async def test(_: MessageStore, __: StoreObserver, stream: EventStream) -> None:
        data = await anext(data async for kind, data in stream if kind == "offsets-lowered")
        assert data["count"] == 1
        lowered = {"group": "g", "topic": "T", "queueId": 0, "before": 100, "after": 34}
        assert data["offsets"] == [lowered]

    _watched(tmp_path, LIVE, test)


def test_a_step_of_the_clock_is_an_event(tmp_path: Path) -> None:
    async def test(store: MessageStore, _: StoreObserver, stream: EventStream) -> None:
        store.clock._base_ms -= 90_000
        store.log.check_clock()
        data = await anext(data async for kind, data in stream if kind == "clock-step")
        assert 89_000 < data["stepMs"] < 91_000
        assert data["offset"] == store.log.max_offset

    _watched(tmp_path, LIVE, test)


async def _read_until(stream: EventStream, kind: str) -> list[tuple[str, Any]]:
    """Kinds and why, up to the first of one kind."""
    found = []
    async for each, data in stream:
        found.append((each, data.get("reason")))
        if each == kind:
            break
    return found


def test_a_lost_index_is_reported_until_its_rebuild(
    tmp_path: Path,
) -> None:
    async def test(store: MessageStore, observer: StoreObserver, stream: EventStream) -> None:
        put_some(store, COUNT)
        sorted((tmp_path / "index").iterdir())[0].unlink()
        while store.index_trouble is None:
            store.rebuilds.step(0.0)
        lost = await _read_until(stream, "index-trouble")
        assert [kind for kind, _ in lost] == ["opened", "index-trouble"]
        assert "gone or damaged" in lost[-1][1]
        job = RebuildJob(store, store.rebuilds.begin("a test", lease_s=60))
        job.fill()
        job.publish()
        assert await _read_until(stream, "index-rebuilt") == [
            ("index-trouble", None),
            ("index-rebuilt", None),
        ]
        assert observer.operations() == []

    _watched(tmp_path, LIVE, test)


def test_an_opening_reports_that_its_index_waits_for_a_rebuild(tmp_path: Path) -> None:
    async def test(_: MessageStore, observer: StoreObserver, stream: EventStream) -> None:
        found = await _read_until(stream, "index-trouble")
        assert [kind for kind, _ in found] == ["opened", "index-trouble"]
        assert "indexCatchUpSize" in found[-1][1]
        assert observer.operations() == []  # no process rebuilds it

    with open_store(tmp_path, LIVE) as store:
        put_some(store, COUNT)
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    _watched(tmp_path, LIVE.model_copy(update={"index_catch_up_size": 1000}), test)


def test_where_nothing_is_indexed_no_index_is_behind(tmp_path: Path) -> None:
    async def test(store: MessageStore, observer: StoreObserver, stream: EventStream) -> None:
        put_some(store, COUNT)
        store.write_pause.begin("a test")
        found = await _read_until(stream, "writes")
        assert [kind for kind, _ in found] == ["opened", "puts", "writes"]
        assert observer.operations() == []

    _watched(tmp_path, LIVE.model_copy(update={"message_index_enable": False}), test)


def test_damage_of_the_log_and_its_repair_are_events(tmp_path: Path) -> None:
    config = LIVE.model_copy(
        update={"scrub_bytes_per_second": 1 << 30, "damage_repair": DamageRepair.MANUAL}
    )

    async def test(store: MessageStore, _: StoreObserver, stream: EventStream) -> None:
        put_some(store, COUNT)
        store.flush.flush_all()
        file = store.log.files.files[0]
        file.view[16] ^= 1
        while not store.scrub.progress.finding_count:
            store.scrub.request()
            store.scrub.step(0.0)
        found = await anext(data async for kind, data in stream if kind == "scrub-findings")
        assert found["findings"] == 1
        store.repair_damage()
        done = await anext(data async for kind, data in stream if kind == "log-repaired")
        assert (done["restored"], done["tombstones"]) == (1, 0)

    _watched(tmp_path / "store", config, test)
