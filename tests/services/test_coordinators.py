"""Several coordinators of one store, and one of several stores: real processes."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.service.forwarded import FORWARDED
from tests.services.cut_path import path_to
from tests.services.service_processes import Process
from tests.services.shard_processes import write_list
from tests.services.transaction_shard import Shard, begin, end, shard_at


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    with shard_at(tmp_path_factory.mktemp("shard")) as found:
        yield found


def leader(process: Process) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{process.url}/v1/leader", timeout=60).json()
    return found


def problem(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).rpartition(":")[2]


def test_a_standby_passes_everything_on_to_the_leader(shard: Shard) -> None:
    with shard.coordinator() as one, shard.coordinator() as two:
        assert (leader(one)["leading"], leader(two)["leading"]) == (True, False)
        assert leader(two)["url"] == one.url
        transaction = begin(two, "a")
        listed = httpx.get(f"{two.url}/v1/transactions?limit=5", timeout=60).json()
        assert [each["transactionId"] for each in listed["transactions"]] == [transaction]
        asked = {"producerGroup": "billing", "wait": 20}
        taken = httpx.post(f"{two.url}/v1/checks", json=asked, timeout=60).json()
        assert [each["transactionId"] for each in taken["transactions"]] == [transaction]
        assert end(two, transaction, "commit", reason="paid").json()["why"] == "paid"
        refused = end(two, transaction, "rollback")
        assert (refused.status_code, problem(refused)) == (409, "transaction-decided")
        wrong = httpx.post(f"{two.url}/v1/transactions", json={"topic": 1}, timeout=60)
        assert wrong.status_code == 422
    assert shard.bodies().count("a") == 1


def test_what_was_passed_on_is_not_passed_on_again(shard: Shard) -> None:
    with shard.coordinator(), shard.coordinator() as two:
        headers = {FORWARDED: "http://127.0.0.1:1"}
        answer = httpx.get(f"{two.url}/v1/transactions", headers=headers, timeout=60)
        assert (answer.status_code, problem(answer)) == (503, "coordinator-not-ready")
        assert answer.headers["retry-after"] == "1"


def test_a_token_counts_at_the_standby_and_at_the_leader(shard: Shard) -> None:
    tokens = {"token_system": "s" * 32, "token_consume": "c" * 32}
    with shard.coordinator(**tokens) as one, shard.coordinator(**tokens) as two:
        spec = {"producerGroup": "g", "topic": "orders", "messages": [{}]}
        for process in (one, two):
            given = {"authorization": "Bearer " + "c" * 32}
            url = f"{process.url}/v1/transactions"
            assert httpx.get(url, timeout=60).status_code == 401
            assert httpx.get(url, headers=given, timeout=60).status_code == 200
            assert httpx.post(url, headers=given, json=spec, timeout=60).status_code == 403


@dataclass
class Load:
    """Producers that ask two coordinators in turn, again and again until they are answered."""

    urls: list[str]
    committed: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def produce(self, name: str) -> None:
        with httpx.Client(timeout=60) as http:
            for number in range(1_000):
                if self.ended.is_set():
                    return
                body = f"{name}-{number}"
                message = {"body": body, "uniqKey": body}
                spec = {"producerGroup": "billing", "topic": "orders", "messages": [message]}
                begun = self._until_done(http, "/v1/transactions", spec)
                path = f"/v1/transactions/{begun['transactionId']}"
                how = "rollback" if number % 3 == 0 else "commit"
                self._until_done(http, f"{path}:{how}", None)
                if how == "commit":
                    self.committed.append(body)
                if len(self.committed) >= 12:
                    self.enough.set()

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


def test_a_leader_killed_under_load_loses_nothing_and_doubles_nothing(shard: Shard) -> None:
    with shard.coordinator() as one, shard.coordinator() as two:
        load = Load([one.url, two.url])
        producers = [
            threading.Thread(target=load.produce, args=(f"p{n}",), daemon=True) for n in range(4)
        ]
        for each in producers:
            each.start()
        assert load.enough.wait(60)
        one.kill()
        before = len(load.committed)
        while len(load.committed) < before + 12:
            assert two.process.poll() is None
            load.enough.clear()
            load.enough.wait(60)
        load.ended.set()
        for each in producers:
            each.join(60)
        assert leader(two)["leading"]
        assert not httpx.get(f"{two.url}/v1/transactions", timeout=60).json()["transactions"]
        assert [body for body in shard.bodies() if body[0] == "p"] == sorted(load.committed)


@pytest.mark.slow
def test_a_leader_that_cannot_reach_the_store_lets_another_one_lead(shard: Shard) -> None:
    with path_to(shard.urls["writer_url"]) as path, contextlib.ExitStack() as stack:
        cut_off: dict[str, Any] = {"writer_url": path.url, "lead_patience_s": 2}
        one = stack.enter_context(shard.coordinator(**cut_off))
        two = stack.enter_context(shard.coordinator())
        transaction = begin(one, "cut off")
        path.cut()
        assert end(one, transaction, "commit").status_code == 503
        while (answer := end(one, transaction, "commit")).status_code != 200:
            assert answer.status_code == 503
        assert leader(two)["leading"]
        assert leader(one) == {"url": two.url, "leading": False, "shards": []}
        while (ready := httpx.get(f"{one.url}/healthz/ready", timeout=60)).status_code != 200:
            assert ready.status_code == 503, "it is a door to the other one, once that is ready"
        metrics = httpx.get(f"{one.url}/metrics", timeout=60).text
        assert "mqstore_coordinator_lead_given_up_total 1.0" in metrics
    assert "cut off" in shard.bodies()


@pytest.mark.slow
def test_a_leader_that_stood_still_is_fenced_off(shard: Shard) -> None:
    """Each has a lock of its own, as on machines that share nothing: only the fence is between."""
    other: dict[str, Any] = {"leader_lock": shard.root / "other-lock"}
    with shard.coordinator() as old:
        transaction = begin(old, "stood still")
        old.process.send_signal(signal.SIGSTOP)
        answers: list[httpx.Response] = []
        asked = threading.Thread(target=lambda: answers.append(end(old, transaction, "commit")))
        asked.start()
        with shard.coordinator(**other) as new:
            assert end(new, transaction, "rollback").json()["state"] == "rolled-back"
            old.process.send_signal(signal.SIGCONT)
            asked.join()
            assert answers[0].status_code in (409, 503)
        while (answer := end(old, transaction, "commit")).status_code == 503:
            assert old.process.poll() is None
        assert (answer.status_code, answer.json()["decision"]) == (409, "rollback")
    assert "stood still" not in shard.bodies()


@pytest.fixture(scope="module")
def two_shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shard, Shard]]:
    root = tmp_path_factory.mktemp("shards")
    with shard_at(root / "0") as one, shard_at(root / "1", shard=1) as two:
        yield one, two


def both(one: Shard, two: Shard) -> dict[str, Any]:
    """Settings of a coordinator that looks after two."""
    path = one.root / "shards.json"
    entries = [
        {
            "shard": number,
            "storeHost": f"127.0.0.{number + 1}:10911",
            "writerUrl": each.urls["writer_url"],
            "queryUrl": each.urls["query_url"],
        }
        for number, each in enumerate((one, two))
    ]
    write_list(path, entries)
    return {"shards_file": path}


@contextlib.contextmanager
def coordinator_of(one: Shard, two: Shard) -> Iterator[Process]:
    """For both, once it is ready for both: it answers as soon as it is for one of them."""
    with one.coordinator(**both(one, two)) as process:
        while not all(each["ready"] for each in leader(process)["shards"]):
            assert process.process.poll() is None
        yield process


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
        for each in found:
            assert end(process, each, "commit").status_code == 200
        assert sorted(one.bodies() + two.bodies()) == ["a", "b", "c", "d"]
        assert len(one.bodies()) == 2


def test_a_begin_that_is_sent_again_finds_its_shard(two_shards: tuple[Shard, Shard]) -> None:
    one, two = two_shards
    with coordinator_of(one, two) as process:
        for key in ("k1", "k2", "k3"):
            spec = {
                "producerGroup": "billing",
                "topic": "orders",
                "messages": [{"body": key, "uniqKey": key}],
            }
            url = f"{process.url}/v1/transactions"
            first, again = (httpx.post(url, json=spec, timeout=60).json() for _ in range(2))
            assert first == again
        chosen = httpx.post(url, json=spec | {"shard": 7}, timeout=60)
        assert chosen.status_code == 422


@pytest.mark.slow
def test_a_shard_that_is_down_stops_no_other(tmp_path: Path) -> None:
    with shard_at(tmp_path / "0") as one, contextlib.ExitStack() as stack:
        two = stack.enter_context(shard_at(tmp_path / "1", shard=1))
        with coordinator_of(one, two) as process:
            there = max(begin(process, "x"), begin(process, "y"))
            stack.close()
            while (answer := end(process, there, "commit")).status_code != 503:
                assert answer.status_code == 200
            while (listed := httpx.get(f"{process.url}/v1/transactions", timeout=60).json())[
                "complete"
            ]:
                assert process.process.poll() is None
            assert listed["missing"] == [1]
            for body in "abc":
                assert end(process, begin(process, body), "commit").status_code == 200
            ready = {each["shard"]: each["ready"] for each in leader(process)["shards"]}
            assert ready == {0: True, 1: False}
