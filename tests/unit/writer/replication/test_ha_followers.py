"""Followers of mqstore as raw sockets: tables, and ranges of their logs."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from mqstore.storage.admin import Commit
from mqstore.storage.errors import RepairRefused
from mqstore.storage.replication.ha_frames import encode_fetched, encode_tables_report
from mqstore.storage.status import BEFORE_LOG, TableBatch, TableName
from mqstore.writer.replication import ha_server, slave
from tests.unit.storage.stores import put_some
from tests.unit.writer.replication.test_ha_server import SOME, RawSlave, Served, run_served


def _names(batch: TableBatch) -> set[TableName]:
    return {update.table for update in batch.updates}


def test_a_follower_gets_all_tables_and_then_what_changes(root: Path) -> None:
    async def scenario(served: Served) -> None:
        served.confirm()
        store = served.store
        store.create_topic("T", queues=3)
        put_some(store, 3)
        follower = await served.slave(None)
        await follower.introduce("one")
        follower.report(0)
        _, before_log = await follower.until_tables()
        assert (before_log.version, _names(before_log)) == (0, set(BEFORE_LOG))
        end, all_tables = await follower.until_tables()
        assert (end, _names(all_tables)) == (store.log.max_offset, {*TableName} - BEFORE_LOG)
        (slave,) = served.server.connections.slaves
        assert slave.tables == 0
        follower.send(encode_tables_report(all_tables.version))
        await served.until(lambda: slave.tables == all_tables.version == store.table_feed.version)
        await asyncio.to_thread(store.create_topic, "U")
        _, changes = await follower.until_tables()
        ((table, text, is_whole, is_forced),) = changes.updates
        assert (table, is_whole, is_forced) == (TableName.TOPICS, False, True)
        assert '"topicName":"U"' in text and '"topicName":"T"' not in text

    run_served(root, scenario)


def test_tables_come_behind_the_messages_that_they_refer_to(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha_server, "TABLES_INTERVAL_S", math.inf)  # else they come twice

    async def scenario(served: Served) -> None:
        served.confirm()
        store = served.store
        store.create_topic("T", queues=3)
        follower = await served.slave(None)
        await follower.introduce("one")
        follower.report(0)
        for start in range(0, 5 * SOME, SOME):
            put_some(store, SOME, start=start)
            end = store.log.max_offset
            store.offsets.commit("g", [Commit("T", 0, start // 3)])
            store.table_feed.note(TableName.CONSUMER_OFFSETS)
            sent = 0
            while True:
                before, batch = await follower.until_tables()
                sent = max(sent, before)
                if TableName.CONSUMER_OFFSETS in _names(batch):
                    break
            assert sent >= end

    run_served(root, scenario)


def test_tables_wait_until_what_they_refer_to_is_confirmed(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, 3)
        end = served.store.log.max_offset
        served.confirm(end - 1)
        follower = await served.slave(None)
        await follower.introduce("one")
        follower.report(0)
        _, batch = await follower.until_tables()
        assert _names(batch) == set(BEFORE_LOG)
        (slave,) = served.server.connections.slaves
        await served.until(lambda: slave.awaits_confirmed == end)
        put_some(served.store, 3, start=3)
        served.server.connections.send_now()
        await follower.log_from(0, served.store.log.max_offset)
        served.confirm(end)
        sent, batch = await follower.until_tables()
        assert (sent, _names(batch)) == (0, {*TableName} - BEFORE_LOG)
        assert slave.awaits_confirmed == 0

    run_served(root, scenario)


def test_a_deletion_comes_before_the_messages_that_follow_it(root: Path) -> None:
    async def scenario(served: Served) -> None:
        served.confirm()
        store = served.store
        store.create_topic("T", queues=3)
        put_some(store, 3)
        follower = await served.slave(None)
        await follower.introduce("one")
        follower.report(0)
        await follower.until_tables()
        deleted_at, _ = await follower.until_tables()

        def delete_and_put() -> None:
            store.delete_topic("T")
            put_some(store, SOME, start=3)

        await asyncio.to_thread(delete_and_put)
        end = deleted_at
        while True:
            sent, batch = await follower.until_tables()
            end = max(end, sent)
            if TableName.DELETED_TOPICS in _names(batch):
                break
        assert end == deleted_at
        assert f'"offset":{deleted_at}' in batch.updates[0].text

    run_served(root, scenario)


def test_a_follower_cannot_acknowledge_tables_that_it_was_not_sent(root: Path) -> None:
    async def scenario(served: Served) -> None:
        served.confirm()
        follower = await served.slave(None)
        await follower.introduce("one")
        follower.report(0)
        await follower.until_tables()
        await follower.until_tables()
        follower.send(encode_tables_report(served.store.table_feed.version + 1))
        await served.until(lambda: not served.server.connections.slaves)
        assert served.server.connections.refused == 1

    run_served(root, scenario)


def test_a_follower_with_the_name_of_its_leader_is_copied_to_with_a_warning(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(served: Served) -> None:
        follower = await served.slave(None)
        await follower.introduce("leader")
        follower.report(0)
        await served.until(lambda: len(served.server.connections.slaves) == 1)

    run_served(root, scenario)
    assert "never in sync: give it another one" in capsys.readouterr().out


def test_offsets_that_grow_are_sent_at_intervals(root: Path) -> None:
    async def scenario(served: Served) -> None:
        served.confirm()
        store = served.store
        store.create_topic("T", queues=3)
        put_some(store, 3)
        follower = await served.slave(None)
        await follower.introduce("one")
        follower.report(0)
        await follower.until_tables()
        await follower.until_tables()
        store.offsets.commit("g", [Commit("T", 0, 1)])
        _, batch = await follower.until_tables()
        ((table, text, _, is_forced),) = batch.updates
        assert (table, is_forced) == (TableName.CONSUMER_OFFSETS, False)
        assert "T@g" in text

    run_served(root, scenario)


async def _follower(served: Served, name: str) -> RawSlave:
    follower = await served.slave(None)
    await follower.introduce(name)
    follower.report(0)
    await served.until(lambda: name in [each.name for each in served.server.connections.slaves])
    return follower


async def _serve_range(follower: RawSlave, data: bytes) -> None:
    """Send ``data`` as the range that is requested."""
    await follower.until_fetch()
    follower.send(encode_fetched(100, data))


def test_a_range_comes_from_the_first_follower_that_has_it_whole(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, 3)
        followers = [await _follower(served, name) for name in ("one", "two", "three")]
        answers = (b"", b"wrong", b"right")
        serving_ = [
            asyncio.create_task(_serve_range(each, data))
            for each, data in zip(followers, answers, strict=True)
        ]
        names = {"one", "two", "three"}
        fetched = await served.server.fetch(names, 100, 5, lambda data: data == b"right")
        assert (fetched, served.server.fetched_bytes) == (("three", b"right"), 5)
        await asyncio.gather(*serving_)

    run_served(root, scenario)


def test_a_range_that_no_follower_has_whole_is_none(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, 3)
        task = asyncio.create_task(_serve_range(await _follower(served, "one"), b"wrong"))
        assert await served.server.fetch({"one"}, 100, 5, lambda _: False) is None
        await task

    run_served(root, scenario)


@pytest.mark.parametrize("kind", ["not connected", "silent", "disconnected"])
def test_a_follower_that_does_not_reply_refuses_the_repair(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, 3)
        if kind != "not connected":
            follower = await _follower(served, "one")
        if kind == "silent":
            monkeypatch.setattr(slave, "FETCH_TIMEOUT_S", 0.01)
        fetch = asyncio.create_task(served.server.fetch({"one"}, 100, 5, lambda _: True))
        if kind == "disconnected":
            await follower.until_fetch()
            follower.close()
        with pytest.raises(RepairRefused, match="did not reply: one"):
            await fetch

    run_served(root, scenario)


def test_a_range_that_was_not_requested_ends_the_connection(root: Path) -> None:
    async def scenario(served: Served) -> None:
        follower = await _follower(served, "one")
        follower.send(encode_fetched(0, b"bytes"))
        await served.until(lambda: not served.server.connections.slaves)

    run_served(root, scenario)
