"""Transactions over store-writer itself: real processes, with and without kills."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client
from mqstore.storage.layout import HALF_TOPIC, TRANSACTION_GROUP
from tests.long_runs import few_first
from tests.services.service_processes import Process, query, writer
from tests.services.shard_processes import cluster

GROUP = "billing"
TOKENS = {role: f"{role}-token-0123456789" for role in ("admin", "produce", "consume", "system")}
SOON = {"transaction_time_out": 0, "transaction_check_interval": 1_000}
DUE_S = 20
"""Longer than any check takes to become due; a request for it returns at once then."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store") / "store"


@pytest.fixture(scope="module")
def one(store: Path) -> Iterator[Process]:
    with writer(store, **SOON) as process, Client(process.url) as client:
        client.create_topic("orders")
        yield process


@pytest.fixture(scope="module")
def reader(store: Path, one: Process) -> Iterator[Client]:
    with query(store) as process, Client(one.url, process.url) as client:
        yield client


def post(url: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/transactions{path}", json=body, headers=headers, timeout=60)


def spec(*bodies: str, group: str = GROUP, topic: str = "orders", **more: Any) -> dict[str, Any]:
    messages = [{"body": body} for body in bodies]
    return {"producerGroup": group, "topic": topic, "messages": messages, **more}


def begin(url: str, *bodies: str, **more: Any) -> str:
    answer = post(url, "", spec(*bodies, **more))
    assert answer.status_code == 201, answer.text
    assert answer.json()["state"] == "pending"
    return str(answer.json()["transactionId"])


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["type"]).rpartition(":")[2]


def listed(url: str, **params: Any) -> list[str]:
    answer = httpx.get(f"{url}/v1/transactions", params=params, timeout=60).json()
    assert (answer["complete"], answer["missing"]) == (True, [])
    return [each["transactionId"] for each in answer["transactions"]]


def bodies_in(client: Client, topic: str = "orders") -> Counter[str]:
    found: Counter[str] = Counter()
    for queue in client.queues(topic).queues:
        offset = 0
        while (page := client.pull(topic, queue.queue_id, offset)).messages:
            found.update(each.body or "" for each in page.messages)
            offset = page.next
    return found


def test_messages_are_seen_at_the_commit_and_never_after_a_rollback(
    one: Process, reader: Client
) -> None:
    reader.create_topic("seen")
    kept, dropped = begin(one.url, "a", "b", topic="seen"), begin(one.url, "c", topic="seen")
    assert not bodies_in(reader, "seen")
    committed = post(one.url, f"/{kept}:commit", {"reason": "paid"})
    assert (committed.status_code, committed.json()["state"]) == (200, "committed")
    assert bodies_in(reader, "seen") == {"a": 1, "b": 1}
    assert post(one.url, f"/{dropped}:rollback").json()["state"] == "rolled-back"
    assert bodies_in(reader, "seen") == {"a": 1, "b": 1}
    assert post(one.url, f"/{kept}:commit").json() == committed.json()
    contrary = post(one.url, f"/{kept}:rollback")
    assert problem(contrary) == (409, "transaction-decided")
    decided = {name: contrary.json()[name] for name in ("decision", "decidedAt", "why")}
    at = committed.json()["decidedAt"]
    assert decided == {"decision": "commit", "decidedAt": at, "why": "paid"}


def test_a_begin_under_an_idempotency_key_is_one_transaction(one: Process) -> None:
    keyed = {"idempotency-key": '"order-1"'}
    first = post(one.url, "", spec("a", "b"), **keyed)
    assert (first.status_code, first.json()["transactionId"]) == (201, "0-order-1~0")
    assert post(one.url, "", spec("a", "b"), **keyed).json() == first.json()
    for other in (spec("a", "x"), spec("a", "b", "c"), spec("a", "b", group="shipping")):
        assert problem(post(one.url, "", other, **keyed)) == (409, "unique-key-taken")
    assert post(one.url, "/0-order-1~0:commit").json()["messages"] == 2
    assert post(one.url, "", spec("a", "b"), **keyed).json()["state"] == "committed"


