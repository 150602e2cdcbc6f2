"""store-writer on a disk whose syncs are slow: none is made on the event loop, and puts that lack a
segment are refused wherever an operator looks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError, Target
from tests.services.service_processes import Process, service

WATCHED_WRITER = "tests.services.watched_writer"
SEGMENT = 1 << 20
BODY = "x" * (64 << 10)
WAIT_S = 60.0


class Disk:
    """The disk under a writer of this test (``watched_writer``)."""

    def __init__(self, directory: Path) -> None:
        self.noted = directory / "syncs"
        self.noted.touch()
        self.store = directory / "store"

    @contextlib.contextmanager
    def writer(self) -> Iterator[Process]:
        sizes: dict[str, Any] = {
            "mapped_file_size_commit_log": SEGMENT,
            "mapped_file_size_consume_queue": 2000,
            "max_hash_slot_num": 100,
            "max_index_num": 50,
            "clean_resource_interval": 1000,
        }
        arguments = ["-m", WATCHED_WRITER]
        with service(Target.WRITER, arguments, self.store, **sizes) as process:
            yield process

    @property
    def of_loop(self) -> list[str]:
        """Paths that the event loop has synced."""
        lines = self.noted.read_text().splitlines()
        return [line.removeprefix("loop ") for line in lines if line.startswith("loop ")]

    def hold(self, text: str) -> None:
        self.noted.with_suffix(".hold").write_text(text)

    def go_on(self) -> None:
        self.noted.with_suffix(".hold").unlink()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk(tmp_path)
    monkeypatch.setenv("WATCHED_SYNCS", str(found.noted))
    return found


def _until(good: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not good():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_the_event_loop_makes_no_sync(disk: Disk) -> None:
    with disk.writer() as one, Client(one.url, coordinator_url=one.url) as client:
        before = len(disk.of_loop)
        client.create_topic("t", queues=2)
        client.put_group("g")
        for number in range(150):  # more than a queue file, and an index file, take
            sent = NewMessage(body="a", keys=[f"k{number}"], uniq_key=f"u{number}")
            client.produce("t", [sent], durability="async" if number % 2 else "sync")
        client.produce("t", [NewMessage(body="b", delay_s=1)])
        for _ in range(40):  # two segments
            client.produce("t", [NewMessage(body=BODY)], durability="async")
        for decide in (client.commit_transaction, client.rollback_transaction):
            decide(client.begin("p", "t", NewMessage(body="h")).transaction_id)
        received = client.receive("g", "t", max_messages=3).messages
        client.acknowledge("g", received[0])
        client.give_back("g", received[1])
        client.extend("g", received[2])
        client.subscribe("g", "t", "a > 1")
        client.unsubscribe("g", "t")
        client.commit("h", "t", {0: 5})
        client.join("o", "member", "t")
        client.put_writes(paused=True, reason="test")
        client.put_writes(paused=False)
        client.delete_group("h")
        client.delete_topic("t")
        assert disk.of_loop[before:] == []


@pytest.mark.slow
def test_puts_that_wait_for_a_segment_are_refused_wherever_an_operator_looks(disk: Disk) -> None:
    with disk.writer() as one, Client(one.url) as client:

        def ready() -> httpx.Response:
            return httpx.get(f"{one.url}/healthz/ready")

        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(body=BODY)], durability="async")
        disk.hold("commitlog")
        problem = _produce_until_refused(client)
        assert (problem.status, problem.type) == (503, "page-cache-busy")
        assert ready().status_code == 503
        assert "segment" in ready().json()["detail"]
        writes = client.writes()
        assert not writes.taken and writes.refused is not None
        assert writes.refused["reason"] == "slow-disk"
        metrics = httpx.get(f"{one.url}/metrics").text
        assert 'mqstore_puts_refused{reason="slow-disk"} 1.0' in metrics
        assert "mqstore_puts_refused_disk 0.0" in metrics
        disk.go_on()
        _until(lambda: ready().status_code == 200)
        client.produce("t", [NewMessage(body=BODY)], durability="async")


def _produce_until_refused(client: Client) -> ProblemError:
    for _ in range(4 * SEGMENT // len(BODY)):
        try:
            client.produce("t", [NewMessage(body=BODY)], durability="async", patience_s=0.0)
        except ProblemError as error:
            return error
    raise AssertionError("nothing was refused")
