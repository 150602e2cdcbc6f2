"""A store-writer that is stopped (SIGSTOP) holds its store: query says so, or refuses reads that
another replica answers better."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from mqstore.client import Client, NewMessage
from mqstore.wire.limits import PULL_WAIT_MAX_S
from tests.services.elected_replicas import elected
from tests.services.service_processes import query, writer

Found = TypeVar("Found")
WAIT_S = 60.0
PULL = "/v1/topics/t/queues/0/messages"


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def until(get: Callable[[], Found], good: Callable[[Found], bool]) -> Found:
    deadline = time.monotonic() + WAIT_S
    while not good(found := get()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def status(url: str) -> int:
    return httpx.get(url).status_code


@pytest.mark.slow
def test_reads_beside_a_stopped_writer_say_that_it_is_unresponsive(tmp_path: Path) -> None:
    """Messages of the only copy are served."""
    with writer(tmp_path) as one, query(tmp_path) as two, Client(one.url, two.url) as client:
        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(body="a")])

        def state() -> str:
            return httpx.get(two.url + PULL, params={"offset": 0}).headers["x-mqstore-writer"]

        until(state, lambda found: found == "alive")
        with stopped(one.process.pid):
            until(state, lambda found: found == "unresponsive")
            assert [each.body for each in client.pull("t", 0, 0).messages] == ["a"]
            until(client.store_state, lambda found: found.writer == "unresponsive")
            assert status(two.url + "/healthz/ready") == 200
        until(state, lambda found: found == "alive")


@pytest.mark.slow
def test_a_replica_whose_writer_is_stopped_serves_no_reads(tmp_path: Path) -> None:
    with elected(tmp_path, count=1) as replicas:
        replica = replicas.leader()
        with replica.client() as client, query(replica.store) as two:
            client.create_topic("t", queues=1)
            client.produce("t", [NewMessage(body="a")], durability="sync")

            def pull(offset: int = 0, wait_s: int = 0) -> httpx.Response:
                parameters = {"offset": offset, "wait": wait_s}
                return httpx.get(two.url + PULL, params=parameters, timeout=WAIT_S)

            def serving() -> int:
                return status(two.url + "/healthz/serving")

            until(pull, lambda found: found.status_code == 200)
            with ThreadPoolExecutor(1) as pool, stopped(replica.pid):
                polled = pool.submit(pull, offset=1, wait_s=PULL_WAIT_MAX_S)
                refused = until(pull, lambda found: found.status_code == 503)
                for each in (refused, polled.result()):
                    assert each.json()["type"].endswith(":store-not-ready")
                    assert each.headers["x-mqstore-writer"] == "unresponsive"
                until(serving, lambda found: found == 503)
                assert status(two.url + "/metrics") == 200
            until(pull, lambda found: found.status_code == 200)
            until(serving, lambda found: found == 200)
            client.produce("t", [NewMessage(body="b")], durability="sync")
            found = pull(offset=1, wait_s=PULL_WAIT_MAX_S)
            assert [each["body"] for each in found.json()["messages"]] == ["b"]
