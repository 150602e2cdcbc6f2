"""A real broker of role SLAVE copies our log while messages are put, is killed, and goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mqstore.client import Client, NewMessage
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.sockets import bind
from tests.compat.compare import Dump, differences
from tests.compat.examples import copy_of
from tests.compat.referee import Referee
from tests.compat.versions import mainly
from tests.services.service_processes import Process, writer

pytestmark = [pytest.mark.referee, pytest.mark.slow]

SEGMENT: Final = 1 << 20
# RocketMQ names an index file by the millisecond: smaller ones that are filled within the same one
# would be one file, whose first entries are lost.
HASH_SLOTS, INDEX_ENTRIES = 1_000, 4_000
SIZES: Final = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": HASH_SLOTS,
    "maxIndexNum": INDEX_ENTRIES,
}
TOPIC: Final = "orders"
GROUP: Final = "billing"


@contextmanager
def _leader(store: Path, ports: tuple[int, int], **settings: Any) -> Iterator[Process]:
    remoting, ha = ports
    given = {
        "store_format": "4.9",
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 2000,
        "max_hash_slot_num": HASH_SLOTS,
        "max_index_num": INDEX_ENTRIES,
        "ha_allowed_slaves": "127.0.0.1",
        "listen_port": remoting,
        "ha_listen_port": ha,
    }
    with writer(store, **given | settings) as process:
        yield process
        process.process.terminate()
        assert process.ended()[0] == 0


def _client(leader: Process) -> Client:
    return Client(leader.url, leader.url)


def _ports() -> tuple[int, int]:
    """Ports for remoting and HA; the one two below the first is free too."""
    while True:
        with bind("127.0.0.1", 0) as first, bind("127.0.0.1", 0) as second:
            port, other = (int(each.getsockname()[1]) for each in (first, second))
            try:
                bind("127.0.0.1", port - 2).close()
            except ConfigurationError:
                continue
            return port, other


def _of_slave(remoting: int, **more: Any) -> dict[str, Any]:
    return {
        **SIZES,
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "namesrvAddr": f"127.0.0.1:{remoting}",
        "haSendHeartbeatInterval": 100,
        **more,
    }


def _put(client: Client, first: int, count: int) -> int:
    """Put messages of half a KiB in batches; the log's end."""
    for start in range(first, first + count, 50):
        messages = [
            NewMessage(body=f"{number} " * 100, keys=[f"k{number}"], tags=f"t{number % 3}")
            for number in range(start, start + 50)
        ]
        client.produce(TOPIC, messages)
    end: int = client.store().max_offset
    return end


def _refusals(leader: Process) -> float:
    """Connections of slaves that the leader has refused."""
    text = httpx.get(f"{leader.url}/metrics").text
    families = text_string_to_metric_families(text)
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "mqstore_replication_refused_total"
    )


def _assert_equal_logs(ours_: Path, theirs: Path, start: int, end: int) -> None:
    for base in range(start, end, SEGMENT):
        name, size = f"{base:020d}", min(SEGMENT, end - base)
        mine = (ours_ / "commitlog" / name).read_bytes()[:size]
        assert (theirs / "commitlog" / name).read_bytes()[:size] == mine, name


@mainly("5.4.0")
def test_a_slave_that_is_killed_has_the_same_log_and_queues(
    referee: Referee, tmp_path: Path
) -> None:
    store, copied, ports = tmp_path / "store", tmp_path / "copied", _ports()
    with _leader(store, ports, store_format=referee.format) as leader, _client(leader) as client:
        client.create_topic(TOPIC, queues=3)
        _put(client, 0, 3_000)  # more than a segment, before the slave
        with referee.slave(copied, _of_slave(ports[0])) as slave:
            slave.reach(_put(client, 3_000, 500))
            slave.reach(_put(client, 3_500, 2_000))
            slave.kill()
        _put(client, 5_500, 2_000)
        with referee.slave(copied, _of_slave(ports[0])) as slave:
            slave.reach(_put(client, 7_500, 500))
            end = slave.reach(_put(client, 8_000, 500))
            slave.end()
        assert end == client.store().max_offset > 3 * SEGMENT
    _assert_equal_logs(store, copied, 0, end)
    mine = Dump.of(referee.dump(copy_of(store), SIZES))
    theirs = Dump.of(referee.dump(copy_of(copied), SIZES))
    assert len(theirs.messages) == 8_500
    assert differences(mine, theirs) == []


@mainly("4.9.7")
def test_a_slave_has_the_tables(referee: Referee, tmp_path: Path) -> None:
    ports = _ports()
    with (
        _leader(tmp_path / "store", ports, store_format=referee.format) as leader,
        _client(leader) as client,
    ):
        client.create_topic(TOPIC, queues=3)
        end = _put(client, 0, 50)
        client.commit(GROUP, TOPIC, {0: 5})
        with referee.slave(tmp_path / "copied", _of_slave(ports[0])) as slave:
            slave.reach(end)
            client.produce(TOPIC, [NewMessage(body="both")], durability="replicated")
            tables = slave.copy_tables()
            topics = json.loads(tables["topics"])["topicConfigTable"]
            assert (topics[TOPIC]["readQueueNums"], topics[TOPIC]["perm"]) == (3, 6)
            assert f'"{TOPIC}@{GROUP}":{{0:5}}' in "".join(tables["offsets"].split())
            slave.end()
    text = (tmp_path / "copied" / "config" / "delayOffset.json").read_text()
    assert "offsetTable" in text


@mainly("4.9.7")
def test_a_slave_beyond_our_log_is_not_served(referee: Referee, tmp_path: Path) -> None:
    """A store of the slave that another master has written is not changed."""
    ports = _ports()
    other = tmp_path / "other"
    with _leader(other, _ports(), store_format=referee.format) as leader, _client(leader) as client:
        client.create_topic(TOPIC, queues=3)
        end = _put(client, 0, 200)
    with (
        _leader(tmp_path / "store", ports, store_format=referee.format) as leader,
        _client(leader) as client,
    ):
        client.create_topic(TOPIC, queues=3)
        assert _put(client, 0, 50) < end
        with referee.slave(other, _of_slave(ports[0])) as slave:
            while _refusals(leader) < 2:
                pass
            assert slave.reach(end) == end
            slave.end()
