"""Runs in a pod: THREADS clients produce until they are to stop, then every message is looked for.

A message is sent again under its key until it is acknowledged. Lines of JSON: ``acked`` as it
grows; ``gap``, ``beganAtMs`` and ``endedAtMs`` of a time without an acknowledgement for any client;
at the end ``all``, ``lost`` and ``doubled``, the last two to be empty. ``slowest`` are the seconds
that the slowest message has taken.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mqstore.client import Client, ClientError, NewMessage

TOPIC = os.environ.get("TOPIC", "load")
DURABILITY: Any = os.environ.get("DURABILITY", "sync")
TIMEOUT_S = float(os.environ.get("TIMEOUT_S", "5"))
THREADS = int(os.environ.get("THREADS", "1"))
PAUSE_S = float(os.environ.get("PAUSE_S", "0.1"))
INTERVAL_S = float(os.environ.get("INTERVAL_S", "0"))
PATIENCE_S = float(os.environ.get("PATIENCE_S", "120"))
REPORT_EVERY = 50
GAP_S = 0.3
STOP = Path("/tmp/stop")  # the pod's own
URLS = (os.environ["WRITER_URL"], os.environ["QUERY_URL"])
TOKEN = os.environ["TOKEN"]


class Ledger:
    """Acknowledged messages, and the times without an acknowledgement."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.slowest_s = 0.0
        self._lock = threading.Lock()
        self._last = time.time()

    def note(self, key: str, took_s: float) -> None:
        with self._lock:
            now = time.time()
            if now - self._last > GAP_S:
                line = {"gap": round(now - self._last, 3)}
                times = {"beganAtMs": int(1000 * self._last), "endedAtMs": int(1000 * now)}
                print(json.dumps(line | times))
            self._last = now
            self.slowest_s = max(self.slowest_s, took_s)
            self.keys.append(key)
            if len(self.keys) % REPORT_EVERY == 0:
                print(json.dumps({"acked": len(self.keys), "slowest": self.slowest_s}))


def acknowledged(client: Client, key: str) -> float:
    """Send a message until it is acknowledged; returns the seconds that it took."""
    began = time.monotonic()
    message = NewMessage(body=key * 20, keys=(key,), uniq_key=key)
    while True:
        try:
            client.produce(TOPIC, [message], durability=DURABILITY)
        except ClientError as error:
            if time.monotonic() - began > PATIENCE_S:
                raise SystemExit(f"nothing acknowledged for {PATIENCE_S:g} s: {error}") from error
            time.sleep(PAUSE_S)
        else:
            return time.monotonic() - began


def produce(ledger: Ledger) -> None:
    """Send one message after the other."""
    with Client(*URLS, token=TOKEN, timeout_s=TIMEOUT_S) as client:
        while not STOP.exists():
            key = uuid.uuid4().hex.upper()
            ledger.note(key, acknowledged(client, key))
            time.sleep(INTERVAL_S)


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
        with ThreadPoolExecutor(THREADS) as pool:
            running = [pool.submit(produce, ledger) for _ in range(THREADS)]
        for each in running:
            each.result()
        found = stored(client)
    lost = [key for key in ledger.keys if not found[key]]
    doubled = [key for key in ledger.keys if found[key] > 1]
    end = {"all": len(ledger.keys), "slowest": ledger.slowest_s, "lost": lost, "doubled": doubled}
    print(json.dumps(end))


main()
