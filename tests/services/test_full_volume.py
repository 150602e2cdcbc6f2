"""A shard that starts on a volume without a free byte makes room and takes messages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError
from tests.long_runs import few_first
from tests.services.service_processes import query, writer

pytestmark = pytest.mark.slow

SEGMENT = 4 << 20
BODY = b"x" * (100 << 10)
WAIT_S = 60.0
SETTINGS = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 100_000,
    "max_index_num": 400_000,
    "clean_resource_interval": 1000,
    "flush_consume_queue_thorough_interval": 200,
    "clean_file_forcibly_min_age": 0,
}
"""An index file is larger than a segment: it cannot be made again before more room is made."""


def _until(good: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not good():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _produce(client: Client, number: int) -> None:
    message = NewMessage(body=BODY, keys=(f"k{number}",))
    client.produce("t", [message], durability="sync")


def _fill(disk: Path) -> None:
    """Leave no free byte."""
    with (disk / "ballast").open("ab", buffering=0) as ballast:
        while free := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize:
            ballast.write(bytes(min(free, 1 << 20)))


@pytest.mark.parametrize("killed", few_first([True, False]))
def test_a_volume_without_a_free_byte_is_opened_and_takes_messages(
    small_disk: Path, killed: bool
) -> None:
    store, stored = small_disk / "store", 0
    with (
        writer(store, clean_file_forcibly_enable=False, **SETTINGS) as first,
        Client(first.url) as client,
    ):
        client.create_topic("t", queues=1)
        with pytest.raises(ProblemError) as refused:
            while True:
                _produce(client, stored)
                stored += 1
        assert refused.value.status == 507
        running = store / "mqstore" / "running.json"
        noted = running.stat().st_mtime_ns if running.exists() else 0
        _until(lambda: running.exists() and running.stat().st_mtime_ns >= noted)
        _fill(small_disk)
        with pytest.raises(ProblemError) as refused:
            client.create_topic("u", queues=1)
        assert refused.value.status == 507
        if killed:
            first.kill()
        else:
            first.process.terminate()
            first.process.wait(30)
    _fill(small_disk)
    with (
        writer(store, clean_file_forcibly_enable=True, **SETTINGS) as second,
        query(store) as reader,
        Client(second.url, reader.url) as client,
    ):
        for number in range(stored, stored + 30):
            _produce_when_there_is_room(client, number)
        assert len(client.pull("t", 0, stored + 29).messages) == 1
        least = int(httpx.get(second.url + "/v1/store").json()["minOffset"])
        assert SEGMENT <= least < (stored + 30) * len(BODY)


def _produce_when_there_is_room(client: Client, number: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return _produce(client, number)
        except ProblemError as error:
            assert error.status in (503, 507)
            assert time.monotonic() < deadline
            time.sleep(0.1)
