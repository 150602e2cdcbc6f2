"""Readers over REST while the writer beneath them is killed, recovers and cuts, and while what they
read expires: what is answered is a whole message, and one that stays."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import threading
import time
from pathlib import Path

import httpx
import pytest

from mqstore.client import Client, Message, MessagePlace, NewMessage, ProblemError
from mqstore.storage.config import StoreConfig
from mqstore.storage.paths import StorePaths, segment_name
from tests.page_cache import evict, is_in_memory
from tests.services.service_processes import SEGMENT_SIZE, query, writer
from tests.unit.storage.puts import put_batch
from tests.unit.storage.stores import CONFIG, message, open_store

TOPIC = "cut"
ROUNDS = 3
MESSAGES = 150
NEVER_MS = 600_000
"""Nothing is brought to disk but what a sync produce brings there."""
SEGMENTS = 100
SMALL = 1 << 20
WAIT_S = 30.0


def _body(name: str) -> str:
    return name + ":" + hashlib.sha256(name.encode()).hexdigest() * 8


def _is_whole(found: Message) -> bool:
    return found.body is not None and found.body == _body(found.body.partition(":")[0])


class _Reader(threading.Thread):
    """Pulls from random places of the queue and checks what comes, until it is to end."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._random = random.Random(number)
        self.ending = threading.Event()
        self.failure: Exception | None = None
        self.read = 0
        self.writer_states: set[str] = set()

    def run(self) -> None:
        try:
            with Client(self._url, self._url) as client, httpx.Client(base_url=self._url) as http:
                end = 0
                while not self.ending.is_set():
                    self.writer_states.add(http.get("/v1/store").headers["x-mqstore-writer"])
                    end = self._pull(client, self._random.randrange(end + 1))
        except Exception as error:
            self.failure = error

    def _pull(self, client: Client, offset: int) -> int:
        try:
            pulled = client.pull(TOPIC, 0, offset, max_messages=20)
        except ProblemError as error:
            if error.type == "store-not-ready":
                return offset
            raise
        for found in pulled.messages:
            assert _is_whole(found), found
        places = [found.queue_offset for found in pulled.messages]
        assert places == sorted(set(places)), places
        self.read += len(places)
        return pulled.max_offset


@pytest.mark.slow
def test_readers_never_see_a_message_that_is_torn_or_was_cut_away(tmp_path: Path) -> None:
    root = tmp_path / "store"
    slow = {"flush_interval_commit_log": NEVER_MS, "flush_commit_log_thorough_interval": NEVER_MS}
    with writer(root, **slow) as put, Client(put.url) as client:
        client.create_topic(TOPIC, queues=1)
        client.produce(TOPIC, [NewMessage(body=_body("first"))], durability="sync")
    with query(root) as find:
        readers = [_Reader(find.url, number) for number in range(3)]
        for reader in readers:
            reader.start()
        for number in range(ROUNDS):
            with writer(root, **slow) as put, Client(put.url) as client:
                _produce(client, f"{number}-kept", "sync")
                _produce(client, f"{number}-lost", "async")
                assert client.store().max_offset < SEGMENT_SIZE
                lost_from = client.store()
                put.process.kill()
                put.process.wait()
            _zero(root, lost_from.flushed_offset, lost_from.max_offset)
        with writer(root, **slow) as put, Client(put.url, find.url) as client:
            _produce(client, "last", "sync")
            names = [found.partition(":")[0] for found in _all(client)]
            for reader in readers:
                reader.ending.set()
                reader.join(WAIT_S)
    assert [reader.failure for reader in readers] == [None] * len(readers)
    assert all(reader.read for reader in readers)
    assert {"alive", "down"} <= set().union(*(reader.writer_states for reader in readers))
    kept = [f"{number}-kept-{each}" for number in range(ROUNDS) for each in range(MESSAGES)]
    assert names == ["first", *kept, *(f"last-{each}" for each in range(MESSAGES))]


