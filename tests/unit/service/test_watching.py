"""What happens to a store's index, as store-writer's events tell it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.service.events import Events
from mqstore.storage.config import StoreConfig
from mqstore.storage.message_store import MessageStore
from mqstore.writer import watching
from mqstore.writer.watching import Watching
from tests.unit.storage.rebuild_job import RebuildJob
from tests.unit.storage.stores import CONFIG, open_store, put_some

COUNT = 100
LIVE = CONFIG.model_copy(update={"disk_max_used_space_ratio": 99})
Told = AsyncIterator[tuple[str, dict[str, Any]]]


@pytest.fixture(autouse=True)
def looks_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.0)


async def _events(events: Events) -> Told:
    """Kind and data of each."""
    async for part in events.follow(None, 30):
        if part.startswith(b"id: "):
            data = json.loads(part.partition(b"\ndata: ")[2])
            yield data["kind"], data


def _watched(
    root: Path, config: StoreConfig, test: Callable[[MessageStore, Watching, Told], Awaitable[None]]
) -> None:
    async def run() -> None:
        with open_store(root, config) as store:
            events = Events()
            looking = Watching(events, lambda: store)
            looking.opened(store)
            task = asyncio.create_task(looking.run())
            await test(store, looking, _events(events))
            task.cancel()

    asyncio.run(run())


async def _told_until(told: Told, kind: str) -> list[tuple[str, Any]]:
    """Kinds and why, up to the first of one kind."""
    found = []
    async for each, data in told:
        found.append((each, data.get("reason")))
        if each == kind:
            break
    return found


def test_a_lost_index_is_told_as_trouble_and_never_as_whole_before_its_rebuild(
    tmp_path: Path,
) -> None:
    async def test(store: MessageStore, looking: Watching, told: Told) -> None:
        put_some(store, COUNT)
        sorted((tmp_path / "index").iterdir())[0].unlink()
        while store.index_trouble is None:
            store.rebuilds.step(0.0)
        lost = await _told_until(told, "index-trouble")
        assert [kind for kind, _ in lost] == ["opened", "index-trouble"]
        assert "gone or damaged" in lost[-1][1]
        job = RebuildJob(store, store.rebuilds.begin("a test", lease_s=60))
        job.fill()
        job.publish()
        assert await _told_until(told, "index-rebuilt") == [
            ("index-trouble", None),
            ("index-rebuilt", None),
        ]
        assert looking.operations() == []

    _watched(tmp_path, LIVE, test)


def test_an_opening_tells_that_its_index_waits_for_a_rebuild(tmp_path: Path) -> None:
    async def test(_: MessageStore, looking: Watching, told: Told) -> None:
        found = await _told_until(told, "index-trouble")
        assert [kind for kind, _ in found] == ["opened", "index-trouble"]
        assert "indexCatchUpSize" in found[-1][1]
        assert looking.operations() == []  # nobody makes it

    with open_store(tmp_path, LIVE) as store:
        put_some(store, COUNT)
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    _watched(tmp_path, LIVE.model_copy(update={"index_catch_up_size": 1000}), test)


def test_where_nothing_is_indexed_no_index_is_behind(tmp_path: Path) -> None:
    async def test(store: MessageStore, looking: Watching, told: Told) -> None:
        put_some(store, COUNT)
        store.write_pause.begin("a test")
        found = await _told_until(told, "writes")
        assert [kind for kind, _ in found] == ["opened", "writes"]
        assert looking.operations() == []

    _watched(tmp_path, LIVE.model_copy(update={"message_index_enable": False}), test)
