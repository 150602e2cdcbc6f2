"""The watch over the copies in sync: what it publishes, confirms and reports."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.service.events import Events
from mqstore.storage.message_store import MessageStore
from mqstore.storage.replication.in_sync import InSyncSet
from mqstore.writer.replication import in_sync_watch
from mqstore.writer.replication.in_sync_watch import InSyncWatch
from tests.unit.storage.stores import open_store, put_some


class _Slave:
    """A copy whose acknowledgements the test makes."""

    def __init__(self, name: str, *, is_replica: bool = True) -> None:
        self.name, self.is_replica, self.counts = name, is_replica, True
        self.address = f"{name}:1"
        self.acknowledged = 0
        self.tables = sys.maxsize
        self.awaits_confirmed = 0


class _Server:
    def __init__(self) -> None:
        self.slaves: list[_Slave] = []
        self.listeners: list[Callable[[], object]] = []
        self.confirmations: list[tuple[int, int]] = []

    def confirm(self, confirmation: tuple[int, int]) -> None:
        self.confirmations.append(confirmation)

    def notify(self) -> None:
        for each in self.listeners:
            each()


class _Lease:
    """Publications, which the test lets fail."""

    def __init__(self) -> None:
        self.published: list[list[str]] = []
        self.fails = False

    async def publish(self, names: frozenset[str]) -> None:
        self.published.append(sorted(names))
        if self.fails:
            raise OSError("no answer")


class _Scene:
    """A leader ``a`` that has stored some messages, and its watch."""

    def __init__(self, store: MessageStore) -> None:
        self.store, self.server, self.lease = store, _Server(), _Lease()
        self.events = Events()
        now = asyncio.get_running_loop().time()
        self.copies = InSyncSet("a", behind_max_s=60, now=now)
        given: Any = self.server
        self.watch = InSyncWatch(self.copies, store, given, self.events, self.lease.publish)
        put_some(store, 3)
        store.log.sync()
        self.end = store.log.max_offset

    def connect(self, name: str, acknowledged: int, *, is_replica: bool = True) -> _Slave:
        slave = _Slave(name, is_replica=is_replica)
        slave.acknowledged = acknowledged
        self.server.slaves.append(slave)
        self.server.notify()
        return slave

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():  # noqa: ASYNC110 - values of another task
            await asyncio.sleep(0.001)


def _run(root: Path, scenario: Callable[[_Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        with open_store(root) as store:
            scene = _Scene(store)
            scene.watch.start()
            try:
                await asyncio.wait_for(scenario(scene), 60)
            finally:
                await scene.watch.stop()

    asyncio.run(run())


def test_a_leader_alone_confirms_what_is_on_its_disk(root: Path) -> None:
    async def scenario(scene: _Scene) -> None:
        state = scene.store.state.snapshot()
        assert (state.confirmed_offset, state.in_sync) == (scene.end, 1)
        assert (scene.watch.states, scene.watch.unconfirmed) == ([], 0)
        assert scene.lease.published == []

    _run(root, scenario)


def test_a_leader_whose_readers_wait_for_it_syncs_at_once(root: Path) -> None:
    async def scenario(scene: _Scene) -> None:
        given: Any = scene.server
        eager = InSyncWatch(scene.copies, scene.store, given, scene.events, syncs=True)
        put_some(scene.store, 1, start=3)
        eager.look()
        await scene.until(lambda: scene.copies.confirmed == scene.store.log.max_offset)

    _run(root, scenario)


def test_a_leader_syncs_at_once_what_tables_wait_for(root: Path) -> None:
    async def scenario(scene: _Scene) -> None:
        slave = scene.connect("b", scene.end)
        put_some(scene.store, 1, start=3)
        slave.acknowledged = slave.awaits_confirmed = scene.store.log.max_offset
        await scene.until(lambda: scene.copies.confirmed == slave.awaits_confirmed)

    _run(root, scenario)


def test_a_replica_joins_once_that_is_published_and_leaves_when_it_is_lost(root: Path) -> None:
    async def scenario(scene: _Scene) -> None:
        slave = scene.connect("b", scene.end)
        await scene.until(lambda: scene.copies.names == frozenset({"a", "b"}))
        assert scene.lease.published == [["a", "b"]]
        [found] = scene.watch.states
        assert (found.name, found.lag_bytes, found.is_replica) == ("b", 0, True)
        assert found.in_sync_since_ms is not None
        assert scene.store.state.snapshot().in_sync == 2
        assert scene.server.confirmations[-1] == (scene.end, 2)
        scene.server.slaves.remove(slave)
        await scene.until(lambda: scene.copies.names == frozenset({"a"}))
        assert scene.lease.published[1:] == [["a"]]
        assert scene.watch.states == []

    _run(root, scenario)


def test_a_slave_of_rocketmq_is_listed_and_never_joins(root: Path) -> None:
    async def scenario(scene: _Scene) -> None:
        scene.connect("10.1.2.3:4", scene.end, is_replica=False)
        scene.connect("b", scene.end)
        await scene.until(lambda: len(scene.copies.names) == 2)
        assert scene.copies.names == frozenset({"a", "b"})
        assert [each.in_sync_since_ms is None for each in scene.watch.states] == [True, False]

    _run(root, scenario)


def test_a_publication_that_fails_is_tried_again_and_changes_nothing_before(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_sync_watch, "RETRY_S", 0.001)

    async def scenario(scene: _Scene) -> None:
        scene.lease.fails = True
        scene.connect("b", scene.end)
        await scene.until(lambda: len(scene.lease.published) == 3)
        assert scene.copies.names == frozenset({"a"})
        put_some(scene.store, 1, start=3)
        scene.store.log.sync()
        scene.watch.look()
        assert scene.copies.confirmed == scene.end
        scene.lease.fails = False
        await scene.until(lambda: scene.copies.names == frozenset({"a", "b"}))

    _run(root, scenario)


def test_waits_look_again_when_the_set_has_changed(root: Path) -> None:
    async def scenario(scene: _Scene) -> None:
        seen: list[int | None] = []
        scene.connect("b", scene.end)
        slow = scene.connect("c", scene.end)
        await scene.until(lambda: len(scene.copies.names) == 3)
        put_some(scene.store, 1, start=3)
        scene.server.slaves[0].acknowledged = scene.store.log.max_offset
        scene.server.listeners.append(lambda: seen.append(scene.copies.replicated))
        scene.server.notify()
        scene.server.slaves.remove(slow)
        await scene.until(lambda: len(scene.copies.names) == 2)
        assert (seen[0], seen[-1]) == (scene.end, scene.store.log.max_offset)

    _run(root, scenario)