def test_transactions_are_listed_shown_and_resolved_by_hand(one: Process) -> None:
    ids = [begin(one.url, body, group="listed") for body in "abc"]
    assert listed(one.url, group="listed") == ids
    assert listed(one.url, group="listed", olderThan=3_600) == []
    page: dict[str, Any] = {"group": "listed", "limit": 2}
    first = httpx.get(f"{one.url}/v1/transactions", params=page).json()
    assert [each["transactionId"] for each in first["transactions"]] == ids[:2]
    assert listed(one.url, cursor=first["next"], **page) == ids[2:]
    other = httpx.get(f"{one.url}/v1/transactions", params={"cursor": first["next"]})
    assert problem(other) == (400, "bad-cursor")
    resolved = post(one.url, f"/{ids[0]}:resolve", {"decision": "rollback", "reason": "by hand"})
    assert (resolved.json()["state"], resolved.json()["why"]) == ("rolled-back", "by hand")
    assert httpx.get(f"{one.url}/v1/transactions/{ids[0]}").json() == resolved.json()
    assert listed(one.url, group="listed", state="rolled-back") == ids[:1]
    for each in ids[1:]:
        post(one.url, f"/{each}:rollback")


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/0-unknown:commit", None, (404, "transaction-unknown")),
        ("/7-other:commit", None, (404, "transaction-unknown")),
        ("/nothing:rollback", None, (404, "transaction-unknown")),
        (f"/0-{'k' * 300}:commit", None, (400, "bad-parameter")),
        ("/0-a:commit?why=paid", None, (400, "bad-parameter")),
        ("", spec("a", topic="none"), (404, "topic-unknown")),
        ("", spec("a", topic="SCHEDULE_TOPIC_XXXX"), (422, "topic-invalid")),
        ("", spec("a", group="no/group"), (422, "group-invalid")),
        ("", spec(""), (422, "message-invalid")),
        ("", spec("a", shard=7), (422, "body-invalid")),
        ("", spec(), (422, "body-invalid")),
        ("", spec("a", delayLevel=1), (422, "body-invalid")),
    ],
)
def test_what_cannot_be_is_named(one: Process, path: str, body: Any, kind: tuple[int, str]) -> None:
    assert problem(post(one.url, path, body)) == kind


def whole(process: Process, path: str, body: bytes, key: str, times: int) -> list[tuple[int, Any]]:
    """Answers to one request, sent so often on one connection and in one piece each: the plain form
    for which a hot route has a quick way."""
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)
    lines = [
        f"POST /v1/transactions{path} HTTP/1.1",
        f"host: 127.0.0.1:{process.port}",
        "content-type: application/json",
        f"idempotency-key: {key}",
        f"content-length: {len(body)}",
    ]
    request = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    connection.connect()
    assert connection.sock is not None
    found = []
    for _ in range(times):
        connection.sock.sendall(request)
        answer = http.client.HTTPResponse(connection.sock)
        answer.begin()
        found.append((answer.status, json.loads(answer.read())))
    connection.close()
    return found


def without_id(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "requestId"}


def test_plain_requests_are_answered_as_all_others(one: Process) -> None:
    keyed = {"idempotency-key": "plain"}
    for path, body in (
        ("", spec("a", "b")),
        ("", spec("a", "c")),
        ("", spec("a", topic="none")),
        ("", {"messages": 1}),
        ("/0-plain~0:commit", {"reason": "paid"}),
        ("/0-plain~0:commit", None),
        ("/0-plain~0:rollback", None),
        ("/0-none:rollback", {}),
        ("", spec("a", "b")),
    ):
        content = b"" if body is None else json.dumps(body).encode()
        answers = whole(one, path, content, "plain", times=3)
        general = post(one.url, path, body, **keyed)
        expected = general.status_code, without_id(general.json())
        assert [(status, without_id(answer)) for status, answer in answers] == [expected] * 3


def lease(url: str, **terms: Any) -> list[dict[str, Any]]:
    answer = post(url, ":lease-checks", terms)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["checks"]
    return found


def test_a_due_check_is_leased_once_and_counts_when_it_is_reported(one: Process) -> None:
    transaction = begin(one.url, "a", group="checked")
    (leased,) = lease(one.url, group="checked", wait=DUE_S, leaseSeconds=3_600)
    assert leased["transaction"]["transactionId"] == transaction
    assert leased["transaction"]["checksSent"] == 0
    assert lease(one.url, group="checked") == []
    assert post(one.url, ":report-checks", {"released": [transaction]}).json() == {"counted": []}
    (again,) = lease(one.url, group="checked", wait=DUE_S)
    assert again == leased
    sent = [{"transactionId": transaction, "by": "one", "answer": "unknown"}]
    assert post(one.url, ":report-checks", {"checks": sent}).json() == {"counted": [transaction]}
    (polled,) = lease(one.url, group="checked", wait=DUE_S, by="poll")
    assert polled["transaction"]["checksSent"] == 2
    assert [(each["by"], each["answer"]) for each in polled["transaction"]["checks"]] == [
        *(("one", "unknown"), ("poll", None)),
    ]
    assert post(one.url, f"/{transaction}:commit").status_code == 200
    assert post(one.url, ":report-checks", {"checks": sent}).json() == {"counted": []}
    unknown = post(one.url, ":report-checks", {"released": ["9-a"]})
    assert problem(unknown) == (404, "transaction-unknown")


