"""Both services over HTTP: what is stored is found, what cannot be is refused by name."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from mqstore.client import AsyncClient, Client, NewMessage, ProblemError
from mqstore.storage.codec.batch import encode_batch
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from tests.services.service_processes import Run

LOOPBACK = Host(b"\x7f\0\0\1", 0)


def _refused(status: int, kind: str, call: Any, *arguments: Any, **options: Any) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        call(*arguments, **options)
    assert (caught.value.status, caught.value.type) == (status, kind)
    return caught.value


def test_first_message_of_each_of_many_new_queues_is_read_once_it_is_answered(
    services: Run, client: Client
) -> None:
    client.create_topic("new-queues", queues=40)

    def put_and_read(queue_id: int) -> int:
        with services.client() as own:
            own.produce("new-queues", [NewMessage(queue_id=queue_id)], durability="async")
            return len(own.pull("new-queues", queue_id).messages)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(put_and_read, range(40))) == [1] * 40


def test_messages_without_a_queue_go_to_all_queues_in_turn(client: Client) -> None:
    client.create_topic("in-turn", queues=3)
    placed = [client.produce("in-turn", [NewMessage()]).messages[0] for _ in range(6)]
    assert sorted(each.queue_id for each in placed) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_acknowledged_message_is_found_in_every_way(
    client: Client, topic: str, durability: Any
) -> None:
    sent = NewMessage(
        body="hello", tags="created", keys=("order-1", "b"), properties={"a": "é"}, flag=-7
    )
    (placed,) = client.produce(topic, [sent], durability=durability).messages
    found = client.message(placed.offset_msg_id)
    assert (found.topic, found.body, found.tags, found.keys) == (
        topic,
        "hello",
        "created",
        ("order-1", "b"),
    )
    assert (found.properties["a"], found.flag, found.uniq_key) == ("é", -7, placed.uniq_key)
    assert (found.queue_offset, found.physical_offset, found.size, found.store_timestamp) == (
        placed.queue_offset,
        placed.physical_offset,
        placed.size,
        placed.store_timestamp,
    )
    (pulled,) = client.pull(topic, 0).messages
    for again in (found, client.message(placed.uniq_key, topic=topic)):
        assert pulled.model_dump().items() <= again.model_dump().items()
    for key in ("order-1", "b", placed.uniq_key):
        answer = client.messages_by_key(topic, key)
        assert (answer.messages, answer.next, answer.complete) == ((pulled,), None, True)
    assert client.offset_by_time(topic, 0, placed.store_timestamp).offset == 0
    assert client.offset_by_time(topic, 0, placed.store_timestamp + 1).offset == 1


def test_batch_is_contiguous_in_one_queue(client: Client) -> None:
    client.create_topic("batch-in-one-queue", queues=3)
    sent = [NewMessage(body=str(i)) for i in range(50)]
    placed = client.produce("batch-in-one-queue", sent).messages
    assert len({each.queue_id for each in placed}) == 1
    assert [each.queue_offset for each in placed] == list(range(50))
    found = client.pull("batch-in-one-queue", placed[0].queue_id, max_messages=1000).messages
    assert [each.body for each in found] == [str(i) for i in range(50)]


def test_rocketmq_encoded_batch_is_stored(client: Client, topic: str) -> None:
    messages = [
        Message(topic, 0, b"body-%d" % i, b"KEYS\x01k%d" % i, LOOPBACK, LOOPBACK, 0, flag=i)
        for i in range(3)
    ]
    client.produce_batch(topic, encode_batch(messages), durability="sync")
    found = client.pull(topic, 0).messages
    assert [(each.body, each.flag, each.keys) for each in found] == [
        (f"body-{i}", i, (f"k{i}",)) for i in range(3)
    ]


def test_what_changed_on_its_way_is_refused_and_not_stored(
    services: Run, client: Client, topic: str
) -> None:
    message = Message(topic, 0, b"body", b"KEYS\x01k", LOOPBACK, LOOPBACK, 0)
    url = f"{services.writer_url}/v1/topics/{topic}/messages"
    batch = encode_batch([message])
    for headers, body in (
        ({"content-type": "application/x-rocketmq-batch", "x-mqstore-crc32c": "1"}, batch),
        ({"content-type": "application/json"}, b'{"messages":[{},{"body":"a","crc32c":1}]}'),
    ):
        response = httpx.post(url, content=body, headers=headers)
        kind = "urn:mqstore:problem:checksum-mismatch"
        assert (response.status_code, response.json()["type"]) == (422, kind)
    assert client.pull(topic, 0).messages == ()


@pytest.mark.parametrize("name", ["x-mqstore-crc32c"])
def test_header_that_says_nothing_is_refused_and_nothing_is_stored(
    services: Run, client: Client, topic: str, name: str
) -> None:
    url = f"{services.writer_url}/v1/topics/{topic}/messages"
    response = httpx.post(url, json={"messages": [{"body": "x"}]}, headers={name: ""})
    kind = "urn:mqstore:problem:bad-parameter"
    assert (response.status_code, response.json()["type"]) == (400, kind)
    assert client.pull(topic, 0).messages == ()


def test_binary_body_comes_back_as_it_was(client: Client, topic: str) -> None:
    body = bytes(range(256)) * 100
    (placed,) = client.produce(topic, [NewMessage(body=body)]).messages
    assert client.message(placed.offset_msg_id).body_bytes == body


def test_key_query_goes_on_with_its_cursor(client: Client, topic: str) -> None:
    for number in range(5):
        client.produce(topic, [NewMessage(body=str(number), keys=("k",))])
    first = client.messages_by_key(topic, "k", limit=2)
    assert not first.complete
    assert first.next is not None
    rest = client.messages_by_key(topic, "k", limit=10, cursor=first.next)
    bodies = [each.body for each in first.messages + rest.messages]
    assert bodies == ["4", "3", "2", "1", "0"]
    assert rest.complete


def test_cursor_of_another_query_or_a_changed_one_is_refused(client: Client, topic: str) -> None:
    for _ in range(3):
        client.produce(topic, [NewMessage(keys=("k", "other"))])
    cursor = client.messages_by_key(topic, "k", limit=1).next
    assert cursor is not None
    for position in range(len(cursor)):
        other = "A" if cursor[position] != "A" else "B"
        changed = cursor[:position] + other + cursor[position + 1 :]
        _refused(400, "bad-cursor", client.messages_by_key, topic, "k", cursor=changed)
    _refused(400, "bad-cursor", client.messages_by_key, topic, "other", cursor=cursor)
    _refused(400, "bad-cursor", client.messages_by_key, topic, "k", to_ms=0, cursor=cursor)


def test_key_query_keeps_to_its_time_range(client: Client, topic: str) -> None:
    (placed,) = client.produce(topic, [NewMessage(keys=("k",))]).messages
    at = placed.store_timestamp
    assert len(client.messages_by_key(topic, "k", from_ms=at, to_ms=at).messages) == 1
    assert client.messages_by_key(topic, "k", from_ms=at + 1).messages == ()
    assert client.messages_by_key(topic, "k", to_ms=at - 1).messages == ()


def test_no_match_is_an_empty_answer(client: Client, topic: str) -> None:
    assert client.messages_by_key(topic, "none").messages == ()
    empty = client.pull(topic, 0)
    assert (empty.messages, empty.next) == ((), 0)
    assert client.pull(topic, 0, wait_s=0.01).messages == ()
    assert [(q.min_offset, q.max_offset) for q in client.queues(topic).queues] == [(0, 0)]


def test_long_poll_is_answered_by_an_arrival(services: Run, client: Client, topic: str) -> None:
    answers: list[Any] = []

    def poll() -> None:
        with services.client() as other:
            answers.append(other.pull(topic, 0, wait_s=30))

    thread = threading.Thread(target=poll)
    thread.start()
    client.produce(topic, [NewMessage(body="awaited")])
    thread.join(25)
    assert [each.body for each in answers[0].messages] == ["awaited"]


def test_many_long_polls_and_produces_at_once(services: Run, client: Client) -> None:
    client.create_topic("many-polls", queues=4)

    async def scenario() -> None:
        async with AsyncClient(services.writer_url, services.query_url) as both:
            polls = asyncio.gather(
                *(both.pull("many-polls", q, wait_s=30) for q in range(4) for _ in range(10))
            )
            for q in range(4):
                await both.produce("many-polls", [NewMessage(queue_id=q)], durability="sync")
            assert all(len(answer.messages) == 1 for answer in await polls)

    asyncio.run(scenario())


def test_topics_are_created_listed_and_changed(client: Client) -> None:
    made = client.create_topic("made-here", queues=2)
    assert (made.queues, made.perm) == (2, 6)
    assert client.create_topic("made-here", queues=3).queues == 3
    assert client.topic("made-here").queues == 3
    assert "made-here" in [each.topic for each in client.topics().topics]
    _refused(404, "topic-unknown", client.topic, "never-made")


def test_topic_names_with_percent_and_bar_are_reached(client: Client) -> None:
    name = "%RETRY%group-a|b"
    client.create_topic(name, queues=1)
    client.produce(name, [NewMessage(body="x")])
    assert client.pull(name, 0).messages[0].topic == name


@pytest.mark.parametrize("name", ["a/b", "..", ""])
def test_topic_that_no_path_can_hold_is_not_sent(client: Client, name: str) -> None:
    for call in (client.create_topic, lambda n: client.produce(n, [NewMessage()])):
        with pytest.raises(ValueError, match="is no topic name"):
            call(name)


@pytest.mark.parametrize("name", ["a b", "é", "x" * 128, "a\0b", "a.b", " "])
def test_topic_that_is_no_name_is_refused(client: Client, name: str) -> None:
    for call in (client.create_topic, lambda n: client.produce(n, [NewMessage()])):
        with pytest.raises(ProblemError) as caught:
            call(name)
        assert caught.value.status in (404, 422)


def test_system_topics_are_not_written(client: Client) -> None:
    for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"):
        _refused(422, "topic-invalid", client.produce, name, [NewMessage()])
        _refused(422, "topic-invalid", client.create_topic, name)


@pytest.mark.parametrize("queues", [0, -1, 1025, "4", 1.5, True])
def test_topic_with_wrong_queues_is_422(services: Run, queues: Any) -> None:
    url = f"{services.writer_url}/v1/topics/wrong-queues"
    response = httpx.put(url, json={"queues": queues})
    assert response.status_code == 422
    assert response.json()["type"].endswith("body-invalid")


def test_refused_message_leaves_nothing(client: Client, topic: str) -> None:
    before = client.store().max_offset
    good, bad = NewMessage(body="good"), NewMessage(keys=("with space",))
    _refused(422, "property-invalid", client.produce, topic, [good, bad])
    _refused(422, "message-invalid", client.produce, topic, [NewMessage(queue_id=9)])
    _refused(404, "topic-unknown", client.produce, "never-made", [good])
    assert client.store().max_offset == before
    assert client.pull(topic, 0).messages == ()


def test_delayed_message_comes_when_it_is_due(client: Client, topic: str) -> None:
    later = NewMessage(body="later", delay_level=1)
    (placed,) = client.produce(topic, [later]).messages
    client.produce(topic, [NewMessage(body="now", queue_id=0)])
    assert [each.body for each in client.pull(topic, 0).messages] == ["now"]
    level = client.delays().levels[0]
    assert (level.delay, level.queue_max) == ("1s", placed.queue_offset + 1)
    found = client.pull(topic, 0, offset=1, wait_s=10).messages
    assert [(each.body, each.uniq_key) for each in found] == [("later", placed.uniq_key)]
    assert found[0].store_timestamp >= placed.store_timestamp + 1000


def test_messages_of_one_request_may_be_delayed_or_not(client: Client, topic: str) -> None:
    batch = [NewMessage(body=f"{n}", queue_id=0, delay_level=n) for n in (0, 1, 18)]
    placed = client.produce(topic, batch).messages
    assert [each.queue_id for each in placed] == [0, 0, 17]
    found = client.pull(topic, 0, offset=1, wait_s=10).messages
    assert [each.body for each in found] == ["1"]
    assert client.delays().levels[17].pending >= 1


def test_a_request_with_delayed_messages_is_as_large_as_any_batch_at_most(
    client: Client, topic: str
) -> None:
    messages = [NewMessage(body=b"x" * (3 << 20), delay_level=level) for level in (0, 1)]
    _refused(413, "body-too-large", client.produce, topic, messages)


def test_a_delay_level_that_is_none_is_refused(client: Client, topic: str) -> None:
    _refused(422, "message-invalid", client.produce, topic, [NewMessage(delay_level=19)])


def test_batch_cut_anywhere_is_refused_whole(services: Run, client: Client, topic: str) -> None:
    message = Message(topic, 0, b"body", b"KEYS\x01k", LOOPBACK, LOOPBACK, 0)
    whole = encode_batch([message, message])
    for length in set(range(len(whole))) - {len(whole) // 2}:
        _refused(422, "message-invalid", client.produce_batch, topic, whole[:length])
    assert client.pull(topic, 0).messages == ()


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        (b"no pair", "message-invalid"),
        (b"a\x01b\0", "property-invalid"),
        (b"DELAY\x013", "property-invalid"),
        (b"TRAN_MSG\x01true", "property-invalid"),
    ],
)
def test_batch_with_properties_that_could_not_be_read_back_is_refused(
    client: Client, topic: str, properties: bytes, kind: str
) -> None:
    message = Message(topic, 0, b"body", properties, LOOPBACK, LOOPBACK, 0)
    _refused(422, kind, client.produce_batch, topic, encode_batch([message]))
    assert client.pull(topic, 0).messages == ()


def test_ten_thousand_messages_are_one_batch(client: Client, topic: str) -> None:
    placed = client.produce(topic, [NewMessage(body=str(i)) for i in range(10_000)]).messages
    assert [each.queue_offset for each in placed] == list(range(10_000))
    assert client.pull(topic, 0, 9_999).messages[0].body == "9999"


def test_body_over_the_limits_is_413(services: Run, client: Client, topic: str) -> None:
    _refused(413, "body-too-large", client.produce, topic, [NewMessage(body=b"x" * (4 << 20 | 1))])
    _refused(413, "body-too-large", client.produce, topic, [NewMessage(body="x" * (17 << 20))])
    many = b'{"messages":[' + b"{}," * 10_000 + b"{}]}"
    url = f"{services.writer_url}/v1/topics/{topic}/messages"
    response = httpx.post(url, content=many, headers={"content-type": "application/json"})
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"{", 400),
        ("application/json", b"[]", 422),
        ("application/json", b"\xff", 400),
        ("application/json", b"", 400),
        ("application/json", b'{"messages":[{"body":"\\ud800"}]}', 400),
        ("text/plain", b"{}", 415),
        ("application/x-rocketmq-batch", b"\0\0\0", 422),
        ("application/x-rocketmq-batch", b"", 422),
    ],
)
def test_broken_bodies_are_refused(
    services: Run, topic: str, content_type: str, body: bytes, status: int
) -> None:
    url = f"{services.writer_url}/v1/topics/{topic}/messages"
    response = httpx.post(url, content=body, headers={"content-type": content_type})
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/v1/messages/abc", 400, "bad-message-id"),
        ("/v1/messages/7F00000100002A9F00000000FFFFFFFF", 404, "message-unknown"),
        ("/v1/messages/0A00000100002A9F0000000000000000", 404, "message-unknown"),
        ("/v1/messages/7F00000100002A9F0000000000000003", 404, "offset-inside-message"),
        ("/v1/messages/" + "0" * 39 + "100002A9F0000000000000000", 400, "bad-message-id"),
        ("/v1/messages/" + "0" * 31 + "100002A9F0000000000000000", 404, "message-unknown"),
        ("/v1/messages/7F00000100002A9F8000000000000000", 400, "bad-message-id"),
        ("/v1/messages/none?topic=TOPIC", 404, "message-unknown"),
        ("/v1/topics/TOPIC/messages?key=a&limit=0", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/messages?key=a&limit=1001", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/messages?key=a&from=-1", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/messages?key=a&from=946684800000&to=0", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/messages?key=a&limt=5", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/messages?key=a&key=b", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/messages?key=a&cursor=x", 400, "bad-cursor"),
        ("/v1/topics/never-made/messages?key=a", 404, "topic-unknown"),
        ("/v1/topics/never-made/queues", 404, "topic-unknown"),
        ("/v1/topics/never-made/queues/0/messages", 404, "topic-unknown"),
        ("/v1/topics/..%2F..%2Fconfig/queues", 404, "not-found"),
        ("/v1/topics/TOPIC/queues/7/messages", 404, "queue-unknown"),
        ("/v1/topics/TOPIC/queues/-1/messages", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/queues/x/messages", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/queues/99999999999999999999/messages", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/queues/0/messages?offset=-1", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/queues/0/messages?max=0", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/queues/0/messages?max=1001", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/queues/0/messages?wait=31", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/queues/0/messages?wait=nan", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/queues/0/messages?tag=a", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/queues/0/messages/", 404, "not-found"),
        ("/v1/topics/TOPIC/queues/0/offset", 400, "bad-parameter"),
        ("/v1/topics/TOPIC/queues/0/offset?timestamp=x", 400, "bad-parameter"),
    ],
)
def test_wrong_questions_are_problems(
    services: Run, client: Client, topic: str, path: str, status: int, kind: str
) -> None:
    client.produce(topic, [NewMessage(body="something")])
    response = httpx.get(services.query_url + path.replace("TOPIC", topic))
    assert (response.status_code, response.json()["type"]) == (
        status,
        f"urn:mqstore:problem:{kind}",
    )


def test_store_describes_itself(client: Client, topic: str) -> None:
    client.produce(topic, [NewMessage(body="x")], durability="sync")
    store = client.store()
    assert store.health == "ready"
    assert store.min_offset == 0
    assert store.flushed_offset == store.max_offset == store.dispatched_offset
    assert store.segment_size == 64 << 20
    first = client.segments().segments[0]
    assert (first.name, first.size) == ("0" * 20, 64 << 20)
    assert first.used > 0
    assert client.recovery().plan["path"] in ("normal", "abnormal")


def test_openapi_documents_every_route_with_examples(services: Run) -> None:
    for url, paths in (
        (services.writer_url, {"/v1/topics", "/v1/topics/{topic}/messages", "/v1/store"}),
        (services.query_url, {"/v1/messages/{id}", "/v1/topics/{topic}/queues/{queue}/messages"}),
    ):
        document = httpx.get(f"{url}/openapi.json").json()
        assert paths <= set(document["paths"])
        text = json.dumps(document)
        assert '"example"' in text
        for reference in set(_references(document)):
            name = reference.removeprefix("#/components/schemas/")
            assert name in document["components"]["schemas"]
        assert httpx.get(f"{url}/docs").status_code == 200


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [each for value in node.values() for each in _references(value)]
    if isinstance(node, list):
        return [each for value in node for each in _references(value)]
    return []


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_request_of_ten_thousand_messages_is_one_append(
    client: Client, topic: str, durability: Any
) -> None:
    sent = [NewMessage(body=f"{number}", keys=("k",)) for number in range(10_000)]
    placed = client.produce(topic, sent, durability=durability).messages
    assert [each.queue_offset for each in placed] == list(range(10_000))
    offsets = [each.physical_offset for each in placed]
    assert offsets == sorted(offsets)
    (last,) = client.pull(topic, 0, offset=9_999).messages
    assert (last.body, last.uniq_key) == ("9999", placed[-1].uniq_key)
