"""store-writer follows a real broker that stores messages, while each of the two is killed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic.alias_generators import to_snake

from mqstore.client import Client, NewMessage
from tests.compat import ours
from tests.compat.compare import Dump, differences
from tests.compat.examples import copy_of
from tests.compat.referee import Referee
from tests.compat.versions import mainly
from tests.free_ports import free_port
from tests.services.followers import await_following
from tests.services.service_processes import Process, running, writer
from tests.store_copies import copy_store

pytestmark = [pytest.mark.referee, pytest.mark.slow]

SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 256 << 10,
    "mappedFileSizeConsumeQueue": 6_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


def settings(referee: Referee, ha_port: int, **others: Any) -> dict[str, Any]:
    return {
        **{to_snake(name): value for name, value in SIZES.items()},
        "broker_role": "SLAVE",
        "ha_master_address": f"127.0.0.1:{ha_port}",
        "store_format": referee.format,
        **others,
    }


@contextlib.contextmanager
def following(store: Path, given: dict[str, Any]) -> Iterator[tuple[Process, Client]]:
    """A store-writer that follows; it is not ready, as it takes no messages."""
    with writer(store, status="not-ready", **given) as process, Client(process.url) as client:
        yield process, client


def log_of(store: Path, end: int) -> tuple[list[str], bytes]:
    """Names of the segments that hold bytes below ``end``, and these bytes."""
    size = SIZES["mappedFileSizeCommitLog"]
    files = [each for each in sorted((store / "commitlog").iterdir()) if int(each.name) < end]
    data = b"".join(each.read_bytes() for each in files)
    return [each.name for each in files], data[: end - end // size * size + size * (len(files) - 1)]


def assert_equal(referee: Referee, leader: Path, follower: Path, end: int) -> None:
    """Logs are equal byte for byte, and RocketMQ reads the same queues and look-ups from both."""
    assert log_of(follower, end) == log_of(leader, end)
    theirs, mine = (Dump.of(referee.dump(copy_of(each), SIZES)) for each in (leader, follower))
    assert theirs.queries
    assert differences(mine, theirs) == []
    assert differences(Dump.of(ours.dump(follower, SIZES)), theirs) == []


@mainly("5.4.0")
def test_a_follower_copies_a_broker_over_kills_of_both_and_takes_messages_after(
    referee: Referee, tmp_path: Path
) -> None:
    theirs, mine, ha_port = tmp_path / "leader", tmp_path / "follower", free_port()
    config, given = {**SIZES, "haListenPort": ha_port}, settings(referee, ha_port)
    with referee.master(theirs, config) as master:
        sent = master.send(0, 300)
        with following(mine, given) as (process, client):
            await_following(client, lambda now: now.durable_offset > 0)
            sent = master.send(300, 500)
            process.kill()
        master.send(800, 300)
        with following(mine, given) as (_, client):
            sent = master.send(1100, 400)
            master.kill()
            await_following(client, lambda now: now.state == "connecting")
            with referee.master(theirs, config) as again:
                sent = again.send(1500, 300)
                await_following(client, lambda now: now.durable_offset == sent)
                again.end()
    with running(mine, **given) as run, run.client() as client:
        assert client.promote().role == "leader"
        assert client.store().max_offset == sent
        assert run.stop()[0] == 0
    assert_equal(referee, theirs, mine, sent)
    with running(mine) as run, run.client() as client:
        client.create_topic("new")
        stored = client.produce("new", NewMessage(body="after the promotion")).messages[0]
        assert client.message(stored.offset_msg_id).body == "after the promotion"


@mainly("4.9.7")
def test_a_new_follower_begins_at_the_last_segment_of_a_broker(
    referee: Referee, tmp_path: Path
) -> None:
    theirs, mine, ha_port = tmp_path / "leader", tmp_path / "follower", free_port()
    with referee.master(theirs, {**SIZES, "haListenPort": ha_port}) as master:
        master.send(0, 1_000)
        with running(mine, **settings(referee, ha_port)) as run, run.client() as client:
            end = master.send(1_000, 300)
            await_following(client, lambda now: now.durable_offset == end)
            start = client.store().min_offset
            assert run.stop()[0] == 0
        master.end()
    assert start > 0
    assert start % SIZES["mappedFileSizeCommitLog"] == 0
    names, data = log_of(mine, end)
    their_names, their_data = log_of(theirs, end)
    assert names == their_names[-len(names) :]
    assert data == their_data[start:]
    read = Dump.of(referee.dump(copy_of(mine), SIZES))
    whole = Dump.of(referee.dump(copy_of(theirs), SIZES))
    assert read.log == [line for line in whole.log if line["off"] >= start]
    for queue, entries in whole.entries.items():
        copied = {i: entry for i, entry in entries.items() if entry[0] >= start}
        found = read.entries.get(queue, {})
        assert {i: entry for i, entry in found.items() if entry[0] >= start} == copied


@mainly("4.9.7")
def test_a_copy_of_the_directory_of_a_running_broker_is_brought_up_to_date(
    referee: Referee, tmp_path: Path
) -> None:
    theirs, mine, ha_port = tmp_path / "leader", tmp_path / "follower", free_port()
    with referee.master(theirs, {**SIZES, "haListenPort": ha_port}) as master:
        master.send(0, 1_000)
        copy_store(theirs, mine)
        master.send(1_000, 300)
        with running(mine, **settings(referee, ha_port)) as run, run.client() as client:
            end = master.send(1_300, 100)
            await_following(client, lambda now: now.durable_offset == end)
            client.promote()
            assert run.stop()[0] == 0
        master.end()
    assert_equal(referee, theirs, mine, end)


@mainly("4.9.7")
def test_topics_groups_and_offsets_of_a_broker_are_copied(referee: Referee, tmp_path: Path) -> None:
    theirs, mine, ha_port = tmp_path / "leader", tmp_path / "follower", free_port()
    with referee.master(theirs, {**SIZES, "haListenPort": ha_port}) as master:
        end = master.send(0, 50)
        tables = master.tables()
        found = settings(referee, ha_port, master_address=master.address)
        with running(mine, **found) as run, run.client() as client:
            state = await_following(client, lambda now: now.tables_copied_at_ms is not None)
            assert state.tables_reason is None
            await_following(client, lambda now: now.durable_offset == end)
            await_following(client, lambda now: now.leader_offset == end)
            assert "orders" in [each.topic for each in client.topics().topics]
            assert client.group("g").config.retry_times_max == 3
            assert client.offsets("g", topic="orders").offsets[0].committed == 1
            client.promote()
        for name, file, table in (
            ("topics", "topics.json", "topicConfigTable"),
            ("groups", "subscriptionGroup.json", "subscriptionGroupTable"),
        ):
            saved = json.loads(referee.recode(file, (mine / "config" / file).read_text()))
            assert saved[table] == json.loads(tables[name])[table]
        master.end()
