"""Checks for producers that poll, and for producers that are called."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx

from mqstore.client.callbacks import SIGNATURE_HEADER, check_signature
from mqstore.coordinator.shards import BY
from mqstore.service import problems
from mqstore.service.forwarding import FORWARDED
from tests.unit.coordinator.fake_shards import (
    Answer,
    Bench,
    FakeShard,
    Received,
    Replying,
    fakes,
    problem,
    run,
    view,
)

LEASE = "/v1/transactions:lease-checks"
REPORT = "/v1/transactions:report-checks"
SECRET = "s" * 32


def due(*ids: str) -> Replying:
    """A shard with due checks, each leased once."""
    left = list(ids)

    def reply(received: Received) -> Answer:
        taken = left[: received.json["max"]]
        del left[: len(taken)]
        return Answer(200, {"checks": [{"transaction": view(each)} for each in taken]})

    return reply


def take(shards: list[FakeShard], tmp_path: Path, **wanted: Any) -> httpx.Response:
    async def act(bench: Bench) -> httpx.Response:
        return await bench.http.post("/v1/checks", json={"producerGroup": "g"} | wanted)

    return run(shards, tmp_path, act)


def ids(answer: httpx.Response) -> list[str]:
    return sorted(each["transactionId"] for each in answer.json()["transactions"])


def test_checks_of_all_shards_are_taken_up_to_max(tmp_path: Path) -> None:
    with fakes(due("0-a", "0-b"), due("1-a", "1-b")) as shards:
        assert len(ids(take(shards, tmp_path, max=3))) == 3
        assert len(ids(take(shards, tmp_path, max=3))) == 1
        sent = shards[0].received(LEASE)[0]
    assert sent.headers[FORWARDED] == BY
    assert (sent.json["group"], sent.json["by"]) == ("g", "poll")


def test_a_shard_without_an_answer_does_not_hold_up_the_others(tmp_path: Path) -> None:
    refusing = problem(problems.STORE_NOT_READY)
    with fakes(None, due("1-a"), lambda _: refusing, lambda _: problem(problems.NOT_FOUND)) as all4:
        assert ids(take(all4, tmp_path)) == ["1-a"]
        assert ids(take(all4, tmp_path, wait=0.1)) == []


def test_where_no_shard_answers_a_poll_is_503(tmp_path: Path) -> None:
    with fakes(None, lambda _: problem(problems.STORE_NOT_READY)) as shards:
        answer = take(shards, tmp_path, wait=1)
    assert answer.status_code == 503
    assert answer.json()["type"].endswith(":coordinator-not-ready")


def waiting(released: threading.Event, transaction: str) -> Replying:
    """A shard that answers a request with ``wait`` once ``released`` is set."""

    def reply(received: Received) -> Answer:
        if not received.json["wait"]:
            return Answer(200, {"checks": []})
        released.wait(30)
        return Answer(200, {"checks": [{"transaction": view(transaction)}]})

    return reply


def test_a_poll_waits_for_the_first_check_of_any_shard(tmp_path: Path) -> None:
    first, never = threading.Event(), threading.Event()

    async def act(bench: Bench) -> httpx.Response:
        wanted = {"producerGroup": "g", "max": 7, "wait": 20}
        polling = asyncio.ensure_future(bench.http.post("/v1/checks", json=wanted))
        assert not (await shards[1].next()).json["wait"]
        assert (await shards[1].next()).json["wait"]
        assert not polling.done()
        first.set()
        return await polling

    with fakes(waiting(never, "0-a"), waiting(first, "1-a")) as shards:
        try:
            assert ids(run(shards, tmp_path, act)) == ["1-a"]
        finally:
            never.set()
        waits = [each.json for each in shards[0].received(LEASE) if each.json["wait"]]
    assert [each["max"] for each in waits] == [3], "so that both shares are not above max"


def test_a_shutdown_ends_a_poll(tmp_path: Path) -> None:
    never = threading.Event()

    async def act(bench: Bench) -> httpx.Response:
        wanted = {"producerGroup": "g", "wait": 20}
        polling = asyncio.ensure_future(bench.http.post("/v1/checks", json=wanted))
        assert not (await shards[0].next()).json["wait"]
        assert (await shards[0].next()).json["wait"]
        bench.service.interrupt()
        return await polling

    with fakes(waiting(never, "0-a")) as shards:
        try:
            assert ids(run(shards, tmp_path, act)) == []
        finally:
            never.set()


class Producer:
    """A producer that is called, and gives these answers in turn."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.server = FakeShard(self._reply)

    def _reply(self, received: Received) -> Answer:
        header = received.headers[SIGNATURE_HEADER]
        check_signature(
            SECRET, received.body, header, int(header.partition(",")[0].removeprefix("t="))
        )
        return self.answers.pop(0)


