"""One message in every detail over HTTP: by id, by offset, its body; and what damaged ones say."""

from __future__ import annotations

import contextlib
import zlib
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import lz4.frame
import pytest

from mqstore.client import Client, NewMessage, ProblemError, Target, TopicEvent
from mqstore.storage.codec import properties
from mqstore.storage.paths import StorePaths, segment_name
from tests.services.service_processes import Run, await_ready, query, running, writer
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store

FLAG_AT, BODY_AT = 16, 90


def _get(services: Run, path: str, **params: Any) -> httpx.Response:
    return httpx.get(services.query_url + path, params=params)


def test_message_is_shown_with_place_entry_and_checksums(
    services: Run, client: Client, topic: str
) -> None:
    (placed,) = client.produce(topic, [NewMessage(body="x", tags="t")], durability="sync").messages
    found = _get(services, f"/v1/messages/{placed.offset_msg_id}").json()
    assert found["segment"] == segment_name(found["physicalOffset"] - found["segmentPosition"])
    entry = found["queueEntry"]
    assert (entry["physicalOffset"], entry["size"]) == (placed.physical_offset, placed.size)
    assert entry["namesIt"]
    assert found["checksum"]["bodyCrc"] == zlib.crc32(b"x") & 0x7FFFFFFF
    assert found["checksum"]["blocks"] in ("verified", "partly-verified", "not-covered")
    assert client.message_at(placed.physical_offset).offset_msg_id == placed.offset_msg_id


@pytest.mark.parametrize("form", ["", "&body=none"])
def test_plain_requests_have_the_replies_of_other_requests(
    services: Run, client: Client, topic: str, form: str
) -> None:
    placed = client.produce(topic, [NewMessage(body=f"x{n}", tags="t") for n in range(4)]).messages
    stored = client.message_at(placed[1].physical_offset).store_timestamp
    queue = f"topics/{topic}/queues/{placed[1].queue_id}/offset?timestamp="
    targets = [f"messages/{each.offset_msg_id}?{form}" for each in placed]
    targets += [f"{queue}{at}" for at in (0, stored, stored + 10**6)]
    with httpx.Client(base_url=services.query_url) as http:
        for target in 2 * targets:
            plain, escaped = http.get(f"/v1/{target}"), http.get(f"/%761/{target}")
            assert (plain.status_code, escaped.status_code) == (200, 200)
            plain_found, found = plain.json(), escaped.json()
            for each in (plain_found, found):  # the log may be synced between the two
                each.pop("checksum", None)
            assert plain_found == found
            assert plain.headers.keys() == escaped.headers.keys()


def test_offset_inside_a_message_or_beyond_all_is_no_message(
    services: Run, client: Client, topic: str
) -> None:
    (placed,) = client.produce(topic, [NewMessage(body="x" * 100)]).messages
    beyond = _get(services, "/v1/messages", physicalOffset=placed.physical_offset + (1 << 40))
    assert beyond.status_code == 404
    for wrong in ("-1", "x", "", str(1 << 63)):
        response = _get(services, "/v1/messages", physicalOffset=wrong)
        assert (response.status_code, response.json()["type"]) == (
            400,
            "urn:mqstore:problem:bad-parameter",
        )


