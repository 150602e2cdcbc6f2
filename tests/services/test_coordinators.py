"""Several coordinators beside each other, of one store and of several: real processes."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, Target
from mqstore.service.forwarding import FORWARDED
from mqstore.service.key_shards import shard_of
from tests.long_runs import few_first
from tests.services.service_processes import Process, service
from tests.services.shard_processes import Cluster, cluster, write_list
from tests.services.transaction_shard import Shard, begin, bodies_of, end, shard_at

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


@pytest.mark.slow
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
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with two_at(tmp_path_factory.mktemp("shards")) as found:
        yield found


@contextlib.contextmanager
def two_at(root: Path) -> Iterator[Cluster]:
    """Two shards that know each other, with topic orders; producers are checked at once."""
    with cluster(root, transaction_time_out=0) as found:
        with found.client(0) as client:
            client.create_topic("orders")
        yield found


def coordinator_of(shards: Cluster) -> contextlib.AbstractContextManager[Process]:
    """A coordinator of all of them, once it is ready."""
    return service(
        Target.WRITER,
        ["-m", "mqstore.coordinator"],
        shards.root / "store-0",
        shards_file=shards.listed,
        shard_timeout_s=20,
    )


def bodies_over(shards: Cluster) -> list[list[str]]:
    """Bodies that a consumer reads of topic orders on each shard, sorted."""
    found = []
    for each in shards.shards:
        with shards.client(each.number, shard=each.number) as client:
            found.append(sorted(bodies_of(client).elements()))
    return found


def key_of(*homes: int) -> str:
    """A key whose shard is ``homes[N]`` among shards 0 to N."""
    wanted = [(home, range(count)) for count, home in enumerate(homes, 1)]
    keys = (f"k{number}" for number in itertools.count())
    return next(
        key for key in keys if all(shard_of(key, numbers) == home for home, numbers in wanted)
    )


def begin_under(process: Process, key: str) -> httpx.Response:
    message = {"body": key, "uniqKey": key}
    spec = {"producerGroup": "billing", "topic": "orders", "messages": [message]}
    return httpx.post(f"{process.url}/v1/transactions", json=spec, timeout=60)


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


def test_a_transaction_lives_on_the_shard_that_its_id_names(shards: Cluster) -> None:
    with coordinator_of(shards) as process:
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
        one, two = bodies_over(shards)
        assert sorted(one + two) == ["a", "b", "c", "d"]
        assert len(one) == 2


@pytest.mark.parametrize("home", few_first([1, 0]))
def test_a_begin_under_a_key_is_one_transaction_through_any_service(
    shards: Cluster, home: int
) -> None:
    key = key_of(0, home)
    with coordinator_of(shards) as process:
        ways = [process, process, *(each.writer for each in shards.shards)]
        begun = [begin_under(each, key).json() for each in ways]
        assert begun == [{"transactionId": f"{home}-{key}", "state": "pending"}] * 4
        assert end(process, f"{home}-{key}", "rollback").is_success
        spec = {"producerGroup": "billing", "topic": "orders", "messages": [{"body": "x"}]}
        chosen = httpx.post(f"{process.url}/v1/transactions", json=spec | {"shard": 7}, timeout=60)
        assert chosen.status_code == 422


def test_a_shard_answers_for_its_own_transactions_alone_when_it_is_forwarded_to(
    shards: Cluster,
) -> None:
    headers = {FORWARDED: "transaction-coordinator"}
    url = f"{shards.shards[0].writer.url}/v1/transactions/1-other:commit"
    assert not httpx.post(url, headers=headers, timeout=60).is_success


@pytest.mark.slow
@pytest.mark.xdist_group("shards")
def test_a_begin_repeated_after_its_key_moved_finds_its_transaction(tmp_path: Path) -> None:
    """The former shard was restarted meanwhile; the producer's first reply was lost."""
    with two_at(tmp_path) as shards, coordinator_of(shards) as process:
        keys, entries = [key_of(0, 1), f"{key_of(0, 1)}~2"], [e.entry() for e in shards.shards]
        write_list(shards.listed, entries, shards=[0])
        shards.await_owners(0)
        before = [begin_under(process, key).json()["transactionId"] for key in keys]
        assert before == [f"0-{key}" for key in keys]
        assert end(process, before[0], "commit").is_success
        write_list(shards.listed, entries)
        for number in (0, 1):
            shards.restart_writer(number)
        shards.await_owners(0, 1)
        for way in (process, *(each.writer for each in shards.shards)):
            again = [begin_under(way, key).json() for key in keys]
            assert [each["transactionId"] for each in again] == before
            assert [each["state"] for each in again] == ["committed", "pending"]
            new = begin_under(way, f"{keys[0]}~new").json()["transactionId"]
            assert new == f"1-{keys[0]}~new"
        assert end(process, before[1], "commit").is_success
        assert bodies_over(shards) == [sorted(keys), []]


@pytest.mark.slow
@pytest.mark.xdist_group("shards")
def test_a_shard_that_is_down_stops_no_other(tmp_path: Path) -> None:
    with two_at(tmp_path) as shards, coordinator_of(shards) as process:
        there = max(begin(process, "x"), begin(process, "y"))
        shards.shards[1].writer.kill()
        answer = end(process, there, "commit")
        assert (answer.status_code, problem(answer)) == (503, "coordinator-not-ready")
        for _ in range(2):
            answer = begin_under(process, key_of(0, 1))
            assert (answer.status_code, problem(answer)) == (503, "shard-unreachable")
            assert (answer.json()["shard"], answer.json()["sent"]) == (1, False)
            assert begin_under(process, key_of(0, 0)).status_code == 201
        listed = httpx.get(f"{process.url}/v1/transactions", timeout=60).json()
        assert (listed["complete"], listed["missing"]) == (False, [1])
        for body in "abc":
            assert end(process, begin(process, body), "commit").status_code == 200
        ready = httpx.get(f"{process.url}/healthz/ready", timeout=60)
        assert ready.status_code == 200
        assert "shard 1" in ready.json()["detail"]
        shards.restart_writer(1)
        while (answer := end(process, there, "commit")).status_code != 200:
            assert answer.status_code == 503
        assert begin_under(process, key_of(0, 1)).json()["transactionId"] == f"1-{key_of(0, 1)}"
        with Client(coordinator_url=process.url) as client:
            assert client.transactions().complete