class Leasing:
    """A shard whose check is due until it is decided or reported."""

    def __init__(self, *producers: dict[str, str]) -> None:
        self.producers = list(producers)
        self.leased = count()
        self.events: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.ended = threading.Event()
        self.refuses_reports = False

    def reply(self, received: Received) -> Answer:
        if received.target == LEASE:
            if next(self.leased):
                self.ended.wait(30)
                return Answer(200, {"checks": []})
            check = {"transaction": view("0-k:1"), "producers": self.producers}
            return Answer(200, {"checks": [check]})
        self.events.put((received.target, received.json))
        if received.target == REPORT and self.refuses_reports:
            return problem(problems.PROPERTY_INVALID)
        return Answer(200, {"counted": []})


def producer(name: str, port: int | str) -> dict[str, str]:
    return {
        "name": name,
        "url": f"http://127.0.0.1:{port}/checks",
        "address": "127.0.0.1",
        "host": "127.0.0.1",
        "secret": SECRET,
    }


def settle(
    shard: Leasing, tmp_path: Path, events: int, then: Callable[[Bench], None] = lambda _: None
) -> list[tuple[str, Any]]:
    """Requests that the shard received about its one check."""

    async def act(bench: Bench) -> list[tuple[str, Any]]:
        found = [await asyncio.to_thread(shard.events.get, timeout=60) for _ in range(events)]
        then(bench)
        return found

    allowing: dict[str, Any] = {"callback_hosts": "127.0.0.0/8", "callback_http": True}
    ports = ",".join(each["url"].rpartition(":")[2].partition("/")[0] for each in shard.producers)
    with fakes(shard.reply) as shards:
        try:
            return run(
                *(shards, tmp_path, act), started=True, callback_ports=ports or "443", **allowing
            )
        finally:
            shard.ended.set()


def port_of(running: FakeShard) -> int:
    return int(running.url.rpartition(":")[2])


def test_an_answer_is_reported_and_applied(tmp_path: Path) -> None:
    sure = Producer(Answer(200, {"decision": "rollback", "reason": "the books"}))
    with sure.server.running() as server:
        shard = Leasing(producer("down", 1), producer("sure", port_of(server)))

        def counted(bench: Bench) -> None:
            assert bench.service.checker.counts == {"answered": 1}

        report, decision = settle(shard, tmp_path, 2, counted)
        (called,) = sure.server.seen
    assert called.json == view("0-k:1")
    path, body = report
    assert path == REPORT
    assert body["checks"] == [{"transactionId": "0-k:1", "by": "sure", "answer": "rollback"}]
    assert body["released"] == []
    failures = {each["name"]: each["failure"] for each in body["producers"]}
    assert failures["sure"] is None
    assert failures["down"].startswith("it cannot be reached")
    assert decision == ("/v1/transactions/0-k%3A1:rollback", {"reason": "the books"})


def test_an_answer_counts_where_the_report_is_refused(tmp_path: Path) -> None:
    sure = Producer(Answer(200, {"decision": "commit"}))
    with sure.server.running() as server:
        shard = Leasing(producer("sure", port_of(server)))
        shard.refuses_reports = True
        _, decision = settle(shard, tmp_path, 2)
    assert decision == ("/v1/transactions/0-k%3A1:commit", {"reason": "check: sure"})


def test_a_check_without_an_answer_counts_and_decides_nothing(tmp_path: Path) -> None:
    vague = Producer(Answer(200, {"decision": "unknown"}))
    with vague.server.running() as server:
        shard = Leasing(producer("vague", port_of(server)))
        ((_, body),) = settle(shard, tmp_path, 1)
    assert body["checks"] == [{"transactionId": "0-k:1", "by": "vague", "answer": "unknown"}]
    silent = Producer(Answer(500))
    with silent.server.running() as server:
        shard = Leasing(producer("silent", port_of(server)))
        ((_, body),) = settle(shard, tmp_path, 1)
    assert body["checks"] == [{"transactionId": "0-k:1", "by": "silent", "answer": "none"}]
    assert body["producers"][0]["failure"]
    assert shard.events.empty()


def test_a_check_that_reached_no_producer_is_released(tmp_path: Path) -> None:
    shard = Leasing(producer("down", 1), {**producer("not allowed", 1), "address": "10.0.0.1"})
    ((_, body),) = settle(shard, tmp_path, 1)
    assert (body["checks"], body["released"]) == ([], ["0-k:1"])
    assert "callbackHosts does not allow" in body["producers"][1]["failure"]


def test_at_most_three_producers_are_called_for_a_check(tmp_path: Path) -> None:
    shard = Leasing(*(producer(f"down-{number}", 1) for number in range(5)))
    ((_, body),) = settle(shard, tmp_path, 1)
    assert [each["name"] for each in body["producers"]] == ["down-0", "down-1", "down-2"]


def test_checks_are_leased_for_as_long_as_their_calls_may_take(tmp_path: Path) -> None:
    shard = Leasing()
    with fakes(shard.reply) as shards:

        async def act(_: Bench) -> Any:
            return (await shards[0].next()).json

        try:
            wanted = run(shards, tmp_path, act, started=True, callback_timeout_s=20)
        finally:
            shard.ended.set()
    assert wanted["leaseSeconds"] >= 3 * 20
    assert (wanted["registered"], wanted["group"], wanted["by"]) == (True, None, None)
