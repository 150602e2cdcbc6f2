"""Runs in a pod: messages and transactions under unique keys, while shards are added and removed.

Lines of JSON: ``acked`` and ``committed`` as they grow; ``final`` is an error that a client must
not get; at the end ``all``, and ``lost`` and ``doubled``, which are to be empty; ``slowest`` are
the seconds that the slowest message or transaction has taken.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mqstore.client import Client, ClientError, NewMessage, ProblemError, Queue

Answer = TypeVar("Answer")
TOPIC = "load"
PATIENCE_S = 90.0
MAY_PASS = {429, 502, 503, 504}
REPORT_EVERY = 20
STOP = Path("/tmp/stop")  # the pod's own
URLS = (os.environ["WRITER_URL"], os.environ["QUERY_URL"])
COORDINATOR, TOKEN = os.environ["COORDINATOR_URL"], os.environ["TOKEN"]


def say(line: object) -> None:
    """Write a line at once, as several threads do."""
    sys.stdout.write(json.dumps(line) + "\n")


def connect() -> Client:
    return Client(*URLS, coordinator_url=COORDINATOR, token=TOKEN, timeout_s=5.0)


class Work:
    """One client's messages or transactions, each under a key of its own."""

    def __init__(self, name: str, send: Callable[[Client, str], object]) -> None:
        self.keys: list[str] = []
        self.slowest_s = 0.0
        self._name = name
        self._send = send

    def run(self) -> None:
        """Send one after the other; each is repeated until it is acknowledged."""
        with connect() as client:
            while not STOP.exists():
                key = uuid.uuid4().hex
                began = time.monotonic()
                insist(lambda: self._send(client, key))  # noqa: B023
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                self.keys.append(key)
                if len(self.keys) % REPORT_EVERY == 0:
                    say({self._name: len(self.keys), "slowest": self.slowest_s})
                time.sleep(0.02)


def insist(call: Callable[[], Answer]) -> Answer:
    """The result of a call that is repeated; errors that a client takes as final are printed."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except ClientError as error:
            if isinstance(error, ProblemError) and error.status not in MAY_PASS:
                say({"final": 1, "why": f"{error.status} {error}"})
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def produce(client: Client, key: str) -> None:
    client.produce(TOPIC, [NewMessage(body="x", uniq_key=key)], durability="sync")


def transact(client: Client, key: str) -> None:
    begun = insist(lambda: client.begin("g", TOPIC, [NewMessage(body="x", uniq_key=key)]))
    client.commit_transaction(begun.transaction_id)


def stored(client: Client) -> Counter[str]:
    """How often each key stands in the topic's queues, over all shards."""
    found: Counter[str] = Counter()
    queues = insist(lambda: complete(client))
    for queue in queues:
        offset = queue.min_offset
        while offset < queue.max_offset:
            pulled = client.pull(
                TOPIC, queue.queue_id, offset, max_messages=1000, shard=queue.shard
            )
            found.update(message.uniq_key or "" for message in pulled.messages)
            offset = pulled.next
    return found


def complete(client: Client) -> list[Queue]:
    found = client.queues(TOPIC)
    if found.shards is not None and found.shards.missing:
        raise ClientError(f"shards {found.shards.missing} are missing")
    return list(found.queues)


def main() -> None:
    with connect() as client:
        insist(lambda: client.create_topic(TOPIC))
        works = [Work("acked", produce), Work("acked", produce), Work("committed", transact)]
        threads = [threading.Thread(target=each.run, daemon=True) for each in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = stored(client)
    keys = [key for each in works for key in each.keys]
    lost = [key for key in keys if not found[key]]
    doubled = [key for key in keys if found[key] > 1]
    slowest = max(each.slowest_s for each in works)
    say({"all": len(keys), "slowest": slowest, "lost": lost, "doubled": doubled})


main()
