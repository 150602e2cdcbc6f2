"""Sends are stored, and answered, as their requests say; what is refused is stored in no part."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqstore.service.http import DeferredReply, HotRequest, Reply, await_reply
from mqstore.service.problems import Problem
from mqstore.storage import StoreConfig
from mqstore.storage._kernel import Reason
from mqstore.storage.errors import StorageError
from mqstore.wire.produce import NewMessage, ProduceRequest
from mqstore.wire.produce import body_bytes as body_of
from mqstore.writer import produce
from mqstore.writer.produce_route import ProduceRoute
from tests.long_runs import examples
from tests.unit.storage.sends import items_of
from tests.unit.writer.json_requests import properties_of, requests
from tests.unit.writer.opened_writer import open_writer

TOPIC: Final = "orders"
"""A topic of one queue, so that messages without a queue have one place."""
SPREAD: Final = "spread"
QUEUES: Final = 3
HEADERS: Final = [(b"content-type", b"application/json"), (b"host", b"localhost")]
BATCH_HEADERS: Final = [(b"content-type", b"application/x-rocketmq-batch")]
BATCH_PROPERTIES: Final = (
    *(b"", b"KEYS\x01a b", b"TAGS\x01t\x02", b"a\x01b\x02", b"WAIT\x01true\x02"),
    *("a\x01é".encode(), b"DELAY\x013", b"no separator", b"PGROUP\x01g"),
    *(b"__SHARDINGKEY\x01order-1", b"__SHARDINGKEY\x01a\x02TAGS\x01t", b"__SHARDINGKEY\x01"),
)
CONFIG: Final = StoreConfig(
    mapped_file_size_commit_log=4 << 20,
    message_delay_level="1h 1h 1h 1h 1h 1h 1h 1h 1h",  # none is delivered while a test runs
)
GENERATED: Final = "006D7173"


class Writer:
    """One store-writer of this process, and the replies of its produce route."""

    def __init__(self, runner: asyncio.Runner, root: Path) -> None:
        self._runner = runner
        self.service = runner.run(open_writer(root, CONFIG, {TOPIC: 1, SPREAD: QUEUES}))
        self.producer = ProduceRoute(self.service)

    def stop(self) -> None:
        self._runner.run(self.service.stop())

    def send(self, body: bytes, topic: str = TOPIC, query: bytes | None = None) -> tuple[int, Any]:
        """Status and JSON of the reply, or the problem's text.

        With a ``query`` the body is in RocketMQ's batch encoding.
        """
        return self._runner.run(self._send(body, topic, query))

    async def _send(self, body: bytes, topic: str, query: bytes | None) -> tuple[int, Any]:
        params = {"topic": topic}
        try:
            found = self.producer._prepare(self._request(b"", topic, query)).begin(body, params)
            if found is None:  # the topic is looked up first, or a thread reads the messages
                found = await self.producer._handle(self._request(body, topic, query))
            elif isinstance(found, DeferredReply):
                found = await await_reply(found)
        except Problem as problem:
            return problem.kind.status, problem.detail
        except StorageError as error:
            return 0, str(error)
        return (201, json.loads(found)) if isinstance(found, bytes) else _decoded(found)

    def _request(self, body: bytes, topic: str, query: bytes | None) -> HotRequest:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        headers = HEADERS if query is None else BATCH_HEADERS
        scope = {"method": "POST", "path": "/", "query_string": query or b"", "headers": headers}
        return HotRequest(scope, receive, {"topic": topic}, self.service.front.limits)

    def records(self, start: int) -> list[Any]:
        """The records from a physical offset on."""
        found = []
        while start < self.service.store.log.max_offset:
            found.append(self.service.store.log.record_at(start))
            start += found[-1].size
        return found


def _decoded(reply: Reply) -> tuple[int, Any]:
    return reply.status, json.loads(reply.body)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    with asyncio.Runner() as runner:
        found = Writer(runner, tmp_path_factory.mktemp("sends"))
        text = b'{"messages":[{"body":"first","uniqKey":"first"}]}'
        for topic, count in ((TOPIC, 1), (SPREAD, QUEUES)):  # a queue's first makes its file
            assert [found.send(text, topic)[0] for _ in range(count)] == [201] * count
        yield found
        found.stop()


def require_placed(record: Any, place: dict[str, Any]) -> None:
    """Assert that an answer names a record."""
    assert place["physicalOffset"] == record.physical_offset
    assert place["size"] == record.size
    assert place["queueOffset"] == record.queue_offset
    assert place["queueId"] == record.queue_id
    assert place["storeTimestamp"] == record.store_timestamp_ms
    assert place["uniqKey"] == (record.uniq_key or "")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=examples(100),
)
@given(requests())
def test_a_request_is_stored_as_its_model_says_or_refused(writer: Writer, text: bytes) -> None:
    start = writer.service.store.log.max_offset
    status, reply = writer.send(text)
    records = writer.records(start)
    if status != 201:
        assert isinstance(reply, str) and reply
        assert not records
        return
    messages = ProduceRequest.model_validate_json(text).messages
    placed = reply["messages"]
    new = [number for number, each in enumerate(placed) if not each.get("repeat")]
    assert len(placed) == len(messages)
    assert len(records) == len(new)
    for record, number in zip(records, new, strict=True):
        message, place = messages[number], placed[number]
        require_placed(record, place)
        assert record.body == body_of(message.body, message.body_base64)
        assert record.flag == message.flag
        key = message.uniq_key or place["uniqKey"]
        assert (message.uniq_key is not None) or key.startswith(GENERATED)
        assert place["uniqKey"] == key
        wanted = properties_of(message, key)
        if message.delay_level:
            assert place["waitsIn"] == record.topic == "SCHEDULE_TOPIC_XXXX"
            assert wanted.items() <= record.properties.items()
        else:
            assert (record.topic, list(record.properties.items())) == (TOPIC, list(wanted.items()))


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A query, and a body in RocketMQ's batch encoding, some of them damaged."""
    keys = st.sampled_from([b"", b"", b"UNIQ_KEY\x01%b\x02" % os.urandom(8).hex().encode()])
    keys |= st.sampled_from([b"UNIQ_KEY\x01A1\x02", b'UNIQ_KEY\x01a"b\x02'])
    items, ordering = [], draw(st.sampled_from([b"", b"", b"__SHARDINGKEY\x01order-2\x02"]))
    for _ in range(draw(st.integers(0, 5))):
        own = ordering + draw(keys) + draw(st.sampled_from(BATCH_PROPERTIES))
        body = draw(st.binary(max_size=9))
        size = 22 + len(body) + len(own)
        head = struct.pack(">iiiii", size, 0, 0, draw(st.integers(-9, 9)), len(body))
        items.append(head + body + struct.pack(">h", len(own)) + own)
    data = b"".join(items)[: draw(st.sampled_from([None, None, None, -1]))]
    query = draw(
        st.sampled_from([b"", b"queueId=0", b"queueId=1", b"durability=sync", b"durability=x"])
    )
    return query, data


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=examples(100),
)
@given(batches())
def test_a_batch_is_stored_as_it_is_encoded_or_refused(
    writer: Writer, request_: tuple[bytes, bytes]
) -> None:
    query, data = request_
    start = writer.service.store.log.max_offset
    status, reply = writer.send(data, query=query)
    records = writer.records(start)
    if status != 201:
        assert isinstance(reply, str) and reply
        assert not records
        return
    placed = reply["messages"]
    new = [number for number, each in enumerate(placed) if not each.get("repeat")]
    items = list(items_of(data))
    assert (len(placed), len(records)) == (len(items), len(new))
    for record, number in zip(records, new, strict=True):
        require_placed(record, placed[number])
        assert (record.flag, record.body, record.raw_properties) == items[number]


