"""A broker's store opens in the services, grows over REST, answers queries, and goes back."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqstore.client import Client, Message, NewMessage
from mqstore.storage.system.posix_files import PosixFileSystem
from tests.compat import ours
from tests.compat.compare import Dump, differences, lost, script_differences
from tests.compat.examples import copy_of, example_directory, half_way
from tests.compat.referee import Referee
from tests.compat.scripts import TRANSACTION_BITS, Put, Script, Sleep, expected_messages
from tests.compat.shapes import EVERYTHING, Shape, expand
from tests.long_runs import few_first
from tests.services.service_processes import running, start, without_progress

pytestmark = pytest.mark.referee

SHAPE = EVERYTHING
ROLLBACK = 0xC
NEW_TOPIC = "made-over-rest"


def _services(store: Path, shape: Shape) -> Any:
    """All sizes but these two are found from the files."""
    sizes: dict[str, Any] = {
        "max_hash_slot_num": shape.hash_slots,
        "max_index_num": shape.index_num,
    }
    return running(store, **sizes)


@pytest.mark.parametrize("end", few_first(["halted", "closed"], others=pytest.mark.nightly))
@pytest.mark.slow
def test_a_brokers_store_grows_over_rest_and_goes_back(referee: Referee, end: str) -> None:
    script = expand(11, SHAPE, referee.format)
    if end == "halted":
        script = half_way(script)
    with example_directory(script) as directory:
        store = directory / "store"
        acknowledged = expected_messages(script, referee.write(script, store), referee.format)
        before = Dump.of(ours.dump(store, SHAPE.config, whole=False))
        with _services(store, SHAPE) as run:
            assert f"RocketMQ {referee.format} format" in run.banner
            with run.client() as client:
                _assert_answered(client, before)
                bodies = _grow(client, before.messages[0]["topic"])
            assert run.stop() == (0, "")
        theirs = Dump.of(referee.dump(copy_of(store), SHAPE.config))
        found = Dump.of(ours.dump(store, SHAPE.config))
        assert theirs.recovered["path"] == "normal"
        assert differences(_comparable(found, end), _comparable(theirs, end)) == []
        assert lost(acknowledged, theirs) == []
        if end == "closed":
            assert script_differences(acknowledged, before) == []
        stored = {line["bodySha256"] for line in theirs.messages}
        assert {hashlib.sha256(body.encode()).hexdigest() for body in bodies} <= stored


def _comparable(dump: Dump, end: str) -> Dump:
    """After a halt, 4.9 itself makes delay entries without their times, as it may have here."""
    return dump.without_delivery_times() if end == "halted" else dump


def _assert_answered(client: Client, dump: Dump) -> None:
    """REST returns of every message, queue and key what the dump prints; what was delayed may have
    come to its queue since."""
    end = dump.recovered["maxPhyOffset"]
    for line in dump.messages:
        assert _as_line(client.message(line["offsetMsgId"])) == _fields(line)
    for (topic, queue_id), entries in dump.entries.items():
        pulled = client.pull(topic, queue_id, max_messages=1000)
        low, high = dump.queues[topic, queue_id]
        assert pulled.min_offset == low
        assert pulled.max_offset >= high
        found = pulled.messages
        assert [m.physical_offset for m in found if m.physical_offset < end] == [
            entry[0] for entry in entries.values()
        ]
        assert all("REAL_TOPIC" in m.properties for m in found if m.physical_offset >= end)
    for line in dump.messages:
        if line["uniqKey"] and line["sysFlag"] & TRANSACTION_BITS != ROLLBACK:  # not indexed
            answer = client.messages_by_key(line["topic"], line["uniqKey"])
            assert line["off"] in [m.physical_offset for m in answer.messages]


def _fields(line: dict[str, Any]) -> dict[str, Any]:
    left_out = {"t", "phys", "bornHost", "storeHost", "bodyLen", "bodyCrc", "crcOk", "props"}
    return {k: v for k, v in line.items() if k not in left_out | {"keys", "tagsCode"}}


def _as_line(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "q": message.queue_id,
        "qoff": message.queue_offset,
        "off": message.physical_offset,
        "size": message.size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTs": message.born_timestamp,
        "storeTs": message.store_timestamp,
        "reconsume": message.reconsume_times,
        "pto": message.prepared_transaction_offset,
        "bodySha256": hashlib.sha256(message.body_bytes).hexdigest(),
        "uniqKey": message.uniq_key,
        "tags": message.tags,
        "offsetMsgId": message.offset_msg_id,
    }


def _grow(client: Client, topic: str) -> list[str]:
    """Produce to a topic of the broker's and to a new one; all bodies."""
    client.create_topic(NEW_TOPIC, queues=2)
    bodies = [f"over REST {number}" for number in range(60)]
    for body in bodies[:30]:
        (placed,) = client.produce(topic, [NewMessage(body=body, keys=("new",))]).messages
        assert client.message(placed.offset_msg_id).body == body
    client.produce(NEW_TOPIC, [NewMessage(body=body) for body in bodies[30:]], durability="sync")
    return bodies


@contextmanager
def _broker_at_work(referee: Referee, store: Path) -> Iterator[None]:
    """A JVM that holds the store open, as a broker does."""
    script = Script(SHAPE.config, [Put("t"), Sleep(600_000)])
    file = store.with_name("held.jsonl")
    file.write_text(script.to_json_lines())
    referee.build()
    with tempfile.TemporaryDirectory() as scratch:
        jvm = subprocess.Popen(referee._java(Path(scratch), "write", str(store), str(file)))
        try:
            while not PosixFileSystem().is_locked(store / "lock"):
                assert jvm.poll() is None
            yield
        finally:
            jvm.kill()
            jvm.wait()


@pytest.mark.slow
def test_a_store_that_a_broker_holds_is_refused_in_one_line(
    referee: Referee, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with _broker_at_work(referee, store):
        process = start(store)
        _, errors = process.communicate(timeout=60)
        assert process.wait() == 2, errors
        assert len(without_progress(errors).splitlines()) == 1
        assert "in use by another process" in errors
