"""Runs in a pod: produces synchronously until it is to stop, then looks for every message.

A message is sent again under its key until it is acknowledged. Lines of JSON: ``acked`` as it
grows, ``slow`` with ``endedAtMs`` for one that took long, and at the end what was found: ``lost``
and ``doubled`` are to be empty.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from mqstore.client import Client, ClientError, NewMessage

TOPIC = os.environ.get("TOPIC", "load")
DURABILITY: Any = os.environ.get("DURABILITY", "sync")
TIMEOUT_S = float(os.environ.get("TIMEOUT_S", "5"))
PAUSE_S = float(os.environ.get("PAUSE_S", "0.1"))
PATIENCE_S = float(os.environ.get("PATIENCE_S", "120"))
REPORT_EVERY = 50
SLOW_S = 0.3


def acknowledged(client: Client, key: str) -> float:
    """How long it took until the message was on disk, in seconds."""
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
    token, urls = os.environ["TOKEN"], (os.environ["WRITER_URL"], os.environ["QUERY_URL"])
    keys, slowest = [], 0.0
    with Client(*urls, token=token, timeout_s=TIMEOUT_S) as client:
        client.create_topic(TOPIC)
        while not Path("/tmp/stop").exists():  # the pod's own
            key = uuid.uuid4().hex.upper()
            took = acknowledged(client, key)
            if took > SLOW_S:
                print(json.dumps({"slow": took, "endedAtMs": time.time_ns() // 1_000_000}))
            slowest = max(slowest, took)
            keys.append(key)
            if len(keys) % REPORT_EVERY == 0:
                print(json.dumps({"acked": len(keys), "slowest": slowest}))
        found = stored(client)
        lost = [key for key in keys if not found[key]]
        doubled = [key for key in keys if found[key] > 1]
        print(json.dumps({"all": len(keys), "slowest": slowest, "lost": lost, "doubled": doubled}))


main()
