"""Runs in a pod: THREADS clients produce until they are to stop, then every message is looked for.

A message is sent again under its key until it is acknowledged. Lines of JSON: ``acked`` as it
grows; ``gap``, ``beganAtMs`` and ``endedAtMs`` of a time without an acknowledgement for any client;
at the end ``all``, ``lost`` and ``doubled``.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from mqstore.client import Client, ClientError, NewMessage

TOPIC = os.environ["TOPIC"]
DURABILITY: Any = os.environ["DURABILITY"]
TIMEOUT_S = float(os.environ["TIMEOUT_S"])
THREADS = int(os.environ["THREADS"])
PAUSE_S = float(os.environ["PAUSE_S"])
REPORT_EVERY = 50
GAP_S = 0.3
URLS = (os.environ["WRITER_URL"], os.environ["QUERY_URL"])
TOKEN = os.environ["TOKEN"]


class Ledger:
    """Acknowledged messages, and the times without an acknowledgement."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._lock = threading.Lock()
        self._last = time.time()

    def note(self, key: str) -> None:
        with self._lock:
            now = time.time()
            if now - self._last > GAP_S:
                line = {"gap": round(now - self._last, 3)}
                times = {"beganAtMs": int(1000 * self._last), "endedAtMs": int(1000 * now)}
                print(json.dumps(line | times))
            self._last = now
            self.keys.append(key)
            if len(self.keys) % REPORT_EVERY == 0:
                print(json.dumps({"acked": len(self.keys)}))


def produce(ledger: Ledger) -> None:
    """Send one message after the other, each until it is acknowledged."""
    with Client(*URLS, token=TOKEN, timeout_s=TIMEOUT_S) as client:
        while not Path("/tmp/stop").exists():
            key = uuid.uuid4().hex.upper()
            message = NewMessage(body=key, keys=(key,), uniq_key=key)
            while True:
                try:
                    client.produce(TOPIC, [message], durability=DURABILITY)
                    break
                except ClientError:
                    time.sleep(PAUSE_S)
            ledger.note(key)
            time.sleep(PAUSE_S)


def stored(client: Client) -> Counter[str]:
    """How often each key stands in the topic's queues."""
    found: Counter[str] = Counter()
    for queue in client.queues(TOPIC).queues:
        offset = queue.min_offset
        while offset < queue.max_offset:
            pulled = client.pull(TOPIC, queue.queue_id, offset, max_messages=1000)
            found.update(message.uniq_key or "" for message in pulled.messages)
            offset = pulled.next
    return found


def main() -> None:
    ledger = Ledger()
    with Client(*URLS, token=TOKEN, timeout_s=30.0) as client:
        client.create_topic(TOPIC)
        threads = [threading.Thread(target=produce, args=[ledger]) for _ in range(THREADS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        found = stored(client)
    lost = [key for key in ledger.keys if not found[key]]
    doubled = [key for key in ledger.keys if found[key] > 1]
    print(json.dumps({"all": len(ledger.keys), "lost": lost, "doubled": doubled}))


main()
