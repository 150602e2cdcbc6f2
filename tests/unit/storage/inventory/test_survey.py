"""States that a broker may leave in a store: read, refused before anything changes, or named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqstore.storage import inventory
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import StoreUnsupported
from mqstore.storage.inventory import Subject, Verdict, states
from mqstore.storage.inventory.state import Content
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.threads import production_seams
from mqstore.storage.topic_names import RESERVED_PROPERTIES
from mqstore.storage.verify import Verification
from mqstore.storage.verify.finding import Kind
from tests.field import unpack
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, FILES, bodies, message, open_store, put_some
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


def topic_field(name: str, value: object) -> tuple[str, object]:
    return "config/topics.json", {"topicConfigTable": {"T": {name: value}}}


def group_field(name: str, value: object) -> tuple[str, object]:
    return "config/subscriptionGroup.json", {"subscriptionGroupTable": {"g": {name: value}}}


CASES = {
    "queues-in-rocksdb": ("consumequeue/CURRENT", b"MANIFEST-000005"),
    "static-topics": ("config/topicQueueMapping.json", {"topicQueueMappingInfoMap": {"T": {}}}),
    "ordered-pop": ("config/consumerOrderInfo.json", {"table": {"T@g": {}}}),
    "request-modes": ("config/messageRequestMode.json", {"messageRequestModeMap": {"T": {}}}),
    "tables-in-rocksdb": ("config/topics/000012.sst", b"x"),
    "tables-of-v2": ("config/rdb/000012.sst", b"x"),
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
    "priority-topic": ("config/topics.json", topic(**{"message.type": "PRIORITY"})),
    "static-subscription": group_field("subscriptionDataSet", [{"topic": "T"}]),
    "odd-group-name": group_field("groupName", "a" * 121),
    "own-retry-policy": group_field(
        "groupRetryPolicy", {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"max": 7_200_000}}
    ),
    "priority-factor": group_field("attributes", {"priority.factor": "50"}),
}
IN_RECORDS = {
    "inner-batch": 0x80,
    "priority": "_SYS_MSG_PRIORITY_",
    "inner-batch-size": "INNER_NUM",
}
"""States of records, each with a flag or a property."""


def test_every_state_that_is_not_read_has_a_case() -> None:
    surveyed = [each for each in inventory.ALL if each.content is not Content.COMPARED]
    named = {each.name for each in surveyed if each.verdict is not Verdict.READ}
    assert CASES.keys() | IN_RECORDS.keys() == named
    assert len({s.name for s in inventory.ALL}) == len(inventory.ALL)


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
    with open_store(tmp_path, in_place=False, services=False, create=False) as store:
        assert len(bodies(store)) == 3, "what is in the log is read all the same"
    assert {name: entry.content for name, entry in entries_of(tmp_path).items()} == before
    found = list(Verification(tmp_path, CONFIG, SEAMS).findings())
    assert "state-refused" in {each.kind.value for each in found}


@pytest.mark.parametrize("has_lock", [True, False])
def test_a_refused_opening_leaves_no_file_in_a_brokers_store(
    tmp_path: Path, has_lock: bool
) -> None:
    root = unpack("pop5", tmp_path)
    write(root, *CASES["dledger"])
    if has_lock:
        write(root, "lock", b"lock")
    else:
        (root / "lock").unlink(missing_ok=True)
    before = {name: entry.content for name, entry in entries_of(root).items()}
    with pytest.raises(StoreUnsupported):
        open_store(root)
    assert {name: entry.content for name, entry in entries_of(root).items()} == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", b"x"),
        ("config/unheard.json", {}),
        ("config/topics.json", {"topicConfigTable": {"rmq_sys_UNHEARD": {}}}),
        ("config/topics.json", topic(unheard="1")),
        ("config/topics.json", topic(**{"queue.type": "UnheardCQ"})),
        topic_field("unheard", 1),
        topic_field("topicFilterType", "UNHEARD"),
        ("config/topics.json", topic(**{"message.type": "LITE"})),
        group_field("unheard", 1),
        group_field("attributes", {"unheard": "1"}),
    ],
)
def test_what_the_table_does_not_have_is_named(tmp_path: Path, name: str, content: object) -> None:
    write(tmp_path, name, content)
    assert found_in(tmp_path) == {"unknown": Verdict.NAMED}


@pytest.mark.parametrize("name", IN_RECORDS)
def test_a_record_with_such_a_state_is_a_finding(tmp_path: Path, name: str) -> None:
    sign = IN_RECORDS[name]
    with open_store(tmp_path) as store:
        store.create_topic("T", queues=1)
        put_some(store, 2)
        offset = store.log.max_offset
        flag = sign if isinstance(sign, int) else 0
        named = b"" if flag else f"{sign}\x013\x02".encode()
        plain = message(store, 3)
        odd = Message(
            *("T", 0, plain.body, named + plain.properties, store.host, store.host),
            plain.born_timestamp_ms,
            sys_flag=flag,
        )
        put_message(store, odd)
    found = [
        (each.offset, each.what)
        for each in Verification(tmp_path, CONFIG, SEAMS).findings()
        if each.kind is Kind.STATE_NAMED
    ]
    assert [(where, f"({name})" in what) for where, what in found] == [(offset, True)]


def test_bits_and_reserved_properties_that_the_table_lacks_are_named() -> None:
    records = inventory.RecordSurvey()
    records.note(100, 0x1 | 0x300 | 0x30, ["TAGS", "color", "DELAY"])
    assert list(records.found()) == []
    records.note(200, 0x800 | 0x1, ["__RMQ.UNHEARD", "_SYS_UNHEARD"])
    records.note(300, -1, [])
    found = {each.where: offset for offset, each in records.found() if each.state is None}
    assert found["record flag 0x800 of 2 records"] == 200
    assert found["record flag 0x80000000 of 1 records"] == 300
    assert found["property __RMQ.UNHEARD of 1 records"] == 200
    assert found["property _SYS_UNHEARD of 1 records"] == 200


@pytest.mark.parametrize("store_format", StoreFormat)
def test_every_property_that_clients_may_not_set_is_in_the_table(store_format: StoreFormat) -> None:
    for name in RESERVED_PROPERTIES[store_format]:
        assert states.find(Subject.PROPERTY, name) is not None, name


@pytest.mark.parametrize("name", ["pop5", "lmqc", "lmqc4", "txt5"])
def test_an_ordinary_store_of_a_broker_has_no_such_state(tmp_path: Path, name: str) -> None:
    assert found_in(unpack(name, tmp_path)) == {}


def test_a_store_of_ours_has_no_such_state(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_some(store, 3)
        assert found_in(tmp_path) == {}
    assert found_in(tmp_path) == {}
