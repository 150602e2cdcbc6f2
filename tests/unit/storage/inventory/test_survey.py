"""States that a broker may leave in a store: read, refused before anything changes, or named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqstore.storage import inventory
from mqstore.storage.errors import StoreUnsupported
from mqstore.storage.inventory import Verdict
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Verification
from tests.field import unpack
from tests.unit.storage.stores import CONFIG, FILES, open_store, put_some
from tests.unit.untouched import entries_of

SEAMS = production_seams()


def found_in(root: Path) -> dict[str, Verdict]:
    found = inventory.survey(FILES, StorePaths(root))
    return {"unknown" if each.state is None else each.state.name: each.verdict for each in found}


def write(root: Path, name: str, content: object = b"x") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def topic(**attributes: str) -> object:
    return {"topicConfigTable": {"T": {"topicName": "T", "attributes": attributes}}}


CASES = {
    "queues-in-rocksdb": ("consumequeue/CURRENT", b"MANIFEST-000005"),
    "timer-snapshot": ("timerwheel.1200", b"x"),
    "static-topics": ("config/topicQueueMapping.json", {"topicQueueMappingInfoMap": {"T": {}}}),
    "ordered-pop": ("config/consumerOrderInfo.json", {"table": {"T@g": {}}}),
    "request-modes": ("config/messageRequestMode.json", {"messageRequestModeMap": {"T": {}}}),
    "tables-in-rocksdb": ("config/topics/000012.sst", b"x"),
    "acl": ("config/users/CURRENT", b"x"),
    "tiered": ("config/tieredStoreMetadata.json", {"commitLogFileSegmentTable": {"T": {}}}),
    "broker-properties": ("config/broker.properties", b"x"),
    "batch-queues": ("batchconsumequeue/T/0/00000000000000000000", b"x"),
    "compaction": ("compaction/compactionLog/T/0/00000000000000000000", b"x"),
    "timers-in-rocksdb": ("rocksdbstore/000004.log", b"x"),
    "pop-in-rocksdb": ("kvStore/000009.sst", b"x"),
    "dledger": ("dledger-n0/data/00000000000000000000", b"x"),
    "controller": ("epochFileCheckpoint", b"x"),
    "transactions-of-3": ("transaction/statetable/00000000000000000000", b"x"),
    "lmq-store": ("lmqstore/queue", b"x"),
    "transactions-in-rocksdb": (
        "consumequeue/RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC/0/00000000000000000000",
        bytes(2000),
    ),
    "batch-topic": ("config/topics.json", topic(**{"queue.type": "BatchCQ"})),
    "compacted-topic": ("config/topics.json", topic(**{"cleanup.policy": "COMPACTION"})),
    "reserve-time": ("config/topics.json", topic(**{"reserve.time": "72"})),
    "static-subscription": (
        "config/subscriptionGroup.json",
        {"subscriptionGroupTable": {"g": {"subscriptionDataSet": [{"topic": "T"}]}}},
    ),
}


def test_every_state_that_is_not_read_has_a_case() -> None:
    assert CASES.keys() == {s.name for s in inventory.ALL if s.verdict is not Verdict.READ}


@pytest.mark.parametrize("name", CASES)
def test_each_state_is_found(tmp_path: Path, name: str) -> None:
    write(tmp_path, *CASES[name])
    state = next(each for each in inventory.ALL if each.name == name)
    assert found_in(tmp_path) == {name: state.verdict}


@pytest.mark.parametrize("name", CASES)
def test_a_refused_state_stops_the_opening_before_a_change(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path) as store:
        put_some(store, 3)
    write(tmp_path, *CASES[name])
    if found_in(tmp_path)[name] is not Verdict.REFUSED:
        open_store(tmp_path).close()
        return
    before = {name: entry.content for name, entry in entries_of(tmp_path).items()}
    with pytest.raises(StoreUnsupported, match=f"\\({name}\\)"):
        open_store(tmp_path)
    assert {name: entry.content for name, entry in entries_of(tmp_path).items()} == before
    found = list(Verification(tmp_path, CONFIG, SEAMS).findings())
    assert "state-refused" in {each.kind.value for each in found}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", b"x"),
        ("config/unheard.json", {}),
        ("config/topics.json", {"topicConfigTable": {"rmq_sys_UNHEARD": {}}}),
        ("config/topics.json", topic(unheard="1")),
        ("config/topics.json", topic(**{"queue.type": "UnheardCQ"})),
        ("config/subscriptionGroup.json", {"subscriptionGroupTable": {"g": {"unheard": 1}}}),
    ],
)
def test_what_the_table_does_not_have_is_named(tmp_path: Path, name: str, content: object) -> None:
    write(tmp_path, name, content)
    assert found_in(tmp_path) == {"unknown": Verdict.NAMED}


@pytest.mark.parametrize("name", ["pop5", "lmqc", "lmqc4", "txt5"])
def test_an_ordinary_store_of_a_broker_has_no_such_state(tmp_path: Path, name: str) -> None:
    assert found_in(unpack(name, tmp_path)) == {}


def test_a_store_of_ours_has_no_such_state(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_some(store, 3)
        assert found_in(tmp_path) == {}
    assert found_in(tmp_path) == {}
