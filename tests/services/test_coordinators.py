"""Several coordinators beside each other, of one store and of several: real processes."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client
from mqstore.service.forwarding import FORWARDED
from tests.services.service_processes import Process
from tests.services.shard_processes import write_list
from tests.services.transaction_shard import Shard, begin, end, shard_at

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    with shard_at(tmp_path_factory.mktemp("shard"), transaction_check_interval=1_000) as found:
        yield found


def problem(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).rpartition(":")[2]


def test_what_one_coordinator_begins_another_one_shows_checks_and_commits(shard: Shard) -> None:
    with shard.coordinator() as one, shard.coordinator() as two:
        transaction = begin(one, "a")
        listed = httpx.get(f"{two.url}/v1/transactions?limit=5", timeout=60).json()
        assert [each["transactionId"] for each in listed["transactions"]] == [transaction]
        wanted = {"producerGroup": "billing", "wait": 20}
        taken = httpx.post(f"{two.url}/v1/checks", json=wanted, timeout=60).json()
        assert [each["transactionId"] for each in taken["transactions"]] == [transaction]
        assert end(two, transaction, "commit", reason="paid").json()["why"] == "paid"
        refused = end(one, transaction, "rollback")
        assert (refused.status_code, problem(refused)) == (409, "transaction-decided")
        for process in (one, two):
            assert httpx.get(f"{process.url}/v1/leader", timeout=60).status_code == 404
    assert shard.bodies().count("a") == 1


def test_a_begin_is_one_transaction_through_any_coordinator(shard: Shard) -> None:
    message = {"body": "b", "uniqKey": "through-any"}
    spec = {"producerGroup": "billing", "topic": "orders", "messages": [message]}
    with shard.coordinator() as one, shard.coordinator() as two:
        begun = [
            httpx.post(f"{each.url}/v1/transactions", json=spec, timeout=60).json()
            for each in (one, two, one)
        ]
        assert begun == [{"transactionId": "0-through-any", "state": "pending"}] * 3
        assert end(two, "0-through-any", "rollback").is_success


def test_without_any_coordinator_the_store_writer_begins_and_decides(shard: Shard) -> None:
    with shard.coordinator() as one:
        before = begin(one, "before")
        one.kill()
    between = begin(shard.writer, "between")
    assert end(shard.writer, before, "commit").json()["state"] == "committed"
    with shard.coordinator() as two:
        assert end(two, between, "commit").json()["state"] == "committed"
    assert [each for each in shard.bodies() if each in ("before", "between")] == [
        "before",
        "between",
    ]


def test_a_token_counts_at_the_coordinator_and_at_the_shard(tmp_path: Path) -> None:
    roles = ("system", "consume", "produce")
    tokens: dict[str, Any] = {f"token_{role}": role[0] * 32 for role in roles}
    with shard_at(tmp_path, token_admin="a" * 32, **tokens) as shard:
        spec = {"producerGroup": "g", "topic": "orders", "messages": [{"body": "x"}]}
        with shard.coordinator(**tokens) as one:
            url = f"{one.url}/v1/transactions"
            found = {
                name: (
                    httpx.get(url, headers=given, timeout=60).status_code,
                    httpx.post(url, headers=given, json=spec, timeout=60).status_code,
                )
                for name, given in (
                    ("none", {}),
                    ("consume", {"authorization": "Bearer " + "c" * 32}),
                    ("produce", {"authorization": "Bearer " + "p" * 32}),
                    ("system", {"authorization": "Bearer " + "s" * 32}),
                )
            }
        assert found == {
            "none": (401, 401),
            "consume": (200, 403),
            "produce": (403, 201),
            "system": (200, 201),
        }


@dataclass
class Load:
    """Producers that use two coordinators in turn, and decide some only when they are checked."""

    urls: list[str]
    committed: list[str] = field(default_factory=list)
    decisions: dict[str, str] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)
    progress: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ended: threading.Event = field(default_factory=threading.Event)
    settled: threading.Event = field(default_factory=threading.Event)

    def produce(self, name: str) -> None:
        with self._failing(), httpx.Client(timeout=60) as http:
            for number in range(10_000):
                if self.ended.is_set():
                    return
                body = f"{name}-{number}"
                self.decisions[f"0-{body}"] = how = "rollback" if number % 3 == 0 else "commit"
                message = {"body": body, "uniqKey": body}
                spec = {"producerGroup": "billing", "topic": "orders", "messages": [message]}
                begun = self._until_done(http, "/v1/transactions", spec)
                if how == "commit":
                    self.committed.append(body)
                if number % 4:
                    self._until_done(http, f"/v1/transactions/{begun['transactionId']}:{how}", None)
                self.progress.release()

    def answer_checks(self) -> None:
        """Decide what the producers left to checks."""
        with self._failing(), httpx.Client(timeout=60) as http:
            while not self.settled.is_set():
                wanted = {"producerGroup": "billing", "wait": 1}
                for each in self._until_done(http, "/v1/checks", wanted)["transactions"]:
                    path = f"/v1/transactions/{each['transactionId']}"
                    self._until_done(http, f"{path}:{self.decisions[each['transactionId']]}", None)

    def await_progress(self, count: int) -> None:
        for _ in range(count):
            assert self.progress.acquire(timeout=PATIENCE_S), self.failures
        assert not self.failures, self.failures

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # reported by the test's own thread
            self.failures.append(error)

    def _until_done(self, http: httpx.Client, path: str, body: Any) -> dict[str, Any]:
        turn = 0
        while True:
            turn += 1
            with contextlib.suppress(httpx.HTTPError):
                answer = http.post(self.urls[turn % len(self.urls)] + path, json=body)
                if answer.is_success:
                    found: dict[str, Any] = answer.json()
                    return found
                assert answer.status_code == 503, answer.text


def test_coordinators_killed_at_random_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    rng = random.Random(20)
    with (
        shard_at(tmp_path, transaction_check_interval=1_000) as shard,
        contextlib.ExitStack() as stack,
    ):
        processes = [stack.enter_context(shard.coordinator()) for _ in range(2)]
        load = Load([each.url for each in processes])
        producers = [
            threading.Thread(target=load.produce, args=(f"p{n}",), daemon=True) for n in range(3)
        ]
        checker = threading.Thread(target=load.answer_checks, daemon=True)
        for thread in (*producers, checker):
            thread.start()
        for _ in range(3):
            load.await_progress(rng.randrange(1, 12))
            victim = rng.randrange(2)
            processes[victim].kill()
            load.await_progress(rng.randrange(1, 6))
            port = processes[victim].port
            processes[victim] = stack.enter_context(shard.coordinator(port=port))
        load.ended.set()
        for each in producers:
            each.join(PATIENCE_S)
        while httpx.get(f"{shard.writer.url}/v1/transactions", timeout=60).json()["transactions"]:
            assert not load.failures, load.failures
        load.settled.set()
        checker.join(PATIENCE_S)
        assert not load.failures, load.failures
        assert shard.bodies() == sorted(load.committed)


@pytest.fixture(scope="module")
def two_shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shard, Shard]]:
    root = tmp_path_factory.mktemp("shards")
    with two_at(root) as found:
        yield found


@contextlib.contextmanager
def two_at(root: Path) -> Iterator[tuple[Shard, Shard]]:
    with shard_at(root / "0") as one, shard_at(root / "1", shard=1) as two:
        yield one, two


def coordinator_of(one: Shard, two: Shard) -> contextlib.AbstractContextManager[Process]:
    """A coordinator of both, once it is ready."""
    entries = [
        {
            "shard": number,
            "storeHost": f"127.0.0.{number + 1}:10911",
            "writerUrl": each.writer.url,
            "queryUrl": each.query.url,
        }
        for number, each in enumerate((one, two))
    ]
    path = one.root / "shards.json"
    write_list(path, entries)
    return one.coordinator(shards_file=path, shard_timeout_s=20)


def refused_cursors(process: Process, cursor: str) -> None:
    """One that was changed, one of another query, and what is none."""
    changed = ("b" if cursor[0] == "a" else "a") + cursor[1:]
    for params in (
        {"cursor": changed},
        {"cursor": cursor, "state": "committed"},
        {"cursor": cursor, "group": "billing"},
        {"cursor": "x"},
        {"cursor": ""},
    ):
        answer = httpx.get(f"{process.url}/v1/transactions", params=params, timeout=60)
        assert (answer.status_code, problem(answer)) == (400, "bad-cursor"), params


def test_a_transaction_lives_on_the_shard_that_its_id_names(
    two_shards: tuple[Shard, Shard],
) -> None:
    one, two = two_shards
    with coordinator_of(one, two) as process:
        found = [begin(process, body) for body in "abcd"]
        assert sorted(each.partition("-")[0] for each in found) == ["0", "0", "1", "1"]
        listed = httpx.get(f"{process.url}/v1/transactions", timeout=60).json()
        assert [each["transactionId"] for each in listed["transactions"]] == found
        assert (listed["complete"], listed["missing"]) == (True, [])
        page = httpx.get(f"{process.url}/v1/transactions?limit=3", timeout=60).json()
        rest = {"cursor": page["next"]}
        page = httpx.get(f"{process.url}/v1/transactions", params=rest, timeout=60).json()
        assert [each["transactionId"] for each in page["transactions"]] == found[3:]
        refused_cursors(process, rest["cursor"])
        wanted = {"producerGroup": "billing", "wait": 20, "max": 10}
        taken: set[str] = set()
        while taken != set(found):
            answer = httpx.post(f"{process.url}/v1/checks", json=wanted, timeout=60).json()
            taken |= {each["transactionId"] for each in answer["transactions"]}
        for each in found:
            assert end(process, each, "commit").status_code == 200
        assert sorted(one.bodies() + two.bodies()) == ["a", "b", "c", "d"]
        assert len(one.bodies()) == 2


def test_a_begin_that_is_sent_again_finds_its_shard(two_shards: tuple[Shard, Shard]) -> None:
    one, two = two_shards
    with coordinator_of(one, two) as process:
        url = f"{process.url}/v1/transactions"
        for key in ("k1", "k2", "k3"):
            message = {"body": key, "uniqKey": key}
            spec = {"producerGroup": "billing", "topic": "orders", "messages": [message]}
            first, again = (httpx.post(url, json=spec, timeout=60).json() for _ in range(2))
            assert first == again
        chosen = httpx.post(url, json=spec | {"shard": 7}, timeout=60)
        assert chosen.status_code == 422


def test_a_shard_answers_for_its_own_transactions_alone_when_it_is_forwarded_to(
    two_shards: tuple[Shard, Shard],
) -> None:
    one, _ = two_shards
    headers = {FORWARDED: "transaction-coordinator"}
    url = f"{one.writer.url}/v1/transactions/1-other:commit"
    assert not httpx.post(url, headers=headers, timeout=60).is_success


@pytest.mark.slow
def test_a_shard_that_is_down_stops_no_other(tmp_path: Path) -> None:
    with two_at(tmp_path) as (one, two), coordinator_of(one, two) as process:
        there = max(begin(process, "x"), begin(process, "y"))
        two.writer.kill()
        answer = end(process, there, "commit")
        assert (answer.status_code, problem(answer)) == (503, "coordinator-not-ready")
        listed = httpx.get(f"{process.url}/v1/transactions", timeout=60).json()
        assert (listed["complete"], listed["missing"]) == (False, [1])
        for body in "abc":
            assert end(process, begin(process, body), "commit").status_code == 200
        ready = httpx.get(f"{process.url}/healthz/ready", timeout=60)
        assert ready.status_code == 200
        assert "shard 1" in ready.json()["detail"]
        two.start_writer()
        while (answer := end(process, there, "commit")).status_code != 200:
            assert answer.status_code == 503
        with Client(coordinator_url=process.url) as client:
            assert client.transactions().complete