def one_call(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no put need more than the kernel's call."""
    monkeypatch.setattr(writer.service.store, "append", None)


def test_ordinary_requests_are_put_in_one_call(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = None
    while window is None or window.first_index + window.entries < window.next_index + 300:
        writer.send(b'{"messages":[{"body":"a"}]}')  # until the queue's file has room reserved
        window = writer.service.store.queues.windows_by_place[TOPIC, 0]
    one_call(writer, monkeypatch)
    keys = [os.urandom(8).hex() for _ in range(50)]
    data = b"".join(
        struct.pack(">iiiii", 25 + len(own), 0, 0, 0, 3)
        + b"abc"
        + struct.pack(">h", len(own))
        + own
        for own in (b"UNIQ_KEY\x01%b\x02" % key.encode() for key in keys)
    )
    _, reply = writer.send(data, query=b"")
    assert [each["uniqKey"] for each in reply["messages"]] == keys
    for message in (
        {"body": "a", "uniqKey": os.urandom(8).hex()},
        {"body": "größe", "properties": {"a": "é"}, "keys": ["ключ"], "tags": "日本"},
        {"bodyBase64": "AAEC", "crc32c": 0x5D2E0A67, "orderingKey": "ö"},
    ):
        status, reply = writer.send(json.dumps({"messages": [message]}).encode())
        assert status in (201, 422), reply  # 422: a wrong checksum
    status, reply = writer.send(b'{"messages":[{"body":"a"},{"body":"b"}],"durability":"sync"}')
    assert status == 201
    store = writer.service.store
    assert store.flush.flushed_offset == store.log.max_offset


def test_a_repeat_is_answered_with_the_first_placement(writer: Writer) -> None:
    body = json.dumps({"messages": [{"body": "a", "uniqKey": os.urandom(8).hex()}]}).encode()
    _, first = writer.send(body)
    status, second = writer.send(body)
    assert (status, second["messages"][0].pop("repeat")) == (201, True)
    assert second == first


def test_only_keys_of_clients_are_kept_and_name_a_shard(writer: Writer) -> None:
    """A key that store-writer generates is new, and its message stays on this shard."""
    dedup, sends = writer.service.store.dedup, writer.producer._sends
    assert dedup is not None
    _, generated = writer.send(b'{"messages":[{"body":"a"},{"body":"b"}]}')
    _, given = writer.send(b'{"messages":[{"body":"a","uniqKey":"own"},{"body":"b"}]}')

    keys = [each["uniqKey"] for each in (*generated["messages"], *given["messages"])]
    assert [dedup.knows(TOPIC, [key]) for key in keys] == [False, False, True, False]
    topic, host = writer.service.store.topic(TOPIC), writer.service.store.host
    assert sends.of(topic).read(_messages({"body": "a"}), host).given is None
    named = sends.of(topic).read(_messages({"body": "a", "uniqKey": "x"}, {"body": "b"}), host)
    assert named.given == ["x", None]


def _messages(*texts: dict[str, str]) -> list[Any]:
    body = json.dumps({"messages": texts}).encode()
    return produce.decode_request(body, len(texts), heavy=False).messages


def test_what_is_stored_is_counted(writer: Writer) -> None:
    metrics = writer.service.metrics
    before = metrics.traffic.of(TOPIC, "normal")[0], sum(metrics.put_seconds.counts)
    writer.send(b'{"messages":[{"body":"a"},{"body":"b"}]}')
    after = metrics.traffic.of(TOPIC, "normal")[0], sum(metrics.put_seconds.counts)
    assert (after[0] - before[0], after[1] - before[1]) == (2, 1)


def queue_of_one(writer: Writer, **fields: Any) -> int:
    """The queue of a message."""
    body = json.dumps({"messages": [{"body": "a", **fields}]}).encode()
    found: int = writer.send(body, SPREAD)[1]["messages"][0]["queueId"]
    return found


def test_messages_without_a_queue_go_to_the_queues_in_turn(writer: Writer) -> None:
    queues = [queue_of_one(writer) for _ in range(2 * QUEUES)]
    assert queues == [(queues[0] + i) % QUEUES for i in range(2 * QUEUES)]
    queue_of_one(writer, orderingKey="order-1")  # takes no turn
    assert queue_of_one(writer) == queues[0]


def test_a_changed_topic_has_its_new_queues(writer: Writer) -> None:
    sends, topic = writer.producer._sends, writer.service.store.topic(SPREAD)
    assert sends.of(topic) is sends.of(topic)
    assert sends.of(topic) is not sends.of(writer.service.store.topic(TOPIC))


def test_a_message_under_a_key_waits_for_another_thread_that_puts_one(writer: Writer) -> None:
    dedup, topic = writer.service.store.dedup, writer.service.store.topic(TOPIC)
    assert dedup is not None
    sends = writer.producer._sends.of(topic)
    host = writer.service.store.host
    batch = sends.read([NewMessage(body="a", uniq_key=os.urandom(8).hex())], host)
    with dedup.lock:
        assert sends.put(batch) is Reason.KEY_KNOWN
    placements, repeats = writer.service.store.append(batch)
    assert (len(placements), repeats) == (1, frozenset())
