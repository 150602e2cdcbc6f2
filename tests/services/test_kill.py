"""The writer is killed at random moments, again and again: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

from mqstore.client import Client, ClientError, MessagePlace, NewMessage
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.services.service_processes import writer

TOPIC = "kill"
QUEUES = 2
PRODUCERS = 3
ROUNDS = int(os.environ.get("MQSTORE_KILL_ROUNDS", "4"))
SEGMENT_SIZE = 1 << 20
"""Small, so that kills also fall into the making of files."""


class _Producers:
    """Threads that produce until the writer is gone, and remember what was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.acknowledged: dict[str, tuple[MessagePlace, str]] = {}
        self.changed = threading.Condition()
        self._seed = seed

    def start(self, url: str, round_number: int) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=self._produce, args=(url, round_number, number))
            for number in range(PRODUCERS)
        ]
        for thread in threads:
            thread.start()
        return threads

    def await_count(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.acknowledged) >= count, 60)

    def _produce(self, url: str, round_number: int, number: int) -> None:
        random_ = random.Random(f"{self._seed}/{round_number}/{number}")
        durability = ("sync", "async")[number % 2]
        with Client(url) as client:
            for sequence in range(1_000_000):
                names = [
                    f"{round_number}.{number}.{sequence}.{part}"
                    for part in range(random_.choice((1, 1, 5)))
                ]
                messages = [
                    NewMessage(body=name + "#" * random_.randrange(3000), keys=(name,))
                    for name in names
                ]
                try:
                    placed = client.produce(TOPIC, messages, durability=durability).messages  # type: ignore[arg-type]  # one of two literals
                except ClientError:
                    return
                self._note(names, messages, placed)

    def _note(
        self, names: list[str], messages: list[NewMessage], placed: tuple[MessagePlace, ...]
    ) -> None:
        with self.changed:
            for name, message, where in zip(names, messages, placed, strict=True):
                self.acknowledged[name] = (where, str(message.body))
            self.changed.notify_all()


def test_everything_acknowledged_survives_kills_at_random_moments(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    store = tmp_path / "store"
    producers = _Producers(seed)
    with (
        writer(store, mapped_file_size_commit_log=SEGMENT_SIZE) as process,
        Client(process.url) as client,
    ):
        client.create_topic(TOPIC, queues=QUEUES)
    for round_number in range(ROUNDS):
        pooled = round_number % 2 == 1
        with writer(store, transient_store_pool_enable=pooled) as process:
            threads = producers.start(process.url, round_number)
            producers.await_count(len(producers.acknowledged) + random_.randrange(1, 800))
            process.kill()
            for thread in threads:
                thread.join()
    with writer(store):
        _check(store, producers.acknowledged)


def _check(store: Path, acknowledged: dict[str, tuple[MessagePlace, str]]) -> None:
    with StoreReader.open(store, production_seams()) as reader:
        lookups = reader.lookups
        for name, (placed, body) in acknowledged.items():
            found = lookups.by_message_id(placed.offset_msg_id)
            assert found.body.decode() == body, name
            assert (found.queue_id, found.queue_offset, found.keys) == (
                placed.queue_id,
                placed.queue_offset,
                name,
            )
        for queue_id in range(QUEUES):
            offset = 0
            end = lookups.queue_range(TOPIC, queue_id).max_offset
            while offset < end:
                pull = lookups.records(TOPIC, queue_id, offset, 1000)
                assert not pull.unreadable
                assert [each.queue_offset for each in pull.records] == list(
                    range(offset, pull.next_offset)
                )
                offset = pull.next_offset