def test_registered_producers_come_with_the_checks_of_their_group(one: Process) -> None:
    transaction = begin(one.url, "a", group="called")
    waits = {"registered": True, "group": "called"}
    assert lease(one.url, **waits) == []
    at = f"{one.url}/v1/internal/producers/called/one"
    target = {"url": "https://a.example/", "address": "203.0.113.7", "host": "a.example"}
    target["secret"] = "s" * 32
    made = httpx.put(at, json=target)
    assert (made.status_code, made.json()["failures"]) == (201, 0)
    assert "s" * 32 not in made.text
    (leased,) = lease(one.url, wait=DUE_S, **waits)
    assert leased["transaction"]["transactionId"] == transaction
    assert leased["producers"] == [{"name": "one", **target}]
    failed = {"group": "called", "name": "one", "failure": "no answer"}
    report = {"released": [transaction], "producers": [failed]}
    assert post(one.url, ":report-checks", report).status_code == 200
    shown = httpx.get(f"{one.url}/v1/internal/producers", params={"group": "called"}).json()
    (producer,) = shown["producers"]
    assert (producer["failures"], producer["detail"]) == (1, "no answer")
    assert "secret" not in producer
    (rested,) = lease(one.url, wait=DUE_S, **waits)
    assert rested["producers"] == leased["producers"]
    post(one.url, f"/{transaction}:rollback")
    assert httpx.delete(at).status_code == 204
    assert problem(httpx.delete(at)) == (404, "producer-unknown")


def test_roles(tmp_path: Path) -> None:
    settings = {f"token_{role}": token for role, token in TOKENS.items()}
    with writer(tmp_path / "store", **settings) as one:
        with Client(one.url, token=TOKENS["admin"]) as client:
            client.create_topic("orders")

        def allowed(method: str, path: str, body: Any = None) -> set[str]:
            found = set()
            for role, token in TOKENS.items():
                headers = {"authorization": f"Bearer {token}"}
                url = f"{one.url}/v1/{path}"
                status = httpx.request(method, url, json=body, headers=headers).status_code
                if status != 403:
                    found.add(role)
            return found

        producers, readers = {"produce", "admin", "system"}, {"consume", "admin", "system"}
        resolution = {"decision": "commit", "reason": "by hand"}
        assert allowed("POST", "transactions", spec("a")) == producers
        assert allowed("POST", "transactions/0-a:commit") == producers
        assert allowed("POST", "transactions/0-a:rollback") == producers
        assert allowed("POST", "transactions/0-a:resolve", resolution) == {"admin", "system"}
        assert allowed("GET", "transactions") == readers
        assert allowed("GET", "transactions/0-a") == readers
        for path in ("transactions:lease-checks", "transactions:report-checks"):
            assert allowed("POST", path, {}) == {"system"}
        target = {"url": "https://a/", "address": "203.0.113.7", "host": "a", "secret": "s" * 32}
        assert allowed("PUT", "internal/producers/g/one", target) == {"system"}
        assert allowed("GET", "internal/producers") == {"system"}
        assert allowed("DELETE", "internal/producers/g/one") == {"system"}


@pytest.mark.parametrize("flush_disk_type", few_first(["ASYNC_FLUSH", "SYNC_FLUSH"]))
def test_what_is_pending_and_decided_outlives_a_kill(tmp_path: Path, flush_disk_type: str) -> None:
    settings = {"flush_disk_type": flush_disk_type}
    with writer(tmp_path / "store", **settings) as first:
        with Client(first.url) as client:
            client.create_topic("orders")
        decided, pending = begin(first.url, "a"), begin(first.url, "b", "c")
        post(first.url, f"/{decided}:commit")
        first.kill()
    with writer(tmp_path / "store", **settings) as second:
        assert listed(second.url) == [pending]
        assert post(second.url, f"/{decided}:commit").json()["state"] == "committed"
        assert post(second.url, f"/{pending}:commit").json()["state"] == "committed"
        second.process.terminate()
        assert second.ended()[0] == 0
    with (
        writer(tmp_path / "store") as third,
        query(tmp_path / "store") as reads,
        Client(third.url, reads.url) as client,
    ):
        assert bodies_in(client) == {"a": 1, "b": 1, "c": 1}
        saved = client.offsets(TRANSACTION_GROUP, topic=HALF_TOPIC).offsets
        ends = client.queues(HALF_TOPIC).queues
        assert [each.committed for each in saved] == [each.max_offset for each in ends]