def test_body_is_downloaded_whole_and_by_range(services: Run, client: Client, topic: str) -> None:
    body = bytes(range(256)) * 10
    (placed,) = client.produce(topic, [NewMessage(body=body)]).messages
    url = f"{services.query_url}/v1/messages/{placed.offset_msg_id}/body"
    whole = httpx.get(url)
    assert (whole.status_code, whole.content) == (200, body)
    assert whole.headers["content-type"] == "application/octet-stream"
    name = f'attachment; filename="{placed.offset_msg_id}.bin"'
    assert whole.headers["content-disposition"] == name
    part = httpx.get(url, headers={"range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, body[100:200])
    assert part.headers["content-range"] == "bytes 100-199/2560"
    none = httpx.get(url, headers={"range": "bytes=2560-"})
    assert (none.status_code, none.headers["content-range"]) == (416, "bytes */2560")
    by_key = f"{services.query_url}/v1/messages/{placed.uniq_key}/body"
    assert httpx.get(by_key, params={"topic": topic}).content == body


def test_compressed_body_is_as_stored_unless_inflating_is_requested(tmp_path: Path) -> None:
    bodies = {0x1: zlib.compress(b"long " * 99), 0x101: lz4.frame.compress(b"long " * 99)}
    with open_store(tmp_path) as store:
        store.create_topic("T", queues=1)
        for number, (flag, body) in enumerate(bodies.items()):
            put_message(store, message(store, number).replace(sys_flag=flag, body=body))
    with query(tmp_path) as find:
        pull = httpx.get(f"{find.url}/v1/topics/T/queues/0/messages?inflate=true").json()
        for found, body in zip(pull["messages"], bodies.values(), strict=True):
            assert (found["body"], found["bodySize"]) == ("long " * 99, len(body))
            url = f"{find.url}/v1/messages/{found['offsetMsgId']}"
            assert httpx.get(url).json()["compression"] == found["compression"]
            assert httpx.get(url + "/body").content == body
            assert httpx.get(url + "/body?inflate=true").content == b"long " * 99


def test_answers_with_inflated_bodies_are_short_and_go_on(tmp_path: Path) -> None:
    """Each body becomes 700 times as long, and one answer may hold five such at most."""
    body, count = zlib.compress(b"x" * 60_000), 20
    with open_store(tmp_path) as store:
        store.create_topic("T", queues=1)
        for number in range(count):
            encoded = properties.encode({"KEYS": "k"}, trailing_separator=False)
            put_message(
                store, message(store, number).replace(sys_flag=0x1, body=body, properties=encoded)
            )
    bounds = {"max_inflated_size": 1 << 16, "max_inflate_ratio": 1000}
    with query(tmp_path, **bounds) as find, Client(find.url, find.url) as client:

        def inflated(path: str, start: str, **params: str) -> list[int]:
            """The lengths of all bodies, page by page."""
            found: list[int] = []
            following: object = None
            while len(found) < count:
                given = params | ({} if following is None else {start: str(following)})
                page = httpx.get(find.url + path, params={"inflate": "true", **given}).json()
                assert 0 < len(page["messages"]) <= 5
                found += [len(each["body"]) for each in page["messages"]]
                following = page["next"]
            return found

        topic = "/v1/topics/T"
        for lengths in (
            inflated(f"{topic}/queues/0/messages", "offset", max="1000"),
            inflated(f"{topic}/messages", "cursor", limit="1000"),
            inflated(f"{topic}/messages", "cursor", limit="1000", key="k"),
        ):
            assert lengths == [60_000] * count
        with contextlib.closing(client.follow("T", from_ms=0, inflate=True)) as events:
            assert all(len(_body(next(events))) == 60_000 for _ in range(count))


def _body(event: TopicEvent) -> str:
    assert event.message is not None and event.message.body is not None
    return event.message.body


def test_bodies_are_shown_as_requested_wherever_messages_are(
    services: Run, client: Client, topic: str
) -> None:
    (placed,) = client.produce(topic, [NewMessage(body='{"a": 1}', keys=("k",))]).messages
    for path, params in (
        (f"/v1/messages/{placed.offset_msg_id}", {}),
        (f"/v1/topics/{topic}/messages", {"key": "k"}),
        (f"/v1/topics/{topic}/queues/0/messages", {}),
    ):
        shown = _get(services, path, body="json", **params).json()
        message = shown["messages"][0] if "messages" in shown else shown
        assert message["bodyJson"] == {"a": 1}
        assert _get(services, path, body="xml", **params).status_code == 400
        assert _get(services, path, bodyMax=-1, **params).status_code == 400
        refused = _get(services, path, inflate="maybe", **params)
        assert "inflate: it should be true or false" in refused.json()["detail"]
        cut = _get(services, path, bodyMax=3, **params).json()
        message = cut["messages"][0] if "messages" in cut else cut
        assert (message["body"], message["bodyTruncated"]) == ('{"a', True)


def test_ipv6_ids_are_found(tmp_path: Path) -> None:
    with (
        running(tmp_path / "store", store_host="[fe80::1]:10911") as services,
        services.client() as client,
    ):
        client.create_topic("six", queues=1)
        (placed,) = client.produce("six", [NewMessage(body="x")]).messages
        assert len(placed.offset_msg_id) == 56
        found = client.message(placed.offset_msg_id)
        assert found.store_host == "[fe80:0:0:0:0:0:0:1]:10911"
        assert client.message(placed.offset_msg_id.lower()).offset_msg_id == found.offset_msg_id
        other = "20010DB8" + placed.offset_msg_id[8:]
        with pytest.raises(ProblemError) as caught:
            client.message(other)
        assert caught.value.type == "message-unknown"


def _damaged(root: Path, at: int) -> dict[str, Any]:
    """Reply for a message with one byte changed on the disk."""
    with open_store(root) as store:
        store.create_topic("T", queues=1)
        placed = put_message(store, message(store, 0))
    segment = StorePaths(root).commit_log / segment_name(0)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(b"!")
    with query(root) as find, Client(find.url, find.url) as client:
        with pytest.raises(ProblemError) as caught:
            client.message(placed.offset_message_id)
        assert caught.value.problem["physicalOffset"] == placed.physical_offset
        return caught.value.problem


def test_damaged_message_says_what_is_known_of_it(tmp_path: Path) -> None:
    problem = _damaged(tmp_path / "store", BODY_AT)
    assert problem["type"] == "urn:mqstore:problem:message-damaged"
    assert problem["defect"] == "body crc mismatch"
    known = problem["known"]
    assert (known["topic"], known["queueOffset"], known["keys"]) == ("T", 0, ["k0"])


def test_message_that_may_be_another_says_which_bytes_changed(tmp_path: Path) -> None:
    problem = _damaged(tmp_path / "store", FLAG_AT)
    assert problem["type"] == "urn:mqstore:problem:message-suspect"
    assert problem["damagedFrom"] <= FLAG_AT < problem["damagedTo"] <= FLAG_AT + 4
    assert problem["known"]["topic"] == "T"


def test_messages_beside_a_lost_page_are_served_and_say_what_vouches_for_them(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.create_topic("T", queues=1)
        placed = [put_message(store, message(store, number)) for number in range(100)]
    with (StorePaths(root).commit_log / segment_name(0)).open("r+b") as file:
        file.seek(4096)
        file.write(bytes(4096))
    with query(root) as find, Client(find.url, find.url) as client:
        whole = client.message(placed[0].offset_message_id)
        assert (whole.checked_by, whole.checksum.blocks) == ("record", "damaged")
        assert client.trace(placed[0].offset_message_id).trace.copies[0].checked_by == "record"
        pull = client.pull("T", 0, 0, max_messages=100)
        assert len(pull.messages) + len(pull.unreadable) == 100
        assert {each.checked_by for each in pull.messages} == {"record"}
        answer = httpx.get(
            f"{find.url}/v1/topics/T/queues/0/messages?offset=0&max=100",
            headers={"accept": "application/x-rocketmq-records"},
        )
        marked = answer.headers["x-mqstore-self-checked"]
        assert int(marked) == int(answer.headers["x-mqstore-messages"]) == len(pull.messages)


def test_message_that_a_recovery_found_lost_says_what_it_was_and_pulls_pass_it(
    tmp_path: Path,
) -> None:
    store, unflushed = tmp_path / "store", {"flush_interval_commit_log": 600_000}
    with writer(store, **unflushed) as first, Client(first.url) as client:
        client.create_topic("T", queues=1)
        client.produce("T", [NewMessage(body="0")], durability="sync")
        placed = [client.produce("T", [NewMessage(body=str(n))]).messages[0] for n in (1, 2, 3)]
        first.kill()
    lost = placed[1]
    with (StorePaths(store).commit_log / segment_name(0)).open("r+b") as file:
        file.seek(lost.physical_offset)
        file.write(bytes(lost.size))
    with writer(store) as second, query(store) as find, Client(second.url, find.url) as client:
        await_ready(client, Target.QUERY)
        with pytest.raises(ProblemError) as caught:
            client.message(lost.offset_msg_id)
        problem = caught.value.problem
        assert (caught.value.status, caught.value.type) == (410, "message-lost")
        assert (problem["topic"], problem["queueId"], problem["queueOffset"]) == ("T", 0, 2)
        assert [each.body for each in client.pull("T", 0).messages] == ["0", "1", "3"]


def test_topic_is_read_by_time_in_both_orders_over_its_queues(client: Client) -> None:
    client.create_topic("by-time", queues=3)
    placed = [
        client.produce("by-time", [NewMessage(body=str(n), queue_id=n % 3)]).messages[0]
        for n in range(10)
    ]
    newest = client.messages_by_time("by-time")
    assert [each.body for each in newest.messages] == [str(n) for n in reversed(range(10))]
    assert (newest.complete, newest.next, newest.scanned.candidates) == (True, None, 10)
    first = client.messages_by_time("by-time", order="oldest", limit=4)
    assert (first.complete, len(first.messages)) == (False, 4)
    rest = client.messages_by_time("by-time", order="oldest", cursor=first.next)
    bodies = [each.body for each in first.messages + rest.messages]
    assert (bodies, rest.complete) == ([str(n) for n in range(10)], True)
    at = placed[5].store_timestamp
    around = client.messages_by_time("by-time", from_ms=at, to_ms=at).messages
    assert "5" in [each.body for each in around]
    assert {each.store_timestamp for each in around} == {at}


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=30))])
def test_times_of_requests_may_be_written_in_rfc_3339(
    services: Run, client: Client, topic: str, zone: timezone
) -> None:
    (placed,) = client.produce(topic, [NewMessage(body="x", keys=("k",))]).messages
    at_ms = placed.store_timestamp
    at = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).astimezone(zone)
    times = {"from": at.isoformat(), "to": at.isoformat()}
    for chosen in (times, {**times, "key": "k"}):
        found = _get(services, f"/v1/topics/{topic}/messages", **chosen).json()
        assert [each["body"] for each in found["messages"]] == ["x"]
        assert found["scanned"]["from"] == found["scanned"]["to"] == at_ms
    unescaped = f"/v1/topics/{topic}/queues/{placed.queue_id}/offset?timestamp={at.isoformat()}"
    offset = httpx.get(services.query_url + unescaped.replace("+", " ")).json()
    assert (offset["timestamp"], offset["offset"]) == (at_ms, placed.queue_offset)
    reset = {"topic": topic, "to": "timestamp", "timestamp": at.isoformat(), "dryRun": True}
    url = f"{services.writer_url}/v1/groups/by-time/offsets:reset"
    changes = httpx.post(url, json=reset).json()["queues"]
    assert placed.queue_offset in [each["after"] for each in changes]


