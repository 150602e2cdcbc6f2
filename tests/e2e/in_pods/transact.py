"""Runs in a pod: begins transactions, and decides each one behind whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from mqstore.client import Client, ClientError, NewMessage

Answer = TypeVar("Answer")
TOPIC = "transactions"


def insist(call: Callable[[], Answer]) -> Answer:
    """Repeating what may have been done is fine."""
    deadline = time.monotonic() + 90
    while True:
        try:
            return call()
        except ClientError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def main() -> None:
    urls = (os.environ["WRITER_URL"], os.environ["QUERY_URL"])
    coordinator, token = os.environ["COORDINATOR_URL"], os.environ["TOKEN"]
    with Client(*urls, coordinator_url=coordinator, token=token, timeout_s=5.0) as client:
        client.create_topic(TOPIC)
        begun: list[tuple[str, str]] = []
        while not Path("/tmp/stop").exists():
            key = uuid.uuid4().hex.upper()
            message = NewMessage(body=key, keys=(key,), uniq_key=key)
            answer = insist(partial(client.begin, "g", TOPIC, [message]))
            begun.append((key, answer.transaction_id))
            print(json.dumps({"begun": len(begun)}))
            time.sleep(0.1)
        for number, (_, transaction) in enumerate(begun):
            decide = client.rollback_transaction if number % 2 else client.commit_transaction
            insist(partial(decide, transaction))
        wrong = []
        for number, (key, _) in enumerate(begun):
            found = insist(partial(client.messages_by_key, TOPIC, key)).messages
            if len(found) != 1 - number % 2:
                wrong.append(number)
        print(json.dumps({"decided": len(begun), "wrong": wrong}))


main()