class Producers:
    """Threads that begin and decide until they are stopped, over every kill of store-writer."""

    def __init__(self, count: int) -> None:
        self.url = ""
        self.committed: set[str] = set()
        self.rolled_back: set[str] = set()
        self.decided = threading.Semaphore(0)
        self.failures: list[BaseException] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(count)
        ]

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        self._stopping.set()
        for each in self._threads:
            each.join()
        assert not self.failures, self.failures

    def await_decisions(self, count: int) -> None:
        for _ in range(count):
            assert self.decided.acquire(timeout=60), self.failures

    def _run(self, number: int) -> None:
        try:
            with httpx.Client(timeout=60) as client:
                turn = 0
                while not self._stopping.is_set():
                    self._live(client, f"{number}-{turn}", commits=turn % 4 != 3)
                    turn += 1
        except BaseException as error:
            self.failures.append(error)

    def _live(self, client: httpx.Client, name: str, *, commits: bool) -> None:
        bodies = [f"{name}-{each}" for each in range(1 + len(name) % 2)]
        begun = self._post(client, "", spec(*bodies), {"idempotency-key": name})
        end = "commit" if commits else "rollback"
        ended = self._post(client, f"/{begun['transactionId']}:{end}", None, {})
        assert ended["messages"] == len(bodies)
        (self.committed if commits else self.rolled_back).update(bodies)
        self.decided.release()

    def _post(
        self, client: httpx.Client, path: str, body: Any, headers: dict[str, str]
    ) -> dict[str, Any]:
        """Until it is answered."""
        while True:
            try:
                url = f"{self.url}/v1/transactions{path}"
                answer = client.post(url, json=body, headers=headers)
            except httpx.TransportError:
                self._stopping.wait(0.02)
                continue
            if answer.status_code == 503:
                self._stopping.wait(0.02)
                continue
            assert answer.is_success, answer.text
            found: dict[str, Any] = answer.json()
            return found


def live_through_kills(root: Path, kills: int, producers: int) -> None:
    settings: dict[str, Any] = {"transaction_time_out": 3_600_000}
    workers = Producers(producers)
    for kill in range(kills + 1):
        with writer(root / "store", **settings) as process:
            workers.url = process.url
            if kill == 0:
                with Client(process.url) as client:
                    client.create_topic("orders")
                workers.start()
            workers.await_decisions(5 * producers)
            if kill < kills:
                process.kill()
                continue
            workers.stop()
            assert listed(process.url) == []
            with query(root / "store") as reads, Client(process.url, reads.url) as client:
                assert bodies_in(client) == Counter(workers.committed)
    assert len(workers.committed) > kills * producers


@pytest.mark.slow
def test_over_kills_each_committed_message_is_there_once(tmp_path: Path) -> None:
    live_through_kills(tmp_path, kills=3, producers=8)


@pytest.mark.nightly
def test_over_many_kills_each_committed_message_is_there_once(tmp_path: Path) -> None:
    live_through_kills(tmp_path, kills=20, producers=24)


@pytest.mark.slow
@pytest.mark.xdist_group("shards")
def test_a_transaction_of_another_shard_is_reached_through_any(tmp_path: Path) -> None:
    with cluster(tmp_path) as shards:
        with shards.client(0) as client:
            client.create_topic("orders")
        urls = [each.writer.url for each in shards.shards]
        ids = [begin(url, "a", shard=shard) for url in urls for shard in (0, 1)]
        assert [each.partition("-")[0] for each in ids] == ["0", "1", "0", "1"]
        for url in urls:
            keyed = {post(url, "", spec("k"), **{"idempotency-key": f"k{n}"}).text for n in "12345"}
            assert {each[18] for each in keyed} == {"0", "1"}, keyed
        assert len(listed(urls[0])) == 9
        assert listed(urls[0]) == listed(urls[1])
        assert set(listed(urls[0], shard=1)) == {e for e in listed(urls[1]) if e[0] == "1"}
        first = httpx.get(f"{urls[0]}/v1/transactions", params={"limit": 5}).json()
        rest = listed(urls[1], limit=5, cursor=first["next"])
        assert [each["transactionId"] for each in first["transactions"]] + rest == listed(urls[0])
        for url, transaction in zip([*urls, *reversed(urls)], ids, strict=True):
            shown = httpx.get(f"{url}/v1/transactions/{transaction}").json()
            assert shown["transactionId"] == transaction
            assert post(url, f"/{transaction}:commit", {"reason": "paid"}).json()["why"] == "paid"
        resolution = {"decision": "commit", "reason": "paid"}
        for url in urls:
            assert post(url, f"/{ids[0]}:resolve", resolution).json()["state"] == "committed"
        headers = {"x-mqstore-forwarded": "0"}
        misled = post(urls[0], f"/{ids[1]}:commit", **headers)
        assert problem(misled) == (421, "wrong-shard")
        assert problem(post(urls[0], "", spec("a", shard=1), **headers)) == (421, "wrong-shard")
        shards.shards[1].writer.kill()
        answer = httpx.get(f"{urls[0]}/v1/transactions").json()
        assert (answer["complete"], answer["missing"]) == (False, [1])
        assert problem(post(urls[0], f"/{ids[1]}:commit")) == (503, "shard-unreachable")
