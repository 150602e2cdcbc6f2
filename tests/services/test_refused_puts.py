"""A shard that refuses messages says so wherever an operator looks, and takes them again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError
from tests.services.service_processes import writer

SEGMENT = 8 << 20
BODY = b"x" * (200 << 10)
WAIT_S = 30.0
SETTINGS = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 1000,
    "max_index_num": 5000,
    "clean_resource_interval": 1000,
}


def _until(good: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not good():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_no_room_for_the_next_segment_is_the_same_problem_for_every_route(small_disk: Path) -> None:
    store = small_disk / "store"
    with writer(store, **SETTINGS) as one, Client(one.url) as client:

        def get(path: str) -> httpx.Response:
            return httpx.get(one.url + path)

        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(body=BODY)], durability="async")
        _until(lambda: len(list((store / "commitlog").iterdir())) == 2)
        usage = os.statvfs(small_disk)
        spare = SEGMENT - (1 << 20)
        (small_disk / "ballast").write_bytes(bytes(usage.f_bavail * usage.f_frsize - spare))
        problem = _produce_until_refused(client)
        assert (problem.status, problem.type) == (507, "disk-full")
        assert problem.problem["reason"] == "no-room"
        ready = get("/healthz/ready")
        assert ready.status_code == 503
        assert "make room" in ready.json()["detail"]
        assert get("/healthz/serving").status_code == 200
        writes = client.writes()
        assert writes.taken is False
        assert writes.refused is not None
        assert writes.refused["reason"] == "no-room"
        metrics = get("/metrics").text
        assert 'mqstore_puts_refused{reason="no-room"} 1.0' in metrics
        assert "mqstore_puts_refused_disk 1.0" in metrics
        plan = client.retention()
        assert plan.puts_refused
        assert "no-segment" in plan.triggers
        # Each attempt to make the segment fills the disk for a moment.
        _until(lambda: client.retention().volumes[0]["usedPercent"] < 85)
        events = (each for each in client.events() if each.kind == "puts")
        assert next(events).data["reason"] == "no-room"
        (small_disk / "ballast").unlink()
        _until(lambda: get("/healthz/ready").status_code == 200)
        assert not next(events).data["refused"]
        events.close()
        client.produce("t", [NewMessage(body=BODY)], durability="async")


def _produce_until_refused(client: Client) -> ProblemError:
    for _ in range(4 * SEGMENT // len(BODY)):
        try:
            client.produce("t", [NewMessage(body=BODY)], durability="async")
        except ProblemError as error:
            return error
    raise AssertionError("nothing was refused")
