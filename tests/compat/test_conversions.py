"""The ways to convert refused states that the table of them names: each is gone with a broker of
5.4.0 and its `mqadmin`, and the store is opened here then."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.client import Client
from mqstore.storage.inventory import Verdict
from tests.compat.broker_states import (
    REFUSED,
    SIZES,
    TOPIC,
    other_topics,
    plain,
    states_of,
    with_verdict,
    write,
)
from tests.compat.referee import Referee
from tests.free_ports import free_port
from tests.services.followers import await_following
from tests.services.service_processes import running
from tests.store_copies import copy_store

pytestmark = [
    pytest.mark.referee,
    pytest.mark.slow,
    pytest.mark.parametrize("referee", ["5.4.0"], indirect=True),
]
ROCKSDB: Final[dict[str, Any]] = {**SIZES, "storeType": "defaultRocksDB"}
PATIENCE_S: Final = 60
TABLES: Final = ("topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb")


def remove_rocksdb(directory: Path) -> None:
    """Remove the files of a RocksDB among others."""
    for path in directory.iterdir():
        if not path.is_dir():
            path.unlink()


def bodies_of(client: Client) -> list[str]:
    return sorted(
        each.body or "" for queue in (0, 1) for each in client.pull(TOPIC, queue).messages
    )


def check_plain(store: Path) -> None:
    """``plain`` is served: its messages, and the offsets of its group."""
    assert not states_of(store) & with_verdict(Verdict.REFUSED)
    with running(store) as run, run.client() as client:
        check_served(client)


def check_served(client: Client) -> None:
    assert bodies_of(client) == ["a", "b", "c"]
    found = {(each.topic, each.committed) for each in client.offsets("reader").offsets}
    assert (TOPIC, 1) in found


def test_tables_and_queues_in_rocksdb(referee: Referee, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with referee.states(store, ROCKSDB) as broker:
        plain(broker)
        print(referee.mqadmin("rocksDBConfigToJson", "-b", broker.address))
        broker.end()
    for name in TABLES:
        shutil.rmtree(store / "config" / name, ignore_errors=True)
    with referee.states(store, SIZES) as broker:
        broker.end()
    remove_rocksdb(store / "consumequeue")
    check_plain(store)


@pytest.mark.nightly
def test_queues_in_files_and_in_rocksdb(referee: Referee, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with referee.states(store, {**SIZES, "rocksdbCQDoubleWriteEnable": True}) as broker:
        plain(broker)
        broker.end()
    with referee.states(store, SIZES) as broker:
        broker.end()
    remove_rocksdb(store / "consumequeue")
    check_plain(store)


def test_tables_of_a_broker_with_config_manager_v2(referee: Referee, tmp_path: Path) -> None:
    """No command of RocketMQ exports them; a follower gets them from the broker."""
    theirs, store, ha_port = tmp_path / "theirs", tmp_path / "store", free_port()
    config = {**SIZES, "configManagerVersion": "v2", "haListenPort": ha_port}
    with referee.states(theirs, config) as broker:
        plain(broker)
        referee.mqadmin("rocksDBConfigToJson", "-b", broker.address)
        assert not (theirs / "config/topics.json").exists()
        copy_store(theirs, store)
        shutil.rmtree(store / "config" / "rdb")
        given: dict[str, Any] = {
            "broker_role": "SLAVE",
            "ha_master_address": f"127.0.0.1:{ha_port}",
            "master_address": broker.address,
            "store_format": "5.x",
        }
        with running(store, **given) as run, run.client() as client:
            await_following(client, lambda now: now.tables_copied_at_ms is not None)
            client.promote()
            check_served(client)
        broker.end()


@pytest.mark.nightly
def test_pop_records_in_rocksdb(referee: Referee, tmp_path: Path) -> None:
    """The offset of such a group stays behind: a restart of its broker delivers again, too."""
    store = tmp_path / "store"
    service = {**SIZES, "popConsumerKVServiceInit": True}
    with referee.states(store, {**service, "popConsumerKVServiceEnable": True}) as broker:
        plain(broker)
        broker.do(
            "pop",
            group="popper",
            topic=TOPIC,
            bodies=["a", "b", "c"],
            ack=["b"],
            invisibleMs=60_000,
        )
        broker.end()
    with referee.states(store, service) as broker:
        print(referee.mqadmin("exportPopRecord", "-b", broker.address))
        broker.end()
    shutil.rmtree(store / "kvStore")
    assert "pop-revive" in states_of(store)
    with running(store) as run, run.client() as client:
        seen: set[str | None] = set()
        deadline = time.monotonic() + PATIENCE_S
        while not seen >= {"a", "c"}:
            assert time.monotonic() < deadline, seen
            found = client.receive("popper", TOPIC, max_messages=10, wait_s=1).messages
            seen |= {each.body for each in found}


@pytest.mark.nightly
def test_timed_messages_in_rocksdb(referee: Referee, tmp_path: Path) -> None:
    """All are in the log: those that wait are delivered from there, and no other one again."""
    store = tmp_path / "store"
    with referee.states(store, {**SIZES, "timerRocksDBEnable": True}) as broker:
        plain(broker)
        broker.do("send", topic=TOPIC, bodies=["soon"], delayMs=1_000, queue=0)
        broker.do("send", topic=TOPIC, bodies=["later"], delayMs=30_000, queue=0)
        broker.do("push", group="pusher", topic=TOPIC, bodies=["soon"], fails=[])
        broker.end()
    shutil.rmtree(store / "rocksdbstore")
    with running(store) as run, run.client() as client:
        deadline = time.monotonic() + PATIENCE_S
        while client.delays().timed.pending or "later" not in bodies_of(client):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert bodies_of(client) == ["a", "b", "c", "later", "soon"]


@pytest.mark.nightly
def test_half_messages_and_index_in_rocksdb(referee: Referee, tmp_path: Path) -> None:
    store = tmp_path / "store"
    config = {
        **SIZES,
        "transRocksDBEnable": True,
        "transWriteOriginTransHalfEnable": False,
        "indexRocksDBEnable": True,
    }
    with referee.states(store, config) as broker:
        plain(broker)
        sends = {"yes": "commit", "no": "rollback"}
        broker.do("transact", topic=TOPIC, sends=sends, visible=4, awaitDecisions=False)
        broker.end()
    shutil.rmtree(store / "rocksdbstore")
    with running(store) as run, run.client() as client:
        assert bodies_of(client) == ["a", "b", "c", "yes"]
        assert [each.body for each in client.messages_by_key(TOPIC, "key-yes").messages] == ["yes"]


@pytest.mark.nightly
def test_static_batch_and_compacted_topics(referee: Referee, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with referee.states(store, SIZES) as broker:
        plain(broker)
        other_topics(broker)
        broker.end()
    assert {"batch-topic", "compacted-topic", "static-topics"} <= states_of(store)
    with referee.states(store, SIZES) as broker:
        for name in ("batches", "newest", "mapped"):
            cluster = ("-n", broker.name_server, "-c", "DefaultCluster")
            print(referee.mqadmin("deleteTopic", *cluster, "-t", name))
            broker.do("topic", name=name, queues=1, attributes={})
        broker.do("send", topic="batches", bodies=["anew"])
        broker.end()
    shutil.rmtree(store / "compaction")
    check_plain(store)
    with running(store) as run, run.client() as client:
        assert [each.body for each in client.pull("batches", 0).messages][-1:] == ["anew"]


@pytest.mark.nightly
def test_tiered_storage(referee: Referee, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (recipe,) = (each for each in REFUSED if each.name == "tiered")
    write(referee, recipe, store)
    with referee.states(store, SIZES) as broker:
        broker.end()
    (store / "config/tieredStoreMetadata.json").unlink()
    check_plain(store)
