"""A reader beside the soak: `python -m tests.soak.readers URL`, until its input ends.

Pulls every queue from its first message on, as records of the log, and sometimes queries a key. The
last line of its output is the number of messages.
"""

from __future__ import annotations

import http.client
import itertools
import select
import sys
from typing import Final
from urllib.parse import urlsplit

from tests.bench.workload import QUEUES, TOPIC

PULL: Final = 256
KEY_EACH: Final = 50
"""Pulls between two look-ups by key."""


def main(url: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    following = [0] * QUEUES
    messages = 0
    for number in itertools.count():
        if select.select([sys.stdin], [], [], 0)[0]:
            break
        queue = number % QUEUES
        following[queue], count = _pull(connection, queue, following[queue])
        messages += count
        if number % KEY_EACH == 0:
            _get(connection, f"/v1/topics/{TOPIC}/messages?key=order-{messages}")
    print(messages)


def _pull(connection: http.client.HTTPConnection, queue: int, offset: int) -> tuple[int, int]:
    """Pull once; return the next offset and the number of messages. Waits shortly for none."""
    path = f"/v1/topics/{TOPIC}/queues/{queue}/messages?offset={offset}&max={PULL}&wait=0.2"
    answer = _get(connection, path)
    return int(answer["x-mqstore-next"]), int(answer["x-mqstore-messages"])


def _get(connection: http.client.HTTPConnection, path: str) -> http.client.HTTPMessage:
    connection.request("GET", path, headers={"accept": "application/x-rocketmq-records"})
    response = connection.getresponse()
    body = response.read()
    if response.status not in (200, 404):  # a key of a message that retention took
        raise AssertionError(f"{path}: {response.status} {body[:500]!r}")
    return response.headers


if __name__ == "__main__":
    main(sys.argv[1])