def _zero(root: Path, start: int, stop: int) -> None:
    """As a power cut may: zeros stand where the log was not synced, in the very file that readers
    have mapped."""
    assert start < stop
    with (StorePaths(root).commit_log / segment_name(0)).open("r+b") as file:
        file.seek(start)
        file.write(bytes(stop - start))


def _produce(client: Client, name: str, durability: str) -> None:
    messages = [NewMessage(body=_body(f"{name}-{each}")) for each in range(MESSAGES)]
    for start in range(0, MESSAGES, 50):
        client.produce(TOPIC, messages[start : start + 50], durability=durability)  # type: ignore[arg-type] # one of two literals


def _all(client: Client) -> list[str]:
    found, offset = [], 0
    while (pulled := client.pull(TOPIC, 0, offset, max_messages=1000)).messages:
        found += [each.body or "" for each in pulled.messages]
        offset = pulled.next
    return found


def test_message_that_expires_while_it_is_read_is_gone(tmp_path: Path) -> None:
    root = tmp_path / "store"
    settings = {"mapped_file_size_commit_log": SMALL, "clean_resource_interval": NEVER_MS}
    with (
        writer(root, **settings) as put,
        query(root) as find,
        Client(put.url, find.url) as client,
    ):
        client.create_topic(TOPIC, queues=1)
        placed: list[MessagePlace] = []
        while client.store().segments < 4:
            body = NewMessage(body="x" * 50_000)
            placed += client.produce(TOPIC, [body], durability="async").messages
        statuses: set[int] = set()
        read = threading.Event()
        first = placed[0].offset_msg_id
        answers = threading.Thread(target=_read_until_gone, args=(find.url, first, statuses, read))
        answers.start()
        read.wait(WAIT_S)
        then = time.time() - 400 * 3600
        for path in StorePaths(root).commit_log.iterdir():
            os.utime(path, (then, then))
        client.run_retention()
        answers.join(WAIT_S)
        assert statuses == {200, 410}
        gone = httpx.get(f"{find.url}/v1/messages/{first}/body")
        assert gone.json()["type"] == "urn:mqstore:problem:message-expired"
        segment = httpx.get(f"{find.url}/v1/segments/{segment_name(0)}")
        assert segment.status_code == 410
        assert segment.json()["type"] == "urn:mqstore:problem:segment-expired"
        low = client.queues(TOPIC).queues[0].min_offset
        pulled = client.pull(TOPIC, 0, 0)
        # Further segments may expire between the two requests.
        assert (pulled.status, 0 < low <= pulled.next) == ("OFFSET_TOO_SMALL", True)
        assert client.message(placed[-1].offset_msg_id).body_size == 50_000


def _read_until_gone(url: str, message_id: str, statuses: set[int], read: threading.Event) -> None:
    with httpx.Client() as http:
        while 410 not in statuses:
            answer = http.get(f"{url}/v1/messages/{message_id}")
            assert answer.status_code == 410 or answer.json()["bodySize"] == 50_000, answer.text
            statuses.add(answer.status_code)
            read.set()


def test_query_starts_without_a_look_at_the_log(tmp_path: Path) -> None:
    root = tmp_path / "store"
    _fill(root)
    gc.collect()  # no object maps it any more
    segments = sorted(StorePaths(root).commit_log.iterdir())
    assert len(segments) >= SEGMENTS
    for path in segments:
        evict(path)
    if any(is_in_memory(path) for path in segments):
        pytest.skip("the file system of the tests keeps everything in memory")
    with query(root) as find, Client(find.url, find.url) as client:
        found = client.pull("T", 0, 0, max_messages=1).messages[0]
        assert found.queue_offset == 0
        assert [path.name for path in segments if is_in_memory(path)] == [segment_name(0)]


def _fill(root: Path) -> None:
    config: StoreConfig = CONFIG
    with open_store(root, config) as store:
        store.create_topic("T", queues=1)
        number = 0
        while store.log.max_offset < SEGMENTS * config.mapped_file_size_commit_log:
            put_batch(store, [message(store, number + each) for each in range(100)])
            number += 100