def test_delayed_message_is_found_by_its_real_topic_on_request(client: Client, topic: str) -> None:
    client.produce(topic, [NewMessage(body="late", keys=("k",), delay_level=18)])
    client.produce(topic, [NewMessage(body="now", keys=("k",))])
    assert [each.body for each in client.messages_by_key(topic, "k").messages] == ["now"]
    assert [each.body for each in client.messages_by_time(topic).messages] == ["now"]
    for found in (
        client.messages_by_key(topic, "k", include=("delayed",)),
        client.messages_by_time(topic, include=("delayed", "half")),
    ):
        assert [each.body for each in found.messages] == ["now", "late"]
        assert found.messages[1].properties["REAL_TOPIC"] == topic


@pytest.mark.parametrize(
    "params",
    [
        {"order": "random"},
        {"order": "oldest", "key": "k"},
        {"include": "all"},
        {"include": ""},
        {"from": 946_684_800_002, "to": 946_684_800_001},
        {"from": -1},
        {"from": "2026-11-27T12:00:00"},
        {"limit": 0},
        {"limit": 1001},
        {"key": ""},
        {"unknown": 1},
    ],
)
def test_time_query_that_makes_no_sense_is_400(
    services: Run, topic: str, params: dict[str, Any]
) -> None:
    response = _get(services, f"/v1/topics/{topic}/messages", **params)
    assert response.status_code == 400
    assert response.json()["type"] == "urn:mqstore:problem:bad-parameter"


def test_changed_cursor_of_a_time_query_is_refused(
    services: Run, client: Client, topic: str
) -> None:
    client.produce(topic, [NewMessage(), NewMessage()])
    cursor = client.messages_by_time(topic, limit=1).next
    assert cursor is not None
    for wrong in (cursor[:-1] + ("A" if cursor[-1] != "A" else "B"), "", "é", "A" * 200):
        response = _get(services, f"/v1/topics/{topic}/messages", cursor=wrong)
        assert response.json()["type"] == "urn:mqstore:problem:bad-cursor", wrong
    other = _get(services, f"/v1/topics/{topic}/messages", cursor=cursor, order="oldest")
    assert other.json()["type"] == "urn:mqstore:problem:bad-cursor"
